"""Plans: stored when they are made, applied, paused, cancelled, and carried out step by step."""

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import transaction

from clusterstate.actions.kinds.events import about_own, record_many
from clusterstate.database import sql
from clusterstate.objects.values.actor import current
from clusterstate.objects.values.cron import Schedule
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import Conflict
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.plans import (
    CANCELLED,
    COLUMNS,
    DONE,
    DROPPED,
    FAILED,
    GROUP,
    HAS_FAILED,
    HELD,
    IS_DONE,
    PAUSED,
    PLANNED,
    PLURAL,
    PREVIEW,
    RUNNING,
    TO_DO,
    StoredPlan,
    find_plan,
    stored,
)

KEPT: Final = timedelta(days=7)
MOST_PLANNED: Final = 100
"""Plans of one user that nobody applied, and previews; an outcome may be tens of megabytes."""
_MOST_FAILURES: Final = 100
_LONGEST_MESSAGE: Final = 1024
_TO_WORK_ON: Final = COLUMNS.replace("document, outcome", "'', ''").replace(" steps,", " '',")
_encode = msgspec.json.Encoder(order="sorted").encode


def store(
    document: Manifest, outcome: Manifest, *, by: str, now: datetime, is_preview: bool = False
) -> StoredPlan:
    """Store a new plan; return it with its name. Two statements.

    Its ``rebalance`` is replaced by the predicted changes, if there are any; a plan with a schedule
    keeps it, since each round is predicted anew.
    If there are too many, the user's oldest plan that was not applied is deleted. A preview, which
    a page makes when it is opened, has a special name prefix: it replaces only previews, and lists
    omit it.
    """
    changes = outcome.get("changes")
    if changes and not document["spec"].get("schedule"):
        spec = {"holdPlaces": True, **document["spec"], "changes": changes}
        document = {**document, "spec": spec}
    prefix = PREVIEW if is_preview else "plan-"
    name = f"{prefix}{secrets.token_hex(4)}"
    steps = outcome.get("steps") or []
    rest = {key: value for key, value in outcome.items() if key != "steps"}
    texts = [_encode(part).decode() for part in (document, rest, steps)]
    progress = TO_DO * len(steps)
    row = sql.fetch_one(
        "INSERT INTO plan (name, document, outcome, state, steps, progress, failures, message,"
        " created_at, created_by, applied_by, impersonator, updated_at)"
        f" VALUES (%s, %s, %s, '{PLANNED}', %s, %s, '{{}}', '', %s::timestamptz, %s, '', '',"
        " %s::timestamptz) RETURNING id",
        (name, *texts, progress, now, by, now),
    )
    assert row is not None
    mine = f"state = '{PLANNED}' AND created_by = %s AND starts_with(name, %s)"
    sql.run(
        f"DELETE FROM plan WHERE {mine} AND id <= (SELECT id FROM plan WHERE {mine}"
        " ORDER BY id DESC OFFSET %s::bigint LIMIT 1)",
        (by, prefix, by, prefix, MOST_PLANNED),
    )
    return StoredPlan(
        id=row[0],
        name=name,
        document=texts[0],
        outcome=texts[1],
        state=PLANNED,
        steps=texts[2],
        progress=progress,
        failures={},
        message="",
        created_at=now,
        created_by=by,
        applied_at=None,
        applied_by="",
        impersonator="",
        retry_at=None,
        updated_at=now,
    )


def begin(name: str, *, by: str, impersonator: str, now: datetime) -> StoredPlan:
    """Start carrying out a plan on behalf of the user ``by``.

    Raises:
        NotFound: there is no such plan.
        Conflict: it was applied already.
    """
    plan = find_plan(name)
    clause, due = "", None
    if (spec := _scheduled(plan.document)) is not None:
        clause = "steps = '[]', progress = '', "
        due = now if spec["schedule"].startswith("@every") else _next_round(spec, now)
    with transaction.atomic():
        found = _change(
            name,
            (PLANNED,),
            f"{clause}state = '{RUNNING}', applied_by = %s, impersonator = %s,"
            " applied_at = %s::timestamptz, retry_at = %s::timestamptz",
            (by, impersonator, now, due),
            now=now,
        )
        what = f"{len(found.progress)} steps" if due is None else _begins(due)
        _tell(name, "PlanBegun", f"{by or 'somebody'} applied it: {what}", now=now)
    return found


# Rounds -----------------------------------------------------------------------------------------
#
# A plan with ``spec.schedule`` is predicted anew for each round. Between two rounds the operation
# has no steps, and ``retry_at`` says when the next round begins.


def _scheduled(document: str) -> Manifest | None:
    """Return the spec of a plan's document if it has a schedule."""
    if '"schedule"' not in document:
        return None
    spec: Manifest = msgspec.json.decode(document)["spec"]
    return spec if spec.get("schedule") else None


def _next_round(spec: Manifest, now: datetime) -> datetime | None:
    return Schedule(spec["schedule"], spec.get("timeZone") or None).after(now)


def _begins(due: datetime) -> str:
    return f"the next round begins at {format_time(due)}"


def due_rounds(*, now: datetime) -> list[StoredPlan]:
    """Return the operations whose next round is due. Queries once."""
    rows = sql.fetch(
        f"SELECT {COLUMNS} FROM plan WHERE state = '{RUNNING}' AND progress = ''"
        " AND retry_at <= %s::timestamptz ORDER BY retry_at",
        (now,),
    )
    return [found for row in rows if _scheduled((found := stored(row)).document) is not None]


def begin_round(plan: StoredPlan, outcome: Manifest, *, now: datetime) -> None:
    """Give an operation the steps of its next round, unless it got them already or has ended.

    Its changes of earlier rounds cannot be undone from then on. Without steps the operation waits
    for the round after that.
    """
    spec = _scheduled(plan.document)
    assert spec is not None
    steps = outcome.get("steps") or []
    due = None if steps else _next_round(spec, now)
    text = "" if due is None else f"nothing to do: {_begins(due)}"
    rest = {key: value for key, value in outcome.items() if key != "steps"}
    with transaction.atomic():
        row = sql.fetch_one(
            "UPDATE plan SET outcome = %s, steps = %s, progress = %s, retry_at = %s::timestamptz,"
            " message = %s, failures = '{}', applied_at = %s::timestamptz,"
            " updated_at = %s::timestamptz"
            f" WHERE id = %s::bigint AND state = '{RUNNING}' AND progress = '' RETURNING name",
            (
                _encode(rest).decode(), _encode(steps).decode(), TO_DO * len(steps), due, text,
                now, now, plan.id,
            ),
        )  # fmt: skip
        if row is not None and steps:
            sql.run("DELETE FROM plan_undo WHERE plan_id = %s::bigint", (plan.id,))
            _tell(plan.name, "PlanRoundBegun", f"{len(steps)} steps", now=now)


def _tell(name: str, reason: str, message: str, *, now: datetime, type_: str = "Normal") -> None:
    """Record an event of a plan, which ``kubectl get events`` shows in ``default``."""
    one = about_own("Plan", name, reason, message, type_=type_, component="operations")
    record_many([one], now=now)


def pause(name: str, *, now: datetime) -> StoredPlan:
    """Pause the operation: the current step is finished, and no other step begins."""
    with transaction.atomic():
        found = _change(name, (RUNNING,), f"state = '{PAUSED}'", (), now=now)
        _tell(name, "PlanPaused", f"{_by()} paused it", now=now)
    return found


def resume(name: str, *, now: datetime) -> StoredPlan:
    """Continue a paused operation; steps that were held back are tried again.

    If a step that is to do moves ``alone``, the prediction has shown that the pod's place keeps its
    rules about other pods, which others may have changed since. An operation with a schedule then
    begins another round.

    Raises:
        NotFound: there is no such plan.
        Conflict: it is not paused; or such a step is to do, and it has no schedule.
    """
    with transaction.atomic():
        clause = f"state = '{RUNNING}', retry_at = %s::timestamptz"
        found = _change(name, (PAUSED,), clause, (now,), now=now)
        if any(
            step.get("alone") and state in (TO_DO, HELD)
            for step, state in zip(found.to_do(), found.progress, strict=True)
        ):
            if _scheduled(found.document) is None:
                raise _conflict(
                    found,
                    "it moves pods whose rules are about other pods, which may have changed since"
                    " it was paused: cancel it, and make the plan again",
                )
            found = _change(name, (RUNNING,), "steps = '[]', progress = ''", (), now=now)
        _tell(name, "PlanResumed", f"{_by()} resumed it", now=now)
    return found


def cancel(name: str, *, now: datetime) -> StoredPlan:
    """End the operation: done steps stay done, the others are not carried out."""
    with transaction.atomic():
        found = _change(
            name,
            (PLANNED, RUNNING, PAUSED),
            f"state = '{CANCELLED}',"
            f" progress = translate(progress, '{TO_DO}{HELD}', '{DROPPED * 2}')",
            (),
            now=now,
        )
        done = found.progress.count(IS_DONE)
        _tell(name, "PlanCancelled", f"{_by()} cancelled the plan after {done} steps", now=now)
    return found


def _by() -> str:
    return current().name or "somebody"


def _change(
    name: str,
    states: Collection[str],
    clause: str,
    parameters: Sequence[Any],
    *,
    now: datetime,
) -> StoredPlan:
    """Change a plan that is in one of these states.

    Raises:
        NotFound: there is no such plan.
        Conflict: it is in another state.
    """
    row = sql.fetch_one(
        f"UPDATE plan SET {clause}, updated_at = %s::timestamptz"
        f" WHERE name = %s AND state = ANY(%s) RETURNING {COLUMNS}",
        (*parameters, now, name, sql.Texts(sorted(states))),
    )
    if row is None:
        raise _conflict(find_plan(name))
    return stored(row)


def check_unapplied(plan: StoredPlan) -> None:
    """Check that a plan may still be applied, before it is predicted once more.

    Raises:
        Conflict: it was applied already, or cancelled.
    """
    if plan.state != PLANNED:
        raise _conflict(plan)


def _conflict(plan: StoredPlan, why: str = "") -> Conflict:
    why = why or f"it is {plan.state}"
    return Conflict(
        f'Operation cannot be fulfilled on {PLURAL}.{GROUP} "{plan.name}": {why}',
        {"name": plan.name, "group": GROUP, "kind": PLURAL},
    )


# Carrying out -----------------------------------------------------------------------------------


def running() -> list[int]:
    """Return the running operations, the longest waiting first. Queries once."""
    rows = sql.fetch(f"SELECT id FROM plan WHERE state = '{RUNNING}' ORDER BY updated_at, id")
    return [row[0] for row in rows]


def set_aside(plan_id: int, message: str, *, now: datetime) -> None:
    """Pause an operation that fails as a whole; a client may resume it."""
    with transaction.atomic():
        row = sql.fetch_one(
            f"UPDATE plan SET state = '{PAUSED}', message = %s, updated_at = %s::timestamptz"
            f" WHERE id = %s::bigint AND state = '{RUNNING}' RETURNING name",
            (message[:_LONGEST_MESSAGE], now, plan_id),
        )
        if row is not None:
            _tell(row[0], "PlanSetAside", message, now=now, type_="Warning")


def at_work(plan_id: int) -> StoredPlan | None:
    """Return a running operation, ``None`` if it is paused or has ended. Queries once.

    Document, outcome and steps, which may be long, are not read: they are empty.
    """
    row = sql.fetch_one(
        f"SELECT {_TO_WORK_ON} FROM plan WHERE id = %s::bigint AND state = '{RUNNING}'", (plan_id,)
    )
    return None if row is None else stored(row)


def steps_of(plan_id: int) -> list[msgspec.Raw]:
    """Return the steps of a plan as JSON; they never change. Queries once."""
    row = sql.fetch_one("SELECT steps FROM plan WHERE id = %s::bigint", (plan_id,))
    return [] if row is None else msgspec.json.decode(row[0], type=list[msgspec.Raw])


_LOCKED: Final = f"WHERE id = %s::bigint AND state = '{RUNNING}' FOR NO KEY UPDATE SKIP LOCKED"


class Step:
    """A step of an operation in its transaction; ``note`` stores its result."""

    def __init__(self, plan_id: int, number: int, was: tuple[str, str]) -> None:
        self._plan_id, self._number, self._was = plan_id, number, was
        self._outcome, self._message = was

    def note(self, outcome: str, message: str = "", *, back: Sequence[Manifest] = ()) -> None:
        """Store the result of the step; ``back``: the changes that undo it once it is done."""
        self._outcome, self._message = outcome, message
        if outcome == IS_DONE and back:
            sql.run(
                "INSERT INTO plan_undo (plan_id, number, changes) VALUES (%s::bigint, %s, %s)",
                (self._plan_id, self._number, _encode(list(back)).decode()),
            )

    def _write(self, now: datetime) -> None:
        if (self._outcome, self._message) == self._was:
            return
        sql.run(
            "UPDATE plan SET progress = overlay(progress placing %s from %s::int for 1),"
            " message = coalesce(nullif(%s, ''), message), updated_at = %s::timestamptz,"
            " failures = CASE WHEN %s"
            " AND (SELECT count(*) FROM jsonb_object_keys(failures)) < %s::bigint"
            " THEN failures || jsonb_build_object(%s::text, %s::text) ELSE failures END"
            " WHERE id = %s::bigint",
            (
                self._outcome,
                self._number + 1,
                self._message,
                now,
                self._outcome == HAS_FAILED,
                _MOST_FAILURES,
                str(self._number),
                self._message,
                self._plan_id,
            ),
        )


@contextmanager
def step(plan_id: int, number: int, *, now: datetime) -> Iterator[Step | None]:
    """Lock an operation for one of its steps; ``None`` if the step must not be done now.

    The change and the result of the step are stored together or not at all. A step has its own
    transaction, so it takes the same locks as one request for the same change, in the same order,
    and never waits for a row while it holds one of another step.
    """
    with transaction.atomic():
        row = sql.fetch_one(
            f"SELECT substr(progress, %s::int, 1), message FROM plan {_LOCKED}",
            (number + 1, plan_id),
        )
        if row is None or row[0] not in (TO_DO, HELD):
            yield None
            return
        found = Step(plan_id, number, (row[0], row[1]))
        yield found
        found._write(now)


def rest(plan_id: int, *, until: datetime) -> None:
    """Set the time at which the operation retries all its held steps."""
    sql.run(
        f"UPDATE plan SET retry_at = %s::timestamptz WHERE id = %s::bigint AND state = '{RUNNING}'",
        (until, plan_id),
    )


def finish(plan_id: int, *, now: datetime) -> None:
    """End an operation that has nothing left to do; one with a schedule waits for its round."""
    with transaction.atomic():
        row = sql.fetch_one(f"SELECT name, progress, document FROM plan {_LOCKED}", (plan_id,))
        if row is None or TO_DO in row[1] or HELD in row[1]:
            return
        name, progress, document = row
        spec = _scheduled(document)
        due = None if spec is None else _next_round(spec, now)
        if due is not None and not progress:
            return  # it waits already
        bad = HAS_FAILED in progress
        done, failed = progress.count(IS_DONE), progress.count(HAS_FAILED)
        text = f"{done} steps are done, {failed} failed"
        if due is not None:
            text = f"{text}; {_begins(due)}"
            sql.run(
                "UPDATE plan SET steps = '[]', progress = '', message = %s,"
                " retry_at = %s::timestamptz, updated_at = %s::timestamptz WHERE id = %s::bigint",
                (text, due, now, plan_id),
            )
            _tell(name, "PlanRoundDone", text, now=now, type_="Warning" if bad else "Normal")
            return
        sql.run(
            "UPDATE plan SET state = %s, message = CASE WHEN %s THEN message ELSE '' END,"
            " updated_at = %s::timestamptz WHERE id = %s::bigint",
            (FAILED if bad else DONE, bad, now, plan_id),
        )
        reason, type_ = ("PlanFailed", "Warning") if bad else ("PlanDone", "Normal")
        _tell(name, reason, text, now=now, type_=type_)


def trim(*, now: datetime) -> int:
    """Drop plans that were not applied, and ended operations, after a week; return how many."""
    row = sql.fetch_one(
        "WITH gone AS (DELETE FROM plan WHERE updated_at < %s::timestamptz AND state <> ALL(%s)"
        " RETURNING id), undone AS (DELETE FROM plan_undo u USING gone WHERE u.plan_id = gone.id)"
        " SELECT count(*) FROM gone",
        (now - KEPT, sql.Texts([RUNNING, PAUSED])),
    )
    assert row is not None
    found: int = row[0]
    return found
