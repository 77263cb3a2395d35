"""Sets aside objects that make a follower of the log fail, so that it continues with the others.

A follower works in batches, or on ``one`` object at a time. ``each`` processes a batch at once; if
that fails, it halves the batch until it has the items that fail alone. Their objects are *set
aside*: logged, reported by an Event, and stored in a row that ``/metrics`` and ``/readyz`` count
(``clusterstate.health.aside``). The others are processed, and the follower's cursor may advance. A
change of the object is in the log, so the follower tries it again; followers that read rows instead
of the log skip an object that is set aside at its present revision.

    work(batch) -> raises -> work(half), work(half) -> ... -> work([one]) -> raises -> set aside

Work that fails halfway is done again, so it must be idempotent; each statement or transaction of it
is atomic. A database that is away, slow or full is not the fault of any object: such an error is
raised, and the follower tries again later.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec
import structlog
from django.db import (
    NotSupportedError,
    ProgrammingError,
    connection,
    transaction,
)

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.database import sql
from clusterstate.health import aside
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.processes import memory

logger = structlog.get_logger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
REASON: Final = "SetAside"
_LONGEST_ERROR: Final = 500


# Errors that any object causes: the fault of the code or the database, not of the object.
_MEANS = (ProgrammingError, NotSupportedError, MemoryError)


class ObjectRef(msgspec.Struct, frozen=True):
    """A reference to an object: its kind, and its id or else its name."""

    kind: str
    id: int = 0
    namespace: str = ""
    name: str = ""


def pod(pod_id: int) -> ObjectRef:
    """Return a reference to a pod by id."""
    return ObjectRef("Pod", pod_id)


def node(name: str) -> ObjectRef:
    """Return a reference to a node by name."""
    return ObjectRef("Node", name=name)


_ASKED_FOR: Final = 5.0
"""This many seconds a process goes by what it knows: another one may have set something aside."""
_with_rows: dict[str, tuple[bool, float]] = {}
"""Which followers have set something aside, as far as this process knows, and since when."""

memory.when_replaced(_with_rows.clear)


def is_an_objects_fault(error: BaseException) -> bool:
    """Return whether an object may have caused an error, rather than the code or the database.

    A database that is away, or of another version than the code, fails for any object; so do a
    replica, and a session that the server ended, because its process was stopped in the midst of a
    transaction (Django's InternalError).
    """
    return not (isinstance(error, _MEANS) or sql.is_away(error))


def each(
    follower: str,
    items: Sequence[Item],
    work: Callable[[Sequence[Item]], Result],
    *,
    which: Callable[[Item], ObjectRef],
    now: datetime,
    finer: Callable[[Item], bool] = lambda item: False,
    instead: Callable[[Item], object] = lambda item: None,
) -> list[Result]:
    """Do the work on all items except those that fail alone; return the result of each part.

    ``work`` gets all items at first, and parts of them if that fails. ``which`` returns the object
    of an item; ``instead`` is called for one that was set aside. ``finer`` splits an item that
    fails alone into parts and processes these; it returns whether there were parts: then the item
    itself is not set aside. Without a failure this costs only the call.

    Raises:
        django.db.Error: the database fails, not the objects (``is_an_objects_fault``).
    """
    if not items:
        return []
    try:
        done = _attempt(work, items)
    except Exception as error:
        if not is_an_objects_fault(error):
            raise
        if len(items) == 1:
            if not finer(items[0]):
                put(follower, which(items[0]), error, now=now)
                instead(items[0])
            return []
    else:
        if _has_rows(follower):
            release(follower, [which(item) for item in items])
        return [done]
    middle = len(items) // 2
    return [
        result
        for half in (items[:middle], items[middle:])
        for result in each(follower, half, work, which=which, now=now, finer=finer, instead=instead)
    ]


def one(
    follower: str,
    which: ObjectRef,
    work: Callable[[], Result],
    *,
    now: datetime,
    instead: Callable[[], Result],
) -> Result:
    """Do the work on one object; return its result, or ``instead`` if it was set aside.

    Raises:
        django.db.Error: the database fails, not the object (``is_an_objects_fault``).
    """
    done = each(follower, [which], lambda _: work(), which=lambda item: item, now=now)
    return done[0] if done else instead()


def _attempt(work: Callable[[Sequence[Item]], Result], items: Sequence[Item]) -> Result:
    """Do the work; within a transaction in a savepoint, so that a failure does not spoil it."""
    if not connection.in_atomic_block:
        return work(items)
    with transaction.atomic():
        return work(items)


def put(follower: str, which: ObjectRef, error: BaseException, *, now: datetime) -> bool:
    """Set an object aside; False if it is gone, or already set aside at this revision.

    Logged and reported by an Event if it is new.
    """
    text = f"{type(error).__name__}: {error}".replace("\0", "\ufffd")
    text = text.encode(errors="replace").decode()[:_LONGEST_ERROR]
    kind = KINDS[which.kind]
    condition, parameters = "t.id = %s::bigint", list[int | str]([which.id])
    if not which.id:
        condition, parameters = "t.name = %s", [which.name]
        if kind.namespaced:
            condition += " AND t.namespace = %s"
            parameters.append(which.namespace)
    place = "t.namespace" if kind.namespaced else "''"
    row = sql.fetch_one(
        "INSERT INTO set_aside AS s (follower, kind, object_id, revision, namespace, name, error,"
        " since)"
        f" SELECT %s, %s, t.id, t.revision, {place}, t.name,"
        " %s, %s::timestamptz"
        f" FROM {kind.rows} t WHERE {condition}"
        " ON CONFLICT (follower, kind, object_id) DO UPDATE"
        " SET revision = excluded.revision, error = excluded.error, since = excluded.since"
        " WHERE (s.revision, s.error) IS DISTINCT FROM (excluded.revision, excluded.error)"
        " RETURNING object_id, namespace, name",
        (follower, which.kind, text, now, *parameters),
    )
    _with_rows[follower] = True, time.monotonic()
    if row is None:
        if not sql.fetch(f"SELECT 1 FROM {kind.rows} t WHERE {condition}", parameters):
            logger.error("follower_failed", follower=follower, object=which, exc_info=error)
        return False
    object_id, namespace, name = row
    logger.error(
        "object_set_aside",
        follower=follower,
        kind=which.kind,
        namespace=namespace,
        name=name,
        exc_info=error,
    )
    try:
        _tell(follower, which.kind, object_id, namespace, name, text, now)
    except Exception as problem:
        if not is_an_objects_fault(problem):
            raise
        logger.exception("set_aside_not_told", follower=follower, name=name)
    return True


def _tell(
    follower: str, kind: str, object_id: int, namespace: str, name: str, text: str, now: datetime
) -> None:
    found = sql.fetch_one(
        f"SELECT uid::text FROM {KINDS[kind].table} WHERE id = %s::bigint", (object_id,)
    )
    occurrence = Occurrence(
        kind=kind,
        api_version=KINDS[kind].api_version,
        namespace=namespace,
        name=name,
        uid="" if found is None else found[0],
        type="Warning",
        reason=REASON,
        message=f"{follower} cannot process this object and skips it until it changes: {text}",
        component=follower,
    )
    _attempt(lambda news: events.record_many(news, now=now), [occurrence])


def _has_rows(follower: str) -> bool:
    cached = _with_rows.get(follower)
    if cached is not None and (cached[0] or time.monotonic() - cached[1] < _ASKED_FOR):
        return cached[0]
    return _ask(follower)


def _ask(follower: str) -> bool:
    found = bool(aside.objects(follower))
    _with_rows[follower] = found, time.monotonic()
    return found


def release(follower: str, which: Sequence[ObjectRef]) -> None:
    """Delete the rows of set-aside objects that the follower has processed."""
    sql.run(
        "DELETE FROM set_aside s USING unnest(%s, %s, %s, %s) AS i(kind, id, namespace, name)"
        " WHERE s.follower = %s AND s.kind = i.kind AND (s.object_id = i.id"
        " OR (i.id = 0 AND s.name = i.name AND s.namespace = i.namespace))",
        (
            sql.Texts([one.kind for one in which]),
            sql.Int8s([one.id for one in which]),
            sql.Texts([one.namespace for one in which]),
            sql.Texts([one.name for one in which]),
            follower,
        ),
    )
    _ask(follower)


def sweep(now: datetime) -> int:
    """Delete the rows of set-aside objects that changed or are gone; return how many."""
    kinds = [row[0] for row in sql.fetch("SELECT DISTINCT kind FROM set_aside")]
    return sum(
        sql.run(
            "DELETE FROM set_aside s WHERE s.kind = %s AND NOT EXISTS"
            f" (SELECT 1 FROM {KINDS[kind].table} t WHERE t.id = s.object_id"
            " AND t.revision = s.revision)",
            (kind,),
        )
        for kind in kinds
    )
