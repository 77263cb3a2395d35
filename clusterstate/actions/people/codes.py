"""One-time codes as a second factor: by time (RFC 6238), and a few recovery codes.

An app and the server share a secret, from which the code of each step of 30 seconds is computed.
The codes of the steps before and after are accepted as well, since clocks differ, and each code
once. After five wrong codes in a row each next try must wait, twice as long as the one before and
at most a quarter of an hour, from any address: so knowing the password does not allow trying all
codes.
"""

import base64
import hashlib
import hmac
import secrets
import struct
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from clusterstate.models.people import OneTimeCodes

_STEP_SECONDS: Final = 30
_DIGITS: Final = 6
_AROUND: Final = (0, -1, 1)
_RECOVERY_CODES: Final = 10
_FREE_TRIES: Final = 5
_LONGEST_WAIT: Final = 900


class TooManyTries(Exception):  # a refusal with its end
    """Too many codes were wrong; none is checked before ``until``."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"too many wrong codes: none is accepted until {until}")
        self.until = until


def new_secret() -> str:
    """Return a secret of 160 bits, as base32."""
    return base64.b32encode(secrets.token_bytes(20)).decode()


def sealed(secret: str) -> str:
    """Return a secret encrypted for storage: a dump of the rows alone yields no codes."""
    return _box().encrypt(secret.encode()).decode()


def unsealed(stored: str) -> str:
    """Return a stored secret decrypted; empty if another signing key encrypted it."""
    try:
        return _box().decrypt(stored.encode()).decode()
    except InvalidToken:
        return ""


def code_of(secret: str, step: int, *, digits: int = _DIGITS) -> str:
    """Return the code of a step. Rule: RFC 6238 with HMAC-SHA-1, RFC 4226 section 5.3."""
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", step), "sha1")
    at = digest[-1] & 15
    number = int.from_bytes(digest[at : at + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**digits:0{digits}}"


def step_of(now: datetime) -> int:
    """Return the time step (RFC 6238) of a moment: one code is valid in each."""
    return int(now.timestamp()) // _STEP_SECONDS


def address_of(secret: str, name: str) -> str:
    """Return the content of the QR code for an app: ``otpauth://totp/...``."""
    query = urlencode({"secret": secret, "issuer": "Stowage", "digits": _DIGITS})
    return f"otpauth://totp/Stowage:{quote(name, safe='')}?{query}"


def _matching(secret: str, code: str, now: datetime, *, after: int) -> int | None:
    """Return the step after ``after`` whose code this is; ``None`` if there is none."""
    step = step_of(now)
    for around in _AROUND:
        if step + around > after and hmac.compare_digest(
            code_of(secret, step + around).encode(), code.encode()
        ):
            return step + around
    return None


def since(person: User) -> datetime | None:
    """Return since when a user signs in with codes, ``None`` for never. Queries once."""
    return OneTimeCodes.objects.filter(person=person).values_list("since", flat=True).first()


def recovery_left(person: User) -> int:
    """Return the number of unused recovery codes. Queries once."""
    found = OneTimeCodes.objects.filter(person=person).values_list("recovery", flat=True).first()
    return len(found or ())


def begin(person: User, secret: str, code: str, *, now: datetime) -> list[str]:
    """Require codes of a user at sign-in from now on; return the recovery codes.

    Returns nothing, and changes nothing, if the code is not one of the secret, or the user has a
    secret already.
    """
    step = _matching(secret, _plain(code), now, after=0)
    if step is None:
        return []
    recovery = [
        _plain(base64.b32encode(secrets.token_bytes(10)).decode()) for _ in range(_RECOVERY_CODES)
    ]
    _, is_new = OneTimeCodes.objects.get_or_create(
        person=person,
        defaults={
            "secret": sealed(secret),
            "since": now,
            "last_step": step,
            "recovery": [_digest(one) for one in recovery],
        },
    )
    return [f"{one[:4]}-{one[4:8]}-{one[8:12]}-{one[12:]}" for one in recovery] if is_new else []


def check(person: User, code: str, *, now: datetime) -> bool:
    """Return whether a user's code is right; a right code cannot be used again.

    Raises:
        TooManyTries: the code was not checked.
    """
    with transaction.atomic():
        row = OneTimeCodes.objects.select_for_update().filter(person=person).first()
        if row is None:
            return False
        if row.failures >= _FREE_TRIES and row.failed_at is not None:
            wait = min(_LONGEST_WAIT, 2 ** min(row.failures - _FREE_TRIES, 20))
            if now < (until := row.failed_at + timedelta(seconds=wait)):
                raise TooManyTries(until)
        is_right = _use(row, _plain(code), now)
        if is_right:
            row.failures = 0
        else:
            row.failures += 1
            row.failed_at = now
        row.save(update_fields=["last_step", "recovery", "failures", "failed_at"])
        return is_right


def _use(row: OneTimeCodes, code: str, now: datetime) -> bool:
    digest = _digest(code)
    if digest in row.recovery:
        row.recovery = [one for one in row.recovery if one != digest]
        return True
    secret = unsealed(row.secret)
    if not secret:  # the signing key has changed: only recovery codes remain
        return False
    step = _matching(secret, code, now, after=row.last_step)
    if step is None:
        return False
    row.last_step = step
    return True


def remove(person: User) -> None:
    """Stop requiring codes of a user; the password alone is enough."""
    OneTimeCodes.objects.filter(person=person).delete()


def _plain(code: str) -> str:
    """Return a code without blanks and dashes."""
    return "".join(code.split()).replace("-", "").upper()


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _box() -> Fernet:
    key = HKDF(SHA256(), 32, None, b"stowage one-time codes").derive(settings.SECRET_KEY.encode())
    return Fernet(base64.urlsafe_b64encode(key))
