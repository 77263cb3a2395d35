"""NodeVolumeLimits: a node takes no more volumes of a CSI driver than its CSINode allows.

Rule: plugins/nodevolumelimits/csi.go, v1.36. A volume counts once on a node, however many pods use
it there. The snapshot keeps the attached volumes (``framework.attached_volumes``). If no other pod
uses a pod's volumes, it adds the same number per driver on every node, so that the filter reads
only a column per driver.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final

import numpy as np

from clusterstate.objects.rules.csi_migration import inline_driver
from clusterstate.objects.values.storage import CSINode
from scheduling.framework.arrays import Int64
from scheduling.framework.attached_volumes import (
    Handles,
    LimitError,
    MissingClaim,
    attached_by,
    brought_by,
    on_node,
)
from scheduling.framework.configuration.plugin_args import NodeVolumeLimitsArgs
from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status
from scheduling.framework.terms import ColumnRequest, Rejection
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_table import VolumeTable

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"
_COUNTED: Final = ("counted",)


def is_attachable(pod: PodInfo) -> bool:
    """Return whether a pod may have volumes of CSI drivers."""
    return any(
        one.persistent_volume_claim is not None
        or one.ephemeral is not None
        or bool(inline_driver(one))
        for one in pod.volumes
    )


class NodeVolumeLimits:
    """Filter on the number of attached volumes.

    Args:
        args: whether nodes without a driver are rejected (the alpha gate VolumeLimitScaling).
    """

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.NODE
    column_rejection: Rejection = (Code.UNSCHEDULABLE, (REASON,))
    counts_nominated = True

    def __init__(self, args: NodeVolumeLimitsArgs) -> None:
        self._scaling = args.volume_limit_scaling

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` for pods without limited volumes, one value for all that only count them.

        ``None`` for other pods: the filter must run for each node.
        """
        if not pod.volumes or not is_attachable(pod) or not self._may_reject(pod, snapshot):
            return ()
        found = self.column_request(pod, snapshot)
        if found is None:
            return None
        return _COUNTED if found.amounts else ()

    def column_request(self, pod: PodInfo, snapshot: NodeTable) -> ColumnRequest | None:
        """Return how many volumes the pod adds of each driver that some node limits.

        ``None`` if a node already has one of the volumes, which does not count again there, or if
        the number differs between nodes.
        """
        if self._scaling or snapshot.is_trying:
            return None
        stamp = snapshot.attached_volumes().stamp
        known = pod.memo.get(NAME)
        if not isinstance(known, tuple) or known[0] != stamp:
            known = pod.memo[NAME] = stamp, self._counted(pod, snapshot)
        found: ColumnRequest | None = known[1]
        return found

    def _counted(self, pod: PodInfo, snapshot: NodeTable) -> ColumnRequest | None:
        attached = snapshot.attached_volumes()
        try:
            brought = brought_by(snapshot.volumes, pod)
        except (LimitError, MissingClaim):
            return None
        if brought is None or attached.failures:
            return None
        counted = [handle for handle, driver in brought.items() if driver in attached.limits]
        if not attached.at.keys().isdisjoint(counted):
            return None
        amounts: dict[int, int] = {}
        for handle in counted:
            column = attached.column(brought[handle], snapshot)
            if column < 0:
                return None
            amounts[column] = amounts.get(column, 0) + 1
        return ColumnRequest(tuple(amounts.items()), tuple(counted))

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip if the pod has no volumes to attach."""
        if not is_attachable(pod):
            return None, SKIP
        if not self._may_reject(pod, snapshot):
            state.skip_filter.add(NAME)
        return None, SUCCESS

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that would exceed a driver's limit of volumes."""
        table = snapshot.volumes
        try:
            brought = None if snapshot.is_trying else brought_by(table, pod)
            if brought is None:
                return self._one_by_one(pod, snapshot, rows)
        except MissingClaim as missing:
            everywhere = np.ones(len(rows), np.bool_)
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return FilterResult.rejecting(everywhere, code, str(missing))
        attached = snapshot.attached_volumes()
        for failure in attached.failures.values():
            raise LimitError(failure)
        exceeded = np.zeros(len(rows), np.bool_)
        for driver in sorted(set(brought.values())):
            limits = attached.limits.get(driver)
            if limits is None:
                continue
            new: Int64 = np.zeros(snapshot.capacity, np.int64)
            for handle in (handle for handle, of in brought.items() if of == driver):
                new += 1
                new[list(attached.at.get(handle, ()))] -= 1
            used = attached.used.get(driver)
            total = new if used is None else used + new
            # A pod that brings no new volume does not make it worse.
            exceeded |= ((total > limits) & (new > 0))[rows]
        missing_driver = self._not_installed(snapshot, rows, brought.values())
        reasons = [*((text,) for text in missing_driver), (REASON,)]
        codes = np.where(exceeded, Code.UNSCHEDULABLE, Code.SUCCESS).astype(np.uint8)
        reason = np.full(len(rows), len(reasons) - 1, np.int32)
        for number, unfit in enumerate(missing_driver.values()):
            codes[unfit], reason[unfit] = Code.UNSCHEDULABLE, number
        return FilterResult(codes, reason, tuple(reasons)) if codes.any() else None

    def _one_by_one(self, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> FilterResult | None:
        """Filter node by node: in a dry run, and if the pod's drivers differ between nodes."""
        table = snapshot.volumes
        codes, reason = np.zeros(len(rows), np.uint8), np.zeros(len(rows), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        for place, row in enumerate(rows.tolist()):
            name = snapshot.node_name(row)
            node = table.csi_node(name)
            brought = attached_by(table, pod, node, is_new=True)
            if not brought:
                continue
            text = self._missing(table, node, brought.values())
            if not text and node is not None and table.is_limited(name):
                text = _exceeded(node, brought, *on_node(table, snapshot.counted_on(row), name))
            if text:
                codes[place] = Code.UNSCHEDULABLE
                reason[place] = reasons.setdefault((text,), len(reasons))
        return FilterResult(codes, reason, tuple(reasons)) if reasons else None

    def _may_reject(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether some node has a limit, or a claim of the pod does not exist."""
        table = snapshot.volumes
        if self._scaling or table.has_limits:
            return True
        return any(table.claim(pod.namespace, name) is None for name in pod.claims)

    def _missing(self, table: VolumeTable, node: CSINode | None, drivers: Iterable[str]) -> str:
        if not self._scaling or node is None:
            return ""
        installed = {one.name for one in node.spec.drivers}
        for driver in sorted(set(drivers) - installed):
            known = table.csi_driver(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing:
                return f"{driver} CSI driver is not installed on the node"
        return ""

    def _not_installed(
        self, snapshot: NodeTable, rows: Rows, drivers: Iterable[str]
    ) -> dict[str, list[int]]:
        """Return, by reason, the positions in ``rows`` of nodes that lack a required driver."""
        found: dict[str, list[int]] = {}
        if self._scaling:
            table, wanted = snapshot.volumes, list(drivers)
            for place, row in enumerate(rows.tolist()):
                text = self._missing(table, table.csi_node(snapshot.node_name(row)), wanted)
                if text:
                    found.setdefault(text, []).append(place)
        return found


def _exceeded(node: CSINode, brought: Handles, by_pods: Handles, there: Handles) -> str:
    """Return why a node cannot take the volumes, empty if it can."""
    limits = {one.name: one.limit for one in node.spec.drivers}
    new = Counter(driver for handle, driver in brought.items() if handle not in by_pods)
    used = Counter(there.values())
    for driver, count in new.items():
        limit = limits.get(driver)
        if limit is not None and used[driver] + count > limit:
            return REASON
    return ""
