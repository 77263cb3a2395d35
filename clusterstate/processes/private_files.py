"""Files with secrets: mode 0600, written atomically, and never read half.

A file is written under another name, synced, and renamed in one step, so a crash leaves the old
file or the new one. A file that an earlier version, or a crash of the machine, left empty or cut
off has no line break at its end, and counts as missing.
"""

import fcntl
import os
import secrets
from pathlib import Path


def read(path: Path) -> str | None:
    """Return the secret in a file, `None` if the file is missing or incomplete."""
    try:
        text = path.read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if not text.endswith("\n") or not text.strip():
        return None
    return text.strip()


def read_or_create(path: Path, fresh: str) -> str:
    """Return the secret in the file, which becomes `fresh` if it is missing or incomplete.

    Several concurrent calls all return the same one's secret.
    """
    found = read(path)
    if found is not None:
        return found
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        found = read(path)
        if found is not None:
            return found
        write(path, f"{fresh}\n".encode())
    finally:
        os.close(folder)
    return fresh


def write(path: Path, content: bytes) -> bool:
    """Write the file with mode 0600, atomically. Return whether anything changed."""
    if path.exists() and path.read_bytes() == content:
        return False
    unfinished = _write_beside(path, content)
    try:
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _write_beside(path: Path, content: bytes) -> Path:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    return unfinished


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
