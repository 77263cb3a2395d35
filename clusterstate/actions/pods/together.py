"""Groups of pods that leave together: a pod that leaves takes all of its group along.

A PodGroup with ``disruptionMode: {all: {}}`` is disrupted as a unit. Whatever makes one of its pods
leave (an eviction, a timer, preemption, a lost node, pressure) does so in ``leaving``: then all
others of the group that are on a node are deleted in the same transaction, with the same condition,
and appear to leave at one revision. Waiting pods of the group stay: they run nowhere.

Rule: ``getHighestAllAncestor`` and ``searchCrossNodesVictimPods``,
pkg/scheduler/framework/preemption/types.go, v1.37, where it applies to preemption alone.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from django.db import transaction

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.pods.bind import LOCK_PLACEMENT
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.admission.request import NOBODY, User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import GroupToDisrupt, leaving_together

COMPONENT: Final = "podgroup-disruption"


def hold(pod_ids: Collection[int]) -> list[GroupToDisrupt]:
    """Return the groups that leave with these pods, locked until the transaction ends.

    No pod joins them meanwhile. Call it before any row is locked. Queries once, and twice more if
    there is one.
    """
    if not leaving_together(pod_ids):
        return []
    sql.run(LOCK_PLACEMENT)
    return leaving_together(pod_ids)


def event_of(group: GroupToDisrupt, reason: str, message: str) -> Occurrence:
    """Return the event of a group that leaves; ``message`` has the first pod, and its reason."""
    return Occurrence(
        kind="PodGroup", api_version="scheduling.k8s.io/v1beta1", namespace=group.namespace,
        name=group.name, uid=group.uid, reason=reason, component=COMPONENT,
        message=f"All {len(group.pods)} pods of the group leave: {message}",
    )  # fmt: skip


@contextmanager
def leaving(
    pod_ids: Sequence[int],
    condition: Manifest,
    *,
    now: datetime,
    grace_seconds: int | None = None,
    user: User = NOBODY,
) -> Iterator[list[tuple[str, str]]]:
    """A transaction in which these pods leave; the others of their groups leave at its end.

    Yields namespace and name of the others. ``condition`` says why, for all of them.
    ``grace_seconds``: ``None`` means each pod's own.

    Raises:
        StatusError: one of the others may not be deleted; then none leaves.
    """
    with transaction.atomic(savepoint=False):
        groups = hold(pod_ids)
        others = [
            (group.namespace, name)
            for group in groups
            for pod_id, name in sorted(group.pods.items())
            if pod_id not in pod_ids
        ]
        yield others
        deletions = [
            Deletion(
                namespace=namespace, name=name, condition=condition, grace_seconds=grace_seconds,
                user=user,
            )
            for namespace, name in others
        ]  # fmt: skip
        for found in delete_pods_each(deletions, now=now):
            if isinstance(found, StatusError) and not isinstance(found, NotFound):
                raise found
        if groups:
            changes.note_atomic()
        news = []
        for group in groups:
            names = ", ".join(group.pods[one] for one in pod_ids if one in group.pods)
            message = f"{names}: {condition.get('message') or condition['reason']}"
            news.append(event_of(group, condition["reason"], message))
        events.record_many(news, now=now)
