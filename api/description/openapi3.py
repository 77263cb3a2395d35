"""``/openapi/v3``: an index, and a document in OpenAPI 3.0 for each group and version.

From 1.27 on kubectl explains, validates and patches by these documents; other tools generate
clients. The schemas are those of version 2 (`openapi`) in the syntax of version 3; the paths are
complete: every operation of every kind, and the resources of ``stowage.dev``. Each URL in the index
has the hash of its document, so that clients may cache it for ever.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api import resources
from api.access import auth
from api.description import descriptions, discovery, openapi
from api.description.openapi import gvk
from api.forms import errors, failures
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, VIEWS
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.wire import patching

Json = dict[str, Any]

_APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final = (*patching.PATCH_TYPES, _APPLY)
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_NUMBER_OR_TEXT: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_PLACE: Final = "#/components/schemas/"

_encode = msgspec.json.Encoder(order="sorted").encode


class _Schemas(openapi.Definitions):
    """The schemas of one document."""

    place = _PLACE

    def add(self, struct: type) -> str:
        """Return the name of a wire type's schema, which is added if it is missing."""
        name = super().add(struct)
        if struct is wire_types.EventsV1Event:  # answered as null where the core group has none
            self.found[name]["properties"]["eventTime"]["nullable"] = True
        return name

    def reference(self, name: str) -> Json:
        """Return a reference to a schema that allows further keywords, as ``$ref`` does not."""
        return {"allOf": [{"$ref": f"{self.place}{name}"}]}

    def quantity(self) -> Json:
        """Return a reference to the schema of quantities."""
        text, number = {"type": "string"}, {"type": "number"}
        self.found[_QUANTITY] = {"description": _QUANTITIES, "oneOf": [text, number]}
        return self.reference(_QUANTITY)

    def number_or_text(self) -> Json:
        """Return a reference to the schema of numbers that may be texts."""
        self.found[_NUMBER_OR_TEXT] = {
            "description": "A number, or a text such as a percentage.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        }
        return self.reference(_NUMBER_OR_TEXT)

    def list_of(self, kind: Kind) -> Json:
        """Return a reference to the schema of lists of a kind."""
        item = self.add(kind.wire_type)
        name = f"{item.rpartition('.')[0]}.{kind.list_kind}"
        text = {"type": "string"}
        self.found[name] = {
            "type": "object",
            "description": f"A list of objects of the kind {kind.name}.",
            "required": ["items"],
            "properties": {
                "apiVersion": text,
                "kind": text,
                "metadata": _LIST_METADATA,
                "items": {"type": "array", "items": self.reference(item)},
            },
            _GVK: [gvk(kind.group, kind.version, kind.list_kind)],
        }
        return self.reference(name)


_QUANTITIES: Final = "An amount, such as 2, 500m or 1Gi."
_GVK: Final = "x-kubernetes-group-version-kind"
_LIST_METADATA: Final[Json] = {
    "type": "object",
    "description": "The version of the list, and where to continue if this is only a part of it.",
    "properties": {
        "resourceVersion": {"type": "string"},
        "continue": {"type": "string"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
    },
}
_STATUS: Final[Json] = {
    "type": "object",
    "description": "How a request ended.",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "status": {"type": "string"},
        "message": {"type": "string"},
        "reason": {"type": "string"},
        "code": {"type": "integer", "format": "int32"},
        "details": {"type": "object"},
        "metadata": {"type": "object"},
    },
    _GVK: [gvk("", "v1", "Status")],
}


# ------------------------------------------------------------------------------- parameters


def _parameter(name: str, description: str, kind: str = "string", place: str = "query") -> Json:
    parameter: Json = {
        "name": name,
        "in": place,
        "description": description,
        "schema": {"type": kind},
    }
    if place == "path":
        parameter["required"] = True
    return parameter


_PRETTY = _parameter("pretty", "Whether the JSON of the answer is indented.")
_DRY_RUN = _parameter("dryRun", "All: check the request and answer it, but store nothing.")
_MANAGER = _parameter("fieldManager", "The name of the writer in metadata.managedFields.")
_VALIDATION = _parameter("fieldValidation", "For unknown fields: Ignore, Warn or Strict.")
_FORCE = _parameter("force", "Whether an apply takes over fields of other managers.", "boolean")
_SELECTORS = (
    _parameter("labelSelector", "Labels that the objects must have."),
    _parameter("fieldSelector", "Fields that the objects must have."),
)
_AT = _parameter("at", "Answer as at this time: 2026-01-31T12:00:00Z, 03:10, or 10m or 2h ago.")
_LIST = (
    *_SELECTORS,
    _AT,
    _parameter("allowWatchBookmarks", "Whether a watch sends bookmarks.", "boolean"),
    _parameter("continue", "The continue token of the page before."),
    _parameter("limit", "The most objects on a page.", "integer"),
    _parameter("resourceVersion", "The answer must be of this version or a newer one."),
    _parameter("resourceVersionMatch", "Exact or NotOlderThan."),
    _parameter("sendInitialEvents", "Whether a watch begins with the existing objects.", "boolean"),
    _parameter("timeoutSeconds", "Seconds after which a watch ends.", "integer"),
    _parameter("watch", "Whether to watch: to send each change as it happens.", "boolean"),
)
_DELETE = (
    _DRY_RUN,
    _parameter("gracePeriodSeconds", "The grace period, in seconds.", "integer"),
    _parameter("propagationPolicy", "Background, Foreground or Orphan."),
    _parameter("orphanDependents", "Deprecated: use propagationPolicy.", "boolean"),
)
_WRITE = (_DRY_RUN, _MANAGER, _VALIDATION)


# -------------------------------------------------------------------------------- operations


class _Operations:
    """Writes the path items of one group and version."""

    def __init__(self, schemas: _Schemas) -> None:
        self._schemas = schemas
        self.paths: Json = {}

    def _operation(
        self,
        action: str,
        named: str,
        about: Json,
        answer: Json,
        *parameters: Json,
        body: Json | None = None,
        media_types: tuple[str, ...] = ("application/json", "application/yaml"),
        codes: tuple[int, ...] = (200,),
    ) -> Json:
        content = {"application/json": {"schema": answer}}
        failure = {"application/json": {"schema": {"$ref": f"{_PLACE}{_META}.Status"}}}
        operation: Json = {
            "operationId": named,
            "tags": [_tag(about["group"], about["version"])],
            "responses": {
                **{str(code): {"description": "Done.", "content": content} for code in codes},
                "default": {"description": "It failed.", "content": failure},
            },
            "x-kubernetes-action": action,
            _GVK: about,
        }
        if parameters:
            operation["parameters"] = list(parameters)
        if body is not None:
            content = {one: {"schema": body} for one in media_types}
            operation["requestBody"] = {"content": content}
            if action not in ("delete", "deletecollection"):
                operation["requestBody"]["required"] = True
        return operation

    def kind(self, kind: Kind) -> None:
        """Add all operations on objects of a kind."""
        about = gvk(kind.group, kind.version, kind.name)
        name = self._schemas.add(kind.wire_type)
        self._schemas.found[name].setdefault(_GVK, [])
        if about not in self._schemas.found[name][_GVK]:
            self._schemas.found[name][_GVK].append(about)
        one, many = self._schemas.reference(name), self._schemas.list_of(kind)
        options = self._schemas.reference(self._schemas.add(wire_types.DeleteOptions))
        status = {"$ref": f"{_PLACE}{_META}.Status"}
        root = _root(kind.group, kind.version)
        base = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
        scope = "Namespaced" if kind.namespaced else ""
        word = f"{_camel(kind.group, kind.version)}{scope}{kind.name}"
        listed = self._operation("list", f"list{word}", about, many, *_LIST)
        self.paths[f"{base}/{kind.plural}"] = {
            "get": listed,
            "post": self._operation(
                "post", f"create{word}", about, one, *_WRITE, body=one, codes=(200, 201)
            ),
            "parameters": [*_in_path(base), _PRETTY],
        }
        if kind.deleted_together:
            self.paths[f"{base}/{kind.plural}"]["delete"] = self._operation(
                "deletecollection", f"deleteCollection{word}", about, status,
                *_SELECTORS, *_DELETE, body=options,
            )  # fmt: skip
        if kind.namespaced:
            everywhere = f"list{_camel(kind.group, kind.version)}{kind.name}ForAllNamespaces"
            self.paths[f"{root}/{kind.plural}"] = {
                "get": {**listed, "operationId": everywhere},
                "parameters": [_PRETTY],
            }
        path = f"{base}/{kind.plural}/{{name}}"
        # What cannot go at once, for a finalizer or a grace period, is answered as it still is.
        gone = one if kind.returns_deleted else {"anyOf": [status, one]}
        self.paths[path] = {
            **self._item(word, about, one, ("get", "put", "patch")),
            "delete": self._operation(
                "delete", f"delete{word}", about, gone, *_DELETE, body=options, codes=(200, 202)
            ),
            "parameters": [*_in_path(path), _PRETTY],
        }
        for entry in discovery.group_versions()[kind.group, kind.version]:
            if entry["name"].startswith(f"{kind.plural}/"):
                self._subresource(entry, path, word, about, one)

    def _item(self, word: str, about: Json, one: Json, methods: tuple[str, ...]) -> Json:
        patch = {"type": "object", "description": "What changes."}
        found = {
            "get": self._operation("get", f"read{word}", about, one, _AT),
            "put": self._operation("put", f"replace{word}", about, one, *_WRITE, body=one),
            "patch": self._operation(
                "patch", f"patch{word}", about, one, *_WRITE, _FORCE,
                body=patch, media_types=_PATCHES, codes=(200, 201),
            ),
        }  # fmt: skip
        return {method: found[method] for method in methods}

    def _subresource(self, entry: Json, path: str, word: str, about: Json, one: Json) -> None:
        """Add a discovered subresource of the objects at ``path``."""
        subresource = entry["name"].partition("/")[2]
        schema = one
        if entry["kind"] != about["kind"]:
            group, version = str(entry.get("group", about["group"])), entry.get("version", "v1")
            about = gvk(group, version, entry["kind"])
            schema = self._schema_of(about)
        named = f"{word}{subresource.title()}"
        verbs = entry["verbs"]
        methods = tuple(
            method
            for method, verb in (("get", "get"), ("put", "update"), ("patch", "patch"))
            if verb in verbs
        )
        item = self._item(named, about, schema, methods)
        if "create" in verbs:
            item["post"] = self._operation(
                "post", f"create{named}", about, schema, *_WRITE, body=schema, codes=(200, 201)
            )
        where = f"{path}/{subresource}"
        self.paths[where] = {**item, "parameters": [*_in_path(where), _PRETTY]}

    def _schema_of(self, about: Json) -> Json:
        """Return a reference to the schema of a kind without a collection."""
        kind = about["kind"]
        struct = getattr(wire_types, kind, None)
        if struct is None:
            name = f"dev.stowage.{about['version']}.{kind}"
            text = _OWN_KINDS.get(kind) or descriptions.of_kind(kind)
            self._schemas.found.setdefault(name, {"type": "object", "description": text})
        else:
            name = self._schemas.add(struct)
        found = self._schemas.found[name].setdefault(_GVK, [])
        if about not in found:
            found.append(about)
        return self._schemas.reference(name)

    def posted(self, group: str, version: str, entry: Json) -> None:
        """Add a discovered resource that accepts only POST."""
        about = gvk(str(entry.get("group", group)), entry.get("version", version), entry["kind"])
        one = self._schema_of(about)
        place = "/namespaces/{namespace}" if entry["namespaced"] else ""
        path = f"{_root(group, version)}{place}/{entry['name']}"
        word = f"{_camel(group, version)}{entry['kind']}"
        self.paths[path] = {
            "post": self._operation(
                "post", f"create{word}", about, one, *_WRITE, body=one, codes=(200, 201)
            ),
            "parameters": [*_in_path(path), _PRETTY],
        }

    def own(self, method: str, path: str, kind: str, parameters: tuple[Json, ...]) -> None:
        """Add an operation of ``stowage.dev``."""
        about = gvk("stowage.dev", "v1", kind)
        name = f"dev.stowage.v1.{kind}"
        self._schemas.found[name] = {
            "type": "object",
            "description": _OWN_KINDS[kind],
            _GVK: [about],
            **_OWN_FIELDS.get(kind, {}),
        }
        one = self._schemas.reference(name)
        verbs = {"get": "read", "post": "create", "put": "replace", "delete": "delete"}
        verb = verbs[method]
        place = re.sub(r"\W+", " ", path.removeprefix("/apis/stowage.dev/v1")).title()
        item = self.paths.setdefault(path, {"parameters": [*_in_path(path), _PRETTY]})
        item[method] = self._operation(
            method, f"{verb}StowageDevV1{place.replace(' ', '')}", about, one, *parameters,
            body=None if method in ("get", "delete") else one,
            codes=(200, 201) if method == "post" else (200,),
        )  # fmt: skip


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _camel(group: str, version: str) -> str:
    words = re.split(r"\W+", group.removesuffix(".k8s.io")) if group else ["core"]
    return "".join(word.title() for word in [*words, version])


def _tag(group: str, version: str) -> str:
    return f"{group or 'core'}_{version}"


def _in_path(path: str) -> list[Json]:
    """Return the parameters in a path."""
    return [
        _parameter(name, f"The {name} of the object.", place="path")
        for name in re.findall(r"\{(\w+)\}", path)
    ]


_OWN: Final = "/apis/stowage.dev/v1"
_OWN_KINDS: Final = {
    "AuditEvent": "A request that was answered, from the audit log (audit.k8s.io/v1 Event).",
    "Brake": "A zone or namespace whose evictions are paused, since too many pods would leave.",
    "Canary": "A scheduler configuration on trial, and what became of it.",
    "Change": "A change of an object, and who made it.",
    "Comparison": "Recent scheduling, replayed under other configurations and compared.",
    "Decision": "A decision of the scheduler about a pod, without its scores.",
    "DecisionList": "What the scheduler decided about a pod, the latest first.",
    "Eviction": "A pod that will be evicted, when, and why.",
    "Explanation": "Why a pod waits or is where it is: what every filter says of every node.",
    "Headroom": "How many more pods of one template fit into the cluster.",
    "NodeAdvice": "Which nodes to buy and remove, from a catalogue with prices.",
    "NodeUsage": "What an agent measured on its node.",
    "Packing": "A placement of all pods together, and a bound on the best possible one.",
    "Plan": "What a change of the cluster will do, and how far it is carried out.",
    "Permit": "An answer to a plugin that holds a pod at Permit: allow or reject it.",
    "Replay": "The revision from which a webhook's events are delivered again.",
    "SchedulerConfiguration": "The scheduler's configuration: profiles, plugins and extenders.",
    "Selection": "How many pods or nodes an object selects, and which others select them, too.",
    "Simulation": "On which nodes pods would be placed in a cluster that the request describes.",
    "WaitingGroup": "Pods that wait for the same reasons, and changes that would place them.",
    "WaitingPod": "A pod that a plugin holds at Permit.",
    "Webhook": "A URL that events are sent to over HTTP.",
    "WaitingTimes": "How long pods wait and have waited, how many exceed a goal, and which starve.",
    "Zone": "How many nodes of a zone are healthy, and how fast pods are evicted there.",
}


def _field(text: str, **more: object) -> Json:
    return {"description": text, "type": "object", **more}


_OWN_FIELDS: Final[dict[str, Json]] = {
    "SchedulerConfiguration": {
        "properties": {
            "apiVersion": _field("kubescheduler.config.k8s.io/v1.", type="string"),
            "kind": _field("KubeSchedulerConfiguration, as of kube-scheduler.", type="string"),
            "metadata": _field("resourceVersion is the revision; an annotation names its author."),
            "profiles": _field(
                "Each has a schedulerName, which pods choose by spec.schedulerName.",
                type="array",
                items=_field(
                    "A profile.",
                    properties={
                        "schedulerName": _field("Pods name it in schedulerName.", type="string"),
                        "plugins": _field(
                            "What is enabled and disabled at each extension point, or at all of"
                            " them (multiPoint), with weights."
                        ),
                        "pluginConfig": _field(
                            "Arguments of plugins, such as scoringStrategy of NodeResourcesFit.",
                            type="array",
                            items=_field("The name of a plugin and its args."),
                        ),
                        "percentageOfNodesToScore": _field(
                            "percentageOfNodesToScore for this profile.", type="integer"
                        ),
                    },
                ),
            ),
            "percentageOfNodesToScore": _field(
                "Percentage of the nodes that are scored; 0: chosen by the size of the cluster.",
                type="integer",
            ),
            "podInitialBackoffSeconds": _field(
                "How long a pod waits after its first refusal.", type="integer"
            ),
            "podMaxBackoffSeconds": _field("The longest time between attempts.", type="integer"),
            "extenders": _field(
                "HTTP services that filter, score or bind as well.",
                type="array",
                items=_field("An extender."),
            ),
            "status": _field("inForce: the revision by which pods are scheduled; conditions."),
        }
    },
}
"""The fields that ``kubectl explain`` describes of kinds of ``stowage.dev``."""
_OWN_PARAMETERS: Final[dict[str, tuple[Json, ...]]] = {
    "evictions": (
        _SELECTORS[1],
        _parameter("limit", "The most timers on a page.", "integer"),
        _parameter("continue", "The continue token of the page before."),
    ),
    "audit": (
        _parameter("user", "Only requests of this user."),
        _parameter("verb", "Only requests with this verb."),
        _parameter("resource", "Only requests for this resource, in the plural."),
        _parameter("namespace", "Only requests in this namespace."),
        _parameter("name", "Only requests for the object of this name."),
        _parameter("code", "Only requests answered with this HTTP status.", "integer"),
        _parameter("auditID", "Only the request with this audit ID."),
        _parameter("since", "Not before this time."),
        _parameter("until", "Before this time."),
        _parameter("limit", "The most lines on a page.", "integer"),
        _parameter("continue", "The continue token of the page before."),
    ),
    "changes": (
        _parameter("kind", "The kind of the object."),
        _parameter("namespace", "The namespace of the object."),
        _parameter("name", "The name of the object."),
        _parameter("limit", "The most changes on a page.", "integer"),
        _parameter("format", "table: the answer is a table in plain text."),
        _parameter("continue", "The continue token of the page before."),
    ),
    "decisions": (
        _parameter("namespace", "Only decisions about pods in this namespace."),
        _parameter("name", "Only decisions about pods of this name."),
        _parameter("node", "Only decisions that chose this node."),
        _parameter("reason", "Only decisions whose message contains this text."),
        _parameter("outcome", "Only these: scheduled, unschedulable, error or stale."),
        _parameter("profile", "Only decisions by this profile (schedulerName)."),
        _parameter("owner", "Only decisions about pods of this controller: KIND/NAME."),
        _parameter("actor", "Only decisions about pods that this user created."),
        _parameter("since", "Not before this time."),
        _parameter("until", "Before this time."),
        _parameter("limit", "The most decisions on a page.", "integer"),
        _parameter("continue", "The continue token of the page before."),
    ),
    "pods/why": (
        _parameter("world", "The cluster to judge by: now, or then, at the decision."),
        _parameter("rejectedBy", "Only nodes that this plugin rejects."),
        _parameter("remedies", "false: look for no changes that would help.", "boolean"),
        _parameter("limit", "The most nodes on a page; 0: none.", "integer"),
        _parameter("continue", "The continue token of the page before."),
    ),
    "waitinggroups": (
        _parameter("remedies", "true: find changes that help the largest groups.", "boolean"),
    ),
    "waitingtimes": (
        _parameter(
            "by", "reason, namespace, priority, priorityClass, runtimeClass, profile or stage."
        ),
        _parameter("goalSeconds", "A wait of more seconds counts as over the goal.", "integer"),
        _parameter("pastSeconds", "Count pods placed in so many last seconds.", "integer"),
    ),
    "selections": (_parameter("overlapping", "true: only objects that share what they select."),),
}
"""Query parameters of lists and of single resources."""


def _own(operations: _Operations) -> None:
    """Add the operations of ``stowage.dev``, from the router."""
    for path, viewset, actions in resources.router.served(_OWN.removeprefix("/")):
        for method, action in actions.items():
            parameters: tuple[Json, ...] = ()
            if method in ("post", "put"):
                parameters = (_DRY_RUN,)
            elif action == "list" or viewset.is_single:
                named = "/".join(filter(None, (viewset.resource, viewset.subresource)))
                parameters = _OWN_PARAMETERS.get(named, ())
            if method == "get" and action in (*viewset.dated, *viewset.versioned):
                parameters += (_AT,)
            kind = action.title() if action.title() in _OWN_KINDS else viewset.kind
            operations.own(method, f"/{path}", kind, parameters)


# -------------------------------------------------------------------------------- documents


def document(group: str, version: str) -> Json:
    """Return the document of a group and version."""
    schemas = _Schemas()
    schemas.found[f"{_META}.Status"] = _STATUS
    operations = _Operations(schemas)
    for kind in (*ALL_KINDS, *VIEWS.values()):
        if (kind.group, kind.version) == (group, version):
            operations.kind(kind)
    if (group, version) != ("stowage.dev", "v1"):
        for entry in discovery.group_versions()[group, version]:
            if entry["verbs"] == ["create"] and "/" not in entry["name"]:
                operations.posted(group, version, entry)
    else:
        _own(operations)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Stowage", "version": discovery.VERSION["gitVersion"]},
        "paths": operations.paths,
        "components": {
            "schemas": schemas.found,
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"BearerToken": []}],
    }


@cache
def _body(group: str, version: str) -> tuple[bytes, str]:
    """Return a document as JSON, and its hash."""
    body = _encode(document(group, version))
    return body, hashlib.sha256(body).hexdigest()[:32].upper()


def versions() -> Iterator[tuple[str, str, str]]:
    """Yield (group, version, key in the index) of each document."""
    for group, version in discovery.group_versions():
        yield group, version, _root(group, version).removeprefix("/")


@cache
def index() -> Json:
    """Return the index: the URL of each document."""
    return {
        "paths": {
            key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={_body(group, version)[1]}"}
            for group, version, key in versions()
        }
    }


# ------------------------------------------------------------------------------------- view


def v3(request: HttpRequest, key: str = "") -> HttpResponse:
    """Answer with the index, or with one document, to all users with a token."""
    try:
        if request.method != "GET":
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        user = auth.user_of(request.META)
        auth.require(user, Attributes(verb="get", path=request.path_info))
        accept = request.META.get("HTTP_ACCEPT", "")
        if accept and "json" not in accept and "*/*" not in accept:
            raise errors.NotAcceptable(
                "only the following media types are accepted: application/json"
            )
        if not key:
            return _answer(request, _encode(index()), "")
        found = next((one for one in versions() if one[2] == key), None)
        if found is None:
            raise NotFound(errors.UNKNOWN_PATH)
        return _answer(request, *_body(found[0], found[1]))
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return failures.answer_to(request, error)


def _answer(request: HttpRequest, body: bytes, hashed: str) -> HttpResponse:
    """Return a document; if the request has its hash, the client may cache it for ever."""
    etag = f'"{hashed or hashlib.sha256(body).hexdigest()[:32].upper()}"'
    if request.META.get("HTTP_IF_NONE_MATCH") == etag:
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(body, content_type=errors.JSON)
    response["ETag"] = etag
    requested_hash = request.GET.get("hash")
    lasting = hashed and requested_hash == hashed
    response["Cache-Control"] = "public, immutable" if lasting else errors.NO_CACHE
    return response
