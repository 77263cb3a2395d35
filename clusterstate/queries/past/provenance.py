"""Why a pod left: preemptors and victims, and the taint behind an eviction.

A victim's last changes name the preempting pod (`objects.values.actor`), and that pod's decision is
the last one before; a decision's victims are the pods that left for its pod right after it. An
eviction for a taint follows from a change of the node: the one that added the taint, which is found
by going back through the node's versions.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import eviction
from clusterstate.objects.values import causes
from clusterstate.objects.values.actor import KUBE_SCHEDULER
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import Pod
from clusterstate.queries import past

_POD: Final = KINDS["Pod"]
_NODE: Final = KINDS["Node"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MADE_ROOM_WITHIN: Final = timedelta(minutes=1)
"""Victims leave right after the decision; the log is searched for them this long after it."""
_DECIDED_WITHIN: Final = (timedelta(seconds=10), timedelta(minutes=10))
"""The decision is searched this long before its victims left; the first nearly always finds it."""
_VERSIONS_BACK: Final = 200
"""How many versions of a node are looked at for the one that brought a taint."""


class Victim(msgspec.Struct, frozen=True):
    """A pod that was preempted, and when."""

    namespace: str
    name: str
    at: datetime
    revision: int


class Preemptor(msgspec.Struct, frozen=True):
    """The preempting pod, and the id of its decision; 0: it is not kept."""

    namespace: str
    name: str
    decision: int


class TaintChange(msgspec.Struct, frozen=True):
    """The change of a node that added a taint, and its user.

    ``revision`` is 0 and the user empty if that change is not kept any more.
    """

    node_name: str
    taint: Taint
    revision: int = 0
    at: datetime | None = None
    actor: str = ""
    impersonator: str = ""
    request: str = ""


# Preemption --------------------------------------------------------------------------------------

_VICTIMS: Final = f"""
    SELECT DISTINCT ON (c.object_id) c.object_id, c.namespace, c.name, c.at, c.revision
    FROM change c JOIN actor a ON a.id = c.actor_id
    WHERE c.cause = %s::uuid AND (c.verb = {changes.DELETED} OR c.deletion_at IS NOT NULL)
      AND c.kind = {_POD.code} AND a.name = '{KUBE_SCHEDULER.name}'
    ORDER BY c.object_id, c.revision
"""
_UID: Final = """
    SELECT uid::text FROM pod WHERE id = %s::bigint
    UNION ALL
    (SELECT pod_uid::text FROM decision
     WHERE namespace = %s AND name = %s AND pod_id = %s::bigint LIMIT 1)
"""
_DECISION: Final = """
    SELECT snapshot_revision, at, pod_uid::text FROM decision WHERE id = %s::bigint
"""
_LIVING: Final = "SELECT namespace, name FROM pod WHERE uid = %s::uuid"
# OFFSET keeps the planner from reading backwards from the newest decision of all.
_DECIDED: Final = """
    SELECT d.namespace, d.name, d.id FROM (
        SELECT namespace, name, id FROM decision
        WHERE pod_uid = %s::uuid AND outcome = 'unschedulable' AND snapshot_revision < %s::bigint
          AND at > %s::timestamptz AND at <= %s::timestamptz OFFSET 0) d
    ORDER BY d.id DESC LIMIT 1
"""


def victims_of(namespace: str, name: str, pod_id: int) -> list[Victim]:
    """Return the pods that were preempted for a pod, as far back as the past is kept.

    Queries four times, however often the pod was refused.
    """
    row = sql.fetch_one(_UID, (pod_id, namespace, name, pod_id))
    return [] if row is None else _victims(row[0])


def victims_of_decision(decision: int) -> list[Victim]:
    """Return the pods that were preempted for a decision, as far as the past is kept."""
    row = sql.fetch_one(_DECISION, (decision,))
    if row is None:
        return []
    revision, at, uid = row
    until = at + _MADE_ROOM_WITHIN
    return [one for one in _victims(uid) if one.revision > revision and one.at <= until]


def _victims(uid: str) -> list[Victim]:
    found = {row[0]: Victim(*row[1:]) for row in sql.fetch(_VICTIMS, (uid,))}
    reach = past.reach()
    first: dict[int, Victim] = {}
    for entry in past.caused_by(_POD, uid, reach.since, reach.log):
        if entry.actor == KUBE_SCHEDULER.name and entry.object_id not in first:
            when = _EPOCH + timedelta(microseconds=entry.at)
            victim = Victim(entry.namespace, entry.name, when, entry.revision)
            first[entry.object_id] = victim
    # A pod's deletion may begin in the packed past and end in the log.
    return sorted({**found, **first}.values(), key=lambda one: one.revision)


def preemptor_of(uid: str, revision: int, at: datetime) -> Preemptor | None:
    """Return the pod for which another one was preempted by a change; ``None`` if unknown.

    Queries once as a rule, three times if the decision is not kept.
    """
    for before in _DECIDED_WITHIN:
        row = sql.fetch_one(_DECIDED, (uid, revision, at - before, at))
        if row is not None:
            return Preemptor(*row)
    row = sql.fetch_one(_LIVING, (uid,))
    return None if row is None else Preemptor(row[0], row[1], 0)


# Plans and brakes --------------------------------------------------------------------------------


class Provenance(msgspec.Struct, frozen=True):
    """The applied plan, or the approval of a brake, that caused a change.

    ``name``, ``by`` and ``at`` are empty if it is not kept any more.
    """

    kind: str
    uid: str
    name: str = ""
    by: str = ""
    at: datetime | None = None


_OF_PLAN: Final = "SELECT name, applied_by, applied_at FROM plan WHERE id = %s::bigint"
_OF_APPROVAL: Final = """
    SELECT scope || '.' || name, approved_by, approved_at FROM brake_approval WHERE id = %s::bigint
"""
_GONE_FOR: Final = f"""
    SELECT * FROM (
        SELECT DISTINCT ON (c.object_id) c.object_id, c.namespace, c.name, c.at, c.revision
        FROM change c
        WHERE c.cause = %s::uuid AND (c.verb = {changes.DELETED} OR c.deletion_at IS NOT NULL)
          AND c.kind = {_POD.code}
        ORDER BY c.object_id, c.revision) g
    ORDER BY g.revision LIMIT %s::bigint
"""


def wanted_by(cause: str) -> Provenance | None:
    """Return the plan or approval with the id in a change's ``cause``, ``None`` for other causes.

    Queries once; not for other causes.
    """
    if not causes.is_own(cause):
        return None
    uid = uuid.UUID(cause)
    for kind, name, statement in (
        (causes.PLAN, "Plan", _OF_PLAN),
        (causes.APPROVAL, "Brake", _OF_APPROVAL),
    ):
        number = causes.number_of(uid, kind)
        if number is not None:
            row = sql.fetch_one(statement, (number,))
            return Provenance(name, cause, *(row or ()))
    return None


def gone_for(cause: str, *, limit: int) -> list[Victim]:
    """Return the pods that left because of a plan, an approval or a request, in order.

    At most ``limit``: a request may delete all pods of a cluster. As far back as the log reaches,
    and for plans and approvals as far as the past is kept.
    """
    found = {row[0]: Victim(*row[1:]) for row in sql.fetch(_GONE_FOR, (cause, limit))}
    if causes.is_own(cause):
        reach = past.reach()
        for entry in past.caused_by(_POD, cause, reach.since, reach.log):
            when = _EPOCH + timedelta(microseconds=entry.at)
            found[entry.object_id] = Victim(entry.namespace, entry.name, when, entry.revision)
    return sorted(found.values(), key=lambda one: one.revision)[:limit]


# Evictions ---------------------------------------------------------------------------------------

_decode_node = msgspec.json.Decoder(Node).decode
_decode_pod = msgspec.json.Decoder(Pod).decode


def taint_behind(namespace: str, name: str, revision: int, at: datetime) -> TaintChange | None:
    """Return the taint that evicted a pod with a change, and who added it.

    ``None`` if node and pod of that moment are not known any more. Queries up to four times for
    each version of the node that it reads.
    """
    try:
        body = past.find_at(_POD, namespace, name, revision)
        pod = None if body is None else _decode_pod(body)
        if pod is None or not pod.spec.node_name:
            return None
        node = past.find_at(_NODE, "", pod.spec.node_name, revision)
        if node is None:
            return None
        taint = _taint_for(pod, _decode_node(node), at)
        return None if taint is None else _brought(pod.spec.node_name, taint, node)
    except Expired:
        return None


def _taint_for(pod: Pod, node: Node, at: datetime) -> Taint | None:
    counted = eviction.countdowns(
        pod.spec.tolerations, node.spec.taints, added_at=at, comparison_operators=True
    )
    first = eviction.deadline(counted, at)
    return None if first is None else first.taint


def _brought(node_name: str, taint: Taint, body: bytes) -> TaintChange:
    """Return the change that added a taint to a node, going back from a version of it."""
    identity = (taint.key, taint.effect, taint.value)
    found = TaintChange(node_name, taint)
    for _ in range(_VERSIONS_BACK):
        revision = int(_version(body))
        try:
            before = past.find_at(_NODE, "", node_name, revision - 1)
        except Expired:
            return found
        if before is None or identity not in _taints(before):
            return _who(found, revision)
        body = before
    return found


def _version(body: bytes) -> str:
    manifest: Manifest = msgspec.json.decode(body)
    version: str = manifest["metadata"]["resourceVersion"]
    return version


def _taints(body: bytes) -> set[tuple[str, str, str]]:
    return {(one.key, one.effect, one.value) for one in _decode_node(body).spec.taints}


_WHO: Final = """
    SELECT c.at, coalesce(a.name, ''), coalesce(a.impersonator, ''), coalesce(c.cause::text, '')
    FROM change c LEFT JOIN actor a ON a.id = c.actor_id WHERE c.revision = %s::bigint
"""


def _who(found: TaintChange, revision: int) -> TaintChange:
    row = sql.fetch_one(_WHO, (revision,))
    if row is None:
        row = next(_packed(found.node_name, revision), None)
    if row is None:
        return found
    at, actor, impersonator, request = row
    return msgspec.structs.replace(
        found, revision=revision, at=at, actor=actor, impersonator=impersonator, request=request
    )


def _packed(node_name: str, revision: int) -> Iterator[sql.Row]:
    for entry in past.changes_of(_NODE, "", node_name, revision + 1):
        if entry.revision == revision:
            when = _EPOCH + timedelta(microseconds=entry.at)
            yield when, entry.actor, entry.impersonator, entry.cause
        return


def shown(found: TaintChange, *, is_whole: bool) -> Manifest:
    """Return the cause of a taint as JSON; unknown parts are left out.

    Unless ``is_whole``, the user is left out, too.
    """
    taint = {"key": found.taint.key, "effect": found.taint.effect}
    if found.taint.value:
        taint["value"] = found.taint.value
    manifest: Manifest = {"nodeName": found.node_name, "taint": taint}
    if not is_whole:
        return manifest
    if found.revision:
        manifest["resourceVersion"] = str(found.revision)
    if found.at is not None:
        manifest["time"] = format_time(found.at)
    if found.actor:
        manifest["user"] = {"username": found.actor}
        if found.impersonator:
            manifest["user"]["impersonatedBy"] = found.impersonator
    if found.request and not causes.is_own(found.request):
        manifest["auditID"] = found.request
    return manifest
