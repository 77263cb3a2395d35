"""Explains which of a pod's requirements come from its RuntimeClass, and which nodes these exclude.

Admission merges the class into the pod, so plugins see its nodeSelector and overhead as the pod's
own (C7), and conditions and events are as in Kubernetes. An explanation reads from the pod's
annotation what was merged (R53, C9).
"""

from collections import Counter
from typing import Any

from clusterstate.admission.plugins import runtime_class
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import milli_value, value
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.formulas import short
from scheduling.framework.types import PodInfo

_AFFINITY, _FIT = "NodeAffinity", "NodeResourcesFit"
_INSUFFICIENT = "Insufficient "


def with_runtime_class(
    found: Manifest, pod: Manifest, snapshot: Snapshot, info: PodInfo
) -> Manifest:
    """Return an explanation (``explain_table``) with the effects of the pod's RuntimeClass, if any.

    ``runtimeClass`` has the class's name, the nodeSelector, tolerations and overhead that came from
    it, ``nodes``: which of these each infeasible node does not satisfy, and for a pod that fits
    nowhere ``message``: one sentence that counts nodes by cause.

    Args:
        found: the explanation, with ``feasible`` and ``infeasible``.
        pod: the admitted pod.
        snapshot: the one of the decision.
        info: the pod's class.
    """
    came = _came(pod)
    if came is None:
        return found
    nodes: dict[str, Manifest] = {}
    for name, verdict in found["infeasible"].items():
        cause = _cause(verdict, name, came, snapshot, info)
        if cause:
            nodes[name] = cause
    due = {**came, "nodes": nodes}
    if not found["feasible"] and found["infeasible"]:
        due["message"] = _plainly(found["infeasible"], nodes)
    return {**found, "runtimeClass": due}


def _came(pod: Manifest) -> Manifest | None:
    """Return the fields that the pod has from its RuntimeClass, ``None`` if there are none."""
    spec = pod.get("spec") or {}
    name = spec.get("runtimeClassName")
    if not name:
        return None
    noted = runtime_class.provenance(pod)
    selector: dict[str, str] = spec.get("nodeSelector") or {}
    came: dict[str, Any] = {
        "nodeSelector": {} if noted is None else {k: selector.get(k) for k in noted.node_selector},
        "tolerations": [] if noted is None else list(noted.tolerations),
        "overhead": spec.get("overhead") or {},
    }
    return {"name": name, **came} if any(came.values()) else None


def _cause(
    verdict: Manifest, name: str, came: Manifest, snapshot: Snapshot, info: PodInfo
) -> Manifest:
    """Return the RuntimeClass's fields that a node does not satisfy, empty if it does."""
    row = snapshot.row_of(name)
    if row is None:
        return {}
    if verdict["plugin"] == _AFFINITY:
        labels = snapshot.node(row).metadata.labels
        missed = {k: v for k, v in came["nodeSelector"].items() if labels.get(k) != v}
        return {"nodeSelector": missed} if missed else {}
    if verdict["plugin"] == _FIT:
        decisive = {
            resource: amount
            for resource, amount in came["overhead"].items()
            if _tips(resource, amount, row, snapshot, info)
        }
        return {"overhead": decisive} if decisive else {}
    return {}


def _tips(resource: str, amount: str, row: int, snapshot: Snapshot, info: PodInfo) -> bool:
    """Return whether the node lacks a resource only because of this much overhead."""
    extra = milli_value(amount) if resource == "cpu" else value(amount)
    column = snapshot.resources.find(resource)
    if column is None:
        return False
    room, used = int(snapshot.allocatable[row, column]), int(snapshot.requested[row, column])
    requested = info.requests.get(resource, 0)
    return bool(short(requested, room, used)) and not short(requested - extra, room, used)


def _plainly(infeasible: dict[str, Manifest], due: dict[str, Manifest]) -> str:
    counts: Counter[str] = Counter()
    for name, verdict in infeasible.items():
        if "nodeSelector" in due.get(name, {}):
            counts["don't match RuntimeClass"] += 1
            continue
        for reason in verdict["reasons"]:
            counts[_in_words(reason)] += 1
    parts = sorted(f"{number} nodes {text}" for text, number in counts.items())
    return f"0/{len(infeasible)} Nodes are available: {', '.join(parts)}"


def _in_words(reason: str) -> str:
    if reason.startswith(_INSUFFICIENT):
        return f"do not have enough {reason.removeprefix(_INSUFFICIENT)}"
    if reason == "Too many pods":
        return "have too many pods"
    return reason.removeprefix("node(s) ")
