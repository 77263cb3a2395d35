"""What a change of a node would do to its pods, said beforehand: for dry runs of node updates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from clusterstate.objects.countdowns import countdowns, deadline
from clusterstate.objects.matching import NodeSelectorMatcher, node_fields
from clusterstate.objects.meta import Manifest
from clusterstate.objects.node import Node, Taint
from clusterstate.objects.pod import Pod
from clusterstate.queries.stays import EXECUTION_FIELD, Stay, class_specs, stays_on

_decode = msgspec.json.Decoder(Pod).decode


def foretell(old: Manifest, new: Manifest, now: datetime) -> list[str]:
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
    stays = stays_on([name])
    population = Counter(stay.class_id for stay in stays)
    pods = {id_: _decode(spec) for id_, spec in class_specs(sorted(population)).items()}
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
                f" match {EXECUTION_FIELD}"
            )
    if added:
        late, later = _untolerated(pods, stays, added, now)
        if late or later:
            keys = ", ".join(taint.key for taint in added)
            warnings.append(
                f"{_pods(late)} would be evicted from node {name} at once and {later} after the"
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
    pods: Mapping[int, Pod], stays: Sequence[Stay], taints: list[Taint], now: datetime
) -> tuple[int, int]:
    """Return how many pods would leave at once, and how many after a while."""
    counted = {
        id_: countdowns(pod.spec.tolerations, taints, added_at=now) for id_, pod in pods.items()
    }
    due = [deadline(counted.get(stay.class_id, ()), stay.bound_at) for stay in stays]
    late = [one.due_at <= now for one in due if one is not None]
    return late.count(True), late.count(False)
