"""One view for all kinds: what a request asks of the registry's kind is one call below.

A view reads the path, the user, the parameters and the body; then an action writes or a query
reads, and the bytes that come back are the answer. Rules about objects live in admission, rules
about storage in actions; here is only HTTP.
"""

import time
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from api import (
    account_tokens,
    auth,
    batches,
    clock,
    errors,
    event_group,
    negotiation,
    options,
    replies,
    routes,
    wire,
)
from api.bindings import bind
from api.bodies import items_of, metadata_of, put_namespace
from api.scale import scale_of
from api.views import StatusView
from clusterstate import advice, lineage
from clusterstate.access import authorizer
from clusterstate.actions import objects
from clusterstate.actions.collection import delete_collection
from clusterstate.actions.deletion import DeleteOptions
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.stored import Deleted, Stored
from clusterstate.objects import managed_fields, patching, wire_types
from clusterstate.objects.errors import (
    BadRequest,
    Conflict,
    NotFound,
    TooLarge,
)
from clusterstate.objects.kind import Kind
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
            return self._plain(request, wire.encode(scale_of(target.kind, replies.decode(body))))
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
        metadata = metadata_of(manifest)
        put_namespace(metadata, target.namespace)
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
        metadata = metadata_of(manifest)
        put_namespace(metadata, target.namespace)
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
            metadata = metadata_of(manifest)
            put_namespace(metadata, target.namespace)
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
        metadata = metadata_of(manifest)
        if metadata.get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        put_namespace(metadata, target.namespace)
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
        metadata = metadata_of(eviction)
        put_namespace(metadata, target.namespace)
        if metadata.get("name", target.name) != target.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        return options.delete_options(eviction.get("deleteOptions") or {}, request.GET)

    def _set_scale(self, request: HttpRequest, change: Change) -> HttpResponse:
        target = self.target

        def scaled(current: Manifest) -> Manifest:
            scale = wire.request(
                strip_nulls(change(scale_of(target.kind, current))),
                "Scale",
                wire_types.Scale,
                "autoscaling/v1",
            )
            metadata = metadata_of(scale)
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
        scale = scale_of(target.kind, replies.decode(stored.manifest))
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


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": kind.plural}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    return details
