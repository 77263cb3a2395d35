"""Signing in with an account of the company: by a real provider over loopback, which also lies."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from api.console.people import company
from clusterstate import environment
from clusterstate.access import people
from clusterstate.actions.cluster import default_roles
from tests.clock import NOW
from tests.console.conftest import signed_in, text
from tests.console.provider import Provider, providing

BEGIN, BACK = "/console/sign-in/company", "/console/sign-in/company/back"

pytestmark = pytest.mark.real_clock


@pytest.fixture
def provider(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr(company, "_kept", {})
    with providing() as found:
        settings.OIDC_ISSUER = found.issuer
        settings.OIDC_TITLE = "Acme"
        yield found


def arrive(provider: Provider, browser: Client, *, following: str = "", **changed: str) -> Any:
    """Go to the provider and back; return the answer of the way back."""
    there = browser.get(BEGIN, {"next": following})
    assert there.status_code == 302, text(there)
    assert there["Location"].startswith(f"{provider.issuer}/authorize?")
    return browser.get(BACK, provider.sign_in(there["Location"]) | changed)


def test_somebody_of_the_company_signs_in_with_name_and_groups(
    provider: Provider, settings: Any
) -> None:
    default_roles.reconcile(now=NOW)
    settings.OIDC_NAME_CLAIM = "email"
    settings.OIDC_CLIENT_SECRET = provider.secret = "s3cret"
    provider.claims = {"email": "ann@acme.example", "groups": ["ops", "web"]}
    browser = Client()
    page = text(browser.get("/console/sign-in?next=/console/pods/"))
    assert "Sign in with Acme" in page
    assert f'href="{BEGIN}?next=/console/pods/"' in page
    answer = arrive(provider, browser, following="/console/pods/")
    assert answer["Location"] == "/console/pods/"
    person = User.objects.get(username="oidc:ann@acme.example")
    assert not person.has_usable_password()
    assert not person.is_staff
    groups = people.user_of(person).groups
    assert set(groups) == {"oidc:ops", "oidc:web", "system:authenticated"}
    assert browser.get("/console/").status_code == 403
    account = text(browser.get("/console/account"))
    assert "oidc:ops, oidc:web" in account
    assert "company account" in account


def test_each_sign_in_brings_the_groups_up_to_date(provider: Provider, settings: Any) -> None:
    settings.OIDC_PREFIX = ""
    default_roles.reconcile(now=NOW)
    provider.claims = {"groups": ["stowage:viewer", "system:masters"]}
    browser = Client()
    arrive(provider, browser)
    assert browser.get("/console/nodes/").status_code == 200
    assert browser.get("/console/audit/").status_code == 403
    provider.claims = {"groups": "others"}
    browser = Client()
    arrive(provider, browser)
    assert browser.get("/console/nodes/").status_code == 403
    assert Group.objects.filter(name="stowage:viewer").exists()
    provider.claims = {}
    arrive(provider, Client())
    assert not User.objects.get(username="ann-1").groups.exists()


def _expired(provider: Provider) -> None:
    provider.claims = {"exp": int(time.time()) - 60}


def _of_another_key(provider: Provider) -> None:
    provider.signs_with = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _by_a_shared_secret(provider: Provider) -> None:
    provider.signs_with, provider.algorithm = "stowage" * 8, "HS256"


def _unsigned(provider: Provider) -> None:
    provider.algorithm = "none"


LIES: dict[str, Callable[[Provider], Any] | dict[str, Any]] = {
    "expired": _expired,
    "of another key": _of_another_key,
    "by a shared secret": _by_a_shared_secret,
    "unsigned": _unsigned,
    "of another issuer": {"iss": "https://elsewhere.example"},
    "for another program": {"aud": "payroll"},
    "for several, and another one": {"aud": ["stowage", "payroll"], "azp": "payroll"},
    "of another sign-in": {"nonce": "guessed"},
    "without a name": {"sub": 7},
    "with a name that is too long": {"sub": "x" * 200},
    "with a name of two lines": {"sub": "ann\nadmin"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_cannot_be_trusted_signs_nobody_in(provider: Provider, lie: str) -> None:
    told = LIES[lie]
    if isinstance(told, dict):
        provider.claims = told
    else:
        told(provider)
    browser = Client()
    answer = arrive(provider, browser)
    assert answer.status_code == 403
    assert "did not work" in text(answer)
    assert "_auth_user_id" not in browser.session
    assert not User.objects.exists()


def test_a_way_back_that_was_not_begun_here_is_refused(provider: Provider) -> None:
    browser, other = Client(), Client()
    assert arrive(provider, browser, state="guessed").status_code == 403
    there = browser.get(BEGIN)["Location"]
    assert other.get(BACK, provider.sign_in(there)).status_code == 403
    back = provider.sign_in(there)
    assert browser.get(BACK, back | {"error": "access_denied"}).status_code == 403
    assert browser.get(BACK, back).status_code == 403, "a state is used once"
    assert arrive(provider, browser, iss="https://elsewhere.example").status_code == 403
    assert arrive(provider, browser, code="guessed").status_code == 503
    assert arrive(provider, browser).status_code == 302


def test_to_begin_costs_no_row_and_no_session(provider: Provider) -> None:
    for _ in range(3):
        assert Client().get(BEGIN).status_code == 302
    assert not Session.objects.exists()
    browser = signed_in("anna")
    before = Session.objects.get()
    browser.get(BEGIN)
    after = Session.objects.get()
    assert after.session_key == before.session_key
    assert after.expire_date >= before.expire_date


def test_what_was_begun_is_bound_to_the_browser_by_a_signature(provider: Provider) -> None:
    browser = Client()
    there = browser.get(BEGIN, {"next": "/console/pods/?part=" + "x" * 2000})["Location"]
    back = provider.sign_in(there)
    held = browser.cookies["stowage-company"]
    assert held["httponly"]
    assert held["samesite"] == "Lax"
    assert len(held.value) < 4000
    other = Client()
    for made_up in ("", "x", "x:y:z", held.value + "x", signing.dumps({"state": back["state"]})):
        other.cookies["stowage-company"] = made_up
        assert other.get(BACK, back).status_code == 403
    assert browser.get(BACK, back)["Location"] == "/console/"
    assert not browser.cookies["stowage-company"].value


def test_over_https_the_cookie_is_one_of_this_host_alone(provider: Provider) -> None:
    browser = Client()
    there = browser.get(BEGIN, secure=True)["Location"]
    assert browser.cookies["__Host-stowage-company"]["secure"]
    back = provider.sign_in(there)
    assert browser.get(BACK, back, secure=True).status_code == 302
    assert User.objects.get().username == "oidc:ann-1"


def test_nobody_at_the_provider_becomes_part_of_the_cluster(
    provider: Provider, settings: Any
) -> None:
    """Roles are bound to names like these, and tokens to people without a password."""
    settings.OIDC_PREFIX = ""
    robot = User.objects.create_user("ci", is_superuser=True)
    assert not robot.has_usable_password()
    for name, why in (
        ("system:kube-scheduler", "reserved for the cluster"),
        ("ci", "a local user for tokens"),
    ):
        provider.claims = {"sub": name}
        browser = Client()
        answer = arrive(provider, browser)
        assert answer.status_code == 403
        assert why in text(answer)
        assert "_auth_user_id" not in browser.session
    assert User.objects.get() == robot


def test_groups_that_no_column_takes_are_left_out(provider: Provider) -> None:
    provider.claims = {"groups": ["ops", "a\0b", "\ud800", "x" * 200, 7]}
    assert arrive(provider, Client()).status_code == 302
    assert [group.name for group in User.objects.get().groups.all()] == ["oidc:ops"]


def test_nobody_at_the_provider_becomes_somebody_of_here(provider: Provider, settings: Any) -> None:
    signed_in("anna", superuser=True)
    settings.OIDC_PREFIX = ""
    provider.claims = {"sub": "anna"}
    browser = Client()
    answer = arrive(provider, browser)
    assert answer.status_code == 403
    assert "a local user, who signs in with a password" in text(answer)
    settings.OIDC_NAME_CLAIM = "email"
    provider.claims = {"email": "ann@acme.example", "email_verified": False}
    assert "not verified" in text(arrive(provider, browser))
    provider.claims = {"email": "ann@acme.example"}
    assert arrive(provider, browser).status_code == 302
    User.objects.filter(username="ann@acme.example").update(is_active=False)
    assert "is deactivated here" in text(arrive(provider, Client()))


def test_one_is_led_to_pages_of_this_server_alone(provider: Provider) -> None:
    for following in ("https://elsewhere.example/", "//elsewhere.example", "javascript:x"):
        assert arrive(provider, Client(), following=following)["Location"] == "/console/"


def test_a_new_key_of_the_provider_is_found(provider: Provider) -> None:
    arrive(provider, Client())
    provider.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    provider.key_id = "two"
    assert arrive(provider, Client()).status_code == 302
    assert provider.asked.count("/keys") == 2
    assert provider.asked.count("/.well-known/openid-configuration") == 1


def test_a_provider_that_is_away_or_another_one_is_said_to_be(
    provider: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Client()
    provider.metadata = {"issuer": "https://elsewhere.example"}
    answer = browser.get(BEGIN)
    assert answer.status_code == 503
    assert "Acme does not answer as it should" in text(answer)
    monkeypatch.setattr(company, "_kept", {})
    provider.metadata = {"token_endpoint": "http://elsewhere.example/token"}
    assert "no https address for token_endpoint" in text(browser.get(BEGIN))
    monkeypatch.setattr(company, "_kept", {})
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    assert browser.get(BEGIN).status_code == 503


def test_a_provider_that_is_away_is_not_asked_for_each_stranger(
    provider: Provider, settings: Any
) -> None:
    settings.OIDC_ISSUER = f"{provider.issuer}/nowhere"
    for _ in range(3):
        answer = Client().get(BEGIN)
        assert answer.status_code == 503
        assert "it answered 404" in text(answer)
    assert len(provider.asked) == 1


def test_it_is_off_by_default(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.OIDC_ISSUER == ""
    assert Client().get(BEGIN).status_code == 404
    assert "company" not in text(Client().get("/console/sign-in"))
    monkeypatch.setenv("STOWAGE_OIDC_ISSUER", "http://login.acme.example")
    with pytest.raises(ImproperlyConfigured, match="must start with https"):
        environment.issuer("STOWAGE_OIDC_ISSUER")
