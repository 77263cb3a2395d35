"""Tokens and the first administrator."""

import hashlib
from io import StringIO

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from clusterstate.actions import tokens, users
from clusterstate.models.tokens import ApiToken
from tests.clock import NOW

pytestmark = pytest.mark.django_db


def test_the_first_administrator_keeps_a_changed_password() -> None:
    assert users.ensure_administrator(name="admin", password="first-password")
    assert not users.ensure_administrator(name="admin", password="second-password")
    request = RequestFactory().get("/admin/")
    assert authenticate(request, username="admin", password="first-password").is_superuser
    assert authenticate(request, username="admin", password="second-password") is None


def test_a_token_is_stored_as_its_digest_once() -> None:
    users.ensure_administrator(name="admin", password="first-password")
    for expected in (True, False):
        assert (
            tokens.create_token(user="admin", secret="s3cret", now=NOW, groups=["system:masters"])
            is expected
        )
    (stored,) = ApiToken.objects.all()
    assert bytes(stored.digest) == hashlib.sha256(b"s3cret").digest()
    assert stored.groups == ["system:masters"]
    assert tokens.delete_token(secret="s3cret")
    assert not tokens.delete_token(secret="s3cret")


def test_a_token_for_nobody_is_refused() -> None:
    with pytest.raises(CommandError, match="no user 'nobody'"):
        call_command("createtoken", "nobody")


def test_createtoken_prints_a_working_token() -> None:
    get_user_model().objects.create_user("ann")
    output = StringIO()
    call_command("createtoken", "ann", "--group", "stowage:readers", "--days", "1", stdout=output)
    digest = hashlib.sha256(output.getvalue().strip().encode()).digest()
    assert ApiToken.objects.get(digest=digest).groups == ["stowage:readers"]
