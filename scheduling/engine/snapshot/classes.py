"""Scheduling classes of pods: their requests, and their peers.

A class stands for all pods that scheduling treats alike (``PodInfo``, by digest). Classes are never
dropped: a process that keeps a snapshot for long rebuilds it (``has_outgrown`` of a mirror's
``WarmState``). ``engine.snapshot.peers`` finds which class counts which; ``counters.PodCounters``
makes the counters on demand.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from clusterstate.objects.values.labels import Selector
from scheduling.engine.snapshot.arrays import lengthen, widen
from scheduling.engine.snapshot.interning import BASE_RESOURCES, is_scalar_resource
from scheduling.engine.snapshot.nodes import KEPT_FOR_NODES, MOST_RESOURCES, NodeColumns
from scheduling.engine.snapshot.nominations import NO_PRIORITY
from scheduling.engine.snapshot.peers import Peers
from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.tables import Counter
from scheduling.framework.types import AffinityTerm, PodInfo


class ClassColumns(NodeColumns):
    """Known classes, in order of arrival, and the namespaces that their terms look up."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.classes: list[PodInfo] = []
        self._class_of: dict[bytes, PodInfo] = {}
        # By class, with spare capacity (``class_columns``); ``_class_pods``: pods on known rows.
        self._class_priority: Int64 = np.zeros(64, np.int64)
        self._class_peer: Int32 = np.zeros(64, np.int32)
        self._class_requests: Int64 = np.zeros((64, 3), np.int64)
        self._class_pods: Int64 = np.zeros(64, np.int64)
        self._vectors: list[Int64] = []
        self._peers = Peers(self.namespace_labels)
        self._counters: dict[Hashable, Counter] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        # Namespaces whose labels a rule looked at.
        self._looked_up: set[str] = set()
        # By kind, namespace and name of a controller: the peers of classes that it owns.
        self._owned: dict[tuple[str, str, str], set[int]] = {}
        # By namespace and name of a claim: the peers of classes that use it.
        self._claimed: dict[tuple[str, str], dict[int, None]] = {}
        self.peer_version = 0
        self.lowest_priority = NO_PRIORITY
        """The lowest priority of all classes that were ever known."""

    def intern(self, info: PodInfo) -> PodInfo:
        """Return the known class with the same digest, or add ``info`` to the known classes.

        Raises:
            TooManyResources: it requests too many resources that no other object has.
        """
        interned = self._class_of.get(info.digest)
        if interned is not None:
            return interned
        self.require_resources(info.requests, MOST_RESOURCES - KEPT_FOR_NODES)
        for name in info.requests:
            if name in BASE_RESOURCES or is_scalar_resource(name):
                self.resource(name)
        vector = np.zeros(self.allocatable.shape[1], np.int64)
        for name, amount in info.requests.items():
            number = self.resources.find(name)
            if number is not None:
                vector[number] = amount
        info.amounts = [(at, amount) for at, amount in enumerate(vector.tolist()) if amount]
        info.index = len(self.classes)
        self.lowest_priority = min(self.lowest_priority, info.priority)
        info.peer = self._peers.intern(info)
        if info.owner is not None:
            _, kind, name = info.owner
            self._owned.setdefault((kind, info.namespace, name), set()).add(info.peer)
        for claim in info.claims:
            self._claimed.setdefault((info.namespace, claim), {})[info.peer] = None
        self.classes.append(info)
        self._vectors.append(vector)
        if info.index == len(self._class_priority):
            size = 2 * info.index
            self._class_priority = lengthen(self._class_priority, size)
            self._class_peer = lengthen(self._class_peer, size)
            self._class_pods = lengthen(self._class_pods, size)
            requests = np.zeros((size, len(vector)), np.int64)
            requests[: info.index] = self._class_requests
            self._class_requests = requests
        self._class_priority[info.index] = info.priority
        self._class_peer[info.index] = info.peer
        self._class_requests[info.index] = vector
        self._class_of[info.digest] = info
        return info

    def known_class(self, digest: bytes) -> PodInfo | None:
        """Return the class with this digest, if it is known."""
        return self._class_of.get(digest)

    def request_vector(self, info: PodInfo) -> Int64:
        """Return requests by resource column, int64 (resources,). Not to be written to."""
        return self._vectors[info.index]

    def _priorities(self) -> Int64:
        """Return the priority of each class, int64 (classes,)."""
        return self._class_priority[: len(self.classes)]

    def class_columns(self) -> tuple[Int64, Int32, Int64]:
        """Return priority, peer and requests by class: int64, int32, int64 (.., resources).

        Longer than the number of classes, and shared: the caller must not write to them.
        """
        return self._class_priority, self._class_peer, self._class_requests

    def has_pods_below(self, priority: int) -> bool:
        """Return whether any pod of lower priority is on a known node."""
        if self.lowest_priority >= priority:
            return False
        used = len(self.classes)
        return bool(((self._class_pods[:used] > 0) & (self._priorities() < priority)).any())

    def placed_by_class(self) -> list[tuple[PodInfo, int]]:
        """Return each class that has pods on known nodes, with their number."""
        counts = self._class_pods[: len(self.classes)]
        return [(self.classes[one], counts.item(one)) for one in np.flatnonzero(counts).tolist()]

    def _grow_resources(self, width: int) -> None:
        super()._grow_resources(width)
        self._vectors = [widen(v[None, :], width)[0] for v in self._vectors]
        requests = np.zeros((len(self._class_requests), width), np.int64)
        requests[:, : self._class_requests.shape[1]] = self._class_requests
        self._class_requests = requests

    # --- how pods look to each other -------------------------------------------------------------

    def peers(self) -> Iterator[PodInfo]:
        """Yield one class for each peer: rules about other pods treat a peer's classes alike."""
        return iter(self._peers.infos)

    @property
    def peer_total(self) -> int:
        """Number of known peers."""
        return len(self._peers.infos)

    def peer_stamp(self, info: PodInfo) -> int:
        """Return a number that changes when terms about the class become known.

        It also changes when the services or controllers that select its pods may have changed.
        """
        return self._peers.stamps[info.peer]

    def has_term_about(self, info: PodInfo) -> bool:
        """Return whether any known pod has a term that selects pods of this class.

        The result is valid until ``peer_version`` or the class's ``peer_stamp`` changes.
        """
        return self._peers.has_term_about(info)

    def anti_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Return topology keys of known required anti-affinity terms that select the class."""
        return self._peers.anti_affinity_keys(info)

    def anti_affinity_by(self, keys: Collection[str]) -> Iterator[AffinityTerm]:
        """Yield the required anti-affinity terms of placed pods with one of these topology keys."""
        return self._peers.anti_affinity_by(keys)

    def scored_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Return topology keys of known required affinity and preferred terms about the class.

        These are the terms that give a score.
        """
        return self._peers.scored_affinity_keys(info)

    def counted_by(self, info: PodInfo) -> Sequence[tuple[Counter, int]]:
        """Return the counters that a pod of this class has a weight in, with the weight."""
        return self._peers.weights[info.peer]

    def peer_weights(self, counters: Sequence[Counter]) -> Int64:
        """Return the weight of a pod of each peer in each counter, int64 (peers, counters)."""
        found = np.zeros((len(self._peers.infos), len(counters)), np.int64)
        places: dict[int, list[int]] = {}
        for place, counter in enumerate(counters):
            places.setdefault(id(counter), []).append(place)
        if places:
            for peer, weights in enumerate(self._peers.weights):
                for counter, weight in weights:
                    for place in places.get(id(counter), ()):
                        found[peer, place] = weight
        return found

    def forget_counters(self) -> None:
        """Drop all counters; each is rebuilt on its next use."""
        self._counters.clear()
        self._peers.forget_counters()
        self.peer_version += 1

    def _selects_anew(self, namespace: str, selector: Selector) -> None:
        self._peers.renew(self._peers.selected_by(namespace, selector))

    def _owns_anew(self, owner: tuple[str, str, str]) -> None:
        self._peers.renew(self._owned.get(owner, ()))

    # --- namespaces ------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add or replace a namespace."""
        if self._namespaces.get(name) != labels:
            self._namespaces[name] = dict(labels)
            self._namespace_changed(name)

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace."""
        if self._namespaces.pop(name, None) is not None:
            self._namespace_changed(name)

    def _namespace_changed(self, name: str) -> None:
        """Drop the counters if a rule has read the labels of the namespace."""
        if name in self._looked_up:
            self.forget_counters()

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, ``None`` when it is not known.

        Notes that a rule read them: when they change, everything cached for classes becomes
        invalid. Callers that cache nothing use ``labels_of_namespace``.
        """
        self._looked_up.add(namespace)
        return self._namespaces.get(namespace)

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace as they are now, ``None`` when it is not known."""
        return self._namespaces.get(namespace)
