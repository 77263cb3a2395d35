"""The cluster in memory, kept up with the change log: news in, snapshot deltas and queue moves out.

``Mirror`` owns the warm state of one scheduling worker: the snapshot of nodes and placed pods, and
the queue of pending ones. ``load`` builds both from the rows; ``refresh`` applies what was
committed since. The mirror is a cache: throw it away at any moment, load again, and the next cycle
decides the same. It never writes. Its class is written down in parts::

    __init__      Mirror: load once, then refresh
    loading       Loading: everything from the rows: nodes, pods, the queue, nominations,
                  reservations; what a standby reads again
    refused       RefusedPods: pods that were refused before a restart
    in_columns    ManyChanges: thousands of changes of pods, sorted by pod_news
    one_by_one    SingleChanges: each kind of change
    state         WarmState: snapshot, queue, classes, what could not be taken over

Applying a change twice, or one that the loaded rows already contain, does no harm: every delta
states the last state of one object. A pod that this worker assumed is confirmed by its own change;
a pod that a client put on a node is noted in ``arrivals``, for ``arrival_checks``, and in
``of_unknown_nodes`` as long as that node does not exist.
Reserved pods (``clusterstate.queries.scheduler.reservations``) are counted on the node that is set
aside for them. Nominations are followed, too, whoever wrote them. The scheduler counts its own at
once: until it reads them back, what the log says of that pod is out of date
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
"""Up to this many changes are read as rows, more come as columns."""
_READ_AT_ONCE = 5000


class Mirror(StateLoader, ManyChanges):
    """Snapshot and queue, following the change log from ``cursor``."""

    def refresh(self, now: float, *, mark: int | None = None) -> int:
        """Apply what was committed since the cursor; return how many changes.

        It reads up to the present watermark, or up to ``mark``, a watermark that the caller knows.
        When the log no longer reaches back to the cursor, everything is loaded again. Queries for
        the watermark, once or twice more if it is above the cursor, and once more if pods began to
        end.
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
