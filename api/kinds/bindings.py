"""Binding pods: ``POST pods/NAME/binding`` and ``POST bindings``."""

from typing import Any

from rest_framework.response import Response

from api import clock
from api.forms import errors, replies, wire
from api.forms.bodies import metadata_of, put_namespace
from api.kinds.own import OwnViewSet
from api.requests import Request
from clusterstate.actions.pods.bind import bind_pod
from clusterstate.actions.writing import transactions
from clusterstate.admission.request import User
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import BadRequest


class BindingsViewSet(OwnViewSet):
    """``POST namespaces/NS/bindings``: bind the pod named in the body."""

    group = ""
    resource = "bindings"
    is_namespaced = True

    def create(self, request: Request, namespace: str) -> Response:
        """Bind a pod."""
        value = request.data
        binding = wire.request(value, "Binding", wire_types.Binding, "v1")
        name: str = metadata_of(binding).get("name", "")
        if not name:
            raise BadRequest("metadata.name: Required value: it names the pod")
        return bind(value, namespace, name, self.user)


def bind(value: Any, namespace: str, name: str, user: User) -> Response:
    """Bind the pod ``namespace/name`` as the Binding in ``value`` says."""
    binding = wire.request(value, "Binding", wire_types.Binding, "v1")
    metadata = metadata_of(binding)
    put_namespace(metadata, namespace)
    if metadata.setdefault("name", name) != name:
        raise BadRequest("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if not target.get("name"):
        raise BadRequest("target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        raise BadRequest('target.kind: Unsupported value: supported values: "Node", "<empty>"')
    revision: int | None = bind_pod(
        namespace,
        name,
        target["name"],
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        annotations=metadata.get("annotations"),
        labels=metadata.get("labels"),
        now=clock.now(),
        user=user,
    )
    if transactions.is_rehearsal():
        revision = None  # what was written is rolled back
    return replies.reply(errors.success(201, revision=revision), status=201)
