"""What every page of the console keeps: sign-in, rights, policy, failures as pages."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client

from api.console import urls
from api.console.page import layout
from clusterstate.actions import objects
from tests.clock import NOW
from tests.clusterstate.support import new_pod
from tests.console.conftest import allow, give, text

PAGES = ["/console/", "/console/nodes/", "/console/fleet/beside", "/console/fleet/columns"]


def test_a_browser_is_led_to_the_console_and_a_program_is_not(operator: Client) -> None:
    answer = operator.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/console/")
    assert Client().get("/", HTTP_ACCEPT="application/json").status_code == 401


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_signs_in_first_and_comes_back(path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/console/sign-in?next=%2Fconsole%2F")


OPEN = {"sign-in", "sign-in-code", "sign-out", "company", "company-back"}
SENT_TO = [
    "/" + re.sub(r"<(?:\w+:)?\w+>", "1", f"console/{one.pattern}")
    for one in urls.urlpatterns
    if one.name not in OPEN
]


@pytest.mark.parametrize("path", SENT_TO)
def test_who_is_signed_out_while_a_form_is_open_comes_back_to_the_form(path: str) -> None:
    """Not to the address that it was sent to, which is often no page."""
    page = "http://testserver/console/pods/a/b/?tab=why&x=1"
    answer = Client().post(path, {"do": "it"}, headers={"referer": page})
    assert answer.status_code == 302
    back = parse_qs(urlsplit(answer["Location"]).query)["next"]
    assert back == ["/console/pods/a/b/?tab=why&x=1"]


@pytest.mark.parametrize("page", ["", "http://other.example/console/nodes/", "http://["])
def test_who_is_signed_out_comes_back_to_a_page_of_the_console(page: str) -> None:
    answer = Client().post("/console/plans/x/act", headers={"referer": page})
    assert answer["Location"] == "/console/sign-in?next=%2Fconsole%2F"


def test_a_person_signs_in_and_out() -> None:
    User.objects.create_user("bob", password="pass word 123")
    client = Client()
    data = {"username": "bob", "password": "pass word 123", "next": "/console/nodes/"}
    answer = client.post("/console/sign-in", data)
    assert (answer.status_code, answer["Location"]) == (302, "/console/nodes/")
    assert client.post("/console/sign-out").status_code == 302
    assert client.get("/console/").status_code == 302


def test_the_sign_in_leads_to_no_other_server() -> None:
    User.objects.create_user("bob", password="pass word 123")
    data = {"username": "bob", "password": "pass word 123", "next": "https://evil.example/"}
    assert Client().post("/console/sign-in", data)["Location"] == "/console/"


def test_a_lock_out_is_a_page_that_says_how_long(db: None) -> None:
    User.objects.create_user("bob", password="pass word 123")
    client = Client()
    data = {"username": "bob", "password": "wrong"}
    for _ in range(10):
        answer = client.post("/console/sign-in", data)
    assert answer.status_code == 429
    assert "Try again in 15 minutes" in text(answer)
    assert "<main" in text(answer)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_policy_without_exceptions(
    operator: Client, cluster: None, path: str
) -> None:
    answer = operator.get(path)
    assert answer.status_code == 200
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_who_may_not_list_nodes_gets_a_page_that_says_so(nobody: Client, path: str) -> None:
    answer = nobody.get(path)
    assert answer.status_code == 403
    assert "cannot list resource" in text(answer)
    assert "<main" in text(answer)


def test_who_may_not_see_nodes_is_led_to_the_first_page_that_is_theirs() -> None:
    """Also out of a failure, whose button would lead back to one."""
    rules = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]
    browser = allow("petra", rules)
    answer = browser.get("/console/")
    assert (answer.status_code, answer["Location"]) == (302, "/console/pods/")
    refused = browser.get("/console/?q=zone%3Da")
    assert refused.status_code == 403
    assert '<a class="button" href="/console/pods/">' in text(refused)
    assert 'href="/admin/"' not in text(refused)


def test_an_open_page_learns_who_is_signed_in_and_what_its_forms_bear(operator: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    found = strict.get("/console/here", HTTP_HX_REQUEST="true").json()
    assert found["person"] == "anna"
    sent = {"csrfmiddlewaretoken": found["token"], "what": "cancel"}
    assert strict.post("/console/account", sent).status_code == 302
    assert Client().get("/console/here", HTTP_HX_REQUEST="true").status_code == 401


def test_who_asks_for_a_past_that_is_not_kept_is_told_so(operator: Client, cluster: None) -> None:
    answer = operator.get("/console/nodes/?at=2001-01-01T00:00:00Z")
    assert answer.status_code == 410
    assert "Choose a moment closer to now" in text(answer)


def test_whatever_scrolls_can_be_reached_by_keys_and_has_a_name() -> None:
    """On a narrow screen each of these scrolls, and many hold nothing that takes the focus."""
    found = {
        (template.name, tag)
        for template in (Path(layout.__file__).parents[2] / "templates/console").glob("*.html")
        for tag in re.findall(r'<div class="scrolls[^>]*>', template.read_text())
    }
    assert len(found) > 20
    named = re.compile(r'tabindex="0" role="region" aria-label="[^"]+"')
    assert {one for one in found if not named.search(one[1])} == set()


def test_a_part_of_a_page_fails_with_words_and_no_second_frame(nobody: Client) -> None:
    answer = nobody.get("/console/nodes/", HTTP_HX_REQUEST="true")
    assert answer.status_code == 403
    assert "<main" not in text(answer)


def test_the_navigation_has_only_what_the_person_may_see(nobody: Client, viewer: Client) -> None:
    assert 'data-key="n"' not in text(nobody.get("/console/"))
    assert 'data-key="n"' in text(viewer.get("/console/"))
    # A page that takes several rights is led to by who has all of them.
    asks = {"apiGroups": ["stowage.dev"], "resources": ["plans", "nodeadvice", "comparisons"],
            "verbs": ["create"]}  # fmt: skip
    sees = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}
    for name, rules, leads in (("asks", [asks], False), ("all", [asks, sees], True)):
        person = allow(name, rules)
        assert ('data-key="i"' in text(person.get("/console/account"))) is leads
        found = person.get("/console/find?q=node+advice").json()["items"]
        assert bool(found) is leads
        assert (person.get("/console/nodes/advice").status_code == 200) is leads


def test_who_works_in_some_namespaces_finds_what_they_may_see(operator: Client) -> None:
    """Navigation, lists and search show it, the first namespace at once, and name the others."""
    for name, namespace in (("mine-1", "team-a"), ("mine-2", "team-b"), ("foreign-9", "default")):
        if namespace != "default":
            objects.create("Namespace", "", {"metadata": {"name": namespace}}, now=NOW)
        new_pod(name, namespace=namespace)
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/decisions", "configmaps"],
         "verbs": ["get", "list"]},
        {"apiGroups": ["stowage.dev"], "resources": ["waitinggroups"], "verbs": ["list"]},
    ]  # fmt: skip
    tina = allow("tina", rules, namespace="team-a")
    objects.create("Role", "team-b", {"metadata": {"name": "tina"}, "rules": rules}, now=NOW)
    give("tina", "tina", "tina", "team-b")
    answer = tina.get("/console/", follow=True)
    assert answer.redirect_chain[-1][0] == "/console/pods/"
    page = text(answer)
    assert re.findall(r'<a href="[^"]*" data-key="(\w)"', page) == ["p", "w", "d", "o"]
    assert "mine-1" in page
    assert "mine-2" not in page
    assert 'href="?namespace=team-b"' in page
    assert "mine-2" in text(tina.get("/console/pods/?namespace=team-b"))
    assert tina.get("/console/pods/?namespace=default").status_code == 403
    for page in ("waiting/", "objects/ConfigMap/", "changes/", "decisions/"):
        answer = tina.get(f"/console/{page}")
        assert answer.status_code == 200, page
        assert "foreign-9" not in text(answer), page
    assert "1 pending pod" in text(tina.get("/console/waiting/"))
    found = tina.get("/console/find?q=mine").json()["items"]
    assert [one["text"] for one in found] == ["team-a/mine-1", "team-b/mine-2"]
    assert tina.get("/console/find?q=foreign").json()["items"] == []
    kinds = [one["text"] for one in tina.get("/console/find?q=configmap").json()["items"]]
    assert kinds == ["ConfigMap"]
    assert "/console/objects/ConfigMap/" in text(tina.get("/console/policies/"))
    assert tina.get("/console/nodes/").status_code == 403


def test_an_unknown_page_is_a_page_and_an_unknown_api_path_a_status(operator: Client) -> None:
    User.objects.update(is_staff=True)
    for path in ("/console/nothing", "/admin/nothing/"):
        answer = operator.get(path)
        assert answer.status_code == 404
        assert "There is no such page" in text(answer)
    assert Client().get("/apis/nothing/v1/x").json()["kind"] == "Status"


def test_a_form_from_elsewhere_is_refused_by_a_page(operator: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    answer = strict.post("/console/sign-out")
    assert answer.status_code == 403
    assert "This form is too old" in text(answer)
    assert "Ask an administrator" not in text(answer)


@pytest.mark.parametrize("path", ["/console/nodes/", "/admin/clusterstate/node/"])
def test_without_a_database_a_page_says_so(path: str, operator: Client) -> None:
    """Who is signed in cannot be read either, so the page has no navigation."""

    def refuse(*_: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    operator.raise_request_exception = False
    with connection.execute_wrapper(refuse):
        answer = operator.get(path)
    page = answer.content.decode()
    assert answer.status_code == 503
    assert "<h1>Not available right now</h1>" in page
    assert "the database does not answer" in page
    assert "Try again" in page
    assert "unsafe" not in answer["Content-Security-Policy"]
