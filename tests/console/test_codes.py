"""One-time codes: set up with an app, asked for after the password, used once, and lost."""

from collections.abc import Callable
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from api import clock
from clusterstate.actions.people import codes
from clusterstate.models.people import OneTimeCodes
from tests.clock import after
from tests.console.conftest import signed_in, text

PASSWORD = "pass word 123"
ACCOUNT, SIGN_IN, CODE = "/console/account", "/console/sign-in", "/console/sign-in/code"
SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238's, in base32


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_codes_are_those_of_the_standard(seconds: int, code: str) -> None:
    """RFC 6238, appendix B."""
    assert codes.code_of(SECRET, seconds // 30, digits=8) == code


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the time of the pages."""

    def move(seconds: float) -> None:
        monkeypatch.setattr(clock, "now", lambda: after(seconds))

    move(0)
    return move


@pytest.fixture
def anna(at: Callable[[float], None]) -> User:
    """Somebody who has codes by SECRET; the code of moment 0 is used up."""
    signed_in("anna", superuser=True)
    User.objects.update(is_staff=True)
    person = User.objects.get(username="anna")
    assert codes.begin(person, SECRET, _code(0), now=after(0))
    return person


def _code(seconds: float) -> str:
    return codes.code_of(SECRET, codes.step_of(after(seconds)))


def _password(client: Client, **more: str) -> Any:
    return client.post(SIGN_IN, {"username": "anna", "password": PASSWORD, **more})


def _is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_codes_are_set_up_by_a_picture_and_a_first_code(at: Callable[[float], None]) -> None:
    browser = signed_in("anna")
    assert "Set codes up" in text(browser.get(ACCOUNT))
    wrong = browser.post(ACCOUNT, {"what": "begin", "password": "guessed"})
    assert wrong.status_code == 403
    assert "The password is wrong" in text(wrong)
    browser.post(ACCOUNT, {"what": "begin", "password": PASSWORD})
    page = text(browser.get(ACCOUNT))
    secret = page.split('<code id="secret">')[1].split("<")[0].replace(" ", "")
    assert secret not in str([row.get_decoded() for row in Session.objects.all()])
    assert "<svg" in page
    assert "style=" not in page
    wrong = browser.post(ACCOUNT, {"what": "confirm", "code": "000000x"})
    assert "This code is wrong" in text(wrong)
    assert not OneTimeCodes.objects.exists()
    code = codes.code_of(secret, codes.step_of(after(0)))
    page = text(browser.post(ACCOUNT, {"what": "confirm", "code": code}))
    assert page.count("<li><code>") == 10
    row = OneTimeCodes.objects.get()
    assert secret not in row.secret
    page = text(browser.get(ACCOUNT))
    assert "10 codes left to recover access" in page
    assert "<li><code>" not in page


def test_after_the_password_a_code_is_asked_for_and_used_once(
    anna: User, at: Callable[[float], None]
) -> None:
    browser = Client()
    assert browser.get(CODE)["Location"] == SIGN_IN
    at(60)
    assert _password(browser, next="/console/pods/")["Location"] == CODE
    assert not _is_signed_in(browser)
    assert browser.get("/console/")["Location"].startswith(SIGN_IN)
    assert "Code from your authenticator app for anna" in text(browser.get(CODE))
    answer = browser.post(CODE, {"code": f" {_code(60)[:3]} {_code(60)[3:]} "})
    assert answer["Location"] == "/console/pods/"
    assert _is_signed_in(browser)
    other = Client()
    _password(other)
    again = other.post(CODE, {"code": _code(60)})
    assert again.status_code == 403
    assert "used before" in text(again)
    assert not _is_signed_in(other)
    at(90)
    assert other.post(CODE, {"code": _code(90)})["Location"] == "/console/"


def test_a_code_for_emergencies_works_once(at: Callable[[float], None]) -> None:
    signed_in("anna")
    person = User.objects.get(username="anna")
    first, *_ = codes.begin(person, SECRET, _code(0), now=after(0))
    for works in (True, False):
        browser = Client()
        _password(browser)
        browser.post(CODE, {"code": first.lower()})
        assert _is_signed_in(browser) is works
    assert codes.recovery_left(person) == 9


def test_wrong_codes_lock_out_as_wrong_passwords_do(
    anna: User, at: Callable[[float], None]
) -> None:
    browser = Client()
    _password(browser)
    answers = []
    for number in range(10):
        at(100 + 2000 * number)
        answers.append(browser.post(CODE, {"code": "000000"}).status_code)
    assert answers == [403] * 9 + [429]
    assert _password(Client()).status_code == 429
    at(30_000)
    assert browser.post(CODE, {"code": _code(30_000)}).status_code == 429
    assert not _is_signed_in(browser)


def test_wrong_codes_from_anywhere_make_each_next_try_wait(
    anna: User, at: Callable[[float], None]
) -> None:
    at(60)
    for number in range(5):
        assert not codes.check(anna, f"00000{number}", now=after(60))
    with pytest.raises(codes.TooManyTries):
        codes.check(anna, _code(60), now=after(60.5))
    assert not codes.check(anna, "000000", now=after(61.5))
    with pytest.raises(codes.TooManyTries):
        codes.check(anna, _code(60), now=after(63))
    browser = Client(REMOTE_ADDR="192.0.2.7")
    _password(browser)
    at(62)
    assert "Try again in 2 s" in text(browser.post(CODE, {"code": _code(62)}))
    at(64)
    assert browser.post(CODE, {"code": _code(64)}).status_code == 302
    assert OneTimeCodes.objects.get().failures == 0


def test_a_code_that_was_mistyped_is_not_kept(anna: User, at: Callable[[float], None]) -> None:
    at(60)
    browser = Client()
    _password(browser)
    browser.post(CODE, {"code": "mist-yped", "other": "shown"})
    row = AccessAttempt.objects.get()
    assert "other=shown" in row.post_data
    assert "mist" not in row.post_data


def test_with_another_password_since_then_a_code_is_not_enough(
    anna: User, at: Callable[[float], None]
) -> None:
    at(60)
    browser = Client()
    _password(browser)
    anna.set_password("another pass word")
    anna.save()
    assert browser.post(CODE, {"code": _code(60)})["Location"] == SIGN_IN
    assert not _is_signed_in(browser)


def test_the_admins_own_sign_in_does_not_pass_codes_by(anna: User) -> None:
    browser = Client()
    answer = browser.post("/admin/login/", {"username": "anna", "password": PASSWORD})
    assert "sign in at /console/" in text(answer)
    assert not _is_signed_in(browser)


def test_codes_are_given_up_with_a_code_or_by_an_administrator(
    anna: User, at: Callable[[float], None]
) -> None:
    at(60)
    browser = Client()
    browser.force_login(anna, backend="django.contrib.auth.backends.ModelBackend")
    assert browser.post(ACCOUNT, {"what": "remove", "code": "000000"}).status_code == 403
    assert codes.since(anna)
    browser.post(ACCOUNT, {"what": "remove", "code": _code(60)})
    assert codes.since(anna) is None
    assert codes.begin(anna, SECRET, _code(60), now=after(60))
    at(120)
    page = f"/admin/clusterstate/onetimecodes/{anna.pk}/delete/"
    assert browser.post(page, {"post": "yes"}).status_code == 302
    assert codes.since(anna) is None


def test_another_signing_key_leaves_the_codes_for_emergencies(
    at: Callable[[float], None], settings: Any
) -> None:
    signed_in("anna")
    person = User.objects.get(username="anna")
    first, *_ = codes.begin(person, SECRET, _code(0), now=after(0))
    settings.SECRET_KEY = "another"
    assert not codes.check(person, _code(60), now=after(60))
    assert codes.check(person, first, now=after(60))
