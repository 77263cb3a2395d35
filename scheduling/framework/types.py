"""Values that pass between the cycle and its plugins: pods as requirements, records, outcomes.

A ``PodInfo`` stands for a *scheduling class*: all pods that are interchangeable for scheduling.
Everything that plugins need of the spec is computed once, when the class is first seen
(``engine.snapshot.requirements``). A ``PodRecord`` is one pod on a node.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.matching import EmptyTerm, PreferredTerms, RequiredNodeAffinity
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.labels import Selector
from clusterstate.objects.values.pod import Pod, Toleration, Volume
from scheduling.framework.status import Code, Status

HostPort = tuple[str, str, int]
"""Host IP (``0.0.0.0`` when empty), protocol, port."""
NamespaceLabels = Callable[[str], Mapping[str, str] | None]
"""Returns the labels of a namespace by its name, ``None`` if it is not known."""


class AffinityTerm(msgspec.Struct, frozen=True):
    """A parsed term of inter-pod affinity.

    ``namespaces`` includes the pod's own namespace where the term names none (R96).
    ``namespace_selector``: ``NOTHING`` when absent. ``weight``: 0 for required terms.
    """

    namespaces: tuple[str, ...]
    selector: Selector
    namespace_selector: Selector
    topology_key: str
    weight: int = 0

    def means(self, info: "PodInfo", namespace_labels: NamespaceLabels) -> bool:
        """Return whether the term selects pods of a class.

        ``namespace_labels`` is called only if the term selects by labels of namespaces; an unknown
        namespace has no labels.
        """
        if info.namespace not in self.namespaces:
            if self.namespace_selector.nothing:
                return False
            if not self.namespace_selector.matches(namespace_labels(info.namespace) or {}):
                return False
        return self.selector.matches(info.labels)


def group_key(pod: Pod) -> tuple[str, str] | None:
    """Return namespace and name of a pod's PodGroup, ``None`` if it has none."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return None
    return pod.metadata.namespace, group.pod_group_name


def digest_of(class_id: int) -> bytes:
    """Return the digest by which a snapshot identifies a stored scheduling class."""
    return class_id.to_bytes(8, "big")


def class_id_of(digest: bytes) -> int:
    """Return the id of a stored scheduling class by its digest (``digest_of``)."""
    return int.from_bytes(digest, "big")


class PodInfo:
    """A parsed scheduling class. Identity is object identity; ``digest`` is its content.

    ``requests``: effective requests (containers, sidecars, init containers, overhead, pod level),
    cpu in millicores, the rest in whole units, as stated (zeros stay). ``nonzero_*``: the same with
    100m and 200 MiB for containers that name none (scoring only). ``images``: normalised names, one
    per container and image volume. The snapshot assigns ``index`` and ``peer``. ``memo`` caches
    what plugins derive from the class, by a key with the plugin's name and arguments.
    """

    __slots__ = (
        "_required",
        "affinity",
        "amounts",
        "anti_affinity",
        "claims",
        "container_count",
        "digest",
        "gates",
        "host_ports",
        "images",
        "index",
        "labels",
        "may_claim",
        "memo",
        "namespace",
        "node_affinity_key",
        "nonzero_cpu",
        "nonzero_memory",
        "owner",
        "peer",
        "peer_key",
        "placement_key",
        "pod",
        "preemption_policy",
        "preferred",
        "preferred_affinity",
        "preferred_anti_affinity",
        "priority",
        "problem",
        "requests",
        "scheduler_name",
        "scored_requests",
        "toleration_key",
        "tolerations",
        "volumes",
    )

    pod: Pod
    digest: bytes
    namespace: str
    labels: dict[str, str]
    priority: int
    preemption_policy: str
    scheduler_name: str
    owner: tuple[str, str, str] | None
    """Controller's apiVersion, kind and name."""
    requests: dict[str, int]
    scored_requests: dict[str, int]
    """What NodeResourcesFit counts when it scores the pod: containers and overhead alone, not the
    pod's own requests, with 100m and 200 MiB where a container names none."""
    nonzero_cpu: int
    nonzero_memory: int
    preferred: PreferredTerms
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    volumes: tuple[Volume, ...]
    """The pod's volumes that matter to its placement: claims and disks."""
    claims: tuple[str, ...]
    """Names of the claims among them, in the pod's namespace."""
    may_claim: bool
    """Whether the pod has claims of devices, or asks for what a device class may serve."""
    container_count: int
    gates: tuple[str, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred_affinity: tuple[AffinityTerm, ...]
    preferred_anti_affinity: tuple[AffinityTerm, ...]
    problem: str
    """Why some of the four lists of affinity terms do not parse; these lists are empty then."""
    peer_key: bytes
    """Content of what other pods see: namespace, labels, affinity terms, host ports, volumes."""
    placement_key: bytes
    """Content of node selector, required node affinity and tolerations."""
    toleration_key: bytes
    """Content of the tolerations, empty without any."""
    node_affinity_key: bytes
    """Content of node selector and node affinity, required and preferred; empty without any."""
    amounts: list[tuple[int, int]]
    """Resource columns of the snapshot, each with the requested amount; set with ``index``."""
    index: int
    peer: int
    memo: dict[Hashable, object]
    _required: dict[str, RequiredNodeAffinity]

    def required_affinity(self, empty_term: EmptyTerm) -> RequiredNodeAffinity:
        """Return node selector and required node affinity, parsed and cached.

        ``empty_term``: what an empty node selector term matches (ruling C1).
        """
        found = self._required.get(empty_term)
        if found is None:
            found = self._required[empty_term] = RequiredNodeAffinity(
                self.pod, empty_term=empty_term
            )
        return found

    def __repr__(self) -> str:
        return f"PodInfo({self.namespace}/{self.pod.metadata.name})"


class PodRecord(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """A pod on a node, as preemption sees it.

    ``key``: its identity in the snapshot; ``name`` may be empty. ``start_time``: seconds since the
    epoch, ``None`` when the pod has not started. ``preempted``: terminating because the scheduler
    made room. ``slot`` belongs to the snapshot. ``order``: its tie-break order among equal pods,
    the same in every process.
    """

    key: Hashable
    info: PodInfo
    row: int
    slot: int
    start_time: float | None
    terminating: bool
    preempted: bool
    name: str
    order: int = 0

    def __repr__(self) -> str:
        return f"PodRecord({self.key!r} on row {self.row})"


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget, as preemption sees it.

    ``selector`` ``NOTHING`` when absent. ``disrupted``: names of pods whose eviction was already
    counted in ``disruptions_allowed``. ``counts_groups``: it counts PodGroups instead of pods.
    ``spares_unready``: pods that are not ready are evicted without it.
    """

    namespace: str
    name: str
    selector: Selector
    disruptions_allowed: int = 0
    disrupted: frozenset[str] = frozenset()
    counts_groups: bool = False
    spares_unready: bool = False

    def guards(self, info: PodInfo, compatibility: Compatibility) -> bool:
        """Return whether preemption counts pods of a class against the budget.

        An empty selector guards every pod of the namespace (v1.38, kubernetes#141785). Until 1.37
        preemption ignores such a budget, and pods without labels.
        """
        if self.namespace != info.namespace:
            return False
        if compatibility < Compatibility.V1_38 and (self.selector.everything or not info.labels):
            return False
        return self.selector.matches(info.labels)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would fit the pod without ``victims`` (most important first)."""

    node_name: str
    victims: tuple[PodRecord, ...]
    pdb_violations: int


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """The victims for a pod, from a search over nodes.

    ``best``: the candidate of lowest cost, ``None`` without any. ``candidates``: all, if requested,
    those that violate no budget first; else only the best. ``rejections``: why other nodes reject
    the pod even without pods of lower priority, each with the number of nodes; this and the
    following fields may be empty if there is a candidate. ``without_victims``: number of nodes that
    have no pod of lower priority. ``without_need``: names of nodes that fit the pod without
    preemption.
    """

    best: Candidate | None
    candidates: tuple[Candidate, ...] = ()
    rejections: tuple[tuple[Status, int], ...] = ()
    without_victims: int = 0
    without_need: tuple[str, ...] = ()


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """Result of PostFilter: the node where room will be made, and the victims.

    ``node_name`` empty: clear an earlier nomination. ``candidates``: all candidate nodes if
    ``CycleState.tells_candidates`` is set, else only the chosen node.
    """

    node_name: str = ""
    victims: tuple[PodRecord, ...] = ()
    pdb_violations: int = 0
    candidates: tuple[Candidate, ...] = ()


class NodeStatuses(Mapping[str, Status]):
    """Statuses of nodes by name, stored as columns; the dictionary is built on demand.

    Args:
        rows: the nodes' rows, int (nodes,).
        verdict: index into ``statuses``, int (nodes,).
        statuses: the distinct ones.
        names: node names by row; must not change before the mapping is read.
    """

    def __init__(
        self,
        rows: npt.NDArray[np.intp],
        verdict: npt.NDArray[np.int32],
        statuses: Sequence[Status],
        names: Sequence[str],
    ) -> None:
        self.rows = rows
        self._verdict = verdict
        self._statuses = statuses
        self._names = names
        self._cached: dict[str, Status] | None = None

    def rows_with(self, code: Code) -> npt.NDArray[np.intp]:
        """Return the rows whose status has the code, in order."""
        chosen = np.array([status.code is code for status in self._statuses], np.bool_)
        found: npt.NDArray[np.intp] = self.rows[chosen[self._verdict]]
        return found

    def _by_name(self) -> dict[str, Status]:
        if self._cached is None:
            names, statuses = self._names, self._statuses
            pairs = zip(self.rows.tolist(), self._verdict.tolist(), strict=True)
            self._cached = {names[row]: statuses[number] for row, number in pairs}
        return self._cached

    def __getitem__(self, name: str) -> Status:
        return self._by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self.rows)


class Diagnosis(msgspec.Struct, kw_only=True):
    """Why a pod could not be placed.

    ``node_to_status`` holds the nodes that were filtered; ``absent`` is the status of all others
    (left out by PreFilter). ``rejected_by``: names of plugins that rejected, sorted;
    ``pending_by``: those that answered Pending for a node. ``counts``: the distinct statuses with
    their number of nodes, without the absent ones; if empty, they are computed from
    ``node_to_status``.
    """

    node_to_status: Mapping[str, Status] = msgspec.field(default_factory=dict)
    counts: tuple[tuple[Status, int], ...] = ()
    absent: Status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    pre_filter_message: str = ""
    post_filter_message: str = ""
    rejected_by: tuple[str, ...] = ()
    pending_by: tuple[str, ...] = ()


NO_NODES = "no nodes available to schedule pods"
"""The message when the cluster has no node at all (schedule_one.go ``ErrNoNodesAvailable``)."""


def histogram_message(
    node_count: int,
    histogram: Sequence[tuple[str, int]],
    *,
    pre_filter_message: str = "",
    post_filter_message: str = "",
) -> str:
    """Return Kubernetes' FitError text from counted reasons.

    Entries sort as strings, so "10 x" comes before "2 y". A PreFilter message replaces the
    histogram. Rule: pkg/scheduler/framework/types.go ``FitError.Error``, v1.36 (C9).
    """
    text = f"0/{node_count} nodes are available:"
    if pre_filter_message:
        text += f" {pre_filter_message}."
    else:
        entries = sorted(f"{count} {reason}" for reason, count in histogram)
        if entries:
            text += f" {', '.join(entries)}."
    if post_filter_message:
        text += f" {post_filter_message}"
    return text


class FitError(msgspec.Struct, frozen=True, kw_only=True):
    """No node is feasible, with the reason for each; a value, not an exception."""

    node_count: int
    diagnosis: Diagnosis

    def message(self) -> str:
        """Return the text for ``status.conditions[].message``."""
        diagnosis = self.diagnosis
        counted: Sequence[tuple[Status, int]] = diagnosis.counts
        if not counted:
            # Many nodes share few status objects: count by identity first, which is fastest.
            statuses = {id(status): status for status in diagnosis.node_to_status.values()}
            numbers = Counter(map(id, diagnosis.node_to_status.values()))
            counted = [(statuses[identity], number) for identity, number in numbers.items()]
        counts: dict[str, int] = {}
        for status, number in counted:
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + number
        absent = self.node_count - sum(number for _, number in counted)
        if absent > 0:
            for reason in diagnosis.absent.reasons:
                counts[reason] = counts.get(reason, 0) + absent
        return histogram_message(
            self.node_count,
            list(counts.items()),
            pre_filter_message=diagnosis.pre_filter_message,
            post_filter_message=diagnosis.post_filter_message,
        )
