"""ReplicaSets and ReplicationControllers: keeps the number of their pods, and counts them."""

from collections.abc import Iterable

from clusterstate.objects.rules.ownership import controller_of, is_controlled_by
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads import replica_set_rules as rules
from scheduling.controllers.workloads.control import NOTHING_MADE, NamespaceControl, pod_of
from scheduling.controllers.workloads.pods import OwnedPod, surplus
from scheduling.controllers.workloads.world import NamespaceState


def sync(control: NamespaceControl, owner: Manifest) -> int:
    """Create or delete an owner's pods; return how many."""
    pods = control.claim(owner)
    active = [one for one in pods if one.is_active]
    template: Manifest = (owner.get("spec") or {}).get("template") or {}
    short = rules.missing(owner, len(active)) if template else 0
    created, error = NOTHING_MADE, ""
    if owner["metadata"].get("deletionTimestamp"):
        short = 0
    elif short > 0:
        waits = control.waits(owner)
        created = control.create(owner, [pod_of(owner, template)] * short)
        error = created.error or (_standing_error(owner) if waits else "")
    elif short < 0:
        related = _related(control.world, owner)
        gone = surplus(active, -short, related=related, now=control.now)
        error = control.remove(owner, gone)
        if not error:
            going = {one.id for one in gone}
            pods = [one for one in pods if one.id not in going]
    counts, due_at = rules.count(owner, pods, created=len(created.names), now=control.now)
    control.look_again(due_at)
    status = rules.status(owner, counts, short=short, error=error, now=control.now)
    control.write_status(owner, status)
    return abs(short) if short < 0 else len(created.names)


def _standing_error(owner: Manifest) -> str:
    """Return why pods were refused lately, during the backoff after that."""
    for one in (owner.get("status") or {}).get("conditions") or ():
        if one.get("type") == rules.REPLICA_FAILURE:
            return str(one.get("message") or "refused")
    return "pods were refused; they are tried again later"


def _related(world: NamespaceState, owner: Manifest) -> Iterable[OwnedPod]:
    """Return the pods of all ReplicaSets that have the same managing owner, or of this one."""
    manager = controller_of(owner)
    if manager is None:
        return world.pods_of(owner)
    return [
        pod
        for one in world.owners.get("ReplicaSet", ())
        if is_controlled_by(one, manager["uid"])
        for pod in world.pods_of(one)
    ]
