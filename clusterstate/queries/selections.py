"""What Services, controllers, budgets and RuntimeClasses select, and what they share (R41, R60).

As of now, not of one revision: a count is for people, and is out of date when they read it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from clusterstate import sql
from clusterstate.objects import selections
from clusterstate.objects.document import SLOT
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.labels import (
    NOTHING,
    Selector,
    SelectorError,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.meta import ObjectMeta, prepare
from clusterstate.objects.node import Taint
from clusterstate.objects.pod import LabelSelector, Toleration
from clusterstate.objects.selections import Index, Labelled, Selecting, Selection

_PLAIN = frozenset({"Service", "ReplicationController"})
"""Kinds whose selector is a map of labels; one that is empty selects nothing."""


class _Spec(msgspec.Struct, frozen=True):
    selector: Any = None


class _Selecting(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


prepare(_Selecting)
_decode_selecting = msgspec.json.Decoder(_Selecting).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


# --- pods ----------------------------------------------------------------------------------------

_PODS = """
SELECT c.namespace, c.labels::text, sum(p.number)::bigint
FROM (SELECT class_id, count(*) AS number FROM pod
      WHERE phase NOT IN ('Succeeded', 'Failed') AND (%s = '' OR namespace = %s)
      GROUP BY class_id) p
JOIN scheduling_class c ON c.id = p.class_id GROUP BY 1, 2
"""


def pod_selections(namespace: str = "") -> list[Selection]:
    """Return what selects pods, of one namespace or of all, by namespace, role, kind and name.

    Pods count until they finish. A ReplicaSet of a Deployment is left out: the Deployment stands
    for it. Queries twice; counts the rows of all pods that are asked about, which are narrow, and
    reads none of their documents.
    """
    pods: dict[str, list[Labelled]] = {}
    for space, labels, number in sql.fetch(_PODS, (namespace, namespace)):
        pods.setdefault(space, []).append(Labelled(_decode_labels(labels), number))
    members: dict[str, list[Selecting]] = {}
    for one in _selecting(namespace):
        members.setdefault(one.namespace, []).append(one)
    return [
        selection
        for space, selecting in sorted(members.items())
        for selection in selections.of_pods(pods.get(space, ()), selecting)
    ]


def _selecting(namespace: str) -> Iterable[Selecting]:
    """Yield everything that selects pods. Queries once."""
    statement = " UNION ALL ".join(
        f"SELECT '{kind}', t.namespace, t.name, d.text FROM {KINDS[kind].rows} t"
        " JOIN document d ON d.id = t.document_id WHERE %s = '' OR t.namespace = %s"
        for kind in selections.ROLES
    )
    for kind, space, name, text in sql.fetch(
        statement, [namespace, namespace] * len(selections.ROLES)
    ):
        found = _decode_selecting(text.replace(SLOT, ""))
        if any(
            owner.controller and owner.kind in selections.ROLES
            for owner in found.metadata.owner_references
        ):
            continue
        selector = _selector(found.spec.selector, plain=kind in _PLAIN)
        if not selector.nothing:
            yield Selecting(kind, space, name, selector)


def _selector(written: Any, *, plain: bool) -> Selector:
    """Return the selector that an object states; one that is absent, or broken, selects nothing."""
    if plain:
        return selector_from_set(written) if written else NOTHING
    try:
        selector = msgspec.convert(written, LabelSelector | None)
        return selector_from_label_selector(selector)
    except (msgspec.ValidationError, SelectorError):
        return NOTHING


# --- nodes ---------------------------------------------------------------------------------------

_CLASSES = """
SELECT r.name, d.text FROM runtime_class r JOIN document d ON d.id = r.document_id ORDER BY r.name
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
    scheduling: _Scheduling | None = None


prepare(_RuntimeClass)
_decode_class = msgspec.json.Decoder(_RuntimeClass).decode
_decode_taints = msgspec.json.Decoder(tuple[tuple[str, str, str], ...]).decode


class _Nodes:
    """The nodes by the taints that keep pods off them, with an index of their labels."""

    def __init__(self) -> None:
        rows = sql.fetch(_NODES)
        self.index = Index([Labelled(_decode_labels(labels)) for labels, _ in rows])
        by_taints: dict[str, int] = {}
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


def runtime_class_selections() -> list[Selection]:
    """Return which nodes RuntimeClasses select, by name, and how many pods use each.

    Pods count until they finish. Queries thrice, and looks into the documents of all pods; once
    where there is no RuntimeClass.
    """
    classes = sql.fetch(_CLASSES)
    if not classes:
        return []
    nodes = _Nodes()
    users: dict[str, int] = dict(sql.fetch(_USERS))
    selected = []
    for name, text in classes:
        scheduling = _decode_class(text.replace(SLOT, "")).scheduling or _Scheduling()
        selector = selector_from_set(scheduling.node_selector or {})
        selected.append((Selecting("RuntimeClass", "", name, selector), nodes.matching(scheduling)))
    return [
        msgspec.structs.replace(one, users=users.get(one.of.name, 0))
        for one in selections.compare(nodes.index, selected)
    ]
