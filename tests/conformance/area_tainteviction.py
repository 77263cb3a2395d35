"""Area tainteviction: what NoExecute taints do to a pod (R112-R123)."""

from typing import Any

import msgspec

from clusterstate.objects.node import Taint
from clusterstate.objects.pod import Toleration
from scheduling.controllers import taint_eviction_rules as rules


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    tolerations = msgspec.convert(case.get("tolerations") or [], list[Toleration])
    if case["op"] == "minTolerationTime":
        return _min_toleration_time(case, tolerations)
    if case["op"] == "processPod":
        return _process_pod(case, tolerations)
    return f"unknown op {case['op']}"


def _min_toleration_time(case: dict[str, Any], tolerations: list[Toleration]) -> str | None:
    seconds = rules.min_toleration_seconds(tolerations)
    # Upstream writes forever as minus one nanosecond.
    wanted = None if case["forever"] else case["seconds"]
    return None if seconds == wanted else f"seconds: {seconds}, wanted {wanted}"


def _process_pod(case: dict[str, Any], tolerations: list[Toleration]) -> str | None:
    taints = msgspec.convert(case.get("taints") or [], list[Taint])
    outcome = rules.process_pod(tolerations, taints)
    found = {
        "allTolerated": outcome.all_tolerated,
        "outcome": outcome.decision.value,
        "seconds": outcome.seconds,
        "usedTolerations": list(outcome.used),
    }
    wanted = {
        "allTolerated": case["allTolerated"],
        "outcome": case["outcome"],
        "seconds": case.get("seconds"),
        "usedTolerations": msgspec.convert(case.get("usedTolerations") or [], list[Toleration]),
    }
    differs = [f"{k}: {found[k]}, wanted {wanted[k]}" for k in wanted if found[k] != wanted[k]]
    return "; ".join(differs) or None
