"""The service's own changes of a pod's manifest."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial

import msgspec
from django.db import transaction

from clusterstate.actions.pods.clauses import POD
from clusterstate.actions.pods.versions import Version, lock_pods, write_versions
from clusterstate.actions.writing import object_meta
from clusterstate.actions.writing.stored import LockedRow
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.strategies import drop_gated_condition
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest


def rewrite_pod(
    pod_id: int,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    unbound_only: bool = False,
) -> int | None:
    """Make the service's own change of a pod under its row lock, without admission.

    Returns the revision; ``None`` when the pod is gone or unchanged, or is bound and
    ``unbound_only``. Errors of ``change`` are raised, and nothing is written.
    """
    written = rewrite_each([pod_id], lambda _, old: change(old), now=now, unbound_only=unbound_only)
    return written[0][1] if written else None


def rewrite_each(
    ids: Collection[int],
    change: Callable[[int, Manifest], Manifest],
    *,
    now: datetime,
    unbound_only: bool = False,
    same_class: bool = False,
) -> list[tuple[int, int]]:
    """Make the service's own changes of pods by id, in one transaction of three statements.

    Returns (id, revision) of those that exist and changed. ``unbound_only``: bound pods stay as
    they are. ``same_class``: nothing changes that scheduling reads.
    """
    with transaction.atomic():
        keys = sql.fetch(
            "SELECT namespace, name FROM pod WHERE id = ANY(%s)", (sql.Int8s(list(ids)),)
        )
        versions = []
        for row in lock_pods([(key[0], key[1]) for key in keys]) if keys else ():
            if row.id not in ids or (unbound_only and row.overlay.node_name):
                continue
            version = _changed(row, partial(change, row.id))
            if version is not None:
                versions.append(msgspec.structs.replace(version, same_class=same_class))
        if not versions:
            return []
        revisions = write_versions(versions, now=now)
        changes.announce(max(revisions), ("Pod",))
    return [(one.row.id, revision) for one, revision in zip(versions, revisions, strict=True)]


def rewrite_pods(
    rewrites: Sequence[tuple[int, str, str, Callable[[Manifest], Manifest]]], *, now: datetime
) -> int:
    """Change several pods as ``rewrite_pod`` does; return how many of them still exist.

    ``rewrites``: id, namespace, name and change of each. One statement locks them, one writes them.
    """
    changes_of = {pod_id: change for pod_id, _, _, change in rewrites}
    with transaction.atomic():
        rows = lock_pods([(namespace, name) for _, namespace, name, _ in rewrites])
        rows = [row for row in rows if row.id in changes_of]
        found = [_changed(row, changes_of[row.id]) for row in rows]
        if versions := [one for one in found if one is not None]:
            changes.announce(max(write_versions(versions, now=now)), ("Pod",))
    return len(rows)


def _changed(row: LockedRow, change: Callable[[Manifest], Manifest]) -> Version | None:
    """Return the new version of a locked pod, ``None`` if it is the same."""
    old = row.manifest()
    new = change(row.manifest())
    drop_gated_condition(new, old)
    text, overlay = document.encode("Pod", new)
    if object_meta.same(POD, row, old, new, text, overlay):
        return None
    if new.get("spec") != old.get("spec"):
        object_meta.bump_generation(POD, old, new)
        text, overlay = document.encode("Pod", new)
    return Version(row, new, text, overlay)
