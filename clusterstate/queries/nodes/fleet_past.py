"""Nodes with their pods' requests, and the waiting pods, as they were at a revision."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from clusterstate.change_log.blocks import Index
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import glances
from clusterstate.objects.rules.glances import Glances
from clusterstate.objects.values import document
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import PodCondition, PodSpec
from clusterstate.objects.values.quantity import milli_value, value
from clusterstate.queries import past
from clusterstate.queries.nodes.fleet import FleetNode, total, worries
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.scheduler.overview import WaitingGroup

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_NOTHING: Final[tuple[int, ...]] = ()
_LEAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PODS: Final = KINDS["Pod"]
_decode_node = msgspec.json.Decoder(Node).decode
_decode_amounts = msgspec.json.Decoder(dict[str, int]).decode
_decode_condition = msgspec.json.Decoder(PodCondition).decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_spec = msgspec.json.Decoder(PodSpec).decode
_WORDS: Final = '"message":'
_OF_NODES: Final = "node(s)"
"""In messages with reasons other than amounts, which depend on what the pod asks of nodes."""
_MOST_READ: Final = 2_000
"""How many packed versions of waiting pods are read for that; others count by the message alone."""
_SINCE: Final = '"lastTransitionTime":"'
_SUMS: Final = f"""
WITH alive AS NOT MATERIALIZED (
    SELECT p.class_id, p.node_name, p.deletion_at IS NOT NULL AS leaving,
           CASE WHEN p.node_name = '' THEN p.namespace || ' ' || p.name END AS title,
           CASE WHEN p.node_name = '' THEN p.unschedulable END AS unschedulable,
           CASE WHEN p.node_name = ''
                THEN to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
           END AS created
    FROM pod p WHERE p.revision <= %s::bigint AND p.phase NOT IN ('Succeeded', 'Failed')
    UNION ALL
    SELECT c.previous_class_id, coalesce(c.previous_node_name, ''),
           c.previous_eviction IS NOT NULL
           OR CASE WHEN c.deletion_at IS NULL THEN false WHEN c.verb = 3 THEN true
              ELSE (SELECT {sql.IS_LEAVING}
                    FROM document d WHERE d.id = c.previous_document_id) END,
           CASE WHEN coalesce(c.previous_node_name, '') = ''
                THEN c.namespace || ' ' || c.name END,
           CASE WHEN coalesce(c.previous_node_name, '') = '' THEN c.previous_unschedulable END,
           CASE WHEN c.previous_node_name <> '' OR c.previous_unschedulable IS NOT NULL THEN NULL
                ELSE (SELECT {sql.CREATED}
                      FROM document d WHERE d.id = c.previous_document_id) END
    FROM change c
    WHERE c.kind = {_PODS.code} AND c.revision > %s::bigint AND c.previous_revision <= %s::bigint
      AND c.previous_phase NOT IN ('Succeeded', 'Failed'))
SELECT a.node_name, count(*), count(*) FILTER (WHERE a.leaving), {total("k.cpu_milli")},
       {total("k.memory_bytes")}, {total("k.ephemeral_bytes")}, k.extended::text,
       substr(a.unschedulable, strpos(a.unschedulable, '{_WORDS}')), min(a.title),
       min(coalesce(nullif(split_part(split_part(a.unschedulable, '{_SINCE}', 2), '"', 1), ''),
                    a.created)),
       any_value(k.spec) FILTER (WHERE strpos(a.unschedulable, '{_OF_NODES}') > 0)
FROM alive a JOIN scheduling_class k ON k.id = a.class_id
GROUP BY a.node_name, k.extended, substr(a.unschedulable, strpos(a.unschedulable, '{_WORDS}')),
         CASE WHEN strpos(a.unschedulable, '{_OF_NODES}') > 0 THEN k.id END
UNION ALL
SELECT NULL, trimmed_revision, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM history WHERE id = 1
"""
"""Sums of what unfinished pods requested, by node and extended resources; and where the log begins.

Pods that waited have an empty node name. They are grouped by the end of their PodScheduled
condition, from its message on (the condition is JSON with sorted members), and by their class if
the message is about more than amounts.

A pod has one version at a revision: its row, or the version before a later change. A change that
deleted a pod has the pod's deletion time, if there was one. The database searches texts instead of
reading JSON, since it fails at an escaped NUL.
"""


class PastFleet(msgspec.Struct, frozen=True):
    """The fleet at a revision: nodes by name, groups of waiting pods, the largest first.

    ``leaving`` of the nodes counts pods that were being deleted: timers of evictions have no past.
    """

    items: list[FleetNode]
    waiting: list[WaitingGroup]
    pending: int


def fleet_at(revision: int) -> PastFleet:
    """Return the fleet as it was at a revision from `past.revision_at`.

    The database sums pods whose version is a row or in the log: the log names the scheduling class
    of each version that it ended, and keeps the class. For packed versions the blocks' indexes have
    the requests. Queries three times or more.

    Raises:
        Expired: that is no longer known.
    """
    sums = _Sums()
    log = 0
    rows = sql.fetch(_SUMS, (revision,) * 3)
    for name, pods, ending, *amounts, words, title, since, spec in rows:
        if name is None:
            log = pods
        elif name:
            sums.add(name, pods, ending, *amounts)
        else:
            sums.wait(_group(title, pods, words, since), (spec or "").encode())
    if revision < log:
        past.require(revision)
        for namespace, title, text in past.bodies_at(_PODS, revision, log, sums.take):
            sums.count(namespace, title, text)
        past.require(revision)  # no part was dropped meanwhile
    nodes = list_page("Node", at=revision).items
    items = [_node(_decode_node(text), sums, revision) for text in nodes]
    groups = sorted(sums.waited.values(), key=lambda one: (-one.pods, one.namespace, one.name))
    return PastFleet(items, groups, sum(one.pods for one in groups))


def node_at(revision: int, node: bytes, pods: Iterable[bytes]) -> FleetNode:
    """Return a node of that moment, from its version and those of all pods on it."""
    sums = _Sums()
    for text in pods:
        sums.count("", "", text)
    return _node(_decode_node(node), sums, revision)


class _Sums:
    """Sums for a past moment: requests and leaving pods by node, waiting pods by reason."""

    def __init__(self) -> None:
        self.plain: dict[str, list[int]] = {}
        self.others: dict[str, dict[str, int]] = {}
        self.leaving: dict[str, int] = {}
        self.waited: dict[tuple[str, bytes], WaitingGroup] = {}
        self._read = 0
        self._glances = Glances()
        self._uses: dict[str, tuple[int, tuple[int, ...], dict[str, int]]] = {}

    def add(
        self,
        name: str,
        pods: int,
        ending: int,
        cpu: int,
        memory: int,
        ephemeral: int,
        extended: str,
    ) -> None:
        """Add pods of a node with equal requests of extended resources."""
        more = {resource: each * pods for resource, each in _decode_amounts(extended).items()}
        self._add(name, (cpu, memory, ephemeral, pods), more, ending)

    def count(self, namespace: str, title: str, text: bytes) -> None:
        """Add a pod version of that moment to its node's requests, or to the waiting pods."""
        glance = self._glances.at(text)
        self._see(glance.node_name, glance.text, (namespace, title), text)

    def take(self, index: Index, places: list[int]) -> list[int]:
        """Add up pod versions by a block's index; return the places of those to read in full.

        It has the effect of ``_see`` for each. Most are versions of pods on a node that are not
        being deleted and request no extended resources: these are added up here, which is faster.
        """
        lacking: list[int] = []
        amounts: dict[int, tuple[int, ...]] = {}
        rows, words = self.plain, index.words
        for place, (name, text) in zip(places, index.glances(places), strict=True):
            if text < 0 or (not name and self._read < _MOST_READ and _OF_NODES in words[text]):
                self._read += text >= 0
                lacking.append(place)
                continue
            plain = amounts.get(text)
            if plain is None:
                plain = amounts[text] = _NOTHING if not name else self._plain_of(words[text])
            if not name or plain is _NOTHING:
                self._see(words[name], words[text], index.key(place))
                continue
            row = rows.get(words[name])
            if row is None:
                rows[words[name]] = list(plain)
                continue
            row[0] += plain[0]
            row[1] += plain[1]
            row[2] += plain[2]
            row[3] += plain[3]
        return lacking

    def _see(self, name: str, text: str, key: tuple[str, str], version: bytes = b"") -> None:
        """Add a pod by its glance; ``key``: its namespace and name, which a waiting pod needs."""
        if not text:
            return
        if not name:
            found = glances.wait_of(text)
            spec = version if _OF_NODES in found.words else b""
            self.wait(WaitingGroup(1, *key, found.moment, found.words), spec)
            return
        leaving, plain, more = self._use(text)
        self._add(name, plain, more, leaving)

    def _use(self, text: str) -> tuple[int, tuple[int, ...], dict[str, int]]:
        use = self._uses.get(text)
        if use is None:
            read = glances.use_of(text)
            plain = tuple(read.amounts.get(resource, 0) for resource in _PLAIN)
            more = {key: one for key, one in read.amounts.items() if key not in _PLAIN}
            use = self._uses[text] = read.leaving, plain, more
        return use

    def _plain_of(self, text: str) -> tuple[int, ...]:
        """Return the requests of a pod on a node; ``_NOTHING`` if its glance has more."""
        if not text:
            return _NOTHING
        leaving, plain, more = self._use(text)
        return _NOTHING if leaving or more else plain

    def wait(self, group: WaitingGroup, whole: bytes) -> None:
        """Merge a group of waiting pods with those of the same message and spec.

        ``whole``: JSON with the spec, empty if the message is about amounts alone.
        """
        spec = bytes(_decode_parts(whole)["spec"]) if whole else b""
        key = group.message, spec
        alike = self.waited.get(key)
        if alike is None:
            of_pod = _decode_spec(spec) if spec else group.spec
            self.waited[key] = msgspec.structs.replace(group, spec=of_pod)
            return
        first = min(alike, group, key=lambda one: (one.namespace, one.name))
        earlier = [at for at in (alike.since, group.since) if at is not None]
        self.waited[key] = msgspec.structs.replace(
            first, pods=alike.pods + group.pods, since=min(earlier, default=None), spec=alike.spec
        )

    def _add(self, name: str, plain: tuple[int, ...], more: dict[str, int], ending: int) -> None:
        """Add to a node's sums: ``plain`` (see ``_PLAIN``), ``more`` by resource, ``ending``."""
        use = self.plain.get(name)
        if use is None:
            self.plain[name] = list(plain)
        else:
            use[0] += plain[0]
            use[1] += plain[1]
            use[2] += plain[2]
            use[3] += plain[3]
        if more:
            amounts = self.others.setdefault(name, {})
            for resource, amount in more.items():
                amounts[resource] = amounts.get(resource, 0) + amount
        if ending:
            self.leaving[name] = self.leaving.get(name, 0) + ending

    def requested(self, name: str) -> dict[str, int]:
        """Return the requests of the pods on a node; empty without pods."""
        plain = self.plain.get(name)
        if plain is None:
            return {}
        return dict(zip(_PLAIN, plain, strict=True)) | self.others.get(name, {})


def _group(key: str, pods: int, condition: str | None, since: str | None) -> WaitingGroup:
    """Return a group of waiting pods; ``condition``: the common end of their condition as JSON."""
    words, moment = "", None
    if condition:
        text = f"{{{condition}" if condition.startswith(_WORDS) else condition
        with suppress(msgspec.DecodeError):
            found = _decode_condition(text)
            words = found.message or found.reason
    with suppress(ValueError):
        moment = document.parse_time(since) if since else None
    namespace, _, name = key.partition(" ")
    return WaitingGroup(pods, namespace, name, moment, words)


def _node(node: Node, sums: _Sums, revision: int) -> FleetNode:
    name, created = node.metadata.name, node.metadata.creation_timestamp
    conditions = node.status.conditions
    offered = dict.fromkeys(_PLAIN, 0) | {
        resource: milli_value(text) if resource == "cpu" else value(text)
        for resource, text in node.status.allocatable.items()
    }
    return FleetNode(
        id=0,
        name=name,
        revision=revision,
        created_at=document.parse_time(created) if created else _LEAST,
        cordoned=node.spec.unschedulable,
        terminating=bool(node.metadata.deletion_timestamp),
        labels=node.metadata.labels,
        taints=tuple((one.key, one.value, one.effect) for one in node.spec.taints),
        ready=next((one.status for one in conditions if one.type == "Ready"), ""),
        conditions=tuple(one.type for one in conditions if worries(one)),
        offered=offered,
        requested=sums.requested(name),
        leaving=sums.leaving.get(name, 0),
    )
