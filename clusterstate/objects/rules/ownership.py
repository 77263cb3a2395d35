"""Kubernetes' garbage collection: owners of an object, and its fate when they are deleted.

An owner that is deleted with *Orphan* or *Foreground* stays, with a finalizer of that name, until
the collector has freed its dependents, or until those are gone that block it. With *Background* it
goes at once, and its dependents follow. Pure. Rules: pkg/controller/garbagecollector
(``attemptToDeleteItem``) and apiserver ``registry/generic/registry/store.go``
(``shouldOrphanDependents``, ``shouldDeleteDependents``), v1.36.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_FINALIZERS: Final = (ORPHAN, FOREGROUND)
PROTECTIONS: Final = {
    "PersistentVolume": "kubernetes.io/pv-protection",
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "PodGroup": "scheduling.k8s.io/podgroup-protection",
}
"""By kind: the finalizer that says that an object stays while it is used."""


class Policy(StrEnum):
    """``propagationPolicy`` of a deletion."""

    ORPHAN = "Orphan"
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"


_BY_FINALIZER: Final = {ORPHAN: Policy.ORPHAN, FOREGROUND: Policy.FOREGROUND}
_DEFAULTS: Final = {"ReplicationController": Policy.ORPHAN, "Job": Policy.ORPHAN}
"""What core/v1 and batch/v1 did before there was a choice; all others go in the background."""
ORPHANED_UNASKED: Final = {
    "Job": (
        "child pods are preserved by default when jobs are deleted; set "
        "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress "
        "this warning"
    )
}
"""What a client is warned of that deletes an object of a kind and says nothing of dependents."""
_UNCOLLECTED: Final = frozenset({"Event", "Namespace"})
"""Kinds that have no dependents in this sense; a namespace is emptied by its own controller."""


class Owner(msgspec.Struct, frozen=True):
    """An object that an ownerReference names. ``namespace`` is empty for kinds without."""

    kind: str
    namespace: str
    name: str
    uid: str


class Reference(msgspec.Struct, frozen=True):
    """An entry of ``metadata.ownerReferences`` whose kind is served here."""

    owner: Owner
    blocks: bool


class State(StrEnum):
    """The state of an owner: it exists, it does not, or it waits for its dependents."""

    SOLID = "solid"
    ABSENT = "absent"
    WAITING = "waiting"


class Verdict(msgspec.Struct, frozen=True):
    """The action for a dependent: delete it, remove these owners (uids), or none.

    ``unblock``: before it is deleted, none of its owners has to wait for it any more.
    """

    delete: Policy | None = None
    release: frozenset[str] = frozenset()
    unblock: bool = False


KEEP: Final = Verdict()


def controller_of(manifest: Manifest) -> Manifest | None:
    """Return the reference to the owner that manages an object, ``None`` without one.

    Rule: ``GetControllerOf``, apimachinery ``meta/v1/controller_ref.go``, v1.36.
    """
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), None)


def is_controlled_by(manifest: Manifest, uid: str) -> bool:
    """Return whether the owner that manages an object has this uid (``IsControlledBy``)."""
    manager = controller_of(manifest)
    return manager is not None and manager.get("uid") == uid


def references(kind: str, manifest: Manifest) -> list[Reference] | None:
    """Return the owners of an object; ``None`` if one of them is of an unknown kind.

    An object that has such an owner is never collected: whether that exists is unknown. The
    same holds for an object without namespace whose owner would be in one.
    """
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace") or ""
    found = []
    for entry in metadata.get("ownerReferences") or ():
        group, _, _ = entry.get("apiVersion", "").rpartition("/")
        served = KINDS.get(entry.get("kind", ""))
        if served is None or served.group != group or (served.namespaced and not namespace):
            return None
        owner = Owner(
            served.name,
            namespace if served.namespaced else "",
            entry.get("name", ""),
            entry.get("uid", ""),
        )
        found.append(Reference(owner, bool(entry.get("blockOwnerDeletion"))))
    return found


def finalizers_for(kind: str, present: Sequence[str], requested_policy: Policy | None) -> list[str]:
    """Return the finalizers of a deleted object, among them that of the policy for dependents.

    ``requested_policy`` overrides the finalizer that is there, which overrides the kind's default.
    """
    if kind in _UNCOLLECTED:
        return list(present)
    own = next((_BY_FINALIZER[one] for one in present if one in _FINALIZERS), None)
    policy = requested_policy or own or _DEFAULTS.get(kind, Policy.BACKGROUND)
    others = [one for one in present if one not in _FINALIZERS]
    if policy is Policy.BACKGROUND:
        return others
    added = ORPHAN if policy is Policy.ORPHAN else FOREGROUND
    return list(present) if own is policy and present.count(added) == 1 else [*others, added]


def judge(
    refs: Iterable[tuple[Reference, State]],
    *,
    finalizers: Collection[str],
    has_dependents: bool,
    dependents_wait: bool = False,
) -> Verdict:
    """Return the verdict on a dependent that is not being deleted.

    One existing owner keeps it, and references to the others are removed. Otherwise it is deleted:
    with its own dependents first if an owner waits for that, else as its finalizers require.
    ``dependents_wait``: one of its dependents waits for its own, maybe in a circle with the owner.
    Then its owners no longer wait for it, or all would wait for ever.
    """
    by_state: dict[State, list[str]] = {state: [] for state in State}
    for reference, state in refs:
        by_state[state].append(reference.owner.uid)
    gone = by_state[State.ABSENT] + by_state[State.WAITING]
    if not gone:
        return KEEP
    if by_state[State.SOLID]:
        return Verdict(release=frozenset(gone))
    if by_state[State.WAITING] and has_dependents:
        return Verdict(delete=Policy.FOREGROUND, unblock=dependents_wait)
    own = next((_BY_FINALIZER[one] for one in finalizers if one in _FINALIZERS), None)
    return Verdict(delete=own or Policy.BACKGROUND)
