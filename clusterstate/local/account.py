"""The system user for PostgreSQL, which refuses to run as root."""

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

_OWN_USER = "stowage"
_NOT_MADE = 2**32 - 1
"""The uid and gid of `stowage` before the user is created."""


class ServerStartError(RuntimeError):
    """A server did not start; the message ends with the server's last output."""


def _uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


@dataclass(frozen=True, kw_only=True)
class Account:
    """The system user that PostgreSQL runs as. uid None: the user of this process.

    Root's PostgreSQL runs as `postgres` or as a system user of its own, never as `nobody`: other
    services run as `nobody` too, and could read its data and connect to it.
    """

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def choose(cls, data: Path | None = None) -> "Account":
        """Return the account to run PostgreSQL as: the present one, unless that is root.

        For root: the owner of ``data`` if it exists, else `postgres`, else `stowage`, which
        `ensure` creates. Data owned by `nobody`, as in 0.1.0, gets a new owner.
        """
        if os.geteuid() != 0:
            return cls()
        if data is not None and data.exists():
            owner = data.stat()
            if owner.st_uid not in {0, _uid_of("nobody")}:
                return cls(uid=owner.st_uid, gid=owner.st_gid)
        for name in filter(None, (os.environ.get("STOWAGE_POSTGRES_USER"), "postgres", _OWN_USER)):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            if entry.pw_uid != 0:
                return cls(uid=entry.pw_uid, gid=entry.pw_gid)
        return cls(uid=_NOT_MADE, gid=_NOT_MADE)

    def ensure(self) -> "Account":
        """Return the account; creates the system user `stowage` if it is needed and missing.

        Raises:
            ServerStartError: the user cannot be created; the message says what to do.
        """
        if self.uid != _NOT_MADE:
            return self
        command = [
            "useradd", "--system", "--user-group", "--no-create-home",
            "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", _OWN_USER,
        ]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # our own words
            entry = pwd.getpwnam(_OWN_USER)
        except (OSError, subprocess.CalledProcessError, KeyError) as error:
            raise ServerStartError(
                "PostgreSQL refuses to run as root, and no system user could be made for it"
                f" ({error}): set STOWAGE_POSTGRES_USER to an ordinary user, or DATABASE_URL to a"
                " running server."
            ) from error
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)

    def takes_over(self, folder: Path) -> None:
        """Give all files of `nobody` below a folder to the account."""
        nobody = _uid_of("nobody")
        if self.uid is None or nobody is None or not folder.exists():
            return
        for path in (folder, *folder.rglob("*")):
            if path.lstat().st_uid == nobody:
                os.chown(path, self.uid, self.gid or 0, follow_symlinks=False)

    @property
    def extra_groups(self) -> list[int] | None:
        """Return ``extra_groups`` for Popen: none but the account's own group; None: unchanged."""
        return None if self.uid is None else []

    def owns(self, path: Path) -> None:
        """Make the account the owner of the path."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Return whether the account may pass through every directory above path and execute path.

        Reads mode bits only, so access control lists do not count.
        """
        if self.uid is None:
            return True
        for step in (path, *path.parents):
            try:
                status = step.stat()
            except FileNotFoundError:
                continue
            if status.st_uid == self.uid:
                bit = stat.S_IXUSR
            elif status.st_gid == self.gid:
                bit = stat.S_IXGRP
            else:
                bit = stat.S_IXOTH
            if not status.st_mode & bit:
                return False
        return True
