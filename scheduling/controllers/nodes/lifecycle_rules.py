"""Rules of the node life cycle: taints by condition and heartbeat, zones and their rates.

Pure: takes nodes, zones and the time; returns changes. ``observe`` computes what depends on a node
alone, once for each version of it; ``monitor`` is one pass over all nodes and calls the rest; a
controller loads the values, calls it and writes differences. Rules:
pkg/controller/nodelifecycle/node_lifecycle_controller.go, v1.36 (R126-R134, C17, C23).

* A node without a heartbeat for the grace period gets the conditions ``Unknown``.
* Conditions and ``spec.unschedulable`` become NoSchedule taints, at once (R133).
* ``Ready`` False or Unknown becomes a NoExecute taint, as fast as the node's zone allows (R129);
  when the node recovers, both are removed at once (R128).
* A zone with no ready node is *fully*, one with many unready ones *partially* disrupted. While all
  zones are fully disrupted, the cause is likely this service and not the nodes: no NoExecute taint
  is added, and present ones are removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from clusterstate.objects.rules.matching import NO_EXECUTE, NO_SCHEDULE, taint_exists
from clusterstate.objects.rules.node_taints import (
    BY_CONDITION,
    EVICTING,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from clusterstate.objects.values import moments
from clusterstate.objects.values.node import Node, NodeCondition, Taint

_MANAGED = frozenset(
    {UNSCHEDULABLE} | {key for keys in BY_CONDITION.values() for key in keys.values()}
)
_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_STOPPED = "Kubelet stopped posting node status."
_NEVER = "Kubelet never posted node status."

ZONE_LABELS = (
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Grace periods and rates of NoExecute taints, per second and zone."""

    grace_period_seconds: float = 40
    startup_grace_period_seconds: float | None = None
    """How long a node may take to report for the first time (Kubernetes: 60). None leaves nodes
    without an agent alone: no agent reports for a node that was only described over the API."""
    eviction_rate: float = 0.1
    secondary_eviction_rate: float = 0.01
    unhealthy_zone_threshold: float = 0.55
    large_cluster_size: int = 50
    """A partially disrupted zone of at most this many nodes gets no NoExecute taints at all."""
    pass_seconds: float = 0
    """Seconds between two passes. A zone's bucket holds the tokens of that time, one at least; in a
    zone where a node waits it holds twice as many, because a pass that comes late would lose tokens
    otherwise, and each delay would slow the taints down for good."""


# --- conditions to taints ------------------------------------------------------------------------


def ready_status(conditions: Iterable[NodeCondition]) -> str | None:
    """Return the status of the condition ``Ready``, None if the node has none."""
    return next((one.status for one in conditions if one.type == "Ready"), None)


def condition_taints(node: Node) -> list[Taint]:
    """Return the NoSchedule taints that conditions and ``spec.unschedulable`` require (R133)."""
    keys = []
    for condition in node.status.conditions:
        by_status = BY_CONDITION.get(condition.type)
        key = by_status.get(condition.status) if by_status is not None else None
        if key is not None and key not in keys:
            keys.append(key)
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    return [Taint(key=key, effect=NO_SCHEDULE) for key in keys]


def with_condition_taints(node: Node) -> tuple[Taint, ...]:
    """Return the node's taints, with the NoSchedule taints that its conditions require.

    Taints of other keys or effects stay as they are, in their order; new ones come last.
    """
    required = condition_taints(node)
    if not required and not node.spec.taints:
        return ()
    remaining = [
        taint
        for taint in node.spec.taints
        if taint.effect != NO_SCHEDULE or taint.key not in _MANAGED or taint_exists(required, taint)
    ]
    missing = [taint for taint in required if not taint_exists(remaining, taint)]
    return (*remaining, *missing)


def no_execute_key(ready: str | None) -> str | None:
    """Return the key of the NoExecute taint for a status of ``Ready``, None for a ready node.

    A node without the condition has no agent (yet); ``silent_since`` judges silence (R126).
    """
    return {"False": NOT_READY, "Unknown": UNREACHABLE}.get(ready or "")


# --- silence -------------------------------------------------------------------------------------


def silent_since(node: Node, heard_at: datetime | None, *, settings: Settings) -> datetime | None:
    """Return the moment from which the node counts as silent; None for never.

    Args:
        node: the node.
        heard_at: when its agent last reported, by status or by Lease, on this service's clock;
            None if it never did: then the startup grace period counts from its creation.
        settings: the grace periods.
    """
    if heard_at is not None:
        return moments.after(heard_at, settings.grace_period_seconds)
    patience, created = settings.startup_grace_period_seconds, node.metadata.creation_timestamp
    if patience is None or created is None:
        return None
    return moments.after(moments.parse(created), patience)


def with_unknown_conditions(node: Node, now: datetime) -> tuple[NodeCondition, ...]:
    """Return the conditions of a node that went silent: the watched ones are Unknown.

    A condition that is Unknown already keeps its transition time; one that is missing is added.
    """
    stamp = _text(now)
    unreported = dict.fromkeys(_WATCHED)
    result = []
    for condition in node.status.conditions:
        if condition.type in unreported:
            del unreported[condition.type]
            if condition.status != "Unknown":
                result.append(
                    msgspec.structs.replace(
                        condition,
                        status="Unknown",
                        reason="NodeStatusUnknown",
                        message=_STOPPED,
                        last_transition_time=stamp,
                    )
                )
                continue
        result.append(condition)
    missing = (
        NodeCondition(
            type=kind,
            status="Unknown",
            reason="NodeStatusNeverUpdated",
            message=_NEVER,
            last_heartbeat_time=node.metadata.creation_timestamp,
            last_transition_time=stamp,
        )
        for kind in unreported
    )
    return (*result, *missing)


def _text(moment: datetime) -> str:
    """Return RFC 3339 in UTC, whole seconds, as metav1.Time writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# --- zones ---------------------------------------------------------------------------------------


class ZoneState(StrEnum):
    """The state of a zone."""

    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


def zone_of(labels: Mapping[str, str]) -> str:
    """Return the zone's name, ``region/zone``; empty for a node without one."""
    parts = [next((labels[key] for key in keys if labels.get(key)), "") for keys in ZONE_LABELS]
    return "/".join(parts) if any(parts) else ""


def zone_state(*, ready: int, not_ready: int, settings: Settings) -> ZoneState:
    """Return the state of a zone with this many nodes (ComputeZoneState)."""
    if ready == 0 and not_ready > 0:
        return ZoneState.FULL_DISRUPTION
    if not_ready > 2 and not_ready / (ready + not_ready) >= settings.unhealthy_zone_threshold:
        return ZoneState.PARTIAL_DISRUPTION
    return ZoneState.NORMAL


def zone_rate(state: ZoneState, size: int, *, settings: Settings) -> float:
    """Return how many NoExecute taints a second a zone of ``size`` nodes may get (R129)."""
    if state is ZoneState.PARTIAL_DISRUPTION:
        large = size > settings.large_cluster_size
        return settings.secondary_eviction_rate if large else 0.0
    return settings.eviction_rate


def zone_rates(
    nodes: Iterable["NodeObservation"], settings: Settings
) -> tuple[dict[str, tuple[ZoneState, float]], bool]:
    """Return state and rate of each zone with nodes, and whether all are fully disrupted.

    While they are, no node gets a taint.
    """
    counts: dict[str, list[int]] = {}
    for one in nodes:
        counts.setdefault(one.zone, [0, 0])[one.taint_key is None] += 1
    states = {
        name: zone_state(ready=ready, not_ready=not_ready, settings=settings)
        for name, (not_ready, ready) in counts.items()
    }
    full = ZoneState.FULL_DISRUPTION
    all_disrupted = bool(states) and all(state is full for state in states.values())
    rates = {
        name: 0.0 if all_disrupted else zone_rate(state, sum(counts[name]), settings=settings)
        for name, state in states.items()
    }
    return {name: (state, rates[name]) for name, state in states.items()}, all_disrupted


# --- token bucket --------------------------------------------------------------------------------


class TokenBucket(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limiter as a value: it had ``tokens`` at ``at``, and gains ``rate`` per second.

    Never more than ``burst`` tokens. It can be stored in a row and read by another process.
    """

    rate: float
    tokens: float
    at: datetime
    burst: float = 1

    def filled(self, now: datetime) -> "TokenBucket":
        """Return the bucket as it is at ``now``; a clock that went back adds nothing."""
        elapsed = max((now - self.at).total_seconds(), 0.0)
        tokens = min(self.tokens + elapsed * self.rate, self.burst)
        return msgspec.structs.replace(self, tokens=tokens, at=now)

    def take(self, now: datetime) -> tuple["TokenBucket", bool]:
        """Return the bucket after an attempt to take a token, and whether there was one."""
        bucket = self.filled(now)
        # A rate such as 0.1 does not add up to exactly one in binary.
        if bucket.tokens < 1 - 1e-9:
            return bucket, False
        return msgspec.structs.replace(bucket, tokens=max(bucket.tokens - 1, 0.0)), True

    def with_rate(self, rate: float, now: datetime) -> "TokenBucket":
        """Return the bucket with another rate from ``now`` on; a rate of 0 empties it."""
        bucket = self.filled(now)
        tokens = bucket.tokens if rate > 0 else 0.0
        return msgspec.structs.replace(bucket, rate=rate, tokens=tokens)


def full_bucket(rate: float, now: datetime) -> TokenBucket:
    """Return a bucket with one token, none if the rate is 0."""
    return TokenBucket(rate=rate, tokens=1.0 if rate > 0 else 0.0, at=now)


# --- one pass ------------------------------------------------------------------------------------


class NodeObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A node judged by itself. ``taint_key``: the key of the NoExecute taint that it should have.

    ``settled``: it is ready and has the taints that it should have, so that a pass in which it is
    not silent changes nothing about it.
    """

    node: Node
    zone: str
    taint_key: str | None
    settled: bool


def observe(node: Node) -> NodeObservation:
    """Return what depends on a node alone."""
    key = no_execute_key(ready_status(node.status.conditions))
    taints = node.spec.taints
    settled = key is None and with_condition_taints(node) == taints and not _evicting_keys(taints)
    return NodeObservation(
        node=node, zone=zone_of(node.metadata.labels), taint_key=key, settled=settled
    )


def _evicting_keys(taints: Iterable[Taint]) -> list[str]:
    return [t.key for t in taints if t.effect == NO_EXECUTE and t.key in EVICTING]


def awaits_taint(one: NodeObservation) -> bool:
    """Return whether a node is not ready and has no NoExecute taint for that yet."""
    return one.taint_key is not None and not _evicting_keys(one.node.spec.taints)


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a zone, kept between passes."""

    name: str
    state: ZoneState
    bucket: TokenBucket
    waited: bool = False
    """Whether some of its nodes waited for their NoExecute taint."""


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a pass to a node; ``None`` leaves conditions or taints as they are.

    New NoExecute taints have ``time_added`` set.
    """

    name: str
    conditions: tuple[NodeCondition, ...] | None = None
    taints: tuple[Taint, ...] | None = None


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pass.

    ``unready``: the nodes that are not ready now: their pods count as not ready. ``waiting``: the
    nodes whose NoExecute taint waits for the zone's limiter. ``reset_heartbeats``: all nodes were
    silent together and the first one returned, so all count as heard of now.
    """

    changes: tuple[NodeChange, ...]
    zones: dict[str, Zone]
    unready: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    reset_heartbeats: bool = False


def monitor(
    nodes: Sequence[NodeObservation],
    *,
    heard_at: Mapping[str, datetime],
    zones: Mapping[str, Zone],
    now: datetime,
    settings: Settings | None = None,
) -> Pass:
    """Return what one pass over all nodes changes.

    Args:
        nodes: every node, in the order in which waiting ones get their turn.
        heard_at: time of the last heartbeat of each node's agent, by name.
        zones: the zones of the last pass, by name; empty at the first.
        now: the time.
        settings: the limits; the defaults are Kubernetes'.
    """
    settings = settings or Settings()
    conditions: dict[str, tuple[NodeCondition, ...]] = {}
    current: list[NodeObservation] = []
    for before in nodes:
        one, name = before, before.node.metadata.name
        silent_at = silent_since(one.node, heard_at.get(name), settings=settings)
        if silent_at is not None and silent_at <= now:
            unknown = with_unknown_conditions(one.node, now)
            if unknown != one.node.status.conditions:
                conditions[name] = unknown
                one = observe(_with_conditions(one.node, unknown))
        current.append(one)

    next_zones, all_disrupted, returned = _next_zones(current, zones, now, settings)
    changes: list[NodeChange] = []
    waiting: list[str] = []
    waited: set[str] = set()
    unready: list[str] = []
    for before, one in zip(nodes, current, strict=True):
        if one.settled and one is before:
            continue
        name = one.node.metadata.name
        if one.taint_key is not None:
            unready.append(name)
        taints = with_condition_taints(one.node)
        present = _evicting_keys(taints)
        key = None if all_disrupted else one.taint_key
        if present != ([] if key is None else [key]):
            if key is not None and not present and not _take(next_zones, one.zone, now):
                waiting.append(name)
                waited.add(one.zone)
            else:
                taints = _with_no_execute(taints, key, now)
        new_taints = taints if taints != before.node.spec.taints else None
        if name in conditions or new_taints is not None:
            changes.append(
                NodeChange(
                    name=name,
                    conditions=conditions.get(name),
                    taints=new_taints,
                )
            )
    for zone in waited:
        next_zones[zone] = msgspec.structs.replace(next_zones[zone], waited=True)
    return Pass(
        changes=tuple(changes),
        zones=next_zones,
        unready=tuple(unready),
        waiting=tuple(waiting),
        reset_heartbeats=returned,
    )


def _with_conditions(node: Node, conditions: tuple[NodeCondition, ...]) -> Node:
    status = msgspec.structs.replace(node.status, conditions=conditions)
    return msgspec.structs.replace(node, status=status)


def _with_no_execute(
    taints: tuple[Taint, ...], key: str | None, now: datetime
) -> tuple[Taint, ...]:
    """Return the taints with the one of ``EVICTING`` with this key, or without any if it is None.

    A present one keeps its time.
    """
    remaining = tuple(
        t for t in taints if t.effect != NO_EXECUTE or t.key not in EVICTING or t.key == key
    )
    if key is None or any(t.key == key and t.effect == NO_EXECUTE for t in remaining):
        return remaining
    return (*remaining, Taint(key=key, effect=NO_EXECUTE, time_added=_text(now)))


def _take(zones: dict[str, Zone], name: str, now: datetime) -> bool:
    zone = zones[name]
    bucket, is_granted = zone.bucket.take(now)
    zones[zone.name] = msgspec.structs.replace(zone, bucket=bucket)
    return is_granted


def _next_zones(
    nodes: Sequence[NodeObservation], zones: Mapping[str, Zone], now: datetime, settings: Settings
) -> tuple[dict[str, Zone], bool, bool]:
    """Return the zones as they are now, whether all are fully disrupted, whether that just ended.

    Rule: handleDisruption. A zone without nodes is dropped.
    """
    found, all_disrupted = zone_rates(nodes, settings)
    disrupted = [zones[name].state is ZoneState.FULL_DISRUPTION for name in found if name in zones]
    were_disrupted = bool(disrupted) and all(disrupted)
    result: dict[str, Zone] = {}
    for name, (state, rate) in found.items():
        previous = zones.get(name)
        bucket = full_bucket(rate, now) if previous is None else previous.bucket
        if bucket.rate != rate:
            bucket = bucket.with_rate(rate, now)
        gathered = rate * settings.pass_seconds
        burst: float = max(1, int(gathered))
        if previous is not None and previous.waited:
            burst += gathered
        bucket = msgspec.structs.replace(bucket, burst=burst)
        result[name] = Zone(name=name, state=state, bucket=bucket)
    return result, all_disrupted, were_disrupted and not all_disrupted
