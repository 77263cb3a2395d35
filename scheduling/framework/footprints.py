"""Returns what a class uses and depends on, by its profile (``objects.rules.footprint``)."""

from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from clusterstate.objects.rules.footprint import Counter, Footprint, counter_id
from scheduling.framework.node_table import NodeTable
from scheduling.framework.runtime import Framework
from scheduling.framework.types import AffinityTerm, PodInfo, class_id_of


@runtime_checkable
class Counting(Protocol):
    """A plugin whose hard rules read counters of pods."""

    def counters_read(self, pod: PodInfo, snapshot: NodeTable) -> frozenset[Counter]:
        """Return the ids of the counters that the class's own hard rules read."""
        ...


_counting: WeakKeyDictionary[Framework, list[Counting]] = WeakKeyDictionary()


def term_counter(term: AffinityTerm, *, bearers: bool = False) -> Counter:
    """Return the id of the counter of pods that a term selects; ``bearers``: that have the term."""
    about = None if term.namespace_selector.nothing else term.namespace_selector
    return counter_id(term.selector, term.namespaces, about, bearers=bearers)


def footprint_of(info: PodInfo, framework: Framework, snapshot: NodeTable) -> Footprint:
    """Return the footprint of a class under a profile."""
    counting = _counting.get(framework)
    if counting is None:  # to compute it each time costs more than the rest
        filters = framework.filter_plugins
        counting = _counting[framework] = [one for one in filters if isinstance(one, Counting)]
    reads: set[Counter] = set()
    for plugin in counting:
        reads |= plugin.counters_read(info, snapshot)
    return Footprint(
        class_id=class_id_of(info.digest),
        amounts=tuple(sorted(info.requests.items())),
        reads=frozenset(reads),
        bears=frozenset(term_counter(term, bearers=True) for term in info.anti_affinity),
        ports=bool(info.host_ports),
        priority=info.priority,
        complete=not framework.filters_by_itself,
    )
