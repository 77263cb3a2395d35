"""Typed reads of environment variables; a bad value stops the start with a sentence that names it.

Each function takes the variable's name and a default and returns a checked value. Nothing is read
anywhere else: `clusterstate.settings` is the only caller, so that it is the list of all variables.
"""

import contextlib
import difflib
import ipaddress
import json
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from clusterstate.objects.values import shapes
from clusterstate.objects.values.addresses import FIRST, is_for_others
from clusterstate.objects.values.shapes import Shape


class BadSetting(ImproperlyConfigured):
    """``NAME must be ..., but it is ...``: a variable has a value that cannot be used.

    The commands end with this sentence alone; a traceback would bury it.
    """


_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


_OTHERS = (
    *("STOWAGE_POSTGRES_BIN", "STOWAGE_POSTGRES_USER", "STOWAGE_REDIS_SERVER"),
    *("STOWAGE_SERVER", "STOWAGE_TOKEN", "STOWAGE_TOKEN_FILE", "STOWAGE_CA", "STOWAGE_NAMESPACE"),
)
"""Variables that `clusterstate.local` reads where no settings are yet, and those of the client."""
_read: set[str] = {*_OTHERS}


_DROPPED = {
    "DB_POOL": "each thread of a web process has one connection; set STOWAGE_WEB_THREADS",
    "POD_GC_QUARANTINE": "pods of a node that is gone are collected after 20 s, as in Kubernetes",
    "WAITING_GOAL_SECONDS": "give the goal with each request (goalSeconds, waitingtimes --goal)",
}
"""Former settings without STOWAGE_, and what holds or is to be done instead."""


def unknown() -> list[str]:
    """Return a sentence for each variable that is named like a setting and is none (any more).

    Call it when the settings have been read.
    """
    found = []
    for name in sorted(os.environ):
        if not name.startswith("STOWAGE_") or name in _read:
            continue
        if instead := _DROPPED.get(name.removeprefix("STOWAGE_")):
            found.append(f"{name} is no setting any more: {instead}.")
        else:
            (similar, *_) = [*difflib.get_close_matches(name, sorted(_read), n=1), ""]
            found.append(f"{name} is no setting" + (f": is {similar} meant?" if similar else "."))
    return found


def text(name: str, default: str = "") -> str:
    """Return the variable's text, or the default when it is unset or empty."""
    _read.add(name)
    return os.environ.get(name, "") or default


def integer(name: str, default: int, *, at_least: int, at_most: int) -> int:
    """Return a whole number within the limits, both included."""
    raw = text(name)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise BadSetting(f"{name} must be a whole number, but it is {raw!r}.") from None
    if not at_least <= value <= at_most:
        raise BadSetting(f"{name} must be between {at_least} and {at_most}, but it is {value}.")
    return value


def number(name: str, default: float, *, at_least: float, at_most: float) -> float:
    """Return a number within the limits, both included."""
    raw = text(name)
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise BadSetting(f"{name} must be a number, but it is {raw!r}.") from None
    if not at_least <= value <= at_most:
        raise BadSetting(
            f"{name} must be between {at_least:g} and {at_most:g}, but it is {value:g}."
        )
    return value


def flag(name: str, *, default: bool) -> bool:
    """Return whether the variable says yes (1, true, yes, on) or no (0, false, no, off)."""
    raw = text(name).lower()
    if not raw:
        return default
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    raise BadSetting(f"{name} must be true or false, but it is {raw!r}.")


def choice(name: str, default: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed words."""
    value = text(name, default)
    if value not in allowed:
        raise BadSetting(f"{name} must be one of {', '.join(allowed)}, but it is {value!r}.")
    return value


_NORMAL_CORES, _NORMAL_BYTES = 2, 4_000_000_000


def size(name: str) -> str:
    """Return ``small`` or ``normal``: what the variable says, else by the cores and the memory."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # a container's limit, or "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    is_small = cores < _NORMAL_CORES or memory < _NORMAL_BYTES
    return choice(name, "small" if is_small else "normal", ("small", "normal"))


def words(name: str, default: str) -> list[str]:
    """Return the comma-separated parts, without blanks around them and without empty ones."""
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


SERVICE_NAMES = tuple(
    f"kubernetes{rest}" for rest in ("", ".default", ".default.svc", ".default.svc.cluster.local")
)
"""What pods call the API server by."""


def own_names(listens: str, advertised: str = "") -> tuple[list[str], list[str]]:
    """Return the names and the IP addresses by which this host's clients may call it.

    ``listens`` is where https listens; a wildcard address adds nothing. ``advertised``: see
    STOWAGE_ADVERTISE_ADDRESS, empty where there is none. The Service's address is one of them.
    """
    names = dict.fromkeys(["localhost", socket.gethostname(), "stowage", *SERVICE_NAMES])
    addresses = dict.fromkeys(one for one in ("127.0.0.1", "::1", FIRST, advertised) if one)
    try:
        address = ipaddress.ip_address(listens)
    except ValueError:
        names[listens] = None
    else:
        if not address.is_unspecified:
            addresses[str(address)] = None
    return [name for name in names if name.isascii()], list(addresses)


def hosts(name: str, listens: str, advertised: str, origins: Sequence[str]) -> list[str]:
    """Return the comma-separated names of hosts, as ``Host`` has them.

    Unset: this host's own (``own_names``), and those of the origins that browsers see.
    """
    configured = words(name, "")
    if configured:
        return configured
    names, addresses = own_names(listens, advertised)
    origin_hosts = (urlsplit(origin).hostname or "" for origin in origins)
    found = [*names, *(f"[{a}]" if ":" in a else a for a in addresses), *filter(None, origin_hosts)]
    return [one.lower() for one in found]


def pod_shapes(name: str, default: str) -> tuple[Shape, ...]:
    """Read pod shapes (``objects.values.shapes``) from an environment variable."""
    try:
        return shapes.parse(text(name, default))
    except shapes.ShapeError as error:
        raise BadSetting(f"{name}: {error}.") from None


def chosen(name: str, choices: Sequence[str]) -> frozenset[str]:
    """Return which of the known words are chosen: ``*`` stands for all, ``-word`` takes one away.

    As kube-controller-manager's ``--controllers`` is read; unset means all.
    """
    items = words(name, "*")
    for word in items:
        if word != "*" and word.removeprefix("-") not in choices:
            raise BadSetting(
                f"{name} may name {', '.join(choices)}, with - in front to leave one out, and *"
                f" for all; but it has {word!r}."
            )
    return frozenset(
        word for word in choices if (word in items or "*" in items) and f"-{word}" not in items
    )


def address(name: str) -> str:
    """Return an IP address under which other hosts reach this one; empty when unset."""
    value = text(name)
    if value and not is_for_others(value):
        raise BadSetting(
            f"{name} must be an IP address under which other hosts can reach this one, such as"
            f" 10.0.0.7, but it is {value!r}."
        )
    return value and str(ipaddress.ip_address(value))


def networks(name: str) -> list[str]:
    """Return the comma-separated addresses and networks (10.0.0.0/8)."""
    found = words(name, "")
    for part in found:
        try:
            ipaddress.ip_network(part)
        except ValueError as error:
            raise BadSetting(
                f"{name} must be addresses or networks like 10.0.0.0/8, but: {error}."
            ) from None
    return found


def switches(name: str) -> dict[str, Any]:
    """Return the members of a JSON object, their names in Python's spelling; empty when unset."""
    raw = text(name)
    if not raw:
        return {}
    try:
        value = json.loads(raw)
    except ValueError:
        raise BadSetting(f"{name} must be JSON, but it is {raw!r}.") from None
    if not isinstance(value, dict):
        raise BadSetting(f"{name} must be a JSON object, but it is {raw!r}.")
    return {re.sub(r"([A-Z])", r"_\1", key).lower(): member for key, member in value.items()}


def url(name: str, default: str, schemes: Sequence[str]) -> str:
    """Return a URL that starts with one of the schemes.

    The sentence about a bad one has no more of the URL than its scheme: the rest may be a password.
    """
    value = text(name, default)
    if not value.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        expected = " or ".join(f"{scheme}://" for scheme in schemes)
        scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", value)
        found = f"starts with {scheme[0]}" if scheme else "does not"
        raise BadSetting(f"{name} must start with {expected}, but it {found}.")
    return value


def issuer(name: str) -> str:
    """Return an issuer's URL, empty when unset: https, or http on this machine."""
    value = text(name)
    parts = urlsplit(value)
    is_local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    if value and not ((parts.scheme == "https" and parts.hostname) or is_local):
        raise BadSetting(f"{name} must start with https://, but it is {value!r}.")
    return value


def console(name: str) -> str:
    """Return where the console is: ``here``, ``unix:/path``, ``http://host:port``, or empty."""
    value = text(name)
    if value and not re.fullmatch(r"here|unix:/.+|http://[^/]+:[0-9]{1,5}", value):
        raise BadSetting(
            f"{name} must be the word here, unix:/path or http://host:port, but it is {value!r}."
        )
    return value


def postgres(name: str, default: str) -> dict[str, str]:
    """Return the parts of a PostgreSQL URL as libpq itself reads them.

    TCP, TLS options, several hosts and unix sockets are all libpq's own syntax:
    ``postgresql://user:password@host:5432/db`` or ``postgresql://user@/db?host=/directory``.
    """
    value = url(name, default, ("postgresql", "postgres"))
    try:
        parts = conninfo_to_dict(value)
    except ProgrammingError as error:
        # libpq quotes what it does not understand, and that is often a part of the password.
        reason = re.sub(r'"[^"]*"?', '"..."', str(error).strip())
        raise BadSetting(
            f"{name} is not a PostgreSQL URL that libpq understands: {reason}. In a password,"
            " write %25 for %, %40 for @, %2F for / and %3A for a colon."
        ) from None
    if not parts.get("dbname"):
        raise BadSetting(f"{name} names no database: add it after the last slash.")
    return {key: str(part) for key, part in parts.items() if part is not None}
