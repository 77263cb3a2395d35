"""Whom a bearer token stands for."""

from datetime import datetime

import msgspec

from clusterstate import sql


class TokenUser(msgspec.Struct, frozen=True):
    """Whom a bearer token stands for."""

    name: str
    groups: tuple[str, ...]


def token_user(digest: bytes, *, now: datetime) -> TokenUser | None:
    """Return whom the token with this SHA-256 stands for; ``None`` if unknown, expired or locked.

    Queries once.
    """
    row = sql.fetch_one(
        """
        SELECT coalesce(u.username, t.identity), t.groups
        FROM api_token t LEFT JOIN auth_user u ON u.id = t.user_id
        WHERE t.digest = %s AND coalesce(u.is_active, t.identity <> '')
          AND (t.expires_at IS NULL OR t.expires_at > %s::timestamptz)
        """,
        (digest, now),
    )
    return None if row is None else TokenUser(row[0], tuple(row[1]))
