"""Whose turn a browser's request takes: its person's, once the session was seen to be good."""

import pytest
from django.conf import settings

from api.server.sessions import Sessions


def browser(cookie: bytes, scheme: str) -> dict[str, object]:
    return {"type": "http", "scheme": scheme, "headers": [(b"cookie", cookie)]}


@pytest.mark.parametrize(("scheme", "prefix"), [("http", b""), ("https", b"__Host-")])
def test_a_session_is_its_persons_and_nobody_elses(scheme: str, prefix: bytes) -> None:
    sessions = Sessions()
    name = prefix + settings.SESSION_COOKIE_NAME.encode()
    annas, bobs = (browser(b"x=y; %s=%s" % (name, key), scheme) for key in (b"a", b"b"))
    sessions.saw(annas, "anna")
    sessions.saw(bobs, "bob")
    assert (sessions.flow(annas), sessions.flow(bobs)) == ("anna", "bob")
    for stranger in (b"", b"x=y", b"%s=c" % name, b"other%s=a" % name):
        assert sessions.flow(browser(stranger, scheme)) == ""
        sessions.forget(browser(stranger, scheme))
    assert sessions.flow(annas) == "anna"
    sessions.forget(annas)
    assert (sessions.flow(annas), sessions.flow(bobs)) == ("", "bob")


def test_who_has_no_session_is_not_taken_for_who_was_seen_last() -> None:
    sessions = Sessions()
    sessions.saw(browser(b"x=y", "https"), "anna")
    assert sessions.flow(browser(b"x=y", "https")) == ""
