"""Eviction timers: set again from a judgement, and fired when they are due.

A timer is a row, so it survives everything: restarts, a lost wake-up, an emptied Redis. It is also
derived: ``restate`` replaces the timers of a set of nodes or pods, and may be called again at any
time. ``fire_taints`` claims pods with SKIP LOCKED, judges each once more by the present rows, and
removes timer and pod's place in one transaction: a pod is evicted once, never early, and never from
a node that it is not on any more.

The decision function is a parameter: ``scheduling.controllers`` has the rules.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import transaction

from clusterstate.actions import brakes
from clusterstate.actions.brakes import paces
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.pods import together
from clusterstate.actions.pods.clauses import log_versions, returning_versions
from clusterstate.actions.pods.delete import finish_deletions
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values import document, ending, moments
from clusterstate.objects.values.actor import acting, current
from clusterstate.objects.values.ending import DEFAULT_GRACE_SECONDS
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.queries.evictions.brakes import NOTHING as NOTHING_HELD
from clusterstate.queries.evictions.brakes import HeldBack, held_back, unless_held, zones_by_pod
from clusterstate.queries.evictions.eviction_timers import (
    DURING_EXECUTION,
    FIGURES,
    TAINT,
    DueTaint,
    Figures,
)
from clusterstate.queries.loops.controllers import stored_state
from clusterstate.queries.pods import GroupToDisrupt
from clusterstate.queries.pods.stays import BOUND_AT, ClassOnNode, Stay

FOLLOWER: Final = "evictions"
FOLLOWER_OF_LABELS: Final = "evictions-by-labels"
"""The names under which objects that cannot be judged, for taints or for labels, are set aside."""
COMPONENT: Final = "taint-eviction-controller"
_TAINTED: Final = "TaintManagerEviction"
EXECUTION_COMPONENT: Final = "node-affinity-eviction-controller"
EXECUTION_CONDITION: Final = ending.condition(
    ending.UNMATCHED,
    "Node affinity: deleting because the node no longer matches"
    " requiredDuringSchedulingRequiredDuringExecution",
)
BUDGET_RETRY: Final = timedelta(seconds=5)
"""How long the eviction of a pod rests after its disruption budget refused it."""
LANDING_RETRY: Final = timedelta(seconds=0.5)
LANDING_PATIENCE: Final = timedelta(seconds=15)
"""How long an eviction waits at most for a forecast of the node that the pod would go to."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to be evicted at ``due_at``, by its timers.

    For a taint: one pod, ``pod_id``, while it is at ``place``. For labels: every pod of the place,
    and ``pod_id`` is 0.
    """

    place: ClassOnNode
    pod_id: int = 0
    started_at: datetime
    due_at: datetime
    seconds: int = 0
    taint_key: str = ""
    taint_effect: str = ""


class TimerChanges(msgspec.Struct, frozen=True):
    """How many timers were dropped and how many set or moved; the earliest new due time."""

    dropped: int
    written: int
    next_due: datetime | None


class FiredTimers(msgspec.Struct, frozen=True):
    """The result of a batch of due timers.

    ``evicted``: pod ids. ``changed`` counts stale timers, ``busy`` those whose pod another
    transaction has locked now: they stay due. ``news``: events to record.
    """

    evicted: list[int]
    changed: int
    busy: int
    news: list[Occurrence]
    due_at: list[datetime]
    """When the evicted pods were due, without those that only leave with their group."""


# Planning -------------------------------------------------------------------------------------

# Members are sorted, and the last one of this name is the spec's.
_GRACE: Final = '"terminationGracePeriodSeconds":'
_GRACE_IN_TEXT = (
    f"substring(split_part(d.text, '{_GRACE}', -1) from '^-?[0-9]{{1,18}}(?=[,}}])')::bigint"
)


def _restate_statement(cause: str, scope: str) -> str:
    """Return the statement for the timers of one cause on some nodes, of some pods, or all.

    A timer for taints is overwritten by the departure. One for node labels keeps its start and its
    postponements while the pod is on that node.
    """
    pods_in, timers_in = {
        "nodes": ("AND p.node_name = ANY(%s)", "AND t.node_name = ANY(%s)"),
        "pods": ("AND p.id = ANY(%s)", "AND t.pod_id = ANY(%s)"),
    }[scope]
    joined = "p.id = g.pod_id AND " if cause == TAINT else ""
    again = (
        "(t.node_name, t.taint_key, t.taint_effect, t.seconds, t.started_at, t.due_at)"
        " IS DISTINCT FROM (excluded.node_name, excluded.taint_key, excluded.taint_effect,"
        " excluded.seconds, excluded.started_at, excluded.due_at)"
        if cause == TAINT
        else "t.node_name IS DISTINCT FROM excluded.node_name"
    )
    return " ".join(
        f"""
        WITH plan AS (
            SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s)
                AS g(pod_id, node_name, class_id, taint_key, taint_effect, seconds, started_at,
                     due_at)),
        wanted AS MATERIALIZED (
            SELECT p.id AS pod_id, {_GRACE_IN_TEXT} AS grace_seconds, g.node_name, g.taint_key,
                   g.taint_effect, g.seconds, g.started_at, g.due_at
            FROM plan g
            JOIN pod p ON {joined}p.node_name = g.node_name AND p.class_id = g.class_id
            JOIN document d ON d.id = p.document_id
            WHERE p.node_name <> '' AND p.deletion_at IS NULL
              AND p.phase NOT IN ('Succeeded', 'Failed') {pods_in}),
        dropped AS (
            DELETE FROM eviction_timer t
            WHERE t.cause = '{cause}' {timers_in}
              AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.pod_id = t.pod_id)
            RETURNING 1),
        written AS (
            INSERT INTO eviction_timer AS t (pod_id, cause, node_name, taint_key, taint_effect,
                                             seconds, grace_seconds, started_at, due_at,
                                             blocked_by)
            SELECT pod_id, '{cause}', node_name, taint_key, taint_effect, seconds, grace_seconds,
                   started_at, due_at, ''
            FROM wanted ORDER BY pod_id
            ON CONFLICT (pod_id, cause) DO UPDATE
            SET node_name = excluded.node_name, taint_key = excluded.taint_key,
                taint_effect = excluded.taint_effect, seconds = excluded.seconds,
                grace_seconds = excluded.grace_seconds, started_at = excluded.started_at,
                due_at = excluded.due_at, blocked_by = '', landing = NULL
            WHERE {again}
            RETURNING due_at)
        SELECT (SELECT count(*) FROM dropped), count(*), min(due_at) FROM written
        """.split()
    )


_RESTATE = {
    (cause, scope): _restate_statement(cause, scope)
    for cause in (TAINT, DURING_EXECUTION)
    for scope in ("nodes", "pods")
}


def restate(
    cause: str,
    departures: Sequence[Departure],
    *,
    node_names: Sequence[str] | None = None,
    pod_ids: Sequence[int] | None = None,
) -> TimerChanges:
    """Replace the timers of a cause, on these nodes or of these pods, by ``departures``.

    One statement; one of ``node_names`` and ``pod_ids`` is given. A pod in no departure gets no
    timer, nor does one that is gone, finished or terminating. Pods that came meanwhile are in the
    log.
    """
    assert (node_names is None) != (pod_ids is None)
    scope: sql.Array = sql.Int8s(list(pod_ids or ()))
    if node_names is not None:
        scope = sql.Texts(list(node_names))
    row = sql.fetch_one(
        _RESTATE[cause, "pods" if node_names is None else "nodes"],
        (
            sql.Int8s([departure.pod_id for departure in departures]),
            sql.Texts([departure.place.node_name for departure in departures]),
            sql.Int8s([departure.place.class_id for departure in departures]),
            sql.Texts([departure.taint_key for departure in departures]),
            sql.Texts([departure.taint_effect for departure in departures]),
            sql.Int8s([departure.seconds for departure in departures]),
            sql.Times([departure.started_at for departure in departures]),
            sql.Times([departure.due_at for departure in departures]),
            scope,
            scope,
        ),
    )
    assert row is not None
    return TimerChanges(*row)


def drop_other_nodes(node_names: Sequence[str]) -> int:
    """Drop the taint timers on all nodes except these; return how many."""
    return sql.run(
        f"DELETE FROM eviction_timer WHERE cause = '{TAINT}' AND node_name <> ALL(%s)",
        (sql.Texts(list(node_names)),),
    )


# Firing ---------------------------------------------------------------------------------------

# Each cause has its own statement, so that the few timers for labels use their own index.
_CLAIM = f"""
    SELECT pod_id, due_at, node_name FROM eviction_timer t
    WHERE due_at <= %s::timestamptz AND cause = '{DURING_EXECUTION}' AND {{condition}}
    ORDER BY due_at, pod_id LIMIT %s::bigint FOR UPDATE OF t SKIP LOCKED
"""
_CONDEMNED = f"""
    SELECT p.id, p.uid::text, p.namespace, p.name, p.class_id, p.node_name,
           p.deletion_at IS NULL AND p.phase NOT IN ('Succeeded', 'Failed'), {BOUND_AT}
    FROM pod p WHERE p.id = ANY(%s) ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED
"""
_EVICT = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.*
        FROM gate CROSS JOIN unnest(%s, %s) AS i(pod_id, deletion_at) WHERE opened = 1),
    updated AS (
        UPDATE pod p
        SET revision = n.revision, deletion_at = n.deletion_at,
            eviction = tstzrange(%s::timestamptz, n.deletion_at, '[]')
        FROM numbered n WHERE p.id = n.pod_id
        {returning_versions()}),
    terminating AS (
        INSERT INTO terminating_pod (pod_id, deletion_at) SELECT id, deletion_at FROM updated),
    done AS (DELETE FROM eviction_timer t USING updated u WHERE t.pod_id = u.id),
    logged AS ({log_versions("updated")})
    SELECT max(revision) FROM updated
"""
_EVICT = " ".join(_EVICT.split())

_encode = msgspec.json.Encoder(order="sorted").encode
NOTHING: Final = FiredTimers([], 0, 0, [], [])


def fire_taints(
    due: Sequence[DueTaint],
    *,
    now: datetime,
    judge: Callable[[Sequence[Stay]], Sequence[Departure]],
) -> FiredTimers:
    """Evict these pods, if taints require it by now; one transaction of five statements.

    ``due``: their timers as they were read. ``judge`` returns from the present rows by when pods
    must leave. A pod whose deadline moved gets its timer moved; one that may stay loses it. A group
    that leaves together does so with its first pod that is due.
    """
    if not due:
        return NOTHING
    timers = {pod_id: (due_at, grace) for pod_id, due_at, grace in due}
    with transaction.atomic():
        groups = together.hold(timers)
        pod_ids = sorted({*timers, *(one for group in groups for one in group.pods)})
        rows = sql.fetch(_CONDEMNED, (sql.Int8s(pod_ids),))
        departures = judge(
            [Stay(row[0], row[5], row[4], row[7]) for row in rows if row[5] and row[0] in timers]
        )
        late = {departure.pod_id for departure in departures if departure.due_at <= now}
        locked = {row[0] for row in rows}
        leaving, waiting = _with_groups(groups, late, locked, now)
        in_groups = {one for group in leaving for one in group.pods}
        late = (late | in_groups) - waiting
        going = [row for row in rows if row[6] and row[0] in late]
        evicted = [row[0] for row in going]
        absent = [pod_id for pod_id in timers if pod_id not in locked]
        stale = sorted(((locked & timers.keys()) - waiting - set(evicted)) | _gone(absent))
        if stale:
            restate(TAINT, departures, pod_ids=stale)
        gone = brakes.to_note(evicted)
        approved = brakes.approvals_of(evicted, now=now) if going else {}
        for cause in dict.fromkeys(approved.get(pod_id) for pod_id in evicted):
            some = [pod_id for pod_id in evicted if approved.get(pod_id) == cause]
            with acting(msgspec.structs.replace(current(), cause=cause) if cause else current()):
                graces = [timers[one][1] if one in timers else None for one in some]
                _evict(some, graces, now)
        if leaving:
            changes.note_atomic()
    brakes.note_evicted(gone, now=now)
    news = []
    for group in leaving:
        first = min((one for one in departures if one.pod_id in group.pods), key=_by_due)
        why = f"{first.taint_key}:{first.taint_effect} of node {first.place.node_name}"
        message = f"{group.pods[first.pod_id]}: taint {why}"
        news.append(together.event_of(group, _TAINTED, message))
    news += [
        Occurrence(
            kind="Pod",
            namespace=namespace,
            name=name,
            uid=uid,
            reason=_TAINTED,
            message=f"Marking for deletion Pod {namespace}/{name}",
            component=COMPONENT,
        )
        for pod_id, uid, namespace, name, *_ in going
        if pod_id not in in_groups
    ]
    done = timers.keys() & set(evicted)
    busy = len(timers) - len(done) - len(stale)
    return FiredTimers(
        evicted, len(stale), busy, news, [timers[pod_id][0] for pod_id in sorted(done)]
    )


def _by_due(one: Departure) -> tuple[datetime, int]:
    return one.due_at, one.pod_id


def _with_groups(
    groups: Sequence[GroupToDisrupt], late: Collection[int], locked: Collection[int], now: datetime
) -> tuple[list[GroupToDisrupt], set[int]]:
    """Return the groups that leave with their first late pod, and the pods that must wait.

    A group waits while another transaction holds one of its pods, or a brake does.
    """
    due = [group for group in groups if not group.pods.keys().isdisjoint(late)]
    if not due:
        return [], set()
    condition, parameters = unless_held(msgspec.structs.replace(held_back(now), paced=()))
    pods = sql.Int8s([one for group in due for one in group.pods])
    free = {
        row[0]
        for row in sql.fetch(
            f"SELECT t.pod_id FROM unnest(%s) AS t(pod_id) WHERE {condition}", (pods, *parameters)
        )
    }.intersection(locked)
    leaving = [group for group in due if free.issuperset(group.pods)]
    return leaving, {one for group in due if group not in leaving for one in group.pods}


def joined(parts: Sequence[FiredTimers]) -> FiredTimers:
    """Return the results of several batches as one result."""
    return FiredTimers(
        [pod_id for part in parts for pod_id in part.evicted],
        sum(part.changed for part in parts),
        sum(part.busy for part in parts),
        [one for part in parts for one in part.news],
        [due_at for part in parts for due_at in part.due_at],
    )


def drop_timer(pod_id: int) -> None:
    """Drop a pod's timer for taints; a change of the pod or its node's taints sets it again."""
    sql.run(
        f"DELETE FROM eviction_timer WHERE pod_id = %s::bigint AND cause = '{TAINT}'", (pod_id,)
    )


def warm() -> None:
    """Run the statements of firing for no pods, so that a connection's first batch is as fast.

    Queries twice: the server loads its metadata of the tables once for each connection.
    """
    sql.fetch(_CONDEMNED, (sql.Int8s([]),))
    moment = datetime.fromtimestamp(0, UTC)
    sql.fetch(_EVICT, (*actors.gate(), sql.Int8s([]), sql.Times([]), moment, moment))


def _gone(pod_ids: Sequence[int]) -> set[int]:
    """Return which of these pods do not exist."""
    if not pod_ids:
        return set()
    present = sql.fetch("SELECT id FROM pod WHERE id = ANY(%s)", (sql.Int8s(list(pod_ids)),))
    return set(pod_ids) - {row[0] for row in present}


def _evict(pod_ids: Sequence[int], graces: Sequence[int | None], now: datetime) -> None:
    """Evict locked pods with these grace periods; those with none are removed.

    Reason and deadline fill slots of the pod's document, which is not decoded.
    """
    if None in graces:
        graces = _graces(pod_ids)
    second = now.replace(microsecond=0)  # whole seconds, as in manifests
    ends = {grace: moments.after(second, _period(grace)) for grace in set(graces)}
    found = sql.fetch_one(
        _EVICT,
        (
            *actors.gate(),
            sql.Int8s(pod_ids),
            sql.Times([ends[grace] for grace in graces]),
            second,
            now,
        ),
    )
    assert found is not None  # the rows are locked
    changes.announce(found[0], ("Pod",))
    if 0 in ends:
        ended = [pod_id for pod_id, grace in zip(pod_ids, graces, strict=True) if grace == 0]
        finish_deletions(ended, now=now)


def _period(grace: int | None) -> int:
    """Return a grace period in seconds; 1 if it is negative."""
    if grace is None:
        return DEFAULT_GRACE_SECONDS
    return grace if grace >= 0 else 1


def _graces(pod_ids: Sequence[int]) -> list[int | None]:
    """Return the grace periods in the specs of pods whose timers have none. Queries once."""
    found = {
        pod_id: (document.decode(text, 0).get("spec") or {}).get("terminationGracePeriodSeconds")
        for pod_id, text in sql.fetch(
            "SELECT p.id, d.text FROM pod p JOIN document d ON d.id = p.document_id"
            " WHERE p.id = ANY(%s)",
            (sql.Int8s(pod_ids),),
        )
    }
    return [found.get(pod_id) for pod_id in pod_ids]


def fire_executions(
    *,
    now: datetime,
    limit: int,
    judge: Callable[[Sequence[ClassOnNode]], Collection[ClassOnNode]],
    held: HeldBack = NOTHING_HELD,
) -> FiredTimers:
    """Evict up to ``limit`` pods whose node no longer matches, one by one, budgets respected.

    ``judge`` returns which of the places still break their terms. A pod that its budget holds back
    is tried again after ``BUDGET_RETRY``, and its timer has the reason.
    """
    evicted: list[int] = []
    news: list[Occurrence] = []
    due: list[datetime] = []
    changed = busy = 0
    for _ in range(limit):
        condition, holding = unless_held(held)
        with transaction.atomic():
            claimed = sql.fetch(_CLAIM.format(condition=condition), (now, *holding, 1))
            if not claimed:
                break
            pod_id, due_at, node_name = claimed[0]
            if settings.ZONE_EVICTION_RATE:
                zone = zones_by_pod([pod_id]).get(pod_id)
                if zone is not None and not paces.spend({zone: 1}, now=now, waits=False)[zone]:
                    held = held_back(now)
                    if zone in held.paced:
                        continue  # other zones may have tokens
                    break  # a client evicts now
            row = sql.fetch_one(
                "SELECT uid::text, namespace, name, class_id, node_name FROM pod"
                " WHERE id = %s::bigint AND deletion_at IS NULL"
                " AND phase NOT IN ('Succeeded', 'Failed')",
                (pod_id,),
            )
            if row is None or row[4] != node_name:
                _drop(pod_id)
                changed += 1
                continue
            uid, namespace, name, *_ = row
            try:
                with transaction.atomic():
                    if not judge([ClassOnNode(row[4], row[3])]):
                        _drop(pod_id)
                        changed += 1
                        continue
                    gone = brakes.to_note([pod_id])
                    why = brakes.approvals_of([pod_id], now=now).get(pod_id)
                    with acting(msgspec.structs.replace(current(), cause=why)):
                        evict_pod(
                            namespace,
                            name,
                            {"preconditions": {"uid": uid}},
                            now=now,
                            condition=EXECUTION_CONDITION,
                        )
            except NotFound:
                _drop(pod_id)
                changed += 1
                continue
            except StatusError as error:
                _postpone([pod_id], [now + BUDGET_RETRY], _reason(error))
                busy += 1
                continue
            except Exception as error:
                if not aside.is_an_objects_fault(error):
                    raise
                aside.put(FOLLOWER_OF_LABELS, aside.pod(pod_id), error, now=now)
                _drop(pod_id)
                changed += 1
                continue
            _drop(pod_id, all_causes=True)
        brakes.note_evicted(gone, now=now)
        evicted.append(pod_id)
        due.append(due_at)
        news.append(
            Occurrence(
                kind="Pod",
                namespace=namespace,
                name=name,
                uid=uid,
                reason="NodeAffinityEviction",
                message=f"Marking for deletion Pod {namespace}/{name}: node {node_name} no longer"
                " matches requiredDuringSchedulingRequiredDuringExecution",
                component=EXECUTION_COMPONENT,
            )
        )
    return FiredTimers(evicted, changed, busy, news, due)


def await_landings(*, now: datetime) -> int:
    """Postpone pods whose landing node (their predicted next node) is unknown; return how many."""
    return sql.run(
        "UPDATE eviction_timer SET due_at = %s::timestamptz,"
        " blocked_by = 'where it would go is being worked out'"
        f" WHERE cause = '{DURING_EXECUTION}' AND due_at <= %s::timestamptz AND landing IS NULL"
        " AND started_at + seconds * interval '1 second' > %s::timestamptz",
        (now + LANDING_RETRY, now, now - LANDING_PATIENCE),
    )


def note_landings(landings: Mapping[int, Mapping[str, str]], *, now: datetime) -> int:
    """Store where pods are predicted to go next, by pod id; return how many were stored."""
    ids = sorted(landings)
    return sql.run(
        "UPDATE eviction_timer t SET landing = i.landing::jsonb, blocked_by = '',"
        " due_at = greatest(t.started_at + t.seconds * interval '1 second',"
        " least(t.due_at, %s::timestamptz))"
        " FROM unnest(%s, %s) AS i(pod_id, landing)"
        f" WHERE t.pod_id = i.pod_id AND t.cause = '{DURING_EXECUTION}' AND t.landing IS NULL",
        (
            now,
            sql.Int8s(ids),
            sql.Texts([_encode(landings[pod_id]).decode() for pod_id in ids]),
        ),
    )


def spread_executions(*, now: datetime, rate: float) -> int:
    """Give every overdue label timer its turn at ``rate`` pods a second; return how many wait.

    So clients can read when each pod leaves, and no controller tries before then.
    """
    with transaction.atomic():
        claimed = sql.fetch(_CLAIM.format(condition="true"), (now, 1_000_000))
        turns = [now + timedelta(seconds=(place + 1) / rate) for place in range(len(claimed))]
        if claimed:
            _postpone([row[0] for row in claimed], turns, "eviction rate limit")
    return len(claimed)


def _reason(error: StatusError) -> str:
    causes: list[dict[str, Any]] = (getattr(error, "details", None) or {}).get("causes") or []
    return "; ".join(cause["message"] for cause in causes) or str(error)


def _drop(pod_id: int, *, all_causes: bool = False) -> None:
    cause = "" if all_causes else f"AND cause = '{DURING_EXECUTION}'"
    sql.run(f"DELETE FROM eviction_timer WHERE pod_id = %s::bigint {cause}", (pod_id,))


def _postpone(pod_ids: Sequence[int], moments: Sequence[datetime], reason: str) -> None:
    sql.run(
        "UPDATE eviction_timer t SET due_at = i.due_at, blocked_by = %s::text"
        " FROM unnest(%s, %s) AS i(pod_id, due_at)"
        f" WHERE t.pod_id = i.pod_id AND t.cause = '{DURING_EXECUTION}'",
        (reason, sql.Int8s(list(pod_ids)), sql.Times(list(moments))),
    )


def record(news: Sequence[Occurrence], *, now: datetime) -> None:
    """Record events of evictions, after these: it takes as long as the evictions themselves."""
    for first in range(0, len(news), 2000):
        events.record_many(news[first : first + 2000], now=now)


def count_evictions(lateness: Sequence[float]) -> None:
    """Add evictions to the counters for `/metrics`, by how late each was, in seconds."""
    with transaction.atomic():
        figures = msgspec.convert(stored_state(FIGURES), Figures)
        figures.add(lateness)
        controller_state.set_state(FIGURES, msgspec.to_builtins(figures))
