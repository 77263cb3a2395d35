"""``POST serviceaccounts/NAME/token``: a new token of a service account.

``kubectl create token`` posts it. Rules: pkg/apis/authentication/validation/validation.go and
pkg/registry/core/serviceaccount/storage/token.go, v1.36.
"""

from datetime import timedelta
from typing import Any, Final

from api import clock
from api.forms import wire
from api.routes import Target
from clusterstate.actions.people import account_tokens, agent_tokens
from clusterstate.admission.request import User
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import FORBIDDEN, INVALID, BadRequest, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest

GROUP: Final = "authentication.k8s.io"
SHORTEST_SECONDS: Final = 600
LONGEST_SECONDS: Final = 1 << 32


def answer(value: Any, target: Target, user: User) -> Manifest:
    """Return the TokenRequest with a token in its status.

    Raises:
        Invalid: the lifetime is too short or too long.
        StatusError: see `actions.people.agent_tokens.require` and
        `actions.people.account_tokens.issue`.
    """
    body = wire.request(value, "TokenRequest", wire_types.TokenRequest, f"{GROUP}/v1")
    metadata = body.setdefault("metadata", {})
    for field, expected in (("name", target.name), ("namespace", target.namespace)):
        if metadata.setdefault(field, expected) != expected:
            raise BadRequest(f"the {field} of the object does not match the {field} on the URL")
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = int(account_tokens.LIFETIME.total_seconds())
    path = "spec.expirationSeconds"
    if seconds < SHORTEST_SECONDS:
        raise _wrong(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > LONGEST_SECONDS:
        raise _wrong(path, seconds, "may not specify a duration larger than 2^32 seconds")
    if spec.get("attestations"):
        detail = "not supported: a token names only its account and the object it is bound to"
        raise Invalid(
            "TokenRequest",
            "",
            [FieldError(FORBIDDEN, "spec.attestations", None, detail)],
            GROUP,
        )
    agent_tokens.require(user, target.namespace, target.name, spec)
    audiences = list(spec.get("audiences") or ())
    issued = account_tokens.issue(
        target.namespace,
        target.name,
        audiences=audiences,
        lifetime=timedelta(seconds=seconds),
        bound_to=spec.get("boundObjectRef"),
        now=clock.now(),
    )
    spec = {**spec, "expirationSeconds": seconds, "audiences": issued.audiences}
    status = {"token": issued.token, "expirationTimestamp": format_time(issued.expires_at)}
    return {**body, "spec": spec, "status": status}


def _wrong(path: str, value: Any, detail: str) -> Invalid:
    return Invalid("TokenRequest", "", [FieldError(INVALID, path, value, detail)], GROUP)
