"""The audit log as a file of JSON lines: mode 0600, rotated by size and age.

Several processes write the same file. Each batch is written under the file's lock, after a check
that the open file still has the name. A file that is full, or whose first line is old, is renamed
with the time, and a new one is begun; a number of old ones is kept, and none for longer than the
configured days.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings

_DAY = 86_400.0


class File:
    """A file to which lines are appended."""

    def __init__(self, path: Path, *, most_bytes: int, days: float, files: int) -> None:
        """``days``: the age limit of a file and of old ones; ``files``: how many old ones stay."""
        self._path = path
        self._most_bytes = most_bytes
        self._days = days
        self._files = files

    def append(self, lines: Sequence[str]) -> None:
        """Append all lines or none.

        Raises:
            OSError: the file cannot be written.
        """
        content = b"".join(line.encode() + b"\n" for line in lines)
        descriptor = self._open()
        try:
            status = os.fstat(descriptor)
            if status.st_size and (
                status.st_size + len(content) > self._most_bytes
                or time.time() - _begun_at(descriptor, status) > self._days * _DAY
            ):
                self._rotate()
                os.close(descriptor)
                descriptor = self._open()
                status = os.fstat(descriptor)
            try:
                _write_all(descriptor, content)
            except OSError:
                os.ftruncate(descriptor, status.st_size)
                raise
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        """Return the file of that name, open and locked; created if missing."""
        while True:
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                        return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)  # another process has rotated it meanwhile

    def _rotate(self) -> None:
        """Rename the file, and delete old ones that are too many or too old."""
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")  # noqa: TID251 - an edge
        self._path.replace(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
        old = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"))
        for number, path in enumerate(reversed(old)):
            with contextlib.suppress(FileNotFoundError):
                if number >= self._files or path.stat().st_mtime < time.time() - self._days * _DAY:
                    path.unlink()


def _begun_at(descriptor: int, status: os.stat_result) -> float:
    """Return when the first line was written, by its timestamp; else when the file changed."""
    start = os.pread(descriptor, 16_384, 0).partition(b"\n")[0]
    _, found, rest = start.partition(b'"stageTimestamp":"')
    with contextlib.suppress(ValueError):
        if found:
            return datetime.fromisoformat(rest.partition(b'"')[0].decode()).timestamp()
    return status.st_mtime


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def configured() -> File | None:
    """Return the file of AUDIT_LOG_FILE, ``None`` without the setting."""
    if not settings.AUDIT_LOG_FILE:
        return None
    return File(
        Path(settings.AUDIT_LOG_FILE),
        most_bytes=settings.AUDIT_FILE_BYTES,
        days=settings.AUDIT_FILE_DAYS,
        files=settings.AUDIT_FILES,
    )
