"""HorizontalPodAutoscalers of ``autoscaling/v1``, as ``kubectl autoscale`` sends them.

kubectl does so up to 1.32, without asking discovery. The object is stored as ``autoscaling/v2``, in
which it can be read, listed and changed; here it is only created. Rule: ``pkg/apis/autoscaling/v1/
conversion.go``, v1.36, for what kubectl sends.
"""

from typing import Any

from rest_framework.response import Response

from api import clock, options, replies, wire
from api.bodies import metadata_of, put_namespace
from api.own import OwnViewSet
from api.requests import Request
from clusterstate.actions import objects
from clusterstate.objects import managed_fields
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.meta import Manifest

KIND = KINDS["HorizontalPodAutoscaler"]
VERSION = "autoscaling/v1"
_PERCENTAGE = "targetCPUUtilizationPercentage"


class FirstAutoscalersViewSet(OwnViewSet):
    """``POST /apis/autoscaling/v1/namespaces/NS/horizontalpodautoscalers``."""

    group, resource = KIND.group, KIND.plural
    is_namespaced = True

    def create(self, request: Request, namespace: str) -> Response:
        """Create an autoscaler and return it in the form in which it was sent."""
        value: Any = request.data
        sent = wire.typed(value, KIND.name, VERSION)
        manifest, warnings = wire.manifest(
            second_form(sent), KIND, request.query_params.get("fieldValidation", "")
        )
        put_namespace(metadata_of(manifest), namespace)
        managed_fields.claim(KIND, manifest, options.field_manager(request))
        stored = objects.create(KIND, namespace, manifest, now=clock.now(), user=self.user)
        answer = first_form(replies.decode(stored.manifest))
        return replies.reply(answer, status=201, warnings=[*warnings, *stored.warnings])


def second_form(manifest: Manifest) -> Manifest:
    """Return an autoscaler of version 1 as version 2 has it."""
    result: Manifest = {**manifest, "apiVersion": KIND.api_version}
    spec = manifest.get("spec")
    if isinstance(spec, dict) and _PERCENTAGE in spec:
        target = {"type": "Utilization", "averageUtilization": spec[_PERCENTAGE]}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        rest = {name: value for name, value in spec.items() if name != _PERCENTAGE}
        result["spec"] = {**rest, "metrics": [metric]}
    return result


def first_form(manifest: Manifest) -> Manifest:
    """Return an autoscaler of version 2 that was created here as version 1 has it."""
    spec = dict(manifest["spec"])
    metrics: list[Any] = spec.pop("metrics", None) or []
    for metric in metrics:
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu":
            spec[_PERCENTAGE] = resource["target"]["averageUtilization"]
    spec.pop("behavior", None)
    status = {
        name: value
        for name, value in (manifest.get("status") or {}).items()
        if name in ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    }
    return {**manifest, "apiVersion": VERSION, "spec": spec, "status": status}
