"""VolumeRestrictions: disks that one pod may use at a time, and claims of ReadWriteOncePod.

Rule: plugins/volumerestrictions/volume_restrictions.go, v1.36. Both are counts that the snapshot
changes with each pod put on or taken off a node, so preemption needs nothing more.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from clusterstate.objects.rules.volume_matching import is_disk, shares_disk
from clusterstate.objects.values.pod import Volume
from clusterstate.objects.values.storage import READ_WRITE_ONCE_POD
from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.reach import VOLUMES, Reach
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduling.framework.tables import Counter
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_binder import not_found

NAME = "VolumeRestrictions"
DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)


class VolumeRestrictions:
    """Filter on exclusive disks and ReadWriteOncePod claims that other pods use."""

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.NODE

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` for pods without restricted disks or claims, ``None`` for others."""
        if not pod.volumes:
            return ()
        found = self._exclusive(pod, snapshot)
        restricted = isinstance(found, Status) or found or any(map(is_disk, pod.volumes))
        return None if restricted else ()

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject a pod whose claims are missing; Skip if its volumes can conflict with no pod's."""
        if not pod.volumes:
            return None, SKIP
        claims = self._exclusive(pod, snapshot)
        if isinstance(claims, Status):
            return None, claims
        if any(map(is_disk, pod.volumes)):
            return None, SUCCESS
        used = any(snapshot.claim_users(pod.namespace, name) for name in claims)
        return None, SUCCESS if used else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes with a pod that uses the disk; all nodes if any pod uses the claim."""
        conflicts = np.zeros(len(rows), np.bool_)
        disks = tuple(volume for volume in pod.volumes if is_disk(volume))
        if disks:
            conflicts = self._holders(disks, snapshot).rows[rows] > 0
        claims = self._exclusive(pod, snapshot)
        in_use = not isinstance(claims, Status) and any(
            snapshot.claim_users(pod.namespace, name) for name in claims
        )
        if not in_use:
            return FilterResult.rejecting(conflicts, Code.UNSCHEDULABLE, DISK)
        return FilterResult(
            np.full(len(rows), Code.UNSCHEDULABLE, np.uint8),
            np.where(conflicts, 0, 1).astype(np.int32),
            ((DISK,), (IN_USE,)),
        )

    def _exclusive(self, pod: PodInfo, snapshot: NodeTable) -> Sequence[str] | Status:
        """Return the pod's ReadWriteOncePod claims, or the rejection if a claim is missing."""
        found = []
        for volume in pod.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            claim = snapshot.volumes.claim(pod.namespace, name)
            if claim is None:
                return unresolvable(not_found(name))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                found.append(name)
        return found

    def _holders(self, disks: tuple[Volume, ...], snapshot: NodeTable) -> Counter:
        """Return the counter of the pods that use one of the disks."""

        def holds(other: PodInfo) -> int:
            return int(any(shares_disk(mine, theirs) for mine in disks for theirs in other.volumes))

        key = (NAME, "disks", disks)
        return snapshot.counter(key, holds, live_only=False, reach=Reach((VOLUMES,)))
