"""The pods that a decision relies on: placed in memory, and not bound yet.

A batch is decided in sequence, each pod assuming the ones before it. Most rules only get easier
when one of those is not bound after all: there is more room, and one pod less to stay away from.
Two do not: required affinity needs the pod that it found, and a hard spread needs the lowest count
that others raised. A decision *leans* where such a rule took part; ``stands`` asks the rules again
without the pods that are in doubt.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord

_ROOM: Final = frozenset({"NodeResourcesFit", "NodePorts"})


def leans(framework: Framework, info: PodInfo, snapshot: Snapshot) -> bool:
    """Return whether a rule may have let a pod of this class in because of other pods.

    True if plugins of other packages filter, since they may look at anything.
    """
    if framework.filters_by_itself:
        return True
    return any(plugin.relied_on(info, snapshot) for plugin in framework.relying_filters)


def counts(framework: Framework, info: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
    """Return whether a rule may let a pod of this class in because of a pod of class ``other``."""
    return any(
        counter.weigh(other)
        for plugin in framework.relying_filters
        for counter in plugin.relied_on(info, snapshot)
    )


def stands(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether rules that rely on other pods still pass a pod, ``set_apart``, on its node.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    rows = np.array([record.row], np.intp)
    found = framework.filter_some(framework.relying_filters, state, record.info, snapshot, rows)
    return found.status(0).ok


def has_room(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether a pod, itself ``set_apart``, finds room and free ports on its node.

    That is all that pods which have nothing to do with it can take from it.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    rows = np.array([record.row], np.intp)
    plugins = [plugin for plugin in framework.filter_plugins if plugin.name in _ROOM]
    return framework.filter_some(plugins, state, record.info, snapshot, rows).status(0).ok


def fits(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether all rules still pass a pod, itself ``set_apart``, on its node.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    if not framework.pre_filter(state, record.info, snapshot).status.ok:
        return False
    return framework.run_filters(state, record.info, snapshot, record.row).ok


@contextmanager
def set_apart(snapshot: Snapshot, keys: Iterable[int]) -> Iterator[dict[int, PodRecord]]:
    """Leave assumed pods out of the snapshot within the block; yield their records.

    Remove a pod that is attached meanwhile from the records. Apply no delta within the block.
    """
    records: dict[int, PodRecord] = {}
    try:
        for key in keys:
            record = snapshot.pod(key)
            if record is not None and record.row >= 0 and key not in records:
                snapshot.detach(record)
                records[key] = record
        yield records
    finally:
        for record in records.values():
            snapshot.attach(record)
