"""Objects selected by Services, controllers, budgets and RuntimeClasses (R41, R60).

The present state is not of one revision: the counts are for users, and soon out of date. For a past
revision, objects are read as they were then, with their documents.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import selections
from clusterstate.objects.rules.selections import Index, LabelledCount, Selection, SelectorOwner
from clusterstate.objects.rules.usage import FINISHED
from clusterstate.objects.values.document import SLOT
from clusterstate.objects.values.labels import (
    NOTHING,
    Selector,
    SelectorError,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.meta import ObjectMeta, prepare
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import LabelSelector, Toleration
from clusterstate.queries.objects.lists import list_page

_PLAIN = frozenset({"Service", "ReplicationController"})
"""Kinds whose selector is a map of labels; one that is empty selects nothing."""


class _Spec(msgspec.Struct, frozen=True):
    selector: Any = None


class _Selecting(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    runtime_class_name: str | None = None


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


prepare(_Selecting)
prepare(_Pod)
_encode = msgspec.json.Encoder().encode
_decode_selecting = msgspec.json.Decoder(_Selecting).decode
_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_node = msgspec.json.Decoder(Node).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


# --- pods ----------------------------------------------------------------------------------------

_PODS = """
SELECT c.namespace, c.labels::text, sum(p.number)::bigint
FROM (SELECT class_id, count(*) AS number FROM pod
      WHERE phase NOT IN ('Succeeded', 'Failed') AND (%s = '' OR namespace = %s)
      GROUP BY class_id) p
JOIN scheduling_class c ON c.id = p.class_id GROUP BY 1, 2
"""


def pod_selections(namespace: str = "", *, at: int | None = None) -> list[Selection]:
    """Return what selects pods, of one namespace or of all, by namespace, role, kind and name.

    As it is now, or as it was ``at`` a revision. Pods count until they finish. A ReplicaSet of a
    Deployment is left out in favour of the Deployment. Queries twice; counts rows of pods, and
    reads no documents. For the past it reads all documents, and queries for each kind.

    Raises:
        Expired: the past is not known as far back.
    """
    pods: dict[str, list[LabelledCount]] = {}
    for space, labelled in _pods(namespace) if at is None else _pods_at(namespace, at):
        pods.setdefault(space, []).append(labelled)
    members: dict[str, list[SelectorOwner]] = {}
    for one in _selecting(_written(namespace) if at is None else _written_at(namespace, at)):
        members.setdefault(one.namespace, []).append(one)
    return [
        selection
        for space, selecting in sorted(members.items())
        for selection in selections.of_pods(pods.get(space, ()), selecting)
    ]


def _pods(namespace: str) -> Iterator[tuple[str, LabelledCount]]:
    """Yield namespaces and pods with the same labels, of those that have not finished."""
    for space, labels, number in sql.fetch(_PODS, (namespace, namespace)):
        yield space, LabelledCount(_decode_labels(labels), number)


def _pods_at(namespace: str, revision: int) -> Iterator[tuple[str, LabelledCount]]:
    counts: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for item in list_page("Pod", namespace, at=revision).items:
        pod = _decode_pod(item)
        if pod.status.phase not in FINISHED:
            counts[pod.metadata.namespace, frozenset(pod.metadata.labels.items())] += 1
    for (space, labels), number in counts.items():
        yield space, LabelledCount(dict(labels), number)


def _written(namespace: str) -> Iterator[tuple[str, _Selecting]]:
    """Yield kind and manifest of all objects that may select pods. Queries once."""
    statement = " UNION ALL ".join(
        f"SELECT '{kind}', d.text FROM {KINDS[kind].rows} t"
        " JOIN document d ON d.id = t.document_id WHERE %s = '' OR t.namespace = %s"
        for kind in selections.ROLES
    )
    for kind, text in sql.fetch(statement, [namespace, namespace] * len(selections.ROLES)):
        yield kind, _decode_selecting(text.replace(SLOT, ""))


def _written_at(namespace: str, revision: int) -> Iterator[tuple[str, _Selecting]]:
    for kind in selections.ROLES:
        for item in list_page(kind, namespace, at=revision).items:
            yield kind, _decode_selecting(item)


def _selecting(written: Iterable[tuple[str, _Selecting]]) -> Iterator[SelectorOwner]:
    """Yield the objects that select pods, with their selectors."""
    for kind, found in written:
        if any(
            owner.controller and owner.kind in selections.ROLES
            for owner in found.metadata.owner_references
        ):
            continue
        selector = _selector(found.spec.selector, plain=kind in _PLAIN)
        if not selector.nothing:
            yield SelectorOwner(kind, found.metadata.namespace, found.metadata.name, selector)


def _selector(written: Any, *, plain: bool) -> Selector:
    """Return an object's selector; an absent or invalid one selects nothing."""
    if plain:
        return selector_from_set(written) if written else NOTHING
    try:
        selector = msgspec.convert(written, LabelSelector | None)
        return selector_from_label_selector(selector)
    except (msgspec.ValidationError, SelectorError):
        return NOTHING


# --- nodes ---------------------------------------------------------------------------------------

_CLASSES = """
SELECT d.text FROM runtime_class r JOIN document d ON d.id = r.document_id ORDER BY r.name
"""

_NODES = """
SELECT n.labels::text,
       coalesce((SELECT json_agg(json_build_array(t.key, t.value, t.effect) ORDER BY t.position)
                 FROM taint t WHERE t.node_id = n.id), '[]')::text
FROM node n
"""

_USERS = """
SELECT u.name, count(*)
FROM (SELECT replace(d.text, chr(1), '')::json #>> '{spec,runtimeClassName}' AS name
      FROM pod p JOIN document d ON d.id = p.document_id
      WHERE p.phase NOT IN ('Succeeded', 'Failed')
        AND strpos(d.text, '"runtimeClassName":') > 0) u
WHERE u.name IS NOT NULL GROUP BY 1
"""


class _Scheduling(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class _RuntimeClass(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    scheduling: _Scheduling | None = None


prepare(_RuntimeClass)
_decode_class = msgspec.json.Decoder(_RuntimeClass).decode
_decode_taints = msgspec.json.Decoder(tuple[tuple[str, str, str], ...]).decode


class _Nodes:
    """The nodes grouped by their taints, with an index of their labels."""

    def __init__(self, at: int | None = None) -> None:
        rows = sql.fetch(_NODES) if at is None else list(_nodes_at(at))
        self.index = Index([LabelledCount(_decode_labels(labels)) for labels, _ in rows])
        by_taints: dict[str | bytes, int] = {}
        for number, (_, taints) in enumerate(rows):
            by_taints[taints] = by_taints.get(taints, 0) | 1 << number
        self._by_taints = [
            ([Taint(key=k, value=v, effect=e) for k, v, e in _decode_taints(text)], bits)
            for text, bits in by_taints.items()
        ]

    def matching(self, scheduling: _Scheduling) -> int:
        """Return the nodes where pods of a RuntimeClass may go, one bit for each (R60).

        These have its labels (all nodes, if it names none), and their taints admit its pods.
        """
        tolerations = scheduling.tolerations or ()
        open_to_it = sum(
            bits for taints, bits in self._by_taints if selections.admits(taints, tolerations)
        )
        return open_to_it & self.index.select(selector_from_set(scheduling.node_selector or {}))


def _nodes_at(revision: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield labels and taints of the nodes at a revision, each as JSON."""
    for item in list_page("Node", at=revision).items:
        node = _decode_node(item)
        taints = [(one.key, one.value, one.effect) for one in node.spec.taints]
        yield _encode(node.metadata.labels), _encode(taints)


def _users_at(revision: int) -> dict[str, int]:
    pods = map(_decode_pod, list_page("Pod", at=revision).items)
    return Counter(
        pod.spec.runtime_class_name
        for pod in pods
        if pod.spec.runtime_class_name and pod.status.phase not in FINISHED
    )


def runtime_class_selections(*, at: int | None = None) -> list[Selection]:
    """Return which nodes RuntimeClasses select, by name, and how many pods use each.

    As it is now, or as it was ``at`` a revision. Pods count until they finish. Queries thrice, and
    reads the documents of all pods; once if there is no RuntimeClass.

    Raises:
        Expired: the past is not known as far back.
    """
    if at is None:
        texts = [text.replace(SLOT, "").encode() for (text,) in sql.fetch(_CLASSES)]
    else:
        texts = list_page("RuntimeClass", at=at).items
    if not texts:
        return []
    nodes = _Nodes(at)
    users: dict[str, int] = dict(sql.fetch(_USERS)) if at is None else _users_at(at)
    selected = []
    for text in texts:
        found = _decode_class(text)
        name, scheduling = found.metadata.name, found.scheduling or _Scheduling()
        selector = selector_from_set(scheduling.node_selector or {})
        selected.append(
            (SelectorOwner("RuntimeClass", "", name, selector), nodes.matching(scheduling))
        )
    return [
        msgspec.structs.replace(one, users=users.get(one.of.name, 0))
        for one in selections.compare(nodes.index, selected)
    ]
