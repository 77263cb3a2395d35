"""Lists that are read in pages, and how long a client may take over them."""

import base64
import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from api import clock
from clusterstate.queries.objects.lists import CONTINUE_SECONDS
from tests.clock import after

TEMPLATES = "/api/v1/namespaces/ns/podtemplates"


@pytest.fixture
def made(api):
    """Six objects; the API."""
    for number in range(6):
        body = {"metadata": {"name": f"t{number}"}}
        body["template"] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        api.post(TEMPLATES, body).ok(201)
    return api


def _names(page):
    return [item["metadata"]["name"] for item in page["items"]]


def test_a_list_that_took_too_long_goes_on_in_the_present(made, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: after(0))
    first = made.get(f"{TEMPLATES}?limit=2").ok()
    token = first["metadata"]["continue"]
    made.delete(f"{TEMPLATES}/t3").ok()
    monkeypatch.setattr(clock, "now", lambda: after(CONTINUE_SECONDS - 5))
    assert _names(made.get(f"{TEMPLATES}?limit=2&continue={token}").ok()) == ["t2", "t3"]

    monkeypatch.setattr(clock, "now", lambda: after(CONTINUE_SECONDS + 5))
    gone = made.get(f"{TEMPLATES}?limit=2&continue={token}").fails(410, "Expired")
    assert "results in an inconsistent list" in gone["message"]
    loose = gone["metadata"]["continue"]
    second = made.get(f"{TEMPLATES}?limit=2&continue={loose}").ok()
    assert _names(second) == ["t2", "t4"]
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    assert second["metadata"]["remainingItemCount"] == 1

    # From here on the list is that of one revision again, and grows old again.
    made.delete(f"{TEMPLATES}/t5").ok()
    token = second["metadata"]["continue"]
    third = made.get(f"{TEMPLATES}?limit=2&continue={token}").ok()
    assert _names(third) == ["t5"]
    assert third["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    monkeypatch.setattr(clock, "now", lambda: after(2 * CONTINUE_SECONDS + 10))
    made.get(f"{TEMPLATES}?limit=2&continue={token}").fails(410, "Expired")


def test_a_token_says_at_which_revision_its_list_goes_on(made):
    """A client that names another one, or the same, is told that it may not."""
    first = made.get(f"{TEMPLATES}?limit=2").ok()
    query = f"{TEMPLATES}?limit=2&continue={first['metadata']['continue']}"
    for revision in ("1", first["metadata"]["resourceVersion"]):
        refused = made.get(f"{query}&resourceVersion={revision}").fails(400, "BadRequest")
        assert refused["message"] == (
            "specifying resource version is not allowed when using continue"
        )
    for revision in ("0", ""):
        assert _names(made.get(f"{query}&resourceVersion={revision}").ok()) == ["t2", "t3"]


def test_a_person_may_take_any_time_over_a_page(made, monkeypatch):
    token = made.get(f"{TEMPLATES}?limit=2").ok()["metadata"]["continue"]
    user = User.objects.create_user("ann", password="x", is_staff=True, is_superuser=True)
    browser = Client(HTTP_ACCEPT="text/html")
    browser.force_login(user)
    monkeypatch.setattr(clock, "now", lambda: after(CONTINUE_SECONDS + 5))
    page = browser.get(f"{TEMPLATES}?limit=2&continue={token}")
    assert page.status_code == 200
    assert "t3" in page.content.decode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rv": 2**62}, {"rv": -5}, {"began": 2**62}, {"began": -(2**62)}, {"remaining": -1},
        {"start": ["ns", "a\0b"]}, {"start": ["\0", ""]}, {"start": ["x" * 5000, "y" * 5000]},
        {"past": True}, {"past": True, "rv": 2**62}, {"past": True, "rv": -5},
        {"rv": 2**64}, {"rv": 10**30}, {"began": 10**30},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_this_server_did_not_write_is_a_mistake_of_the_client(made, wrong):
    token = made.get(f"{TEMPLATES}?limit=2").ok()["metadata"]["continue"]
    held = json.loads(base64.urlsafe_b64decode(token)) | wrong
    forged = base64.urlsafe_b64encode(json.dumps(held).encode()).decode()
    answer = made.get(f"{TEMPLATES}?limit=2&continue={forged}")
    assert answer.status in (200, 400, 410), answer.raw[:300]
