"""Reading canaries: configurations on trial, and the one that is guarded."""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest

GROUP: Final = "stowage.dev"
PLURAL: Final = "canaries"
OBSERVING, SWITCHED, KEPT = "Observing", "Switched", "Kept"
RETURNED, SUPERSEDED, CANCELLED = "Returned", "Superseded", "Cancelled"
_MANY: Final = 100


class StoredCanary(msgspec.Struct, frozen=True):
    """A canary's row (``models.canaries``)."""

    id: int
    name: str
    document: str
    state: str
    guard_seconds: int
    most_failures: int
    slow_seconds: float
    former: int | None
    revision: int | None
    created_at: datetime
    created_by: str
    switched_at: datetime | None
    switched_by: str
    guard_until: datetime | None
    ended_at: datetime | None
    message: str

    def configuration(self) -> Manifest:
        """Return the configuration on trial."""
        found: Manifest = msgspec.json.decode(self.document)
        return found


COLUMNS: Final = ", ".join(StoredCanary.__struct_fields__)


def find_canary(name: str) -> StoredCanary:
    """Return a canary. Queries once.

    Raises:
        NotFound: there is none.
    """
    row = sql.fetch_one(f"SELECT {COLUMNS} FROM canary WHERE name = %s", (name,))
    if row is None:
        details = {"name": name, "group": GROUP, "kind": PLURAL}
        raise NotFound(f'{PLURAL}.{GROUP} "{name}" not found', details)
    return StoredCanary(*row)


def latest_canaries() -> list[StoredCanary]:
    """Return the latest hundred, the newest first. Queries once."""
    rows = sql.fetch(f"SELECT {COLUMNS} FROM canary ORDER BY id DESC LIMIT {_MANY}")
    return [StoredCanary(*row) for row in rows]


def guarded() -> StoredCanary | None:
    """Return the canary that is in force and guarded, if any. Queries once, by index."""
    row = sql.fetch_one(
        f"SELECT {COLUMNS} FROM canary WHERE state = '{SWITCHED}' ORDER BY id DESC LIMIT 1"
    )
    return None if row is None else StoredCanary(*row)
