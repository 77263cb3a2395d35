"""Builds the steps that carry out a plan.

A step is a JSON object: ``scheduling.controllers.operations`` carries it out in one transaction,
and ``api.stowage.plans`` checks the user's right to it::

    {do: edit, subject, name, change: ENTRY}     one entry of spec.changes, on one node
    {do: create, subject, kind, namespace, manifest}
    {do: delete, subject, name}                  a node
    {do: scale, subject, kind, namespace, name, replicas}
    {do: configuration, subject, document}
    {do: evict, subject, namespace, name, uid, gracePeriodSeconds}     if budgets allow it
        {..., place: NODE, podsPerHour}     after its room is reserved on NODE
        {..., alone: true}     while no other operation moves pods to places
    {do: remove, subject, namespace, name, uid, gracePeriodSeconds}    a pod, ignoring budgets

Nodes are changed first, so that no pod is placed on a node to be emptied.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.planning import StayingPod
from scheduling.simulation import plan_document
from scheduling.simulation.foresight import Leaver
from scheduling.simulation.plan_document import PlanChange

Step = dict[str, Any]
REMOVED: Final = "PodDeleted"
"""The cause of a pod that leaves because the plan deletes it."""


def steps(
    changes: Sequence[PlanChange],
    chosen: Mapping[str, Sequence[str]],
    evicted: Sequence[tuple[StayingPod, Leaver]],
    places: Mapping[str, tuple[str, bool]],
    pods_per_hour: int,
) -> Iterator[Step]:
    """Yield the steps of a plan in order.

    Args:
        changes: those of the plan.
        chosen: the names of each change's nodes, by its path.
        evicted: the pods to evict, named ones or those of drained nodes, in order.
        places: the nodes where room is reserved for replacements, and whether others may not move
            pods meanwhile, by the pods' titles.
        pods_per_hour: how many pods may leave in an hour; 0 without a limit.
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
            yield _creation(manifest)
        if change.what == plan_document.SCALE:
            kind, namespace, name = change.workload
            yield {
                "do": "scale",
                "subject": f"{kind} {namespace}/{name}",
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "replicas": change.replicas,
            }
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
        if place := places.get(pod.title):
            step["place"] = place[0]
            if place[1]:
                step["alone"] = True
        if pods_per_hour:
            step["podsPerHour"] = pods_per_hour
        yield step


def _creation(manifest: Manifest) -> Step:
    metadata = manifest.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    kind = KINDS[manifest["kind"]]
    step: Step = {"do": "create", "kind": kind.name, "manifest": manifest}
    if not kind.namespaced:
        return {**step, "subject": f"{kind.singular} {name}"}
    namespace = metadata.get("namespace") or "default"
    return {
        **step,
        "subject": f"{kind.singular} {namespace}/{name}",
        "namespace": namespace,
        "manifest": {**manifest, "metadata": {**metadata, "namespace": namespace}},
    }


def _entry(change: PlanChange, names: Sequence[str]) -> Manifest:
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
