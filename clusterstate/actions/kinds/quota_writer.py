"""ResourceQuotas: written as other objects, and recounted whenever their spec changes.

A quota is enforced from the transaction that stores it: nothing is created in its namespace between
that and the count (`actions.writing.quotas`). Device classes name the resource for which claims for
their devices count, so everything is recounted when that changes.
"""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from msgspec.structs import replace

from clusterstate.actions.writing import (
    NewVersion,
    Update,
    Writer,
    quotas,
    stored_rows,
    transactions,
)
from clusterstate.actions.writing.stored import LockedRow, NewObject, StoredObject
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object


class QuotaWriter(Writer):
    """Writes quotas, and counts the namespace's usage in the same transaction."""

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """Create quotas, and count everything in their namespaces; in the caller's transaction."""
        results = super().create_each(kind, items, now, all_or_nothing=all_or_nothing)
        keys = {}
        for place, result in enumerate(results):
            if isinstance(result, StoredObject):
                metadata = decode_object(result.manifest)["metadata"]
                keys[place] = (metadata["namespace"], metadata["name"])
        for namespace in sorted({namespace for namespace, _ in keys.values()}):
            quotas.recount(namespace, now=now)
        for place, key in keys.items():
            results[place] = _as_counted(kind, key, results[place])
        return results

    def update(self, kind: Kind, request: Update, now: datetime) -> StoredObject:
        """Update a quota; recount its usage if its spec changes or its status is written."""
        before: list[Manifest] = []

        def remembered(stored: Manifest) -> Manifest:
            before[:] = [stored.get("spec") or {}]
            return request.change(stored)

        with transaction.atomic():
            stored = super().update(kind, replace(request, change=remembered), now)
            manifest = decode_object(stored.manifest)
            if request.subresource and stored.changed:
                quotas.count_again(request.namespace)
            elif stored.changed and (manifest.get("spec") or {}) != before[0]:
                quotas.recount(request.namespace, now=now)
                return _as_counted(kind, (request.namespace, request.name), stored)
            return stored


class DeviceClassWriter(Writer):
    """Writes DeviceClasses; recounts claims when ``extendedResourceName`` changes."""

    is_batched = False

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """Create classes, and recount claims: claims that name the classes may exist already."""
        results = super().create_each(kind, items, now, all_or_nothing=all_or_nothing)
        if any(_resource(manifest) for _, manifest, _ in items):
            quotas.count_all_again()
        return results

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """Write the new version of a class."""
        if _resource(version.new) != _resource(version.old):
            quotas.count_all_again()
        return super().store(kind, version, now)

    def remove(self, kind: Kind, rows: Sequence[LockedRow], now: datetime) -> list[int]:
        """Remove classes."""
        if any(_resource(row.manifest()) for row in rows):
            quotas.count_all_again()
        return super().remove(kind, rows, now)


def _resource(device_class: Manifest) -> str:
    name: str = (device_class.get("spec") or {}).get("extendedResourceName") or ""
    return name


def _as_counted(
    kind: Kind, key: tuple[str, str], stored: StoredObject | StatusError
) -> StoredObject:
    """Return a quota's stored object with the status after the recount."""
    assert isinstance(stored, StoredObject)
    rows = stored_rows.lock_rows(kind, [key])
    if not rows:
        return stored  # it was terminating, and has no finalizers any more
    row = rows[0]
    old_revision = decode_object(stored.manifest)["metadata"].get("resourceVersion", "0")
    body = transactions.written_json(row.text, row.revision, row.overlay, before=int(old_revision))
    return StoredObject(body, row.revision, stored.warnings, stored.uid)
