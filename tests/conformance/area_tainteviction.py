"""Area tainteviction: what NoExecute taints do to a pod (R112-R123)."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from clusterstate.objects.rules import eviction
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""When the taints were added and the pod was bound."""


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    tolerations = msgspec.convert(case.get("tolerations") or [], list[Toleration])
    if case["op"] == "minTolerationTime":
        return _min_toleration_time(case, tolerations)
    if case["op"] == "processPod":
        return _process_pod(case, tolerations)
    return f"unknown op {case['op']}"


def _seconds_until_due(counted: list[eviction.Countdown]) -> int | None:
    due = eviction.deadline(counted, NOW)
    return None if due is None else int((due.due_at - NOW).total_seconds())


def _min_toleration_time(case: dict[str, Any], tolerations: list[Toleration]) -> str | None:
    """Compare the time that all these tolerations together leave, each used for a taint."""
    counted = [
        eviction.Countdown(Taint(), NOW, seconds)
        for used in tolerations or [None]
        if (seconds := eviction.tolerated_seconds(used)) is not None
    ]
    seconds = _seconds_until_due(counted)
    # Upstream writes forever as minus one nanosecond.
    wanted = None if case["forever"] else case["seconds"]
    return None if seconds == wanted else f"seconds: {seconds}, wanted {wanted}"


def _process_pod(case: dict[str, Any], tolerations: list[Toleration]) -> str | None:
    taints = [
        msgspec.structs.replace(taint, time_added=None)
        for taint in msgspec.convert(case.get("taints") or [], list[Taint])
    ]
    used = [one for _, one in eviction.used_tolerations(tolerations, taints)]
    tolerated = None not in used
    counted = eviction.countdowns(tolerations, taints, added_at=NOW)
    seconds = _seconds_until_due(list(counted))
    outcome = "never" if seconds is None else "evictAfter" if tolerated else "evictNow"
    found = {
        "allTolerated": tolerated,
        "outcome": outcome,
        "seconds": seconds if outcome == "evictAfter" else None,
        "usedTolerations": used if tolerated else [],
    }
    wanted = {
        "allTolerated": case["allTolerated"],
        "outcome": case["outcome"],
        "seconds": case.get("seconds"),
        "usedTolerations": msgspec.convert(case.get("usedTolerations") or [], list[Toleration]),
    }
    differs = [f"{k}: {found[k]}, wanted {wanted[k]}" for k in wanted if found[k] != wanted[k]]
    return "; ".join(differs) or None
