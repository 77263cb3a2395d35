"""Adoption and release of what a workload owns besides pods, by its selector.

A new workload adopts what an earlier one of its name orphaned (``--cascade=orphan``), so that its
pods stay as they are. Rule: pkg/controller/controller_ref_manager.go, v1.36.
"""

from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.control import NamespaceControl, reference
from scheduling.controllers.workloads.world import selector_of


def claim(control: NamespaceControl, owner: Manifest, kind: str) -> list[Manifest]:
    """Return an owner's objects of a kind, after adopting and releasing by its selector."""
    selector, uid = selector_of(owner), owner["metadata"]["uid"]
    leaving = bool(owner["metadata"].get("deletionTimestamp"))
    claimed = []
    may_adopt: bool | None = None
    for one in list(control.world.owners[kind]):
        metadata, manager = one["metadata"], controller_of(one)
        matches = selector.matches(metadata.get("labels") or {})
        if manager is not None and manager.get("uid") == uid:
            if matches:
                claimed.append(one)
            elif not leaving:
                _release(control, one, uid)
        elif manager is None and matches and not leaving and not metadata.get("deletionTimestamp"):
            if may_adopt is None:
                may_adopt = control.may_adopt(owner)
            if not may_adopt:
                continue
            adopted = _adopt(control, one, owner)
            if adopted is not None:
                claimed.append(adopted)
    return claimed


def _release(control: NamespaceControl, one: Manifest, uid: str) -> None:
    def released(manifest: Manifest) -> Manifest:
        metadata = dict(manifest["metadata"])
        owners = [it for it in metadata.pop("ownerReferences", None) or () if it.get("uid") != uid]
        if owners:
            metadata["ownerReferences"] = owners
        return {**manifest, "metadata": metadata}

    control.write(one, released)


def _adopt(control: NamespaceControl, one: Manifest, owner: Manifest) -> Manifest | None:
    def adopted(manifest: Manifest) -> Manifest:
        if controller_of(manifest) is not None:
            return manifest
        metadata = manifest["metadata"]
        owners = metadata.get("ownerReferences") or []
        return {**manifest, "metadata": {**metadata, "ownerReferences": [*owners, mine]}}

    mine = reference(owner)
    found = control.write(one, adopted)
    owns = found is not None and mine in (found["metadata"].get("ownerReferences") or ())
    return found if owns else None
