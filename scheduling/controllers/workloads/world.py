"""The workloads of one namespace and their pods, as they are now.

Rows are read each time, so that a pass always sees the writes of the pass before. Documents are
cached by id, since they never change: if one of a thousand pods became ready, one document is read.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from clusterstate.objects.rules.disruption import is_assumed
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values import document
from clusterstate.objects.values.labels import (
    Selector,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.meta import Manifest, OwnerReference
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import LabelSelector
from clusterstate.processes import memory
from clusterstate.queries.objects.workloads import (
    ObjectRow,
    PodRow,
    classes_in,
    documents,
    nodes,
    objects_in,
    pods_of_classes,
    without_agent,
)
from clusterstate.queries.pods.stays import class_specs
from scheduling.controllers.workloads.daemon_set_rules import DaemonNode
from scheduling.controllers.workloads.job_rules import JOB_LABEL, TRACKING
from scheduling.controllers.workloads.pods import OwnedPod

Value = TypeVar("Value")
_WITHOUT_PODS: Final = ("ControllerRevision", "HorizontalPodAutoscaler", "PersistentVolumeClaim")
"""Kinds that are read with the workloads; a claim's selector selects volumes."""
_MOST: Final = 200_000
"""Documents that are remembered; beyond it all are forgotten, and read when they are met again."""


class _Class(msgspec.Struct, frozen=True):
    """Facts that the pods of a class share. ``target``: the node that the affinity names."""

    owner_kind: str
    labels: Mapping[str, str]
    target: str


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    finished_at: str | None = None
    exit_code: int = 0


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    start_time: str | None = None
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()


class _Document(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _Facts(msgspec.Struct, frozen=True):
    """Facts of a pod, read from its document."""

    owner: str
    annotations: Mapping[str, str]
    is_reported: bool
    is_tracked: bool
    ready_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    restarts: int
    exit_codes: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, str], ...]


_decode = msgspec.json.Decoder(_Document).decode
_decode_node = msgspec.json.Decoder(Node).decode
_decode_selector = msgspec.json.Decoder(LabelSelector).decode
_encode = msgspec.json.Encoder(order="sorted").encode

_classes: dict[int, _Class] = {}
_facts: dict[int, _Facts] = {}
_manifests: dict[int, Manifest] = {}
_nodes: dict[int, DaemonNode] = {}
memory.when_replaced(_nodes.clear)
memory.when_replaced(_classes.clear)
memory.when_replaced(_facts.clear)
memory.when_replaced(_manifests.clear)


class NamespaceState:
    """A namespace as a pass sees it. ``owners``: its workloads, by kind; not to be changed."""

    def __init__(self, namespace: str, kinds: Sequence[str]) -> None:
        self.namespace = namespace
        self.owners: dict[str, list[Manifest]] = {
            kind: manifests(objects_in(kind, namespace)) for kind in kinds
        }
        self._pods: dict[str, list[OwnedPod]] = defaultdict(list)
        self._nodes: list[DaemonNode] | None = None
        self._read_pods(set(kinds))

    def pods_of(self, owner: Manifest) -> list[OwnedPod]:
        """Return the pods with this managing owner, including ended and terminating ones."""
        return self._pods.get(owner["metadata"]["uid"], [])

    def orphans(self) -> list[OwnedPod]:
        """Return pods without a managing owner that some workload here selects, or a Job had."""
        return self._pods.get("", [])

    def without_owner(self, kind: str) -> list[OwnedPod]:
        """Return the pods whose managing owner, of this kind, does not exist."""
        present = {one["metadata"]["uid"] for one in self.owners[kind]}
        return [
            pod
            for uid, pods in self._pods.items()
            if uid and uid not in present
            for pod in pods
            if pod.owner_kind == kind
        ]

    def nodes(self) -> list[DaemonNode]:
        """Return all nodes, with the facts that daemon pods depend on."""
        if self._nodes is None:
            self._nodes = daemon_nodes()
        return self._nodes

    def replace(self, kind: str, name: str, new: Manifest | None) -> None:
        """Replace an owner by its written version; ``None``: it is gone."""
        others = [one for one in self.owners[kind] if one["metadata"]["name"] != name]
        self.owners[kind] = others if new is None else [*others, new]

    def _read_pods(self, kinds: set[str]) -> None:
        mark, present = classes_in(self.namespace)
        is_wanted = self._owned_classes(kinds)
        owned = _remembered(_classes, present, _read_classes)
        class_ids = [class_id for class_id, one in owned.items() if is_wanted(one)]
        rows = pods_of_classes(self.namespace, class_ids, mark)
        classes = _remembered(_classes, {row.class_id for row in rows}, _read_classes)
        classes = {class_id: one for class_id, one in classes.items() if is_wanted(one)}
        rows = [row for row in rows if row.class_id in classes]
        facts = _remembered(_facts, [row.document_id for row in rows], _read_facts)
        rows = [row for row in rows if row.document_id in facts]
        silent = without_agent(
            {
                row.node_name
                for row in rows
                if row.node_name
                and row.phase == "Pending"
                and not facts[row.document_id].is_reported
            }
        )
        for row in rows:
            pod = _owned_pod(
                row,
                classes[row.class_id],
                facts[row.document_id],
                is_silent=row.node_name in silent,
            )
            self._pods[pod.owner].append(pod)

    def _owned_classes(self, kinds: set[str]) -> Callable[[_Class], bool]:
        """Return a predicate: whether a class's pods have, or may get, an owner of these kinds."""
        selectors = [
            selector_of(one)
            for kind, some in self.owners.items()
            if kind not in _WITHOUT_PODS
            for one in some
        ]

        def is_wanted(one: _Class) -> bool:
            if one.owner_kind:
                return one.owner_kind in kinds
            if "Job" in kinds and JOB_LABEL in one.labels:
                return True
            return any(selector.matches(one.labels) for selector in selectors)

        return is_wanted


def selector_of(owner: Manifest) -> Selector:
    """Return the labels that an owner selects; nothing if it states none or selects all."""
    selector = (owner.get("spec") or {}).get("selector")
    if not selector:
        return selector_from_label_selector(None)
    if owner["kind"] == "ReplicationController":
        return selector_from_set(selector)
    return selector_from_label_selector(_decode_selector(_encode(selector)))


def manifests(rows: Sequence[ObjectRow]) -> list[Manifest]:
    """Return the manifests of these versions, in order, without those deleted since.

    Not to be changed. Queries once if some are not cached.
    """
    revisions = {row.document_id: row.revision for row in rows}

    def read(ids: Collection[int]) -> dict[int, Manifest]:
        found = documents(ids)
        return {key: document.decode(text, revisions[key]) for key, text in found.items()}

    by_document = _remembered(_manifests, list(revisions), read)
    return [by_document[row.document_id] for row in rows if row.document_id in by_document]


def daemon_nodes() -> list[DaemonNode]:
    """Return all nodes by name, as far as daemons need them. Queries once, rarely twice."""
    found = _remembered(_nodes, [row.document_id for row in nodes()], _read_nodes)
    return sorted(found.values(), key=lambda one: one.name)


def _read_nodes(document_ids: Collection[int]) -> dict[int, DaemonNode]:
    found = {}
    for document_id, text in documents(document_ids).items():
        node = _decode_node(text.replace(document.SLOT, ""))
        found[document_id] = DaemonNode(node.metadata.name, node.metadata.labels, node.spec.taints)
    return found


def _remembered(
    cache: dict[int, Value],
    ids: Collection[int],
    read: Callable[[Collection[int]], dict[int, Value]],
) -> dict[int, Value]:
    """Return the values of these ids from the cache; missing ones are read, and cached."""
    found = {one: value for one in ids if (value := cache.get(one)) is not None}
    fresh = read([one for one in ids if one not in found])
    if len(cache) + len(fresh) > _MOST:
        cache.clear()
    cache.update(fresh)
    return found | fresh


def _read_classes(class_ids: Collection[int]) -> dict[int, _Class]:
    if not class_ids:
        return {}
    found = {}
    for class_id, spec in class_specs(list(class_ids)).items():
        manifest = msgspec.json.decode(spec)
        metadata = manifest["metadata"]
        kind = (controller_of(manifest) or {}).get("kind", "")
        labels = metadata.get("labels") or {}
        found[class_id] = _Class(kind, labels, _target(manifest.get("spec") or {}))
    return found


def _target(spec: Manifest) -> str:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""


def _read_facts(document_ids: Collection[int]) -> dict[int, _Facts]:
    return {key: _facts_of(text) for key, text in documents(document_ids).items()}


def _facts_of(text: str) -> _Facts:
    found = _decode(text.replace(document.SLOT, ""))
    conditions, containers = found.status.conditions, found.status.container_statuses
    ready = next((one for one in conditions if one.type == "Ready"), None)
    owner = next((one.uid for one in found.metadata.owner_references if one.controller), "")
    ended = [
        at
        for one in containers
        if one.state is not None
        and one.state.terminated is not None
        and (at := _moment(one.state.terminated.finished_at)) is not None
    ]
    is_tracked = TRACKING in found.metadata.finalizers
    exit_codes = [
        (one.name, one.state.terminated.exit_code)
        for one in (*containers, *found.status.init_container_statuses)
        if is_tracked and one.state is not None and one.state.terminated is not None
    ]
    return _Facts(
        owner=owner,
        annotations=found.metadata.annotations,
        is_tracked=is_tracked,
        is_reported=ready is not None or found.status.phase not in ("", "Pending"),
        ready_at=_since(ready),
        started_at=_moment(found.status.start_time),
        finished_at=max(ended, default=None),
        restarts=max((one.restart_count for one in containers), default=0),
        exit_codes=tuple(exit_codes),
        conditions=tuple((one.type, one.status) for one in conditions) if is_tracked else (),
    )


def _moment(text: str | None) -> datetime | None:
    try:
        return document.parse_time(text) if text else None
    except ValueError:
        return None


_LONG_AGO: Final = document.parse_time("1970-01-01T00:00:00Z")


def _since(ready: _Condition | None) -> datetime | None:
    """Return since when a condition is true; one without a time counts as always true."""
    if ready is None or ready.status != "True":
        return None
    return _moment(ready.last_transition_time) or _LONG_AGO


def _owned_pod(row: PodRow, its_class: _Class, facts: _Facts, *, is_silent: bool) -> OwnedPod:
    assumed = is_assumed(
        row.phase, row.node_name, is_reported=facts.is_reported, has_agent=not is_silent
    )
    return OwnedPod(
        id=row.id,
        uid=row.uid,
        name=row.name,
        owner=facts.owner,
        owner_kind=its_class.owner_kind,
        labels=its_class.labels,
        annotations=facts.annotations,
        phase=row.phase,
        node_name=row.node_name,
        target=its_class.target,
        created_at=row.created_at,
        started_at=facts.started_at,
        finished_at=facts.finished_at,
        is_leaving=row.is_leaving,
        ready_at=row.bound_at if assumed else facts.ready_at,
        is_assumed=assumed,
        is_tracked=facts.is_tracked,
        restarts=facts.restarts,
        exit_codes=facts.exit_codes,
        conditions=facts.conditions,
    )
