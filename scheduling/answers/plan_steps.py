"""What carrying a plan out does, step by step, and how it is taken back.

A step is a JSON object that ``scheduling.controllers.operations`` does in one transaction and whose
right ``api.plans`` asks for::

    {do: edit, subject, name, change: ENTRY}     one entry of spec.changes, on one node
    {do: create, subject, kind, namespace, manifest}
    {do: delete, subject, name}                  a node
    {do: configuration, subject, document}
    {do: evict, subject, namespace, name, uid, gracePeriodSeconds}     as budgets allow
    {do: remove, subject, namespace, name, uid, gracePeriodSeconds}    a pod, whatever budgets say

Nodes are changed first, so that nothing lands on one that is to be emptied.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clusterstate.objects.meta import Manifest
from clusterstate.queries.planning import StayingPod
from scheduling.simulation import plan_document
from scheduling.simulation.foresight import Leaver
from scheduling.simulation.plan_document import Change

Step = dict[str, Any]
REMOVED: Final = "PodDeleted"
"""The cause of a pod that leaves because the plan deletes it."""


def steps(
    changes: Sequence[Change],
    chosen: Mapping[str, Sequence[str]],
    evicted: Sequence[tuple[StayingPod, Leaver]],
) -> Iterator[Step]:
    """Yield the steps in order.

    Args:
        changes: of the plan.
        chosen: the names of each change's nodes, by its path.
        evicted: the pods that leave because they are named or their node is drained, in order.
    """
    for change in changes:
        names = chosen.get(change.path, ())
        if change.what == plan_document.DELETE:
            continue
        for name in names:
            entry = {change.what: _entry(change, [name])}
            if change.what == plan_document.DRAIN:
                entry = {plan_document.CORDON: {"nodes": [name]}}
            yield {"do": "edit", "subject": f"node {name}", "name": name, "change": entry}
        for manifest in change.objects:
            yield _creation(change, manifest)
        if change.configuration is not None:
            yield {
                "do": "configuration",
                "subject": "scheduler configuration",
                "document": change.configuration,
            }
    for change in changes:
        if change.what == plan_document.DELETE:
            for name in chosen.get(change.path, ()):
                yield {"do": "delete", "subject": f"node {name}", "name": name}
    for pod, leaver in evicted:
        step: Step = {
            "do": "remove" if leaver.cause == REMOVED else "evict",
            "subject": f"pod {pod.title}",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
        if leaver.grace_given:
            step["gracePeriodSeconds"] = int(leaver.grace)
        yield step


def _creation(change: Change, manifest: Manifest) -> Step:
    metadata = manifest.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    if change.what == plan_document.ADD:
        return {"do": "create", "subject": f"node {name}", "kind": "Node", "manifest": manifest}
    namespace = metadata.get("namespace") or "default"
    return {
        "do": "create",
        "subject": f"pod {namespace}/{name}",
        "kind": "Pod",
        "namespace": namespace,
        "manifest": {**manifest, "metadata": {**metadata, "namespace": namespace}},
    }


def _entry(change: Change, names: Sequence[str]) -> Manifest:
    """Return a change of some nodes as an entry of ``spec.changes``."""
    found: Manifest = {"nodes": list(names)}
    if change.taints:
        found["taints"] = list(change.taints)
    if change.labels:
        found["set"] = dict(change.labels)
    if change.gone:
        found["remove"] = list(change.gone)
    if change.amounts:
        found["amounts"] = dict(change.amounts)
    return found


def undo(
    changes: Sequence[Change],
    chosen: Mapping[str, Sequence[str]],
    before: Mapping[str, Manifest],
) -> list[Manifest]:
    """Return the changes that take the plan's changes of nodes back, the last one first.

    What a change would not alter is not taken back. Pods that left, deleted nodes and a
    configuration that was replaced have no way back here.
    """
    nodes = dict(before)
    found: list[Manifest] = []
    for change in changes:
        if change.what == plan_document.ADD:
            names = [one["metadata"]["name"] for one in change.objects]
            found.append({plan_document.DELETE: {"nodes": names}})
        if change.what in (*_EDITS, plan_document.DRAIN):
            for name in chosen.get(change.path, ()):
                if name in nodes:
                    found += _back(change, name, nodes[name])
                    nodes[name] = plan_document.edited(change, nodes[name])
    return found[::-1]


_EDITS = (
    plan_document.CORDON,
    plan_document.UNCORDON,
    plan_document.TAINT,
    plan_document.UNTAINT,
    plan_document.LABEL,
    plan_document.RESIZE,
)


def _back(change: Change, name: str, node: Manifest) -> Iterator[Manifest]:
    """Yield what makes of the changed node the one that it was."""
    spec = node.get("spec") or {}
    closed = bool(spec.get("unschedulable"))
    on = {"nodes": [name]}
    what = change.what
    if what in (plan_document.CORDON, plan_document.DRAIN) and not closed:
        yield {plan_document.UNCORDON: on}
    elif what == plan_document.UNCORDON and closed:
        yield {plan_document.CORDON: on}
    elif what in (plan_document.TAINT, plan_document.UNTAINT):
        after = (plan_document.edited(change, node).get("spec") or {}).get("taints") or []
        was, is_ = _by_identity(spec.get("taints") or []), _by_identity(after)
        gone = [one for key, one in was.items() if is_.get(key) != one]
        new = [one for key, one in is_.items() if key not in was]
        if gone:
            yield {plan_document.TAINT: {**on, "taints": gone}}
        if new:
            bare = [{"key": one["key"], "effect": one["effect"]} for one in new]
            yield {plan_document.UNTAINT: {**on, "taints": bare}}
    elif what == plan_document.LABEL:
        labels = node["metadata"].get("labels") or {}
        touched = [*change.labels, *change.gone]
        back = {key: labels[key] for key in touched if key in labels}
        away = [key for key in change.labels if key not in labels]
        if back or away:
            entry = {**on, **({"set": back} if back else {}), **({"remove": away} if away else {})}
            yield {plan_document.LABEL: entry}
    elif what == plan_document.RESIZE:
        status = node.get("status") or {}
        had = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
        amounts = {key: had[key] for key in change.amounts if key in had}
        if amounts:
            yield {plan_document.RESIZE: {**on, "amounts": amounts}}


def _by_identity(taints: Sequence[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {
        (one["key"], one["effect"]): {k: v for k, v in one.items() if k != "timeAdded"}
        for one in taints
    }
