"""Tokens of service accounts: signed by the cluster, bound to audiences and objects, expiring.

A token names a service account. The database stores no token, only the key that signs them
(``signing_key``, made for the first token). A token is valid until it expires, while its account
exists, and while the object exists that it is bound to. The uid distinguishes each from a later
object of the same name. While an object waits for its finalizers, its tokens end ``LEEWAY`` after
its ``deletionTimestamp`` (of a pod, this time includes the grace period). Rules:
pkg/serviceaccount/{claims,jwt}.go, v1.36; RFC 7519.
"""

import json
import threading
import time
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from jwt.algorithms import ECAlgorithm

from clusterstate.access.authorizer import AUTHENTICATED
from clusterstate.access.policy import ACCOUNT_PREFIX
from clusterstate.admission.request import User
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.people.tokens import signing_keys

ISSUER: Final = "https://kubernetes.default.svc"
"""The issuer in tokens; also the audience of the API itself."""
ALGORITHM: Final = "ES256"
GROUP: Final = "system:serviceaccounts"
CLAIM: Final = "kubernetes.io"
BINDABLE: Final = {"Node": "node", "Pod": "pod", "Secret": "secret"}
"""Kinds of objects that a token can be bound to, and their names in it."""
_ASSERTED: Final = ("aud", "exp", "iat", "iss", "nbf", "sub")
_EXTRA: Final = "authentication.kubernetes.io"
LEEWAY: Final = timedelta(minutes=1)
"""How long a token outlives the ``deletionTimestamp`` of its account or of its bound object."""
REMEMBER_SECONDS: Final = 5.0
"""How long a withdrawn key may still be used to verify tokens."""


class Account(msgspec.Struct, frozen=True):
    """The user that a valid token authenticates, and the token's audiences."""

    user: User
    audiences: tuple[str, ...]


def account_of(user: str) -> tuple[str, str] | None:
    """Return (namespace, name) of the service account that a user is, None for other users."""
    if not user.startswith(ACCOUNT_PREFIX):
        return None
    namespace, _, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


def groups_of(namespace: str) -> tuple[str, ...]:
    """Return the groups of the service accounts of a namespace."""
    return GROUP, f"{GROUP}:{namespace}"


def is_one(token: str) -> bool:
    """Return whether a text has two dots, as tokens of service accounts have and others do not."""
    return token.count(".") == 2


class _Keys:
    """The public keys by their ids, cached for ``REMEMBER_SECONDS``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, EllipticCurvePublicKey] = {}
        self._until = 0.0

    def find(self, key_id: str) -> EllipticCurvePublicKey | None:
        """Return a public key, or ``None``. Queries if the cached keys are old or lack it."""
        now = time.monotonic()
        found = self._keys.get(key_id) if now < self._until else None
        if found is None:
            read = {one.id: _public(one.private_key) for one in signing_keys()}
            with self._lock:
                self._keys, self._until = read, now + REMEMBER_SECONDS
            found = read.get(key_id)
        return found

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._keys, self._until = {}, 0.0


_keys = _Keys()
memory.when_replaced(_keys.forget)


def _public(private_key: str) -> EllipticCurvePublicKey:
    key = serialization.load_pem_private_key(private_key.encode(), password=None)
    public = key.public_key()
    assert isinstance(public, EllipticCurvePublicKey)
    return public


def published_keys() -> list[Manifest]:
    """Return the public keys as JSON Web Keys (RFC 7517), the newest first. Queries once."""
    return [
        {
            **json.loads(ECAlgorithm.to_jwk(_public(one.private_key))),
            "use": "sig",
            "alg": ALGORITHM,
            "kid": one.id,
        }
        for one in reversed(signing_keys())
    ]


def account(token: str, audiences: Collection[str], *, now: datetime) -> Account | None:
    """Return the account of a token; None if it is invalid, or valid for none of the audiences.

    Queries for the account and the object that the token is bound to.
    """
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
        key = _keys.find(key_id) if isinstance(key_id, str) else None
        if key is None:
            return None
        # The time is compared below, with the clock of this service.
        unchecked = {f"verify_{claim}": False for claim in ("aud", "exp", "iat", "nbf")}
        options: Any = {"require": list(_ASSERTED), **unchecked}
        claims = jwt.decode(token, key, algorithms=[ALGORITHM], issuer=ISSUER, options=options)
    except (jwt.InvalidTokenError, RecursionError):  # the latter: JSON that is nested too deep
        return None
    moment = now.timestamp()
    if not claims["nbf"] <= moment < claims["exp"]:
        return None
    claimed = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    accepted = tuple(one for one in claimed if one in audiences)
    user = _user(claims, now)
    return None if user is None or not accepted else Account(user, accepted)


def _user(claims: Manifest, now: datetime) -> User | None:
    """Return the user of a token, None if the account or the bound object is gone or ending."""
    claim = claims.get(CLAIM) or {}
    namespace, named = claim.get("namespace") or "", claim.get("serviceaccount") or {}
    name, uid = named.get("name") or "", named.get("uid") or ""
    if claims["sub"] != f"{ACCOUNT_PREFIX}{namespace}:{name}":
        return None
    if not _is_good("ServiceAccount", namespace, name, uid, now):
        return None
    extra = {}
    if identity := claims.get("jti"):
        extra[f"{_EXTRA}/credential-id"] = (f"JTI={identity}",)
    for kind, word in BINDABLE.items():
        bound = claim.get(word)
        if not bound:
            continue
        place = "" if kind == "Node" else namespace
        if not _is_good(kind, place, bound.get("name") or "", bound.get("uid") or "", now):
            return None
        if kind != "Secret":
            extra[f"{_EXTRA}/{word}-name"] = (bound["name"],)
            extra[f"{_EXTRA}/{word}-uid"] = (bound["uid"],)
    return User(
        name=claims["sub"],
        groups=(*groups_of(namespace), AUTHENTICATED),
        uid=uid,
        extra=tuple(sorted(extra.items())),
    )


def _is_good(kind: str, namespace: str, name: str, uid: str, now: datetime) -> bool:
    """Return whether the object exists, with this uid and until its deletion. Queries once."""
    found = find_object(kind, namespace, name)
    if found is None:
        return False
    metadata = decode_object(found)["metadata"]
    if not uid or metadata["uid"] != uid:
        return False
    gone_at = metadata.get("deletionTimestamp")
    return gone_at is None or now <= parse_time(gone_at) + LEEWAY
