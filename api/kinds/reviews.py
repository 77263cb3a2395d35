"""Reviews: who a user is and what the user may do. Nothing is stored.

``kubectl auth whoami`` and ``auth can-i`` use them, and programs that authorize by our rules.
Shapes: k8s.io/api ``authentication/v1`` and ``authorization/v1``, v1.36.
"""

import time
from typing import Any

import msgspec
from rest_framework.response import Response

from api import clock
from api.access import auth
from api.forms import replies, wire
from api.kinds.own import OwnViewSet
from api.requests import Request
from clusterstate.access import accounts, authorizer, nodes
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import INVALID, REQUIRED, BadRequest, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"


class ReviewViewSet(OwnViewSet):
    """A POST whose answer is the body with a status."""

    group = AUTHORIZATION
    kind = ""
    wire_type: type[msgspec.Struct]

    def create(self, request: Request, namespace: str = "") -> Response:
        """Return the posted review with its ``status`` filled in."""
        body = wire.request(request.data, self.kind, self.wire_type, f"{self.group}/v1")
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise BadRequest("spec: expected an object")
        status = self.answer(spec, namespace)
        return replies.reply({**body, "status": status}, status=201)

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return the status."""
        raise AssertionError("each review says how it is answered")


class SelfSubjectReviewViewSet(ReviewViewSet):
    """``selfsubjectreviews``: who the caller is."""

    group = AUTHENTICATION
    kind, resource = "SelfSubjectReview", "selfsubjectreviews"
    wire_type = wire_types.SelfSubjectReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return the caller's name, uid, groups and extra fields."""
        return {"userInfo": user_info(self.user)}


class SelfSubjectAccessReviewViewSet(ReviewViewSet):
    """``selfsubjectaccessreviews``: whether the caller may do something."""

    kind, resource = "SelfSubjectAccessReview", "selfsubjectaccessreviews"
    wire_type = wire_types.SelfSubjectAccessReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return whether the caller may do what the spec describes, and by which binding."""
        return access(self.user, attributes(spec, self.kind))


class SubjectAccessReviewViewSet(ReviewViewSet):
    """``subjectaccessreviews``: whether a user may do something."""

    kind, resource = "SubjectAccessReview", "subjectaccessreviews"
    wire_type: type[msgspec.Struct] = wire_types.SubjectAccessReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return whether the spec's user may do what it describes, and by which binding."""
        wants = attributes(spec, self.kind)
        if not spec.get("user") and not spec.get("groups"):
            detail = "at least one of user or group must be specified"
            raise _wrong(self.kind, "spec.user", None, detail)
        extra = tuple((key, tuple(v or ())) for key, v in (spec.get("extra") or {}).items())
        user = User(
            name=spec.get("user") or "",
            groups=tuple(spec.get("groups") or ()),
            uid=spec.get("uid") or "",
            extra=extra,
        )
        return access(user, wants)


class LocalSubjectAccessReviewViewSet(SubjectAccessReviewViewSet):
    """``localsubjectaccessreviews``: whether a user may do something in a namespace."""

    kind, resource = "LocalSubjectAccessReview", "localsubjectaccessreviews"
    wire_type = wire_types.LocalSubjectAccessReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return whether the spec's user may do what it describes, and by which binding."""
        attributes = spec.get("resourceAttributes")
        if attributes is None or spec.get("nonResourceAttributes") is not None:
            detail = "disallowed on this kind of request"
            raise _wrong(self.kind, "spec.nonResourceAttributes", None, detail)
        if (attributes.get("namespace") or "") != namespace:
            detail = f"must match metadata.namespace: {namespace}"
            named = attributes.get("namespace")
            raise _wrong(self.kind, "spec.resourceAttributes.namespace", named, detail)
        return super().answer(spec, namespace)


class SelfSubjectRulesReviewViewSet(ReviewViewSet):
    """``selfsubjectrulesreviews``: all rights of the caller in a namespace."""

    kind, resource = "SelfSubjectRulesReview", "selfsubjectrulesreviews"
    wire_type = wire_types.SelfSubjectRulesReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return the rules of the caller's bindings; rights of a node's agent are not rules."""
        place = spec.get("namespace") or ""
        if not place:
            raise BadRequest("no namespace on request")
        held = [rule.manifest() for rule in dict.fromkeys(authorizer.rules_for(self.user, place))]
        paths = [rule for rule in held if "nonResourceURLs" in rule]
        status: Manifest = {
            "resourceRules": [rule for rule in held if "nonResourceURLs" not in rule],
            "nonResourceRules": paths,
            "incomplete": False,
        }
        if nodes.name_of(self.user.name, self.user.groups):
            status["incomplete"] = True
            status["evaluationError"] = "node authorizer does not support user rule resolution"
        return status


class TokenReviewViewSet(ReviewViewSet):
    """``tokenreviews``: the user of a token, and its audiences."""

    group = AUTHENTICATION
    kind, resource = "TokenReview", "tokenreviews"
    wire_type = wire_types.TokenReview

    def answer(self, spec: Manifest, namespace: str) -> Manifest:
        """Return the user, or that the token is not valid."""
        token, audiences = spec.get("token") or "", list(spec.get("audiences") or ())
        if not token:
            detail = "nonempty token required"
            raise Invalid(
                self.kind, "", [FieldError(REQUIRED, "spec.token", None, detail)], self.group
            )
        requested = audiences or [accounts.ISSUER]
        user: User | None = None
        valid_for: tuple[str, ...] = (accounts.ISSUER,)
        if accounts.is_one(token):
            found = accounts.account(token, requested, now=clock.now())
            if found is not None:
                user, valid_for = found.user, found.audiences
        elif accounts.ISSUER in requested:
            user = auth.tokens.user(token, time.monotonic())
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user_info(user), "audiences": list(valid_for)}


def user_info(user: User) -> Manifest:
    """Return a user as reviews write it."""
    info: Manifest = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def access(user: User, wants: Attributes) -> Manifest:
    """Return the status of an access review."""
    decision = authorizer.decide(user, wants)
    status: Manifest = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def attributes(spec: Manifest, kind: str) -> Attributes:
    """Return the attributes in the spec of an access review.

    Raises:
        Invalid: it has a resource and a path, or neither.
    """
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is (path is None):
        if path is None:
            detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        else:
            detail = "cannot be specified in combination with resourceAttributes"
        raise _wrong(kind, "spec.resourceAttributes", None, detail)
    if path is not None:
        return Attributes(verb=path.get("verb") or "", path=path.get("path") or "/")
    assert resource is not None
    text = {
        field: resource.get(field) or ""
        for field in ("verb", "group", "resource", "subresource", "namespace", "name")
    }
    return Attributes(**text, fields=_stated_fields(resource.get("fieldSelector")))


def _wrong(kind: str, path: str, value: Any, detail: str) -> Invalid:
    word = REQUIRED if value is None else INVALID
    return Invalid(kind, "", [FieldError(word, path, value, detail)], AUTHORIZATION)


def _stated_fields(selector: Any) -> str:
    """Return a review's field selector as a query parameter; only equalities are kept."""
    if not isinstance(selector, dict):
        return ""
    if raw := selector.get("rawSelector"):
        return str(raw)
    found = []
    for one in selector.get("requirements") or ():
        values = one.get("values") if isinstance(one, dict) else None
        if isinstance(values, list) and len(values) == 1 and one.get("operator") == "In":
            found.append(f"{one.get('key')}={values[0]}")
    return ",".join(found)
