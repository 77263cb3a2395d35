"""The world of a simulation: a base, the document's objects, and the lookups of admission.

Objects are taken as stored: they get API defaults and, with ``admission: true``, Nodes, Namespaces,
PodGroups and classes must be valid. Pods on nodes get the fields that a PriorityClass or
RuntimeClass would have set. A missing ``status.disruptionsAllowed`` of a PodDisruptionBudget is
computed; every pod on a node counts as healthy.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.admission import CREATE, AdmissionSettings, User, admit
from clusterstate.admission.defaults import set_defaults
from clusterstate.admission.plugins.runtime_class import Conflict, set_overhead
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.rules.disruption import count_groups, counts_groups
from clusterstate.objects.values import ending, int_or_percent, moments
from clusterstate.objects.values.errors import (
    INVALID,
    NOT_FOUND,
    REQUIRED,
    FieldError,
    Invalid,
    StatusError,
)
from clusterstate.objects.values.labels import SelectorError, selector_from_label_selector
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.quantity import QuantityError
from clusterstate.objects.values.storage import AVAILABLE, PENDING
from clusterstate.objects.values.storage import KINDS as VOLUME_KINDS
from clusterstate.objects.values.workloads import (
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_class, from_pod
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.configuration.reading import Errors
from scheduling.framework.types import PodInfo, PodRecord, group_key
from scheduling.simulation.document import Given, Gone, below

FINISHED: Final = frozenset({"Succeeded", "Failed"})
NOBODY: Final = User()
_SYSTEM_CLASSES: Final[dict[str, Manifest]] = {
    name: {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for name, value in (
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    )
}


class Base:
    """The world before the document's changes; this one is empty.

    ``snapshot`` is changed by the run. ``open_namespaces``: whether every namespace exists, as in a
    simulated world.
    """

    open_namespaces = True

    def __init__(
        self,
        *,
        snapshot: Snapshot | None = None,
        settings: AdmissionSettings = AdmissionSettings(),  # noqa: B008
        configuration: KubeSchedulerConfiguration | None = None,
    ) -> None:
        self.snapshot = Snapshot() if snapshot is None else snapshot
        self.settings = settings
        self._configuration = configuration

    def go_on(self) -> None:
        """Raise if a run takes too long; called before each object. Here it never raises."""

    def configuration(self) -> KubeSchedulerConfiguration:
        """Return the scheduler configuration for documents without one."""
        return self._configuration or default_configuration()

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object of the world, or ``None``."""
        if kind == "PriorityClass":
            return _SYSTEM_CLASSES.get(name)
        return None

    def default_priority_class(self) -> Manifest | None:
        """Return the PriorityClass with ``globalDefault``, ``None`` if there is none."""
        return None

    def limit_ranges(self, namespace: str) -> Sequence[Manifest]:
        """Return the LimitRanges of a namespace."""
        return ()

    def pod_key(self, namespace: str, name: str) -> Hashable | None:
        """Return the snapshot's key of a pod on a node, ``None`` when there is none."""
        return None

    def pod_keys(self, places: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], Hashable]:
        """Return, by (namespace, name), the keys of the pods that are on a node; one lookup."""
        found = {place: self.pod_key(*place) for place in places}
        return {place: key for place, key in found.items() if key is not None}

    def pod_names(self, keys: Iterable[Hashable]) -> Mapping[Hashable, str]:
        """Return ``namespace/name`` of pods on nodes by key."""
        return {}


def name_of(manifest: Manifest) -> tuple[str, str]:
    """Return namespace (``default`` when absent) and name of an object."""
    meta = manifest.get("metadata") or {}
    return meta.get("namespace") or "default", meta.get("name") or ""


def is_stored(pod: Manifest) -> bool:
    """Return whether a pod comes from a server: it has a uid, a priority and a phase."""
    meta, spec, status = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
    return bool(meta.get("uid") and status.get("phase")) and spec.get("priority") is not None


class World:
    """A base with a document's changes applied; it is also the ``Context`` of admission."""

    def __init__(self, base: Base, *, admission: bool) -> None:
        self.base = base
        self.snapshot = base.snapshot
        self.settings = base.settings
        self.admission = admission
        self.errors: Errors = []
        self.warnings: list[str] = []
        self._own: dict[tuple[str, str, str], Manifest | None] = {}
        self._of_base: dict[tuple[str, str, str], Manifest | None] = {}
        # Nodes of a fleet differ in their names alone: the first one is checked (``_add``).
        self._nodes_by_shape: dict[bytes, bytes] = {}
        self._keys: dict[tuple[str, str], Hashable | None] = {}
        self._defaults: list[Manifest] = []  # PriorityClasses with globalDefault
        self._open_budgets: list[PodDisruptionBudget] = []
        self._budget_rules: dict[tuple[str, str], Manifest] = {}

    # Lookups of admission.

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object of the changed world."""
        key = (kind, namespace, name)
        if key in self._own:
            return self._own[key]
        if key not in self._of_base:
            self._of_base[key] = self.base.find(kind, namespace, name)
        return self._of_base[key]

    def runtime_class(self, name: str) -> Manifest | None:
        """Return the RuntimeClass called ``name``."""
        return self.find("RuntimeClass", "", name)

    def priority_class(self, name: str) -> Manifest | None:
        """Return the PriorityClass called ``name``."""
        return self.find("PriorityClass", "", name)

    def default_priority_class(self) -> Manifest | None:
        """Return the PriorityClass with ``globalDefault``; of several the one of lowest value."""
        of_base = self.base.default_priority_class()
        found = list(self._defaults)
        if of_base is not None and ("PriorityClass", "", name_of(of_base)[1]) not in self._own:
            found.append(of_base)
        return min(found, key=lambda m: (m.get("value", 0), name_of(m)[1]), default=None)

    def limit_ranges(self, namespace: str) -> Sequence[Manifest]:
        """Return the LimitRanges of a namespace; documents have none of their own."""
        return self.base.limit_ranges(namespace)

    def namespace(self, name: str) -> Manifest | None:
        """Return the Namespace called ``name``; with ``open_namespaces`` it always exists."""
        found = self.find("Namespace", "", name)
        if found is None and self.base.open_namespaces and ("Namespace", "", name) not in self._own:
            found = {"metadata": {"name": name}}
            set_defaults("Namespace", found)
            self.put("Namespace", found)
        return found

    def node(self, name: str) -> Manifest | None:
        """Return the Node called ``name``."""
        return self.find("Node", "", name)

    def service_account(self, namespace: str, name: str) -> Manifest | None:
        """Return ``None``: tokens do not matter to scheduling."""
        return None

    def pod(self, namespace: str, name: str) -> Manifest | None:
        """Return the Pod ``namespace/name``."""
        return self.find("Pod", namespace, name)

    def classes(self, kind: str) -> Sequence[Manifest]:
        """Return no objects: a world has none of the kinds that admission requests here."""
        return ()

    # Changes.

    def key(self, namespace: str, name: str) -> Hashable | None:
        """Return the snapshot's key of a pod that is on a node, ``None`` when there is none."""
        place = (namespace, name)
        return self._keys[place] if place in self._keys else self.base.pod_key(namespace, name)

    def expect(self, manifests: Iterable[Manifest]) -> None:
        """Cache, with one lookup, which of these pods are already on a node of the base."""
        places = set()
        for manifest in manifests:
            meta = manifest.get("metadata")
            if isinstance(meta, dict) and isinstance(name := meta.get("name"), str):
                namespace = meta.get("namespace") or "default"
                if isinstance(namespace, str):
                    places.add((namespace, name))
        self._look_up(places)

    def _look_up(self, places: Iterable[tuple[str, str]]) -> None:
        """Cache the snapshot keys of pods, given by (namespace, name), with one lookup."""
        unknown = {place for place in places if place not in self._keys}
        self._keys |= dict.fromkeys(unknown) | dict(self.base.pod_keys(unknown))

    def note_left(self, title: str) -> None:
        """Note that the pod ``namespace/name`` is no longer on a node."""
        namespace, _, name = title.partition("/")
        self._keys[namespace, name] = None

    def note_placed(self, namespace: str, name: str, key: Hashable) -> None:
        """Note that a pod of the document was placed on a node."""
        self._keys[namespace, name] = key

    def full_names(self, keys: Iterable[Hashable]) -> Callable[[Hashable], str]:
        """Return a function that maps each of these keys to ``namespace/name``."""
        names = self.base.pod_names([key for key in keys if not isinstance(key, str)])
        return lambda key: key if isinstance(key, str) else names.get(key, str(key))

    def apply(self, objects: Iterable[Given], delete: Iterable[Gone]) -> None:
        """Add or replace objects, then delete; classes and namespaces come first."""
        first = ("Namespace", "PriorityClass", "RuntimeClass")
        for entry in sorted(objects, key=lambda g: g.manifest["kind"] not in first):
            self.base.go_on()
            try:
                self._add(entry)
            except Invalid as invalid:
                self.errors += [below(entry.path, error) for error in invalid.errors]
            except StatusError as error:
                detail = error.message
                self.errors.append(FieldError(INVALID, entry.path, None, detail))
            except (QuantityError, SelectorError) as error:
                self.errors.append(FieldError(INVALID, entry.path, None, str(error)))
        leaving = list(delete)
        self._look_up((gone.namespace, gone.name) for gone in leaving if gone.kind == "Pod")
        for gone in leaving:
            self._delete(gone)
        for budget in self._open_budgets:
            self._settle_budget(budget)

    def apply_checked(self, objects: Iterable[Given]) -> None:
        """Add and replace objects.

        Raises:
            Invalid: with every wrong field.
        """
        self.apply(objects, ())
        if self.errors:
            errors, self.errors = self.errors, []
            raise Invalid("Scenario", "", errors, "stowage.dev")

    def prepared(self, manifest: Manifest) -> Manifest:
        """Return an object with its defaults; validates it if ``admission`` is set.

        Raises:
            Invalid: with every wrong field.
        """
        kind = manifest["kind"]
        copy: Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
        set_defaults(kind, copy)
        if self.admission and kind in _CHECKED:
            copy = admit(kind, CREATE, copy, None, None, self, NOBODY).manifest
        return copy

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object that is neither a node nor a pod; ignore an unknown one."""
        self._delete(Gone(kind, namespace, name, ""))
        self.errors.clear()

    def put(self, kind: str, manifest: Manifest) -> None:
        """Store an object, and apply it to the snapshot."""
        namespace, name = name_of(manifest)
        if not KINDS[kind].namespaced:
            namespace = ""
        phase = (manifest.get("status") or {}).get("phase") or PENDING
        if kind == "PersistentVolume" and phase == PENDING:
            manifest = {**manifest, "status": {"phase": AVAILABLE}}  # as its controller sets it
        self._own[kind, namespace, name] = manifest
        snapshot = self.snapshot
        if kind == "Namespace":
            snapshot.set_namespace(name, manifest["metadata"].get("labels") or {})
        elif kind == "Node":
            snapshot.set_node(msgspec.convert(manifest, Node))
        elif kind == "PriorityClass":
            self._note_defaults()
        elif kind == "Service":
            snapshot.set_service(msgspec.convert(_in(manifest, namespace), Service))
        elif kind in _CONTROLLERS:
            controller = msgspec.convert(_in(manifest, namespace), _CONTROLLERS[kind])
            snapshot.set_controller(controller)
        elif kind in VOLUME_KINDS:
            snapshot.set_object(msgspec.convert(_in(manifest, namespace), VOLUME_KINDS[kind]))
        elif kind == "PodGroup":
            snapshot.groups.set(msgspec.convert(_in(manifest, namespace), PodGroup))
        elif kind in DEVICE_KINDS:
            meta = {"uid": f"{namespace}/{name}", **manifest["metadata"], "namespace": namespace}
            snapshot.devices.set(kind, {**manifest, "metadata": meta})
        elif kind == "PodDisruptionBudget":
            budget = msgspec.convert(_in(manifest, namespace), PodDisruptionBudget)
            snapshot.set_budget(budget)
            if "disruptionsAllowed" not in (manifest.get("status") or {}):
                self._open_budgets.append(budget)
                self._budget_rules[namespace, name] = manifest.get("spec") or {}

    def _add(self, entry: Given) -> None:
        kind = entry.manifest["kind"]
        # Admission and defaults change what they get, and the document is the caller's.
        text = msgspec.json.encode(entry.manifest)
        shape = slot = b""
        if kind == "Node" and _TELLING_NAME.match(entry.manifest["metadata"]["name"]):
            slot = msgspec.json.encode(entry.manifest["metadata"]["name"])
            shape = text.replace(slot, _SLOT)
            if _SLOT + b":" in shape:
                shape = b""
            elif (admitted_text := self._nodes_by_shape.get(shape)) is not None:
                self.put(kind, msgspec.json.decode(admitted_text.replace(_SLOT, slot)))
                return
        manifest: Manifest = msgspec.json.decode(text)
        if kind == "Pod":
            self._add_pod(manifest, entry.path)
            return
        set_defaults(kind, manifest)
        if kind == "PodGroup":
            manifest = _in(manifest, name_of(manifest)[0])
        if self.admission and kind in _CHECKED:
            admitted = admit(kind, CREATE, manifest, None, None, self, NOBODY)
            manifest = admitted.manifest
        if shape and len(self._nodes_by_shape) < _MOST_SHAPES:
            self._nodes_by_shape[shape] = msgspec.json.encode(manifest).replace(slot, _SLOT)
        self.put(kind, manifest)

    def _add_pod(self, manifest: Manifest, path: str) -> None:
        namespace, name = name_of(manifest)
        if not name:
            self.errors.append(FieldError(REQUIRED, f"{path}.metadata.name"))
            return
        spec = manifest.setdefault("spec", {})
        status = manifest.get("status") or {}
        node_name = spec.get("nodeName") or ""
        nominated = status.get("nominatedNodeName") or ""
        if not node_name and not nominated:
            detail = "pods to place belong into spec.pods"
            self.errors.append(FieldError(REQUIRED, f"{path}.spec.nodeName", None, detail))
            return
        set_defaults("Pod", manifest)
        if self.admission:
            if not is_stored(manifest):
                self._add_class_values(manifest, path)
            self.namespace(namespace)
        before = self.key(namespace, name)
        if before is not None:
            self.snapshot.remove_pod(before)
        key = f"{namespace}/{name}" if before is None else before
        self._own["Pod", namespace, name] = manifest
        if status.get("phase") in FINISHED:
            self._keys[namespace, name] = None
            return
        info = self.intern(manifest)
        if not node_name:
            self.snapshot.nominate(key, info, nominated)
            return
        self.place(manifest, key, info)

    def _note_defaults(self) -> None:
        self._defaults = [
            manifest
            for (kind, _, _), manifest in self._own.items()
            if kind == "PriorityClass" and manifest and manifest.get("globalDefault")
        ]

    def place(self, manifest: Manifest, key: Hashable, info: PodInfo) -> None:
        """Put a pod on the node in its ``spec.nodeName``."""
        namespace, name = name_of(manifest)
        pod = msgspec.convert(manifest, Pod)
        self._keys[namespace, name] = key
        self.snapshot.add_pod(
            key,
            info,
            pod.spec.node_name,
            start_time=_started(pod),
            terminating=pod.metadata.deletion_timestamp is not None,
            preempted=ending.is_preempted(pod.status.conditions),
            name=name,
        )

    def intern(self, manifest: Manifest) -> PodInfo:
        """Return the pod's scheduling class.

        Raises:
            QuantityError: an amount does not parse.
        """
        status = manifest.get("status") or {}
        if status.get("containerStatuses") or status.get("initContainerStatuses"):
            # A pod that is being resized uses the amounts in its status.
            pod = msgspec.convert(manifest, Pod)
            spec = msgspec.structs.replace(pod.spec, node_name="")
            pod = msgspec.structs.replace(pod, spec=spec)
            version = self.snapshot.compatibility
            return self.snapshot.intern(from_pod(pod, compatibility=version))
        digest, text = scheduling_class.encode(manifest)
        return self.snapshot.known_class(digest) or self.snapshot.intern(from_class(digest, text))

    def _add_class_values(self, manifest: Manifest, path: str) -> None:
        """Set the priority and overhead that a pod on a node lacks, as admission does."""
        spec = manifest["spec"]
        if spec.get("priority") is None:
            class_name = spec.get("priorityClassName")
            found = self.priority_class(class_name) if class_name else self.default_priority_class()
            if found is not None:
                spec["priority"] = found.get("value", 0)
            elif class_name:
                where = f"{path}.spec.priorityClassName"
                self.errors.append(FieldError(NOT_FOUND, where, class_name))
        runtime_class = spec.get("runtimeClassName")
        if runtime_class and spec.get("overhead") is None:
            found = self.runtime_class(runtime_class)
            if found is None:
                where = f"{path}.spec.runtimeClassName"
                self.errors.append(FieldError(NOT_FOUND, where, runtime_class))
            else:
                try:
                    set_overhead(manifest, found)
                except Conflict as conflict:
                    detail = str(conflict)
                    self.errors.append(FieldError(INVALID, f"{path}.spec.overhead", None, detail))

    def _delete(self, gone: Gone) -> None:
        kind, namespace, name = gone.kind, gone.namespace, gone.name
        snapshot = self.snapshot
        if kind == "Pod":
            key = self.key(namespace, name)
            exists = key is not None or self.find(kind, namespace, name) is not None
            if key is not None:
                snapshot.remove_pod(key)
                self._keys[namespace, name] = None
        else:
            exists = self.find(kind, namespace, name) is not None
        if not exists:
            self.errors.append(FieldError(NOT_FOUND, f"{gone.path}.name", name))
            return
        self._own[kind, namespace, name] = None
        if kind == "Node":
            snapshot.remove_node(name)
        elif kind == "Namespace":
            snapshot.remove_namespace(name)
            for record in [r for r in snapshot.pods() if r.info.namespace == name]:
                snapshot.remove_pod(record.key)
        elif kind == "PriorityClass":
            self._note_defaults()
        elif kind == "Service":
            snapshot.remove_service(namespace, name)
        elif kind in _CONTROLLERS:
            snapshot.remove_controller(kind, namespace, name)
        elif kind in VOLUME_KINDS:
            snapshot.remove_object(kind, namespace, name)
        elif kind == "PodGroup":
            snapshot.groups.remove((namespace, name))
        elif kind in DEVICE_KINDS:
            snapshot.devices.remove(kind, namespace, name)
        elif kind == "PodDisruptionBudget":
            snapshot.remove_budget(namespace, name)
            self._open_budgets = [
                b
                for b in self._open_budgets
                if (b.metadata.namespace, b.metadata.name) != (namespace, name)
            ]

    def _settle_budget(self, budget: PodDisruptionBudget) -> None:
        """Set a budget's allowed disruptions; all its pods on nodes count as healthy."""
        namespace, name = budget.metadata.namespace, budget.metadata.name
        rules = self._budget_rules[namespace, name]
        selector = selector_from_label_selector(budget.spec.selector)
        records = [
            record
            for record in self.snapshot.pods()
            if record.info.namespace == namespace
            and not record.terminating
            and selector.matches(record.info.labels)
        ]
        expected = healthy = len(records)
        if counts_groups(budget.metadata.annotations):
            expected, healthy = self._groups_of(records)
        if rules.get("maxUnavailable") is not None:
            desired = expected - _scaled(rules["maxUnavailable"], expected)
        else:
            desired = _scaled(rules.get("minAvailable", 0), expected)
        status = msgspec.structs.replace(
            budget.status, disruptions_allowed=max(healthy - desired, 0)
        )
        self.snapshot.set_budget(msgspec.structs.replace(budget, status=status))

    def _groups_of(self, records: Iterable[PodRecord]) -> tuple[int, int]:
        """Return how many groups the pods belong to, and how many are complete."""
        keys = [group_key(record.info.pod) for record in records]
        found = {key: self.snapshot.groups.find(key) for key in set(keys)}
        min_counts = {key: group.min_count for key, group in found.items() if group is not None}
        return count_groups(keys, min_counts)


_TELLING_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
"""A name that is not a quantity and that only the object itself has."""
_SLOT: Final = b'"\x00"'
"""Replaces the name in the JSON of a node without its name; JSON cannot contain this byte."""
_MOST_SHAPES: Final = 4096

_CONTROLLERS: Final[dict[str, Any]] = {
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
}
_CHECKED: Final = frozenset({"Namespace", "Node", "PodGroup", "PriorityClass", "RuntimeClass"})


def _in(manifest: Manifest, namespace: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def _scaled(bound: object, total: int) -> int:
    """Return a budget's bound as a number of pods; 0 if it is invalid."""
    try:
        return int_or_percent.scaled(bound, total, round_up=True)
    except ValueError:
        return 0


def _started(pod: Pod) -> float | None:
    """Return since when a pod runs, epoch seconds: ``status.startTime``, else its binding."""
    bound = (
        one.last_transition_time
        for one in pod.status.conditions
        if one.type == "PodScheduled" and one.status == "True"
    )
    return _seconds(pod.status.start_time or next(bound, None))


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return moments.parse(text).timestamp()
    except ValueError:
        return None
