"""Reads for explanations: decisions, configurations, and pods as they were at a revision."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from clusterstate.change_log import lineage
from clusterstate.database import sql
from clusterstate.objects.values import document, ending
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.compatibility import parse as parse_version
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.pod import DEFAULT_SCHEDULER

_LATEST = timedelta(minutes=20)
"""Pods of decisions at most this much earlier may still have been waiting for their binding.

Permit plugins may hold a pod for 15 minutes."""


_UNWRITTEN = timedelta(seconds=5)
"""Nominations of decisions at most this much earlier may not have been written yet."""
_MOST_BEFORE = 50_000
"""More decisions than the scheduler ever has between deciding and binding."""


class DecisionRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the table ``decision``; ``body`` is packed.

    ``taken_back``: for a stale decision, the number of the first decision after the scheduler had
    withdrawn it.
    """

    pod_id: int
    at: datetime
    class_id: int
    snapshot_revision: int
    profile: str
    profile_revision: int
    seed: int
    draw: int
    start: int
    outcome: str
    node_name: str
    total: int
    margin: int | None
    ties: int
    node_count: int
    evaluated: int
    feasible: int
    message: str
    body: bytes
    taken_back: int | None = None


class Turn(msgspec.Struct, frozen=True):
    """A decision's place in order: the scheduler, its run (epoch), and the number within that."""

    scheduler: int
    epoch: int
    number: int


class Record(DecisionRow, frozen=True, gc=False, kw_only=True):
    """A decision as stored, with the pod's names.

    ``body`` and the table of ``table_digest`` are packed (`scheduling.engine.reference.record`).
    """

    id: int
    pod_uid: str
    namespace: str
    name: str
    table_digest: bytes | None
    scheduler: int
    epoch: int
    number: int


class Placement(msgspec.Struct, frozen=True):
    """An unfinished pod at a revision. ``node_name`` is empty if it had no node.

    ``preempted``: it was terminating because of preemption.
    """

    pod_id: int
    class_id: int
    node_name: str
    started_at: datetime | None
    terminating: bool
    nominated_node_name: str
    preempted: bool = False


class StoredConfiguration(msgspec.Struct, frozen=True):
    """A version of the scheduler's configuration; ``document`` is JSON."""

    revision: int
    document: str
    at: datetime
    by: str


COLUMNS = ", ".join(
    f"{name}::text" if name == "pod_uid" else name for name in Record.__struct_fields__
)


def of_pod(
    namespace: str,
    name: str,
    *,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Record]:
    """Return the decisions about pods of this name between two moments, the latest first.

    Queries once.
    """
    return _records(
        f"SELECT {COLUMNS} FROM decision WHERE namespace = %s AND name = %s"
        " AND (%s::timestamptz IS NULL OR at >= %s::timestamptz)"
        " AND (%s::timestamptz IS NULL OR at <= %s::timestamptz) ORDER BY id DESC LIMIT %s",
        (namespace, name, since, since, until, until, limit),
    )


def find(decision_id: int) -> Record | None:
    """Return a decision, or ``None``. Queries once."""
    found = _records(f"SELECT {COLUMNS} FROM decision WHERE id = %s::bigint", (decision_id,))
    return found[0] if found else None


def with_one_seed(record: Record) -> list[Record]:
    """Return the decisions with the batch, and the seed in it, of ``record``, in order.

    For a group these are all of its pods; if all batches have one seed, there are others. Queries
    once.
    """
    return _records(
        f"SELECT {COLUMNS} FROM decision WHERE at = %s::timestamptz AND seed = %s::bigint"
        " AND scheduler = %s::smallint AND epoch = %s::bigint ORDER BY number, id",
        (record.at, record.seed, record.scheduler, record.epoch),
    )


def _records(statement: str, parameters: Sequence[Any]) -> list[Record]:
    return [as_record(row) for row in sql.fetch(statement, parameters)]


def as_record(row: Sequence[Any]) -> Record:
    """Return a row of the columns ``COLUMNS`` as a record."""
    return Record(**dict(zip(Record.__struct_fields__, row, strict=True)))


def table(digest: bytes) -> bytes | None:
    """Return a packed full table, or ``None`` when it is gone. Queries once."""
    row = sql.fetch_one("SELECT body FROM decision_table WHERE digest = %s", (digest,))
    return None if row is None else bytes(row[0])


class PodPlacement(msgspec.Struct, frozen=True):
    """A pod's chosen node; ``came_back``: the pod was never bound to that node."""

    class_id: int
    node_name: str
    came_back: bool


def placed_before(record: Record) -> dict[int, PodPlacement]:
    """Return where pods were placed shortly before a decision, by pod id, in turn. Queries once.

    By the same scheduler: it learns of others' decisions only when pods are bound. Not all were
    bound when the decision was made: the scheduler counts a pod from its decision on, until it
    withdraws a decision that came too late. A restarted scheduler still counts pods that were
    reserved before, so earlier epochs are included.
    """
    rows = sql.fetch(
        """
        SELECT pod_id, class_id, node_name, stale, counted FROM (
        SELECT DISTINCT ON (pod_id) pod_id, class_id, node_name, outcome = 'stale' AS stale,
            outcome = 'scheduled'
            OR outcome = 'stale' AND epoch = %s::bigint AND taken_back > %s::bigint AS counted,
            epoch, number, id
        FROM decision
        WHERE id < %s::bigint AND id > %s::bigint
          AND at > %s::timestamptz AND at <= %s::timestamptz
          AND pod_id <> %s::bigint AND scheduler = %s::smallint
          AND (epoch, number, id) < (%s::bigint, %s::bigint, %s::bigint)
        ORDER BY pod_id, epoch DESC, number DESC, id DESC
        ) AS latest ORDER BY epoch, number, id
        """,
        (
            record.epoch,
            record.number,
            record.id,
            record.id - _MOST_BEFORE,
            record.at - _LATEST,
            record.at,
            record.pod_id,
            record.scheduler,
            record.epoch,
            record.number,
            record.id,
        ),
    )
    return {pod_id: PodPlacement(*placed) for pod_id, *placed, is_counted in rows if is_counted}


class RefusedDecision(msgspec.Struct, frozen=True):
    """A pod for which no node was found; ``body`` is packed."""

    pod_id: int
    class_id: int
    body: bytes


def refused_before(record: Record) -> list[RefusedDecision]:
    """Return the refusals shortly before a decision that are not in its snapshot, in order.

    A refused pod may have been nominated to a node, which counts for the next decisions at once,
    and is in the change log a moment later. Queries once.
    """
    rows = sql.fetch(
        """
        SELECT d.pod_id, d.class_id, d.body FROM decision d
        WHERE d.id < %s::bigint AND d.id > %s::bigint
          AND d.at > %s::timestamptz AND d.at <= %s::timestamptz
          AND d.pod_id <> %s::bigint AND d.scheduler = %s::smallint AND d.epoch = %s::bigint
          AND d.number < %s::bigint AND d.outcome = 'unschedulable'
          AND NOT EXISTS (
            SELECT FROM change c
            WHERE c.revision > d.snapshot_revision AND c.revision <= %s::bigint
              AND c.kind = 1 AND c.object_id = d.pod_id)
        ORDER BY d.number
        """,
        (
            record.id,
            record.id - _MOST_BEFORE,
            record.at - _UNWRITTEN,
            record.at,
            record.pod_id,
            record.scheduler,
            record.epoch,
            record.number,
            record.snapshot_revision,
        ),
    )
    return [RefusedDecision(*row) for row in rows]


_PLACEMENTS = f"""
SELECT p.id, p.class_id, p.node_name, coalesce(p.started_at, p.scheduled_at),
       p.deletion_at IS NOT NULL, p.nominated_node_name,
       (SELECT d.text FROM document d WHERE d.id = p.document_id AND p.deletion_at IS NOT NULL
          AND strpos(d.text, %s) > 0)
FROM pod p WHERE p.revision <= %s::bigint AND p.phase NOT IN ('Succeeded', 'Failed')
UNION ALL
SELECT r.object_id, r.previous_class_id, coalesce(r.previous_node_name, ''),
       coalesce(nullif(substring(d.text FROM '"startTime":"([^"]*)"'), '')::timestamptz,
                r.previous_scheduled_at),
       r.previous_eviction IS NOT NULL OR {sql.IS_LEAVING},
       coalesce(replace(d.text, chr(1), '')::json #>> '{{status,nominatedNodeName}}', ''),
       CASE WHEN strpos(d.text, %s) > 0 THEN d.text END
FROM (SELECT DISTINCT ON (object_id) * FROM change
      WHERE revision > %s::bigint AND kind = 1 ORDER BY object_id, revision) r
JOIN document d ON d.id = r.previous_document_id
WHERE r.previous_revision IS NOT NULL
  AND coalesce(r.previous_phase, '') NOT IN ('Succeeded', 'Failed')
"""


def placements_at(revision: int) -> list[Placement]:
    """Return all unfinished pods as they were at ``revision``. Queries twice.

    Raises:
        Expired: the change log no longer reaches back so far.
    """
    word = f'"{ending.PREEMPTED}"'
    rows = sql.fetch(_PLACEMENTS, (word, revision, word, revision))
    kept_after = lineage.kept_after()
    if kept_after > revision:
        raise Expired(f"too old resource version: {revision} ({kept_after})")
    return [Placement(*(*row[:6], bool(row[6] and row[4] and _made_room(row[6])))) for row in rows]


def _made_room(text: str) -> bool:
    return ending.is_preempted(document.conditions(text))


class AdmissionRules(msgspec.Struct, frozen=True):
    """The parts of the scheduler's configuration that admission needs.

    ``compatibility``: the version of Kubernetes that it names; ``profiles``: their names.
    """

    compatibility: Compatibility
    profiles: frozenset[str]


def admission_rules() -> AdmissionRules:
    """Return the parts of the latest configuration that concern admission. Queries once."""
    row = sql.fetch_one(
        "SELECT document::json ->> 'compatibility',"
        " ARRAY(SELECT coalesce(nullif(p ->> 'schedulerName', ''), %s)"
        " FROM json_array_elements(CASE json_typeof(document::json -> 'profiles')"
        " WHEN 'array' THEN document::json -> 'profiles' ELSE '[]' END) p)"
        " FROM scheduler_configuration ORDER BY revision DESC LIMIT 1",
        (DEFAULT_SCHEDULER,),
    )
    version, names = (None, []) if row is None else row
    found = parse_version(version) if version else None
    return AdmissionRules(found or NEWEST, frozenset(names or [DEFAULT_SCHEDULER]))


# Configurations --------------------------------------------------------------------------------

CONFIGURATIONS_KEPT = 100
"""So many versions of the scheduler's configuration are kept, however old."""
_CONFIGURATION = "SELECT revision, document, at, by FROM scheduler_configuration"


def configuration(revision: int | None = None) -> StoredConfiguration | None:
    """Return a stored configuration, the one in force by default; ``None`` when there is none.

    Queries once.
    """
    if revision is None:
        row = sql.fetch_one(f"{_CONFIGURATION} ORDER BY revision DESC LIMIT 1")
    else:
        row = sql.fetch_one(f"{_CONFIGURATION} WHERE revision = %s::bigint", (revision,))
    return None if row is None else StoredConfiguration(*row)


def configuration_at(moment: datetime) -> StoredConfiguration | None:
    """Return the configuration that was in force at a moment, ``None`` where none was stored yet.

    Queries twice.

    Raises:
        Expired: the one in force then may have been dropped.
    """
    row = sql.fetch_one(
        f"{_CONFIGURATION} WHERE at <= %s::timestamptz ORDER BY revision DESC LIMIT 1", (moment,)
    )
    found = None if row is None else StoredConfiguration(*row)
    following = 1 if found is None else found.revision + 1
    row = sql.fetch_one(
        "SELECT min(revision) FILTER (WHERE revision >= %s::bigint), max(revision)"
        " FROM scheduler_configuration",
        (following,),
    )
    assert row is not None
    oldest, last = row
    # Dry runs skip numbers as well, but none of the last ones was dropped.
    if oldest is not None and following < oldest and following <= last - CONFIGURATIONS_KEPT:
        raise Expired(f"the configuration of {moment:%Y-%m-%dT%H:%M:%SZ} is not kept any more")
    return found


def configurations(*, limit: int, before: int | None = None) -> list[StoredConfiguration]:
    """Return stored configurations, the latest first. Queries once."""
    rows = sql.fetch(
        f"{_CONFIGURATION} WHERE revision < coalesce(%s::bigint, 1::bigint << 62)"
        " ORDER BY revision DESC LIMIT %s::bigint",
        (before, limit),
    )
    return [StoredConfiguration(*row) for row in rows]


def configuration_revision() -> int:
    """Return the revision of the configuration in force, 0 when none is stored. Queries once."""
    row = sql.fetch_one("SELECT coalesce(max(revision), 0) FROM scheduler_configuration")
    assert row is not None
    found: int = row[0]
    return found
