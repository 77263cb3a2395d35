"""Sessions of browsers, in the database, under signed keys (``SESSION_ENGINE``).

Anybody may send a cookie with any text. A key that this service has given out ends with a part that
only it can make, so that a cookie which somebody made up is found to be nobody's without a question
to the database. The signature saves that question and nothing else: who has a session is still
decided by the row of its key.
"""

from collections.abc import Mapping
from typing import Final

from django.contrib.sessions.backends import db
from django.utils.crypto import constant_time_compare, get_random_string, salted_hmac

from clusterstate.database import sql

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_RANDOM: Final = 24
_SIGNED: Final = 16
"""Together 40 characters, as many as the column has; 124 bits of them are random."""


def _signature(text: str) -> str:
    return salted_hmac("clusterstate.browser_sessions", text, algorithm="sha256").hexdigest()[
        :_SIGNED
    ]


class SessionStore(db.SessionStore):
    """A stored session; a key that this service did not issue gives a new, empty session."""

    def _get_new_session_key(self) -> str:
        while True:
            text = get_random_string(_RANDOM, _LETTERS)
            key = f"{text}{_signature(text)}"
            if not self.exists(key):
                return key

    def _validate_session_key(self, key: str | None) -> bool:
        if key is None or len(key) != _RANDOM + _SIGNED or not key.isascii():
            return False
        return constant_time_compare(key[_RANDOM:], _signature(key[:_RANDOM]))


_STAMPS: Final = """
    SELECT s.session_key, s.session_data, s.expire_date, u.id, u.password, u.is_active,
           u.is_superuser, ARRAY(
               SELECT g.name FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
               WHERE m.user_id = u.id ORDER BY g.name)
    FROM unnest(%s, %s) w(key, name)
    JOIN django_session s ON s.session_key = w.key JOIN auth_user u ON u.username = w.name
"""


def stamps(names: Mapping[str, str]) -> dict[str, object]:
    """Return by session key the stored session, its user and groups, as text: equal if unchanged.

    ``names``: the users' names by key. A session or a user that is gone is missing. Queries once,
    not without names.
    """
    if not names:
        return {}
    rows = sql.fetch(_STAMPS, (sql.Texts([*names]), sql.Texts([*names.values()])))
    return {key: tuple(map(str, rest)) for key, *rest in rows}
