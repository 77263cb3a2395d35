"""The node life cycle: silence sets conditions, conditions set taints, as fast as zones allow.

A pass every few seconds loads nodes and heartbeats, calls ``lifecycle_rules.monitor`` and writes
differences. Zones and their token buckets are in a row, so that a restart does not refill a
limiter's burst. Heartbeats by Lease are no changes: they wake no controller.

A node that never had an agent, because a client only described it, never counts as silent. Its
conditions become taints as well, but a taint for a condition that it does not have was set by a
client, and stays.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog
from django.conf import settings

from clusterstate.actions import evictions, objects
from clusterstate.actions.agents import node_heartbeats
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.database import locks
from clusterstate.objects.rules.node_taints import BY_CONDITION, UNSCHEDULABLE
from clusterstate.objects.values.actor import NODE_LIFECYCLE, acts_as
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, NodeCondition, Taint
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import stored_state
from clusterstate.queries.nodes import node_revisions, nodes_by_id
from scheduling.controllers.nodes.lifecycle_rules import (
    NodeObservation,
    Pass,
    TokenBucket,
    Zone,
    ZoneState,
    monitor,
    observe,
)
from scheduling.controllers.nodes.lifecycle_settings import lifecycle_settings

logger = structlog.get_logger(__name__)

NAME = "node-lifecycle"
COMPONENT = "node-controller"
_decode_node = msgspec.json.Decoder(Node).decode
_CONDITION_OF = {
    key: condition for condition, keys in BY_CONDITION.items() for key in keys.values()
}


class _Known(msgspec.Struct, frozen=True):
    revision: int
    sign: str
    looked: NodeObservation


_known: dict[int, _Known] = {}
"""Nodes by id; a node that did not change is neither read nor judged again."""


_unreadable: dict[int, int] = {}
"""Nodes that were set aside, by id, and at which revision."""
memory.when_replaced(_known.clear)
memory.when_replaced(_unreadable.clear)


def _nodes(now: datetime) -> list[_Known]:
    """Return all nodes that decode, oldest first. Queries once, twice if some changed."""
    rows = node_revisions()
    changed = [
        id_
        for id_, revision in rows
        if ((cached := _known.get(id_)) is None or cached.revision != revision)
        and _unreadable.get(id_) != revision
    ]

    def read(found: Sequence[tuple[int, int, bytes]]) -> None:
        for id_, revision, manifest in found:
            node = _decode_node(manifest)
            _known[id_] = _Known(revision, _sign(node), observe(node))

    def pass_over(found: tuple[int, int, bytes]) -> None:
        id_, revision, _ = found
        _known.pop(id_, None)
        _unreadable[id_] = revision

    aside.each(
        NAME,
        nodes_by_id(changed),
        read,
        which=lambda one: ObjectRef("Node", one[0]),
        now=now,
        instead=pass_over,
    )
    present = {row[0] for row in rows}
    for gone in _known.keys() - present:
        _known.pop(gone, None)
    for gone in _unreadable.keys() - present:
        _unreadable.pop(gone, None)
    return [node for row in rows if (node := _known.get(row[0])) is not None]


@acts_as(NODE_LIFECYCLE)
def run(now: datetime) -> int:
    """Make one pass unless another worker makes one; return how many nodes changed."""
    with locks.alone(locks.NODE_LIFECYCLE) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    stored = stored_state(NAME)
    nodes = _nodes(now)
    signs = {one.looked.node.metadata.name: one.sign for one in nodes}
    heard_at = node_heartbeats.note(signs, now=now)
    if _was_away(stored, now):
        node_heartbeats.reset(now=now)
        heard_at = dict.fromkeys(heard_at, now)
    nodes, result = _judged(nodes, heard_at, _zones(stored), now)
    if result.reset_heartbeats:
        node_heartbeats.reset(now=now)
    state = {
        "passed_at": now.isoformat(),
        "zones": {name: _zone_wire(zone) for name, zone in result.zones.items()},
        "unready": stored.get("unready", []),
        "waiting": list(result.waiting),
    }
    # Tokens are spent before the taints are written: a crash in between loses some, and adds none.
    controller_state.set_state(NAME, state)
    before = {one.looked.node.metadata.name: one for one in nodes} if result.changes else {}
    written = 0
    news: list[Occurrence] = []
    for change in result.changes:
        name = change.name
        node = before[name].looked.node
        taints = change.taints
        if taints is not None and name not in heard_at:
            taints = _with_foreign(node, taints)
        if taints == node.spec.taints:
            taints = None
        if change.conditions is None and taints is None:
            continue
        write = partial(_write, name, before[name].revision, change.conditions, taints, now)
        if aside.one(NAME, aside.node(name), write, now=now, instead=lambda: False):
            written += 1
            if change.conditions is not None:
                news.append(_event(node, "NodeNotReady"))
    were, are = set(stored.get("unready", ())), set(result.unready)
    lost, back = sorted(are - were), were - are
    if back:
        there = (one.looked.node for one in nodes)
        news += [_event(node, "NodeReady") for node in there if node.metadata.name in back]
    if lost:
        node_heartbeats.mark_pods_not_ready(lost, now=now)
    if list(result.unready) != state["unready"]:
        controller_state.set_state(NAME, {**state, "unready": list(result.unready)})
    if news:
        evictions.record(news, now=now)
    if written:
        logger.info("nodes_judged", changed=written, waiting=len(result.waiting))
    return written


def _judged(
    nodes: list[_Known], heard_at: Mapping[str, datetime], zones: Mapping[str, Zone], now: datetime
) -> tuple[list[_Known], Pass]:
    """Return the changes of the pass, and the judged nodes; nodes that fail are set aside."""

    def judge(some: Sequence[_Known]) -> Pass:
        looked = [one.looked for one in some]
        return monitor(
            looked, heard_at=heard_at, zones=zones, now=now, settings=lifecycle_settings()
        )

    def one_by_one(some: Sequence[_Known]) -> list[_Known]:
        for one in some:
            judge([one])
        return list(some)

    try:
        return nodes, judge(nodes)
    except Exception as error:
        if not aside.is_an_objects_fault(error):
            raise
    good = aside.each(
        NAME,
        nodes,
        one_by_one,
        which=lambda one: aside.node(one.looked.node.metadata.name),
        now=now,
    )
    judged = [one for some in good for one in some]
    return judged, judge(judged)


def _sign(node: Node) -> str:
    """Return the last heartbeat in the node's status, empty if there is none."""
    return max((c.last_heartbeat_time or "" for c in node.status.conditions), default="")


def _was_away(state: dict[str, Any], now: datetime) -> bool:
    """Return whether the last pass is too long ago to judge agents by their silence."""
    if "passed_at" not in state:
        return False
    patience = timedelta(seconds=settings.NODE_MONITOR_GRACE_SECONDS / 2)
    return now - datetime.fromisoformat(state["passed_at"]) > patience


def _with_foreign(node: Node, taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints, plus those of a node without an agent that no condition governs."""
    types = {condition.type for condition in node.status.conditions}
    identities = {(taint.key, taint.effect) for taint in taints}
    present = {(taint.key, taint.effect) for taint in node.spec.taints}
    stays = [
        taint
        for taint in node.spec.taints
        if (taint.key, taint.effect) in identities
        or (taint.key != UNSCHEDULABLE and _CONDITION_OF.get(taint.key) not in types)
    ]
    return (*stays, *(t for t in taints if (t.key, t.effect) not in present))


# Writing --------------------------------------------------------------------------------------


def _write(
    name: str,
    revision: int,
    conditions: tuple[NodeCondition, ...] | None,
    taints: tuple[Taint, ...] | None,
    now: datetime,
) -> bool:
    """Write a node's conditions and taints; False if it changed since it was judged."""
    expected = revision
    try:
        if conditions is not None:

            def with_conditions(manifest: Manifest) -> Manifest:
                if manifest["metadata"]["resourceVersion"] != str(expected):
                    return manifest
                status = manifest.get("status") or {}
                return {
                    **manifest,
                    "status": {**status, "conditions": _condition_wire(status, conditions)},
                }

            stored = objects.update(
                "Node", "", name, with_conditions, subresource="status", now=now
            )
            if not stored.changed:
                return False
            expected = stored.revision
        if taints is not None:

            def with_taints(manifest: Manifest) -> Manifest:
                if manifest["metadata"]["resourceVersion"] != str(expected):
                    return manifest
                spec = {**(manifest.get("spec") or {}), "taints": [_taint_wire(t) for t in taints]}
                if not taints:
                    del spec["taints"]
                return {**manifest, "spec": spec}

            changed = objects.update("Node", "", name, with_taints, now=now).changed
            return changed or conditions is not None
    except NotFound:
        return False
    return True


def _condition_wire(status: Manifest, conditions: tuple[NodeCondition, ...]) -> list[Manifest]:
    present = {one.get("type"): one for one in status.get("conditions") or ()}
    result = []
    for one in conditions:
        entry = {
            **present.get(one.type, {}),
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
        }
        if one.last_heartbeat_time:
            entry["lastHeartbeatTime"] = one.last_heartbeat_time
        if one.last_transition_time:
            entry["lastTransitionTime"] = one.last_transition_time
        result.append(entry)
    return result


def _taint_wire(taint: Taint) -> Manifest:
    entry = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        entry["value"] = taint.value
    if taint.time_added:
        entry["timeAdded"] = taint.time_added
    return entry


def _event(node: Node, status: str) -> Occurrence:
    """Return the event of a node that was lost (``NodeNotReady``) or came back (``NodeReady``)."""
    name = node.metadata.name
    return Occurrence(
        kind="Node",
        namespace="",
        name=name,
        uid=node.metadata.uid,
        reason=status,
        message=f"Node {name} status is now: {status}",
        component=COMPONENT,
    )


# What is kept ---------------------------------------------------------------------------------


def _zones(state: Mapping[str, Any]) -> dict[str, Zone]:
    return {
        name: Zone(
            name=name,
            state=ZoneState(one["state"]),
            bucket=TokenBucket(
                rate=one["rate"],
                tokens=one["tokens"],
                at=datetime.fromisoformat(one["at"]),
                burst=one["burst"],
            ),
            waited=one.get("waited", False),
        )
        for name, one in state.get("zones", {}).items()
    }


def _zone_wire(zone: Zone) -> dict[str, Any]:
    bucket = zone.bucket
    return {
        "state": str(zone.state),
        "rate": bucket.rate,
        "tokens": bucket.tokens,
        "at": bucket.at.isoformat(),
        "burst": bucket.burst,
        "waited": zone.waited,
    }
