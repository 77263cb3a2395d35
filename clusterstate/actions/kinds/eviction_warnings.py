"""Warnings of a dry run: which of its pods a node would lose by the change."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from clusterstate.objects.rules import eviction
from clusterstate.objects.rules.eviction import Rules
from clusterstate.objects.rules.matching import NO_EXECUTE
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import Pod
from clusterstate.queries.pods.stays import EXECUTION_FIELD, Stay, class_specs, stays_on

_decode = msgspec.json.Decoder(Pod).decode


def for_node(old: Manifest, new: Manifest, now: datetime) -> list[str]:
    """Return warnings that count the pods which leave the node if it changes from old to new.

    Pods whose terms during execution no longer match, and pods that NoExecute taints evict, unless
    they would leave as early without the change. Queries twice if labels or such taints differ,
    else not at all.
    """
    before, after = msgspec.convert(old, Node), msgspec.convert(new, Node)
    old_taints, taints = _evicting(before), _evicting(after)
    added = [taint for taint in taints if taint not in old_taints]
    relabelled = before.metadata.labels != after.metadata.labels
    if not relabelled and not added:
        return []
    name = after.metadata.name
    stays = stays_on([name])
    population = Counter(stay.class_id for stay in stays)
    rules = {
        id_: eviction.rules_of(_decode(spec))
        for id_, spec in class_specs(sorted(population)).items()
    }
    warnings = []
    if relabelled:
        count = sum(
            population[id_]
            for id_, one in rules.items()
            if eviction.is_broken(one, name, after.metadata.labels)
            and not eviction.is_broken(one, name, before.metadata.labels)
        )
        if count:
            warnings.append(
                f"{_pods(count)} would be evicted from node {name}: its labels would no longer"
                f" match {EXECUTION_FIELD}"
            )
    if added:
        late, later = _hastened(rules, stays, old_taints, taints, now)
        if late or later:
            keys = ", ".join(taint.key for taint in added)
            warnings.append(
                f"{_pods(late)} would be evicted from node {name} at once and {later} after the"
                f" time tolerated: NoExecute taint {keys}"
            )
    return warnings


def _evicting(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _hastened(
    rules: Mapping[int, Rules],
    stays: Sequence[Stay],
    old: Sequence[Taint],
    taints: Sequence[Taint],
    now: datetime,
) -> tuple[int, int]:
    """Return how many pods the new taints evict earlier: at once, and after a while."""
    counted = {
        id_: tuple(
            eviction.countdowns(one.tolerations, some, added_at=now) for some in (old, taints)
        )
        for id_, one in rules.items()
    }
    late = []
    for stay in stays:
        if stay.class_id not in counted:
            continue
        before, after = (eviction.deadline(some, stay.bound_at) for some in counted[stay.class_id])
        if after is not None and (before is None or after.due_at < before.due_at):
            late.append(after.due_at <= now)
    return late.count(True), late.count(False)
