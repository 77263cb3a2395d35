"""Sessions of browsers, in the database, under signed keys (``SESSION_ENGINE``).

Anybody may send a cookie with any text. A key that this service has given out ends with a part that
only it can make, so that a cookie which somebody made up is found to be nobody's without a question
to the database. The signature saves that question and nothing else: who has a session is still
decided by the row of its key.
"""

from typing import Final

from django.contrib.sessions.backends import db
from django.utils.crypto import constant_time_compare, get_random_string, salted_hmac

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_RANDOM: Final = 24
_SIGNED: Final = 16
"""Together 40 characters, as many as the column has; 124 bits of them are random."""


def _signature(text: str) -> str:
    return salted_hmac("clusterstate.browser_sessions", text, algorithm="sha256").hexdigest()[
        :_SIGNED
    ]


class SessionStore(db.SessionStore):
    """A session; one with a key that was not given out here is a new, empty one."""

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
