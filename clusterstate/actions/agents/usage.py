"""Usage reports of node agents, which are not in the change log (R135, R141).

A report under pressure sets the node's condition, and so its taint, in its own transaction:
otherwise the replacement of a pod that fails for it could be placed on the same node. The condition
stays until the pressure has been absent for ``PRESSURE_TRANSITION_SECONDS``, since the evictions
end it. Rule: evictionPressureTransitionPeriod, pkg/kubelet/eviction/eviction_manager.go, v1.36.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import INVALID, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.nodes.usage import NodeReport, Report
from clusterstate.queries.objects import get_object

SEEN: Final = "lastPressureAt"
"""Key in an outcome: the time of the last report under each pressure that is still declared."""
_TOLD: Final[Mapping[str, Mapping[bool, tuple[str, str]]]] = {
    "MemoryPressure": {
        True: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        False: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    },
    "DiskPressure": {
        True: ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        False: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    },
    "PIDPressure": {
        True: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        False: ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    },
}
"""Reason and message of each condition, under pressure or not (pkg/kubelet/nodestatus/setters.go).
"""


def report(node_name: str, manifest: Manifest, *, now: datetime) -> Report:
    """Store the report of a node's agent, set the node's conditions from it, and return it parsed.

    One transaction: one statement, and two more writes while there is pressure or when it ends.

    Raises:
        NotFound: there is no such node.
        Invalid: the report does not decode as ``Report``.
    """
    get_object("Node", "", node_name)
    try:
        read = msgspec.convert(manifest, Report)
    except msgspec.ValidationError as error:
        cause = FieldError(INVALID, "usage", manifest, str(error))
        raise Invalid("NodeUsage", node_name, [cause], "stowage.dev") from None
    with transaction.atomic():
        row = sql.fetch_one(
            "INSERT INTO node_usage (node_name, usage, reported_at, outcome)"
            " VALUES (%s::text, %s::text::jsonb, %s::timestamptz, '{}'::jsonb)"
            " ON CONFLICT (node_name) DO UPDATE"
            " SET usage = excluded.usage, reported_at = excluded.reported_at"
            " RETURNING outcome::text",
            (node_name, msgspec.json.encode(read).decode(), now),
        )
        assert row is not None
        last_seen: dict[str, str] = msgspec.json.decode(row[0]).get(SEEN) or {}
        if last_seen or read.pressures:
            _declare(node_name, read, last_seen, now)
    return read


def _declare(node_name: str, read: Report, last_seen: Mapping[str, str], now: datetime) -> None:
    """Set the node's conditions from its report, and store when it was last under pressure."""
    patience = timedelta(seconds=settings.PRESSURE_TRANSITION_SECONDS)
    over = {
        kind
        for kind, at in last_seen.items()
        if kind not in read.pressures and now - datetime.fromisoformat(at) >= patience
    }
    remaining = {kind: at for kind, at in last_seen.items() if kind not in over}
    remaining |= dict.fromkeys(read.pressures, now.isoformat())
    pressures = dict.fromkeys(over, False) | dict.fromkeys(read.pressures, True)

    def declared(manifest: Manifest) -> Manifest:
        status = manifest.get("status") or {}
        conditions = list(status.get("conditions") or ())
        for kind, is_true in sorted(pressures.items()):
            conditions = _with(conditions, kind, is_true=is_true, now=now)
        return {**manifest, "status": {**status, "conditions": conditions}}

    if pressures:
        objects.update("Node", "", node_name, declared, subresource="status", now=now)
    sql.run(
        "UPDATE node_usage SET outcome = outcome || %s::text::jsonb WHERE node_name = %s::text",
        (msgspec.json.encode({SEEN: remaining}).decode(), node_name),
    )


def _with(conditions: list[Manifest], kind: str, *, is_true: bool, now: datetime) -> list[Manifest]:
    """Return the conditions with that of a pressure; unchanged if its status is the same."""
    status = "True" if is_true else "False"
    present = next((one for one in conditions if one.get("type") == kind), None)
    if present is not None and present.get("status") == status:
        return conditions
    reason, message = _TOLD[kind][is_true]
    stamp = document.format_time(now)
    entry = {
        **(present or {"lastHeartbeatTime": stamp}),
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp,
    }
    if present is None:
        return [*conditions, entry]
    return [entry if one is present else one for one in conditions]


def conclude(reported: NodeReport, outcome: dict[str, Any], *, now: datetime) -> None:
    """Store the outcome of a report, unless a newer report came."""
    sql.run(
        "UPDATE node_usage"
        " SET outcome = %s::text::jsonb"
        f" || jsonb_build_object('{SEEN}', coalesce(outcome -> '{SEEN}', '{{}}')),"
        " judged_at = CASE WHEN reported_at = %s::timestamptz THEN %s::timestamptz END"
        " WHERE node_name = %s::text",
        (msgspec.json.encode(outcome).decode(), reported.reported_at, now, reported.node_name),
    )
