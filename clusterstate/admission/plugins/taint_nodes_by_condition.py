"""TaintNodesByCondition: a new node is tainted not-ready until it reports ready (R126, R133).

Rule: plugin/pkg/admission/nodetaint/admission.go, v1.36.
"""

from clusterstate.admission.request import CREATE, Request

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def admit(request: Request) -> None:
    """Add the taint ``node.kubernetes.io/not-ready:NoSchedule`` to a node being created."""
    if request.kind != "Node" or request.subresource or request.operation != CREATE:
        return
    taints = request.manifest.setdefault("spec", {}).setdefault("taints", [])
    for taint in taints:
        if taint.get("key") == NOT_READY["key"] and taint.get("effect") == NOT_READY["effect"]:
            return
    taints.append(dict(NOT_READY))
