"""Pods as objects of the API: the common writer with the statements for pods."""

from collections.abc import Sequence
from datetime import datetime

from clusterstate.actions.pods.clauses import FINISHED
from clusterstate.actions.pods.create import create_pods, create_pods_each
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.pods.versions import lock_pod, remove_pods, write_version
from clusterstate.actions.writing import NewVersion, Writer, quotas
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.actions.writing.stored import DeletedObject, LockedRow, NewObject, StoredObject
from clusterstate.admission.request import User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules import resizing, scheduling_class, usage
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest


class PodWriter(Writer):
    """Pods are written together with their class, their place in the queue and their log."""

    def create(
        self, kind: Kind, items: Sequence[tuple[str, Manifest]], *, now: datetime, user: User
    ) -> list[StoredObject]:
        """See ``create_pods``."""
        manifests = [_in_namespace(namespace, manifest) for namespace, manifest in items]
        stored = create_pods(manifests, now=now, user=user)
        return [one for one in stored if isinstance(one, StoredObject)]

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """See ``create_pods_each``."""
        return create_pods_each(items, now=now)

    def lock(self, kind: Kind, namespace: str, name: str) -> LockedRow:
        """See ``lock_pod``."""
        return lock_pod(namespace, name)

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """See ``write_version``; records for quotas that a pod got an activeDeadlineSeconds."""
        row, new, old = version.row, version.new, version.old
        grows = bool(row.overlay.node_name) and resizing.grows(new, old)
        revision = write_version(row, new, version.text, version.slots, now=now, grows=grows)
        if usage.is_terminating(new) != usage.is_terminating(old):
            finished = row.phase in FINISHED
            quotas.note_change(row.id, row.document_id, row.class_id, finished=finished)
        return revision

    def charge_update(
        self, kind: Kind, new: Manifest, old: Manifest, subresource: str
    ) -> quotas.Books | None:
        """Refuse a change that moves a pod from one quota to another in which it does not fit.

        ``store`` records the change, so nothing is charged here. Rule:
        pkg/quota/v1/evaluator/core/pods.go Handles, v1.36.
        """
        moves = usage.is_terminating(new) != usage.is_terminating(old)
        if subresource or not moves or (new.get("status") or {}).get("phase") in FINISHED:
            return None
        namespace, name = new["metadata"]["namespace"], new["metadata"]["name"]
        books, _ = quotas.open_books([namespace])
        after, before = (usage_of(pod) for pod in (new, old))
        charged = books.charge(kind, namespace, name, after, before)
        books.take_back(namespace, charged)
        return books

    def remove(self, kind: Kind, rows: Sequence[LockedRow], now: datetime) -> list[int]:
        """See ``remove_pods``."""
        return remove_pods(rows, now=now)

    def delete_each(
        self, kind: Kind, deletions: Sequence[Deletion], now: datetime
    ) -> list[DeletedObject | StatusError]:
        """See ``delete_pods_each``: a pod has a grace period."""
        return delete_pods_each(deletions, now=now)


def usage_of(pod: Manifest) -> usage.Usage:
    """Return a pod's usage in quotas, unless it has finished."""
    _, spec = scheduling_class.encode(pod)
    name = (pod.get("spec") or {}).get("priorityClassName") or ""
    extras = usage.Extras(usage.is_terminating(pod), name)
    return usage.pod_usage(spec, finished=False, extras=extras)


def _in_namespace(namespace: str, manifest: Manifest) -> Manifest:
    """Return the manifest with the namespace it is created in, if that is given."""
    metadata = manifest.get("metadata") or {}
    if not namespace or metadata.get("namespace") == namespace:
        return manifest
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}
