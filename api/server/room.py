"""Writes are refused while the disk of the embedded database is nearly full.

PostgreSQL refuses a row that finds no room and goes on, but when there is none for its log it stops
for everybody, readers too. So what clients write is refused a little earlier, with 507: reads go
on, deletions are let through, and what the service itself has begun has room to end. An external
server's disk cannot be seen from here; its refusals are passed on (`api.forms.errors`).
"""

import os
import time

from django.conf import settings

from api.forms import errors

_LOOK_SECONDS = 0.5


class _Room:
    """How much there is, as of the last look.

    Several threads ask. Time and answer of a look are replaced together: a thread that finds the
    time of a look must not find the answer of the look before.
    """

    def __init__(self) -> None:
        self._last: tuple[float, int | None] = (float("-inf"), None)

    def free(self) -> int | None:
        """Return the free bytes that PostgreSQL's user may fill, ``None`` if not to be known."""
        folder = settings.DATABASE_FOLDER
        if folder is None:
            return None
        looked, free = self._last
        now = time.monotonic()
        if now - looked <= _LOOK_SECONDS:
            return free
        try:
            disk = os.statvfs(folder)
            free = disk.f_bavail * disk.f_frsize
        except OSError:
            free = None
        self._last = now, free
        return free


_room = _Room()


def free() -> int | None:
    """Return the free bytes where the embedded database lies, ``None`` if not to be known."""
    return _room.free()


def require() -> None:
    """Check that there is room for a write. Looks at the disk twice a second at most.

    Raises:
        InsufficientStorage: there is less than ``STOWAGE_DISK_RESERVE``.
    """
    free = _room.free()
    if free is not None and free < settings.DISK_RESERVE_BYTES:
        raise errors.InsufficientStorage(
            f"{errors.DISK_FULL}: {free >> 20} MiB are free where the database lies, and the last"
            f" {settings.DISK_RESERVE_BYTES >> 20} MiB are kept back",
            {"retryAfterSeconds": 5},
        )
