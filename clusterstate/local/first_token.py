"""The administrator's token that `make up` makes: in the state directory, with a kubeconfig.

It expires like any other, and a start renews it in time. The file is written first, and the token
becomes valid in the database after that; if a crash comes between, the next start completes it.
"""

from datetime import datetime
from pathlib import Path

from django.conf import settings

from clusterstate.actions.people import tokens
from clusterstate.local import credentials
from clusterstate.processes import private_files

ADMINISTRATOR = "admin"
_NAME = "first token"


def ensure(state: Path, *, now: datetime) -> None:
    """Ensure a token that works for half of its lifetime at least, and a kubeconfig with it.

    A token that does not expire, as earlier versions made them, stays.
    """
    secret = private_files.read_or_create(state / "token", tokens.new_secret())
    found = tokens.everything().filter(digest=tokens.digest(secret)).first()
    if found is None:
        _create(secret, now)
    elif found.expires_at is not None and found.expires_at < now + tokens.LIFETIME / 2:
        # The old one works until it expires: copies of it are not cut off by a restart.
        secret = tokens.new_secret()
        private_files.write(state / "token", f"{secret}\n".encode())
        _create(secret, now)
    _write_kubeconfig(state, secret)


def rotate(state: Path, *, now: datetime) -> None:
    """Replace the token and the kubeconfig; the old token is revoked."""
    old, new = private_files.read(state / "token"), tokens.new_secret()
    private_files.write(state / "token", f"{new}\n".encode())
    _create(new, now)
    _write_kubeconfig(state, new)
    if old is not None:
        tokens.delete_token(secret=old)


def _create(secret: str, now: datetime) -> None:
    tokens.create_token(
        user=ADMINISTRATOR,
        secret=secret,
        now=now,
        name=_NAME,
        groups=[tokens.ADMINISTRATORS],
        expires_at=now + tokens.LIFETIME,
    )


def _write_kubeconfig(state: Path, secret: str) -> None:
    host = credentials.reachable_host(settings.HOST)
    authority = state / "ca.crt"
    document = credentials.kubeconfig(
        server=f"https://{host}:{settings.HTTPS_PORT}",
        authority=authority.read_bytes() if authority.exists() else b"",
        token=secret,
    )
    private_files.write(state / "kubeconfig", document.encode())
