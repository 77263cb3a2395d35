"""Predicts which evictions of a plan a brake holds back, or a zone's rate delays."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from django.conf import settings

from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions.brakes import (
    APPROVED,
    COUNTED_FOR,
    NAMESPACE,
    OWNER,
    ZONE,
    Share,
    brakes,
    limits,
    others_leaving,
    zones_by_pod,
)
from clusterstate.queries.scheduler.planning import StayingPod
from scheduling.simulation.foresight import Leaver


def ahead(
    leavers: Sequence[Leaver], pods: Mapping[int, StayingPod], now: datetime
) -> list[Manifest]:
    """Return the brakes that will hold some of these evictions, each with the evictions per minute.

    Args:
        leavers: evictions that count for brakes: by taints, node labels, and the plan's steps.
        pods: the facts about pods, by id.
        now: when the plan begins.

    Does not query if no limit is set.
    """
    if not limits():
        return []
    until = COUNTED_FOR.total_seconds()
    soon = [
        pods[one.key]
        for one in leavers
        if one.due <= until and isinstance(one.key, int) and one.key in pods
    ]
    zones = zones_by_pod([pod.id for pod in soon])
    counts = Counter(name for pod in soon for name in _names(pod, zones.get(pod.id, "")))
    approved = {(one.scope, one.name) for one in brakes() if one.state == APPROVED}
    found = []
    for (scope, name), count in sorted(counts.items()):
        limit = limits().get(scope)
        if limit is None or (scope, name) in approved or count < settings.BRAKE_LEAST:
            continue
        others, total = others_leaving(scope, name, now)
        share = Share(scope, name, min(others + count, total), total)
        if share.exceeds(limit):
            brake = {"name": share.key, "leaving": share.leaving, "total": total}
            found.append({**brake, "limitPercent": limit})
    return found


def _names(pod: StayingPod, zone: str) -> Iterable[tuple[str, str]]:
    if zone:
        yield ZONE, zone
    yield NAMESPACE, pod.namespace
    if pod.owner_kind:
        yield OWNER, f"{pod.namespace}.{pod.owner_kind}.{pod.owner_name}"


def in_turn(leavers: Sequence[Leaver], counted: Iterable[str]) -> list[Leaver]:
    """Return the leavers in the order and at the times that their zones' rates allow.

    Without a rate they are returned unchanged. ``counted``: the causes to which the rate applies.
    The zones' token buckets are assumed to be full when the plan begins. Queries once.
    """
    rate = settings.ZONE_EVICTION_RATE
    if not rate:
        return list(leavers)
    causes = frozenset(counted)
    zones = zones_by_pod([one.key for one in leavers if isinstance(one.key, int)])
    full = max(1.0, rate) / rate
    empty: dict[str, float] = {}
    found = []
    for one in leavers:
        if one.cause in causes and isinstance(one.key, int):
            zone = zones.get(one.key, "")
            since = max(empty.get(zone, one.due - full), one.due - full)
            due = max(one.due, since + 1 / rate)
            empty[zone] = since + 1 / rate
            one = msgspec.structs.replace(one, due=due)  # noqa: PLW2901
        found.append(one)
    return sorted(found, key=lambda one: (one.due, one.key))
