"""``componentstatuses`` for ``kubectl get cs``, from the parts of ``/readyz``."""

from typing import Final

from rest_framework.response import Response

from api.forms import renderers, replies
from api.kinds.own import OwnViewSet
from api.requests import Request
from api.server import health
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest

KIND: Final = Kind(name="ComponentStatus", version="v1")
_COMPONENTS: Final = {
    "controller-manager": "controllers",
    "etcd-0": "database",
    "scheduler": "scheduler",
}
"""Kubernetes' components, with the parts of this service that do the same."""


class ComponentStatusesViewSet(OwnViewSet):
    """The state of the components; deprecated in Kubernetes, but clients still read it."""

    group, resource = "", "componentstatuses"
    kind = "ComponentStatus"
    renderer_classes = renderers.OF_OBJECTS

    def list(self, request: Request) -> Response:
        """Return all ComponentStatuses."""
        return replies.reply(replies.MadeManifests(KIND, _statuses(), {}))

    def retrieve(self, request: Request, name: str) -> Response:
        """Return the ComponentStatus called ``name``."""
        found = next((one for one in _statuses() if one["metadata"]["name"] == name), None)
        if found is None:
            details = {"name": name, "kind": "componentstatuses"}
            raise NotFound(f'componentstatuses "{name}" not found', details)
        return replies.reply(replies.MadeManifests(KIND, [found], {}, alone=True))


def _statuses() -> list[Manifest]:
    problems = {part.name: part.problem for part in health.latest()}
    return [
        _status(name, problems.get(part, "unknown: the service has just started"))
        for name, part in _COMPONENTS.items()
    ]


def _status(name: str, problem: str) -> Manifest:
    condition = {"type": "Healthy", "status": "False" if problem else "True"}
    condition |= {"error": problem} if problem else {"message": "ok"}
    return {
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [condition],
    }
