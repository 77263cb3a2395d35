"""The subresources of objects.

``status``, ``resize`` and ``approval`` write the object itself, each the part that its strategy
allows (`objects.registry.strategies`). The others have bodies of their own: a Scale, an Eviction, a
Binding, a TokenRequest.
"""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework.decorators import action
from rest_framework.response import Response

from api import clock
from api.access import account_tokens
from api.forms import errors, options, replies, wire
from api.forms.bodies import metadata_of, put_namespace
from api.kinds.bindings import bind
from api.kinds.scale import applied, scale_of, shown, with_replicas
from api.kinds.viewsets import Change, ObjectViewSet
from api.requests import Request
from clusterstate.actions import objects
from clusterstate.actions.pods.evict import evict_on_request
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.wire.managed_fields import Manager


class KindViewSet(ObjectViewSet):
    """Serve a kind completely: its objects, their collections and their subresources."""

    def is_dry_run(self, request: Request) -> bool:
        """Return whether the parameters or the DeleteOptions in the body say ``dryRun``."""
        if self.target.subresource == "eviction" and request.method == "POST":
            return bool(self._eviction(request)["dryRun"])
        return super().is_dry_run(request)

    @action(detail=True, methods=["get"], url_path="status")
    def read_status(self, request: Request) -> HttpResponseBase:
        """Return the whole object, as Kubernetes does."""
        return self.retrieve(request)

    @read_status.mapping.put
    def replace_status(self, request: Request) -> HttpResponseBase:
        """Replace the status and nothing else."""
        return self.update(request)

    @read_status.mapping.patch
    def patch_status(self, request: Request) -> HttpResponseBase:
        """Change the status and nothing else."""
        return self.partial_update(request)

    @action(detail=True, methods=["get"], url_path="resize")
    def read_resize(self, request: Request) -> HttpResponseBase:
        """Return the whole pod."""
        return self.retrieve(request)

    @read_resize.mapping.put
    def replace_resize(self, request: Request) -> HttpResponseBase:
        """Replace the resources of the pod and its containers, and nothing else."""
        return self.update(request)

    @read_resize.mapping.patch
    def patch_resize(self, request: Request) -> HttpResponseBase:
        """Change the resources of the pod and its containers, and nothing else."""
        return self.partial_update(request)

    @action(detail=True, methods=["get"], url_path="approval")
    def read_approval(self, request: Request) -> HttpResponseBase:
        """Return the whole object."""
        return self.retrieve(request)

    @read_approval.mapping.put
    def replace_approval(self, request: Request) -> HttpResponseBase:
        """Replace the conditions Approved and Denied."""
        return self.update(request)

    @read_approval.mapping.patch
    def patch_approval(self, request: Request) -> HttpResponseBase:
        """Change the conditions Approved and Denied."""
        return self.partial_update(request)

    @action(detail=True, methods=["put"])
    def finalize(self, request: Request) -> HttpResponseBase:
        """Replace the finalizers of a namespace."""
        return self.update(request)

    @action(detail=True, methods=["post"])
    def token(self, request: Request) -> Response:
        """Make a token of a service account."""
        answer = account_tokens.answer(request.data, self.target, self.user)
        return replies.reply(answer, status=201)

    @action(detail=True, methods=["post"])
    def binding(self, request: Request) -> Response:
        """Bind a pod."""
        return bind(request.data, self.target.namespace, self.target.name, self.user)

    @action(detail=True, methods=["post"])
    def eviction(self, request: Request) -> Response:
        """Evict a pod, if its budgets allow that."""
        target, manifest = self.target, self._eviction(request)
        gone = evict_on_request(
            target.namespace, target.name, manifest, now=clock.now(), user=self.user
        )
        revision = None if manifest.get("dryRun") else gone.revision
        return replies.reply(errors.success(201, revision=revision), status=201)

    @action(detail=True, methods=["get"])
    def scale(self, request: Request) -> Response:
        """Return the ``Scale`` of an object."""
        return shown(scale_of(self.target.kind, replies.decode(self._former(request).body)))

    @scale.mapping.put
    def replace_scale(self, request: Request) -> Response:
        """Set the replicas of the object by a ``Scale``."""
        value: Any = request.data
        self._limit(request)
        return self._set_scale(lambda _: value, self._manager(request))

    @scale.mapping.patch
    def patch_scale(self, request: Request) -> Response:
        """Change the replicas of the object by a patch of its ``Scale``."""
        change = self._patch(request, wire_types.Scale)
        if change is not None:
            return self._set_scale(change, self._manager(request))
        force, manager = options.is_forced(request), self._manager(request)
        scale_ = self._scale(request.data)

        def apply(current: Manifest) -> Manifest:
            kind, now = self.target.kind, clock.now()
            return applied(kind, current, scale_, manager, force=force, now=now)

        return self._write_scale(apply, None)

    def _eviction(self, request: Request) -> Manifest:
        """Return the DeleteOptions of the Eviction in the body, which must be of this pod."""
        target = self.target
        value = request.data if request.body else {}
        eviction = wire.request(
            value, "Eviction", wire_types.Eviction, "policy/v1", "policy/v1beta1"
        )
        metadata = metadata_of(eviction)
        put_namespace(metadata, target.namespace)
        if metadata.get("name", target.name) != target.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        return options.delete_options(eviction.get("deleteOptions") or {}, request.query_params)

    def _set_scale(self, change: Change, manager: Manager) -> Response:
        """Write the replicas of the ``Scale`` that ``change`` returns for the present one."""

        def scaled(current: Manifest) -> Manifest:
            scale = change(scale_of(self.target.kind, current))
            return with_replicas(current, self._scale(strip_nulls(scale)))

        return self._write_scale(scaled, manager)

    def _write_scale(self, change: Change, manager: Manager | None) -> Response:
        target = self.target
        stored = objects.update(
            target.kind,
            target.namespace,
            target.name,
            change,
            manager=manager,
            now=clock.now(),
            user=self.user,
        )
        return shown(scale_of(target.kind, replies.decode(stored.manifest)))

    def _scale(self, value: Any) -> Manifest:
        """Return the ``Scale`` in a body, which must be of the object in the path."""
        scale = wire.request(value, "Scale", wire_types.Scale, "autoscaling/v1")
        self._require_name(metadata_of(scale))
        return scale
