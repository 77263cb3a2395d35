"""Gives PostgreSQL's user access to a state directory and to programs below closed folders.

Root may start the service below /root, which no other user can enter. The data stay in the state
directory all the same: PostgreSQL inherits open descriptors of its directories, and gets
/proc/self/fd/N instead of their paths. No permissions change, and nothing is stored elsewhere.

Programs look for their own path and for files next to them, so descriptors do not work for these:
PostgreSQL's programs are copied to /var/lib/stowage, one folder for each source folder.
"""

import hashlib
import os
import shutil
from pathlib import Path

from clusterstate.local.account import Account

COPIES = Path("/var/lib/stowage")


class Doors:
    """Paths by which another account can open its folders, even below a folder closed to it.

    ``paths`` has one path for each folder, in order: its own, or ``/proc/self/fd/N`` of an open
    descriptor. The process that gets the paths must inherit ``descriptors``. Leaving the context
    closes these; do that when the process has started.
    """

    def __init__(self, account: Account, *folders: Path) -> None:
        self.paths: list[str] = []
        self.descriptors: list[int] = []
        for folder in folders:
            if account.reaches(folder):
                self.paths.append(str(folder))
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.descriptors.append(descriptor)
            self.paths.append(f"/proc/self/fd/{descriptor}")

    def __enter__(self) -> "Doors":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def copies_of(programs: Path) -> Path:
    """Return the folder for copies of the programs in a folder. Creates nothing."""
    return COPIES / f"programs-{_digest(programs)}"


def executable(programs: Path, account: Account) -> Path:
    """Return a folder of programs that the account may execute, if necessary a copy.

    ``programs`` is PostgreSQL's bin folder in an installed package. Copies of another version of
    the same folder are removed.
    """
    if account.reaches(programs / "postgres"):
        return programs
    install, package = programs.parent, programs.parent.parent
    stamp = (programs / "postgres").stat().st_mtime_ns
    copies = copies_of(programs)
    copy = copies / str(stamp)
    if not copy.exists():
        shutil.rmtree(copies, ignore_errors=True)
        unfinished = copies / f"{stamp}.{os.getpid()}"
        shutil.copytree(install, unfinished / package.name / install.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # private shared libraries
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        for folder in (COPIES, copies, unfinished, unfinished / package.name):
            folder.chmod(0o755)
        unfinished.rename(copy)
    return copy / package.name / install.name / programs.name


def is_executed(folder: Path) -> bool:
    """Return whether a living process runs a program below a folder."""
    inside = f"{folder}{os.sep}"
    return any(_program(pid).startswith(inside) for pid in os.listdir("/proc") if pid.isdigit())


def _program(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def former_home(state: Path) -> Path:
    """Return the folder where earlier versions stored data of an unreachable state directory."""
    return COPIES / _digest(state)


def bring_home(data: Path, *, to: Path, account: Account) -> None:
    """Move the data of an earlier version into the state directory; its other files are deleted.

    ``data`` is the old folder, ``to`` the new one, which does not exist. A crash leaves the old
    folder whole, or the new one.
    """
    unfinished = to.with_name(f"{to.name}.new-{os.getpid()}")
    try:
        data.rename(to)
    except OSError:  # another file system
        shutil.copytree(data, unfinished, symlinks=True)
        for path in (unfinished, *unfinished.rglob("*")):
            if account.uid is not None:
                os.chown(path, account.uid, account.gid or 0, follow_symlinks=False)
        os.sync()
        unfinished.rename(to)
    shutil.rmtree(data.parent, ignore_errors=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:10]
