"""Finds the pod that makes a batch fail with an exception, and sets it aside.

Decisions of a batch depend on each other through the snapshot. After an exception the snapshot may
be wrong, so the scheduler drops its snapshot and queue and loads the rows again. ``BatchSize``
stays: it makes the next batches smaller, until a pod fails alone. That pod is set aside
(``clusterstate.actions.loops.aside``): it leaves the queue until it changes, and the other pods are
placed. For a batch that succeeds this costs one comparison.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from scheduling.engine.queue.pending import PendingPod
from scheduling.worker.mirror.loading import NAME


class BatchSize:
    """The size of the next batch: smaller after each failure, until the failing pod is alone."""

    def __init__(self, batch: int) -> None:
        self._usual = self.limit = batch
        self._suspects = self._before = 0

    def failed(self, batch: Sequence[PendingPod], error: Exception, now: float) -> None:
        """Note that a batch failed; set its pod aside if the batch had only that one.

        Does nothing on an error of the database, which says nothing about the pods.
        """
        if not aside.is_an_objects_fault(error):
            return
        if not self.is_reduced:
            # One of these pods failed, or one of the batch before, which was still being bound.
            suspects = len(batch) + self._before
            if suspects:
                self._suspects, self.limit = suspects, max(1, min(self._usual, suspects) // 2)
        elif len(batch) > 1:
            self.limit = max(1, len(batch) // 2)
        elif batch:
            set_aside([(aside.pod(batch[0].pod_id), error)], now)
            self._decided(1)

    def succeeded(self, count: int) -> None:
        """Note that ``count`` pods were decided, and also bound if the batch size is reduced."""
        if count:
            self._before = count
        if self.is_reduced:
            self._decided(count)

    @property
    def is_reduced(self) -> bool:
        """Whether batches are smaller than usual, to find the pod for which a batch failed."""
        return self.limit < self._usual

    def _decided(self, count: int) -> None:
        self._suspects -= count
        if self._suspects <= 0:
            self.limit, self._suspects = self._usual, 0


def set_aside(found: Iterable[tuple[ObjectRef, Exception]], now: float) -> None:
    """Set aside objects that failed, so that scheduling goes on without them."""
    for which, error in found:
        aside.put(NAME, which, error, now=datetime.fromtimestamp(now, UTC))
