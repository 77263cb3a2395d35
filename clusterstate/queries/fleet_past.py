"""Nodes with what their pods asked for, and the pods that waited, as they were at a revision."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clusterstate import sql
from clusterstate.objects import document
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from clusterstate.objects.quantity import milli_value, value
from clusterstate.objects.resources import pod_request_ints
from clusterstate.queries import past
from clusterstate.queries.fleet import FleetNode, worries
from clusterstate.queries.lists import list_page

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_OVER: Final = ("Succeeded", "Failed")
_LEAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PODS: Final = KINDS["Pod"]
_decode_node = msgspec.json.Decoder(Node).decode
_decode_pod = msgspec.json.Decoder(Pod).decode
_decode_amounts = msgspec.json.Decoder(dict[str, int]).decode
_WORDS: Final = '"message":'
_SINCE: Final = '"lastTransitionTime":"'
_SUMS: Final = f"""
WITH ended AS MATERIALIZED (
    SELECT c.namespace, c.name, c.previous_class_id AS class_id,
           coalesce(c.previous_node_name, '') AS node_name,
           c.previous_unschedulable AS unschedulable,
           c.previous_eviction IS NOT NULL
           OR CASE WHEN c.deletion_at IS NOT NULL OR c.verb = 3 THEN
                  (SELECT strpos(d.text, '"deletionTimestamp":"') > 0
                   FROM document d WHERE d.id = c.previous_document_id)
              ELSE false END AS leaving,
           CASE WHEN c.previous_node_name <> '' OR c.previous_unschedulable IS NOT NULL THEN NULL
                ELSE (SELECT split_part(split_part(d.text, '"creationTimestamp":"', 2), '"', 1)
                      FROM document d WHERE d.id = c.previous_document_id) END AS created
    FROM change c
    WHERE c.kind = {_PODS.code} AND c.revision > %s::bigint AND c.previous_revision <= %s::bigint
      AND c.previous_phase NOT IN ('Succeeded', 'Failed')),
alive AS NOT MATERIALIZED (
    SELECT p.namespace, p.name, p.class_id, p.node_name, p.unschedulable,
           p.deletion_at IS NOT NULL AS leaving,
           to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS created
    FROM pod p WHERE p.revision <= %s::bigint AND p.phase NOT IN ('Succeeded', 'Failed')
    UNION ALL SELECT * FROM ended)
SELECT 0, a.node_name, count(*), count(*) FILTER (WHERE a.leaving), sum(k.cpu_milli)::bigint,
       sum(k.memory_bytes)::bigint, sum(k.ephemeral_bytes)::bigint, k.extended::text, NULL::text
FROM alive a JOIN scheduling_class k ON k.id = a.class_id
WHERE a.node_name <> '' GROUP BY a.node_name, k.extended
UNION ALL
SELECT 1, min(a.namespace || ' ' || a.name), count(*), NULL, NULL, NULL, NULL,
       substr(a.unschedulable, strpos(a.unschedulable, '{_WORDS}')),
       min(coalesce(nullif(split_part(split_part(a.unschedulable, '{_SINCE}', 2), '"', 1), ''),
                    a.created))
FROM alive a WHERE a.node_name = ''
GROUP BY substr(a.unschedulable, strpos(a.unschedulable, '{_WORDS}'))
UNION ALL
SELECT 2, '', trimmed_revision, NULL, NULL, NULL, NULL, NULL, NULL FROM history WHERE id = 1
"""
"""What unfinished pods asked of each node, by extended resources; those that waited, by the end of
their PodScheduled condition, which is JSON with sorted members; and where the log begins.

A pod has one version at a revision: its row, or what the one change ended that names it as before.
The database searches texts instead of reading JSON, since it fails at an escaped NUL.
"""


class Waited(msgspec.Struct, frozen=True):
    """Pods that waited with the same words: how many, the first of them, since when, why."""

    pods: int
    namespace: str
    name: str
    since: datetime | None
    message: str
    stage: str = ""


class PastFleet(msgspec.Struct, frozen=True):
    """The fleet at a revision: nodes by name, groups of waiting pods, the largest first.

    ``leaving`` of the nodes counts pods that were being deleted: timers of evictions have no past.
    """

    items: list[FleetNode]
    waiting: list[Waited]
    pending: int


def fleet_at(revision: int) -> PastFleet:
    """Return the fleet as it was at a revision that `past.revision_at` found.

    Pods whose version of then is a row or lies in the log are added up by the database: the log
    names the scheduling class of each version that it ended, and a class is kept as long as the log
    names it. Versions that were packed are decoded, 20 us each. Queries three times or more.

    Raises:
        Expired: that is no longer known.
    """
    asked: dict[str, dict[str, int]] = {}
    leaving: dict[str, int] = {}
    waited: dict[str, Waited] = {}
    log = 0
    for tag, name, pods, *more in sql.fetch(_SUMS, (revision, revision, revision)):
        if tag == 0:
            _sum(name, pods, more, asked, leaving)
        elif tag == 1:
            _wait(_group(name, pods, more), waited)
        else:
            log = pods
    if revision < log:
        past.require(revision)
        for _, _, text in past.versions_at(_PODS, revision, log):
            _count(_decode_pod(text), asked, leaving, waited)
        past.require(revision)  # none of it was dropped meanwhile
    nodes = list_page("Node", at=revision).items
    items = [_node(_decode_node(text), asked, leaving, revision) for text in nodes]
    groups = sorted(waited.values(), key=lambda one: (-one.pods, one.namespace, one.name))
    return PastFleet(items, groups, sum(one.pods for one in groups))


def node_at(revision: int, node: bytes, pods: Iterable[bytes]) -> FleetNode:
    """Return a node of then, by its version and those of all pods that were on it."""
    asked: dict[str, dict[str, int]] = {}
    leaving: dict[str, int] = {}
    for text in pods:
        _count(_decode_pod(text), asked, leaving, {})
    return _node(_decode_node(node), asked, leaving, revision)


def _sum(
    name: str,
    pods: int,
    more: list[Any],
    asked: dict[str, dict[str, int]],
    leaving: dict[str, int],
) -> None:
    """Add pods of a node that ask for the same extended resources each."""
    ending, cpu, memory, ephemeral, extended, _ = more
    use = asked.setdefault(name, {})
    _add(use, {"pods": pods, "cpu": cpu, "memory": memory, "ephemeral-storage": ephemeral})
    _add(use, {resource: each * pods for resource, each in _decode_amounts(extended).items()})
    if ending:
        leaving[name] = leaving.get(name, 0) + ending


def _group(key: str, pods: int, more: list[Any]) -> Waited:
    """Return pods whose PodScheduled condition ends alike; all of it, where it has no message."""
    *_, condition, since = more
    words, moment = "", None
    if condition:
        text = f"{{{condition}" if condition.startswith(_WORDS) else condition
        found = msgspec.json.decode(text)
        words = found.get("message") or found.get("reason") or ""
    with suppress(ValueError):
        moment = document.parse_time(since) if since else None
    namespace, _, name = key.partition(" ")
    return Waited(pods, namespace, name, moment, words)


def _add(use: dict[str, int], amounts: dict[str, int]) -> None:
    for resource, amount in amounts.items():
        use[resource] = use.get(resource, 0) + amount


def _count(
    pod: Pod, asked: dict[str, dict[str, int]], leaving: dict[str, int], waited: dict[str, Waited]
) -> None:
    """Add a version of then to what was asked of its node, or to the pods that waited."""
    name = pod.spec.node_name
    if pod.status.phase in _OVER:
        return
    if name:
        _add(asked.setdefault(name, {}), {"pods": 1, **pod_request_ints(pod)})
        if pod.metadata.deletion_timestamp:
            leaving[name] = leaving.get(name, 0) + 1
        return
    words, since = "", pod.metadata.creation_timestamp
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            words = one.message or one.reason
            since = one.last_transition_time or since
    moment = document.parse_time(since) if since else None
    _wait(Waited(1, pod.metadata.namespace, pod.metadata.name, moment, words), waited)


def _wait(group: Waited, waited: dict[str, Waited]) -> None:
    """Put pods that waited together with those that waited with the same words."""
    known = waited.get(group.message)
    if known is None:
        waited[group.message] = group
        return
    first = min(known, group, key=lambda one: (one.namespace, one.name))
    earlier = [at for at in (known.since, group.since) if at is not None]
    waited[group.message] = msgspec.structs.replace(
        first, pods=known.pods + group.pods, since=min(earlier, default=None)
    )


def _node(
    node: Node, asked: dict[str, dict[str, int]], leaving: dict[str, int], revision: int
) -> FleetNode:
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
        asked=asked.get(name, {}),
        leaving=leaving.get(name, 0),
    )
