"""Peers: the properties of pods that rules of other pods read, and the terms that match them.

A *peer* is everything in a pod that other pods' rules read: namespace, labels, affinity terms, host
ports; classes that are equal in all of that share one. Counters weigh peers, and terms select
peers. Both are indexed by an *anchor*, something that every pod they select must have: a label, a
namespace, a host port. So a new peer is compared only with the terms and counters of its anchors,
and a new term only with the peers of its anchor; the cost does not grow with the number of classes.

``stamps`` counts for each peer the new terms of others that select it, and the changes of services
and controllers that may: what is cached about a class is valid while its peer's stamp stays.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from clusterstate.objects.values.labels import Selector
from scheduling.framework.reach import Anchor, anchors, anchors_of, term_anchors
from scheduling.framework.tables import Counter
from scheduling.framework.types import AffinityTerm, NamespaceLabels, PodInfo


class _Terms:
    """Terms of one kind: the peers that have them, and the anchors by which they are indexed."""

    def __init__(self) -> None:
        self.carriers: dict[AffinityTerm, list[int]] = {}
        self.at: dict[Anchor, dict[AffinityTerm, None]] = {}
        self.by_key: dict[str, list[AffinityTerm]] = {}

    def about(self, info: PodInfo, namespace_labels: NamespaceLabels) -> Iterator[AffinityTerm]:
        if not self.at:
            return
        seen: set[AffinityTerm] = set()
        for anchor in anchors_of(info):
            for term in self.at.get(anchor, ()):
                if term not in seen and term.means(info, namespace_labels):
                    seen.add(term)
                    yield term


class Peers:
    """The peers of a snapshot, by number, with indexes of the terms and counters that select them.

    ``pods``: for each peer the number of pods on known nodes. ``weights``: for each peer the
    counters in which it has a weight, with the weight.
    """

    def __init__(self, namespace_labels: NamespaceLabels) -> None:
        self.infos: list[PodInfo] = []
        self.stamps: list[int] = []
        self.pods: list[int] = []
        self.weights: list[list[tuple[Counter, int]]] = []
        self._namespace_labels = namespace_labels
        self._number_of: dict[bytes, int] = {}
        self._at: dict[Anchor, list[int]] = {}
        self._anti = _Terms()
        self._scored = _Terms()
        self._counters_at: dict[Anchor, list[Counter]] = {}
        self._counters_about: dict[int, list[Counter]] = {}
        self._counters_of_all: list[Counter] = []

    def copy(self, classes: Mapping[int, PodInfo], namespace_labels: NamespaceLabels) -> "Peers":
        """Return equal peers without counters; ``classes``: the copied classes by ``id``."""
        new = Peers(namespace_labels)
        for info in self.infos:
            new.intern(classes[id(info)])
        new.pods = self.pods.copy()
        return new

    # --- peers -----------------------------------------------------------------------------------

    def intern(self, info: PodInfo) -> int:
        """Return the peer's number; for a new peer, find the terms and counters that select it."""
        number = self._number_of.get(info.peer_key)
        if number is not None:
            return number
        number = self._number_of[info.peer_key] = len(self.infos)
        self.infos.append(info)
        self.stamps.append(0)
        self.pods.append(0)
        mine = list(anchors_of(info))
        for anchor in mine:
            self._at.setdefault(anchor, []).append(number)
        concerned = {id(counter): counter for counter in self._counters_of_all}
        for anchor in mine:
            for counter in self._counters_at.get(anchor, ()):
                concerned[id(counter)] = counter
        for of_terms, terms in (
            (self._anti, info.anti_affinity),
            (self._scored, info.affinity),
            (self._scored, info.preferred_affinity),
            (self._scored, info.preferred_anti_affinity),
        ):
            for term in dict.fromkeys(terms):
                carriers = of_terms.carriers.get(term)
                if carriers is None:
                    carriers = of_terms.carriers[term] = []
                    of_terms.by_key.setdefault(term.topology_key, []).append(term)
                    for anchor in term_anchors(term):
                        of_terms.at.setdefault(anchor, {})[term] = None
                    for peer in self._meant_by(term):
                        self.stamps[peer] += 1
                if number not in carriers[-1:]:
                    carriers.append(number)
                if self._counters_about:
                    for peer in self._meant_by(term):
                        for counter in self._counters_about.get(peer, ()):
                            concerned[id(counter)] = counter
        weighed = [(counter, counter.weigh(info)) for counter in concerned.values()]
        self.weights.append([(counter, weight) for counter, weight in weighed if weight])
        return number

    def _meant_by(self, term: AffinityTerm) -> Iterator[int]:
        seen: set[int] = set()
        for anchor in term_anchors(term):
            for number in self._at.get(anchor, ()):
                if number not in seen and term.means(self.infos[number], self._namespace_labels):
                    seen.add(number)
                    yield number

    def selected_by(self, namespace: str, selector: Selector) -> Iterator[int]:
        """Yield the numbers of the peers in a namespace that a selector selects."""
        seen: set[int] = set()
        for anchor in anchors(selector, (namespace,)):
            for number in self._at.get(anchor, ()):
                if number not in seen and selector.matches(self.infos[number].labels):
                    seen.add(number)
                    yield number

    def renew(self, numbers: Iterable[int]) -> None:
        """Invalidate everything that is cached about classes of these peers."""
        for number in numbers:
            self.stamps[number] += 1

    # --- terms -----------------------------------------------------------------------------------

    def has_term_about(self, info: PodInfo) -> bool:
        """Return whether any known peer has a term that selects pods of this class."""
        if not (self._anti.at or self._scored.at):
            return False
        labels = self._namespace_labels
        return any(True for of in (self._anti, self._scored) for _ in of.about(info, labels))

    def anti_affinity_keys(self, info: PodInfo) -> list[str]:
        """Return topology keys of known required anti-affinity terms that select this class."""
        return self._keys(self._anti, info)

    def anti_affinity_by(self, keys: Collection[str]) -> Iterator[AffinityTerm]:
        """Yield the required anti-affinity terms of placed pods by one of these topology keys."""
        for key in keys:
            for term in self._anti.by_key.get(key, ()):
                if any(self.pods[number] for number in self._anti.carriers[term]):
                    yield term

    def scored_affinity_keys(self, info: PodInfo) -> list[str]:
        """Return the topology keys of other classes' terms that select this class and give a score.

        Those are required affinity and preferred terms.
        """
        return self._keys(self._scored, info)

    def _keys(self, of: _Terms, info: PodInfo) -> list[str]:
        about = of.about(info, self._namespace_labels)
        return list(dict.fromkeys(term.topology_key for term in about))

    # --- counters --------------------------------------------------------------------------------

    def count(self, counter: Counter) -> dict[int, int]:
        """Add a counter; return the weights of the peers that count in it, by the peer's number."""
        reach = counter.reach
        numbers: Iterable[int]
        if reach is None:
            self._counters_of_all.append(counter)
            numbers = range(len(self.infos))
        else:
            found: dict[int, None] = {}
            for anchor in reach.anchors:
                self._counters_at.setdefault(anchor, []).append(counter)
                found.update(dict.fromkeys(self._at.get(anchor, ())))
            about = reach.terms_about
            if about is not None:
                self._counters_about.setdefault(about.peer, []).append(counter)
                for of in (self._anti, self._scored):
                    for term in of.about(about, self._namespace_labels):
                        found.update(dict.fromkeys(of.carriers[term]))
            numbers = found
        weights: dict[int, int] = {}
        for number in numbers:
            weight = counter.weigh(self.infos[number])
            if weight:
                weights[number] = weight
                self.weights[number].append((counter, weight))
        return weights

    def forget_counters(self) -> None:
        """Drop all counters."""
        self.weights = [[] for _ in self.infos]
        self._counters_at.clear()
        self._counters_about.clear()
        self._counters_of_all.clear()
