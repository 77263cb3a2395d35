"""Who asks, and what they may do.

A bearer token is looked up by its SHA-256 digest: the comparison is a hash look-up, so its time
tells nothing about the token, and neither the database nor any log holds the token itself. Answers
are remembered for ``REMEMBER_SECONDS``; a revoked token therefore works for at most that long.

``allowed`` is the one place that decides. SelfSubjectAccessReview answers from it, so what
``kubectl auth can-i`` says is what the views do.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from api import clock
from clusterstate import memory
from clusterstate.admission.request import User
from clusterstate.objects import fields
from clusterstate.objects.errors import BadRequest, Forbidden, Unauthorized
from clusterstate.queries.tokens import token_user

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
READERS = "stowage:readers"
MONITORING = "system:monitoring"
NODES = "system:nodes"
NODE_USER = "system:node:"

READ_VERBS = frozenset({"get", "list", "watch"})
REMEMBER_SECONDS = 5.0
_REMEMBERED_TOKENS = 4096

# What a kubelet does: it reads, reports its node and its pods, renews its lease, writes events.
_NODE_READS = frozenset(
    {
        ("", "services"),
        ("", "namespaces"),
        ("node.k8s.io", "runtimeclasses"),
    }
)
_LEASES = "kube-node-lease"
_NODE_WRITES = frozenset(
    {
        ("", "nodes", "", "create"),
        ("", "nodes", "", "update"),
        ("", "nodes", "", "patch"),
        ("", "nodes", "status", "update"),
        ("", "nodes", "status", "patch"),
        ("", "pods", "", "create"),
        ("", "pods", "", "delete"),
        ("", "pods", "status", "update"),
        ("", "pods", "status", "patch"),
        ("", "pods", "eviction", "create"),
        ("", "events", "", "create"),
        ("", "events", "", "update"),
        ("", "events", "", "patch"),
        ("coordination.k8s.io", "leases", "", "create"),
        ("coordination.k8s.io", "leases", "", "update"),
        ("coordination.k8s.io", "leases", "", "patch"),
        ("coordination.k8s.io", "leases", "", "delete"),
    }
)


class Attributes(msgspec.Struct, frozen=True):
    """What a request wants to do, as authorisation sees it.

    ``fields``: the field selector of a list or watch.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: str = ""


class TokenCache:
    """Users by token digest, for ``seconds``; safe for threads; bounded.

    Only good tokens are remembered, so guessing tokens cannot fill it.
    """

    def __init__(
        self, look_up: Callable[[bytes], User | None], *, seconds: float, size: int
    ) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._size = size
        self._known: dict[bytes, tuple[User, float]] = {}
        self._lock = threading.Lock()

    def user(self, token: str, now: float) -> User | None:
        """Return the user of ``token`` or None. Queries when the answer is not remembered.

        ``now`` is a monotonic time in seconds.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None and now < known[1]:
            return known[0]
        user = self._look_up(digest)
        with self._lock:
            if user is None:
                self._known.pop(digest, None)
            else:
                if len(self._known) >= self._size:
                    self._known.clear()
                self._known[digest] = (user, now + self._seconds)
        return user

    def remembered(self, token: str, now: float) -> tuple[User | None, str]:
        """Return the user while the answer is fresh, and the name also when it is not.

        Queries nothing.
        """
        known = self._known.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())
        if known is None:
            return None, ""
        return (known[0] if now < known[1] else None), known[0].name

    def forget(self) -> None:
        """Drop everything that is remembered."""
        with self._lock:
            self._known.clear()


def _look_up(digest: bytes) -> User | None:
    found = token_user(digest, now=clock.now())
    if found is None:
        return None
    return User(name=found.name, groups=(*found.groups, AUTHENTICATED))


tokens = TokenCache(_look_up, seconds=REMEMBER_SECONDS, size=_REMEMBERED_TOKENS)
memory.when_replaced(tokens.forget)


def remembered(authorization: str) -> tuple[User | None, str]:
    """Return what is known of an ``Authorization`` header without a query: user, user's name.

    The user is None and the name is there when the answer is too old to be trusted.

    Raises:
        Unauthorized: no bearer token.
    """
    return tokens.remembered(_token(authorization), time.monotonic())


def _token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if not token or scheme.lower() != "bearer":
        raise Unauthorized("Unauthorized")
    return token


def authenticate(authorization: str) -> User:
    """Return the user that an ``Authorization`` header stands for.

    Raises:
        Unauthorized: no bearer token, or one that is unknown or has expired.
    """
    user = tokens.user(_token(authorization), time.monotonic())
    if user is None:
        raise Unauthorized("Unauthorized")
    return user


USER = "stowage.user"
"""Where a request's WSGI environment holds the user that the server has found already."""


def user_of(meta: Mapping[str, Any]) -> User:
    """Return the user of a request, which the server may have found already.

    Raises:
        Unauthorized: see ``authenticate``.
    """
    user: User | None = meta.get(USER)
    return authenticate(meta.get("HTTP_AUTHORIZATION", "")) if user is None else user


class BearerAuthentication(BaseAuthentication):
    """DRF's view of ``authenticate``; every view requires a user."""

    def authenticate(self, request: Request) -> tuple[User, None]:
        """Return the user of the request."""
        return user_of(request.META), None

    def authenticate_header(self, request: Request) -> str:
        """Return the scheme that a 401 names."""
        return "Bearer"


def allowed(user: User, wants: Attributes) -> bool:
    """Return whether ``user`` may do that.

    ``system:masters`` may do everything, ``stowage:readers`` may read everything, nodes
    (``system:nodes``, named ``system:node:NAME``) do what kubelets do, and everybody with a token
    may ask what the server offers and what they may do themselves; ``system:monitoring`` may read
    the metrics. Which node a node may touch is decided by the NodeRestriction admission plugin, and
    whether a pod that it asks for by name is its own, by ``require_own``.
    """
    groups = user.groups
    if MASTERS in groups:
        return True
    if wants.path:
        if wants.verb != "get":
            return False
        return MONITORING in groups or not wants.path.startswith("/metrics")
    if wants.group == "authorization.k8s.io":
        return wants.verb == "create" and wants.resource == "selfsubjectaccessreviews"
    if READERS in groups and wants.verb in READ_VERBS:
        return True
    if NODES in groups and user.name.startswith(NODE_USER):
        if wants.verb in READ_VERBS:
            return _node_may_read(user.name.removeprefix(NODE_USER), wants)
        return (wants.group, wants.resource, wants.subresource, wants.verb) in _NODE_WRITES
    return False


def _node_may_read(node: str, wants: Attributes) -> bool:
    """Whether a node may read that: itself, its pods and lease, and what pods need to run.

    Lists and watches must select what is the node's own. Rule: the Node authorizer with
    AuthorizeNodeWithSelectors, plugin/pkg/auth/authorizer/node/node_authorizer.go, v1.36.
    """
    kind = (wants.group, wants.resource)
    if kind in _NODE_READS:
        return True
    if not node:
        return False
    if kind == ("", "nodes"):
        if wants.verb == "get":
            return wants.name == node
        return _selects(wants, "Node", "metadata.name", node)
    if kind == ("coordination.k8s.io", "leases"):
        return wants.verb == "get" and (wants.namespace, wants.name) == (_LEASES, node)
    if kind == ("", "pods"):
        return wants.verb == "get" or _selects(wants, "Pod", "spec.nodeName", node)
    return False


def _selects(wants: Attributes, kind: str, path: str, value: str) -> bool:
    """Whether a field selector lets through only what has this value there."""
    try:
        requirements = fields.parse_field_selector(kind, wants.fields)
    except BadRequest:
        return False
    return any((one.path, one.value, one.negated) == (path, value, False) for one in requirements)


def is_node(user: User) -> bool:
    """Whether a user reads as a node does: its pods alone, see ``require_own``."""
    return (
        NODES in user.groups
        and user.name.startswith(NODE_USER)
        and MASTERS not in user.groups
        and READERS not in user.groups
    )


def require_own(user: User, namespace: str, name: str, node_name: str | None) -> None:
    """Raise AccessDenied where a node asks for a pod of another; ``None``: there is no such pod.

    A node is not told which of the two it is.
    """
    if not node_name or node_name != user.name.removeprefix(NODE_USER):
        wants = Attributes("get", resource="pods", namespace=namespace, name=name)
        raise AccessDenied(user, wants)


class AccessDenied(Forbidden):
    """``RESOURCE is forbidden: User "u" cannot VERB resource ...``."""

    def __init__(self, user: User, wants: Attributes) -> None:
        if wants.path:
            super().__init__(
                f'forbidden: User "{user.name}" cannot {wants.verb} path "{wants.path}"'
            )
            return
        resource = f"{wants.resource}.{wants.group}" if wants.group else wants.resource
        what = f"{wants.resource}/{wants.subresource}" if wants.subresource else wants.resource
        scope = (
            f'in the namespace "{wants.namespace}"' if wants.namespace else "at the cluster scope"
        )
        name = f' "{wants.name}"' if wants.name else ""
        details: dict[str, Any] = {"kind": wants.resource}
        if wants.name:
            details["name"] = wants.name
        if wants.group:
            details["group"] = wants.group
        super().__init__(
            f'{resource}{name} is forbidden: User "{user.name}" cannot {wants.verb} resource '
            f'"{what}" in API group "{wants.group}" {scope}',
            details,
        )


def require(user: User, wants: Attributes) -> None:
    """Raise AccessDenied unless ``user`` may do that."""
    if not allowed(user, wants):
        raise AccessDenied(user, wants)


class AccessReview(msgspec.Struct, frozen=True):
    """The answer to a SelfSubjectAccessReview."""

    allowed: bool
    reason: str = ""

    denied: ClassVar[bool] = False


def review(user: User, spec: dict[str, Any]) -> AccessReview:
    """Return whether ``user`` may do what ``spec`` of a SelfSubjectAccessReview describes."""
    resource = spec.get("resourceAttributes")
    if isinstance(resource, dict):
        wants = Attributes(
            verb=str(resource.get("verb") or ""),
            group=str(resource.get("group") or ""),
            resource=str(resource.get("resource") or ""),
            subresource=str(resource.get("subresource") or ""),
            namespace=str(resource.get("namespace") or ""),
            name=str(resource.get("name") or ""),
            fields=_stated_fields(resource.get("fieldSelector")),
        )
    else:
        path = spec.get("nonResourceAttributes") or {}
        wants = Attributes(verb=str(path.get("verb") or ""), path=str(path.get("path") or "/"))
    if allowed(user, wants):
        return AccessReview(allowed=True)
    return AccessReview(allowed=False, reason=AccessDenied(user, wants).message)


def _stated_fields(selector: Any) -> str:
    """Return a review's field selector as a parameter says it; what is not an equality is left."""
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
