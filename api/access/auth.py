"""Authentication of a request, and the rights of its user.

A bearer token is looked up by its SHA-256 digest: the comparison is a hash look-up, so its time
shows nothing of the token, and neither the database nor any log has the token itself. Users are
cached for ``REMEMBER_SECONDS``, so a revoked token works for at most that long.

``clusterstate.access`` decides about all rights. Reviews answer from it as well, so ``kubectl auth
can-i`` says what the views do.
"""

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from api import clock, routes
from api.access import impersonation
from api.access.impersonation import Claim
from api.routes import Target
from clusterstate import middleware
from clusterstate.access import accounts, authorizer, nodes, people
from clusterstate.access.policy import Policy
from clusterstate.access.rules import Attributes
from clusterstate.actions.writing import object_meta
from clusterstate.admission.request import User
from clusterstate.objects.registry import fields
from clusterstate.objects.values.errors import BadRequest, Forbidden, Unauthorized
from clusterstate.processes import memory
from clusterstate.queries.people.tokens import token_user
from clusterstate.queries.pods import node_of_pod

MASTERS = authorizer.MASTERS
AUTHENTICATED = authorizer.AUTHENTICATED
NODES = nodes.GROUP

REMEMBER_SECONDS = 5.0
_REMEMBERED_TOKENS = 4096


class TokenCache:
    """Users by token digest, cached for ``seconds``; safe for threads; bounded.

    Only valid tokens are cached, so guessing tokens cannot fill the cache.
    """

    def __init__(
        self, look_up: Callable[[str, bytes], User | None], *, seconds: float, size: int
    ) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._size = size
        self._users: dict[bytes, tuple[User, float]] = {}
        self._lock = threading.Lock()

    def user(self, token: str, now: float) -> User | None:
        """Return the user of ``token`` or None. Queries if the cached user is too old.

        ``now`` is a monotonic time in seconds.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        cached = self._users.get(digest)
        if cached is not None and now < cached[1]:
            return cached[0]
        user = self._look_up(token, digest)
        with self._lock:
            if user is None:
                self._users.pop(digest, None)
            else:
                if len(self._users) >= self._size:
                    self._users.clear()
                self._users[digest] = (user, now + self._seconds)
        return user

    def remembered(self, token: str, now: float) -> tuple[User | None, str]:
        """Return the cached user, None if it is too old, and the user's name, however old.

        Queries nothing.
        """
        cached = self._users.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())
        if cached is None:
            return None, ""
        return (cached[0] if now < cached[1] else None), cached[0].name

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._users.clear()


def _look_up(token: str, digest: bytes) -> User | None:
    if accounts.is_one(token):
        account = accounts.account(token, (accounts.ISSUER,), now=clock.now())
        return None if account is None else account.user
    found = token_user(digest, now=clock.now())
    if found is None:
        return None
    return User(name=found.name, groups=(*found.groups, AUTHENTICATED), uid=found.uid)


tokens = TokenCache(_look_up, seconds=REMEMBER_SECONDS, size=_REMEMBERED_TOKENS)
memory.when_replaced(tokens.forget)


def remembered(authorization: str) -> tuple[User | None, str]:
    """Return user and user's name of an ``Authorization`` header from the cache, without a query.

    If the cached user is too old, the user is None, and the name is still returned.

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


def authenticate(claim: Claim) -> User:
    """Return the user of a request: the sender, or the user that it impersonates. May query.

    Raises:
        Unauthorized: no bearer token, or one that is unknown or has expired.
        AccessDenied: the sender may not act for that user.
    """
    return acting(log_in(claim.authorization), claim)


def log_in(authorization: str) -> User:
    """Return the user of an ``Authorization`` header. May query.

    Raises:
        Unauthorized: no bearer token, or one that is unknown or has expired.
    """
    user = tokens.user(_token(authorization), time.monotonic())
    if user is None:
        raise Unauthorized("Unauthorized")
    return user


def acting(sender: User, claim: Claim, policy: Policy | None = None) -> User:
    """Return the user that the sender impersonates, or the sender. May query without a policy.

    Raises:
        AccessDenied: the sender may not act for that user.
    """
    acts_for = claim.acts_for
    if acts_for is None:
        return sender
    for wants in acts_for.needs():
        require(sender, wants, policy)
    return acts_for.user(sender)


USER = "stowage.user"
"""Key in a request's WSGI environment: the user that the server has already authenticated."""


def user_of(meta: Mapping[str, Any]) -> User:
    """Return the user of a request, which the server may have determined already.

    Raises:
        Unauthorized, AccessDenied: see ``authenticate``.
    """
    user: User | None = meta.get(USER)
    if user is not None:
        return user
    found = authenticate(impersonation.claim_of_environ(meta))
    return identified(found, object_meta.new_uid())


def identified(user: User, audit_id: uuid.UUID) -> User:
    """Return the user with the audit id of this request; all its changes record the id."""
    return msgspec.structs.replace(user, request=audit_id)


class BearerAuthentication(BaseAuthentication):
    """Authentication of programs: a bearer token, and perhaps impersonation headers."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """Return the user of the request, None if a browser sent it."""
        if USER not in request.META and middleware.is_browser(request._request):
            return None
        return user_of(request.META), None

    def authenticate_header(self, request: Request) -> str:
        """Return the authentication scheme of a 401."""
        return "Bearer"


class SessionAuthentication(BaseAuthentication):
    """Authentication of people: a session of the admin, for reads only."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """Return the signed-in user, None if nobody is signed in."""
        if not middleware.is_browser(request._request):
            return None
        person = getattr(request._request, "user", None)  # the browser's chain looks it up
        user = people.user_of(person) if person is not None else None
        return (user, None) if user is not None and user.name else None


def require_own_pod(user: User, namespace: str, name: str) -> None:
    """Raise AccessDenied if a node's agent reads a pod that is not on its node.

    The error is the same if there is no such pod. Queries for agents of nodes only.
    """
    if authorizer.reads_own_pods_only(user, namespace, name):
        require_own_node(user, namespace, name, node_of_pod(namespace, name))


def narrowed(user: User, wants: Attributes, selector: str) -> str:
    """Return the field selector of a list or watch; a node's agent gets only pods of its own node.

    An agent may list a pod of its own by name, but earlier pods of that name may have been on other
    nodes. May query.
    """
    if (wants.group, wants.resource) != ("", "pods") or wants.verb not in ("list", "watch"):
        return selector
    if not authorizer.reads_own_pods_only(user, wants.namespace, wants.name, wants.verb):
        return selector
    own = f"spec.nodeName={nodes.name_of(user.name, user.groups)}"
    return f"{selector},{own}" if selector else own


def require_own_node(user: User, namespace: str, name: str, node_name: str | None) -> None:
    """Raise AccessDenied unless ``node_name`` is the agent's own; ``None``: there is no pod."""
    if not node_name or node_name != nodes.name_of(user.name, user.groups):
        wants = Attributes("get", resource="pods", namespace=namespace, name=name)
        raise AccessDenied(user, wants)


class AccessDenied(Forbidden):
    """The user lacks a right: ``RESOURCE is forbidden: User "u" cannot VERB resource ...``."""

    def __init__(self, user: User, wants: Attributes, reason: str = "") -> None:
        why = f": {reason}" if reason else ""
        if wants.path:
            super().__init__(
                f'forbidden: User "{user.name}" cannot {wants.verb} path "{wants.path}"{why}'
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
            f'"{what}" in API group "{wants.group}" {scope}{why}',
            details,
        )


def require(user: User, wants: Attributes, policy: Policy | None = None) -> None:
    """Raise AccessDenied unless ``user`` may do ``wants``. May query without a policy."""
    decision = authorizer.decide(user, wants, policy)
    if not decision.allowed:
        raise AccessDenied(user, wants, decision.reason)


def attributes_of(method: str, target: Target, selector: str) -> Attributes:
    """Return the attributes of a request by its method, path and field selector.

    A namespace is judged as an object in itself, so that a RoleBinding in it gives rights to it. A
    field selector by name sets the name of a read; a creation has no name. Rule: apiserver
    ``request/requestinfo.go``.
    """
    verb, kind = routes.verb(method, target), target.kind
    name = target.name or (method == "GET" and listed_name(kind.name, selector)) or ""
    return Attributes(
        verb=verb,
        group=kind.group,
        resource=kind.plural,
        subresource=target.subresource,
        namespace=target.name if kind.name == "Namespace" else target.namespace,
        name=name,
        fields=selector if verb in ("list", "deletecollection") else "",
    )


def listed_name(kind: str, selector: str) -> str:
    """Return the name that a field selector of a list requires, empty for none.

    A list of one object is judged as that object. Rule: apiserver ``request/requestinfo.go``.
    """
    if "metadata.name" not in selector:
        return ""
    try:
        found = fields.parse_field_selector(kind, selector)
    except BadRequest:
        return ""
    named = (one.value for one in found if one.path == "metadata.name" and not one.negated)
    return next(named, "")
