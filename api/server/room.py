"""Writes are refused while the disk of the embedded database is nearly full.

PostgreSQL refuses a row that does not fit and continues, but without space for its log it stops,
for readers too. So clients' writes are refused a little earlier, with 507: reads continue,
deletions pass, and work that the service has begun has room to end. The disk of an external server
is not visible; its refusals are passed on (`api.forms.errors`).
"""

import os
import time

from django.conf import settings

from api.forms import errors

_LOOK_SECONDS = 0.5


class _Room:
    """The free space, as of the last check.

    Several threads use this. Time and result of a check are replaced together, so that no thread
    combines a new time with an old result.
    """

    def __init__(self) -> None:
        self._last: tuple[float, int | None] = (float("-inf"), None)

    def free(self) -> int | None:
        """Return the free bytes for PostgreSQL's user, ``None`` if unknown."""
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
    """Return the free bytes on the embedded database's disk, ``None`` if unknown."""
    return _room.free()


def require() -> None:
    """Check that there is room for a write. Reads the disk twice a second at most.

    Raises:
        InsufficientStorage: less than ``STOWAGE_DISK_RESERVE`` is free.
    """
    free = _room.free()
    if free is not None and free < settings.DISK_RESERVE_BYTES:
        raise errors.InsufficientStorage(
            f"{errors.DISK_FULL}: {free >> 20} MiB are free on the disk of the database, and the"
            f" last {settings.DISK_RESERVE_BYTES >> 20} MiB are reserved",
            {"retryAfterSeconds": 5},
        )
