"""Nodes with what their pods asked for, and the pods that waited, as they were at a revision."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from clusterstate import sql
from clusterstate.objects import document, scheduling_class
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod, PodCondition, PodStatus
from clusterstate.objects.quantity import milli_value, value
from clusterstate.objects.resources import pod_request_ints
from clusterstate.queries import past
from clusterstate.queries.fleet import FleetNode, total, worries
from clusterstate.queries.lists import list_page

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_OVER: Final = ("Succeeded", "Failed")
_LEAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PODS: Final = KINDS["Pod"]
_decode_node = msgspec.json.Decoder(Node).decode
_decode_pod = msgspec.json.Decoder(Pod).decode
_decode_amounts = msgspec.json.Decoder(dict[str, int]).decode
_decode_condition = msgspec.json.Decoder(PodCondition).decode


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What of a pod's spec says where it is and what it asks for, the latter as it is written."""

    node_name: str = ""
    containers: msgspec.Raw = msgspec.Raw(b"")
    init_containers: msgspec.Raw = msgspec.Raw(b"")
    overhead: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    container_statuses: msgspec.Raw = msgspec.Raw(b"")
    init_container_statuses: msgspec.Raw = msgspec.Raw(b"")
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class _Glance(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod, as far as it has to be read if another one asked for the same."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_glance = msgspec.json.Decoder(_Glance).decode
_WORDS: Final = '"message":'
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
                    a.created))
FROM alive a JOIN scheduling_class k ON k.id = a.class_id
GROUP BY a.node_name, k.extended, substr(a.unschedulable, strpos(a.unschedulable, '{_WORDS}'))
UNION ALL
SELECT NULL, trimmed_revision, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM history WHERE id = 1
"""
"""What unfinished pods asked of each node, by extended resources; those that waited, on the node
named by nothing, by the end of their PodScheduled condition, which is JSON with sorted members; and
where the log begins.

A pod has one version at a revision: its row, or what the one change ended that names it as before.
The change of a pod that went away has the time at which the pod was to end, if there was one. The
database searches texts instead of reading JSON, since it fails at an escaped NUL.
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
    names it. Versions that were packed are read one by one. Queries three times or more.

    Raises:
        Expired: that is no longer known.
    """
    sums = _Sums()
    log = 0
    for name, pods, ending, *amounts, words, title, since in sql.fetch(_SUMS, (revision,) * 3):
        if name is None:
            log = pods
        elif name:
            sums.add(name, pods, ending, *amounts)
        else:
            sums.wait(_group(title, pods, words, since))
    if revision < log:
        past.require(revision)
        for text in past.bodies_at(_PODS, revision, log):
            sums.count(text)
        past.require(revision)  # none of it was dropped meanwhile
    nodes = list_page("Node", at=revision).items
    items = [_node(_decode_node(text), sums, revision) for text in nodes]
    groups = sorted(sums.waited.values(), key=lambda one: (-one.pods, one.namespace, one.name))
    return PastFleet(items, groups, sum(one.pods for one in groups))


def node_at(revision: int, node: bytes, pods: Iterable[bytes]) -> FleetNode:
    """Return a node of then, by its version and those of all pods that were on it."""
    sums = _Sums()
    for text in pods:
        sums.count(text)
    return _node(_decode_node(node), sums, revision)


class _Sums:
    """What is added up: what each node was asked for, how many left it, and who waited for what."""

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, int]] = {}
        self.leaving: dict[str, int] = {}
        self.waited: dict[str, Waited] = {}
        self._requests: dict[tuple[bytes, ...], dict[str, int]] = {}

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
        """Add pods of a node that ask for the same extended resources each."""
        amounts = {"pods": pods, "cpu": cpu, "memory": memory, "ephemeral-storage": ephemeral}
        more = {resource: each * pods for resource, each in _decode_amounts(extended).items()}
        self._add(name, {**amounts, **more}, ending)

    def count(self, text: bytes) -> None:
        """Add a version of then to what was asked of its node, or to the pods that waited."""
        seen = _glance(text)
        if seen.status.phase in _OVER:
            return
        if not seen.spec.node_name:
            self.wait(_waiting(_decode_pod(text)))
            return
        ending = 1 if seen.metadata.deletion_timestamp else 0
        self._add(seen.spec.node_name, self._requests_of(seen, text), ending)

    def wait(self, group: Waited) -> None:
        """Put pods that waited together with those that waited with the same words."""
        known = self.waited.get(group.message)
        if known is None:
            self.waited[group.message] = group
            return
        first = min(known, group, key=lambda one: (one.namespace, one.name))
        earlier = [at for at in (known.since, group.since) if at is not None]
        self.waited[group.message] = msgspec.structs.replace(
            first, pods=known.pods + group.pods, since=min(earlier, default=None)
        )

    def _add(self, name: str, amounts: dict[str, int], ending: int) -> None:
        use = self.asked.get(name)
        if use is None:
            self.asked[name] = dict(amounts)
        else:
            for resource, amount in amounts.items():
                use[resource] = use.get(resource, 0) + amount
        if ending:
            self.leaving[name] = self.leaving.get(name, 0) + ending

    def _requests_of(self, seen: _Glance, text: bytes) -> dict[str, int]:
        """Return what a pod asks for, as its scheduling class has it, and one pod.

        Of many that are written alike the first one is read; one whose agent tells what it holds is
        read by itself.
        """
        spec = seen.spec
        if _tells_amounts(seen.status):
            whole = scheduling_class.reduce(msgspec.json.decode(text))
            return {"pods": 1, **pod_request_ints(msgspec.convert(whole, Pod))}
        written = tuple(
            bytes(one)
            for one in (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        )
        found = self._requests.get(written)
        if found is None:
            pod = msgspec.structs.replace(_decode_pod(text), status=PodStatus())
            found = self._requests[written] = {"pods": 1, **pod_request_ints(pod)}
        return found


def _tells_amounts(status: _Status) -> bool:
    return bool(bytes(status.allocated_resources) or bytes(status.resources)) or any(
        word in bytes(one)
        for one in (status.container_statuses, status.init_container_statuses)
        for word in (b'"allocatedResources"', b'"resources"')
    )


def _waiting(pod: Pod) -> Waited:
    words, since = "", pod.metadata.creation_timestamp
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            words = one.message or one.reason
            since = one.last_transition_time or since
    moment = document.parse_time(since) if since else None
    return Waited(1, pod.metadata.namespace, pod.metadata.name, moment, words)


def _group(key: str, pods: int, condition: str | None, since: str | None) -> Waited:
    """Return pods whose PodScheduled condition ends alike; all of it, where it has no message."""
    words, moment = "", None
    if condition:
        text = f"{{{condition}" if condition.startswith(_WORDS) else condition
        with suppress(msgspec.DecodeError):
            found = _decode_condition(text)
            words = found.message or found.reason
    with suppress(ValueError):
        moment = document.parse_time(since) if since else None
    namespace, _, name = key.partition(" ")
    return Waited(pods, namespace, name, moment, words)


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
        asked=sums.asked.get(name, {}),
        leaving=sums.leaving.get(name, 0),
    )
