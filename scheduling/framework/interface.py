"""The contract between plugins and the scheduling cycle: codes, statuses, extension points.

A plugin is any object with a ``name`` and the methods of one or more protocols below; it inherits
nothing. Judgements about nodes are vectorised: a plugin receives the rows of the node table to
judge, and returns arrays over these rows. ``framework.per_node.PerNode`` wraps plugins that judge
one node at a time.

Codes and statuses are in ``status``, pods and results in ``types``, columns in ``tables``, what
plugins may read of a snapshot in ``node_table``. Sources: k8s.io/kube-scheduler
``framework/interface.go`` and ``pkg/scheduler/framework/interface.go``, v1.36 (R149-R169).
"""

from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import PodGroup
from scheduling.framework.device_claims import DeviceTable
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.pod_groups import Placement
from scheduling.framework.status import Code, Status
from scheduling.framework.types import (
    Candidate,
    Diagnosis,
    Nomination,
    PodInfo,
    PodRecord,
    Victims,
)
from scheduling.framework.volume_table import VolumeTable

Scores = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

MAX_NODE_SCORE = 100
"""Upper end of a normalised score (interface.go ``MaxNodeScore``); the lower end is 0."""
MAX_TOTAL_SCORE = 2**63 - 1
PODS_TO_ACTIVATE = "kubernetes.io/pods-to-activate"
"""The note that holds ``CycleState.pods_to_activate`` (interface.go ``PodsToActivateKey``)."""


T = TypeVar("T")


class CycleState:
    """Notes that plugins leave for themselves and each other during one scheduling cycle.

    ``skip_filter`` and ``skip_score`` hold the names of plugins whose PreFilter or PreScore
    answered Skip. ``pod_key`` is the pod's identity in the snapshot, ``None`` for a pod that is not
    known there; ``nominated_node`` the node to which preemption nominated it; ``random`` is the
    cycle's seeded generator (its seed has 64 bits), ``None`` without a seed. ``victim_search`` is a
    fast dry run of preemption, ``None`` where the engine offers none; ``tells_candidates``: whether
    a nomination must list all candidates. ``pod_name`` (``namespace/name``) and ``pod_uid`` are
    known from Reserve on: earlier points are about a scheduling class. ``volumes`` and ``devices``:
    the snapshot's tables for Reserve and Unreserve, ``None`` without a snapshot. A binding cycle
    may continue in another process or after a restart; it then has only the notes that are plain
    data (``plain_notes``).
    """

    __slots__ = (
        "_notes",
        "_random",
        "_seed",
        "devices",
        "nominated_node",
        "pod_key",
        "pod_name",
        "pod_uid",
        "skip_filter",
        "skip_score",
        "tells_candidates",
        "victim_search",
        "volumes",
    )

    def __init__(
        self, *, pod_key: Hashable = None, nominated_node: str = "", seed: int | None = None
    ) -> None:
        self._notes: dict[str, object] = {}
        self._random: np.random.Generator | None = None
        self._seed = seed
        self.pod_key = pod_key
        self.pod_name = ""
        self.pod_uid = ""
        self.nominated_node = nominated_node
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.victim_search: VictimSearch | None = None
        self.tells_candidates = False
        self.volumes: VolumeTable | None = None
        self.devices: DeviceTable | None = None

    @property
    def random(self) -> np.random.Generator | None:
        """The cycle's seeded generator; made on first use, since few cycles need one."""
        if self._random is None and self._seed is not None:
            self._random = np.random.Generator(np.random.PCG64(self._seed))
        return self._random

    def draw_below(self, count: int) -> int:
        """Return a number below ``count`` that the cycle's seed determines; 0 without a seed.

        Over all seeds each number is equally likely. Much faster than ``random`` where a cycle
        needs one number.
        """
        return 0 if self._seed is None else (self._seed * count) >> 64

    def write(self, key: str, value: object) -> None:
        """Store ``value`` under ``key``, replacing an earlier one."""
        self._notes[key] = value

    def read(self, key: str, kind: type[T]) -> T:
        """Return the value stored under ``key``.

        Raises:
            KeyError: nothing is stored.
            TypeError: the value is not a ``kind``.
        """
        value = self._notes[key]
        if not isinstance(value, kind):
            raise TypeError(f"{key} holds {type(value).__name__}, not {kind.__name__}")
        return value

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return the value stored under ``key``, ``None`` if it is missing or not a ``kind``."""
        value = self._notes.get(key)
        return value if isinstance(value, kind) else None

    def delete(self, key: str) -> None:
        """Forget ``key``; nothing happens when it is not there."""
        self._notes.pop(key, None)

    @property
    def pods_to_activate(self) -> list[str]:
        """Pods (``namespace/name``) to try at once if this one is placed; plugins append to it.

        Pods that are listed when Permit has allowed the pod or answered Wait become active then;
        pods that are added later, once the pod is bound and PostBind has run. They skip backoff and
        events; pods that are not in the queue are ignored. The list of a cycle that does not place
        its pod is dropped. Rule: ``PodsToActivate``, schedule_one.go, v1.36.
        """
        found = self._notes.get(PODS_TO_ACTIVATE)
        if not isinstance(found, list):
            found = self._notes[PODS_TO_ACTIVATE] = []
        return found

    def take_pods_to_activate(self) -> list[tuple[str, str]]:
        """Return namespace and name of the pods to activate, and empty the list."""
        return pods_named(self._notes.pop(PODS_TO_ACTIVATE, None))

    def plain_notes(self) -> dict[str, object]:
        """Return the notes that JSON can hold: texts, numbers, lists and objects of them."""
        return {key: value for key, value in self._notes.items() if _is_plain(value)}

    def clone(self) -> "CycleState":
        """Return a state with the same notes (shared values, own table)."""
        copy = CycleState(pod_key=self.pod_key, nominated_node=self.nominated_node)
        copy._random, copy._seed = self.random, self._seed
        copy._notes = dict(self._notes)
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        copy.pod_name, copy.pod_uid = self.pod_name, self.pod_uid
        copy.victim_search = self.victim_search
        copy.tells_candidates = self.tells_candidates
        copy.volumes, copy.devices = self.volumes, self.devices
        return copy


def pods_named(names: object) -> list[tuple[str, str]]:
    """Return namespace and name of each valid ``namespace/name`` in a list."""
    if not isinstance(names, list):
        return []
    parts = [one.split("/") for one in names if isinstance(one, str)]
    return [(part[0], part[1]) for part in parts if len(part) == 2]


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(of) for key, of in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


class FilterResult(msgspec.Struct, frozen=True):
    """A Filter's answer for the requested rows.

    ``codes``: uint8 over the rows, values of ``Code``. ``reason``: index into ``reasons`` for the
    rows whose code is not Success. ``reasons``: each entry is the tuple of reasons of a status.
    """

    codes: Codes
    reason: npt.NDArray[np.int32]
    reasons: tuple[tuple[str, ...], ...]

    @staticmethod
    def rejecting(
        rejected: npt.NDArray[np.bool_], code: Code, *reasons: str
    ) -> "FilterResult | None":
        """Return a result that rejects where ``rejected`` is True; ``None`` if nowhere."""
        if not rejected.any():
            return None
        return FilterResult(
            np.where(rejected, np.uint8(code), np.uint8(0)),
            np.zeros(len(rejected), np.int32),
            (reasons,),
        )


class PreFilterResult(msgspec.Struct, frozen=True):
    """``node_names`` ``None``: all nodes remain; otherwise only these can be feasible."""

    node_names: frozenset[str] | None = None


@runtime_checkable
class Plugin(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """Name of the plugin in profiles, such as ``NodeResourcesFit``."""
        ...


@runtime_checkable
class QueueSort(Plugin, Protocol):
    """Order of the active queue; exactly one per profile (R152)."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return a total sort key; lower goes first. ``queued_at``: seconds since the epoch."""
        ...


@runtime_checkable
class PreEnqueue(Plugin, Protocol):
    """Runs before a pod enters the active queue; anything but Success keeps the pod out (gated)."""

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return Success to admit the pod to the active queue."""
        ...


@runtime_checkable
class PreFilter(Plugin, Protocol):
    """Runs once per cycle before Filter; errors abort, rejections reject on every node (R153)."""

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Return the nodes that remain, and a status; Skip omits this plugin's Filter."""
        ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Runs when preemption or nomination tries pods on a node.

    Counters follow ``attach`` and ``detach`` by themselves, so only plugins that keep counts of
    their own need this.
    """

    def pod_attached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Note that ``other`` was added to ``row`` for this cycle."""
        ...

    def pod_detached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Note that ``other`` was removed from ``row`` for this cycle."""
        ...


@runtime_checkable
class Filter(Plugin, Protocol):
    """Judges nodes (R154)."""

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Return a judgement for each row; ``None`` means that all of them pass."""
        ...


class VictimSearch(Protocol):
    """The dry run of preemption in numbers, over one snapshot and profile."""

    def find_victims(
        self, state: CycleState, info: PodInfo, rows: Rows, *, begin: int, enough: int
    ) -> Victims | None:
        """Return the pods that would have to leave a node for a pod, as candidates.

        The same answer as ``plugins.default_preemption.DefaultPreemption.dry_run``. Nodes are tried
        until ``enough`` candidates are found, at least 1, and one that violates no budget.

        Args:
            state: the cycle state after PreFilter.
            info: the pod's class.
            rows: nodes that reject the pod in a way that removing pods may change.
            begin: position in ``rows`` at which to begin; the search wraps around.
            enough: how many candidates are enough.

        Returns:
            ``None`` where a filter of the profile cannot be stated in numbers.

        Raises:
            PluginFailed: a plugin failed.
        """
        ...


@runtime_checkable
class Extender(Plugin, Protocol):
    """An external service that judges the nodes that plugins passed (``plugins.http_extender``).

    It is called after all filters, and not in the dry run of preemption.
    """

    filters_nodes: bool
    """Whether its Filter rejects any node."""

    def process_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        candidates: Sequence[Candidate],
    ) -> Sequence[Candidate]:
        """Return the candidates that the service keeps, with their victims."""
        ...


@runtime_checkable
class Preparing(Plugin, Protocol):
    """A plugin that is given all pods of a batch at once, to prepare for them together."""

    def prepare(self, pods: Sequence[PodInfo], snapshot: NodeTable) -> None:
        """Prepare for these pods; each attempt must also work without this call."""
        ...


class Handle(Protocol):
    """The methods of the framework that a PostFilter plugin may call."""

    extenders: Sequence[Extender]
    """Services that may change the candidates of preemption, in order."""

    def run_filters(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, row: int) -> Status:
        """Return the first rejection of the row, or Success, with nominated pods considered."""
        ...

    def pod_attached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Call each plugin's ``pod_attached``: ``other`` was added to ``row`` for a trial."""
        ...

    def pod_detached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Call each plugin's ``pod_detached``: ``other`` was removed from ``row`` for a trial."""
        ...


@runtime_checkable
class PostFilter(Plugin, Protocol):
    """Runs only when no node is feasible; the first Success ends the point (R155)."""

    def post_filter(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        diagnosis: Diagnosis,
        handle: Handle,
    ) -> tuple[Nomination | None, Status]:
        """Try to make room; return a nomination and a status."""
        ...


@runtime_checkable
class PreScore(Plugin, Protocol):
    """Runs once per cycle with the feasible rows; errors abort (R156); Skip omits Score."""

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: npt.NDArray[np.int64],
    ) -> Status:
        """Prepare scoring.

        ``rows`` are the feasible rows or representatives of them; ``multiplicity[i]`` is the
        number of feasible nodes for which ``rows[i]`` stands (1 for plain rows).
        """
        ...


@runtime_checkable
class Score(Plugin, Protocol):
    """Scores feasible nodes (R157)."""

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return raw scores, int64 over ``rows``."""
        ...


@runtime_checkable
class NormalizeScore(Plugin, Protocol):
    """Maps a plugin's own raw scores to 0..100, once per cycle (R158)."""

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return normalised scores, int64 over ``rows``."""
        ...


@runtime_checkable
class Reserve(Plugin, Protocol):
    """Reserves what the pod will use; Unreserve is idempotent and cannot fail (R160, R161)."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reserve resources for the pod on a node."""
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the resources, also if nothing was reserved."""
        ...


@runtime_checkable
class Selective(Plugin, Protocol):
    """A plugin whose Reserve, PreBind and PostBind concern only some pods.

    Other pods are decided and bound in bulk, as if the profile lacked it at these points.
    """

    def concerns(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether the plugin may have work for a pod of the class now."""
        ...


@runtime_checkable
class Preparatory(Plugin, Protocol):
    """A ``Selective`` plugin whose PreBind concerns fewer pods than its Reserve."""

    def has_work(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether PreBind may have work for a pod of the class now."""
        ...


@runtime_checkable
class Permit(Plugin, Protocol):
    """Decides before binding: approve, reject or wait (R162)."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]:
        """Return Success, a rejection, or Wait with a timeout in seconds."""
        ...


@runtime_checkable
class PreBind(Plugin, Protocol):
    """Work before binding; an error returns the pod to the queue (R165)."""

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Prepare the node for the pod, such as its volumes; an error ends the binding."""
        ...


@runtime_checkable
class Bind(Plugin, Protocol):
    """Publishes the decision. The first plugin that does not answer Skip ends the point (R166)."""

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Bind the pod or decline."""
        ...


@runtime_checkable
class PostBind(Plugin, Protocol):
    """Called after a successful bind (R167)."""

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """React to the binding."""
        ...


@runtime_checkable
class PlacementGenerate(Plugin, Protocol):
    """Generates the placements of a group, instead of the engine's own (KEP-5732)."""

    def generate_placements(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable
    ) -> Sequence[Placement] | None:
        """Return the placements to try, in order; ``None`` leaves the group to the next plugin."""
        ...


@runtime_checkable
class PlacementFeasible(Plugin, Protocol):
    """Judges whether a group may be placed as decided; runs after all of its pods were tried."""

    def placement_feasible(
        self, group: PodGroup, placed: Sequence[tuple[PodInfo, str]], snapshot: NodeTable
    ) -> Status:
        """Return Success or a rejection. ``placed``: pods with the names of their nodes."""
        ...


@runtime_checkable
class PlacementScore(Plugin, Protocol):
    """Scores placements that take enough of a group; scores are scaled so that the best is 100."""

    def score_placement(
        self, group: PodGroup, placed: Sequence[tuple[PodInfo, str]], snapshot: NodeTable
    ) -> int:
        """Return a number that is not negative; more is better."""
        ...


@runtime_checkable
class PodGroupPostFilter(Plugin, Protocol):
    """Runs only when a group has no placement; the first Success ends the point."""

    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable, status: Status
    ) -> tuple[Sequence[Nomination | None], Status]:
        """Try to make room: a nomination for each pod in order, or ``None``."""
        ...


@runtime_checkable
class PerNodeFilter(Plugin, Protocol):
    """A filter written for one node at a time."""

    def filter_node(self, pod: PodInfo, node: Node) -> Status | None:
        """Return a rejection of the node; ``None`` or Success if the pod fits."""
        ...


@runtime_checkable
class PerNodeScore(Plugin, Protocol):
    """A score written for one node at a time."""

    def score_node(self, pod: PodInfo, node: Node) -> int:
        """Return the node's raw score."""
        ...


@runtime_checkable
class PerNodeNormalize(Plugin, Protocol):
    """Normalisation over a mapping of node names to raw scores."""

    def normalize_scores(self, scores: dict[str, int]) -> dict[str, int] | None:
        """Return normalised scores; ``None`` when ``scores`` was changed in place."""
        ...


class Locality(IntEnum):
    """What a row's verdict depends on besides the pod; tells the engine what to cache.

    A plugin without it runs on every node for every pod.
    """

    NODE = 0
    """The node object alone."""
    PODS = 1
    """The pods on this node or on others as well."""


@runtime_checkable
class Cacheable(Plugin, Protocol):
    """A plugin that states what its Filter and its raw Score depend on."""

    filter_locality: Locality
    score_locality: Locality


@runtime_checkable
class Aspected(Plugin, Protocol):
    """A plugin that can name everything it reads of a pod; classes equal in that share answers.

    Without it a plugin that depends on nodes alone runs once for every class.
    """

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return everything that the plugin's answers about a pod depend on, besides the nodes.

        Pods with equal aspects get equal answers from PreFilter, Filter, PreScore, Score,
        NormalizeScore and ``group_keys`` while the snapshot's ``node_version`` stays. If the
        plugin's locality is not NODE, this covers only what it does besides comparing and scoring
        requests; it must pass every row then. ``None``: more than can be named. The aspect itself
        is valid while all of the snapshot's versions stay.
        """
        ...


@runtime_checkable
class Grouping(Plugin, Protocol):
    """A plugin with NormalizeScore whose raw scores depend on nodes alone."""

    def group_keys(
        self, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> list[npt.NDArray[np.int64]]:
        """Return keys, int64 over ``rows``: rows with equal keys get equal scores.

        They change only with the snapshot's versions.
        """
        ...


def looks_at_nodes(plugin: Plugin) -> bool:
    """Return whether a plugin states that its Filter depends on the node object alone."""
    return isinstance(plugin, Cacheable) and plugin.filter_locality is Locality.NODE


def scores_nodes(plugin: Plugin) -> bool:
    """Return whether a plugin states that its raw Score depends on the node object alone."""
    return isinstance(plugin, Cacheable) and plugin.score_locality is Locality.NODE
