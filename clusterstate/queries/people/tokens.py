"""The user of a bearer token."""

from datetime import datetime

import msgspec

from clusterstate.database import sql


class TokenUser(msgspec.Struct, frozen=True):
    """The user of a bearer token."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""


class SigningKey(msgspec.Struct, frozen=True):
    """A key that signs service accounts' tokens.

    ``number``: its place in the order of creation. ``private_key``: in PEM.
    """

    number: int
    id: str
    private_key: str
    created_at: datetime


def signing_keys() -> list[SigningKey]:
    """Return the keys that sign tokens of service accounts, the newest last. Queries once."""
    rows = sql.fetch("SELECT number, id, private_key, created_at FROM signing_key ORDER BY number")
    return [SigningKey(*row) for row in rows]


def token_user(digest: bytes, *, now: datetime) -> TokenUser | None:
    """Return the user of the token with this SHA-256; ``None`` if unknown, expired or locked.

    The user has the groups of the token; if it has none, those that the admin assigns, without any
    named ``system:...``. Queries once.
    """
    row = sql.fetch_one(
        """
        SELECT coalesce(u.username, t.identity),
               CASE WHEN cardinality(t.groups) > 0 THEN t.groups ELSE ARRAY(
                   SELECT g.name::text FROM auth_group g
                   JOIN auth_user_groups m ON m.group_id = g.id
                   WHERE m.user_id = u.id AND g.name NOT LIKE 'system:%%' ORDER BY g.name) END,
               coalesce(u.id::text, '')
        FROM api_token t LEFT JOIN auth_user u ON u.id = t.user_id
        WHERE t.digest = %s AND coalesce(u.is_active, t.identity <> '')
          AND (t.expires_at IS NULL OR t.expires_at > %s::timestamptz)
        """,
        (digest, now),
    )
    return None if row is None else TokenUser(row[0], tuple(row[1]), row[2])
