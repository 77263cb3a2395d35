"""Claims, volumes and related objects, as the scheduler looks them up.

A snapshot has one (``node_table.NodeTable.volumes``). Beside the stored objects it has what placed
pods will do with them: a pod that is assumed on a node takes the volumes that were found there, and
has others provisioned, so that the next pod sees them taken. That ends with ``forget``, or when the
stored objects include it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import msgspec

from clusterstate.objects.rules.volume_matching import bound_to_claim
from clusterstate.objects.values.pod import NodeSelectorTerm
from clusterstate.objects.values.storage import (
    KINDS,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeNodeAffinity,
)

ClaimKey = tuple[str, str]
"""Namespace and name."""
_ANYWHERE: Final = ("", "")
_KEPT_CHANGES: Final = 16_384


class AssumedClaims(msgspec.Struct, frozen=True):
    """Claims of a placed pod: some bound to volumes, others with a selected node."""

    node_name: str
    bindings: tuple[tuple[ClaimKey, str], ...] = ()
    provisions: tuple[ClaimKey, ...] = ()


class VolumeTable:
    """The objects by kind and name; ``version`` counts changes."""

    def __init__(self) -> None:
        self.version = 0
        self._objects: dict[str, dict[ClaimKey, msgspec.Struct]] = {kind: {} for kind in KINDS}
        # Volumes by class, then by one label (key, value) that a node must have.
        self._by_class: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
        # By class, the node labels on which access to its volumes depends, with the number of
        # volumes.
        self._affinity_keys: dict[str, Counter[str]] = {}
        self._capacities: dict[str, dict[ClaimKey, CSIStorageCapacity]] = {}
        self._attached: dict[str, dict[str, VolumeAttachment]] = {}
        self._limited: set[str] = set()
        # The latest changes; ``_dropped``: how many came before.
        self._changes: list[tuple[str, ClaimKey]] = []
        self._dropped = 0
        self.memo: dict[Hashable, object] = {}
        """A cache of what plugins derive from the table, by plugin; a copy begins with none."""
        self._assumed: dict[Hashable, AssumedClaims] = {}
        self._taken: dict[str, tuple[Hashable, ClaimKey]] = {}
        self._made_on: dict[ClaimKey, tuple[Hashable, str]] = {}

    def copy(self) -> Self:
        """Return an equal table that changes independently; the objects are shared."""
        made = type(self)()
        made.version = self.version
        made._objects = {kind: dict(found) for kind, found in self._objects.items()}
        made._by_class = {
            name: {at: dict(names) for at, names in places.items()}
            for name, places in self._by_class.items()
        }
        made._affinity_keys = {name: Counter(of) for name, of in self._affinity_keys.items()}
        made._capacities = {name: dict(found) for name, found in self._capacities.items()}
        made._limited = set(self._limited)
        made._attached = {name: dict(found) for name, found in self._attached.items()}
        made._assumed = dict(self._assumed)
        made._taken, made._made_on = dict(self._taken), dict(self._made_on)
        return made

    # --- stored objects --------------------------------------------------------------------------

    def set(self, value: msgspec.Struct) -> msgspec.Struct | None:
        """Add or replace an object; return the old one."""
        kind = type(value).__name__
        meta = value.metadata  # type: ignore[attr-defined]
        key = meta.namespace, meta.name
        old = self._take(kind, key)
        self._objects[kind][key] = value
        if isinstance(value, PersistentVolume):
            places = self._by_class.setdefault(value.class_name, {})
            for place in _places(value):
                places.setdefault(place, {})[meta.name] = None
            self._affinity_keys.setdefault(value.class_name, Counter()).update(
                affinity_keys(value.spec.node_affinity)
            )
        elif isinstance(value, CSIStorageCapacity):
            self._capacities.setdefault(value.storage_class_name, {})[key] = value
        elif isinstance(value, VolumeAttachment):
            self._attached.setdefault(value.spec.node_name, {})[meta.name] = value
        elif isinstance(value, CSINode) and any(
            one.limit is not None for one in value.spec.drivers
        ):
            self._limited.add(meta.name)
        if old != value:
            self._changed(kind, key, old, value)
        return old

    def remove(self, kind: str, namespace: str, name: str) -> msgspec.Struct | None:
        """Remove an object and return it, ``None`` where it was not known."""
        old = self._take(kind, (namespace, name))
        if old is not None:
            self._changed(kind, (namespace, name), old)
        return old

    def _changed(self, kind: str, key: ClaimKey, *sides: msgspec.Struct | None) -> None:
        self.version += 1
        nodes = {("", one.spec.node_name) for one in sides if isinstance(one, VolumeAttachment)}
        self._changes += [(kind, named) for named in nodes or (key,)]
        if len(self._changes) > 2 * _KEPT_CHANGES:
            del self._changes[:_KEPT_CHANGES]
            self._dropped += _KEPT_CHANGES

    @property
    def end(self) -> int:
        """Position after the last change of a stored object."""
        return self._dropped + len(self._changes)

    def changes_since(self, position: int) -> Sequence[tuple[str, ClaimKey]] | None:
        """Return kinds and names of objects that changed since a position, ``None``: unknown.

        For a VolumeAttachment the name is that of its node.
        """
        first = position - self._dropped
        return self._changes[first:] if first >= 0 else None

    def _take(self, kind: str, key: ClaimKey) -> msgspec.Struct | None:
        old = self._objects[kind].pop(key, None)
        if isinstance(old, PersistentVolume):
            places = self._by_class[old.class_name]
            for place in _places(old):
                del places[place][key[1]]
                if not places[place]:
                    del places[place]
            self._affinity_keys[old.class_name] -= Counter(affinity_keys(old.spec.node_affinity))
        elif isinstance(old, CSIStorageCapacity):
            del self._capacities[old.storage_class_name][key]
        elif isinstance(old, VolumeAttachment):
            del self._attached[old.spec.node_name][key[1]]
        elif isinstance(old, CSINode):
            self._limited.discard(key[1])
        return old

    @property
    def has_limits(self) -> bool:
        """Whether any node has a limit on the volumes of some driver."""
        return bool(self._limited)

    def is_limited(self, node_name: str) -> bool:
        """Return whether the node has an attach limit for any driver."""
        return node_name in self._limited

    @property
    def is_empty(self) -> bool:
        """Whether there is no object at all."""
        return not any(self._objects.values())

    def stored(self, kind: str, namespace: str, name: str) -> msgspec.Struct | None:
        """Return an object without the changes that placed pods assume; ``None`` if unknown."""
        return self._objects[kind].get((namespace, name))

    def everything(self, kind: str) -> Iterable[msgspec.Struct]:
        """Return all objects of a kind, without the changes that placed pods assume."""
        return self._objects[kind].values()

    # --- as the scheduler sees them --------------------------------------------------------------

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim, with the assumed node if there is one."""
        found = self._objects["PersistentVolumeClaim"].get((namespace, name))
        if not isinstance(found, PersistentVolumeClaim):
            return None
        made = self._made_on.get(found.key)
        if made is None or found.metadata.annotations.get(SELECTED_NODE) == made[1]:
            return found
        annotations = {**found.metadata.annotations, SELECTED_NODE: made[1]}
        meta = msgspec.structs.replace(found.metadata, annotations=annotations)
        return msgspec.structs.replace(found, metadata=meta)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume, bound to its assumed claim if there is one."""
        found = self._objects["PersistentVolume"].get(("", name))
        if not isinstance(found, PersistentVolume):
            return None
        taken = self._taken.get(name)
        if taken is None:
            return found
        claim = self._objects["PersistentVolumeClaim"].get(taken[1])
        if not isinstance(claim, PersistentVolumeClaim):
            return found
        return bound_to_claim(found, claim)[0]

    def volumes_for(
        self, claim: PersistentVolumeClaim, labels: Mapping[str, str]
    ) -> Iterator[PersistentVolume]:
        """Yield volumes of a claim's class that may suit it on a node with these labels, by name.

        Left out are volumes that name other claims, and those that need a label which the node
        lacks. The caller must check the others.
        """
        places = self._by_class.get(claim.class_name)
        if not places:
            return
        names = [*places.get(_ANYWHERE, ()), *places.get(("", claim.full_name), ())]
        for label in labels.items():
            names += places.get(label, ())
        for name in sorted(set(names)):
            volume = self.volume(name)
            if volume is not None:
                yield volume

    def affinity_keys(self, class_name: str) -> Iterable[str]:
        """Return the node labels on which access to the volumes of a class depends."""
        return self._affinity_keys.get(class_name, ())

    def storage_class(self, name: str) -> StorageClass | None:
        """Return a StorageClass by its name, ``None`` if unknown."""
        found = self._objects["StorageClass"].get(("", name))
        return found if isinstance(found, StorageClass) else None

    def csi_node(self, name: str) -> CSINode | None:
        """Return the CSINode of a node, which lists its drivers; ``None`` if unknown."""
        found = self._objects["CSINode"].get(("", name))
        return found if isinstance(found, CSINode) else None

    def csi_driver(self, name: str) -> CSIDriver | None:
        """Return a CSIDriver by its name, ``None`` if unknown."""
        found = self._objects["CSIDriver"].get(("", name))
        return found if isinstance(found, CSIDriver) else None

    def capacities(self, class_name: str) -> Iterable[CSIStorageCapacity]:
        """Return the CSIStorageCapacity objects of a StorageClass."""
        return self._capacities.get(class_name, {}).values()

    def attachments(self, node_name: str) -> Iterable[VolumeAttachment]:
        """Return the VolumeAttachments of a node."""
        return self._attached.get(node_name, {}).values()

    # --- what placed pods take -------------------------------------------------------------------

    def assume(self, key: Hashable, taken: AssumedClaims) -> None:
        """Store the claims that a pod takes on its node, replacing earlier ones."""
        self.forget(key)
        if not taken.bindings and not taken.provisions:
            return
        self._assumed[key] = taken
        for claim, volume in taken.bindings:
            self._taken.setdefault(volume, (key, claim))
        for claim in taken.provisions:
            self._made_on.setdefault(claim, (key, taken.node_name))
        self.version += 1

    def forget(self, key: Hashable) -> None:
        """Release the claims that a pod took; nothing happens if it took none."""
        taken = self._assumed.pop(key, None)
        if taken is None:
            return
        for _, volume in taken.bindings:
            if self._taken.get(volume, (None,))[0] == key:
                del self._taken[volume]
        for claim in taken.provisions:
            if self._made_on.get(claim, (None,))[0] == key:
                del self._made_on[claim]
        self.version += 1

    @property
    def is_taken(self) -> bool:
        """Whether any placed pod has assumed claims (``assume``)."""
        return bool(self._assumed)

    def assumed(self, key: Hashable) -> AssumedClaims | None:
        """Return the claims that a pod takes, ``None`` if it takes none."""
        return self._assumed.get(key)


def affinity_keys(affinity: VolumeNodeAffinity | None) -> set[str]:
    """Return the keys of the node labels that an affinity looks at."""
    if affinity is None or affinity.required is None:
        return set()
    terms = affinity.required.node_selector_terms
    return {one.key for term in terms for one in term.match_expressions}


def _places(volume: PersistentVolume) -> Sequence[tuple[str, str]]:
    """Return the labels by which a volume is indexed: a node needs one of them to reach it.

    ``_ANYWHERE`` if none is known. A volume that names a claim is indexed by the claim.
    """
    affinity, reference = volume.spec.node_affinity, volume.spec.claim_ref
    if reference is not None:
        return (("", f"{reference.namespace}/{reference.name}"),)
    if affinity is None or affinity.required is None:
        return (_ANYWHERE,)
    found: list[tuple[str, str]] = []
    for term in affinity.required.node_selector_terms:
        labels = _labels_of(term)
        if not labels:
            return (_ANYWHERE,)
        found += labels
    return list(dict.fromkeys(found))


def _labels_of(term: NodeSelectorTerm) -> list[tuple[str, str]]:
    for one in term.match_expressions:
        if one.operator == "In" and one.values:
            return [(one.key, value) for value in one.values]
    return []
