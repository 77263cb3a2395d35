"""The columns that ``kubectl get`` prints for Stowage's own resources, such as plans and brakes.

The clock is an argument, as in ``tables``.
"""

from datetime import datetime
from typing import Final

from api.forms.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cells,
    Printers,
    age_of,
    human_duration,
    name_of,
    parse_time,
)
from clusterstate.objects.values.meta import Manifest

PRINTERS: Final = Printers()


def _time_left(text: str | None, now: datetime) -> str:
    """Return the duration from now until a time, 0s if that has passed."""
    moment = parse_time(text)
    return UNKNOWN if moment is None else human_duration(max(0.0, (moment - now).total_seconds()))


@PRINTERS.of(
    "Plan",
    NAME,
    "State, Done, Held:integer, Failed:integer, Leaving:integer, Stuck:integer",
    AGE,
    "Made By::1, Applied By::1",
)
def _plan(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    operation, summary = status["operation"], status.get("summary") or {}
    by = (item["metadata"].get("annotations") or {}).get("stowage.dev/created-by")
    return [
        operation["state"],
        f"{operation['done']}/{operation['steps']}",
        operation["held"],
        operation["failed"],
        summary.get("leaving", 0),
        summary.get("stuck", 0),
        by or NONE,
        operation.get("appliedBy") or NONE,
    ]


@PRINTERS.of("ComponentStatus", NAME, "Status, Message, Error")
def _component_status(item: Manifest, now: datetime) -> Cells:
    (one,) = item["conditions"]
    works = "Healthy" if one["status"] == "True" else "Unhealthy"
    return [works, one.get("message", ""), one.get("error", "")]


@PRINTERS.of("Brake", NAME, "State, Leaving, Limit, Approved By, For", AGE)
def _brake(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    return [
        status["state"],
        f"{status['leaving']}/{status['total']}",
        f"{spec['limitPercent']:g}%",
        status.get("approvedBy") or NONE,
        _time_left(status["until"], now) if "until" in status else NONE,
    ]


@PRINTERS.of("Canary", NAME, "State, Guarded For", AGE, "Message::1")
def _canary(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    return [
        status["state"],
        _time_left(status["guardedUntil"], now) if status["state"] == "Switched" else NONE,
        status.get("message") or NONE,
    ]


@PRINTERS.of(
    "Webhook",
    NAME,
    "URL, Types, Suspended:boolean, Delivered:integer, Refused:integer, Next Try",
    AGE,
    "Failures:integer:1, Gaps:integer:1",
)
def _webhook(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    return [
        spec["url"],
        ",".join(spec["types"]),
        bool(spec.get("suspended", False)),
        status["delivered"],
        status["refused"],
        _time_left(status["nextTry"], now) if "nextTry" in status else NONE,
        status["failures"],
        status["gaps"],
    ]


@PRINTERS.of(
    "Decision",
    NAME,
    "Pod, Outcome, Node, Feasible, Age",
    "Total:integer:1, Margin::1, Ties:integer:1, Message::1",
)
def _decision(item: Manifest, now: datetime) -> Cells:
    pod, nodes = item["pod"], item["nodes"]
    return [
        f"{pod['namespace']}/{pod['name']}",
        item["outcome"],
        item["nodeName"] or NONE,
        f"{nodes['feasible']}/{nodes['known']}",
        age_of(item["at"], now),
        item["total"],
        NONE if item["margin"] is None else str(item["margin"]),
        item["ties"],
        item["message"] or NONE,
    ]


@PRINTERS.of("WaitingPod", NAME, "Node, Waiting For, Time Left", AGE)
def _waiting_pod(item: Manifest, now: datetime) -> Cells:
    waits = item["status"]["waitingFor"]
    due = parse_time(waits[0]["dueAt"]) if waits else None
    remaining = UNKNOWN if due is None else human_duration(max((due - now).total_seconds(), 0))
    plugins = ",".join(one["plugin"] for one in waits)
    return [item["spec"]["nodeName"], plugins or NONE, remaining]


@PRINTERS.of("Eviction", NAME, "Node, Cause, Taint, Leaves In, Due::1, Blocked By, Lands On")
def _eviction(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    taint = spec.get("taint") or {}
    due, landing = parse_time(status.get("dueAt")), status.get("landing") or {}
    return [
        spec.get("nodeName", ""),
        spec.get("cause", ""),
        f"{taint['key']}:{taint['effect']}" if taint else NONE,
        UNKNOWN if due is None else human_duration(max(0.0, (due - now).total_seconds())),
        status.get("dueAt", ""),
        status.get("blockedBy") or NONE,
        landing.get("nodeName") or (landing and "nowhere") or NONE,
    ]


@PRINTERS.of("Selection", NAME, "Pods:integer, Nodes, Overlaps, Selector::1")
def _selection(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    named = [f"{one['kind'].lower()}.{one['name']} ({one['shared']})" for one in status["overlaps"]]
    more = status["overlapping"] - len(named)
    return [
        status.get("pods", 0),
        status.get("nodes", NONE),
        ", ".join([*named, f"{more} more"] if more else named) or NONE,
        item["spec"]["selector"] or NONE,
    ]


@PRINTERS.of("Headroom", NAME, "Fits, Nodes:integer, Next Blocked By")
def _headroom(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    blockers = [f"{one['reason']} ({one['nodes']})" for one in status["blockers"]]
    fits = f"{status['fits']}+" if status["limited"] else str(status["fits"])
    return [fits, status["nodeCount"], "; ".join(blockers) or NONE]


@PRINTERS.of("WaitingGroup", NAME, "Pods:integer, State, Blocked By, Oldest::1", AGE)
def _waiting_group(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    blockers = []
    for one in status["blockers"]:
        reasons = ", ".join(one["reasons"])
        if about := [*one["taints"], *one["terms"]]:
            reasons += f": {', '.join(about)}"
        blockers.append(f"{reasons} ({one['most']})" if one["most"] else reasons)
    return [
        status["pods"],
        status["state"],
        "; ".join(blockers) or NONE,
        status["oldest"],
    ]


@PRINTERS.of(
    "WaitingTimes",
    NAME,
    "Waiting:integer, Median, P95, Longest, Over Goal:integer, Starved, Placed::1",
    "Placed Median::1, Placed P95::1",
    name=lambda item: name_of(item) or NONE,
)
def _waiting_times(item: Manifest, now: datetime) -> Cells:
    waiting, placed = item["waiting"] or {}, item["placed"] or {}
    return [
        waiting.get("pods", 0),
        *_durations(waiting, "medianSeconds", "p95Seconds", "longestSeconds"),
        waiting.get("overGoal", 0),
        NONE if item["starved"] is None else str(item["starved"]),
        str(placed.get("pods", 0)) if item["tellsPlaced"] else NONE,
        *_durations(placed, "medianSeconds", "p95Seconds"),
    ]


def _durations(times: Manifest, *names: str) -> Cells:
    return [human_duration(times[name]) if name in times else NONE for name in names]
