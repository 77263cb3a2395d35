"""Bearer tokens of the API: create and revoke.

The database holds only a token's SHA-256; its creator sees the token once. A token authenticates a
user who may log in to the admin, or a node, ``system:node:NAME``, which is no user row: such a
token has the group of nodes, and the API decides its rights.
"""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import QuerySet

from clusterstate.admission.plugins.node_restriction import GROUP as NODES
from clusterstate.admission.plugins.node_restriction import USER_PREFIX as NODE
from clusterstate.admission.validation.core import formats
from clusterstate.models.tokens import ApiToken

ADMINISTRATORS = "system:masters"
"""The group that may do everything (the name Kubernetes gives it)."""
LIFETIME = timedelta(days=90)
"""How long a token works when the request names no duration."""
KEPT_EXPIRED = timedelta(days=30)
"""How long an expired token is still listed."""


class UnknownUser(LookupError):
    """There is no user of that name, or the name cannot be a user's."""


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
    """Store a token for the user and the groups. Return False when it was stored already.

    ``system:node:NAME`` needs no user row, and has only the group of nodes.

    Raises:
        UnknownUser: no user has that name, or it is not the name of a node.
    """
    model = get_user_model()
    groups = list(groups)
    with transaction.atomic():
        owner, identity = None, ""
        if user.startswith(NODE):
            identity = _node(user, groups)
            groups = [NODES]
        else:
            try:
                owner = model.objects.get_by_natural_key(user)
            except model.DoesNotExist:
                raise UnknownUser(
                    f"There is no user {user!r}: make one in the admin, under Users."
                ) from None
        _, created = ApiToken.objects.get_or_create(
            digest=digest(secret),
            defaults={
                "user": owner,
                "identity": identity,
                "name": name,
                "groups": groups,
                "expires_at": expires_at,
                "created_at": now,
            },
        )
    return created


def _node(user: str, groups: Collection[str]) -> str:
    """Return the name and groups of a node's user, checked."""
    name = user.removeprefix(NODE)
    problems = formats.dns_subdomain(name)
    if problems:
        raise UnknownUser(f"{user!r} is not the name of a node: {'; '.join(problems)}")
    others = sorted(set(groups) - {NODES})
    if others:
        raise UnknownUser(f"A node belongs to the group {NODES} alone, not to {', '.join(others)}.")
    return user


def digest(secret: str) -> bytes:
    """Return a token's SHA-256, as stored."""
    return hashlib.sha256(secret.encode()).digest()


def delete_token(*, secret: str) -> bool:
    """Revoke a token. Return False when it is unknown.

    Web processes cache it for a few seconds more.
    """
    deleted, _ = ApiToken.objects.filter(digest=digest(secret)).delete()
    return bool(deleted)


def everything() -> QuerySet[ApiToken]:
    """Return all tokens with their users, the newest first."""
    return ApiToken.objects.select_related("user").order_by("-created_at", "-id")


def revoke(ids: Collection[int]) -> list[int]:
    """Revoke tokens by id; return those that existed.

    Web processes cache them for a few seconds more.
    """
    with transaction.atomic():
        found = list(
            ApiToken.objects.select_for_update().filter(id__in=ids).values_list("id", flat=True)
        )
        ApiToken.objects.filter(id__in=found).delete()
    return found


def drop_expired(*, now: datetime) -> int:
    """Delete tokens that expired long ago; return how many."""
    deleted, _ = ApiToken.objects.filter(expires_at__lt=now - KEPT_EXPIRED).delete()
    return deleted
