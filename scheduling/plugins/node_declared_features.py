"""NodeDeclaredFeatures: a node fits if its kubelet declares all features that the pod needs.

Rule: plugins/nodedeclaredfeatures/nodedeclaredfeatures.go, v1.37; in 1.36 the message names the
missing features.
"""

from collections.abc import Hashable

import numpy as np

from clusterstate.objects.rules.declared_features import required_features
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status
from scheduling.framework.types import PodInfo

NAME = "NodeDeclaredFeatures"
REASON = "node(s) didn't match Pod's required features"
_REASON_1_36 = "node declared features check failed - unsatisfied requirements: "


class NodeDeclaredFeatures:
    """Filter on ``status.declaredFeatures``."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def __init__(self, version: Compatibility = NEWEST) -> None:
        self._version = version

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return the features that the pod needs."""
        return required_features(pod.pod.spec, self._version)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip if the pod needs no declared features."""
        return None, SUCCESS if required_features(pod.pod.spec, self._version) else SKIP

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that do not declare all features that the pod needs."""
        required = required_features(pod.pod.spec, self._version)
        reason = np.zeros(len(rows), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        rejected = np.zeros(len(rows), np.bool_)
        for place, row in enumerate(rows.tolist()):
            declared = snapshot.node(row).status.declared_features
            if missing := [one for one in required if one not in declared]:
                rejected[place] = True
                reason[place] = reasons.setdefault((self._reason(missing),), len(reasons))
        if not reasons:
            return None
        codes = np.where(rejected, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.SUCCESS)
        return FilterResult(codes.astype(np.uint8), reason, tuple(reasons))

    def _reason(self, missing: list[str]) -> str:
        if self._version >= Compatibility.V1_37:
            return REASON
        return _REASON_1_36 + ", ".join(missing)
