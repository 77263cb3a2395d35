"""Objects of all kinds: each request becomes one call to an action or a query.

A view reads the path, the user, the parameters and the body, calls an action that writes or a query
that reads, and answers with the result. Rules about objects are in admission, rules about storage
in actions; this module has only HTTP. `api.kinds.subresources` adds the subresources of an object,
and `api.kinds.routers` decides which action serves which path and method.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import msgspec
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from api import clock, routes
from api.access import auth, naming, reach
from api.forms import errors, options, other_forms, parsers, renderers, replies, versioning, wire
from api.forms.bodies import items_of, metadata_of, put_namespace
from api.forms.negotiation import PAGE
from api.forms.pagination import ContinuePagination, Page
from api.forms.replies import StoredAnswer, StoredList
from api.kinds import deletions, foretelling
from api.kinds.views import ActionsMixin, DryRunAnswer, StatusView
from api.requests import Request
from api.server import batches
from clusterstate import advice
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.writing.deletion import DeleteOptions
from clusterstate.actions.writing.object_meta import conflict
from clusterstate.actions.writing.stored import DeletedObject, StoredObject
from clusterstate.change_log import changes, lineage, replica
from clusterstate.objects.values.errors import AlreadyExists, BadRequest, NotFound, TooLarge
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.wire import managed_fields, patching
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.queries import past
from clusterstate.queries.objects import find_object, get_object, not_found
from clusterstate.queries.objects.lists import check_token, list_page, revision_of
from clusterstate.telemetry import tracing

MAX_OBJECT_BYTES = 3 << 20
"""kube-apiserver's limit for one object. For lists only the limit of a request's body holds."""

COLLECTION_SECONDS = 60.0
"""How long a request deletes objects of a collection (kube-apiserver's ``--request-timeout``)."""

Texts = list[str]
Change = Callable[[Manifest], Manifest]

_UPDATE_TRIES: Final = 5
_OF_PATCHES: Final = tuple(one() for one in parsers.OF_PATCHES)


class ObjectViewSet(ActionsMixin, StatusView):
    """Serve objects of every kind, single ones and collections."""

    renderer_classes = renderers.OF_OBJECTS
    versioning_class = versioning.KindVersioning
    pagination_class = ContinuePagination

    target: routes.Target
    _options: Manifest | None = None
    form: other_forms.Form | None = None
    """The API version of the objects in the path, if it is not the stored one."""
    deprecated = ""
    """The warning in each answer about the path's kind."""

    def get_parsers(self) -> Any:
        """Return the parsers of objects or, for PATCH, of patches."""
        return _OF_PATCHES if self.request.method == "PATCH" else self._parsers

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]  # as above
        """Read the path and check the request."""
        # Without a target the version is refused before anything below is called.
        target = self.target = cast("routes.Target", routes.target_of(request.META, request))
        if target is not None:
            self.deprecated = target.kind.deprecated
        super().initial(request, *args, **kwargs)
        if request.method != "GET":
            options.require_present(request.query_params, "a change")
        elif self.target.name and (
            least := wire.revision(request.query_params.get("resourceVersion"))
        ):
            lineage.require_reached(least, exact=False)
        form = self.form = other_forms.of(target, request.version)
        if form is not None:
            self.target = form.target(target)
            form.change_request(request)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to the method's verb on the object or collection in the path."""
        selector = request.query_params.get("fieldSelector", "")
        return (auth.attributes_of(request.method, self.target, selector),)

    def finalize_response(  # type: ignore[override]  # as above
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the answer in the API version and format that the client accepts."""
        if self.form is not None and isinstance(response, Response):
            self.form.change_answer(request, response)
        if self.deprecated and not isinstance(response, batches.DeferredAnswer):
            replies.warn(response, self.deprecated)
        return super().finalize_response(request, response, *args, **kwargs)

    def is_dry_run(self, request: Request) -> bool:
        """Return whether the parameters, or the DeleteOptions in the body, say ``dryRun``.

        The deletion of a collection returns False: it uses many short transactions and rolls each
        of them back itself.
        """
        if request.method == "DELETE":
            only_try = bool(self._delete_options(request)["dryRun"])
            return only_try and bool(self.target.name)
        return super().is_dry_run(request)

    # ------------------------------------------------------------------------------- reads

    def list(self, request: Request) -> HttpResponseBase:
        """Return a collection, or a page of it."""
        target, query = self.target, request.query_params
        moment = options.moment(query, now=clock.now())
        version = options.list_version(query)
        if version.least:
            lineage.require_reached(version.least)
        # A person may take any time over a page.
        now = None if request.accepted_renderer.format == PAGE else clock.now().timestamp()
        at = None
        token = query.get("continue", "")
        (wants,) = self.wants(request)
        least = version.least
        # What a client may get from any server, as in Kubernetes: it named a revision, or 0.
        anywhere = moment is None and bool(query.get("resourceVersion"))
        if moment is not None and not token:
            at = past.revision_at(moment, now=clock.now())
            reach.require(self.user, wants, at)
        elif version.exact is not None and not token:
            reach.require(self.user, wants, version.exact)
        elif token and (revision := revision_of(token)) is not None:
            reach.require_from(self.user, wants, revision)
            least, anywhere = revision, True
        chosen = auth.narrowed(self.user, wants, query.get("fieldSelector", ""))

        def read(limit: int | None, token: str) -> Page[bytes]:
            page = list_page(
                target.kind,
                target.namespace,
                label_selector=query.get("labelSelector", ""),
                field_selector=chosen,
                limit=limit,
                continue_token=token,
                exact=version.exact,
                at=at,
                acknowledged=True,
                now=now,
            )
            return Page(page.items, page.revision, page.continue_token, page.remaining)

        paginator = self.pagination_class()

        def paginated() -> list[bytes]:
            return paginator.paginate_queryset(read, request, self)

        items = replica.read(paginated, least=least) if anywhere else paginated()
        return replies.reply(StoredList(target.kind, items, paginator.metadata, moment))

    def retrieve(self, request: Request) -> HttpResponseBase:
        """Return an object."""
        target = self.target
        kind = target.kind
        query = request.query_params
        if query and ("at" in query or "resourceVersionMatch" in query):
            return replies.reply(self._former(request))
        if kind.name == "Pod":
            auth.require_own_pod(self.user, target.namespace, target.name)
        read = partial(get_object, kind, target.namespace, target.name)
        least = wire.revision(query.get("resourceVersion"))
        found = read() if least is None else replica.read(read, least=least)
        return replies.reply(StoredAnswer(kind, found))

    def _former(self, request: Request) -> StoredAnswer:
        """Return an object as of the moment or the revision in the parameters.

        Without either, as it is now.
        """
        target, query = self.target, request.query_params
        kind, namespace, name = target.kind, target.namespace, target.name
        moment = options.moment(query, now=clock.now())
        revision: int | None
        if moment is not None:
            revision = past.revision_at(moment, now=clock.now())
        else:
            revision = options.exact_version(query)
            if revision is not None:
                lineage.require_reached(revision)
                revision = changes.whole(revision)
        if revision is None:
            body = find_object(kind, namespace, name)
        else:
            (wants,) = self.wants(request)
            reach.require(self.user, wants, revision)
            body = past.find_at(kind, namespace, name, revision)
        if kind.name == "Pod" and authorizer.reads_own_pods_only(self.user, namespace, name):
            found = None if body is None else replies.decode(body)["spec"].get("nodeName")
            auth.require_own_node(self.user, namespace, name, found)
        if body is None:
            raise not_found(kind, name)
        return StoredAnswer(kind, body, moment)

    # ------------------------------------------------------------------------------ writes

    def create(self, request: Request) -> HttpResponseBase:
        """Create an object or a list of them."""
        target = self.target
        kind = target.kind
        try:
            value: Any = request.data
        except BadRequest:
            self._limit(request)  # Kubernetes reads no more than that of a body
            raise
        if isinstance(value, dict) and value.get("kind") in (kind.list_kind, "List"):
            return self._create_all(request, value)
        self._limit(request)
        if kind.namespaced and not target.namespace:
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        manifest, warnings = self._manifest(request, value)
        metadata = metadata_of(manifest)
        put_namespace(metadata, target.namespace)
        if self.form is not None:
            self.form.require(manifest, None)
        warnings += advice.about(kind.name, manifest, time.monotonic())
        if kind.names_creators or "fieldManager" in request.query_params:
            managed_fields.claim(kind, manifest, options.field_manager(request))
        span = request.META.get(tracing.KEY)
        creation = None if span is None else tracing.create(span, manifest)

        def created(stored: StoredObject) -> Response:
            if creation is not None:
                creation.end()
            return self._object(stored.manifest, 201, [*warnings, *stored.warnings])

        def foretold() -> Response:
            text = foretelling.placed(stored.manifest, warnings, may_read=naming.reader(self.user))
            return self._object(text, 201, [*warnings, *stored.warnings])

        batch = batches.of(request)
        if batch is not None and objects.is_batched(kind):
            place = batches.DeferredAnswer()
            return batch.create(kind, target.namespace, manifest, self.user, created, place)
        stored = objects.create(kind, target.namespace, manifest, now=clock.now(), user=self.user)
        if kind.name == "Pod" and self.is_dry_run(request):
            return DryRunAnswer(foretold)
        return created(stored)

    def _create_all(self, request: Request, value: Manifest) -> Response:
        """Create every item of a list, or none."""
        kind = self.target.kind
        manifests, warnings = items_of(
            value, kind, self.target.namespace, request.query_params.get("fieldValidation", "")
        )
        manager = options.field_manager(request)
        for manifest in manifests:
            if self.form is not None:
                self.form.require(manifest, None)
            managed_fields.claim(kind, manifest, manager)
        done = objects.create_all(
            [(kind, m["metadata"].get("namespace", ""), m) for m in manifests],
            now=clock.now(),
            user=self.user,
        )
        metadata = replies.list_metadata(max((stored.revision for stored in done), default=0))
        stored_list = StoredList(kind, [stored.manifest for stored in done], metadata)
        for stored in done:
            warnings += stored.warnings
        moment = time.monotonic()
        for manifest in manifests:
            warnings += advice.about(manifest.get("kind") or kind.name, manifest, moment)
        return replies.reply(stored_list, status=201, warnings=warnings)

    def update(self, request: Request) -> HttpResponseBase:
        """Replace an object, or its status."""
        target = self.target
        self._limit(request)
        manifest, warnings = self._manifest(request, request.data)
        metadata = metadata_of(manifest)
        put_namespace(metadata, target.namespace)
        self._require_name(metadata)
        form = self.form

        def replaced(current: Manifest) -> Manifest:
            return manifest if form is None else form.kept(manifest, current)

        if target.subresource or not target.kind.created_by_update:
            return self._update(request, replaced, warnings)
        # A uid or a version names an object that was there: no other is made in its place.
        is_there = metadata.get("uid") or (metadata.get("resourceVersion") or "0") != "0"

        def create() -> Response:
            (needed,) = self.wants(request)
            auth.require(self.user, msgspec.structs.replace(needed, verb="create"))
            if form is not None:
                form.require(manifest, None)
            new = {**manifest, "metadata": dict(metadata)}
            managed_fields.claim(target.kind, new, options.field_manager(request))
            return self._created(new, warnings)

        update = partial(self._update, request, replaced, warnings)
        if is_there:
            return update()
        # A batch would say only afterwards that there is no such object.
        request.META.pop(batches.KEY, None)
        return update_or_create(update, create)

    def _created(self, manifest: Manifest, warnings: Texts) -> Response:
        """Create an object by an update, if no object has its name (``AllowCreateOnUpdate``)."""
        target = self.target
        stored = objects.create(
            target.kind, target.namespace, manifest, now=clock.now(), user=self.user
        )
        return self._object(stored.manifest, 201, [*warnings, *stored.warnings])

    def partial_update(self, request: Request) -> HttpResponseBase:
        """Change an object or its status, by one of the four kinds of patch."""
        target = self.target
        change = self._patch(request, target.kind.wire_type)
        if change is None:
            return self._apply(request, request.data)
        warnings: Texts = []
        mode = request.query_params.get("fieldValidation", "")
        twice = self._twice(request)

        def patched(current: Manifest) -> Manifest:
            manifest, found = wire.patched(strip_nulls(change(current)), target.kind, mode, twice)
            warnings[:] = found
            metadata = metadata_of(manifest)
            put_namespace(metadata, target.namespace)
            if not metadata.get("name"):
                raise BadRequest(
                    f"the name of the object ({target.name} based on URL) was undeterminable: "
                    "name must be provided"
                )
            self._require_name(metadata)
            return manifest

        return self._update(request, patched, warnings)

    def _patch(self, request: Request, wire_type: Any) -> Change | None:
        """Return the function that patches; None for a server-side apply, which differs."""
        self._limit(request)
        content_type = parsers.media_type(request.META.get("CONTENT_TYPE"))
        value: Any = request.data
        if content_type == parsers.APPLY:
            return None

        form = self.form

        def change(current: Manifest) -> Manifest:
            if form is None or not form.patches_shown:
                changed: Manifest = patching.apply_patch(content_type, current, value, wire_type)
                return changed
            shown = form.shown(current)
            patched: Manifest = patching.apply_patch(content_type, shown, value, wire_type)
            return form.kept(form.stored(patched), current)

        return change

    def _apply(self, request: Request, value: Any) -> HttpResponseBase:
        """Server-side apply: create the object, or merge the manager's fields into it."""
        target = self.target
        force = options.is_forced(request)
        managed_fields.require_typed(target.kind, value)
        manifest, warnings = self._manifest(request, value)
        metadata = metadata_of(manifest)
        if metadata.get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        put_namespace(metadata, target.namespace)
        self._require_name(metadata)
        now, manager = clock.now(), self._manager(request)

        def change(current: Manifest | None) -> Manifest:
            return managed_fields.apply(
                target.kind, current, manifest, manager, force=force, now=now
            )

        def create() -> Response:
            if uid := metadata.get("uid"):
                why = f"the provided object specified uid {uid}, and no existing object was found"
                raise conflict(target.kind, target.name, f"uid mismatch: {why}")
            auth.require(self.user, auth.attributes_of("POST", target, ""))
            return self._created(change(None), warnings)

        request.META.pop(batches.KEY, None)  # as in update
        update = partial(self._update, request, change, warnings, by_apply=True)
        return update() if target.subresource else update_or_create(update, create)

    def _update(
        self,
        request: Request,
        change: Change,
        warnings: Texts,
        *,
        by_apply: bool = False,
    ) -> HttpResponseBase:
        """Write the object that ``change`` returns; an apply sets the field owners itself."""
        target, form = self.target, self.form
        manager = None if by_apply else self._manager(request)

        def required(current: Manifest) -> Manifest:
            new = change(current)
            if form is not None:
                form.require(new, current)
            return new

        def updated(stored: StoredObject) -> Response:
            if stored.changed and not target.subresource:
                objects.follow_at_once(target.kind, target.namespace, target.name, clock.now())
            return self._object(stored.manifest, 200, [*warnings, *stored.warnings])

        update = objects.Update(
            namespace=target.namespace,
            name=target.name,
            change=required,
            user=self.user,
            manager=manager,
            subresource=target.subresource,
        )
        batch = batches.of(request)
        if batch is not None and objects.are_renewed(
            target.kind, target.namespace, target.subresource
        ):
            return batch.renew(target.kind, update, updated, batches.DeferredAnswer())
        return updated(objects.carry_out(target.kind, update, now=clock.now()))

    # ----------------------------------------------------------------------------- deletes

    def destroy(self, request: Request) -> HttpResponseBase:
        """Delete an object, or start its deletion."""
        target, delete_options = self.target, self._delete_options(request)

        def finish(deleted: DeletedObject) -> Response:
            found, code, warnings = deletions.outcome(
                target.kind, target.name, deleted, delete_options
            )
            return replies.reply(found, status=code, warnings=warnings)

        batch = batches.of(request)
        if batch is not None and objects.is_batched(target.kind):
            one = DeleteOptions.of(delete_options).about(target.namespace, target.name, self.user)
            return batch.delete(target.kind, one, finish, batches.DeferredAnswer())
        deleted = objects.delete(
            target.kind,
            target.namespace,
            target.name,
            delete_options,
            now=clock.now(),
            user=self.user,
        )
        return finish(deleted)

    def deletecollection(self, request: Request) -> Response:
        """Delete every object of a collection that the selectors match."""
        target, delete_options = self.target, self._delete_options(request)
        query = request.query_params
        version = options.list_version(query)
        if version.least:
            lineage.require_reached(version.least)
        check_token(query.get("continue", ""))
        most = wire.signed(query.get("limit"), "limit") or 0
        until = time.monotonic() + COLLECTION_SECONDS
        delete_collection(
            target.kind,
            target.namespace,
            delete_options,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            now=clock.now(),
            user=self.user,
            enough=lambda: time.monotonic() > until,
            most=most if most > 0 else None,
        )
        return deletions.answer_of_collection(target.kind, delete_options)

    def _delete_options(self, request: Request) -> Manifest:
        """Return DeleteOptions from the body, with missing fields from the parameters."""
        if self._options is None:
            self._limit(request)
            body = request.data if request.body else {}
            self._options = options.delete_options(body, request.query_params)
        return self._options

    # ----------------------------------------------------------------------------- helpers

    def _manifest(self, request: Request, value: Any) -> tuple[Manifest, Texts]:
        """Return the object in a body, whose value is ``value``, and warnings about its fields."""
        mode = request.query_params.get("fieldValidation", "")
        return wire.manifest(value, self.target.kind, mode, self._twice(request))

    def _manager(self, request: Request) -> Manager:
        """Return the field manager, with the subresource that it writes."""
        return Manager(options.field_manager(request), self.target.subresource)

    def _require_name(self, metadata: Manifest) -> None:
        """Refuse a body whose name or namespace differs from the path.

        Rule: ``checkName``, apiserver ``endpoints/handlers/rest.go``, v1.36.
        """
        name, own_name = self.target.name, metadata.setdefault("name", self.target.name)
        if own_name != name:
            shown = own_name if isinstance(own_name, str) else wire.encode(own_name).decode()
            raise BadRequest(
                f"the name of the object ({shown}) does not match the name on the URL ({name})"
            )

    def _twice(self, request: Request) -> wire.Twice:
        """Return the duplicate fields in the body, if the client requested their check."""
        mode = request.query_params.get("fieldValidation", "")
        return wire.repeated(request.body, request.META.get("CONTENT_TYPE"), mode)

    def _limit(self, request: Request) -> None:
        if len(request.body) > MAX_OBJECT_BYTES:
            raise TooLarge(f"the object is larger than the limit of {MAX_OBJECT_BYTES} bytes")

    def _object(self, body: bytes, status: int = 200, warnings: Iterable[str] = ()) -> Response:
        """Return the answer with one stored object."""
        return replies.reply(
            StoredAnswer(self.target.kind, body), status=status, warnings=[*warnings]
        )


def update_or_create(
    update: Callable[[], HttpResponseBase], create: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """Update the object, or create it if there is none, and return the answer.

    If another request creates the object at the same moment, this one updates it. Rule:
    GuaranteedUpdate, apiserver ``storage/etcd3/store.go``, v1.36.

    Raises:
        StatusError: from ``update`` or ``create``.
    """
    for _ in range(_UPDATE_TRIES):
        with suppress(NotFound):
            return update()
        with suppress(AlreadyExists):
            return create()
    return update()
