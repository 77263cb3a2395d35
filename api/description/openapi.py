"""``/openapi/v2``: the types and their patch rules, for clients that validate and explain.

kubectl reads the answer as a protobuf ``openapi.v2.Document`` whatever its media type (gnostic,
``openapiv2/OpenAPIv2.proto``). The document is built from the wire types, so it describes exactly
the server's checks, and it has the patch extensions of every list: without them ``kubectl apply``
would silently keep removed items. Its ``paths`` have the part that clients read there, one
``patch`` operation with a ``dryRun`` parameter for each kind.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse

from api.access import auth
from api.description import descriptions
from api.forms import errors, failures
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry import inspected, wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS, VIEWS
from clusterstate.objects.values import moments

Json = dict[str, Any]

# Go's mime parser refuses the "@" in the media type that kubectl accepts.
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_PATTERNS = {
    moments.TIME: "date-time",
    wire_types.MICRO_TIME: "date-time",
    wire_types.BASE64: "byte",
}
"""The ``format`` of texts that match a pattern of ``wire_types``."""
_POSTED: tuple[tuple[type, str, str, str], ...] = (
    (wire_types.Binding, "", "v1", "Binding"),
    (wire_types.Eviction, "policy", "v1", "Eviction"),
    (wire_types.Scale, "autoscaling", "v1", "Scale"),
    (
        wire_types.SelfSubjectAccessReview,
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
    ),
)
"""Types without a collection: type, group, version, kind."""

_encode = msgspec.json.Encoder(order="sorted").encode


# ------------------------------------------------------------------------------- the document


def gvk(group: str, version: str, kind: str) -> Json:
    """Return the value of ``x-kubernetes-group-version-kind``."""
    return {"group": group, "version": version, "kind": kind}


def _roots() -> Iterator[tuple[type, str, str, str]]:
    for kind in (*ALL_KINDS, *VIEWS.values()):
        yield kind.wire_type, kind.group, kind.version, kind.name
    yield from _POSTED


class Definitions:
    """Collects a definition for each wire type, under Kubernetes' names, in syntax of version 2."""

    place = "#/definitions/"

    def __init__(self) -> None:
        self.found: Json = {}
        self._names: dict[type, str] = {}

    def reference(self, name: str) -> Json:
        """Return a reference to a definition."""
        return {"$ref": f"{self.place}{name}"}

    def quantity(self) -> Json:
        """Return the schema of a quantity: in answers it is a text."""
        return {"type": "string"}

    def number_or_text(self) -> Json:
        """Return the schema of a value that is a number or a text."""
        return {"type": "string", "format": "int-or-string"}

    def add(self, struct: type) -> str:
        """Return the name of a wire type's definition, which is added if it is missing."""
        if struct in self._names:
            return self._names[struct]
        own = struct.__name__
        name = self._names[struct] = wire_types.DEFINITIONS.get(own, f"dev.stowage.{own}")
        self.found[name] = {}
        rules = wire_types.PATCH.get(struct.__name__, {})
        properties: Json = {}
        for field in inspected.of_struct(struct).fields:
            schema = self._schema(field.type)
            key, strategy = rules.get(field.encode_name, ("", ""))
            if key:
                schema["x-kubernetes-patch-merge-key"] = key
            if strategy:
                schema["x-kubernetes-patch-strategy"] = strategy
            if "$ref" not in schema:
                schema["description"] = descriptions.of_field(own, field.encode_name, _word(schema))
            properties[field.encode_name] = schema
        self.found[name] = {
            "type": "object",
            "description": descriptions.of_kind(own),
        }
        if properties:  # Go's readers leave out what is empty
            self.found[name]["properties"] = properties
        return name

    def _schema(self, info: msgspec.inspect.Type) -> Json:
        inspect = msgspec.inspect
        if isinstance(info, inspect.UnionType):
            members = [m for m in info.types if not isinstance(m, inspect.NoneType)]
            kinds = {type(member) for member in members}
            if {inspect.FloatType, inspect.StrType} <= kinds:
                return self.quantity()
            if {inspect.IntType, inspect.StrType} <= kinds:
                return self.number_or_text()
            return self._schema(members[0])
        if isinstance(info, inspect.StructType):
            return self.reference(self.add(info.cls))
        if isinstance(info, inspect.ListType):
            return {"type": "array", "items": self._schema(info.item_type)}
        if isinstance(info, inspect.DictType):
            value = self._schema(info.value_type)
            return {"type": "object", "additionalProperties": value}
        if isinstance(info, inspect.BoolType):
            return {"type": "boolean"}
        if isinstance(info, inspect.IntType):
            wide = info.le is None or info.le > 2**31
            return {"type": "integer", "format": "int64" if wide else "int32"}
        if isinstance(info, inspect.FloatType):
            return {"type": "number", "format": "double"}
        if isinstance(info, inspect.StrType):
            return {
                "type": "string",
                **({"format": _PATTERNS[info.pattern]} if info.pattern else {}),
            }
        return {"type": "object"}


_SHAPES = {
    "string": "a text",
    "integer": "a number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "a list",
}


def _word(schema: Json) -> str:
    """Return the type of a schema as a word."""
    if schema.get("format") == "date-time":
        return "a time"
    return _SHAPES.get(schema.get("type", ""), "an object")


def _collection_path(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{root}{namespace}/{kind.plural}"


def _patch_operation(kind: Kind) -> Json:
    return {
        "operationId": f"patch{kind.group.title().replace('.', '')}{kind.name}",
        "consumes": [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ],
        "produces": ["application/json"],
        "parameters": [
            {
                "in": "query",
                "name": "dryRun",
                "type": "string",
                "description": "All: check the request and answer it, but store nothing.",
            }
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": gvk(kind.group, kind.version, kind.name),
    }


def _nameless() -> tuple[str, Json]:
    """Return the path and the ``patch`` of a pod's status, under a kind without a name.

    kubectl 1.20 checks here whether the server supports a dry run for a pod that it drains. It
    searches for the kind in the items of a PodList, which have none.
    """
    pod = KINDS["Pod"]
    operation = {
        **_patch_operation(pod),
        "operationId": "patchPodStatus",
        "x-kubernetes-group-version-kind": gvk("", "", ""),
    }
    return f"{_collection_path(pod)}/{{name}}/status", {"patch": operation}


@cache
def document() -> Json:
    """Return the document as JSON."""
    definitions = Definitions()
    for struct, group, version, kind in _roots():
        name = definitions.add(struct)
        definition = definitions.found[name]
        key = "x-kubernetes-group-version-kind"
        definition.setdefault(key, []).append(gvk(group, version, kind))
    return {
        "swagger": "2.0",
        "info": {"title": "Stowage", "version": "v1"},
        "paths": {
            f"{_collection_path(kind)}/{{name}}": {"patch": _patch_operation(kind)}
            for kind in (*ALL_KINDS, *VIEWS.values())
        }
        | dict([_nameless()]),
        "definitions": definitions.found,
    }


# ----------------------------------------------------------------------------------- protobuf


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _named(field: int, name: str, value: bytes) -> bytes:
    """Return an entry of an ordered protobuf map: a name and a message."""
    return _bytes(field, _bytes(1, name) + _bytes(2, value))


def _extensions(field: int, schema: Json) -> Iterable[bytes]:
    for name, value in schema.items():
        if name.startswith("x-"):
            yield _named(field, name, _bytes(2, _encode(value)))


def _schema_message(schema: Json) -> bytes:
    parts: list[bytes] = []
    for name, field in (("$ref", 1), ("format", 2), ("title", 3), ("description", 4)):
        if name in schema:
            parts.append(_bytes(field, schema[name]))
    parts += [_bytes(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        inner = _schema_message(schema["additionalProperties"])
        parts.append(_bytes(21, _bytes(1, inner)))
    if "type" in schema:
        parts.append(_bytes(22, _bytes(1, schema["type"])))
    if "items" in schema:
        parts.append(_bytes(23, _bytes(1, _schema_message(schema["items"]))))
    properties = schema.get("properties")
    if properties:
        entries = b"".join(_named(1, n, _schema_message(s)) for n, s in properties.items())
        parts.append(_bytes(25, entries))
    parts += _extensions(31, schema)
    return b"".join(parts)


def _operation_message(operation: Json) -> bytes:
    parts = [_bytes(5, operation["operationId"])]
    parts += [_bytes(6, media_type) for media_type in operation["produces"]]
    parts += [_bytes(7, media_type) for media_type in operation["consumes"]]
    for parameter in operation["parameters"]:
        query = (
            _bytes(2, parameter["in"])
            + _bytes(3, parameter["description"])
            + _bytes(4, parameter["name"])
            + _bytes(6, parameter["type"])
        )
        parts.append(_bytes(8, _bytes(1, _bytes(2, _bytes(3, query)))))
    responses = b"".join(
        _named(1, code, _bytes(1, _bytes(1, response["description"])))
        for code, response in operation["responses"].items()
    )
    parts.append(_bytes(9, responses))
    parts += _extensions(13, operation)
    return b"".join(parts)


@cache
def protobuf() -> bytes:
    """Return the document as an ``openapi.v2.Document``."""
    tree = document()
    info = _bytes(1, tree["info"]["title"]) + _bytes(2, tree["info"]["version"])
    paths = b"".join(
        _named(2, path, _bytes(8, _operation_message(item["patch"])))
        for path, item in tree["paths"].items()
    )
    definitions = b"".join(
        _named(1, name, _schema_message(schema)) for name, schema in tree["definitions"].items()
    )
    return b"".join(
        (_bytes(1, tree["swagger"]), _bytes(2, info), _bytes(8, paths), _bytes(9, definitions))
    )


# --------------------------------------------------------------------------------------- view


@cache
def _json() -> bytes:
    return _encode(document())


@cache
def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def v2(request: HttpRequest) -> HttpResponse:
    """Answer with the document: as JSON if the client accepts only JSON, else in protobuf."""
    try:
        if request.method != "GET":
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        user = auth.user_of(request.META)
        auth.require(user, Attributes(verb="get", path=request.path_info))
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return failures.answer_to(request, error)
    accept = request.META.get("HTTP_ACCEPT", "")
    plain = "json" in accept and "protobuf" not in accept
    body = _json() if plain else protobuf()
    etag = _etag(body)
    if request.META.get("HTTP_IF_NONE_MATCH") == etag:
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(body, content_type=errors.JSON if plain else PROTOBUF)
    response["ETag"] = etag
    response["Cache-Control"] = errors.NO_CACHE
    return response
