"""Sends the spans of traced pods when the pods are bound (``clusterstate.telemetry.tracing``)."""

from collections.abc import Sequence

import msgspec

from clusterstate.objects.rules.own_annotations import TRACE
from clusterstate.queries.pods import annotations_of, pods_by_id
from clusterstate.telemetry import tracing


class Times(msgspec.Struct, frozen=True):
    """When a pod was created, left the queue, was decided and was bound; epoch seconds."""

    since: float
    popped_at: float
    decided_at: float
    bound_at: float


def send(pods: Sequence[tuple[int, Times]]) -> None:
    """Send the spans of those pods that have a trace annotation. Queries twice."""
    carried = annotations_of([pod_id for pod_id, _ in pods], TRACE)
    rows = pods_by_id(list(carried))
    for pod_id, times in pods:
        if pod_id not in carried or (row := rows.get(pod_id)) is None:
            continue
        tracing.scheduled(
            carried[pod_id],
            since=times.since,
            popped_at=times.popped_at,
            decided_at=times.decided_at,
            bound_at=times.bound_at,
            attributes={
                "k8s.namespace.name": row.namespace,
                "k8s.pod.name": row.name,
                "k8s.node.name": row.node_name,
            },
        )
