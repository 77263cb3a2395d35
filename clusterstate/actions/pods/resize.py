"""Resizes of pods in place: the request of a client, and the decision for a node without an agent.

A pod on no node just changes its requests. On a node with an agent the agent carries the resize out
and reports it in the pod's status, as a kubelet does; here only the request is written. On a node
without an agent the service decides in the same transaction, as a kubelet would about its
allocations (`objects.rules.resizing`):

    it fits              the new requests are allocated
    no room at present   PodResizePending, Deferred: the pod keeps its allocation, and counts for
        the
                         larger of both, so that no other pod takes the room; a row of
                         ``deferred_resize``, which the controller ``resizes`` retries
    larger than node     admission refuses that at once; if the node became smaller since, the
                         resize is Infeasible, and the pod counts for its allocation

The decision is made under the exclusive placement lock, as a scheduler's bind: so the allocations
on the node are complete, and a bind that was decided on an earlier snapshot is refused where the
pod grew (``node.placement_revision``).
"""

from datetime import datetime
from typing import Final

import msgspec
from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions.kinds.events import Occurrence, record_many
from clusterstate.actions.pods.clauses import FINISHED, POD
from clusterstate.actions.pods.versions import lock_pod, write_version
from clusterstate.actions.pods.writer import PodWriter, usage_of
from clusterstate.actions.writing import NewVersion, Update, object_meta, quotas, transactions
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.actions.writing.stored import LockedRow, StoredObject
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules import resizing
from clusterstate.objects.rules.resizing import Verdict
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects.workloads import without_agent
from clusterstate.queries.pods import resizes
from clusterstate.queries.pods.resizes import WaitingResize

COMPONENT: Final = "pod-resize-controller"
"""Who says in Events what became of a resize."""
_LOCK_PLACEMENT = f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})"
_NOTE = """
    INSERT INTO deferred_resize (pod_id, since) VALUES (%s::bigint, %s::timestamptz)
    ON CONFLICT (pod_id) DO NOTHING
"""
_FORGET = "DELETE FROM deferred_resize WHERE pod_id = ANY(%s)"


class ResizingWriter(PodWriter):
    """Writes the ``resize`` of one pod; a new writer for each, since it stores the decision."""

    def __init__(self) -> None:
        self._books: quotas.Books | None = None
        self._row: LockedRow | None = None
        self._waits: bool | None = None
        """Whether the service decided that the resize waits; ``None``: it decided nothing."""
        self._warnings: list[str] = []
        self._why: Verdict | None = None

    def update(self, kind: Kind, request: Update, now: datetime) -> StoredObject:
        """Resize a pod; see `actions.objects.update`. Warns if the resize must wait."""

        def work() -> StoredObject:
            self._waits, self._warnings, self._why = None, [], None
            with transaction.atomic():
                self._books, _ = quotas.open_books([request.namespace])
                stored = super(ResizingWriter, self).update(kind, request, now)
                self._books.write(now)
                return stored

        stored = again_after_deadlock(work)
        if self._waits is not None and not transactions.is_rehearsal():
            assert self._row is not None
            _tell(self._row, self._why, now)
        return msgspec.structs.replace(stored, warnings=[*stored.warnings, *self._warnings])

    def lock_before(self) -> None:
        """Take the placement lock, which comes after the quotas of the namespace."""
        sql.run(_LOCK_PLACEMENT)

    def lock(self, kind: Kind, namespace: str, name: str) -> LockedRow:
        """See ``lock_pod``."""
        self._row = super().lock(kind, namespace, name)
        return self._row

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Decide in place of the node, if it has no agent and the requests change."""
        row = self._row
        assert row is not None
        assert old is not None
        node_name = row.overlay.node_name
        if not node_name or row.phase in FINISHED or not resizing.differs(new["spec"], old["spec"]):
            return new
        if not without_agent([node_name]):
            return new
        generation = new["metadata"].get("generation", 0) + 1
        settled, why = _decided(row.id, node_name, new, old, generation, now)
        self._why, self._waits = why, why is not None
        if why is not None:
            self._warnings.append(
                f'the resize waits ({why.reason}), as node "{node_name}" has no agent and the'
                f" service decides for it: {why.message}"
            )
        return settled

    def charge_update(
        self, kind: Kind, new: Manifest, old: Manifest, subresource: str
    ) -> quotas.Books | None:
        """Refuse a resize that does not fit into the quotas.

        ``store`` notes the change of the pod's class, so nothing is charged here. Rule:
        pkg/quota/v1/evaluator/core/pods.go Handles, v1.36.
        """
        books, spec = self._books, new["spec"]
        assert books is not None
        is_charged = catalogue.current().settings.resource_quota
        if is_charged and (new.get("status") or {}).get("phase") not in FINISHED:
            namespace, name = new["metadata"]["namespace"], new["metadata"]["name"]
            containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
            charged = books.charge(
                kind,
                namespace,
                name,
                usage_of(new),
                usage_of(old),
                containers=lambda: [one["name"] for one in containers],
            )
            books.take_back(namespace, charged)
        return None

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """See ``write_version``; note a resize that waits."""
        revision = super().store(kind, version, now)
        if self._waits:
            sql.run(_NOTE, (version.row.id, now))
        elif self._waits is not None:
            forget([version.row.id])
        return revision


def _decided(
    pod_id: int, node_name: str, new: Manifest, old: Manifest, generation: int, now: datetime
) -> tuple[Manifest, Verdict | None]:
    """Return a pod after its node's decision on the resize to ``new``, and why it waits, if so.

    Must run under the placement lock. Queries three times.
    """
    waiting = resizes.waiting(node_name)
    node = resizes.on_nodes([node_name], waiting).get(node_name)
    had = resizing.allocated(old)
    why = None
    if node is not None:
        requested, has = resizing.amounts(new), resizing.amounts(had)
        why = resizing.verdict(requested, has, node.others(pod_id), node.offered)
    if why is None:
        return resizing.carry_out(new, generation), None
    return resizing.hold(new, had, why, generation, document.format_time(now)), why


def _tell(row: LockedRow, why: Verdict | None, now: datetime) -> None:
    """Record the Event of the decision, as a kubelet does."""
    event = "ResizeCompleted", "Pod resize completed", "Normal"
    if why is not None:
        event = f"Resize{why.reason}", f"Pod resize {why.reason}: {why.message}", "Warning"
    reason, message, type_ = event
    news = Occurrence(
        kind=POD.name,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        reason=reason,
        message=message,
        type=type_,
        component=COMPONENT,
    )
    record_many([news], now=now)


def retry(one: WaitingResize, *, now: datetime) -> bool:
    """Decide again about a waiting resize; return whether anything changed.

    One transaction. Nothing changes if it waits no longer: the pod is gone, finished or resized
    again, or its node has an agent now.
    """
    with transaction.atomic():
        sql.run(_LOCK_PLACEMENT)
        metadata = one.pod["metadata"]
        try:
            row = lock_pod(metadata["namespace"], metadata["name"])
        except StatusError:
            return False
        waiting = resizes.waiting(one.node_name)
        if not any(w.pod_id == row.id == one.pod_id and w.node_name for w in waiting):
            return False
        old = row.manifest()
        generation = old["metadata"].get("generation", 0)
        new, why = _decided(row.id, row.overlay.node_name, old, old, generation, now)
        if why is None:
            forget([row.id])
        text, overlay = document.encode(POD.name, new)
        if object_meta.same(POD, row, old, new, text, overlay):
            return False
        grows = resizing.grows(new, old)
        revision = write_version(row, new, text, overlay, now=now, grows=grows)
        changes.announce(revision, (POD.name,))
    _tell(row, why, now)
    return True


def forget(pod_ids: list[int]) -> None:
    """Delete the rows of resizes that no longer wait."""
    sql.run(_FORGET, (sql.Int8s(pod_ids),))
