"""The service's own changes of a pod's manifest."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction

from clusterstate.actions.pods.clauses import POD
from clusterstate.actions.pods.versions import lock_pod, write_version
from clusterstate.actions.writing import object_meta
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.strategies import drop_gated_condition
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest


def rewrite_pod(
    pod_id: int,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    unbound_only: bool = False,
) -> int | None:
    """Make the service's own change of a pod under its row lock, past admission.

    Returns the revision; ``None`` when the pod is gone or the same already, or is bound and
    ``unbound_only``. What ``change`` raises is raised, and nothing is written.
    """
    with transaction.atomic():
        key = sql.fetch_one("SELECT namespace, name FROM pod WHERE id = %s::bigint", (pod_id,))
        if key is None:
            return None
        try:
            row = lock_pod(*key)
        except StatusError:
            return None
        if row.id != pod_id or (unbound_only and row.overlay.node_name):
            return None
        old = row.manifest()
        new = change(row.manifest())
        drop_gated_condition(new, old)
        text, overlay = document.encode("Pod", new)
        if object_meta.same(POD, row, old, new, text, overlay):
            return None
        if new.get("spec") != old.get("spec"):
            object_meta.bump_generation(POD, old, new)
            text, overlay = document.encode("Pod", new)
        revision = write_version(row, new, text, overlay, now=now)
        changes.announce(revision, ("Pod",))
    return revision
