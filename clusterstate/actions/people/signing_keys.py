"""The keys that sign tokens of service accounts: created, rotated, withdrawn.

The newest key signs. Tokens of earlier keys stay valid until they expire or their key is withdrawn,
so a key can be rotated while programs hold tokens of the one before.
"""

import uuid
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clusterstate.database import sql
from clusterstate.queries.people.tokens import SigningKey, signing_keys

MOST: Final = 16
"""Keys that are kept at a time: each is published, and asked for by its id."""


class TooManyKeys(Exception):
    """There are ``MOST`` valid keys already; one of them must be withdrawn first."""


class UnknownKey(Exception):
    """No key has this id."""


def current(now: datetime) -> SigningKey:
    """Return the key that signs, created with the first token. Queries."""
    found = signing_keys()
    if not found:
        # If several processes do this at once one wins, and all use its key.
        _add(1, now)
        found = signing_keys()
    return found[-1]


def rotate(now: datetime) -> SigningKey:
    """Create a new key, which signs from now on, and return it.

    Raises:
        TooManyKeys: there are ``MOST`` already.
    """
    found = signing_keys()
    if len(found) >= MOST:
        raise TooManyKeys(f"there are {MOST} keys already: withdraw one of them first")
    # If two rotate at once one wins; its key is new for both.
    _add(found[-1].number + 1 if found else 1, now)
    return signing_keys()[-1]


def withdraw(identity: str) -> None:
    """Refuse all tokens of a key from now on; processes notice within seconds.

    Raises:
        UnknownKey: there is no such key.
    """
    if not sql.run("DELETE FROM signing_key WHERE id = %s", (identity,)):
        raise UnknownKey(f"there is no key {identity!r}")


def _add(number: int, now: datetime) -> None:
    private_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    sql.run(
        "INSERT INTO signing_key (number, id, private_key, created_at)"
        " VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (number, str(uuid.uuid4()), private_key.decode(), now),
    )
