"""Logging in and out, and who may."""

import re
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client

from tests.admin.pages import text

pytestmark = pytest.mark.django_db

PASSWORD = "pass word 123"


@pytest.fixture
def anna() -> User:
    return User.objects.create_superuser("anna", password=PASSWORD)


def log_in(client: Client, password: str = PASSWORD, address: str = "10.0.0.1") -> int:
    data = {"username": "anna", "password": password}
    return client.post("/admin/login/?next=/admin/", data, REMOTE_ADDR=address).status_code


@pytest.mark.parametrize("secure", [False, True])
def test_the_admin_asks_to_log_in_over_http_and_https(anna: User, secure: bool) -> None:
    client = Client()
    answer = client.get("/admin/", follow=True, secure=secure)
    assert "Log in" in text(answer)
    data = {"username": "anna", "password": PASSWORD}
    assert client.post("/admin/login/?next=/admin/", data, secure=secure).status_code == 302
    assert "Overview" in text(client.get("/admin/", secure=secure))


def test_a_session_of_https_is_sent_over_https_alone_and_http_has_its_own(
    anna: User, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["stowage.example", "localhost", "testserver"]
    client = Client()
    data = {"username": "anna", "password": PASSWORD}
    answer = client.post("/admin/login/", data, secure=True, headers={"host": "stowage.example"})
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    names = {name for name in answer.cookies if answer.cookies[name].value}
    assert {"__Host-stowage-session", "__Host-stowage-csrf"} <= names
    for name in names:
        cookie = answer.cookies[name]
        assert name.startswith("__Host-")
        assert cookie["secure"]
        assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert answer.cookies["__Host-stowage-session"]["httponly"]
    assert client.get("/admin/", secure=True).status_code == 200
    assert client.get("/admin/").status_code == 302, "not over http"
    assert client.post("/admin/auth/group/add/", {"name": "ops"}, secure=True).status_code == 302
    listed = client.get("/admin/auth/group/", secure=True).content.decode()
    assert "was added successfully" in listed, "messages have a cookie, too"

    plain = Client()
    answer = plain.post("/admin/login/", data, headers={"host": "localhost"})
    assert not answer.cookies["stowage-session"]["secure"]
    assert "Strict-Transport-Security" not in answer.headers
    assert plain.get("/admin/").status_code == 200
    assert plain.get("/admin/", secure=True).status_code == 302
    local = Client().get("/admin/login/", secure=True, headers={"host": "localhost:8443"})
    assert "Strict-Transport-Security" not in local.headers


def test_a_session_ends_when_nobody_does_anything(anna: User, settings: Any) -> None:
    client = Client()
    log_in(client)
    assert client.get("/admin/").status_code == 200
    session = client.session
    session["seen"] -= settings.SESSION_IDLE_SECONDS - 30
    session.save()
    assert client.get("/admin/", headers={"hx-request": "true"}).status_code == 200
    assert client.session["seen"] == session["seen"], "what a page asks for by itself"
    session["seen"] -= 60
    session.save()
    assert client.get("/admin/").status_code == 302
    assert client.get("/admin/").status_code == 302


def test_a_wrong_password_is_told_and_no_session_begins(anna: User) -> None:
    client = Client()
    answer = client.post("/admin/login/", {"username": "anna", "password": "wrong"})
    assert "Please enter the correct username and password" in text(answer)
    assert client.get("/admin/").status_code == 302


def test_too_many_wrong_passwords_lock_out_that_address_alone(anna: User) -> None:
    client = Client()
    for _ in range(settings.AXES_FAILURE_LIMIT):
        status = log_in(client, "wrong")
    assert status == 429
    data = {"username": "anna", "password": PASSWORD}
    locked = client.post("/admin/login/", data, REMOTE_ADDR="10.0.0.1")
    assert locked.status_code == 429
    assert "Try again in 15 minutes" in text(locked)
    assert "<main" in locked.content.decode()
    assert log_in(Client(), address="10.0.0.2") == 302


def test_an_administrator_ends_a_lock_out(anna: User, administrator_2: Client) -> None:
    client = Client()
    for _ in range(settings.AXES_FAILURE_LIMIT):
        log_in(client, "wrong")
    listing = "/admin/axes/accessattempt/"
    page = administrator_2.get(listing)
    assert "10.0.0.1" in text(page)
    chosen = [str(attempt.pk) for attempt in page.context["cl"].result_list]
    data = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    administrator_2.post(listing, data)
    assert log_in(client) == 302


@pytest.fixture
def administrator_2() -> Client:
    client = Client()
    client.force_login(
        User.objects.create_superuser("berta", password=PASSWORD),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    return client


def test_a_form_from_elsewhere_is_refused(anna: User) -> None:
    client = Client(enforce_csrf_checks=True)
    data = {"username": "anna", "password": PASSWORD}
    assert client.post("/admin/login/", data).status_code == 403


def test_log_out_is_a_post(administrator_2: Client) -> None:
    assert administrator_2.get("/admin/logout/").status_code == 405
    assert administrator_2.post("/admin/logout/").status_code == 200
    assert administrator_2.get("/admin/").status_code == 302


def test_every_page_has_a_policy_for_scripts(administrator_2: Client) -> None:
    for path in ("/admin/login/", "/admin/", "/admin/clusterstate/node/"):
        policy = administrator_2.get(path, follow=True)["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy.split("style-src")[0]


def test_users_and_groups_are_kept_here(administrator_2: Client) -> None:
    for model in ("user", "group"):
        assert administrator_2.get(f"/admin/auth/{model}/").status_code == 200
        assert administrator_2.get(f"/admin/auth/{model}/add/").status_code == 200
    data = {
        "username": "clara", "password1": "quite long 77", "password2": "quite long 77",
        "usable_password": "true",
    }  # fmt: skip
    assert administrator_2.post("/admin/auth/user/add/", data).status_code == 302
    clara = User.objects.get(username="clara")
    assert clara.check_password("quite long 77")
    assert administrator_2.get(f"/admin/auth/user/{clara.pk}/change/").status_code == 200
    assert administrator_2.get(f"/admin/auth/user/{clara.pk}/password/").status_code == 200


def test_who_is_no_staff_stays_outside() -> None:
    user = User.objects.create_user("dora", password=PASSWORD)
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/admin/").status_code == 302


def test_a_refusal_and_an_unknown_page_are_pages_with_a_way_back(administrator_2: Client) -> None:
    User.objects.create_user("emil", password=PASSWORD, is_staff=True)
    client = Client()
    assert client.login(request=HttpRequest(), username="emil", password=PASSWORD)
    for browser, path, code in (
        (client, "/admin/clusterstate/node/", 403),
        (administrator_2, "/admin/clusterstate/nothing/", 404),
    ):
        answer = browser.get(path)
        assert answer.status_code == code
        page = answer.content.decode()
        assert '<html lang="en">' in page
        assert "<title>" in page
        assert re.search(r'<a class="button" href="/console/[^"]*">[^<]+</a>', page)
