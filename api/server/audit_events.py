"""The lines of the audit log: the attributes of a request, and the Event about it.

Rules: apiserver ``request/requestinfo.go`` and ``audit/request.go``, v1.36. An Event repeats
request and answer; of the headers only the user agent. Anything that looks like a token in an
address, and in texts that repeat the address, is blanked.
"""

import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from api import routes
from api.server.scopes import Scope
from clusterstate.access import authorizer
from clusterstate.access.policy import Policy as Roles
from clusterstate.access.rules import Attributes
from clusterstate.actions.past.audit_log import AuditLine
from clusterstate.admission.request import User
from clusterstate.objects.rules import audit_policy
from clusterstate.objects.rules.audit_policy import (
    COMPLETE,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    RequestAttributes,
    Verdict,
)
from clusterstate.objects.wire import protobuf, reading
from clusterstate.objects.wire.protobuf import MAGIC, metadata_of
from clusterstate.telemetry import blanking

SECRET_QUERIES: Final = frozenset({"/console/sign-in/company/back"})
"""Paths whose query is not written: a provider of identities puts a code into it."""
LARGEST_BODY: Final = 256 << 10
"""Larger bodies are left out of a line, which says so."""
_SEARCHED: Final = 512
"""Characters of a name that can be searched for; none that exists has more."""


class AuditedRequest(msgspec.Struct, gc=False):
    """The parts of a request that the log reads."""

    id: str
    received_at: float
    scope: Scope
    verdict: Verdict = audit_policy.NOTHING
    sender: User | None = None
    user: User | None = None
    roles: Roles | None = None
    request: bytes = b""
    response: bytes = b""
    code: int = 0
    sign_in: tuple[str, str] | None = None
    is_page: bool = False
    stage: str = COMPLETE
    at: float = 0.0
    _attributes: RequestAttributes | None = None

    def request_attributes(self) -> RequestAttributes:
        """Return verb and object of the request."""
        if self._attributes is None:
            self._attributes = wanted_of(self.scope)
        return self._attributes

    def does(self, did: Attributes) -> None:
        """Record the action of a page as the API request with the same effect."""
        self._attributes = RequestAttributes(
            did.verb,
            self.scope["path"],
            did.group,
            "v1",
            did.resource,
            did.subresource,
            did.namespace,
            did.name,
        )


# What a request asks for -------------------------------------------------------------------

_WHOLE_NAMESPACES: Final = frozenset({"status", "finalize"})
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def _watches(scope: Scope) -> bool:
    query = scope["query_string"]
    return b"watch=" in query and (b"watch=true" in query or b"watch=1" in query)


def wanted_of(scope: Scope) -> RequestAttributes:
    """Return verb and object of a request. Rule: apiserver ``request/requestinfo.go``, v1.36."""
    path, method = scope["path"], scope["method"]
    target = routes.of(scope).target
    if target is not None:
        kind = target.kind
        return RequestAttributes(
            "watch" if method == "GET" and _watches(scope) else routes.verb(method, target),
            path,
            kind.group,
            kind.version,
            kind.plural,
            target.subresource,
            target.namespace,
            target.name,
        )
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, parts = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return RequestAttributes(method.lower(), path)
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _WHOLE_NAMESPACES:
            parts = parts[2:]
    resource = parts[0]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if method in ("GET", "HEAD"):
        verb = "watch" if _watches(scope) else ("get" if name else "list")
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    return RequestAttributes(verb, path, group, version, resource, subresource, namespace, name)


# Lines --------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - as on the wire


class _Answer(msgspec.Struct):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: Any = None
    reason: str = ""
    message: str = ""


_answer = msgspec.json.Decoder(_Answer)
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def _moment(seconds: float) -> str:
    whole, rest = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{rest:06d}Z"


@lru_cache(maxsize=256)
def _known_person(user: User) -> msgspec.Raw:
    """Return a user who sends many requests, encoded for a line; cached."""
    return msgspec.Raw(_encode(_person(user)))


def _person(user: User) -> dict[str, Any]:
    shown: dict[str, Any] = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {key: list(values) for key, values in user.extra}
    return shown


def line_of(entry: AuditedRequest) -> AuditLine:
    """Return the line of an entry."""
    scope, attributes = entry.scope, entry.request_attributes()
    client = scope.get("client")
    path = blanking.text(scope["path"])
    query = blanking.query(scope["query_string"].decode("latin-1"))
    if scope["path"] in SECRET_QUERIES:
        query = ""
    sender = entry.sender
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": entry.verdict.level,
        "auditID": entry.id,
        "stage": entry.stage,
        "requestURI": f"{path}?{query}" if query else path,
        "verb": attributes.verb,
        "user": {} if sender is None else _known_person(sender),
    }
    user = entry.user
    if sender is not None and user is not None and user.impersonator:
        event["impersonatedUser"] = _person(user)
    event["sourceIPs"] = [client[0]] if client else []
    if agent := header(scope, b"user-agent"):
        event["userAgent"] = blanking.text(agent)
    answer = _answer_of(entry)
    name = attributes.name
    if attributes.resource:
        of_object = answer.kind != "Status" and not answer.kind.endswith("List")
        if of_object and not attributes.subresource:
            name = name or answer.metadata.name
        reference = {
            "resource": blanking.text(attributes.resource),
            "namespace": blanking.text(attributes.namespace),
            "name": blanking.text(name),
            "uid": answer.metadata.uid if of_object else "",
            "apiGroup": blanking.text(attributes.group),
            "apiVersion": blanking.text(attributes.version),
            "resourceVersion": answer.metadata.resourceVersion if of_object else "",
            "subresource": blanking.text(attributes.subresource),
        }
        event["objectRef"] = {key: value for key, value in reference.items() if value}
    if entry.stage != RECEIVED:
        event["responseStatus"] = _status(answer, entry.code)
    if entry.stage == COMPLETE:
        if entry.verdict.level in (REQUEST, REQUEST_RESPONSE):
            sent = header(scope, b"content-type")
            _show(event, "requestObject", entry.request, sent, entry.verdict)
        if entry.verdict.level == REQUEST_RESPONSE:
            _show(event, "responseObject", entry.response, "", entry.verdict)
    event["requestReceivedTimestamp"] = _moment(entry.received_at)
    event["stageTimestamp"] = _moment(entry.at)
    if annotations := _annotations(entry):
        event["annotations"] = {**event.get("annotations", {}), **annotations}
    who = user or sender
    return AuditLine(
        at=datetime.fromtimestamp(entry.at, UTC),
        audit_id=(user.request if user is not None else None) or uuid.UUID(entry.id),
        username=_searched(who.name if who is not None else ""),
        verb=attributes.verb,
        resource=_searched(blanking.text(attributes.resource)),
        namespace=_searched(blanking.text(attributes.namespace)),
        name=_searched(blanking.text(name)),
        code=entry.code,
        text=_encode(event).decode(),
    )


def _searched(text: str) -> str:
    """Return a text for a column: strangers' paths may hold anything. The line has it whole."""
    return text[:_SEARCHED].replace("\0", "\ufffd")


def _answer_of(entry: AuditedRequest) -> _Answer:
    """Return the object's name in an answer, or the failure's reason."""
    body = entry.response
    if not body or entry.stage != COMPLETE:
        return _Answer()
    try:
        if body.startswith(MAGIC):
            kind, metadata = metadata_of(body)
            return _Answer(kind, msgspec.convert(metadata, _Meta))
        return _answer.decode(body)
    except (msgspec.MsgspecError, ValueError):
        return _Answer()


def _status(answer: _Answer, code: int) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {}}
    if answer.kind == "Status" and answer.status == "Failure":
        found["status"] = "Failure"
        found["message"] = blanking.text(answer.message)
        found["reason"] = answer.reason
    found["code"] = code
    return found


def _show(
    event: dict[str, Any], field: str, body: bytes, content_type: str, verdict: Verdict
) -> None:
    """Add a body to an event, as a manifest."""
    if not body:
        return
    if len(body) > LARGEST_BODY:
        event.setdefault("annotations", {})[f"stowage.dev/{field}"] = f"left out: {len(body)} bytes"
        return
    try:
        if body.startswith(MAGIC):
            shown: Any = protobuf.decode(body)
        elif "yaml" in content_type:
            shown = reading.read_yaml(body)
        else:
            shown = reading.read_json(body)
    except Exception:  # noqa: BLE001  # a client may send anything
        event.setdefault("annotations", {})[f"stowage.dev/{field}"] = "left out: unreadable"
        return
    if verdict.omit_managed_fields:
        _without_managed_fields(shown)
    if isinstance(shown, dict) and shown.get("kind") == "Status":
        shown = _blanked(shown)  # its texts may repeat the address
    event[field] = shown


def _blanked(shown: Any) -> Any:
    """Return a document with credentials in its texts blanked."""
    if isinstance(shown, str):
        return blanking.text(shown)
    if isinstance(shown, list):
        return list(map(_blanked, shown))
    if isinstance(shown, dict):
        return {key: _blanked(value) for key, value in shown.items()}
    return shown


def _without_managed_fields(shown: Any) -> None:
    if not isinstance(shown, dict):
        return
    if isinstance(metadata := shown.get("metadata"), dict):
        metadata.pop("managedFields", None)
    for one in shown.get("items") or () if isinstance(shown.get("items"), list) else ():
        _without_managed_fields(one)


def _annotations(entry: AuditedRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    if entry.sign_in is not None:
        found["stowage.dev/sign-in"], found["stowage.dev/username"] = entry.sign_in
    attributes = entry.request_attributes()
    if entry.user is None or not attributes.path.startswith("/api"):
        return found
    question = Attributes(
        attributes.verb,
        attributes.group,
        attributes.resource,
        attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
        path="" if attributes.resource else attributes.path,
    )
    if entry.code == 403:
        found["authorization.k8s.io/decision"] = "forbid"
        return found
    if entry.roles is not None or "system:masters" in entry.user.groups:
        decision = authorizer.decide(entry.user, question, entry.roles)
        if decision.allowed:
            found["authorization.k8s.io/decision"] = "allow"
            found["authorization.k8s.io/reason"] = decision.reason
    return found


def header(scope: Scope, name: bytes) -> str:
    """Return a header of a request, empty without one."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""
