"""The scheduler's configuration in force: the last one stored, or the default one.

Both the scheduling runner and what-if read it here. A version is parsed once per process. One that
no longer loads (a plugin that it names is gone) is logged and the default one serves instead.
"""

from functools import lru_cache

import structlog

from clusterstate.objects.values.errors import Expired, Invalid
from clusterstate.processes import memory
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import StoredConfiguration
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.configuration.documents import default_configuration
from scheduling.plugins.catalogue import load_configuration

logger = structlog.get_logger(__name__)

DEFAULT_REVISION = 0
"""Names the default configuration, in force where none is stored, in decisions."""


def in_force() -> tuple[int, KubeSchedulerConfiguration]:
    """Return the revision and the configuration in force. Queries once."""
    revision = decisions.configuration_revision()
    return revision, at(revision)


def at(revision: int) -> KubeSchedulerConfiguration:
    """Return the configuration of a revision. Queries once when it was not met before.

    Raises:
        Expired: there is no such revision any more.
    """
    return default_configuration() if revision == DEFAULT_REVISION else _at(revision)


@lru_cache(maxsize=16)
def _at(revision: int) -> KubeSchedulerConfiguration:
    stored = decisions.configuration(revision)
    if stored is None:
        raise Expired(f"scheduler configuration {revision} is no longer kept")
    return parsed(stored)


memory.when_replaced(_at.cache_clear)


def parsed(stored: StoredConfiguration) -> KubeSchedulerConfiguration:
    """Return a stored configuration, the default one when it no longer loads."""
    try:
        return load_configuration(stored.document)
    except Invalid as error:
        logger.error(  # noqa: TRY400  # the message says it all
            "configuration_unusable", revision=stored.revision, error=error.message
        )
        return default_configuration()
