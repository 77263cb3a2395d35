"""What a stranger's cookie costs: nothing is asked of the database for a text that was made up."""

from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from api.console.live.stream import person_of
from clusterstate.browser_sessions import SessionStore
from tests import roundtrips
from tests.console.conftest import signed_in

PAGES = ("/console/", "/console/nodes/", "/console/sign-in", "/admin/login/", "/console/nothing")


def queries(client: Client, path: str) -> tuple[int, int]:
    """Return the status of a page, and how many statements it took."""
    with roundtrips.counted() as trips:
        status = client.get(path).status_code
    return status, trips.number


def made_up(key: str) -> list[str]:
    """Return keys that were not given out: of any form, and almost one that was."""

    def another(letter: str) -> str:
        return "b" if letter == "a" else "a"

    return [
        "", "x", "a" * 32, "a" * 40, "é" * 40, "a" * 4000, key[:-1], key + "0",
        key[:-1] + another(key[-1]), another(key[0]) + key[1:], key.upper(),
    ]  # fmt: skip


def test_a_made_up_cookie_is_nobodys_without_a_question(operator: Client) -> None:
    key = operator.cookies[settings.SESSION_COOKIE_NAME].value
    stranger = Client(HTTP_ACCEPT="text/html")
    for text in made_up(key):
        stranger.cookies[settings.SESSION_COOKIE_NAME] = text
        for path in PAGES:
            status, asked = queries(stranger, path)
            assert status in (200, 302, 404), (text, path)
            assert asked == 0, (text, path)
        header = (b"cookie", f"{settings.SESSION_COOKIE_NAME}={text}".encode())
        with roundtrips.counted() as trips:
            assert person_of([header], secure=False) is None
        assert trips.number == 0
    assert operator.get("/console/nodes/").status_code == 200


def test_a_key_that_was_given_out_is_found_by_its_row(operator: Client) -> None:
    key = operator.cookies[settings.SESSION_COOKIE_NAME].value
    header = (b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode())
    person = person_of([header], secure=False)
    assert person is not None
    assert person.name == "anna"
    Session.objects.all().delete()
    assert person_of([header], secure=False) is None
    assert operator.get("/console/nodes/").status_code == 302


def test_keys_of_another_secret_are_made_up_ones(settings: Any) -> None:
    signed_in("bob")
    ours = SessionStore()
    ours.create()
    key = ours.session_key
    assert key is not None
    assert len(key) == 40
    assert SessionStore(key).session_key == key
    settings.SECRET_KEY = "another secret of another service"
    assert SessionStore(key).session_key is None


@pytest.mark.parametrize("number", range(20))
def test_every_new_key_is_a_good_one(db: None, number: int) -> None:
    ours = SessionStore()
    ours.create()
    assert SessionStore(ours.session_key).session_key == ours.session_key
    ours.cycle_key()
    assert SessionStore(ours.session_key).exists(ours.session_key)
