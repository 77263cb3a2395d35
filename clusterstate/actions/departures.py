"""What a change of a node would do to its pods, said beforehand: for dry runs of node updates."""

from collections.abc import Mapping

import msgspec

from clusterstate import timers
from clusterstate.objects.matching import NodeSelectorMatcher, node_fields, tolerates
from clusterstate.objects.meta import Manifest
from clusterstate.objects.node import Node, Taint
from clusterstate.objects.pod import Pod

_decode = msgspec.json.Decoder(Pod).decode


def foretell(old: Manifest, new: Manifest) -> list[str]:
    """Return warnings that count who would leave the node if it changed from old to new.

    For terms that hold during execution and no longer match, and for NoExecute taints that are
    new. Queries twice if labels or such taints differ, else not at all.
    """
    before, after = msgspec.convert(old, Node), msgspec.convert(new, Node)
    known = {(t.key, t.value) for t in before.spec.taints if t.effect == "NoExecute"}
    added = [
        taint
        for taint in after.spec.taints
        if taint.effect == "NoExecute" and (taint.key, taint.value) not in known
    ]
    relabelled = before.metadata.labels != after.metadata.labels
    if not relabelled and not added:
        return []
    name = after.metadata.name
    population = timers.populations(name)
    pods = {id_: _decode(spec) for id_, spec in timers.specs(sorted(population)).items()}
    warnings = []
    if relabelled:
        count = sum(
            population[id_]
            for id_, pod in pods.items()
            if _breaks(pod, name, before.metadata.labels, after.metadata.labels)
        )
        if count:
            warnings.append(
                f"{_pods(count)} would be evicted from node {name}: its labels would no longer"
                f" match {timers.FIELD}"
            )
    if added:
        now, later = _untolerated(pods, population, added)
        if now or later:
            keys = ", ".join(taint.key for taint in added)
            warnings.append(
                f"{_pods(now)} would be evicted from node {name} at once and {later} after the"
                f" time tolerated: NoExecute taint {keys}"
            )
    return warnings


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _breaks(pod: Pod, node: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    selector = affinity.required_during_scheduling_required_during_execution if affinity else None
    if selector is None:
        return False
    matcher, fields = NodeSelectorMatcher(selector), node_fields(node)
    return matcher.matches(before, fields) and not matcher.matches(after, fields)


def _untolerated(
    pods: Mapping[int, Pod], population: Mapping[int, int], taints: list[Taint]
) -> tuple[int, int]:
    """Return how many pods would leave at once, and how many after a while."""
    now = later = 0
    for id_, pod in pods.items():
        used = [
            next((one for one in pod.spec.tolerations if tolerates(one, taint)), None)
            for taint in taints
        ]
        seconds = [one.toleration_seconds for one in used if one is not None]
        if None in used or any(limit is not None and limit <= 0 for limit in seconds):
            now += population[id_]
        elif any(limit is not None for limit in seconds):
            later += population[id_]
    return now, later
