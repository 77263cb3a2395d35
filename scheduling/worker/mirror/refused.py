"""Restores pods that were refused before a restart; they wait on, unless a change may help them.

A refused pod's row states up to which revision the log had been read for the decision. The pod gets
the queue place in its row, and every later change in the log moves it as it would have in the
queue. If the log is too long or trimmed, if another configuration is in force, or if the pod's
profile could not be used, the pod is tried again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from clusterstate.change_log import changes
from clusterstate.change_log.changes import Placement
from clusterstate.objects.values.document import SLOT
from clusterstate.objects.values.node import Node
from clusterstate.queries.pods.queue import WaitingPod
from scheduling.engine.queue.pending import (
    Backoff,
    PendingPod,
    QueuePlace,
    Stage,
)
from scheduling.engine.queue.waiting import Registrations
from scheduling.engine.queue.waking import PodState
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.events import Action, Resource
from scheduling.framework.types import digest_of
from scheduling.plugins import held_profile
from scheduling.worker.mirror.state import FINISHED, WarmState, decode_node

_REPLAYED = 20_000
"""The most changes since the refusals that are read again."""
DYNAMIC_RESOURCES = "DynamicResources"
_LOOKED_THROUGH = 1_000_000
"""The most revisions that are searched for these changes."""


class RefusedPods(WarmState):
    """Adds pods to the queue at the places that their rows state."""

    def _restore_pods(
        self, rows: Iterable[tuple[WaitingPod, PendingPod]], revision: int, now: float
    ) -> int:
        """Add pods to the queue at the places that their rows state.

        Returns how many still wait because their refusal is still valid.
        """
        refused: list[tuple[int, PendingPod, QueuePlace]] = []
        for row, pod in rows:
            since = row.since.timestamp()
            not_before = 0.0 if row.not_before is None else row.not_before.timestamp()
            place = QueuePlace(
                pod_id=row.id,
                stage=Stage.GATED if row.stage == Stage.GATED else Stage.ACTIVE,
                attempts=row.attempts,
                early=row.early,
                # Among pods of equal priority a refused pod is ordered by its return to the queue.
                queued_at=not_before - self._backoff.after(row.attempts) if not_before else since,
                since=since,
                not_before=not_before,
                rejected_by=tuple(row.rejected_by),
            )
            if row.id in self.reserved:
                self.queue.restore_parked(pod, place)
                continue
            if (
                row.stage == Stage.UNSCHEDULABLE
                and place.rejected_by
                and held_profile.NAME not in place.rejected_by
                and row.refused_under == self.configuration
                # Later changes of devices are not read again.
                and DYNAMIC_RESOURCES not in place.rejected_by
                and max(revision - _LOOKED_THROUGH, 0) < row.refused_revision <= revision
            ):
                refused.append((row.refused_revision, pod, place))
            else:
                self.queue.restore(pod, place, now)
        refused.sort(key=lambda one: (one[0], one[1].pod_id))
        return self._restore_refused(refused, revision, now)

    def _restore_refused(
        self, refused: Sequence[tuple[int, PendingPod, QueuePlace]], revision: int, now: float
    ) -> int:
        """Put refused pods among the waiting ones, and move those that a later change may help.

        ``refused``: (revision up to which the log was read, pod, place), by revision. Returns how
        many wait; the others are tried again.
        """
        if not refused:
            return 0
        known_since, happened = self._happened(refused[0][0], revision)
        remaining = [one for one in refused if one[0] >= known_since]
        for _, pod, place in refused[: len(refused) - len(remaining)]:
            self.queue.restore(pod, place, now)
        refused = remaining
        mine = {pod.pod_id for _, pod, _ in refused}
        ahead = iter(refused)
        following = next(ahead, None)
        # Changes of like pods wake the same pods, so one is enough until more pods wait.
        seen: set[tuple[object, ...]] = set()
        for change in happened:
            while following is not None and following[0] < change.revision:
                self._restore_refused_pod(following, now)
                following = next(ahead, None)
                seen.clear()
            own = change.kind == "Pod" and change.object_id in mine
            if own and change.class_id != change.previous_class_id:
                self.queue.activate([change.object_id], now)
            else:
                self._wake_once(change, seen, now)
        while following is not None:
            self._restore_refused_pod(following, now)
            following = next(ahead, None)
        return len(remaining)

    def _restore_refused_pod(self, refused: tuple[int, PendingPod, QueuePlace], now: float) -> None:
        _, pod, place = refused
        # The flush counts from the refusal, which is when its backoff began.
        at = place.queued_at if place.not_before else now
        place = msgspec.structs.replace(place, stage=Stage.UNSCHEDULABLE, queued_at=at)
        self.queue.restore(pod, place, now)

    def _happened(self, since: int, until: int) -> tuple[int, list[Placement]]:
        """Return the changes up to ``until``, and the revision from which on they are complete."""
        since, found = changes.read_placements(since, until, most=_REPLAYED)
        class_ids = {c.class_id for c in found} | {c.previous_class_id for c in found}
        class_ids.discard(None)
        self._learn_classes(cast("set[int]", class_ids))
        # A class that no pod has any more is unknown; the changes after it are complete.
        for number in range(len(found) - 1, -1, -1):
            if not {found[number].class_id, found[number].previous_class_id} <= (
                self._classes.keys() | {None}
            ):
                return found[number].revision, found[number + 1 :]
        return since, found

    def _wake_once(self, change: Placement, seen: set[tuple[object, ...]], now: float) -> None:
        """Wake the pods that a change may help; skip a change whose effect is in ``seen``."""
        if change.kind == "Namespace":
            self.something_changed(Resource.NAMESPACE, Action.UPDATE_NAMESPACE_LABEL, now)
            return
        if change.kind == "Node":
            old, new = _node_of(change.previous_text), _node_of(change.text)
            if change.verb == changes.DELETED:
                self.node_changed(old or new, None, now)
            # None: trimmed while it was read; a later change has the rest. Unchanged documents are
            # not repeated.
            elif new is not None:
                same = change.previous_document_id == change.document_id
                self.node_changed(new if same else old, new, now)
            return
        after = self._after(change)
        before = self._before(change, ended=after is None)
        like = tuple(
            None if one is None else (id(one.pod), one.on_node, one.terminating, one.nominated)
            for one in (before, after)
        )
        if like not in seen:
            seen.add(like)
            self.pod_changed(before, after, now)

    def _before(self, change: Placement, *, ended: bool) -> PodState | None:
        class_id = change.previous_class_id or change.class_id
        if class_id is None or change.previous_revision is None:
            return None
        # The log has the last state of a deleted pod.
        nominated = change.nominated_node_name if ended else change.previous_nominated_node_name
        return PodState(
            pod=self._classes[class_id].pod,
            on_node=bool(change.previous_node_name) and change.previous_phase not in FINISHED,
            nominated=nominated or "",
        )

    def _after(self, change: Placement) -> PodState | None:
        is_there = change.verb != changes.DELETED and change.phase not in FINISHED
        is_on = bool(change.node_name) and is_there
        if change.class_id is None or not (is_on or (is_there and change.deletion_at is None)):
            return None
        return PodState(
            pod=self._classes[change.class_id].pod,
            on_node=is_on,
            # The log does not state since when: each change of a terminating pod may be the first.
            terminating=is_on and change.deletion_at is not None,
            nominated=change.nominated_node_name or "",
        )


class _RefusedAmong(RefusedPods):
    """A queue of some pods over a snapshot that belongs to the caller."""

    def learn(self, snapshot: Snapshot, pods: Iterable[WaitingPod]) -> None:
        self.snapshot = snapshot
        for class_id in {row.class_id for row in pods}:
            info = snapshot.known_class(digest_of(class_id))
            if info is not None:
                self._classes[class_id] = info
        self._learn_classes({row.class_id for row in pods})


def waiting_as_of(
    rows: Sequence[WaitingPod],
    snapshot: Snapshot,
    *,
    revision: int,
    configuration: int,
    registrations: Registrations,
    backoff: Backoff,
    now: float,
) -> Mapping[int, QueuePlace]:
    """Return the queue places of pods, by id, that the working scheduler has at a revision.

    Pods that no profile schedules, or whose class cannot be read, are left out. Queries up to three
    times; classes of the changes since the refusals are added to the snapshot.
    """
    found = _RefusedAmong(registrations, backoff)
    found.configuration = configuration
    found.learn(snapshot, rows)
    fit = [
        (row, found._pending_pod(row.id, row.class_id))
        for row in rows
        if row.class_id in found._classes and not row.leaves
    ]
    found._restore_pods(fit, revision, now)
    return {place.pod_id: place for place in found.queue.places()}


def _node_of(text: str | None) -> Node | None:
    return None if text is None else decode_node(text.replace(SLOT, ""))
