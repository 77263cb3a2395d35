"""Issues tokens of service accounts. `access.accounts` has their content and validity.

Rule: pkg/registry/core/serviceaccount/storage/token.go, v1.36.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import jwt
import msgspec

from clusterstate.access import accounts
from clusterstate.access.policy import ACCOUNT_PREFIX
from clusterstate.actions.people import signing_keys
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest, Conflict
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest

LIFETIME: Final = timedelta(hours=1)
"""How long a token is good when the request names no duration."""


class IssuedToken(msgspec.Struct, frozen=True):
    """A new token, its audiences, and when it expires."""

    token: str
    audiences: list[str]
    expires_at: datetime


def issue(
    namespace: str,
    name: str,
    *,
    audiences: Sequence[str] = (),
    lifetime: timedelta = LIFETIME,
    bound_to: Manifest | None = None,
    now: datetime,
) -> IssuedToken:
    """Return a new token of a service account; ``bound_to`` is a BoundObjectReference.

    Raises:
        NotFound: there is no such account, or no such object to bind the token to.
        Conflict: that object has another uid; or it, or the account, is being deleted.
        BadRequest: tokens cannot be bound to such objects, or the pod has another account.
    """
    account = get_manifest("ServiceAccount", namespace, name)
    _require_staying(account)
    claim: Manifest = {
        "namespace": namespace,
        "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
    }
    if bound_to:
        kind, bound = _bound(bound_to, namespace, name)
        claim[accounts.BINDABLE[kind]] = bound
    key = signing_keys.current(now)
    expires_at = now + lifetime
    audience = list(audiences) or [accounts.ISSUER]
    claims = {
        "iss": accounts.ISSUER,
        "sub": f"{ACCOUNT_PREFIX}{namespace}:{name}",
        "aud": audience,
        "iat": int(now.timestamp()),
        "nbf": int(now.timestamp()),
        "exp": int(expires_at.timestamp()),
        "jti": str(uuid.uuid4()),
        accounts.CLAIM: claim,
    }
    token = jwt.encode(
        claims, key.private_key, algorithm=accounts.ALGORITHM, headers={"kid": key.id}
    )
    return IssuedToken(token, audience, expires_at)


def _bound(reference: Manifest, namespace: str, account: str) -> tuple[str, Manifest]:
    """Return kind, name and uid of the object to which a token is bound."""
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    if kind not in accounts.BINDABLE or reference.get("apiVersion") != "v1":
        supported = ", ".join(accounts.BINDABLE)
        raise BadRequest(
            f"cannot bind token to object of type {reference.get('apiVersion')}, Kind={kind}:"
            f" supported kinds are {supported}"
        )
    found = get_manifest(kind, "" if kind == "Node" else namespace, name)
    uid: str = found["metadata"]["uid"]
    if kind == "Pod":
        used = (found.get("spec") or {}).get("serviceAccountName") or "default"
        if used != account:
            raise BadRequest(
                f'cannot bind token for serviceaccount "{account}" to pod running with different'
                " serviceaccount name."
            )
    if reference.get("uid") and reference["uid"] != uid:
        raise Conflict(
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in"
            " record. The object might have been deleted and then recreated",
            {"kind": kind.lower() + "s", "name": name},
        )
    _require_staying(found)
    return kind, {"name": name, "uid": uid}


def _require_staying(found: Manifest) -> None:
    """Refuse a terminating object, which gets no more tokens."""
    if found["metadata"].get("deletionTimestamp") is None:
        return
    resource, name = KINDS[found["kind"]].plural, found["metadata"]["name"]
    raise Conflict(
        f'Operation cannot be fulfilled on {resource} "{name}": it is being deleted, and tokens are'
        " not given for it any more",
        {"kind": resource, "name": name},
    )
