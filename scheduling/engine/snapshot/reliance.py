"""Which assumed pods, not bound yet, a decision depends on.

A batch is decided in sequence, each pod assuming the ones before it. If one of those is not bound
after all, most rules only become easier: there is more room, and one pod less to avoid. Two do not:
required affinity needs the pod that it found, and a hard spread needs the lowest count that others
raised. A decision *leans* on other pods where such a rule took part; ``stands`` runs the rules
again without the pods that are in doubt.
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
    """Return whether a rule may have accepted a pod of this class because of other pods.

    True if plugins of other packages filter, since they may read anything.
    """
    if framework.filters_by_itself:
        return True
    return any(plugin.relied_on(info, snapshot) for plugin in framework.relying_filters)


def counts(framework: Framework, info: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
    """Return whether a rule may accept a pod of this class because of a pod of class ``other``."""
    return any(
        counter.weigh(other)
        for plugin in framework.relying_filters
        for counter in plugin.relied_on(info, snapshot)
    )


def stands(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether a ``set_apart`` pod passes the rules about other pods on its node.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    rows = np.array([record.row], np.intp)
    found = framework.filter_some(framework.relying_filters, state, record.info, snapshot, rows)
    return found.status(0).ok


def has_room(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether a ``set_apart`` pod has resources and free ports on its node.

    Unrelated pods can take nothing else from it.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    rows = np.array([record.row], np.intp)
    plugins = [plugin for plugin in framework.filter_plugins if plugin.name in _ROOM]
    return framework.filter_some(plugins, state, record.info, snapshot, rows).status(0).ok


def fits(framework: Framework, record: PodRecord, snapshot: Snapshot) -> bool:
    """Return whether a ``set_apart`` pod passes all filters on its node.

    Raises:
        PluginFailed: a plugin failed.
    """
    state = CycleState(pod_key=record.key)
    if not framework.pre_filter(state, record.info, snapshot).status.ok:
        return False
    return framework.run_filters(state, record.info, snapshot, record.row).ok


@contextmanager
def set_apart(snapshot: Snapshot, keys: Iterable[int]) -> Iterator[dict[int, PodRecord]]:
    """Take assumed pods out of the snapshot within the block; yield their records.

    A pod that is attached meanwhile must be removed from the records. Apply no delta meanwhile.
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
