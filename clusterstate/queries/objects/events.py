"""Events: composed from typed columns, or from the document of a client's event."""

from collections.abc import Sequence
from typing import Any, Final

from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.queries.pods import _encoder

EVENT_COLUMNS = (
    "t.namespace, t.name, t.revision, t.uid, t.involved_kind, t.involved_api_version,"
    " t.involved_namespace, t.involved_name, t.involved_uid, t.involved_resource_version,"
    " t.involved_field_path, t.reason, t.type, t.message, t.component, t.count, t.first_at,"
    " t.last_at, d.text"
)

_ACTIONS: Final = {
    "Scheduled": "Binding",
    "FailedScheduling": "Scheduling",
    "Preempted": "Preempting",
}
"""What the scheduler did, by the reason of its event (pkg/scheduler/schedule_one.go, v1.36)."""

EVENT_FROM = "event t LEFT JOIN document d ON d.id = t.document_id"


def find_event(namespace: str, name: str) -> bytes | None:
    """Return an event as JSON, or ``None``. Queries once."""
    row = sql.fetch_one(
        f"SELECT {EVENT_COLUMNS} FROM {EVENT_FROM} WHERE t.namespace = %s AND t.name = %s",
        (namespace, name),
    )
    return None if row is None else compose_event(row)


def compose_event(row: Sequence[Any]) -> bytes:
    """Return a v1 Event from the columns of ``EVENT_COLUMNS``; a client's from its document.

    The service's own have an ``eventTime``, as kube-scheduler's do, and the fields that such an
    event requires: typed clients refuse a list of ``events.k8s.io`` in which one lacks them.
    """
    (
        namespace, name, revision, uid, kind, api_version, involved_namespace, involved_name,
        involved_uid, involved_resource_version, field_path, reason, type_, message, component,
        count, first_at, last_at, text,
    ) = row  # fmt: skip
    if text is not None:
        return document.compose(text, revision)
    involved = {"kind": kind, "name": involved_name}
    first = document.format_time(first_at)
    optional = {
        "apiVersion": api_version,
        "namespace": involved_namespace,
        "uid": involved_uid,
        "resourceVersion": involved_resource_version,
        "fieldPath": field_path,
    }
    involved |= {key: value for key, value in optional.items() if value}
    return _encoder.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": str(uid),
                "resourceVersion": str(revision),
                "creationTimestamp": first,
            },
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": {"component": component} if component else {},
            "reportingComponent": component,
            "reportingInstance": component,
            "action": _ACTIONS.get(reason, reason),
            "eventTime": document.format_micro_time(first_at),
            "count": count,
            "firstTimestamp": first,
            "lastTimestamp": document.format_time(last_at),
        }
    )


def event_manifests(ids: Sequence[int]) -> dict[int, tuple[bytes, bool]]:
    """Return events as JSON by id, as they are now, and whether they are the service's own.

    An own event that a client has changed counts as the client's. Queries once.
    """
    rows = sql.fetch(
        f"SELECT t.id, {EVENT_COLUMNS} FROM {EVENT_FROM} WHERE t.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return {row[0]: (compose_event(row[1:]), row[-1] is None) for row in rows}
