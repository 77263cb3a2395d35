"""The devices of a cluster: claims, classes, slices and allocations.

A table that is updated object by object. ``assume`` adds allocations that were decided for a pod
and are not written yet; ``forget`` removes them, and a stored claim with an allocation replaces
them. ``version`` changes whenever a verdict about a pod with claims may change.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Final

from clusterstate.objects.dra import extended
from clusterstate.objects.dra.allocated import AllocatedState, results
from clusterstate.objects.dra.allocator import Allocator, Features
from clusterstate.objects.dra.pools import PoolId, gather_pools
from clusterstate.objects.dra.resourceclaim import (
    EXTENDED_CLAIM,
    ClaimError,
    claim_name,
    is_for,
    pod_claims,
)
from clusterstate.objects.dra.slices import (
    CompileError,
    DeviceId,
    DeviceView,
    EvaluationError,
    NodeView,
    SliceView,
)
from clusterstate.objects.dra.slicetracker import patched_slice, rule_applies
from clusterstate.objects.values.meta import Manifest

Key = tuple[str, str]
KINDS = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceSlice")
_NONE: Manifest = {}
_NO_SLICES: dict[str, SliceView] = {}
_KEPT_CHANGES: Final = 16_384


class DeviceWorld:
    """The claims, device classes and slices of a cluster, and the allocations not written yet.

    ``claims`` are by namespace and name; ``in_flight`` by UID: claims with the allocation that a
    pod has reserved and that is not written yet.
    """

    def __init__(
        self,
        claims: Iterable[Manifest] = (),
        classes: Iterable[Manifest] = (),
        slices: Iterable[Manifest] = (),
        pod_groups: Iterable[Manifest] = (),
    ) -> None:
        self.claims: dict[Key, Manifest] = {}
        self.classes: dict[str, Manifest] = {}
        self.slices: dict[str, SliceView] = {}
        """By name, with the taints of rules."""
        self._slices: dict[str, Manifest] = {}
        self.rules: dict[str, Manifest] = {}
        self.pod_groups = {_key(one): one for one in pod_groups}
        self.in_flight: dict[str, Manifest] = {}
        self.version = 0
        self.shapes = 0
        """Changes of slices, classes and taints: of what devices there are, not of who has them."""
        self._assumed: dict[Hashable, list[Manifest]] = {}
        self._allocators: dict[Features, Allocator] = {}
        self._by_resource: dict[str, Manifest] | None = None
        self._held: AllocatedState | None = None
        self._counted: dict[str, Manifest] = {}
        """By UID: the claims that ``_held`` counts, as it counts them."""
        self._keys: dict[str, Key] = {}
        self._of_pods: dict[str, Manifest] = {}
        self._pools: dict[PoolId, dict[str, SliceView]] = {}
        self._label_keys: frozenset[str] | None = None
        self._has_conditions: bool | None = None
        self._touched: list[str | None] = []
        self._touched_before = 0
        self._on_nodes: set[str | None] | None = None
        for kind, objects in (
            ("ResourceClaim", claims), ("DeviceClass", classes), ("ResourceSlice", slices),
        ):  # fmt: skip
            for one in objects:
                self.set(kind, one)

    # --- objects ---

    def set(self, kind: str, manifest: Manifest) -> Manifest | None:
        """Add or replace an object; return what it replaced."""
        self.version += 1
        name = manifest["metadata"]["name"]
        if kind == "ResourceClaim":
            return self._set_claim(manifest)
        if kind == "ResourceSlice":
            before = self.slices.get(name)
            old = self._slices.get(name)
            self._slices[name] = manifest
            self.slices[name] = view = SliceView(patched_slice(manifest, self._in_order()))
            self._slices_changed(before, view)
            return old
        if kind == "DeviceTaintRule":
            old = self.rules.get(name)
            self.rules[name] = manifest
            self._taint([one for one in (old, manifest) if one is not None])
            return old
        self._forget_allocators()
        self._touch([None])
        old = self.classes.get(name)
        self.classes[name] = manifest
        self._by_resource = None
        return old

    def remove(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Remove an object; return it, ``None`` where it was not known."""
        self.version += 1
        if kind == "ResourceClaim":
            claim = self.claims.pop((namespace, name), None)
            if claim is not None:
                uid = claim["metadata"].get("uid", "")
                self.in_flight.pop(uid, None)
                if self._keys.get(uid) == (namespace, name):
                    del self._keys[uid]
                self._of_pods.pop(_extended_for(claim) or "", None)
                self._count(uid)
            return claim
        if kind == "ResourceSlice":
            view = self.slices.pop(name, None)
            self._slices_changed(view, None)
            return self._slices.pop(name, None)
        if kind == "DeviceTaintRule":
            rule = self.rules.pop(name, None)
            self._taint([] if rule is None else [rule])
            return rule
        self._forget_allocators()
        self._touch([None])
        self._by_resource = None
        return self.classes.pop(name, None)

    def _set_claim(self, claim: Manifest) -> Manifest | None:
        key = _key(claim)
        old, uid = self.claims.get(key), claim["metadata"].get("uid", "")
        self.claims[key] = claim
        self._keys[uid] = key
        if (pod := _extended_for(claim)) is not None:
            self._of_pods[pod] = claim
        if old is not None and (before := old["metadata"].get("uid", "")) != uid:
            self._keys.pop(before, None)
            self._count(before)
        if _is_allocated(claim):
            self.in_flight.pop(uid, None)
        self._count(uid)
        return old

    def _count(self, uid: str) -> None:
        """Count the devices that a claim holds now, instead of those counted for it before."""
        if self._held is None or not uid:  # claims without one cannot be told apart
            self._held = None
            self._touch([None])
            return
        stored = self.claims.get(self._keys.get(uid, ("", "")))
        new, old = self.in_flight.get(uid, stored), self._counted.get(uid)
        if new is old:
            return
        for claim in (old, new):
            if claim is not None and _is_allocated(claim):
                self._touch(self._nodes_of(claim))
        if old is not None:
            self._held.give_back(old)
            del self._counted[uid]
        if new is not None:
            self._held.take(new)
            self._counted[uid] = new

    # --- which nodes an answer may have changed on ---

    def _touch(self, nodes: Iterable[str | None]) -> None:
        self._touched += nodes
        if len(self._touched) > 2 * _KEPT_CHANGES:
            del self._touched[:_KEPT_CHANGES]
            self._touched_before += _KEPT_CHANGES

    @property
    def position(self) -> int:
        """Where the list of nodes with changed devices ends."""
        return self._touched_before + len(self._touched)

    def touched_since(self, position: int) -> Collection[str] | None:
        """Return the nodes whose devices changed since ``position``: allocated, released or new.

        ``None``: perhaps all nodes. Removed devices count.
        """
        first = position - self._touched_before
        if first < 0:
            return None
        found = set(self._touched[first:])
        return None if None in found else {name for name in found if name is not None}

    def _slices_changed(self, old: SliceView | None, new: SliceView | None) -> None:
        """Update caches after a slice was added, changed or removed: its whole pool may change."""
        self._forget_allocators()
        self._on_nodes = self._label_keys = self._has_conditions = None
        for view, comes in ((old, False), (new, True)):
            if view is None:
                continue
            pool = self._pools.setdefault((view.driver, view.pool), {})
            self._touch(map(_node_of, (view, *pool.values())))
            if comes:
                pool[view.name] = view
            else:
                pool.pop(view.name, None)

    def _forget_allocators(self) -> None:
        self._allocators.clear()
        self.shapes += 1

    def _in_order(self) -> list[Manifest]:
        return [self.rules[name] for name in sorted(self.rules)]

    def _taint(self, changed: list[Manifest]) -> None:
        """Give the devices that rules mean, or meant before, the taints that they have now."""
        rules = self._in_order()
        for name, view in list(self.slices.items()):
            ids = [device.id for device in view.devices]
            if any(rule_applies(rule, *one) for rule in changed for one in ids):
                self.slices[name] = new = SliceView(patched_slice(self._slices[name], rules))
                self._slices_changed(view, new)

    def _nodes_of(self, claim: Manifest) -> Iterable[str | None]:
        """Return the nodes that see the devices that a claim holds, ``None`` for any node."""
        return {
            _node_of(view)
            for result in results(claim)
            for view in self._pools.get((result["driver"], result["pool"]), _NO_SLICES).values()
        }

    # --- what is decided and not written ---

    def assume(self, key: Hashable, claims: list[Manifest]) -> None:
        """Count the allocations in ``claims`` as made for pod ``key``, though not written yet."""
        self.forget(key)
        self._assumed[key] = claims
        for claim in claims:
            if not _is_allocated(self.claims.get(_key(claim), _NONE)):
                self._fly(claim["metadata"].get("uid", ""), claim)
        self.version += 1

    def assume_free(
        self, key: Hashable, claims: list[Manifest], node: str, devices: Iterable[DeviceId]
    ) -> None:
        """Do what ``assume`` does, for claims that had no allocation, stored or assumed.

        ``devices``: their devices, which no other claim holds and only ``node`` sees, as a whole.
        """
        if self._held is None or key in self._assumed:
            self.assume(key, claims)
            return
        self._assumed[key] = claims
        for claim in claims:
            uid = claim["metadata"]["uid"]
            self.in_flight[uid] = self._counted[uid] = claim
        self._held.devices.update(devices)
        self._touch((node,))
        self.version += 1

    def _fly(self, uid: str, claim: Manifest | None) -> None:
        if claim is None:
            self.in_flight.pop(uid, None)
        else:
            self.in_flight[uid] = claim
        self._count(uid)

    @property
    def is_taken(self) -> bool:
        """Whether anything is assumed for any pod."""
        return bool(self._assumed)

    def assumed(self, key: Hashable) -> list[Manifest] | None:
        """Return the claims that ``assume`` got for a pod, ``None`` if it got none."""
        return self._assumed.get(key)

    def confirm(self, key: Hashable) -> None:
        """End a pod's assumption: the binding wrote its claims. Those stay counted until read."""
        for claim in self._assumed.pop(key, ()):
            if claim["metadata"]["name"] == extended.CLAIM_IN_MEMORY:  # stored under another name
                self._fly(claim["metadata"].get("uid", ""), None)
                self.version += 1

    def forget(self, key: Hashable) -> None:
        """Undo ``assume`` for a pod."""
        claims = self._assumed.pop(key, None)
        if claims is None:
            return
        for claim in claims:
            uid = claim["metadata"].get("uid", "")
            if self.in_flight.get(uid) is claim:
                self._fly(uid, None)
        self.version += 1

    def hold(self, claim: Manifest, uid: str | None = None) -> None:
        """Count a claim with its future allocation; ``uid`` is used if the manifest lacks one."""
        self._fly(claim["metadata"].get("uid", "") if uid is None else uid, claim)
        self.version += 1

    def release(self, claim: Manifest) -> None:
        """Drop the assumed allocation of a claim, and count the stored claim."""
        self._fly(claim["metadata"].get("uid", ""), None)
        self.version += 1

    def copy(self) -> "DeviceWorld":
        """Return an equal table; later changes of one do not affect the other."""
        new = DeviceWorld()
        for name in (
            "claims", "classes", "slices", "pod_groups", "in_flight", "_keys", "_of_pods", "rules",
            "_slices",
        ):  # fmt: skip
            setattr(new, name, dict(getattr(self, name)))
        new._pools = {pool: dict(views) for pool, views in self._pools.items()}
        new._assumed = dict(self._assumed)
        new.version = self.version
        return new

    # --- questions ---

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that pods could claim."""
        return not (self.claims or self.classes or self.slices)

    def has_slices(self, node: str) -> bool:
        """Return whether slices select a node in particular, by its name or perhaps by its labels.

        All other nodes see the same devices: those of all nodes.
        """
        if self._on_nodes is None:
            self._on_nodes = {
                one.place.node_name for one in self.slices.values() if not one.is_everywhere
            }
        return None in self._on_nodes or node in self._on_nodes

    @property
    def has_conditions(self) -> bool:
        """Whether some device must get ready before pods are bound."""
        if self._has_conditions is None:
            self._has_conditions = any(one.has_conditions for one in self.slices.values())
        return self._has_conditions

    def label_keys(self) -> frozenset[str]:
        """Return the node labels by which slices select the nodes that may use them."""
        if self._label_keys is None:
            views = self.slices.values()
            self._label_keys = frozenset(key for view in views for key in view.label_keys)
        return self._label_keys

    def class_of(self, resource: str) -> Manifest | None:
        """Return the class that serves an extended resource."""
        if self._by_resource is None:
            self._by_resource = extended.classes_by_resource(self.classes.values())
        return self._by_resource.get(resource)

    def allocator(self, features: Features) -> Allocator:
        """Return an allocator for the slices and classes there are."""
        found = self._allocators.get(features)
        if found is None:
            found = Allocator(list(self.slices.values()), self.classes, AllocatedState(), features)
            self._allocators[features] = found
        found.state = self.allocated(consumable=features.consumable_capacity)
        return found

    def allocated(self, *, consumable: bool = True) -> AllocatedState:
        """Return the devices that all claims hold, including allocations not written yet."""
        if consumable and self._held is not None:
            return self._held
        state, counted = AllocatedState(), dict[str, Manifest]()
        pending = dict(self.in_flight)
        for claim in self.claims.values():
            uid = claim["metadata"].get("uid", "")
            current = pending.pop(uid, claim)
            state.take(current, consumable=consumable)
            counted[uid] = current
        for uid, claim in pending.items():
            state.take(claim, consumable=consumable)
            counted[uid] = claim
        if consumable:
            self._held, self._counted = state, counted
        return state

    def extended_claim_of(self, pod: Manifest) -> Manifest | None:
        """Return the claim that was made for a pod's extended resources, if one was."""
        meta = pod["metadata"]
        return self._of_pods.get(f"{meta['name']}/{meta.get('uid')}")

    def extended_on(self, node: NodeView, resource: str) -> tuple[int, int]:
        """Return how many devices serve an extended resource on a node, and how many are taken.

        Rule: noderesources/resource_allocation.go ``calculateDRAExtendedResource...``, v1.36. A
        device whose selectors fail does not count.
        """
        if (of_class := self.class_of(resource)) is None:
            return 0, 0
        own = (of_class.get("spec") or {}).get("selectors") or ()
        selectors = [one["cel"]["expression"] for one in own]
        state, serving, in_use = self.allocated(), 0, 0
        slices = list(self.slices.values())
        for pool in gather_pools(slices, slices, node, partitionable=True):
            for one in pool.slices:
                for device in one.devices:
                    if one.by_device and not device.place.matches(node):
                        continue
                    if all(_answers(device, expression) for expression in selectors):
                        serving += 1
                        in_use += state.holds(device.id)
        return serving, in_use

    def claims_of(self, pod: Manifest, *, workload_claims: bool = False) -> list[Manifest]:
        """Return the claims of a pod, in the order of ``spec.resourceClaims``.

        Raises:
            ClaimError: one does not exist, is being deleted, or belongs to another owner.
        """
        found = []
        namespace = pod["metadata"].get("namespace", "")
        for entry in pod_claims(pod):
            name, must_own = claim_name(pod, entry)
            if name is None:
                continue
            claim = self.claims.get((namespace, name))
            if claim is None:
                raise ClaimError(f'resourceclaim.resource.k8s.io "{name}" not found')
            if claim["metadata"].get("deletionTimestamp"):
                raise ClaimError(f'resourceclaim "{name}" is being deleted')
            if must_own:
                is_for(claim, pod, "Pod", or_group=workload_claims)
            found.append(claim)
        return found


def _answers(device: DeviceView, expression: str) -> bool:
    try:
        return device.matches(expression, lists=False)
    except (CompileError, EvaluationError):
        return False


def _node_of(view: SliceView) -> str | None:
    """Return the only node that sees a slice, ``None`` if others may."""
    return None if view.counter_sets else view.place.node_name


def _extended_for(claim: Manifest) -> str | None:
    """Return name and UID of the pod for whose extended resources a claim is, if there is one."""
    meta = claim["metadata"]
    if (meta.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return None
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner.get('name')}/{owner.get('uid')}"
    return None


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _is_allocated(claim: Manifest) -> bool:
    return (claim.get("status") or {}).get("allocation") is not None
