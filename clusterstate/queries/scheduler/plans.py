"""Reading plans and the progress of their operations."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import causes
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest

GROUP: Final = "stowage.dev"
PLURAL: Final = "plans"
PLACES: Final = "stowage-places"
"""The namespace of the placeholders that hold the places of pods which move."""
_HOUR: Final = timedelta(hours=1)
PREVIEW: Final = "preview-"
"""The prefix of names of plans that previews made; nobody asked to keep these."""
PLANNED, RUNNING, PAUSED = "Planned", "Running", "Paused"
CANCELLED, DONE, FAILED = "Cancelled", "Done", "Failed"
HEAD: Final = ("revision", "at", "summary", "warnings")
"""The members of an outcome that answers without details have."""
TO_DO, IS_DONE, HELD, HAS_FAILED, DROPPED = ".dhf-"


class StoredPlan(msgspec.Struct, frozen=True):
    """A plan's row; ``document``, ``outcome`` and ``steps`` are JSON text."""

    id: int
    name: str
    document: str
    outcome: str
    state: str
    steps: str
    progress: str
    failures: dict[str, str]
    message: str
    created_at: datetime
    created_by: str
    applied_at: datetime | None
    applied_by: str
    impersonator: str
    retry_at: datetime | None
    updated_at: datetime

    def posted_document(self) -> Manifest:
        """Return the document as it was posted."""
        found: Manifest = msgspec.json.decode(self.document)
        return found

    def prediction(self) -> Manifest:
        """Return the status that was predicted."""
        found: Manifest = msgspec.json.decode(self.outcome)
        return found

    def to_do(self) -> list[dict[str, Any]]:
        """Return the steps."""
        found: list[dict[str, Any]] = msgspec.json.decode(self.steps)
        return found


COLUMNS: Final = (
    "id, name, document, outcome, state, steps, progress, failures::text, message, created_at,"
    " created_by, applied_at, applied_by, impersonator, retry_at, updated_at"
)


def stored(row: sql.Row) -> StoredPlan:
    """Return a row of ``COLUMNS`` as a value."""
    found = list(row)
    found[7] = msgspec.json.decode(row[7])
    return StoredPlan(*found)


def find_plan(name: str) -> StoredPlan:
    """Return a plan. Queries once.

    Raises:
        NotFound: there is none.
    """
    row = sql.fetch_one(f"SELECT {COLUMNS} FROM plan WHERE name = %s", (name,))
    if row is None:
        details = {"name": name, "group": GROUP, "kind": PLURAL}
        raise NotFound(f'{PLURAL}.{GROUP} "{name}" not found', details)
    return stored(row)


def undo_of(plan_id: int) -> list[Manifest]:
    """Return the changes that undo an operation's changes of nodes, the last first.

    They restore the nodes as each step found them. Queries once.
    """
    rows = sql.fetch(
        "SELECT changes FROM plan_undo WHERE plan_id = %s::bigint ORDER BY number DESC", (plan_id,)
    )
    return [change for row in rows for change in msgspec.json.decode(row[0], type=list[Manifest])]


def full_until(plan_id: int, most: int, *, now: datetime) -> datetime | None:
    """Return until when no further pod may leave for an operation, ``None`` if one may now.

    ``most`` pods leave in any hour, counted by the change log. Queries once.
    """
    row = sql.fetch_one(
        f"SELECT min(at) FROM change WHERE cause = %s::uuid AND kind = {KINDS['Pod'].code}"
        f" AND namespace <> %s AND at > %s::timestamptz"
        f" AND (verb = {changes.DELETED} OR deletion_at IS NOT NULL)"
        " GROUP BY object_id ORDER BY min(at) DESC OFFSET %s::bigint LIMIT 1",
        (causes.uid_of(causes.PLAN, plan_id), PLACES, now - _HOUR, most - 1),
    )
    return None if row is None else row[0] + _HOUR


def other_mover(plan_id: int) -> tuple[str, bool] | None:
    """Return an operation that this one must not move pods beside; ``None`` if there is none.

    It was applied before this one, and moves or has since moved pods to held places. Of one of the
    two there is a step that is to be ``alone``. With it, whether this one has such a step: then its
    prediction no longer holds; if not, it can wait for the other's end. Queries once.
    """
    row = sql.fetch_one(
        "SELECT o.name, m.steps LIKE %s FROM plan o, plan m"
        " WHERE m.id = %s::bigint AND (o.applied_at, o.id) < (m.applied_at, m.id)"
        f" AND (o.updated_at >= m.applied_at OR o.state = '{RUNNING}') AND o.steps LIKE %s"
        f" AND (m.steps LIKE %s OR o.state = '{RUNNING}' AND o.steps LIKE %s)"
        " ORDER BY o.id LIMIT 1",
        (_ALONE, plan_id, '%"place":%', _ALONE, _ALONE),
    )
    return None if row is None else (row[0], row[1])


_ALONE: Final = '%"alone":true%'


def is_there(namespace: str, name: str, uid: str) -> bool:
    """Return whether the pod of this name still has this uid. Queries once."""
    row = sql.fetch_one(
        "SELECT uid::text FROM pod WHERE namespace = %s AND name = %s", (namespace, name)
    )
    return row is not None and bool(row[0] == uid)


def budget_revisions(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the revisions of disruption budgets by namespace and name; absent ones are left out.

    Queries once.
    """
    rows = sql.fetch(
        "SELECT t.namespace, t.name, t.revision FROM pod_disruption_budget t"
        " JOIN unnest(%s, %s) k(namespace, name) ON (t.namespace, t.name) = (k.namespace, k.name)",
        (sql.Texts([key[0] for key in keys]), sql.Texts([key[1] for key in keys])),
    )
    return {(row[0], row[1]): row[2] for row in rows}


def latest_plans(*, limit: int) -> list[StoredPlan]:
    """Return plans, the latest first, without their steps and with the heads of their outcomes.

    Previews that were not applied are left out. Queries once more for each plan: an outcome may be
    tens of megabytes, so only one is in memory at a time.
    """
    columns = COLUMNS.replace("outcome", "'{}'").replace("steps", "'[]'")
    rows = sql.fetch(
        f"SELECT {columns} FROM plan WHERE state <> '{PLANNED}' OR NOT starts_with(name, %s)"
        " ORDER BY created_at DESC, id DESC LIMIT %s",
        (PREVIEW, limit),
    )
    found = [stored(row) for row in rows]
    return [msgspec.structs.replace(plan, outcome=_head(plan.id)) for plan in found]


def _head(plan_id: int) -> str:
    """Return the part of an outcome for lists, as JSON text. Queries once."""
    row = sql.fetch_one("SELECT outcome FROM plan WHERE id = %s::bigint", (plan_id,))
    if row is None:
        return "{}"
    parts = msgspec.json.decode(row[0], type=dict[str, msgspec.Raw])
    return msgspec.json.encode({key: parts[key] for key in HEAD if key in parts}).decode()
