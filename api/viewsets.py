"""One view for all kinds: what a request asks of the registry's kind is one call below.

A view reads the path, the user, the parameters and the body; then an action writes or a query
reads, and the bytes that come back are the answer. Rules about objects live in admission, rules
about storage in actions; here is only HTTP.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.views import APIView

from api import (
    account_tokens,
    auth,
    batches,
    clock,
    errors,
    event_group,
    negotiation,
    options,
    protobuf,
    replies,
    room,
    routes,
    wire,
)
from api.cells import NONE, format_selector
from clusterstate import advice, lineage
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects, transactions
from clusterstate.actions.collection import delete_collection
from clusterstate.actions.deletion import DeleteOptions
from clusterstate.actions.pods.bind import bind_pod
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.stored import Deleted, Stored
from clusterstate.admission.request import User
from clusterstate.objects import managed_fields, patching, wire_types
from clusterstate.objects.errors import (
    BadRequest,
    Conflict,
    NotFound,
    TooLarge,
)
from clusterstate.objects.kind import Kind
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.managed_fields import Manager
from clusterstate.objects.meta import Manifest, strip_nulls
from clusterstate.queries.lists import list_page
from clusterstate.queries.objects import get_object
from clusterstate.queries.pods import node_of_pod

MAX_OBJECT_BYTES = 3 << 20
"""kube-apiserver's limit for one object. Lists may be as large as the server reads at all."""

APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (*patching.PATCH_TYPES, APPLY_PATCH)

COLLECTION_SECONDS = 60.0
"""How long a request deletes objects of a collection (kube-apiserver's ``--request-timeout``)."""

Change = Callable[[Manifest], Manifest]


def _decided(handler: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a write handler that writes nothing where the request is a dry run."""

    @wraps(handler)
    def decided(self: "StatusView", request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method != "DELETE":
            room.require()
        if not self.is_dry_run(request):
            return handler(self, request, *args, **kwargs)
        request.META.pop(batches.KEY, None)  # a batch commits for all its requests
        with transactions.rehearsal():
            return handler(self, request, *args, **kwargs)

    return decided


class StatusView(APIView):
    """A view whose every failure is a ``Status`` and whose every caller has a token.

    Every write is a dry run if the request says so, whatever the handler does: it runs in a
    transaction that is rolled back. No handler has to know.
    """

    authentication_classes = [auth.BearerAuthentication]
    permission_classes = []
    throttle_classes = []
    parser_classes = []
    renderer_classes = []
    content_negotiation_class = negotiation.Negotiation

    user: User

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Put the decision about dry runs before each write handler of the class."""
        super().__init_subclass__(**kwargs)
        for method in options.OPTIONS:
            if method.lower() in cls.__dict__:
                setattr(cls, method.lower(), _decided(cls.__dict__[method.lower()]))

    def is_dry_run(self, request: HttpRequest) -> bool:
        """Return whether the request is to change nothing.

        Raises:
            StatusError: it says so in a word that is not known.
        """
        return options.dry_run(request.GET.getlist("dryRun"), options.OPTIONS[request.method or ""])

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Return none: answers set their own."""
        return {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate; what the user may do is asked when it is known what they want."""
        options.check_timeout(request.query_params)
        self.user = cast("User", request.user)

    def handle_exception(  # type: ignore[override]  # DRF takes any HttpResponse
        self, exc: Exception
    ) -> HttpResponse:
        """Return any failure as a ``Status``."""
        return errors.respond(exc)

    def finalize_response(  # type: ignore[override]  # answers are Django's own, made by the views
        self, request: HttpRequest, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the answer in the form that the client asks for first, JSON or protobuf."""
        accept = request.META.get("HTTP_ACCEPT", "")
        if isinstance(response, batches.Deferred):
            response.accept = accept
            return response
        return protobuf.render(accept, cast("HttpResponse", response))


class ResourceView(StatusView):
    """Serve objects of every kind: single ones, collections and subresources."""

    http_method_names = ["get", "post", "put", "patch", "delete"]

    target: routes.Target
    is_renamed = False
    """Whether the answer is to have the names of ``events.k8s.io``."""

    def initialize_request(  # type: ignore[override]  # handlers here take Django's own
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpRequest:
        """Return Django's request: bodies are read by ``wire``, so DRF's wrapper adds nothing."""
        return request

    def initial(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Authenticate, read the path, and ask whether the user may do that."""
        if "timeout=" in request.META["QUERY_STRING"]:
            options.check_timeout(request.GET)
        self.user = auth.user_of(request.META)
        target = routes.target_of(request)
        if target is None:
            raise NotFound(errors.UNKNOWN_PATH)
        self.target = target
        if auth.MASTERS not in self.user.groups:
            selector = request.GET.get("fieldSelector", "")
            auth.require(self.user, auth.asked(request.method or "GET", target, selector))
        if event_group.is_asked(target):
            self.target, self.is_renamed = event_group.in_core(target), True
            event_group.rename_request(request)

    def finalize_response(  # type: ignore[override]  # as above
        self, request: HttpRequest, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the answer by the names and in the form that the client asks for."""
        if self.is_renamed:
            event_group.rename_answer(response)
        return super().finalize_response(request, response, *args, **kwargs)

    def is_dry_run(self, request: HttpRequest) -> bool:
        """Return what the parameters say, or the DeleteOptions in the body.

        A collection is deleted, and rolled back, by many short transactions, not in one of ours.
        """
        if request.method == "DELETE":
            only_try = bool(self._delete_options(request)["dryRun"])
            return only_try and bool(self.target.name)
        if self.target.subresource == "eviction" and request.method == "POST":
            return bool(self._eviction(request)["dryRun"])
        return super().is_dry_run(request)

    # ------------------------------------------------------------------------------- reads

    def get(self, request: HttpRequest) -> HttpResponseBase:
        """Return an object, a collection, or a subresource that can be read."""
        target = self.target
        if not target.name:
            return self._list(request)
        if target.subresource in ("binding", "eviction", "finalize", "token"):
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        is_pod = target.kind.name == "Pod"
        if is_pod and authorizer.reads_own_pods_only(self.user, target.namespace, target.name):
            found = node_of_pod(target.namespace, target.name)
            auth.require_own(self.user, target.namespace, target.name, found)
        batch = batches.of(request)
        if batch is not None and is_pod:
            return batch.read_pod(
                target.namespace, target.name, lambda body: self._object(request, body)
            )
        body = get_object(target.kind, target.namespace, target.name)
        if target.subresource == "scale":
            return self._plain(request, wire.encode(_scale_of(target.kind, replies.decode(body))))
        return self._object(request, body)

    def _list(self, request: HttpRequest) -> HttpResponse:
        target, query = self.target, request.GET
        form = negotiation.form(request.META.get("HTTP_ACCEPT", ""))
        limit = wire.integer(query.get("limit"), "limit") if query else None
        version = options.list_version(query)
        if version.least:
            lineage.require(version.least)
        page = list_page(
            target.kind,
            target.namespace,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=limit or None,
            continue_token=query.get("continue", ""),
            exact=version.exact,
            acknowledged=True,
        )
        metadata = replies.list_metadata(page.revision, page.continue_token, page.remaining)
        if form == negotiation.TABLE:
            include = replies.include_object(query.get("includeObject"))
            return replies.reply(replies.list_table(target.kind, page.items, metadata, include))
        if form == negotiation.PARTIAL:
            return replies.reply(replies.partial_list(page.items, metadata))
        return self._plain(request, replies.join_list(target.kind, page.items, metadata))

    # ------------------------------------------------------------------------------ writes

    def post(self, request: HttpRequest) -> HttpResponseBase:
        """Create an object or a list of them, or act through a subresource."""
        target = self.target
        if target.subresource == "binding":
            return self._bind(request, target.name)
        if target.subresource == "eviction":
            return self._evict(request)
        if target.subresource == "token":
            made = account_tokens.answer(self._body(request), target)
            return replies.reply(wire.encode(made), status=201)
        if target.name:
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        value = self._body(request)
        kind = target.kind
        if isinstance(value, dict) and value.get("kind") in (kind.list_kind, "List"):
            return self._create_all(request, value)
        self._limit(request)
        if kind.namespaced and not target.namespace:
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        manifest, warnings = self._manifest(request, value)
        metadata = _metadata(manifest)
        _in_namespace(metadata, target.namespace)
        warnings += advice.about(kind.name, manifest, time.monotonic())
        if kind.names_creators or "fieldManager" in request.GET:
            managed_fields.claim(kind, manifest, options.field_manager(request))

        def created(stored: Stored) -> HttpResponse:
            return self._object(
                request, stored.manifest, status=201, warnings=[*warnings, *stored.warnings]
            )

        batch = batches.of(request)
        if batch is not None and objects.is_batched(kind):
            return batch.create(kind, target.namespace, manifest, self.user, created)
        stored = objects.create(kind, target.namespace, manifest, now=clock.now(), user=self.user)
        return created(stored)

    def _create_all(self, request: HttpRequest, value: Manifest) -> HttpResponse:
        """Create every item of a list, or none."""
        kind = self.target.kind
        manifests, warnings = items_of(
            value, kind, self.target.namespace, request.GET.get("fieldValidation", "")
        )
        manager = options.field_manager(request)
        for manifest in manifests:
            managed_fields.claim(kind, manifest, manager)
        done = objects.create_all(
            [(kind, m["metadata"].get("namespace", ""), m) for m in manifests],
            now=clock.now(),
            user=self.user,
        )
        metadata = replies.list_metadata(max((stored.revision for stored in done), default=0))
        body = replies.join_list(kind, [stored.manifest for stored in done], metadata)
        for stored in done:
            warnings += stored.warnings
        moment = time.monotonic()
        for manifest in manifests:
            warnings += advice.about(manifest.get("kind") or kind.name, manifest, moment)
        return replies.reply(body, status=201, warnings=warnings)

    def put(self, request: HttpRequest) -> HttpResponse:
        """Replace an object, its status or its scale."""
        target = self.target
        if not target.name or target.subresource in ("binding", "eviction", "token"):
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        value = self._body(request)
        self._limit(request)
        if target.subresource == "scale":
            return self._set_scale(request, lambda _: value)
        manifest, warnings = self._manifest(request, value)
        metadata = _metadata(manifest)
        _in_namespace(metadata, target.namespace)
        if metadata.setdefault("name", target.name) != target.name:
            raise BadRequest(
                f"the name of the object ({wire.encode(metadata['name']).decode()}) does not "
                f"match the name on the URL ({target.name})"
            )
        return self._update(request, lambda _: manifest, warnings)

    def patch(self, request: HttpRequest) -> HttpResponse:
        """Change an object, its status or its scale by one of the four kinds of patch."""
        target = self.target
        if not target.name or target.subresource in ("binding", "eviction", "finalize", "token"):
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        content_type = wire.media_type(request.META.get("CONTENT_TYPE"))
        if content_type not in PATCH_TYPES:
            raise errors.UnsupportedMediaType(
                "the body of the request was in an unknown format - "
                f"accepted media types include: {', '.join(PATCH_TYPES)}"
            )
        self._limit(request)
        if content_type == APPLY_PATCH:
            return self._apply(request, wire.decode(request.body, content_type))
        value = wire.decode_patch(request.body, content_type)
        scale = target.subresource == "scale"
        wire_type = wire_types.Scale if scale else target.kind.wire_type

        def change(current: Manifest) -> Manifest:
            return patching.apply_patch(content_type, current, value, wire_type)

        if scale:
            return self._set_scale(request, change)
        warnings: list[str] = []
        mode = request.GET.get("fieldValidation", "")

        def patched(current: Manifest) -> Manifest:
            manifest, found = wire.manifest(strip_nulls(change(current)), target.kind, mode)
            warnings[:] = found
            metadata = _metadata(manifest)
            _in_namespace(metadata, target.namespace)
            if metadata.get("name") != target.name:
                raise BadRequest("the patch changes metadata.name, which names the object")
            return manifest

        return self._update(request, patched, warnings)

    def _apply(self, request: HttpRequest, value: Any) -> HttpResponse:
        """Server-side apply: create, or merge what the manager says."""
        target, query = self.target, request.GET
        if target.subresource == "scale":
            raise errors.UnsupportedMediaType("apply is not supported for scale")
        if not query.get("fieldManager"):
            raise BadRequest(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: '
                "Required value: is required for apply patch"
            )
        manifest, warnings = self._manifest(request, value)
        metadata = _metadata(manifest)
        if metadata.get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        _in_namespace(metadata, target.namespace)
        metadata["name"] = target.name
        now = clock.now()
        force = wire.boolean(query.get("force"), "force")
        manager = Manager(options.field_manager(request), target.subresource)

        def change(current: Manifest | None) -> Manifest:
            return managed_fields.apply(
                target.kind, current, manifest, manager, force=force, now=now
            )

        try:
            return self._update(request, change, warnings, by_apply=True)
        except NotFound:
            if target.subresource:
                raise
            auth.require(self.user, auth.asked("POST", target, ""))
            stored = objects.create(
                target.kind,
                target.namespace,
                change(None),
                now=now,
                user=self.user,
            )
            warnings += stored.warnings
            return self._object(request, stored.manifest, status=201, warnings=warnings)

    def _update(
        self,
        request: HttpRequest,
        change: Change,
        warnings: list[str],
        *,
        by_apply: bool = False,
    ) -> HttpResponse:
        """Write what ``change`` makes of the object; an apply says itself who owns what then."""
        target = self.target
        manager = None
        if not by_apply:
            manager = Manager(options.field_manager(request), target.subresource)
        stored = objects.update(
            target.kind,
            target.namespace,
            target.name,
            change,
            manager=manager,
            subresource=target.subresource,
            now=clock.now(),
            user=self.user,
        )
        return self._object(request, stored.manifest, warnings=[*warnings, *stored.warnings])

    # ----------------------------------------------------------------------------- deletes

    def delete(self, request: HttpRequest) -> HttpResponseBase:
        """Delete an object, or every object of a collection that the selectors match."""
        target = self.target
        if target.subresource:
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        wanted = self._delete_options(request)
        if target.name:
            batch = batches.of(request)
            if batch is not None and objects.is_batched(target.kind):
                one = DeleteOptions.of(wanted).about(target.namespace, target.name, self.user)
                return batch.delete(
                    target.kind, one, lambda deleted: self._deleted(request, deleted)
                )
            deleted = objects.delete(
                target.kind,
                target.namespace,
                target.name,
                wanted,
                now=clock.now(),
                user=self.user,
            )
            return self._deleted(request, deleted)
        query = request.GET
        until = time.monotonic() + COLLECTION_SECONDS
        delete_collection(
            target.kind,
            target.namespace,
            wanted,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            now=clock.now(),
            user=self.user,
            enough=lambda: time.monotonic() > until,
        )
        return replies.reply(wire.encode(errors.success(details=_details(target.kind, ""))))

    def _deleted(self, request: HttpRequest, deleted: Deleted) -> HttpResponse:
        """Return the object, where it stays or is a pod; otherwise that it is gone."""
        kind = self.target.kind
        if kind.returns_deleted or not deleted.gone:
            return self._object(request, deleted.manifest)
        details = _details(kind, self.target.name)
        if deleted.uid:
            details["uid"] = deleted.uid
        return replies.reply(wire.encode(errors.success(details=details)))

    def _delete_options(self, request: HttpRequest) -> Manifest:
        """Return DeleteOptions from the body and, where that is silent, the parameters."""
        return options.delete_options(self._body(request) if request.body else {}, request.GET)

    # ------------------------------------------------------------------------ subresources

    def _bind(self, request: HttpRequest, name: str) -> HttpResponse:
        return bind(self._body(request), self.target.namespace, name, self.user)

    def _evict(self, request: HttpRequest) -> HttpResponse:
        target, wanted = self.target, self._eviction(request)
        evict_pod(target.namespace, target.name, wanted, now=clock.now(), user=self.user)
        return replies.reply(wire.encode(errors.success(201)), status=201)

    def _eviction(self, request: HttpRequest) -> Manifest:
        """Return the DeleteOptions of an Eviction that is about this pod."""
        target = self.target
        value = self._body(request) if request.body else {}
        eviction = wire.request(
            value, "Eviction", wire_types.Eviction, "policy/v1", "policy/v1beta1"
        )
        metadata = _metadata(eviction)
        _in_namespace(metadata, target.namespace)
        if metadata.get("name", target.name) != target.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        return options.delete_options(eviction.get("deleteOptions") or {}, request.GET)

    def _set_scale(self, request: HttpRequest, change: Change) -> HttpResponse:
        target = self.target

        def scaled(current: Manifest) -> Manifest:
            scale = wire.request(
                strip_nulls(change(_scale_of(target.kind, current))),
                "Scale",
                wire_types.Scale,
                *_SCALE,
            )
            metadata = _metadata(scale)
            replicas = (scale.get("spec") or {}).get("replicas", 0)
            result = {**current, "spec": {**(current.get("spec") or {}), "replicas": replicas}}
            result["metadata"] = dict(current["metadata"])
            if metadata.get("resourceVersion"):
                result["metadata"]["resourceVersion"] = metadata["resourceVersion"]
            if metadata.get("uid", current["metadata"].get("uid")) != current["metadata"]["uid"]:
                raise Conflict(
                    f"Precondition failed: UID in precondition: {metadata['uid']}, "
                    f"UID in object meta: {current['metadata']['uid']}"
                )
            return result

        stored = objects.update(
            target.kind,
            target.namespace,
            target.name,
            scaled,
            manager=Manager(options.field_manager(request), target.subresource),
            now=clock.now(),
            user=self.user,
        )
        scale = _scale_of(target.kind, replies.decode(stored.manifest))
        return self._plain(request, wire.encode(scale))

    # ----------------------------------------------------------------------------- helpers

    def _body(self, request: HttpRequest) -> Any:
        return wire.decode(request.body, request.META.get("CONTENT_TYPE"))

    def _manifest(self, request: HttpRequest, value: Any) -> tuple[Manifest, list[str]]:
        """Return the object in a body, whose value is ``value``, and warnings about its fields."""
        mode = request.GET.get("fieldValidation", "")
        wrong: list[str] = []
        if mode:
            wrong = wire.repeated(request.body, request.META.get("CONTENT_TYPE"), mode)
        return wire.manifest(value, self.target.kind, mode, wrong)

    def _limit(self, request: HttpRequest) -> None:
        if len(request.body) > MAX_OBJECT_BYTES:
            raise TooLarge(f"the object is larger than the limit of {MAX_OBJECT_BYTES} bytes")

    def _plain(self, request: HttpRequest, body: bytes, status: int = 200) -> HttpResponse:
        negotiation.form(request.META.get("HTTP_ACCEPT", ""))
        if wire.boolean(request.GET.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body, status=status)

    def _object(
        self,
        request: HttpRequest,
        body: bytes,
        *,
        status: int = 200,
        warnings: list[str] | None = None,
    ) -> HttpResponse:
        """Return one stored object, as a Table or its metadata alone if the client wants that."""
        query = request.GET
        form = negotiation.form(request.META.get("HTTP_ACCEPT", ""))
        if form == negotiation.TABLE:
            include = replies.include_object(query.get("includeObject"))
            body = replies.object_table(self.target.kind, body, include)
        elif form == negotiation.PARTIAL:
            body = replies.partial_object(body)
        elif query and wire.boolean(query.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body, status=status, warnings=warnings or ())


class BindingsView(StatusView):
    """``POST namespaces/NS/bindings``: bind the pod that the body names."""

    http_method_names = ["post"]

    def post(self, request: Request, namespace: str) -> HttpResponse:
        """Bind a pod."""
        auth.require(self.user, Attributes("create", resource="bindings", namespace=namespace))
        value = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
        binding = wire.request(value, "Binding", wire_types.Binding, "v1")
        name: str = _metadata(binding).get("name", "")
        if not name:
            raise BadRequest("metadata.name: Required value: it names the pod")
        return bind(value, namespace, name, self.user)


class MixedListView(StatusView):
    """``POST /api/v1``: create every item of a ``List`` of any kinds, or none."""

    http_method_names = ["post"]

    def post(self, request: Request) -> HttpResponse:
        """Create the items in the order in which they stand."""
        value = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
        body = wire.typed(value, "List", "v1")
        mode = request.query_params.get("fieldValidation", "")
        wanted: list[tuple[Kind, str, Manifest]] = []
        warnings: list[str] = []
        for index, item in enumerate(list_items(body)):
            kind = _kind_of(item, index)
            manifest, found = checked_item(item, kind, index, mode)
            namespace = _metadata(manifest).get("namespace") or ""
            auth.require(
                self.user,
                Attributes("create", kind.group, kind.plural, namespace=namespace),
            )
            wanted.append((kind, namespace, manifest))
            warnings += found
        manager = options.field_manager(request)
        for kind, _, manifest in wanted:
            managed_fields.claim(kind, manifest, manager)
        done = objects.create_all(wanted, now=clock.now(), user=self.user)
        revision = max((stored.revision for stored in done), default=0)
        for stored in done:
            warnings += stored.warnings
        head = wire.encode(replies.list_metadata(revision))
        body_bytes = (
            b'{"kind":"List","apiVersion":"v1","metadata":%s,"items":[' % head
            + b",".join(stored.manifest for stored in done)
            + b"]}"
        )
        return replies.reply(body_bytes, status=201, warnings=warnings)


# ------------------------------------------------------------------------------------- parts


def list_items(value: Manifest) -> list[Any]:
    """Return the items of a list manifest."""
    items = value.get("items")
    if items is None:
        return []
    if not isinstance(items, list):
        raise BadRequest("items: expected a list")
    return items


def checked_item(
    item: Any, kind: Kind, index: int, field_validation: str
) -> tuple[Manifest, list[str]]:
    """Return an item of a list as a checked manifest, and warnings that name it."""
    try:
        manifest, warnings = wire.manifest(item, kind, field_validation)
    except BadRequest as error:
        raise BadRequest(f"items[{index}]: {error.message}") from error
    return manifest, [f"items[{index}]: {text}" for text in warnings]


def items_of(
    value: Manifest, kind: Kind, namespace: str, field_validation: str
) -> tuple[list[Manifest], list[str]]:
    """Return the items of a list of one kind, each with its namespace, and warnings."""
    wire.typed(value, str(value["kind"]), kind.api_version, "v1")
    manifests: list[Manifest] = []
    warnings: list[str] = []
    for index, item in enumerate(list_items(value)):
        manifest, found = checked_item(item, kind, index, field_validation)
        metadata = _metadata(manifest)
        try:
            _in_namespace(metadata, namespace)
        except BadRequest as error:
            raise BadRequest(f"items[{index}]: {error.message}") from error
        if kind.namespaced and not metadata.get("namespace"):
            raise BadRequest(f"items[{index}]: metadata.namespace: Required value")
        manifests.append(manifest)
        warnings += found
    return manifests, warnings


def _kind_of(item: Any, index: int) -> Kind:
    """Return the kind that an item of a mixed list names."""
    if isinstance(item, dict):
        name = item.get("kind")
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is not None and item.get("apiVersion") == kind.api_version:
            return kind
    raise BadRequest(f"items[{index}]: kind and apiVersion name no kind that is served")


def _metadata(manifest: Manifest) -> dict[str, Any]:
    """Return ``metadata``, made if absent."""
    metadata = manifest.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest("metadata: expected an object")
    return metadata


def _in_namespace(metadata: dict[str, Any], namespace: str) -> None:
    """Put the namespace of the URL into ``metadata``; another one there is an error."""
    if not namespace:
        return
    given = metadata.get("namespace")
    if given in (None, ""):
        metadata["namespace"] = namespace
    elif given != namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": kind.plural}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    return details


def bind(value: Any, namespace: str, name: str, user: User) -> HttpResponse:
    """Bind the pod ``namespace/name`` as the Binding in ``value`` says."""
    binding = wire.request(value, "Binding", wire_types.Binding, "v1")
    metadata = _metadata(binding)
    _in_namespace(metadata, namespace)
    if metadata.setdefault("name", name) != name:
        raise BadRequest("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if not target.get("name"):
        raise BadRequest("target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        raise BadRequest('target.kind: Unsupported value: supported values: "Node", "<empty>"')
    bind_pod(
        namespace,
        name,
        target["name"],
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        annotations=metadata.get("annotations"),
        now=clock.now(),
        user=user,
    )
    return replies.reply(wire.encode(errors.success(201)), status=201)


_SCALE = ("autoscaling/v1",)


def _scale_of(kind: Kind, item: Manifest) -> Manifest:
    """Return the ``Scale`` of an object that has replicas."""
    metadata = item["metadata"]
    spec, status = item.get("spec") or {}, item.get("status") or {}
    selector = spec.get("selector")
    if kind.has_plain_selector:
        selector = {"matchLabels": selector or {}}
    text = format_selector(selector)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": "" if text == NONE else text,
        },
    }
