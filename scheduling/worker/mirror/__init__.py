"""The cluster in memory: reads changes from the log and applies them to a snapshot and a queue.

``Mirror`` owns the warm state of one scheduling worker: the snapshot of nodes and placed pods, and
the queue of pending ones. ``load`` builds both from the rows; ``refresh`` applies what was
committed since. The mirror is a cache: it can be dropped and loaded again at any moment, and the
next cycle decides the same. It never writes. Its class is made of several base classes::

    __init__      Mirror: load once, then refresh
    loading       Loading: everything from the rows: nodes, pods, the queue, nominations,
                  reservations; what a standby reads again
    refused       RefusedPods: pods that were refused before a restart
    in_columns    ManyChanges: applies thousands of changes of pods, sorted by pod_news
    one_by_one    SingleChanges: each kind of change
    state         WarmState: snapshot, queue, classes, objects that failed

A change may be applied twice, or after rows that contain it were loaded: it states the last state
of one object. The change about a binding confirms the pod that this worker assumed; a pod that a
client put on a node is noted in ``arrivals``, for ``arrival_checks``, and in ``of_unknown_nodes``
as long as that node does not exist. Reserved pods (``clusterstate.queries.scheduler.reservations``)
are counted on their reserved node. Nominations by any client are applied, too. The scheduler
applies its own at once: until it reads them back, the log's entries about that pod are out of date
(``WarmState._follow_nomination``).
"""

import structlog

from clusterstate.change_log import changes, pod_log
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.storage import KINDS
from scheduling.worker.mirror.in_columns import ManyChanges
from scheduling.worker.mirror.loading import StateLoader
from scheduling.worker.mirror.refused import waiting_as_of

__all__ = ["FOLLOWED", "Mirror", "waiting_as_of"]

logger = structlog.get_logger(__name__)

FOLLOWED = (
    "Pod",
    "Node",
    "Namespace",
    "PodDisruptionBudget",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    *KINDS,
    *DEVICE_KINDS,
    "PodGroup",
)
"""Kinds whose changes matter to scheduling."""

_DOCUMENTED = tuple(kind for kind in FOLLOWED if kind != "Pod")
"""Kinds whose documents are read with their changes."""
_FEW = 128
"""Up to this many changes are read as rows, more as columns."""
_READ_AT_ONCE = 5000


class Mirror(StateLoader, ManyChanges):
    """Snapshot and queue, following the change log from ``cursor``."""

    def refresh(self, now: float, *, mark: int | None = None) -> int:
        """Apply the changes committed since the cursor; return their number.

        It reads up to the present watermark, or to the watermark ``mark``. If the log was trimmed
        beyond the cursor, everything is loaded again. Queries for the watermark, once or twice more
        if it is above the cursor, and once more if pods began to terminate.
        """
        applied = 0
        try:
            if mark is None:
                mark = changes.news_up_to(self.cursor)
            # Changes of other kinds take revisions, too: there may be fewer that matter here.
            if mark - self.cursor <= _FEW:
                news = changes.read_since(
                    self.cursor,
                    mark=mark,
                    kinds=FOLLOWED,
                    limit=_FEW + 1,
                    documents=_DOCUMENTED,
                    starts=True,
                )
                applied += len(news.items)
                self._learn_classes(
                    change.class_id for change in news.items if change.class_id is not None
                )
                self._apply_all(news.items, now)
                self.snapshot.revision = self.cursor = news.cursor
            while self.cursor < mark:
                many = pod_log.read_since(
                    self.cursor, mark=mark, others=_DOCUMENTED, limit=_READ_AT_ONCE
                )
                applied += len(many.pods) + len(many.others)
                self._apply_many(many, now)
                self.snapshot.revision = self.cursor = many.cursor
            self._note_preempted()
        except Expired:
            logger.warning("mirror_behind_history", cursor=self.cursor)
            self.load(now)
        return applied
