"""VolumeZone: a node must be in the zone and region in the labels of the pod's bound volumes.

Rule: plugins/volumezone/volume_zone.go, v1.36. A node without zone and region labels passes.
"""

from collections.abc import Hashable

import numpy as np

from clusterstate.objects.rules.csi_migration import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    TOPOLOGY_LABELS,
    ZONE,
    Topologies,
    topologies_of,
)
from clusterstate.objects.values.storage import WAIT_FOR_FIRST_CONSUMER
from scheduling.framework.arrays import Int32, Mask
from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_binder import not_found

NAME = "VolumeZone"
REASON = "node(s) had no available volume zone"
_PRESENT = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class VolumeZone:
    """Filter on the zone and region labels of bound volumes."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the zones and regions that nodes must have, ``None`` if the pod is rejected."""
        if not pod.volumes:
            return ()
        found = self._topologies_of(pod, snapshot)
        return None if isinstance(found, Status) else found

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Reject a pod with missing claims or volumes; Skip if no volume has a zone or region."""
        found = self._topologies_of(pod, snapshot)
        if isinstance(found, Status):
            return None, found
        return None, SUCCESS if found else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes whose zone or region is not that of all bound volumes."""
        topologies = self._topologies_of(pod, snapshot)
        if isinstance(topologies, Status) or not topologies:
            return None
        labelled: Mask = np.zeros(len(rows), np.bool_)
        for key in TOPOLOGY_LABELS:
            labelled |= snapshot.label_column(key).ids[rows] >= 0
        unfit: Mask = np.zeros(len(rows), np.bool_)
        for key, values in topologies:
            column = snapshot.label_column(key)
            suits = _among(column.ids[rows], [column.number(value) for value in values])
            if (other := _PRESENT.get(key)) is not None:
                present = snapshot.label_column(other)
                under_it = _among(present.ids[rows], [present.number(value) for value in values])
                suits = np.where(column.ids[rows] >= 0, suits, under_it)
            unfit |= ~suits
        return FilterResult.rejecting(labelled & unfit, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, REASON)

    def _topologies_of(self, pod: PodInfo, snapshot: NodeTable) -> Topologies | Status:
        """Return the zones and regions that the pod's bound volumes require, or a rejection."""
        table, found = snapshot.volumes, list[tuple[str, frozenset[str]]]()
        for volume in pod.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            if not name:
                return unresolvable("PersistentVolumeClaim had no name")
            claim = table.claim(pod.namespace, name)
            if claim is None:
                return unresolvable(not_found(name))
            bound_to = claim.spec.volume_name
            if bound_to:
                volume_found = table.volume(bound_to)
                if volume_found is None:
                    return unresolvable(f'persistentvolume "{bound_to}" not found')
                found += topologies_of(volume_found)
                continue
            of = claim.class_name
            if not of:
                text = "PersistentVolumeClaim had no pv name and storageClass name"
                return unresolvable(text)
            class_found = table.storage_class(of)
            if class_found is None:
                return unresolvable(f'storageclass.storage.k8s.io "{of}" not found')
            mode = class_found.volume_binding_mode
            if mode is None:
                return unresolvable(f'VolumeBindingMode not set for StorageClass "{of}"')
            if mode != WAIT_FOR_FIRST_CONSUMER:
                return unresolvable("PersistentVolume had no name")
        return tuple(found)


def _among(ids: Int32, values: list[int]) -> Mask:
    found: Mask = np.isin(ids, values)
    return found
