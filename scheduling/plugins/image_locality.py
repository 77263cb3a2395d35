"""ImageLocality: prefer nodes that already have the pod's images, weighted by size.

Rule: plugins/imagelocality/image_locality.go, v1.37: an image volume raises the limit as a
container does (kubernetes#138951); until 1.36 it only adds to the sum.
"""

from collections.abc import Hashable

import numpy as np

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from scheduling.framework.interface import MAX_NODE_SCORE, CycleState, Locality, Scores
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.types import PodInfo

NAME = "ImageLocality"
_MEBIBYTE = 1024 * 1024
MIN_THRESHOLD = 23 * _MEBIBYTE
MAX_CONTAINER_THRESHOLD = 1000 * _MEBIBYTE


class ImageLocality:
    """Scores nodes by the bytes of the pod's images that they already have."""

    name = NAME
    filter_locality = Locality.NODE
    score_locality = Locality.NODE

    def __init__(self, compatibility: Compatibility = NEWEST) -> None:
        self._counts_volumes = compatibility >= Compatibility.V1_37

    def _count(self, pod: PodInfo) -> int:
        """Return how many of the pod's images raise the upper limit of the score."""
        return len(pod.images) if self._counts_volumes else pod.container_count

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return 0 below 23 MiB of images present, up to 100 at 1000 MiB times the image count."""
        count = self._count(pod)
        if not count:
            return np.zeros(len(rows), np.int64)
        present = snapshot.image_score_column(pod.images)[rows]
        highest = MAX_CONTAINER_THRESHOLD * count
        clipped = np.clip(present, MIN_THRESHOLD, highest)
        return MAX_NODE_SCORE * (clipped - MIN_THRESHOLD) // (highest - MIN_THRESHOLD)

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return (count, images) of the pod; ``()`` if no node has any of them."""
        count = self._count(pod)
        present = count and snapshot.has_any_image(pod.images)
        return (count, pod.images) if present else ()
