"""Undoes changes of nodes: returns the changes that restore each node.

A field that a change does not alter is not restored. A plan lists its undo for the nodes' present
state; the operation computes it again for each node when the step is done
(``controllers.operations``), and its ``undo`` uses that.
"""

from collections.abc import Iterator, Mapping, Sequence

from clusterstate.objects.values.meta import Manifest
from scheduling.simulation import plan_document
from scheduling.simulation.plan_document import PlanChange


def undo(
    changes: Sequence[PlanChange],
    chosen: Mapping[str, Sequence[str]],
    before: Mapping[str, Manifest],
) -> list[Manifest]:
    """Return the changes that undo the plan's changes of nodes, the last one first.

    Evicted pods, deleted nodes and a replaced configuration are not restored.
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
                    found += back(change, name, nodes[name])
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


def back(change: PlanChange, name: str, node: Manifest) -> Iterator[Manifest]:
    """Yield the changes that restore ``node`` after ``change``."""
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
