# ruff: noqa: E501  # tables of texts
"""Requests that nobody in their senses sends: every path, method, format and parameter, at random.

Bodies follow the types of their kind, so that they come past decoding, with the extremes of every
type and texts of every sort in the fields; some have a wrong type somewhere.
"""

import json
import random
import urllib.parse
from collections.abc import Iterator
from typing import Any

import msgspec

from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.wire import protobuf

TEXTS = (
    "", "a", "p", "n", "ns", "default", "A", "-", ".", "a.b", "a/b", "a/b/c", "/", "//", "a=b", ",", "!a",
    "²", "a²", "1²", "\u0661", "\uff11", "\0", "a\0b", "\ud800", "\udfff", "\U0001f600", "\u202e", "\ufeff",
    "\n", "\r\n", "\t", "\x1b[2J", "\x7f", "%", "%00", "%zz", "\\", "'", '"', "';--", "{}", "[]", "null",
    "0", "1", "-1", "+1", "1.5", "1e3", "1e999999", "-0", "0x10", "1_0", " 1", "NaN", "inf", "9" * 18,
    "9" * 19, "9" * 20, "9" * 40, "9" * 5000, "0." + "1" * 400, "1" + "0" * 400 + "Ki", "500m", "1Gi", "1Ki5",
    "10%", "-10%", "²%", "999999999999999999999%", "true", "false", "yes", "All",
    "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0000-00-00T00:00:00Z",
    "2026-02-30T00:00:00Z", "2026-01-01T25:61:61Z", "99999-01-01T00:00:00Z", "2026-01-01", "not a time",
    "2026-01-01T00:00:00.123456789123Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
    "NoSchedule", "NoExecute", "PreferNoSchedule", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt",
    "Equal", "Always", "Never", "OnFailure", "Foreground", "Orphan", "Background", "Delete",
    "kubernetes.io/hostname", "topology.kubernetes.io/zone", "nvidia.com/gpu", "cpu", "memory", "pods",
    "x" * 63, "x" * 64, "x" * 253, "x" * 254, "x" * 5000, "a" * 64 + "/" + "b" * 64,
    "127.0.0.1", "::1", "999.1.1.1", "system:node:n", "00000000-0000-0000-0000-000000000000",
    "metadata.name=p", "spec.nodeName=", "a in (b,c)", "a in (", "a notin ()", "a>1", "a>²", "a<" + "9" * 30,
    "(" * 200, "a," * 500, "eyJhIjoxfQ==", "!!!", "1:2", "default-scheduler",
)  # fmt: skip

NUMBERS = (
    0, 1, 2, -1, 30, 100, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 10**12,
    2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400,
)  # fmt: skip

PARAMETERS = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch",
    "timeoutSeconds", "watch", "allowWatchBookmarks", "sendInitialEvents", "dryRun", "fieldValidation",
    "fieldManager", "force", "pretty", "includeObject", "gracePeriodSeconds", "propagationPolicy",
    "orphanDependents", "waitFor", "cause", "node", "namespace", "before", "after", "since", "until",
    "sort", "order", "version", "revision", "profile", "pod", "explain", "full", "page", "q",
)  # fmt: skip

BODY_TYPES = (
    "application/json", "application/yaml", "application/merge-patch+json",
    "application/json-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "",
    "application/json; charset=utf-16", "²",
)  # fmt: skip

ACCEPTS = (
    "", "application/json", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf", "text/html", "a;;;=,", "²", "application/json;as=",
)  # fmt: skip

SPECIAL = (
    "/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v2", "/openapi/v3",
    "/metrics", "/livez", "/healthz", "/readyz", "/api/v1/namespaces/ns/bindings",
    "/api/v1/componentstatuses", "/api/v1/componentstatuses/{}",
    "/api/v1/namespaces/ns/pods/p/decisions", "/api/v1/namespaces/ns/pods/p/decisions/{}",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/stowage.dev/v1",
    "/apis/stowage.dev/v1/evictions", "/apis/stowage.dev/v1/zones", "/apis/stowage.dev/v1/nodes/n/usage",
    "/apis/stowage.dev/v1/nodes/{}/usage", "/apis/stowage.dev/v1/nodes/{}/evictions",
    "/apis/stowage.dev/v1/namespaces/{}/evictions", "/apis/stowage.dev/v1/namespaces/ns/evictions/{}",
    "/apis/stowage.dev/v1/namespaces/ns/pods/{}/evictions", "/apis/stowage.dev/v1/waitingpods",
    "/apis/stowage.dev/v1/namespaces/{}/waitingpods", "/apis/stowage.dev/v1/namespaces/ns/waitingpods/{}",
    "/apis/stowage.dev/v1/namespaces/ns/pods/p/permit", "/apis/stowage.dev/v1/namespaces/ns/pods/{}/permit",
    "/apis/stowage.dev/v1/selections", "/apis/stowage.dev/v1/namespaces/{}/selections",
    "/apis/stowage.dev/v1/namespaces/ns/pods/{}/why", "/apis/stowage.dev/v1/namespaces/ns/pods/p/why",
    "/apis/stowage.dev/v1/waitingtimes", "/apis/stowage.dev/v1/namespaces/{}/waitingtimes",
    "/apis/stowage.dev/v1/waitinggroups", "/apis/stowage.dev/v1/waitinggroups/{}",
    "/apis/stowage.dev/v1/namespaces/{}/waitinggroups", "/apis/stowage.dev/v1/namespaces/ns/waitinggroups/{}",
    "/apis/stowage.dev/v1/audit", "/apis/stowage.dev/v1/changes",
    "/apis/stowage.dev/v1/simulations", "/apis/stowage.dev/v1/headroom", "/apis/stowage.dev/v1/nodeadvice",
    "/apis/stowage.dev/v1/comparisons", "/apis/stowage.dev/v1/packings", "/apis/stowage.dev/v1/canaries",
    "/apis/stowage.dev/v1/canaries/{}/report",
    "/apis/stowage.dev/v1/schedulerconfiguration", "/apis/node.k8s.io/v1/runtimeclasses/{}/nodes",
    "/apis/node.k8s.io/v1/runtimeclasses/n/nodes", "/{}", "/api/v1/{}", "/apis/{}/v1/pods", "/api/v1/pods/{}",
)  # fmt: skip

METHODS = ("GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

POSTED = {
    "/api/v1/namespaces/ns/bindings": wire_types.Binding,
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": wire_types.SelfSubjectAccessReview,
}


class Request(msgspec.Struct):
    """One request, its path and query still unquoted."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: bytes
    content_type: str
    accept: str

    @property
    def target(self) -> str:
        """The path and the query as they stand in a request line."""
        path = urllib.parse.quote(self.path, safe="/:", errors="surrogatepass")
        query = urllib.parse.urlencode(self.query, errors="surrogatepass")
        return f"{path}?{query}" if query else path


class Values:
    """Values of types, from a seed."""

    def __init__(self, rng: random.Random, *, wild: float) -> None:
        self.rng = rng
        self.wild = wild

    def text(self) -> str:
        """Return a text: mostly a tame one, sometimes any."""
        if self.rng.random() > 3 * self.wild:
            return self.rng.choice(("a", "b", "p", "n", "ns", "cpu", "1", "Exists", "NoExecute"))
        return self.rng.choice(TEXTS)

    def anything(self) -> Any:
        """Return a value of any type."""
        return self.rng.choice(
            (None, True, False, *NUMBERS, 1.5, 1e308, self.text(), [], {}, [self.text()],
             {self.text(): self.text()}, [None], [[]], [{}], {"": None})
        )  # fmt: skip

    def of(self, info: Any, depth: int = 0) -> Any:
        """Return a value of a type, or by chance of another."""
        rng = self.rng
        if rng.random() < self.wild / 3:
            return self.anything()
        kind = type(info)
        inspect = msgspec.inspect
        if kind is inspect.UnionType:
            return self.of(
                rng.choice([t for t in info.types if type(t) is not inspect.NoneType]), depth
            )
        if kind is inspect.StructType:
            fewer = 0.6 if depth < 2 else 0.25 if depth < 5 else 0.08
            return {
                field.encode_name: self.of(field.type, depth + 1)
                for field in info.fields
                if rng.random() < fewer
            }
        if kind is inspect.ListType:
            return [self.of(info.item_type, depth + 1) for _ in range(rng.choice((0, 1, 1, 2)))]
        if kind is inspect.DictType:
            return {
                self.text(): self.of(info.value_type, depth + 1)
                for _ in range(rng.choice((0, 1, 2)))
            }
        if kind is inspect.IntType:
            return rng.choice(NUMBERS[:6] if rng.random() > self.wild else NUMBERS)
        if kind is inspect.FloatType:
            return rng.choice((0.0, 1.5, -1.0, 1e308, 5e-324))
        if kind is inspect.BoolType:
            return rng.random() < 0.5
        if kind is inspect.StrType:
            return self.text()
        return self.anything()


def _base(kind: Kind) -> dict[str, Any]:
    """Return a manifest that is admitted, as far as the kind needs one."""
    labels = {"app": "a"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec: dict[str, Any] = {
        "Pod": {"containers": [{"name": "c", "image": "i"}]},
        "ReplicationController": {"selector": labels, "template": template},
        "PodDisruptionBudget": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        "LimitRange": {"limits": []},
    }.get(kind.name, {})
    if kind.group == "apps":
        spec = {"selector": {"matchLabels": labels}, "template": template}
    found: dict[str, Any] = {"metadata": {"name": "p"}, "spec": spec}
    if kind.name == "RuntimeClass":
        found = {"metadata": {"name": "p"}, "handler": "h"}
    if kind.name == "PriorityClass":
        found = {"metadata": {"name": "p"}, "value": 5}
    if kind.name == "Event":
        found = {"metadata": {"name": "p"}, "involvedObject": {"namespace": "ns"}}
    return {"apiVersion": kind.api_version, "kind": kind.name, **found}


def _mixed(base: Any, other: Any) -> Any:
    """Return ``other`` laid over ``base``."""
    if isinstance(base, dict) and isinstance(other, dict):
        return {**base, **{key: _mixed(base.get(key), value) for key, value in other.items()}}
    if isinstance(base, list) and isinstance(other, list) and base and other:
        return [_mixed(base[0], entry) for entry in other]
    return base if other is None else other


def _patch(values: Values, content_type: str, manifest: Any) -> Any:
    if content_type == "application/json-patch+json":
        paths = (
            "/metadata/labels",
            "/metadata/name",
            "/spec",
            "/spec/containers/0",
            "",
            "/a/b",
            "/-",
        )
        return [
            {"op": values.rng.choice(("add", "remove", "replace", "move", "copy", "test", values.text())),
             "path": values.rng.choice((*paths, values.text())), "value": values.anything(),
             "from": values.rng.choice((*paths, values.text()))}
            for _ in range(values.rng.choice((1, 2, 3)))
        ]  # fmt: skip
    if isinstance(manifest, dict) and values.rng.random() < 0.3:
        manifest = {
            **manifest,
            values.rng.choice(
                ("$patch", "$retainKeys", "$setElementOrder/a", "x")
            ): values.anything(),
        }
    return manifest


def _kinds() -> list[Kind]:
    return list({kind.name: kind for kind in KINDS.values()}.values())


def _place(values: Values, kind: Kind, number: int) -> tuple[str, str, str]:
    """Return a method, a path where it is mostly allowed, and the name of the object there."""
    rng = values.rng
    prefix = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    if kind.namespaced and rng.random() < 0.97:
        prefix += f"/namespaces/{'ns' if rng.random() < 0.97 else values.text()}"
    path = f"{prefix}/{kind.plural}"
    method = rng.choice(("GET", "POST", "POST", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"))
    name = "p" if rng.random() < 0.95 else values.text()
    if method == "POST" and "binding" in kind.subresources and rng.random() < 0.3:
        path += f"/{name}/{rng.choice(('binding', 'eviction'))}"
    elif method == "POST":
        name = rng.choice(("p", f"p{number}"))
    elif method in ("PUT", "PATCH") or rng.random() < 0.8:
        path += f"/{name}"
        if method != "DELETE" and kind.subresources and rng.random() < 0.4:
            path += f"/{rng.choice(sorted(kind.subresources))}"
    if rng.random() < 0.03:
        method = rng.choice(METHODS)
    return method, path, name


def _in_protobuf(rng: random.Random, value: Any) -> bytes:
    """Return an object in protobuf, mostly with fields of wrong types, lengths or numbers."""
    try:
        raw = bytearray(protobuf.encode(value))
    except (LookupError, ValueError, TypeError, AttributeError):
        raw = bytearray(protobuf.MAGIC + rng.randbytes(40))
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(protobuf.MAGIC), len(raw) + 1)
        match rng.randrange(4):
            case 0:
                raw[at : at + 1] = rng.randbytes(1)
            case 1:
                del raw[at : at + rng.choice((1, 2, 10))]
            case 2:  # a number without an end, a group, a length beyond the end
                raw[at:at] = rng.choice(
                    (b"\xff" * 11, b"\x0b", b"\x0c", b"\x0a\xff\xff\xff\xff\x0f")
                )
            case _:
                raw[at:at] = raw[4 : 4 + rng.randrange(200)]
    return bytes(raw)


def _encoded(rng: random.Random, value: Any, content_type: str) -> bytes:
    if content_type == BODY_TYPES[6] and isinstance(value, dict) and rng.random() < 0.8:
        return _in_protobuf(rng, value)
    raw = json.dumps(value).encode()
    if rng.random() < 0.03:
        raw = raw[: rng.randrange(len(raw) + 1)]
    if rng.random() < 0.02:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.choice((b"\0", b"\xff", b"\\u0000", b"\\ud800", b"1" * 500)) + raw[at:]
    return raw


def requests(seed: int, *, wild: float = 0.1) -> Iterator[Request]:
    """Yield requests without end."""
    rng = random.Random(seed)
    values = Values(rng, wild=wild)
    kinds = _kinds()
    number = 0
    while True:
        query = [
            (rng.choice(PARAMETERS), rng.choice(TEXTS))
            for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))
        ]
        if any(name in ("watch", "waitFor") for name, _ in query):
            query.append(("timeoutSeconds", "1"))
        accept = rng.choice(ACCEPTS) if rng.random() < 0.2 else "application/json"
        if rng.random() < 0.2:
            path = rng.choice(SPECIAL)
            method = rng.choice(METHODS)
            wire_type = POSTED.get(path)
            body: Any = values.anything() if wire_type is None else values.of(
                msgspec.inspect.type_info(wire_type))  # fmt: skip
            if path.endswith(("simulations", "headroom")):
                body = _question(values)
            path = path.replace("{}", values.text())
            content_type = rng.choice(BODY_TYPES[:2])
        else:
            kind = rng.choice(kinds)
            number += 1
            method, path, name = _place(values, kind, number)
            body = _mixed(_base(kind), values.of(msgspec.inspect.type_info(kind.wire_type)))
            if rng.random() < 0.9 and isinstance(body, dict):
                body |= {"kind": kind.name, "apiVersion": kind.api_version}
                if isinstance(body.get("metadata"), dict) and rng.random() < 0.8:
                    body["metadata"] |= {"name": name}
                    for field in ("namespace", "uid", "resourceVersion", "deletionTimestamp"):
                        if rng.random() < 0.9:
                            body["metadata"].pop(field, None)
            if method == "POST" and rng.random() < 0.1:
                body = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "items": [body]}
            content_type = rng.choice(BODY_TYPES[:2])
            if method == "PATCH":
                content_type = rng.choice(BODY_TYPES[2:6])
                body = _patch(values, content_type, body)
            if method == "DELETE" and rng.random() < 0.7:
                body = values.of(msgspec.inspect.type_info(wire_types.DeleteOptions))
        if rng.random() < 0.05:
            content_type = rng.choice(BODY_TYPES)
        elif method in ("POST", "PUT", "DELETE") and rng.random() < 0.05:
            content_type = BODY_TYPES[6]
        raw = b"" if method in ("GET", "HEAD") else _encoded(rng, body, content_type)
        yield Request(method, path, query, raw, content_type, accept)


def _question(values: Values) -> Any:
    """Return a simulation or a question for headroom."""
    rng = values.rng
    pod = _mixed(_base(KINDS["Pod"]), values.of(msgspec.inspect.type_info(KINDS["Pod"].wire_type)))
    node = _mixed(
        _base(KINDS["Node"]), values.of(msgspec.inspect.type_info(KINDS["Node"].wire_type))
    )
    spec = {
        "base": rng.choice(("live", "empty", values.text())),
        "pods": [pod],
        "pod": pod,
        "objects": [node],
        "nodes": [node],
        "delete": [{"kind": "Pod", "namespace": values.text(), "name": values.text()}],
        "apply": [node],
        "limit": values.anything(),
        "seed": values.anything(),
        "configuration": values.anything(),
        values.text(): values.anything(),
    }
    kept = {key: value for key, value in spec.items() if rng.random() < 0.6}
    return {
        "apiVersion": "stowage.dev/v1",
        "kind": rng.choice(("Simulation", "Headroom")),
        "spec": kept,
    }
