"""PodResizeValidator: a pod on a node never requests more than the whole node.

The answer comes at once; the node's agent could only report later that the resize is infeasible.
Rule: plugin/pkg/admission/podresize/admission.go, v1.36. A node without a label for its operating
system counts as Linux: nodes that are described over the API often have no such label.

NodeDeclaredFeatureValidator is applied here as well: an agent that does not declare pod-level
resizes gets none (plugin/pkg/admission/nodedeclaredfeatures, v1.36). A node whose status names no
version of an agent has no agent; the service itself resizes its pods.
"""

from typing import Final

import msgspec

from clusterstate.admission.request import UPDATE, Request
from clusterstate.objects.rules import resources
from clusterstate.objects.rules.declared_features import features_of_resize
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity

_OS: Final = "kubernetes.io/os"
_MUTABLE: Final = (resources.CPU, resources.MEMORY)


def validate(request: Request) -> None:
    """Refuse a resize that the node of the pod can never carry out.

    Queries the node, if the pod is on one and its spec changes.

    Raises:
        Forbidden: the node does not exist, is too small or not Linux, or its agent does not declare
            a feature that the resize needs.
    """
    if request.operation != UPDATE or request.subresource != "resize":
        return
    spec, old = request.manifest.get("spec") or {}, request.old or {}
    name = spec.get("nodeName") or ""
    if not name or spec == old.get("spec"):
        return
    node = request.context.node(name)
    if node is None:
        raise request.forbidden(f'node "{name}" not found')
    offered = (node.get("status") or {}).get("allocatable") or {}
    requests = resources.pod_requests(msgspec.convert({"spec": spec}, Pod))
    lacking = []
    for resource in _MUTABLE:
        requested = _units(resource, requests.get(resource))
        allocatable = _units(resource, Quantity.parse(offered.get(resource, 0)))
        if requested > allocatable:
            lacking.append(f"{resource}, requested: {requested}, allocatable: {allocatable}")
    if lacking:
        text = f"Node didn't have enough allocatable resources: {'; '.join(lacking)}"
        raise _refused(request, text, "NodeCapacity")
    status = node.get("status") or {}
    declared = status.get("declaredFeatures") or ()
    needed = [one for one in features_of_resize(spec, old.get("spec") or {}) if one not in declared]
    if needed and (status.get("nodeInfo") or {}).get("kubeletVersion"):
        text = f"pod update requires features {', '.join(needed)} which are not available on node"
        raise request.forbidden(f'{text} "{name}"')
    system = ((node.get("metadata") or {}).get("labels") or {}).get(_OS, "linux")
    if system != "linux":
        text = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
        raise _refused(request, text, "UnsupportedPlatform")


def _units(resource: str, amount: Quantity | None) -> int:
    """Return an amount as the scheduler counts it: thousandths of CPU, whole units of memory."""
    if amount is None:
        return 0
    return amount.milli_value() if resource == resources.CPU else amount.value()


def _refused(request: Request, message: str, cause: str) -> Forbidden:
    error = request.forbidden(message)
    return Forbidden(error.message, {**error.details, "causes": [{"reason": cause}]})
