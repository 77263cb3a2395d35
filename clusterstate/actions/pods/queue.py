"""The queue's rows: why a pod was not placed, and its place in the queue."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from clusterstate.actions.pods.classes import as_json
from clusterstate.actions.pods.clauses import PENDING, log_versions, returning_versions
from clusterstate.actions.pods.status import nominate
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values import document


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that could not be placed, and its place in the queue.

    ``reason`` and ``message`` become the PodScheduled=False condition. ``stage``, ``attempts``,
    ``early``, ``not_before`` and ``rejected_by`` are its place in the queue. ``refused_revision``
    and ``refused_under``: the last revision, and the configuration, that the decision included.
    ``nominated_node_name``: ``None`` leaves status.nominatedNodeName unchanged, a text sets it.
    """

    pod_id: int
    message: str
    reason: str = "Unschedulable"
    rejected_by: tuple[str, ...] = ()
    stage: str = "unschedulable"
    attempts: int = 1
    early: int = 0
    not_before: datetime | None = None
    refused_revision: int = 0
    refused_under: int = 0
    nominated_node_name: str | None = None


class QueueMove(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting pod's new place in the queue; nothing of the pod itself changes.

    ``since``: when it could first be tried, for a pod that was gated until now.
    """

    pod_id: int
    stage: str
    attempts: int
    since: datetime
    early: int = 0
    not_before: datetime | None = None


_SET_UNSCHEDULABLE = f"""
    {changes.WITH_GATE},
    refused AS MATERIALIZED (
        SELECT * FROM unnest(%s, %s, %s) WITH ORDINALITY
            AS t(condition, message, rejected_by, number)),
    input AS MATERIALIZED (
        SELECT i.*, t.condition, t.message, string_to_array(t.rejected_by, ',') AS rejected_by
        FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s)
             AS i(pod_id, number, stage, attempts, early, not_before, revision, configuration)
        JOIN refused t USING (number)),
    marked AS (
        UPDATE pod p
        SET unschedulable = '{{"lastTransitionTime":"'
                || coalesce(p.unschedulable::json ->> 'lastTransitionTime', %s::text) || '",'
                || i.condition,
            revision = {changes.NEXT}
        FROM gate, input i
        WHERE gate.opened = 1 AND p.id = i.pod_id AND {PENDING}
          AND p.unschedulable IS DISTINCT FROM '{{"lastTransitionTime":"'
                || coalesce(p.unschedulable::json ->> 'lastTransitionTime', %s::text) || '",'
                || i.condition
        {returning_versions()}),
    queued AS (
        UPDATE pending_pod q
        SET stage = i.stage, attempts = i.attempts, early = i.early, not_before = i.not_before,
            rejected_by = i.rejected_by, message = i.message,
            refused_revision = i.revision, refused_under = i.configuration
        FROM input i
        WHERE q.pod_id = i.pod_id AND q.pod_id = ANY (ARRAY(SELECT pod_id FROM input))),
    logged AS ({log_versions("marked")})
    SELECT id, revision FROM marked ORDER BY revision
"""

_SET_UNSCHEDULABLE = " ".join(_SET_UNSCHEDULABLE.split())


def set_unschedulable(items: Sequence[Unschedulable], *, now: datetime) -> list[tuple[int, int]]:
    """Record why pods were not placed and where they wait; return (pod id, revision) of changes.

    A pod whose condition is the same already gets its place in the queue and no change; the
    transition time stays that of the first refusal. Pods bound or gone meanwhile are skipped.
    """
    if not items:
        return []
    ordered = sorted(items, key=lambda item: item.pod_id)
    moment = document.format_time(now)
    # Thousands have the same message: the text is sent once.
    numbers: dict[tuple[str, str, tuple[str, ...]], int] = {}
    message_numbers = [
        numbers.setdefault((item.message, item.reason, item.rejected_by), len(numbers) + 1)
        for item in ordered
    ]
    parameters = (
        *actors.gate(),
        sql.Texts(
            [
                f'"message":{as_json(message)},"reason":{as_json(reason)},'
                '"status":"False","type":"PodScheduled"}'
                for message, reason, _ in numbers
            ]
        ),
        sql.Texts([message for message, _, _ in numbers]),
        sql.Texts([",".join(rejected_by) for _, _, rejected_by in numbers]),
        sql.Int8s([item.pod_id for item in ordered]),
        sql.Int8s(message_numbers),
        sql.Texts([item.stage for item in ordered]),
        sql.Int4s([item.attempts for item in ordered]),
        sql.Int4s([item.early for item in ordered]),
        sql.Times([item.not_before for item in ordered]),
        sql.Int8s([item.refused_revision for item in ordered]),
        sql.Int8s([item.refused_under for item in ordered]),
        moment,
        moment,
        now,
    )

    def mark() -> list[sql.Row]:
        rows = sql.fetch(_SET_UNSCHEDULABLE, parameters)
        if rows:
            changes.announce(rows[-1][1], ("Pod",))
        return rows

    # Nominations come first: a restarted scheduler tries pods that are nominated, or not yet
    # refused. A pod with a refusal and no nomination would wait until something changes.
    changing = _whose_nomination_changes(ordered)
    found = dict(nominate({one.pod_id: one.nominated_node_name or "" for one in changing}, now=now))
    found.update((row[0], row[1]) for row in again_after_deadlock(mark))
    return sorted(found.items())


def _whose_nomination_changes(items: Sequence[Unschedulable]) -> list[Unschedulable]:
    """Return the items that set a nomination, or clear an existing one. Queries at most once."""
    clearing = [item.pod_id for item in items if item.nominated_node_name == ""]
    nominated: set[int] = set()
    if clearing:
        rows = sql.fetch(
            "SELECT id FROM pod WHERE id = ANY(%s) AND nominated_node_name <> ''",
            (sql.Int8s(clearing),),
        )
        nominated = {row[0] for row in rows}
    return [item for item in items if item.nominated_node_name or item.pod_id in nominated]


_MOVE = """
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(%s, %s, %s, %s, %s, %s)
            AS i(pod_id, stage, attempts, early, not_before, since))
    UPDATE pending_pod q
    SET stage = i.stage, attempts = i.attempts, early = i.early, not_before = i.not_before,
        since = CASE WHEN q.stage = 'gated' AND i.stage <> 'gated' THEN i.since ELSE q.since END
    FROM input i
    WHERE q.pod_id = i.pod_id AND q.pod_id = ANY (ARRAY(SELECT pod_id FROM input))
"""


def move_pending(moves: Sequence[QueueMove]) -> int:
    """Write waiting pods' places in the queue; return how many still wait. No change is logged."""
    if not moves:
        return 0
    ordered = sorted(moves, key=lambda move: move.pod_id)
    return sql.run(
        _MOVE,
        (
            sql.Int8s([move.pod_id for move in ordered]),
            sql.Texts([move.stage for move in ordered]),
            sql.Int4s([move.attempts for move in ordered]),
            sql.Int4s([move.early for move in ordered]),
            sql.Times([move.not_before for move in ordered]),
            sql.Times([move.since for move in ordered]),
        ),
    )
