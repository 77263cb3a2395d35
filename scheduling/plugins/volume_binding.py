"""VolumeBinding: a node must reach the pod's volumes, or volumes that can be bound or provisioned.

Rule: plugins/volumebinding/volume_binding.go, v1.36. As soon as a pod is assumed on a node, the
snapshot's table (``volume_table``) marks its volumes as taken. Pods whose claims are bound are
decided like any others; a pod with claims to bind is reserved, and PreBind writes the bindings and
waits until they are complete.
"""

from collections.abc import Hashable

import msgspec
import numpy as np

from clusterstate.objects.rules.csi_migration import is_migratable
from clusterstate.objects.rules.volume_matching import MatchingError, not_for_pod
from clusterstate.objects.values.storage import LOST
from scheduling.framework.configuration.plugin_args import VolumeBindingArgs
from scheduling.framework.handles import VolumeStore
from scheduling.framework.interface import (
    CycleState,
    FilterResult,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_binder import (
    UNBOUND_IMMEDIATE,
    BinderError,
    NodeSeen,
    PodVolumeClaims,
    PodVolumes,
    capacity_score,
    claim_name,
    class_resources,
    find_pod_volumes,
    meta_of,
    not_found,
    pod_volume_claims,
    seen_labels,
)
from scheduling.framework.volume_table import AssumedClaims

NAME = "VolumeBinding"
_FOUND = f"{NAME}/found"
TAKEN = f"{NAME}/taken"
"""The cycle state's key of a reserved pod's bindings and provisions: ``AssumedClaims`` as JSON."""


class _BindingsByRow:
    """The volume bindings found for each row that passed the filter."""

    def __init__(self, claims: PodVolumeClaims) -> None:
        self.claims = claims
        self.by_row: dict[int, PodVolumes] = {}


class VolumeBinding:
    """Filters on the pod's bound claims, and finds volumes for its unbound ones.

    Args:
        args: how long binding may take, and whether nodes are scored by their storage.
    """

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def __init__(self, args: VolumeBindingArgs) -> None:
        self._timeout = args.bind_timeout_seconds
        self._scores_capacity = args.storage_capacity_scoring
        self._shape = [(point.utilization, point.score * 10) for point in args.shape]
        self._store: VolumeStore | None = None

    def use_volume_store(self, store: VolumeStore) -> None:
        """Set the store to which PreBind writes."""
        self._store = store

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the node affinities of the volumes, ``None`` unless all claims are bound."""
        if not pod.claims:
            return ()
        if self._problem(pod, snapshot):
            return None
        try:
            claims = pod_volume_claims(snapshot.volumes, meta_of(pod), pod.volumes)
        except BinderError:
            return None
        if claims.delayed or claims.immediate:
            return None
        affinities = []
        for claim in claims.bound:
            volume = snapshot.volumes.volume(claim.spec.volume_name)
            if volume is None or is_migratable(volume):
                return None
            affinity = volume.spec.node_affinity
            if affinity is not None and affinity.required is not None:
                affinities.append(affinity.required)
        return tuple(affinities)

    def concerns(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether the pod has claims with delayed binding that are not bound yet."""
        if not pod.claims:
            return False
        try:
            claims = pod_volume_claims(snapshot.volumes, meta_of(pod), pod.volumes)
        except BinderError:
            return False
        return bool(claims.delayed)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject a pod with a missing, lost or unbound immediate claim; Skip one without claims."""
        if not pod.claims:
            return None, SKIP
        problem = self._problem(pod, snapshot)
        if problem:
            return None, unresolvable(problem)
        try:
            claims = pod_volume_claims(snapshot.volumes, meta_of(pod), pod.volumes)
        except BinderError as failed:
            return None, error(str(failed))
        if claims.immediate:
            return None, unresolvable(UNBOUND_IMMEDIATE)
        state.write(_FOUND, _BindingsByRow(claims))
        return None, SUCCESS

    def _problem(self, pod: PodInfo, snapshot: NodeTable) -> str:
        """Return the error of one of the pod's claims, "" if none has any. Rule: ``podHasPVCs``."""
        meta = meta_of(pod)
        for volume in pod.volumes:
            name = claim_name(meta, volume)
            if name is None:
                continue
            claim = snapshot.volumes.claim(pod.namespace, name)
            if claim is None:
                if volume.ephemeral is None:
                    return not_found(name)
                return (
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                    f'"{name}"'
                )
            if claim.status.phase == LOST:
                return (
                    f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                    f'"{claim.spec.volume_name}"'
                )
            if claim.metadata.deletion_timestamp is not None:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if volume.ephemeral is not None and (problem := not_for_pod(claim, meta)):
                return problem
        return ""

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that cannot reach a volume, or offer none for a claim.

        Nodes with equal values of the labels that volumes use are checked once.
        """
        found = state.get(_FOUND, _BindingsByRow)
        if found is None:
            return None
        table = snapshot.volumes
        keys = seen_labels(table, found.claims)
        first, number = _alike(snapshot, rows, keys)
        codes, reason = np.zeros(len(first), np.uint8), np.zeros(len(first), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        answers: list[PodVolumes] = []
        for place, row in enumerate(rows[first].tolist()):
            name = snapshot.node_name(row)
            seen = NodeSeen(name, snapshot.node(row).metadata.labels, table.csi_node(name))
            try:
                volumes, why = find_pod_volumes(table, found.claims, seen)
            except (BinderError, MatchingError) as failed:
                volumes, why = PodVolumes(), (str(failed),)
                codes[place] = Code.ERROR
            else:
                codes[place] = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if why else Code.SUCCESS
            answers.append(volumes)
            if why:
                reason[place] = reasons.setdefault(why, len(reasons))
        if self._shape:
            found.by_row.update(
                (row, answers[of])
                for row, of in zip(rows.tolist(), number.tolist(), strict=True)
                if not codes[of]
            )
        if not reasons:
            return None
        return FilterResult(codes[number], reason[number], tuple(reasons))

    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: object,
    ) -> Status:
        """Skip unless the profile scores storage, which is off by default."""
        scores = bool(self._shape) and state.get(_FOUND, _BindingsByRow) is not None
        return SUCCESS if scores else SKIP

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return scores by the used share of storage, by class: requested of available bytes."""
        found = state.get(_FOUND, _BindingsByRow)
        scores = np.zeros(len(rows), np.int64)
        if found is None or not self._shape:
            return scores
        for place, row in enumerate(rows.tolist()):
            volumes = found.by_row.get(row)
            if volumes is not None:
                of = class_resources(volumes, storage_capacity=self._scores_capacity)
                scores[place] = capacity_score(self._shape, of)
        return scores

    # --- once the pod is placed ------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Note the pod's bindings and provisions, which the table took when it assumed the pod."""
        table = state.volumes
        if table is None:
            return SUCCESS
        known = state.get(TAKEN, dict)
        if known is not None:  # noted before a restart
            table.assume(state.pod_key, msgspec.convert(known, AssumedClaims))
            return SUCCESS
        taken = table.assumed(state.pod_key)
        if taken is not None:
            state.write(TAKEN, msgspec.json.decode(msgspec.json.encode(taken)))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the volumes that ``reserve`` noted."""
        if state.volumes is not None:
            state.volumes.forget(state.pod_key)
        state.delete(TAKEN)

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Write the volume bindings; return Success once all claims are bound.

        Called repeatedly: Wait means that a claim is not bound yet.
        """
        taken = state.get(TAKEN, dict)
        if taken is None or self._store is None:
            return SUCCESS
        try:
            done = self._store.bind(
                state, msgspec.convert(taken, AssumedClaims), timeout=self._timeout
            )
        except BinderError as failed:
            return error(str(failed))
        return SUCCESS if done else Status(Code.WAIT)


def _alike(snapshot: NodeTable, rows: Rows, keys: set[str] | None) -> tuple[Rows, Rows]:
    """Return an index into ``rows`` per set of equal label values, and the set of each row."""
    if keys is None:
        every = np.arange(len(rows))
        return every, every
    if not keys or not len(rows):
        return np.zeros(min(len(rows), 1), np.intp), np.zeros(len(rows), np.intp)
    ids = np.stack([snapshot.label_column(key).ids[rows] for key in sorted(keys)])
    _, first, number = np.unique(ids, axis=1, return_index=True, return_inverse=True)
    return first, number.reshape(-1)
