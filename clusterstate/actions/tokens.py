"""Bearer tokens of the API: make one, take one back.

The database holds only a token's SHA-256; whoever makes a token sees it once.
"""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth import get_user_model
from django.db import transaction

from clusterstate.models.tokens import ApiToken

ADMINISTRATORS = "system:masters"
"""The group that may do everything (the name Kubernetes gives it)."""


class UnknownUser(LookupError):
    """No user has that name."""


def new_secret() -> str:
    """Return a fresh token: 256 random bits in URL-safe characters."""
    return secrets.token_urlsafe(32)


def create_token(
    *,
    user: str,
    secret: str,
    now: datetime,
    name: str = "",
    groups: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> bool:
    """Let `secret` stand for the user and the groups. Return False when it did already.

    Raises:
        UnknownUser: no user has that name.
    """
    model = get_user_model()
    with transaction.atomic():
        try:
            owner = model.objects.get_by_natural_key(user)
        except model.DoesNotExist:
            raise UnknownUser(f"There is no user {user!r}.") from None
        _, created = ApiToken.objects.get_or_create(
            digest=hashlib.sha256(secret.encode()).digest(),
            defaults={
                "user": owner,
                "name": name,
                "groups": list(groups),
                "expires_at": expires_at,
                "created_at": now,
            },
        )
    return created


def delete_token(*, secret: str) -> bool:
    """Take a token back. Return False when it is unknown.

    Web processes remember it for a few seconds more.
    """
    digest = hashlib.sha256(secret.encode()).digest()
    deleted, _ = ApiToken.objects.filter(digest=digest).delete()
    return bool(deleted)
