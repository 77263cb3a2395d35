"""Tokens and the first administrator."""

import hashlib
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from clusterstate.actions.people import tokens, users
from clusterstate.local import first_token
from clusterstate.models.tokens import ApiToken
from clusterstate.processes import private_files
from clusterstate.queries.people.tokens import TokenUser, token_user
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


def said(*command: str, **options: Any) -> str:
    output = StringIO()
    call_command(*command, stdout=output, **options)
    return output.getvalue().strip()


@pytest.mark.parametrize(
    ("options", "lives"),
    [
        ([], tokens.LIFETIME),
        (["--ttl", "12h"], timedelta(hours=12)),
        (["--days", "2"], timedelta(days=2)),
        (["--ttl", "never"], None),
    ],
)
def test_a_token_expires_unless_it_is_said_that_it_never_does(
    options: list[str], lives: timedelta | None
) -> None:
    get_user_model().objects.create_user("ann")
    said("createtoken", "ann", *options)
    (stored,) = ApiToken.objects.all()
    if lives is None:
        assert stored.expires_at is None
    else:
        assert stored.expires_at is not None
        assert stored.expires_at - stored.created_at == lives


@pytest.mark.parametrize("ttl", ["0d", "-1d", "1", "1w", "forever", "", "99999d", "\u00b2d"])
def test_a_lifetime_that_is_none_is_refused(ttl: str) -> None:
    get_user_model().objects.create_user("ann")
    with pytest.raises(CommandError):
        call_command("createtoken", "ann", f"--ttl={ttl}")
    assert not ApiToken.objects.exists()


def test_a_node_gets_a_token_and_is_nobody_who_logs_in() -> None:
    secret = said("createtoken", "system:node:n1.example", "--name", "agent")
    found = token_user(tokens.digest(secret), now=NOW)
    assert found == TokenUser("system:node:n1.example", ("system:nodes",))
    assert not get_user_model().objects.exists()


@pytest.mark.parametrize("name", ["", "N1", "a/b", "-", "a" * 254])
def test_what_no_node_can_be_called_gets_no_token(name: str) -> None:
    with pytest.raises(CommandError, match="not the name of a node"):
        call_command("createtoken", f"system:node:{name}")


def test_a_node_is_in_no_other_group() -> None:
    with pytest.raises(CommandError, match="system:masters"):
        call_command("createtoken", "system:node:n1", "--group", "system:masters")


def test_tokens_are_listed_and_taken_back() -> None:
    get_user_model().objects.create_user("ann")
    mine = said("createtoken", "ann", "--name", "laptop", "--group", "stowage:readers")
    said("createtoken", "system:node:n1", "--ttl", "never")
    lines = said("listtokens").splitlines()
    assert len(lines) == 3
    assert mine not in "".join(lines)
    node, ann = lines[1].split(), lines[2].split()
    assert node[1:4] == ["system:node:n1", "-", "system:nodes"]
    assert node[-1] == "never"
    assert ann[1:4] == ["ann", "laptop", "stowage:readers"]
    assert said("revoketoken", ann[0]) == "1 token taken back"
    assert token_user(tokens.digest(mine), now=NOW) is None
    with pytest.raises(CommandError, match=f"no token {ann[0]}"):
        call_command("revoketoken", ann[0], node[0])
    assert said("revoketoken", user="system:node:n1") == "1 token taken back"
    assert said("listtokens").splitlines()[1:] == []


def test_the_first_token_is_rotated(tmp_path: Path, settings: Any) -> None:
    settings.STATE_DIR = tmp_path
    users.ensure_administrator(name="admin", password="first-password")
    first_token.ensure(tmp_path, now=NOW)
    old = private_files.read(tmp_path / "token")
    assert old is not None
    said("rotatetoken")
    new = private_files.read(tmp_path / "token")
    assert new not in (None, old)
    assert str(new) in (tmp_path / "kubeconfig").read_text()
    server = f"https://127.0.0.1:{settings.HTTPS_PORT}"
    settings.HTTPS_PORT += 1
    assert server in said("kubeconfig", user="ann"), "of the service that was started, not of now"
    assert token_user(tokens.digest(old), now=NOW) is None
    assert token_user(tokens.digest(str(new)), now=NOW) is not None


def test_a_start_renews_the_first_token_in_time_and_leaves_one_that_never_expires(
    tmp_path: Path,
) -> None:
    users.ensure_administrator(name="admin", password="first-password")
    first_token.ensure(tmp_path, now=NOW)
    old = str(private_files.read(tmp_path / "token"))
    first_token.ensure(tmp_path, now=NOW + timedelta(days=30))
    assert private_files.read(tmp_path / "token") == old
    later = NOW + timedelta(days=60)
    first_token.ensure(tmp_path, now=later)
    new = str(private_files.read(tmp_path / "token"))
    assert new != old
    assert token_user(tokens.digest(old), now=later) is not None
    assert token_user(tokens.digest(new), now=NOW + timedelta(days=100)) is not None

    ApiToken.objects.update(expires_at=None)  # as version 0.1.0 made it
    first_token.ensure(tmp_path, now=NOW + timedelta(days=1000))
    assert private_files.read(tmp_path / "token") == new
