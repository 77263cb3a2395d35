"""Dedicated nodes: pods of a group's namespace run on that group's nodes only (R124).

The administrator taints and labels the nodes ``dedicated=GROUP`` and annotates the namespace
``scheduling.stowage.dev/dedicated: GROUP``. Pods created there get the toleration, which allows
these nodes, and the required node affinity, which excludes all others.
"""

from typing import Any

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.rules.own_annotations import DEDICATED

KEY = "dedicated"


def admit(request: Request) -> None:
    """Add toleration and node affinity to a new pod of an annotated namespace.

    The requirement joins every term of the pod's own required node affinity, since terms are ORed.
    """
    if not request.is_pod() or request.operation != CREATE or not request.namespace:
        return
    namespace = request.context.namespace(request.namespace)
    annotations = ((namespace or {}).get("metadata") or {}).get("annotations")
    group = annotations.get(DEDICATED) if annotations else None
    if not group:
        return
    spec: dict[str, Any] = request.manifest.setdefault("spec", {})
    toleration = {"key": KEY, "operator": "Equal", "value": group, "effect": "NoSchedule"}
    tolerations = spec.setdefault("tolerations", [])
    if toleration not in tolerations:
        tolerations.append(toleration)
    requirement = {"key": KEY, "operator": "In", "values": [group]}
    node_affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        expressions = term.setdefault("matchExpressions", [])
        if requirement not in expressions:
            expressions.append(dict(requirement))
