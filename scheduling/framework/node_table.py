"""The part of a snapshot that plugins may read: nodes as columns, pod counts, pods by node.

``engine.snapshot.Snapshot`` fulfils the protocol.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from clusterstate.objects.dra.counting import Kind
from clusterstate.objects.values.labels import Selector
from clusterstate.objects.values.node import Node, Taint
from scheduling.framework.arrays import Float64, Int32, Int64, Mask
from scheduling.framework.attached_volumes import AttachedVolumes
from scheduling.framework.device_claims import DeviceTable
from scheduling.framework.pod_groups import GroupTable
from scheduling.framework.reach import Reach
from scheduling.framework.tables import Counter, LabelColumn
from scheduling.framework.types import DisruptionBudget, PodInfo, PodRecord
from scheduling.framework.volume_table import VolumeTable

Rows = npt.NDArray[np.intp]
"""Row numbers of the node table, in the order in which nodes are looked at."""


class NodeTable(Protocol):
    """The part of a snapshot that plugins read. Columns are indexed by row.

    ``allocatable``, ``requested``: int64, shape (rows, resources), cpu in millicores, all others
    in whole units (bytes for memory). ``nonzero_requested``: int64 (rows, 2), cpu and memory with
    the scoring defaults of 100m and 200Mi for containers that ask for none.
    ``allowed_pods``, ``pod_count``: int64 (rows,). ``taint_set``, ``image_set``: int32 ids of
    ``taint_sets``. ``unschedulable``, ``alive``: bool (rows,).
    """

    allocatable: npt.NDArray[np.int64]
    requested: npt.NDArray[np.int64]
    nonzero_requested: npt.NDArray[np.int64]
    allowed_pods: npt.NDArray[np.int64]
    pod_count: npt.NDArray[np.int64]
    unschedulable: npt.NDArray[np.bool_]
    alive: npt.NDArray[np.bool_]
    taint_set: npt.NDArray[np.int32]
    taint_sets: list[tuple[Taint, ...]]
    node_version: int
    peer_version: int
    volumes: VolumeTable
    devices: DeviceTable
    groups: GroupTable
    classes: list[PodInfo]

    @property
    def capacity(self) -> int:
        """Number of rows for which the columns have space."""
        ...

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        ...

    def rows(self) -> Rows:
        """All live rows, ascending. The caller must not write to it."""
        ...

    def row_of(self, name: str) -> int | None:
        """Row of the node, ``None`` if unknown."""
        ...

    def node(self, row: int) -> Node:
        """The node in ``row``."""
        ...

    def node_name(self, row: int) -> str:
        """Name of the node in ``row``."""
        ...

    def resource(self, name: str) -> int:
        """Column number of a resource, made on first use."""
        ...

    def is_counted(self, resource: str) -> bool:
        """Whether the scheduler counts the resource (others are ignored as in Kubernetes)."""
        ...

    def label_column(self, key: str) -> LabelColumn:
        """The interned values of a node label, made on first use and kept up to date."""
        ...

    def counter(
        self,
        key: Hashable,
        weigh: Callable[[PodInfo], int],
        *,
        live_only: bool,
        reach: Reach | None = None,
    ) -> Counter:
        """A weighted count of pods per row, kept up to date; see ``Counter``.

        ``reach``: the classes that it may weigh; ``None``: ``weigh`` is called for every class.
        """
        ...

    def peer_stamp(self, info: PodInfo) -> int:
        """A number that changes when the decision about a class may change."""
        ...

    def claim_users(self, namespace: str, name: str) -> int:
        """Return how many pods on known nodes use a claim."""
        ...

    def has_term_about(self, info: PodInfo) -> bool:
        """Whether any known pod has an affinity term that selects pods of this class."""
        ...

    def anti_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Topology keys of known required anti-affinity terms that select pods of this class."""
        ...

    def scored_affinity_keys(self, info: PodInfo) -> Iterable[str]:
        """Topology keys of known required affinity and preferred terms that select the class."""
        ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, ``None`` when it is not known.

        When they change later, ``peer_version`` changes too, and counters are rebuilt.
        """
        ...

    def has_any_image(self, images: tuple[str, ...]) -> bool:
        """Whether some node has one of the images."""
        ...

    def image_score_column(self, images: tuple[str, ...]) -> npt.NDArray[np.int64]:
        """Sum over ``images`` of size times spread per row, in bytes; int64 (rows,)."""
        ...

    def default_selector(self, pod: PodInfo) -> Selector | None:
        """The selector of the services and controllers of a pod, ``None`` when it has none."""
        ...

    @property
    def is_trying(self) -> bool:
        """Whether a dry run is in progress, so that counts differ from ``pods_on``."""
        ...

    def counted_on(self, row: int) -> Sequence[PodInfo]:
        """The class of each pod that is counted on a row, as a dry run has it."""
        ...

    def request_vector(self, info: PodInfo) -> npt.NDArray[np.int64]:
        """Requests by resource column, int64 (resources,)."""
        ...

    def ordered_rows(self) -> Rows:
        """All live rows, interleaved by zone (R178)."""
        ...

    def nominated_pods(
        self, priority: int, key: Hashable, rows: Rows | None = None
    ) -> Mapping[int, Sequence[PodInfo]]:
        """Pods of at least this priority that are nominated to nodes, by row, except ``key``.

        ``rows``: only these rows must be in the result.
        """
        ...

    def counting_nominated(
        self, nominated: Mapping[int, Sequence[PodInfo]]
    ) -> AbstractContextManager[None]:
        """Count nominated pods on their nodes within the block."""
        ...

    @property
    def log_end(self) -> int:
        """Position after the last entry of the log of touched rows."""
        ...

    def touched_since(self, position: int) -> npt.NDArray[np.int32] | None:
        """Rows whose pods or capacity changed since a position of the log, ``None`` if unknown."""
        ...

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Rows whose changes ``node_version`` counted since ``version``; ``None``: perhaps all."""
        ...

    def device_column(self, kind: Kind) -> int:
        """Column in which devices of a kind are counted, made on first use; -1: they cannot be."""
        ...

    def slot_columns(
        self,
    ) -> tuple[Int32, Int32, Int32, Float64, Mask, Int64]:
        """The pods on nodes as linked lists of slots by row; see ``Snapshot.slot_columns``."""
        ...

    def attached_volumes(self) -> AttachedVolumes:
        """The volumes attached to nodes, as they are now."""
        ...

    def pods_on(self, row: int, *, below: int | None = None) -> list[PodRecord]:
        """The pods on a node, last arrived first; ``below``: only of lower priority."""
        ...

    def disruption_budgets(self) -> Sequence[DisruptionBudget]:
        """All PodDisruptionBudgets."""
        ...

    def has_pods_below(self, priority: int) -> bool:
        """Whether any pod of lower priority is on a node."""
        ...

    def spares_some(self, pod: PodInfo) -> bool:
        """Whether groups protect some pods below ``pod``'s priority from its preemption."""
        ...

    def detach(self, record: PodRecord) -> None:
        """Subtract a pod from the sums of its node, until ``attach``."""
        ...

    def attach(self, record: PodRecord) -> None:
        """Add a detached pod to the sums again."""
        ...
