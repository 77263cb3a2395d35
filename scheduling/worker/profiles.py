"""The scheduler's configuration in force: the last one stored, or the default one if none is.

The scheduler and what-if questions read it here. Each revision is parsed once per process. If a
profile names a plugin that is no longer installed, no other profile replaces it: its pods stay
pending, with that reason in their condition (`scheduling.plugins.held_profile`). The other profiles
work. A package that is installed again is found within ``AGAIN_SECONDS``.
"""

import math
import time
from typing import Any

import msgspec
import structlog

from clusterstate.objects.values.errors import Expired, Invalid
from clusterstate.processes import memory
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import StoredConfiguration
from scheduling.framework.configuration import DEFAULT_SCHEDULER, KubeSchedulerConfiguration
from scheduling.framework.configuration.documents import default_configuration, parse
from scheduling.plugins.catalogue import load_configuration
from scheduling.plugins.held_profile import held_profile, why_held

logger = structlog.get_logger(__name__)

DEFAULT_REVISION = 0
"""The revision of the default configuration, in force if none is stored."""
AGAIN_SECONDS = 10.0


def in_force() -> tuple[int, KubeSchedulerConfiguration]:
    """Return the revision and the configuration in force. Queries once."""
    revision = decisions.configuration_revision()
    return revision, at(revision)


def at(revision: int) -> KubeSchedulerConfiguration:
    """Return the configuration of a revision. Queries once if it is not in memory.

    Raises:
        Expired: no such revision is stored any more.
    """
    return default_configuration() if revision == DEFAULT_REVISION else _at(revision)


_known: dict[int, tuple[KubeSchedulerConfiguration, float]] = {}
"""Configurations by revision, and the monotonic time to parse one with unusable profiles again."""
_MOST = 16


def _at(revision: int) -> KubeSchedulerConfiguration:
    cached = _known.get(revision)
    if cached is not None and time.monotonic() < cached[1]:
        return cached[0]
    stored = decisions.configuration(revision)
    if stored is None:
        raise Expired(f"revision {revision} of the scheduler configuration is no longer stored")
    found = _read(stored)
    why = problems(found)
    if why and (cached is None or problems(cached[0]) != why):
        logger.error("configuration_unusable", revision=revision, error="; ".join(why.values()))
    if len(_known) >= _MOST:
        _known.clear()
    _known[revision] = found, time.monotonic() + AGAIN_SECONDS if why else math.inf
    return found


memory.when_replaced(_known.clear)


def problems(configuration: KubeSchedulerConfiguration) -> dict[str, str]:
    """Return, by name, the profiles that cannot be used, each with the reason."""
    found = {one.scheduler_name: why_held(one) for one in configuration.profiles}
    return {name: why for name, why in found.items() if why}


def _read(stored: StoredConfiguration) -> KubeSchedulerConfiguration:
    try:
        return load_configuration(stored.document)
    except Invalid as error:
        return _without_unusable(parse(stored.document), error)


def _without_unusable(document: dict[str, Any], error: Invalid) -> KubeSchedulerConfiguration:
    """Return a document's configuration; a profile with errors places no pod."""
    written = document.get("profiles") or [{}]
    names = [str(one.get("schedulerName") or DEFAULT_SCHEDULER) for one in written]
    usable, why = [], {}
    for name, one in zip(names, written, strict=True):
        try:
            load_configuration(document | {"profiles": [one]})
        except Invalid as problem:
            why[name] = _first_error(problem)
        else:
            usable.append(one)
    configuration = default_configuration()
    try:
        if usable:
            configuration = load_configuration(document | {"profiles": usable})
    except Invalid as problem:  # the profiles contradict each other
        why |= {name: _first_error(problem) for name in names}
    if not why:
        why = {name: _first_error(error) for name in names}
    found = [
        held_profile(name, why[name]) if name in why else configuration.profile(name)
        for name in names
    ]
    return msgspec.structs.replace(
        configuration,
        profiles=tuple(profile for profile in found if profile is not None),
        document=document,
    )


def _first_error(error: Invalid) -> str:
    """Return the message of the first error, without its path, which is relative to a part."""
    return error.errors[0].message() if error.errors else error.message
