"""What a person sees who opens an API path in a browser, and what programs see there."""

import re
from html.parser import HTMLParser

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from clusterstate.actions.cluster import default_roles
from tests.api.builders import NODES, PODS, node, pod
from tests.api.conftest import STRATEGIC
from tests.clock import NOW

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
EVIL = "<script>alert(1)</script>"


class Page(HTMLParser):
    """What a page loads and links to."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        assert not [name for name in given if name.startswith("on") or name == "style"], given
        if tag == "a":
            self.links.append(given["href"])
        elif "src" in given or tag == "link":
            self.loads.append(given.get("src") or given["href"])


def person(name, *, group="", superuser=False):
    found = User.objects.create_user(name, password="x", is_staff=True, is_superuser=superuser)
    if group:
        found.groups.add(Group.objects.get_or_create(name=group)[0])
    browser = Client(HTTP_ACCEPT=BROWSER)
    browser.force_login(found)
    return browser


@pytest.fixture
def cluster(api):
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("p", nodeName="n")).ok(201)
    change = {"metadata": {"annotations": {"said": EVIL}}}
    api.patch(f"{PODS}/p", change, content_type=STRATEGIC).ok()
    return api


@pytest.fixture
def ann(cluster):
    return person("ann", superuser=True)


def opened(browser, path, status=200):
    answer = browser.get(path)
    assert answer.status_code == status, answer.content[:500]
    assert answer["Content-Type"] == "text/html; charset=utf-8"
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = answer.content.decode()
    page = Page(text)
    assert "script" not in page.tags
    assert "form" not in page.tags
    assert page.loads
    assert all(one.startswith("/static/") for one in page.loads)
    assert all(one.startswith(("/", "?", "#")) and not one.startswith("//") for one in page.links)
    return text, page


def test_a_list_has_a_row_for_each_object_that_leads_to_it(ann):
    text, page = opened(ann, "/api/v1/pods")
    assert f"{PODS}/p" in page.links
    assert '<th scope="col">Namespace</th>' in text
    _, page = opened(ann, PODS)
    assert f"{PODS}/p" in page.links


def test_an_object_leads_to_what_it_names_and_what_it_says_is_escaped(ann):
    text, page = opened(ann, f"{PODS}/p")
    for path in (f"{NODES}/n", "/api/v1/namespaces/ns", f"{PODS}/p/decisions"):
        assert path in page.links
    assert EVIL not in text
    assert "&lt;script&gt;" in text
    for view in ("yaml", "json"):
        text, _ = opened(ann, f"{PODS}/p?view={view}")
        assert EVIL not in text
        assert re.search("nodeName(&quot;)?: (&quot;)?n", text)


def test_every_link_of_the_documents_leads_to_a_page(ann):
    seen, waiting = set(), ["/api", "/apis"]
    while waiting:
        path = waiting.pop()
        if path in seen or not re.match(r"/apis?(/|$)", path) or path.count("/") > 4:
            continue
        seen.add(path)
        _, page = opened(ann, path)
        if path.count("/") < 4:
            waiting += page.links
    assert len(seen) > 60


def test_long_lists_come_in_pages(ann, api, monkeypatch):
    monkeypatch.setattr("api.forms.pagination._OF_A_PAGE", 1)
    api.post(PODS, pod("q")).ok(201)
    _, page = opened(ann, PODS)
    (following,) = [one for one in page.links if "continue=" in one]
    assert f"{PODS}/p" in page.links
    _, page = opened(ann, PODS + following)
    assert f"{PODS}/q" in page.links
    revision = api.get(PODS).ok()["metadata"]["resourceVersion"]
    for query in ("", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"):
        _, page = opened(ann, f"{PODS}?resourceVersion={revision}{query}")
        (following,) = [one for one in page.links if "continue=" in one]
        _, page = opened(ann, PODS + following)
        assert f"{PODS}/q" in page.links


def test_a_person_sees_what_the_roles_let_them(cluster):
    default_roles.reconcile(now=NOW)
    opened(person("viewer", group="stowage:viewer"), f"{PODS}/p")
    text, _ = opened(person("nobody"), f"{PODS}/p", 403)
    assert "User &quot;nobody&quot; cannot get resource" in text
    text, _ = opened(person("admin2", superuser=True), f"{PODS}/none", 404)
    assert "not found" in text


def test_who_is_not_signed_in_is_led_to_the_login(cluster):
    answer = Client(HTTP_ACCEPT=BROWSER).get(f"{PODS}?limit=5")
    assert answer.status_code == 302
    assert answer["Location"].startswith("/console/sign-in?next=/api/v1/namespaces/ns/pods")


@pytest.mark.parametrize("who", ["ann", "nobody", ""])
def test_a_web_server_answers_a_browser_as_the_views_do(server, who):
    """It hands the request over with what it knows of the sender: of a browser, nothing."""
    default_roles.reconcile(now=NOW)
    browser, cookie = Client(HTTP_ACCEPT=BROWSER), {}
    if who:
        browser = person(who, superuser=who == "ann")
        name = settings.SESSION_COOKIE_NAME
        cookie = {"cookie": f"{name}={browser.cookies[name].value}"}
    paths = ("/", "/api", "/api/v1", "/apis", "/apis/apps/v1/", NODES, PODS, f"{PODS}/none",
             "/docs/", "/apis/stowage.dev/v1/evictions", "/admin/auth/user/")  # fmt: skip
    for path in paths:
        view = browser.get(path)
        status, headers, body = server.ask("GET", path, accept=BROWSER, **cookie)
        assert status == view.status_code, (path, body[:300])
        assert headers["content-type"] == view["Content-Type"], path
        assert headers.get("location") == view.get("Location"), path
        if who == "ann" and path in (NODES, PODS, "/docs/"):
            assert status == 200, path


def test_a_session_reads_pages_and_nothing_else(ann):
    """No other site can make a browser write, nor a script read JSON, by the person's session."""
    for method in ("post", "put", "patch", "delete"):
        assert getattr(ann, method)(f"{PODS}/p").status_code == 401
    assert ann.get(f"{PODS}/p", HTTP_ACCEPT="application/json").status_code == 401
    assert ann.get(f"{PODS}/p", HTTP_ACCEPT="*/*").status_code == 401


def test_programs_see_what_they_saw(cluster):
    for accept in ("*/*", "application/json", BROWSER, ""):
        answer = cluster.get(f"{PODS}/p", accept=accept)
        assert answer.ok()["kind"] == "Pod"
    cluster.get(f"{PODS}/p", accept="text/html").fails(406, "NotAcceptable")


def test_the_reference_tells_of_every_kind_and_of_our_own(ann):
    _, page = opened(ann, "/docs/")
    groups = [one for one in page.links if one.startswith("/docs/api")]
    assert {"/docs/api/v1/", "/docs/apis/apps/v1/", "/docs/apis/stowage.dev/v1/"} <= set(groups)
    text, page = opened(ann, "/docs/apis/stowage.dev/v1/")
    for path in ("/waitingpods/{name}/permit", "/schedulerconfiguration", "/headroom"):
        assert path in text
    for group in groups:
        text, page = opened(ann, group)
        for link in page.links:
            assert not link.startswith("#") or f'id="{link[1:]}"' in text, (group, link)
    opened(ann, "/docs/apis/none/v1/", 404)
    assert Client().get("/docs/").status_code == 401
