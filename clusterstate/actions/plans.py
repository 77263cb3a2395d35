"""Plans: stored when they are made, applied, paused, cancelled, and carried out step by step."""

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import transaction

from clusterstate import sql
from clusterstate.actions.events import about_own, record_many
from clusterstate.objects.actor import current
from clusterstate.objects.errors import Conflict
from clusterstate.objects.meta import Manifest
from clusterstate.queries.plans import (
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
_TO_WORK_ON: Final = COLUMNS.replace("document, outcome", "'', ''")
_encode = msgspec.json.Encoder(order="sorted").encode


def store(
    document: Manifest, outcome: Manifest, *, by: str, now: datetime, is_preview: bool = False
) -> StoredPlan:
    """Store a plan that was made; return it with its name. Two statements.

    The user's oldest plan that nobody applied goes when there are too many. A preview, which a page
    was opened for, is called so: only other previews go for it, and lists leave it out.
    """
    prefix = PREVIEW if is_preview else "plan-"
    name = f"{prefix}{secrets.token_hex(4)}"
    steps = outcome.get("steps") or []
    rest = {key: value for key, value in outcome.items() if key != "steps"}
    row = sql.fetch_one(
        "INSERT INTO plan (name, document, outcome, state, steps, progress, failures, message,"
        " created_at, created_by, applied_by, impersonator, updated_at)"
        f" VALUES (%s, %s, %s, '{PLANNED}', %s, %s, '{{}}', '', %s::timestamptz, %s, '', '',"
        f" %s::timestamptz) RETURNING {COLUMNS}",
        (
            name,
            _encode(document).decode(),
            _encode(rest).decode(),
            _encode(steps).decode(),
            TO_DO * len(steps),
            now,
            by,
            now,
        ),
    )
    assert row is not None
    mine = f"state = '{PLANNED}' AND created_by = %s AND starts_with(name, %s)"
    sql.run(
        f"DELETE FROM plan WHERE {mine} AND id <= (SELECT id FROM plan WHERE {mine}"
        " ORDER BY id DESC OFFSET %s::bigint LIMIT 1)",
        (by, prefix, by, prefix, MOST_PLANNED),
    )
    return stored(row)


def begin(name: str, *, by: str, impersonator: str, now: datetime) -> StoredPlan:
    """Have a plan carried out from now on, on behalf of who applies it.

    Raises:
        NotFound: there is no such plan.
        Conflict: it was applied already.
    """
    with transaction.atomic():
        found = _change(
            name,
            (PLANNED,),
            f"state = '{RUNNING}', applied_by = %s, impersonator = %s,"
            " applied_at = %s::timestamptz",
            (by, impersonator, now),
            now=now,
        )
        steps = len(found.progress)
        _tell(name, "PlanBegun", f"{by or 'somebody'} applied it: {steps} steps", now=now)
    return found


def _tell(name: str, reason: str, message: str, *, now: datetime, type_: str = "Normal") -> None:
    """Record an event of a plan, which ``kubectl get events`` shows in ``default``."""
    one = about_own("Plan", name, reason, message, type_=type_, component="operations")
    record_many([one], now=now)


def pause(name: str, *, now: datetime) -> StoredPlan:
    """Let the operation rest: the batch at work is finished, no other one begins."""
    with transaction.atomic():
        found = _change(name, (RUNNING,), f"state = '{PAUSED}'", (), now=now)
        _tell(name, "PlanPaused", f"{_by()} paused it", now=now)
    return found


def resume(name: str, *, now: datetime) -> StoredPlan:
    """Let a paused operation go on."""
    with transaction.atomic():
        found = _change(name, (PAUSED,), f"state = '{RUNNING}', retry_at = NULL", (), now=now)
        _tell(name, "PlanResumed", f"{_by()} lets it go on", now=now)
    return found


def cancel(name: str, *, now: datetime) -> StoredPlan:
    """End the operation: what is done stays done, what is not is not done any more."""
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
        _tell(name, "PlanCancelled", f"{_by()} ended it: {done} steps are done", now=now)
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
        present = find_plan(name)
        raise Conflict(
            f'Operation cannot be fulfilled on {PLURAL}.{GROUP} "{name}": it is {present.state}',
            {"name": name, "group": GROUP, "kind": PLURAL},
        )
    return stored(row)


# Carrying out -----------------------------------------------------------------------------------


def running() -> list[int]:
    """Return the operations at work, first the one that waits longest for a turn. Queries once."""
    rows = sql.fetch(f"SELECT id FROM plan WHERE state = '{RUNNING}' ORDER BY updated_at, id")
    return [row[0] for row in rows]


def set_aside(plan_id: int, message: str, *, now: datetime) -> None:
    """Pause an operation that fails as a whole; it may be resumed."""
    with transaction.atomic():
        row = sql.fetch_one(
            f"UPDATE plan SET state = '{PAUSED}', message = %s, updated_at = %s::timestamptz"
            f" WHERE id = %s::bigint AND state = '{RUNNING}' RETURNING name",
            (message[:_LONGEST_MESSAGE], now, plan_id),
        )
        if row is not None:
            _tell(row[0], "PlanSetAside", message, now=now, type_="Warning")


class Batch:
    """Some steps of an operation, in the transaction that does them; ``plan`` is locked.

    ``numbers``: of the steps that are next. Each must be given its outcome by ``note``.
    """

    def __init__(self, plan: StoredPlan, numbers: Sequence[int]) -> None:
        self.plan = plan
        self.numbers = numbers
        self._progress = list(plan.progress)
        if TO_DO not in plan.progress:  # a round of trying again begins
            self._progress = [TO_DO if one == HELD else one for one in self._progress]
        self._failures: dict[str, str] = dict(plan.failures)
        self._message = plan.message
        self._back: list[tuple[int, str]] = []

    def note(
        self, number: int, outcome: str, message: str = "", *, back: Sequence[Manifest] = ()
    ) -> None:
        """Note what became of a step; ``back``: the changes that take it back once it is done."""
        self._progress[number] = outcome
        if outcome == IS_DONE and back:
            self._back.append((number, _encode(list(back)).decode()))
        if outcome == HAS_FAILED and len(self._failures) < _MOST_FAILURES:
            self._failures[str(number)] = message
        if message:
            self._message = message

    def _write(self, retry: timedelta, now: datetime) -> None:
        if self._back:
            numbers, changes = zip(*self._back, strict=True)
            sql.run(
                "INSERT INTO plan_undo (plan_id, number, changes)"
                " SELECT %s::bigint, * FROM unnest(%s::int8[], %s::text[])",
                (self.plan.id, sql.Int8s(numbers), sql.Texts(changes)),
            )
        progress = "".join(self._progress)
        left, held = TO_DO in progress, HELD in progress
        state = RUNNING if left or held else FAILED if HAS_FAILED in progress else DONE
        if state != RUNNING:
            done, failed = progress.count(IS_DONE), progress.count(HAS_FAILED)
            text = f"{done} steps are done, {failed} failed"
            bad = state == FAILED
            reason, type_ = ("PlanFailed", "Warning") if bad else ("PlanDone", "Normal")
            _tell(self.plan.name, reason, text, now=now, type_=type_)
        sql.run(
            "UPDATE plan SET progress = %s, failures = %s::jsonb, message = %s, state = %s,"
            " retry_at = %s::timestamptz, updated_at = %s::timestamptz WHERE id = %s::bigint",
            (
                progress,
                _encode(self._failures).decode(),
                "" if state == DONE else self._message,
                state,
                now + retry if held and not left else self.plan.retry_at,
                now,
                self.plan.id,
            ),
        )


@contextmanager
def batch(plan_id: int, *, most: int, retry: timedelta, now: datetime) -> Iterator[Batch | None]:
    """Lock an operation and give its next steps; ``None`` when there is nothing to do now.

    What is done inside, and that it is done, is stored together or not at all. Steps that are held
    back come again after ``retry``, when no other step is left to do; then all of them, batch by
    batch. Document and outcome, which may be long, are not read: they are empty in ``plan``.
    """
    with transaction.atomic():
        row = sql.fetch_one(
            f"SELECT {_TO_WORK_ON} FROM plan WHERE id = %s::bigint AND state = '{RUNNING}'"
            " FOR NO KEY UPDATE SKIP LOCKED",
            (plan_id,),
        )
        plan = None if row is None else stored(row)
        numbers = [] if plan is None else _next(plan, most, now)
        if plan is None or (not numbers and (TO_DO in plan.progress or HELD in plan.progress)):
            yield None
            return
        found = Batch(plan, numbers)
        yield found
        found._write(retry, now)


def _next(plan: StoredPlan, most: int, now: datetime) -> list[int]:
    wanted = TO_DO
    if TO_DO not in plan.progress:
        if plan.retry_at is not None and now < plan.retry_at:
            return []
        wanted = HELD
    found = [number for number, state in enumerate(plan.progress) if state == wanted]
    return found[:most]


def trim(*, now: datetime) -> int:
    """Drop plans that nobody applied, and operations that ended, after a week; return how many."""
    row = sql.fetch_one(
        "WITH gone AS (DELETE FROM plan WHERE updated_at < %s::timestamptz AND state <> ALL(%s)"
        " RETURNING id), undone AS (DELETE FROM plan_undo u USING gone WHERE u.plan_id = gone.id)"
        " SELECT count(*) FROM gone",
        (now - KEPT, sql.Texts([RUNNING, PAUSED])),
    )
    assert row is not None
    found: int = row[0]
    return found
