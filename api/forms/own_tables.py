"""The columns that ``kubectl get`` prints of what is Stowage's own, such as plans and brakes.

The clock is an argument, as in ``tables``.
"""

from datetime import datetime

from api.forms.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cells,
    Printer,
    age_of,
    columns_of,
    created,
    human_duration,
    name_of,
    parse_time,
)
from clusterstate.objects.meta import Manifest


def _left(text: str | None, now: datetime) -> str:
    """Return how long it is until a moment, 0s where that is over."""
    moment = parse_time(text)
    return UNKNOWN if moment is None else human_duration(max(0.0, (moment - now).total_seconds()))


def _plan(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    operation, summary = status["operation"], status.get("summary") or {}
    by = (item["metadata"].get("annotations") or {}).get("stowage.dev/created-by")
    return [
        name_of(item),
        operation["state"],
        f"{operation['done']}/{operation['steps']}",
        operation["held"],
        operation["failed"],
        summary.get("leaving", 0),
        summary.get("stuck", 0),
        created(item, now),
        by or NONE,
        operation.get("appliedBy") or NONE,
    ]


def _brake(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    return [
        name_of(item),
        status["state"],
        f"{status['leaving']}/{status['total']}",
        f"{spec['limitPercent']:g}%",
        status.get("approvedBy") or NONE,
        _left(status["until"], now) if "until" in status else NONE,
        created(item, now),
    ]


def _canary(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    return [
        name_of(item),
        status["state"],
        _left(status["guardedUntil"], now) if status["state"] == "Switched" else NONE,
        created(item, now),
        status.get("message") or NONE,
    ]


def _webhook(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    return [
        name_of(item),
        spec["url"],
        ",".join(spec["types"]),
        bool(spec.get("suspended", False)),
        status["delivered"],
        status["refused"],
        _left(status["nextTry"], now) if "nextTry" in status else NONE,
        created(item, now),
        status["failures"],
        status["gaps"],
    ]


def _decision(item: Manifest, now: datetime) -> Cells:
    pod, nodes = item["pod"], item["nodes"]
    return [
        name_of(item),
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


def _waiting_pod(item: Manifest, now: datetime) -> Cells:
    waits = item["status"]["waitingFor"]
    due = parse_time(waits[0]["dueAt"]) if waits else None
    left = UNKNOWN if due is None else human_duration(max((due - now).total_seconds(), 0))
    plugins = ",".join(one["plugin"] for one in waits)
    return [name_of(item), item["spec"]["nodeName"], plugins or NONE, left, created(item, now)]


def _eviction(item: Manifest, now: datetime) -> Cells:
    spec, status = item["spec"], item["status"]
    taint = spec.get("taint") or {}
    due, landing = parse_time(status.get("dueAt")), status.get("landing") or {}
    return [
        name_of(item),
        spec.get("nodeName", ""),
        spec.get("cause", ""),
        f"{taint['key']}:{taint['effect']}" if taint else NONE,
        UNKNOWN if due is None else human_duration(max(0.0, (due - now).total_seconds())),
        status.get("dueAt", ""),
        status.get("blockedBy") or NONE,
        landing.get("nodeName") or (landing and "nowhere") or NONE,
    ]


def _selection(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    named = [f"{one['kind'].lower()}.{one['name']} ({one['shared']})" for one in status["overlaps"]]
    more = status["overlapping"] - len(named)
    return [
        name_of(item),
        status.get("pods", 0),
        status.get("nodes", NONE),
        ", ".join([*named, f"{more} more"] if more else named) or NONE,
        item["spec"]["selector"] or NONE,
    ]


def _headroom(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    told = [f"{one['reason']} ({one['nodes']})" for one in status["blockers"]]
    fits = f"{status['fits']}+" if status["limited"] else str(status["fits"])
    return [name_of(item), fits, status["nodeCount"], "; ".join(told) or NONE]


def _waiting_group(item: Manifest, now: datetime) -> Cells:
    status = item["status"]
    told = [
        f"{', '.join(one['reasons'])} ({one['most']})" if one["most"] else ", ".join(one["reasons"])
        for one in status["blockers"]
    ]
    return [
        name_of(item),
        status["pods"],
        status["state"],
        "; ".join(told) or NONE,
        status["oldest"],
        created(item, now),
    ]


def _waiting_times(item: Manifest, now: datetime) -> Cells:
    waiting, placed = item["waiting"] or {}, item["placed"] or {}
    return [
        name_of(item) or NONE,
        waiting.get("pods", 0),
        *_durations(waiting, "medianSeconds", "p95Seconds", "longestSeconds"),
        waiting.get("overGoal", 0),
        NONE if item["starved"] is None else str(item["starved"]),
        str(placed.get("pods", 0)) if item["tellsPlaced"] else NONE,
        *_durations(placed, "medianSeconds", "p95Seconds"),
    ]


def _durations(times: Manifest, *names: str) -> Cells:
    return [human_duration(times[name]) if name in times else NONE for name in names]


PRINTERS: dict[str, Printer] = {
    "Plan": Printer(
        [
            NAME,
            *columns_of(
                "State",
                "Done",
                "Held:integer",
                "Failed:integer",
                "Leaving:integer",
                "Stuck:integer",
            ),
            AGE,
            *columns_of("Made By::1", "Applied By::1"),
        ],
        _plan,
    ),
    "Brake": Printer(
        [NAME, *columns_of("State", "Leaving", "Limit", "Approved By", "For"), AGE], _brake
    ),
    "Canary": Printer(
        [NAME, *columns_of("State", "Guarded For"), AGE, *columns_of("Message::1")], _canary
    ),
    "Webhook": Printer(
        [
            NAME,
            *columns_of(
                "URL",
                "Types",
                "Suspended:boolean",
                "Delivered:integer",
                "Refused:integer",
                "Next Try",
            ),
            AGE,
            *columns_of("Failures:integer:1", "Gaps:integer:1"),
        ],
        _webhook,
    ),
    "Decision": Printer(
        [
            NAME,
            *columns_of("Pod", "Outcome", "Node", "Feasible"),
            AGE,
            *columns_of("Total:integer:1", "Margin::1", "Ties:integer:1", "Message::1"),
        ],
        _decision,
    ),
    "WaitingPod": Printer(
        [NAME, *columns_of("Node", "Waiting For", "Time Left"), AGE], _waiting_pod
    ),
    "Headroom": Printer([NAME, *columns_of("Fits", "Nodes:integer", "Next Blocked By")], _headroom),
    "WaitingGroup": Printer(
        [NAME, *columns_of("Pods:integer", "State", "Blocked By", "Oldest::1"), AGE],
        _waiting_group,
    ),
    "WaitingTimes": Printer(
        [
            NAME,
            *columns_of(
                "Waiting:integer",
                "Median",
                "P95",
                "Longest",
                "Over Goal:integer",
                "Starved",
                "Placed::1",
                "Placed Median::1",
                "Placed P95::1",
            ),
        ],
        _waiting_times,
    ),
    "Selection": Printer(
        [NAME, *columns_of("Pods:integer", "Nodes", "Overlaps", "Selector::1")], _selection
    ),
    "Eviction": Printer(
        [
            NAME,
            *columns_of("Node", "Cause", "Taint", "Leaves In", "Due::1", "Blocked By", "Lands On"),
        ],
        _eviction,
    ),
}
