"""Change a pod: a client's update, and the service's own changes of a manifest."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction

from clusterstate import admission, catalogue, changes, sql
from clusterstate.actions import storing
from clusterstate.actions.pods.clauses import PHASES, POD
from clusterstate.actions.pods.versions import remove_pod, write_version
from clusterstate.actions.storing import Stored
from clusterstate.admission.request import NOBODY, UPDATE, User
from clusterstate.objects import document
from clusterstate.objects.errors import NOT_SUPPORTED, FieldError, Invalid, StatusError
from clusterstate.objects.meta import Manifest


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
            row = storing.lock_row(POD, *key)
        except StatusError:
            return None
        if row.id != pod_id or (unbound_only and row.overlay.node_name):
            return None
        old = row.manifest()
        new = change(row.manifest())
        if (old.get("spec") or {}).get("schedulingGates") and not new["spec"].get(
            "schedulingGates"
        ):
            new["status"] = _without_gated(new.get("status") or {})
        text, overlay = document.encode("Pod", new)
        if storing.same(POD, row, old, new, text, overlay):
            return None
        if new.get("spec") != old.get("spec"):
            storing.bump_generation(POD, old, new)
            text, overlay = document.encode("Pod", new)
        revision = write_version(row, new, text, overlay, now=now)
        changes.announce(revision, ("Pod",))
    return revision


def update_pod(
    namespace: str,
    name: str,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    user: User = NOBODY,
    subresource: str = "",
    dry_run: bool = False,
) -> Stored:
    """Change a pod, or its status, under its row lock; see `actions.objects.update`."""
    context = catalogue.current()
    with storing.work(dry_run=dry_run):
        row = storing.lock_row(POD, namespace, name)
        old = row.manifest()
        new = storing.merge_update(POD, old, change(row.manifest()), subresource)
        if subresource == "status":
            # podStatusStrategy.PrepareForUpdate: agents need not repeat it, and cannot change it.
            qos = (old.get("status") or {}).get("qosClass")
            new["status"] = {"qosClass": qos, **(new.get("status") or {})}
        admitted = admission.admit("Pod", UPDATE, new, old, subresource, context, user)
        new = admitted.manifest
        _check_phase(new)
        if not (new.get("spec") or {}).get("schedulingGates") and (old.get("spec") or {}).get(
            "schedulingGates"
        ):
            new["status"] = _without_gated(new.get("status") or {})
        text, overlay = document.encode("Pod", new)
        if storing.same(POD, row, old, new, text, overlay):
            return Stored(row.composed(), row.revision, admitted.warnings, row.uid, changed=False)
        if not subresource:
            storing.bump_generation(POD, old, new)
            text, overlay = document.encode("Pod", new)
        metadata = new["metadata"]
        if (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
        ):
            # The last finalizer of a pod whose grace period is over: nothing keeps it any more.
            revision = remove_pod(row, now=now)
            composed = document.compose(text, revision, overlay)
        else:
            revision = write_version(row, new, text, overlay, now=now)
            composed = document.compose(text, revision, overlay)
        changes.announce(revision, ("Pod",))
    return Stored(composed, revision, admitted.warnings, row.uid)


def _check_phase(manifest: Manifest) -> None:
    """Refuse a phase that the table's constraint would refuse.

    Raises:
        Invalid: the phase is unknown.
    """
    phase = (manifest.get("status") or {}).get("phase") or "Pending"
    if phase not in PHASES:
        known = ", ".join(f'"{one}"' for one in PHASES)
        error = FieldError(NOT_SUPPORTED, "status.phase", phase, f"supported values: {known}")
        raise Invalid("Pod", manifest["metadata"]["name"], [error])


def _without_gated(status: Manifest) -> Manifest:
    conditions = [
        one for one in status.get("conditions") or () if one.get("reason") != "SchedulingGated"
    ]
    return {**status, "conditions": conditions}
