"""The cluster as columns: what the decision core sees, kept up to date by small deltas.

One row per node, one slot per pod. A row keeps its number while its node lives; freed rows are used
again. ``set_node``, ``remove_node``, ``add_pod``, ``remove_pod`` and the setters for namespaces,
services, controllers and budgets are the only ways in; they may come in any order (a pod may arrive
before its node and is then remembered), and the result depends only on the last state of each
object, never on the way there: the snapshot is a cache.

``assume`` adds a pod that was decided but is not yet known to be bound; the pod's own ``add_pod``
confirms it, ``forget`` takes it back.

What follows from pods (counts by selector and by topology) is held by ``framework.tables.Counter``,
made on demand and bumped by each pod that comes or goes; who counts whom is found in
``engine.peers``. What changed is logged for caches: the log holds the rows whose pods or capacity
changed, ``node_version`` counts changes of taints, of labels that a rule looked at
(``label_column``) and of the set of nodes, ``peer_version`` what makes all counters obsolete,
``peer_stamp`` what became known that terms of others say of a class, ``budget_version`` changes of
disruption budgets. ``lowest_priority`` is that of all classes that were ever made known.
Plugins read this through ``framework.interface.NodeTable``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from clusterstate.objects.labels import Selector, selector_from_label_selector, selector_from_set
from clusterstate.objects.meta import ObjectMeta
from clusterstate.objects.node import Node, Taint
from clusterstate.objects.quantity import milli_value, value
from clusterstate.objects.workloads import (
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.engine.interning import BASE_RESOURCES, Interner, is_scalar_resource
from scheduling.engine.nominations import Nominations
from scheduling.engine.peers import Peers
from scheduling.framework.arrays import Float64, Int32, Int64, Mask
from scheduling.framework.reach import Reach
from scheduling.framework.tables import Counter, LabelColumn
from scheduling.framework.types import (
    DisruptionBudget,
    PodInfo,
    PodRecord,
)

T = TypeVar("T", bound=np.generic)

ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")

_LOG_LIMIT = 1 << 17
_COUNTER_LIMIT = 8192
NO_PRIORITY = 2**31
"""``lowest_priority`` of a snapshot that knows no class: above all priorities."""


class Snapshot:
    """All nodes, the pods on them, and the objects that scheduling looks up."""

    def __init__(self, *, capacity: int = 64) -> None:
        self._capacity = max(capacity, 1)
        size = self._capacity
        self.names: list[str] = [""] * size
        self._nodes: list[Node | None] = [None] * size
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(size - 1, -1, -1))
        self.resources: Interner[str] = Interner(BASE_RESOURCES)
        self.allocatable: Int64 = np.zeros((size, 3), np.int64, order="F")
        self.requested: Int64 = np.zeros((size, 3), np.int64, order="F")
        self.nonzero_requested: Int64 = np.zeros((size, 2), np.int64, order="F")
        self.allowed_pods: Int64 = np.zeros(size, np.int64)
        self.pod_count: Int64 = np.zeros(size, np.int64)
        self.unschedulable: Mask = np.zeros(size, np.bool_)
        self.alive: Mask = np.zeros(size, np.bool_)
        self.taint_set: Int32 = np.zeros(size, np.int32)
        self._taints: Interner[tuple[Taint, ...]] = Interner(((),))
        self.taint_sets: list[tuple[Taint, ...]] = self._taints.values
        self._columns: dict[str, LabelColumn] = {}
        self._image_nodes: dict[str, dict[int, int]] = {}
        self._image_columns: dict[tuple[str, ...], tuple[int, Int64]] = {}
        self._image_version = 0

        self.classes: list[PodInfo] = []
        self._class_of: dict[bytes, PodInfo] = {}
        # By class, with room to grow: see ``class_columns``; and how many pods are on known rows.
        self._class_priority: Int64 = np.zeros(64, np.int64)
        self._class_peer: Int32 = np.zeros(64, np.int32)
        self._class_requests: Int64 = np.zeros((64, 3), np.int64)
        self._class_pods: Int64 = np.zeros(64, np.int64)
        self._vectors: list[Int64] = []
        self._peers = Peers(self.namespace_labels)
        self._counters: dict[Hashable, Counter] = {}

        self._slot_of: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._pod_names: dict[int, str] = {}
        self._preempted: set[int] = set()
        # What a dry run has changed in the accounts, for counters that are made meanwhile.
        self._detached: set[int] = set()
        self._guests: list[tuple[PodInfo, int]] = []
        self._free_slots: list[int] = []
        self._pod_class: Int32 = np.zeros(64, np.int32)
        self._pod_row: Int32 = np.full(64, -1, np.int32)
        self._pod_terminating: Mask = np.zeros(64, np.bool_)
        self._pod_started: Float64 = np.full(64, np.nan)
        # A doubly linked list of slots per row: removal in O(1) without an object per pod.
        self._next: Int32 = np.full(64, -1, np.int32)
        self._previous: Int32 = np.full(64, -1, np.int32)
        self._first: Int32 = np.full(size, -1, np.int32)
        self._homeless: dict[str, dict[int, None]] = {}
        self._node_of_slot: dict[int, str] = {}
        self._assumed: set[Hashable] = set()
        self._nominated_before: dict[Hashable, str] = {}
        """Nodes that assumed pods were nominated to, for pods that are forgotten again."""
        self.nominations = Nominations(size, self.allocatable.shape[1])
        self._guest_rows: dict[int, dict[int, list[PodInfo]]] = {}
        self._guest_stamp: tuple[int, int] = (-1, -1)

        self._namespaces: dict[str, dict[str, str]] = {}
        self._services: dict[tuple[str, str], Selector] = {}
        # By namespace and one label that a pod must have for the service to select it.
        self._services_at: dict[tuple[str, str, str], dict[str, Selector]] = {}
        self._controllers: dict[tuple[str, str, str], Selector] = {}
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}

        self._log: Int32 = np.zeros(_LOG_LIMIT, np.int32)
        self._log_filled = 0
        self.log_start = 0
        self.node_version = 0
        self.reads_whole_nodes = False
        """Whether ``node_version`` counts every change of a node's labels and spec."""
        self.peer_version = 0
        self.nomination_version = 0
        self.workload_version = 0
        self.budget_version = 0
        self.lowest_priority = NO_PRIORITY
        self._names_version = 0
        self._rank: Int32 = np.zeros(0, np.int32)
        self._rank_version = -1
        self._rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._rows_version = -1
        self._order: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._order_version = -1
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}
        self.revision = 0

    # --- nodes ---------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Number of rows that columns have room for."""
        return self._capacity

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._row_of)

    @property
    def pod_total(self) -> int:
        """Number of known pods with a node name, also of nodes that are not known."""
        return len(self._slot_of)

    def rows(self) -> npt.NDArray[np.intp]:
        """Return all live rows, ascending. The caller must not write to it."""
        if self._rows_version != self.node_version:
            self._rows = np.flatnonzero(self.alive)
            self._rows_version = self.node_version
        return self._rows

    def row_of(self, name: str) -> int | None:
        """Return the row of a node, or ``None``."""
        return self._row_of.get(name)

    def node(self, row: int) -> Node:
        """Return the node in ``row``; the row must be live."""
        node = self._nodes[row]
        assert node is not None
        return node

    def node_name(self, row: int) -> str:
        """Return the name of the node in ``row``; empty when the row is free."""
        return self.names[row]

    def node_names(self) -> Iterable[str]:
        """Return the names of all nodes, in order of arrival."""
        return self._row_of.keys()

    def ordered_rows(self) -> npt.NDArray[np.intp]:
        """Return live rows interleaved by zone: 1, 5, 2, 6, 3, 4 for {1,2,3,4} and {5,6} (R178).

        Zones and the nodes in them stand in order of arrival. Rule:
        pkg/scheduler/backend/cache/node_tree.go, v1.36.
        """
        if self._order_version != self.node_version:
            queues = [list(names) for names in self._zones.values()]
            order = [
                self._row_of[queue[i]]
                for i in range(max(map(len, queues), default=0))
                for queue in queues
                if i < len(queue)
            ]
            self._order = np.array(order, np.intp)
            self._order_version = self.node_version
        return self._order

    def set_node(self, node: Node) -> int:
        """Add or replace a node. Return its row.

        Raises:
            QuantityError: an allocatable amount does not parse; nothing was changed.
        """
        name = node.metadata.name
        amounts = {
            key: milli_value(amount) if key == "cpu" else value(amount)
            for key, amount in node.status.allocatable.items()
        }
        row = self._row_of.get(name)
        before: Node | None = None
        if row is None:
            if not self._free:
                self._grow_rows()
            row = self._free.pop()
            self._row_of[name] = row
            self.names[row] = name
            self.alive[row] = True
            self._names_version += 1
            self.node_version += 1
        else:
            before = self._nodes[row]
        self._nodes[row] = node
        self.allocatable[row] = 0
        for key, amount in amounts.items():
            if key in BASE_RESOURCES or is_scalar_resource(key):
                number = self.resource(key)  # first: it may replace the array
                self.allocatable[row, number] = amount
        self.allowed_pods[row] = amounts.get("pods", 0)
        looked_at = False
        if before is None or before.spec != node.spec:
            taints = self._taints.number(node.spec.taints)
            looked_at = (
                self.reads_whole_nodes
                or self.unschedulable.item(row) != node.spec.unschedulable
                or self.taint_set.item(row) != taints
            )
            self.unschedulable[row] = node.spec.unschedulable
            self.taint_set[row] = taints
        if before is None or before.metadata.labels != node.metadata.labels:
            labels = node.metadata.labels
            changed = [column.set(row, labels.get(column.key)) for column in self._columns.values()]
            moved = self._place_in_zone(name, _zone_key(labels))
            looked_at = looked_at or self.reads_whole_nodes or moved or any(changed)
        self.node_version += looked_at
        old_images = () if before is None else before.status.images
        if old_images != node.status.images:
            self._set_images(row, before, node)
        if before is None:
            for slot in self._homeless.pop(name, {}):
                del self._node_of_slot[slot]
                self._settle(slot, row)
            self.nominations.node_came(name, row, self._vectors)
        self._touch(row)
        return row

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods are remembered in case it comes back."""
        row = self._row_of.get(name)
        if row is None:
            return
        for slot in self._slots_on(row):
            self._unsettle(slot)
            self._homeless.setdefault(name, {})[slot] = None
            self._node_of_slot[slot] = name
        self.nominations.node_left(row)
        node = self.node(row)
        self._set_images(row, node, None)
        for column in self._columns.values():
            column.set(row, None)
        del self._row_of[name]
        self._names_version += 1
        self._place_in_zone(name, None)
        self.names[row] = ""
        self._nodes[row] = None
        self.alive[row] = False
        self.unschedulable[row] = False
        self.allocatable[row] = 0
        self.allowed_pods[row] = 0
        self.taint_set[row] = 0
        self._free.append(row)
        self.node_version += 1
        self._touch(row)

    def _place_in_zone(self, name: str, zone: str | None) -> bool:
        """Note the zone of a node. Return whether the node moved."""
        before = self._zone_of.get(name)
        if before == zone:
            return False
        if before is not None:
            members = self._zones[before]
            del members[name]
            if not members:
                del self._zones[before]
            del self._zone_of[name]
        if zone is not None:
            self._zones.setdefault(zone, {})[name] = None
            self._zone_of[name] = zone
        return True

    def _set_images(self, row: int, before: Node | None, after: Node | None) -> None:
        for node, present in ((before, False), (after, True)):
            if node is None:
                continue
            for image in node.status.images:
                for name in image.names:
                    if present:
                        self._image_nodes.setdefault(name, {})[row] = image.size_bytes
                    else:
                        holders = self._image_nodes.get(name, {})
                        holders.pop(row, None)
                        if not holders:
                            self._image_nodes.pop(name, None)
        self._image_version += 1
        self.node_version += 1

    def has_any_image(self, images: tuple[str, ...]) -> bool:
        """Return whether some node has one of the images."""
        held = self._image_nodes
        return bool(held) and any(image in held for image in images)

    def image_score_column(self, images: tuple[str, ...]) -> Int64:
        """Return, per row, the sum over ``images`` of size times share of nodes that have it.

        int64 (capacity,), bytes, each summand truncated. Rule: imagelocality/image_locality.go
        ``scaledImageScore``, v1.36. The array is shared: the caller must not write to it.
        """
        stamp = self.node_version
        found = self._image_columns.get(images)
        if found is not None and found[0] == stamp:
            return found[1]
        column = np.zeros(self._capacity, np.int64)
        total = self.node_count
        for image in images:
            holders = self._image_nodes.get(image)
            if holders:
                spread = len(holders) / total
                for row, size in holders.items():
                    column[row] += int(float(size) * spread)
        if len(self._image_columns) > 1024:
            self._image_columns.clear()
        self._image_columns[images] = (stamp, column)
        return column

    def label_column(self, key: str) -> LabelColumn:
        """Return the interned values of a node label; made on first use."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(key, self._capacity)
            for name, row in self._row_of.items():
                labels = self.node(row).metadata.labels
                if key in labels:
                    column.set(self._row_of[name], labels[key])
        return column

    def is_counted(self, resource: str) -> bool:
        """Return whether the scheduler counts the resource."""
        return resource in BASE_RESOURCES or is_scalar_resource(resource)

    def resource(self, name: str) -> int:
        """Return the column number of a resource; made on first use."""
        number = self.resources.number(name)
        width = self.allocatable.shape[1]
        if number >= width:
            wider = max(number + 1, width + 2)
            self.allocatable = _widen(self.allocatable, wider)
            self.requested = _widen(self.requested, wider)
            self._vectors = [_widen(v[None, :], wider)[0] for v in self._vectors]
            requests = np.zeros((len(self._class_requests), wider), np.int64)
            requests[:, :width] = self._class_requests
            self._class_requests = requests
            self.nominations.grow(self._capacity, wider)
            self.node_version += 1
        return number

    def _grow_rows(self) -> None:
        old = self._capacity
        new = old * 2
        self._capacity = new
        self.names += [""] * (new - old)
        self._nodes += [None] * (new - old)
        self._free = list(range(new - 1, old - 1, -1))
        self.allocatable = _lengthen(self.allocatable, new)
        self.requested = _lengthen(self.requested, new)
        self.nonzero_requested = _lengthen(self.nonzero_requested, new)
        self.allowed_pods = _lengthen(self.allowed_pods, new)
        self.pod_count = _lengthen(self.pod_count, new)
        self.unschedulable = _lengthen(self.unschedulable, new)
        self.alive = _lengthen(self.alive, new)
        self.taint_set = _lengthen(self.taint_set, new)
        self._first = _lengthen(self._first, new, -1)
        self.nominations.grow(new, self.allocatable.shape[1])
        for column in self._columns.values():
            column.grow(new)
        for counter in self._counters.values():
            counter.grow(new)
        self._image_columns.clear()
        self.node_version += 1

    def _touch(self, row: int) -> None:
        filled = self._log_filled
        if filled == _LOG_LIMIT:
            half = filled // 2
            self._log[:half] = self._log[half:]
            self.log_start += half
            filled = half
        self._log[filled] = row
        self._log_filled = filled + 1

    @property
    def log_limit(self) -> int:
        """Number of entries after which the older half of the log is dropped."""
        return _LOG_LIMIT

    @property
    def log_end(self) -> int:
        """Position after the last log entry; the first kept entry has ``log_start``."""
        return self.log_start + self._log_filled

    def touched_since(self, position: int) -> Int32 | None:
        """Return rows whose pods or capacity changed since a position, in order, with repeats.

        ``None``: the log does not reach back so far. The array is a view.
        """
        begin = position - self.log_start
        return None if begin < 0 else self._log[begin : self._log_filled]

    # --- kinds of pods ---------------------------------------------------------------------------

    def intern(self, info: PodInfo) -> PodInfo:
        """Return the known class with the same digest, or make ``info`` known."""
        known = self._class_of.get(info.digest)
        if known is not None:
            return known
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
        self.classes.append(info)
        self._vectors.append(vector)
        if info.index == len(self._class_priority):
            size = 2 * info.index
            self._class_priority = _lengthen(self._class_priority, size)
            self._class_peer = _lengthen(self._class_peer, size)
            self._class_pods = _lengthen(self._class_pods, size)
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

    def peers(self) -> Iterator[PodInfo]:
        """Return one pod for each way in which pods look to each other."""
        return iter(self._peers.infos)

    def peer_stamp(self, info: PodInfo) -> int:
        """Return a number that changes when terms about the class become known."""
        return self._peers.stamps[info.peer]

    def has_term_about(self, info: PodInfo) -> bool:
        """Return whether any known pod carries a term that means pods of this class.

        The answer holds as long as ``peer_version`` and the class's ``peer_stamp`` do.
        """
        return self._peers.has_term_about(info)

    def anti_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Return topology keys of known required anti-affinity terms about the class."""
        return self._peers.anti_affinity_keys(info)

    def scored_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Return topology keys of known required affinity and preferred terms about the class."""
        return self._peers.scored_affinity_keys(info)

    def counter(
        self,
        key: Hashable,
        weigh: Callable[[PodInfo], int],
        *,
        live_only: bool,
        reach: Reach | None = None,
    ) -> Counter:
        """Return the weighted pod count named ``key``; made from all pods on first use.

        ``weigh`` must depend only on ``peer_key``'s content and on namespace labels, and must be
        the same function of pods whenever ``key`` is equal. ``reach`` says which classes it may
        give a weight; ``None``: every class is asked about.
        """
        counter = self._counters.get(key)
        if counter is not None:
            return counter
        if len(self._counters) >= _COUNTER_LIMIT:
            self.forget_counters()
        counter = Counter(key, weigh, live_only=live_only, capacity=self._capacity, reach=reach)
        self._counters[key] = counter
        self._fill(counter)
        return counter

    def counted_by(self, info: PodInfo) -> Sequence[tuple[Counter, int]]:
        """Return the counters that a pod of this class has a weight in, with the weight."""
        return self._peers.weights[info.peer]

    def _fill(self, counter: Counter) -> None:
        weight_of = self._peers.count(counter)
        if not any(self._peers.pods[number] for number in weight_of):
            for info, row in self._guests:
                if info.peer in weight_of:
                    counter.bump(row, weight_of[info.peer])
            return
        by_peer = np.zeros(len(self._peers.infos), np.int64)
        by_peer[list(weight_of)] = list(weight_of.values())
        peer_of_class = np.array([info.peer for info in self.classes], np.int64)
        used = len(self._keys)
        where = self._pod_row[:used]
        counted = where >= 0
        if counter.live_only:
            counted = counted & ~self._pod_terminating[:used]
        if self._detached:
            counted[list(self._detached)] = False
        weights = by_peer[peer_of_class][self._pod_class[:used][counted]]
        np.add.at(counter.rows, where[counted], weights)
        counter.changes += 1
        counter.total = int(weights.sum())
        for info, row in self._guests:
            counter.bump(row, int(by_peer[info.peer]))

    def forget_counters(self) -> None:
        """Drop all counters; whoever needs one makes it again."""
        self._counters.clear()
        self._peers.forget_counters()
        self.peer_version += 1

    # --- pods ------------------------------------------------------------------------------------

    def add_pod(
        self,
        key: Hashable,
        info: PodInfo,
        node_name: str,
        *,
        start_time: float | None = None,
        terminating: bool = False,
        preempted: bool = False,
        name: str = "",
    ) -> None:
        """Note that a pod runs, or is to run, on a node; replaces what was known of ``key``.

        Pods that are finished (Succeeded, Failed) use nothing: the feeder removes them instead.

        Args:
            key: identity of the pod, chosen by the feeder; ``namespace/name`` where it is text.
            info: its class, from ``intern``.
            node_name: also a node that is not known yet.
            start_time: seconds since the epoch.
            terminating: whether the pod has a deletion timestamp.
            preempted: whether it terminates because the scheduler made room (its condition
                DisruptionTarget is true with reason PreemptionByScheduler).
            name: the pod's name, where ``key`` does not tell it.
        """
        if self.confirm(key, info, node_name, start_time=start_time, terminating=terminating):
            if preempted:
                self._preempted.add(self._slot_of[key])
            return
        self.remove_pod(key)
        slot = self._new_slot(key, info, start_time=start_time, terminating=terminating)
        if name:
            self._pod_names[slot] = name
        if preempted:
            self._preempted.add(slot)
        row = self._row_of.get(node_name)
        if row is None:
            self._homeless.setdefault(node_name, {})[slot] = None
            self._node_of_slot[slot] = node_name
        else:
            self._settle(slot, row)
        if key in self.nominations.node_of:
            self.unnominate(key)

    def confirm(
        self,
        key: Hashable,
        info: PodInfo,
        node_name: str,
        *,
        start_time: float | None = None,
        terminating: bool = False,
    ) -> bool:
        """Note that a pod is as it is known already, assumed or not; False where it is not."""
        slot = self._slot_of.get(key)
        if (
            slot is None
            or self._pod_class.item(slot) != info.index
            or self._pod_terminating.item(slot) != terminating
            or self.node_of(key) != node_name
        ):
            return False
        self._assumed.discard(key)
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        if start_time is not None:
            self._pod_started[slot] = start_time
        return True

    def remove_pod(self, key: Hashable) -> None:
        """Forget a pod. Unknown: nothing happens."""
        slot = self._slot_of.pop(key, None)
        if slot is None:
            return
        self._assumed.discard(key)
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        node_name = self._node_of_slot.pop(slot, None)
        if node_name is not None:
            homeless = self._homeless[node_name]
            del homeless[slot]
            if not homeless:
                del self._homeless[node_name]
        else:
            self._unsettle(slot)
        self._keys[slot] = None
        self._pod_names.pop(slot, None)
        self._preempted.discard(slot)
        self._free_slots.append(slot)

    def assume(self, key: Hashable, info: PodInfo, row: int) -> None:
        """Count a pod that was just decided; ``key`` must not be known."""
        assert key not in self._slot_of, f"pod {key!r} is already placed"
        slot = self._new_slot(key, info, start_time=None, terminating=False)
        self._settle(slot, row)
        self._assumed.add(key)
        if key in self.nominations.node_of:
            self._suspend_nomination(key)

    def log_room(self, count: int) -> tuple[Int32, int]:
        """Return the log and its length, with room for ``count`` more entries; see ``assume_run``.

        At most half of ``log_limit`` entries.
        """
        if self._log_filled + count > _LOG_LIMIT:
            half = self._log_filled // 2
            kept = self._log_filled - half
            self._log[:kept] = self._log[half : self._log_filled].copy()
            self.log_start += half
            self._log_filled = kept
        return self._log, self._log_filled

    def assume_run(
        self,
        keys: Sequence[Hashable],
        infos: Sequence[PodInfo],
        rows: Int32,
        link: Callable[..., None],
    ) -> None:
        """Note pods that were just decided, accounted for on their rows and written to the log.

        Counters follow here. ``link``: ``compiled.shared.link``.
        """
        count = len(keys)
        slots = self._new_slots(keys)
        self._pod_class[slots] = [info.index for info in infos]
        self._pod_terminating[slots] = False
        self._pod_started[slots] = np.nan
        np.add.at(self._class_pods, self._pod_class[slots], 1)
        self._pod_row[slots] = rows
        link(slots, rows, self._first, self._next, self._previous)
        self._log_filled += count
        self._assumed.update(keys)
        placed = self._peers.pods
        for info in infos:
            placed[info.peer] += 1
        self._bump(np.array([info.peer for info in infos], np.int32), rows)
        if self.nominations.node_of:
            for key in keys:
                self._suspend_nomination(key)

    def forget(self, key: Hashable) -> None:
        """Take back an assumed pod; a confirmed or unknown one stays as it is.

        A pod that was nominated before it was assumed is nominated again, as its row still says.
        """
        if key in self._assumed:
            info = self.classes[self._pod_class.item(self._slot_of[key])]
            node_name = self._nominated_before.get(key)
            self.remove_pod(key)
            if node_name is not None:
                self.nominate(key, info, node_name)

    def is_assumed(self, key: Hashable) -> bool:
        """Whether the pod was assumed and not yet confirmed."""
        return key in self._assumed

    def knows(self, key: Hashable) -> bool:
        """Whether the pod is on a node, or is to run there."""
        return key in self._slot_of

    def node_of(self, key: Hashable) -> str | None:
        """Return the node name of a pod, ``None`` when the pod is not known."""
        slot = self._slot_of.get(key)
        if slot is None:
            return None
        row = int(self._pod_row[slot])
        return self._node_of_slot[slot] if row < 0 else self.names[row]

    def add_pods(
        self,
        keys: Sequence[Hashable],
        classes: Int32,
        rows: Int32,
        *,
        started: Float64 | None = None,
        terminating: Mask | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Add many pods on known rows at once, as ``add_pod`` would one after the other.

        None may be known already. So many that the log has no room for them make all counters and
        what else follows the log be made anew.

        Args:
            keys: identities.
            classes: ``PodInfo.index`` of each, int32 (pods,).
            rows: row of each, int32 (pods,), all live.
            started: seconds since the epoch, NaN where unknown.
            terminating: bool (pods,).
            names: the pods' names, where ``keys`` do not tell them.
        """
        count = len(keys)
        if not count:
            return
        slots = self._new_slots(keys)
        self._pod_class[slots] = classes
        self._pod_row[slots] = rows
        self._pod_terminating[slots] = False if terminating is None else terminating
        self._pod_started[slots] = np.nan if started is None else started
        if names:
            self._pod_names.update(zip(slots.tolist(), names, strict=True))
        # Chain the new slots of each row in front of its list, the last one first, as single adds.
        order = count - 1 - np.argsort(rows[::-1], kind="stable")
        slot_numbers = slots[order]
        sorted_rows = rows[order]
        starts = np.flatnonzero(np.r_[True, sorted_rows[1:] != sorted_rows[:-1]])
        ends = np.r_[starts[1:], count] - 1
        following = np.r_[slot_numbers[1:], np.int32(-1)]
        heads = sorted_rows[starts]
        old_first = self._first[heads]
        following[ends] = old_first
        preceding = np.r_[np.int32(-1), slot_numbers[:-1]]
        preceding[starts] = -1
        self._next[slot_numbers] = following
        self._previous[slot_numbers] = preceding
        linked = old_first >= 0
        self._previous[old_first[linked]] = slot_numbers[ends][linked]
        self._first[heads] = slot_numbers[starts]
        by_class = np.bincount(classes)
        self._class_pods[: len(by_class)] += by_class
        kinds = np.flatnonzero(by_class)
        numbers = np.searchsorted(kinds, classes)
        known = [self.classes[kind] for kind in kinds.tolist()]
        vectors = np.array([self._vectors[info.index] for info in known])
        nonzero = np.array([(c.nonzero_cpu, c.nonzero_memory) for c in known], np.int64)
        # As one number they sort ten times as fast as as pairs.
        pairs, counts = np.unique(rows.astype(np.int64) * len(known) + numbers, return_counts=True)
        there, of = np.divmod(pairs, len(known))
        np.add.at(self.requested, there, vectors[of] * counts[:, None])
        np.add.at(self.nonzero_requested, there, nonzero[of] * counts[:, None])
        np.add.at(self.pod_count, there, counts)
        for info, placed in zip(known, np.bincount(numbers).tolist(), strict=True):
            self._peers.pods[info.peer] += placed
        if self.nominations.node_of:
            for key in keys:
                self.unnominate(key)
        if count > _LOG_LIMIT // 2:
            self.forget_counters()
            self.log_start = self.log_end + 1
            self._log_filled = 0
            return
        log, filled = self.log_room(count)
        log[filled : filled + count] = rows
        self._log_filled += count
        if self._counters:
            peers = np.array([info.peer for info in known], np.int32)[numbers]
            self._bump(peers, rows, terminating)

    def _new_slots(self, keys: Sequence[Hashable]) -> Int32:
        """Return slots for pods that were not known, int32 (pods,), with their keys noted."""
        count = len(keys)
        reused = min(count, len(self._free_slots))
        first = len(self._keys)
        numbers = [self._free_slots.pop() for _ in range(reused)]
        for slot, key in zip(numbers, keys[:reused], strict=True):
            self._keys[slot] = key
        self._keys.extend(keys[reused:] if reused else keys)
        if len(self._keys) > len(self._pod_class):
            self._grow_slots(len(self._keys))
        slots = np.arange(first - reused, first - reused + count, dtype=np.int32)
        slots[:reused] = numbers
        known = len(self._slot_of)
        self._slot_of.update(zip(keys, slots.tolist(), strict=True))
        assert len(self._slot_of) == known + count, "a pod is already placed"
        return slots

    def slots_of(self, keys: Iterable[Hashable]) -> Int32:
        """Return the slots of pods, int32 (keys,), -1 where a pod is not known."""
        find = self._slot_of.get
        return np.array([find(key, -1) for key in keys], np.int32)

    def rows_of(self, names: Iterable[str]) -> Int32:
        """Return the rows of nodes, int32 (names,), -1 where a node is not known."""
        find = self._row_of.get
        return np.array([find(name, -1) for name in names], np.int32)

    def are(self, slots: Int32, classes: Int32, rows: Int32, terminating: Mask) -> Mask:
        """Return which of these pods are just what is known of them, on live rows; bool (slots,).

        ``slots`` may be -1; ``classes``: ``PodInfo.index`` of each.
        """
        known: Mask = (slots >= 0) & (rows >= 0)
        known &= (self._pod_class[slots] == classes) & (self._pod_row[slots] == rows)
        known &= self._pod_terminating[slots] == terminating
        return known

    def settled(self, keys: Sequence[Hashable], slots: Int32) -> Mask:
        """Return which of these pods are counted on live rows and not only assumed; bool (keys,).

        ``slots`` may be -1.
        """
        found: Mask = (slots >= 0) & (self._pod_row[slots] >= 0)
        if self._assumed:
            found &= np.array([key not in self._assumed for key in keys], np.bool_)
        return found

    def infos_of(self, slots: Int32) -> list[PodInfo]:
        """Return the classes of pods by slot, each once."""
        return [self.classes[index] for index in np.unique(self._pod_class[slots]).tolist()]

    def confirm_all(self, keys: Sequence[Hashable], slots: Int32, started: Float64) -> list[int]:
        """Note that pods are as they are known; return the places of those that were assumed.

        Args:
            keys: identities of the pods.
            slots: their slots, int32 (keys,).
            started: seconds since the epoch, NaN where unknown, float64 (keys,).
        """
        known = ~np.isnan(started)
        self._pod_started[slots[known]] = started[known]
        assumed = self._assumed
        if not assumed:
            return []
        places = [place for place, key in enumerate(keys) if key in assumed]
        assumed.difference_update(keys)
        return places

    def _bump(self, peers: Int32, rows: Int32, terminating: Mask | None = None) -> None:
        """Let counters follow pods that came: how they look to others, and where they are."""
        for peer in set(peers.tolist()):
            weights = self._peers.weights[peer]
            if not weights:
                continue
            mine = peers == peer
            there = rows[mine]
            alive = there if terminating is None else rows[mine & ~terminating]
            for counter, weight in weights:
                counter.bump_all(alive if counter.live_only else there, weight)

    def _new_slot(
        self, key: Hashable, info: PodInfo, *, start_time: float | None, terminating: bool
    ) -> int:
        if self._free_slots:
            slot = self._free_slots.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            if slot >= len(self._pod_class):
                self._grow_slots(slot + 1)
            self._keys.append(key)
        self._slot_of[key] = slot
        self._pod_class[slot] = info.index
        self._pod_row[slot] = -1
        self._pod_terminating[slot] = terminating
        self._pod_started[slot] = np.nan if start_time is None else start_time
        return slot

    def _grow_slots(self, needed: int) -> None:
        size = max(needed, 2 * len(self._pod_class))
        self._pod_class = _lengthen(self._pod_class, size)
        self._pod_row = _lengthen(self._pod_row, size, -1)
        self._pod_terminating = _lengthen(self._pod_terminating, size)
        self._pod_started = _lengthen(self._pod_started, size, np.nan)
        self._next = _lengthen(self._next, size, -1)
        self._previous = _lengthen(self._previous, size, -1)

    def _settle(self, slot: int, row: int) -> None:
        self._pod_row[slot] = row
        head = self._first[row]
        self._next[slot] = head
        self._previous[slot] = -1
        if head >= 0:
            self._previous[head] = slot
        self._first[row] = slot
        self._class_pods[self._pod_class.item(slot)] += 1
        self._account(slot, row, 1)
        self._touch(row)

    def _unsettle(self, slot: int) -> None:
        row = int(self._pod_row[slot])
        self._class_pods[self._pod_class.item(slot)] -= 1
        self._account(slot, row, -1)
        following, previous = self._next[slot], self._previous[slot]
        if previous >= 0:
            self._next[previous] = following
        else:
            self._first[row] = following
        if following >= 0:
            self._previous[following] = previous
        self._pod_row[slot] = -1
        self._touch(row)

    def _account(self, slot: int, row: int, sign: int) -> None:
        info = self.classes[self._pod_class.item(slot)]
        # One number after the other: most classes ask for two resources.
        for column, amount in info.amounts:
            self.requested[row, column] += sign * amount
        self.nonzero_requested[row, 0] += sign * info.nonzero_cpu
        self.nonzero_requested[row, 1] += sign * info.nonzero_memory
        self.pod_count[row] += sign
        self._peers.pods[info.peer] += sign
        weights = self._peers.weights[info.peer]
        if weights:
            terminating = self._pod_terminating[slot]
            for counter, weight in weights:
                if not (terminating and counter.live_only):
                    counter.bump(row, sign * weight)

    def _slots_on(self, row: int) -> list[int]:
        following = self._next.item
        slots = []
        slot = self._first.item(row)
        while slot >= 0:
            slots.append(slot)
            slot = following(slot)
        return slots

    def _record(self, slot: int) -> PodRecord:
        key = self._keys[slot]
        started = self._pod_started.item(slot)
        name = self._pod_names.get(slot, "")
        if not name and isinstance(key, str):
            name = key.rpartition("/")[2]
        return PodRecord(
            key=key,
            info=self.classes[self._pod_class.item(slot)],
            row=self._pod_row.item(slot),
            slot=slot,
            start_time=None if started != started else started,
            terminating=self._pod_terminating.item(slot),
            preempted=slot in self._preempted,
            name=name,
        )

    def pods_on(self, row: int, *, below: int | None = None) -> list[PodRecord]:
        """Return the pods on a node, of priority ``below`` if given, the last to arrive first."""
        slots = self._slots_on(row)
        if below is not None:
            classes, of = self.classes, self._pod_class.item
            slots = [slot for slot in slots if classes[of(slot)].priority < below]
        return [self._record(slot) for slot in slots]

    def records(self, slots: Iterable[int]) -> list[PodRecord]:
        """Return pods by slot."""
        return list(map(self._record, slots))

    def pods_of(self, classes: Sequence[int]) -> list[PodRecord]:
        """Return the pods of some classes that are on known nodes."""
        used = len(self._keys)
        there = (self._pod_row[:used] >= 0) & np.isin(self._pod_class[:used], classes)
        return self.records(np.flatnonzero(there).tolist())

    def _priorities(self) -> Int64:
        """Return the priority of each class, int64 (classes,)."""
        return self._class_priority[: len(self.classes)]

    def class_columns(self) -> tuple[Int64, Int32, Int64]:
        """Return priority, peer and requests by class: int64, int32, int64 (.., resources).

        They are longer than there are classes, and shared: the caller must not write to them.
        """
        return self._class_priority, self._class_peer, self._class_requests

    def slot_columns(self) -> tuple[Int32, Int32, Int32, Float64, Mask]:
        """Return the pods on nodes as lists of slots by row.

        First slot by row; by slot the following one (-1: none), class, start time in seconds (NaN:
        not started) and whether the pod terminates. Shared: the caller must not write to them.
        """
        started, terminating = self._pod_started, self._pod_terminating
        return self._first, self._next, self._pod_class, started, terminating

    def has_pods_below(self, priority: int) -> bool:
        """Return whether any pod of lower priority is on a known node."""
        if self.lowest_priority >= priority:
            return False
        used = len(self.classes)
        return bool(((self._class_pods[:used] > 0) & (self._priorities() < priority)).any())

    def name_rank(self) -> Int32:
        """Return the place of each row's name in the order of names, int32 (capacity,).

        0 for rows without a node. Shared: the caller must not write to it.
        """
        if self._rank_version != self._names_version or len(self._rank) != self._capacity:
            self._rank = np.zeros(self._capacity, np.int32)
            rows = [self._row_of[name] for name in sorted(self._row_of)]
            self._rank[rows] = np.arange(len(rows))
            self._rank_version = self._names_version
        return self._rank

    @property
    def peer_total(self) -> int:
        """Number of known ways in which pods look to each other."""
        return len(self._peers.infos)

    def peer_weights(self, counters: Sequence[Counter]) -> Int64:
        """Return what a pod weighs in each counter, int64 (peers, counters)."""
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

    def pod(self, key: Hashable) -> PodRecord | None:
        """Return what is known of a pod; ``row`` is -1 where its node is not known."""
        slot = self._slot_of.get(key)
        return None if slot is None else self._record(slot)

    def pods(self) -> Iterator[PodRecord]:
        """Return all known pods."""
        return (self._record(slot) for slot in self._slot_of.values())

    def detach(self, record: PodRecord) -> None:
        """Take a pod off its node in the accounts only; ``attach`` must follow before any delta.

        The pod stays listed by ``pods_on`` and nothing is logged: caches must not look in between.
        """
        self._account(record.slot, record.row, -1)
        self._detached.add(record.slot)

    def attach(self, record: PodRecord) -> None:
        """Put a detached pod back."""
        self._account(record.slot, record.row, 1)
        self._detached.discard(record.slot)

    @contextmanager
    def seated(self, guests: Mapping[int, Sequence[PodInfo]]) -> Iterator[None]:
        """Count nominated pods on their rows for a while; no delta may come meanwhile."""
        seats = [(info, row) for row, infos in guests.items() for info in infos]
        rows_of: dict[int, list[int]] = {}
        for info, row in seats:
            rows_of.setdefault(info.index, []).append(row)
        rows = {index: np.array(there, np.int32) for index, there in rows_of.items()}
        self._seat(rows, 1)
        before = self._guests
        self._guests = [*before, *seats]
        try:
            yield
        finally:
            self._guests = before
            self._seat(rows, -1)

    def _seat(self, rows: Mapping[int, Int32], sign: int) -> None:
        for index, there in rows.items():
            info = self.classes[index]
            np.add.at(self.requested, there, sign * self._vectors[index])
            np.add.at(self.nonzero_requested[:, 0], there, sign * info.nonzero_cpu)
            np.add.at(self.nonzero_requested[:, 1], there, sign * info.nonzero_memory)
            np.add.at(self.pod_count, there, sign)
            for counter, weight in self._peers.weights[info.peer]:
                counter.bump_all(there, sign * weight)

    # --- nominations -----------------------------------------------------------------------------

    def nominate(self, key: Hashable, info: PodInfo, node_name: str) -> None:
        """Note that room is being made for a pending pod on a node; replaces an earlier one."""
        self.unnominate(key)
        row = self._row_of.get(node_name)
        self.nominations.add(key, info, node_name, row, self._vectors[info.index])
        self._nominations_changed(row)

    def unnominate(self, key: Hashable) -> None:
        """Drop a pod's nomination. None: nothing happens."""
        if self._nominated_before:
            self._nominated_before.pop(key, None)
        node_name = self.nominations.node_of.get(key)
        if node_name is not None:
            row = self._row_of.get(node_name)
            info = self.nominations.of_node[node_name][key]
            self.nominations.remove(key, row, self._vectors[info.index])
            self._nominations_changed(row)

    def _suspend_nomination(self, key: Hashable) -> None:
        """Drop the nomination of a pod that is assumed, but remember where it was."""
        node_name = self.nominations.node_of.get(key)
        if node_name is not None:
            self.unnominate(key)
            self._nominated_before[key] = node_name

    def _nominations_changed(self, row: int | None) -> None:
        self.nomination_version += 1
        if row is not None:
            self._touch(row)

    def nominated_node_of(self, key: Hashable) -> str:
        """Return the node a pod is nominated to, empty when to none."""
        return self.nominations.node_of.get(key, "")

    def has_nominations(self, priority: int, key: Hashable) -> bool:
        """Return whether another pod of at least this priority is nominated to any node."""
        return self.nominations.any_for(priority, key)

    @property
    def has_any_nomination(self) -> bool:
        """Whether any pod is nominated to any node."""
        return bool(self.nominations.node_of)

    def guests(self, priority: int, key: Hashable) -> Mapping[int, Sequence[PodInfo]]:
        """Return nominated pods of at least ``priority`` by row, but for ``key``.

        Such pods count as if they ran there (``RunFilterPluginsWithNominatedPods``). The mapping is
        shared: the caller must not write to it.
        """
        nominations = self.nominations
        if not nominations.node_of:
            return {}
        stamp = (self.nomination_version, self.node_version)
        if self._guest_stamp != stamp:
            self._guest_rows.clear()
            self._guest_stamp = stamp
        found = self._guest_rows.get(priority)
        if found is None:
            found = self._guest_rows[priority] = {
                row: infos
                for name, there in nominations.of_node.items()
                if (row := self._row_of.get(name)) is not None
                and (infos := [info for info in there.values() if info.priority >= priority])
            }
        own = nominations.node_of.get(key)
        row = None if own is None else self._row_of.get(own)
        if own is None or row not in found:
            return found
        others = [
            info
            for other, info in nominations.of_node[own].items()
            if other != key and info.priority >= priority
        ]
        rest = {at: infos for at, infos in found.items() if at != row}
        return {**rest, row: others} if others else rest

    # --- other objects ---------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add or replace a namespace."""
        if self._namespaces.get(name) != labels:
            self._namespaces[name] = dict(labels)
            self.forget_counters()

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace."""
        if self._namespaces.pop(name, None) is not None:
            self.forget_counters()

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, ``None`` when it is not known."""
        return self._namespaces.get(namespace)

    def set_service(self, service: Service) -> None:
        """Add or replace a service."""
        meta = service.metadata
        self._drop_service(meta.namespace, meta.name)
        selector = selector_from_set(service.spec.selector)
        self._services[meta.namespace, meta.name] = selector
        if selector.requirements:
            there = self._services_at.setdefault(_filed(meta.namespace, selector), {})
            there[meta.name] = selector
        self.workload_version += 1

    def remove_service(self, namespace: str, name: str) -> None:
        """Remove a service."""
        self._drop_service(namespace, name)
        self.workload_version += 1

    def _drop_service(self, namespace: str, name: str) -> None:
        selector = self._services.pop((namespace, name), None)
        if selector is not None and selector.requirements:
            filed = _filed(namespace, selector)
            there = self._services_at[filed]
            del there[name]
            if not there:
                del self._services_at[filed]

    def set_controller(self, controller: ReplicationController | ReplicaSet | StatefulSet) -> None:
        """Add or replace a controller whose pods are spread by default."""
        if isinstance(controller, ReplicationController):
            kind, selector = "ReplicationController", selector_from_set(controller.spec.selector)
        else:
            kind = type(controller).__name__
            selector = selector_from_label_selector(controller.spec.selector)
        self._controllers[_controller_key(kind, controller.metadata)] = selector
        self.workload_version += 1

    def remove_controller(self, kind: str, namespace: str, name: str) -> None:
        """Remove a controller by kind (ReplicationController, ReplicaSet or StatefulSet)."""
        self._controllers.pop((kind, namespace, name), None)
        self.workload_version += 1

    def default_selector(self, pod: PodInfo) -> Selector | None:
        """Return the joined selector of a pod's services and controller, ``None`` when empty.

        Rule: plugins/helper/spread.go ``DefaultSelector``, v1.36.
        """
        if pod.owner is None and not self._services_at:
            return None
        merged: dict[str, str] = {}
        for label, text in pod.labels.items():
            for selector in self._services_at.get((pod.namespace, label, text), {}).values():
                if selector.matches(pod.labels):
                    for requirement in selector.requirements:
                        merged[requirement.key] = requirement.values[0]
        extra: Selector | None = None
        kind = ""
        if pod.owner is not None:
            api_version, kind, name = pod.owner
            if api_version == _CONTROLLER_VERSIONS.get(kind):
                extra = self._controllers.get((kind, pod.namespace, name))
        if extra is not None and not extra.nothing:
            if kind == "ReplicationController":
                for requirement in extra.requirements:
                    merged[requirement.key] = requirement.values[0]
                extra = None
        elif extra is not None:
            extra = None
        found = selector_from_set(merged)
        if extra is not None:
            found = found.add(extra.requirements)
        return found if found.requirements else None

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a PodDisruptionBudget."""
        meta = budget.metadata
        self._budgets[(meta.namespace, meta.name)] = DisruptionBudget(
            namespace=meta.namespace,
            name=meta.name,
            selector=selector_from_label_selector(budget.spec.selector),
            disruptions_allowed=budget.status.disruptions_allowed,
            disrupted=frozenset(budget.status.disrupted_pods),
        )
        self.budget_version += 1

    def remove_budget(self, namespace: str, name: str) -> None:
        """Remove a PodDisruptionBudget."""
        self._budgets.pop((namespace, name), None)
        self.budget_version += 1

    def disruption_budgets(self) -> Sequence[DisruptionBudget]:
        """Return all PodDisruptionBudgets."""
        return list(self._budgets.values())


_CONTROLLER_VERSIONS = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}


def _filed(namespace: str, selector: Selector) -> tuple[str, str, str]:
    first = selector.requirements[0]
    return namespace, first.key, first.values[0]


def _controller_key(kind: str, meta: ObjectMeta) -> tuple[str, str, str]:
    return (kind, meta.namespace, meta.name)


def _zone_key(labels: Mapping[str, str]) -> str:
    """Return region and zone as one name (component-helpers ``GetZoneKey``)."""
    zone = next((labels[key] for key in ZONE_LABELS if key in labels), "")
    region = next((labels[key] for key in REGION_LABELS if key in labels), "")
    return f"{region}:\0:{zone}" if region or zone else ""


def _lengthen(array: npt.NDArray[T], size: int, fill: float = 0) -> npt.NDArray[T]:
    shape = (size, *array.shape[1:])
    longer = np.full(shape, fill, array.dtype, order="F")
    longer[: len(array)] = array
    return longer


def _widen(array: Int64, width: int) -> Int64:
    wider = np.zeros((len(array), width), np.int64, order="F")
    wider[:, : array.shape[1]] = array
    return wider
