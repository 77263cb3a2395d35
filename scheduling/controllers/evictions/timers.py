"""Eviction timers: follows the log and writes a timer for each pod that must leave.

A follower of the change log with a cursor in a row. It processes nodes whose NoExecute taints or
labels changed, and pods that came to a node that evicts, whose tolerations changed, or that have a
timer already; ``judgement`` computes which pod must leave by when; ``actions.evictions.restate``
writes the timers in bulk.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from clusterstate.actions import evictions
from clusterstate.actions.loops import aside, controller_state
from clusterstate.change_log import changes
from clusterstate.processes import memory
from clusterstate.queries.evictions.eviction_news import NodeNews, eviction_news
from clusterstate.queries.evictions.eviction_timers import DURING_EXECUTION, TAINT
from clusterstate.queries.nodes import evicting_nodes
from clusterstate.queries.pods.stays import (
    ClassOnNode,
    executing_places,
    stays_of,
    stays_on,
)
from scheduling.controllers.evictions.judgement import (
    departures,
    departures_by_labels,
    rules_by_class,
)

logger = structlog.get_logger(__name__)

Item = TypeVar("Item")
NAME, BY_LABELS = evictions.FOLLOWER, evictions.FOLLOWER_OF_LABELS
_NODES_AT_ONCE = 200
_PODS_AT_ONCE = 20_000
_UNREMARKABLE = 500
_TELL_EVERY = timedelta(seconds=10)

_told_at: dict[str, datetime] = {}
"""When a cursor was last written although no change since the one before mattered, by name."""
memory.when_replaced(_told_at.clear)


def follow(now: datetime) -> int:
    """Update the timers up to the end of the log; return how many were dropped or written."""
    total = 0
    while True:
        cursor = controller_state.cursor(NAME)
        news = None if cursor is None else eviction_news(cursor)
        if news is None:
            return total + restate_everything(now)
        if not (news.nodes or news.pod_ids) and not _is_worth_a_commit(news.cursor, cursor, now):
            return total
        # Not one transaction: writing timers twice does no harm, advancing the cursor first would.
        total += restate_nodes([one.name for one in news.nodes if one.taints], now)
        total += _restate_labels(news.nodes, now)
        total += _restate_pods(news.pod_ids, now)
        controller_state.set_cursor(NAME, news.cursor)
        if not news.more:
            return total


def _is_worth_a_commit(reached: int, cursor: int | None, now: datetime) -> bool:
    """Return whether to write the cursor ``reached`` although no change up to it mattered.

    Reading such changes again costs less than a commit, so the cursor is written once for many of
    them, or after a while.
    """
    since = _told_at.setdefault(NAME, now)
    if reached - (cursor or 0) < _UNREMARKABLE and abs(now - since) < _TELL_EVERY:
        return False
    _told_at[NAME] = now
    return reached > (cursor or 0)


def restate_everything(now: datetime) -> int:
    """Compute all timers from pods and nodes: at the first start, or after a trim of the log."""
    cursor = changes.watermark()
    nodes = evicting_nodes()
    total = evictions.drop_other_nodes(nodes)
    total += restate_nodes(nodes, now)
    places = executing_places()
    names = sorted({place.node_name for place in places})
    for part in _parts(names, _NODES_AT_ONCE):
        chosen = set(part)
        mine = [place for place in places if place.node_name in chosen]
        total += _restate_places(mine, part, {}, now)
    controller_state.set_cursor(NAME, cursor)
    logger.info("timers_stated", timers=total, nodes=len(nodes), revision=cursor)
    return total


def restate_nodes(node_names: Sequence[str], now: datetime) -> int:
    """Rewrite the timers for the taints of these nodes; return how many were dropped or written."""

    def state(names: Sequence[str]) -> int:
        new_timers = departures(stays_on(names))
        return _count(evictions.restate(TAINT, new_timers, node_names=names))

    def by_pods(name: str) -> bool:
        pod_ids = [stay.pod_id for stay in stays_on([name])]
        _state_stays(pod_ids, now)
        return bool(pod_ids)

    return sum(
        sum(aside.each(NAME, part, state, which=aside.node, now=now, finer=by_pods))
        for part in _parts(sorted(set(node_names)), _NODES_AT_ONCE)
    )


def _state_stays(pod_ids: Sequence[int], now: datetime) -> int:
    """Rewrite the timers of these pods for taints."""

    def state(some: Sequence[int]) -> int:
        return _count(evictions.restate(TAINT, departures(stays_of(some)), pod_ids=some))

    return sum(aside.each(NAME, pod_ids, state, which=aside.pod, now=now))


def _restate_places(
    places: Sequence[ClassOnNode],
    node_names: Sequence[str],
    at: Mapping[str, datetime],
    now: datetime,
) -> int:
    """Rewrite the timers for labels on these nodes; ``places`` are those that may have some."""

    def state(names: Sequence[str]) -> int:
        chosen = set(names)
        new_timers = departures_by_labels([p for p in places if p.node_name in chosen], at, now)
        return _count(evictions.restate(DURING_EXECUTION, new_timers, node_names=names))

    def by_pods(name: str) -> bool:
        pod_ids = [stay.pod_id for stay in stays_on([name])]
        _state_executions(pod_ids, at, now)
        return bool(pod_ids)

    return sum(aside.each(BY_LABELS, node_names, state, which=aside.node, now=now, finer=by_pods))


def _state_executions(pod_ids: Sequence[int], at: Mapping[str, datetime], now: datetime) -> int:
    """Rewrite the timers of these pods for labels."""

    def state(some: Sequence[int]) -> int:
        new_timers = departures_by_labels(executing_places(pod_ids=some), at, now)
        return _count(evictions.restate(DURING_EXECUTION, new_timers, pod_ids=some))

    return sum(aside.each(BY_LABELS, pod_ids, state, which=aside.pod, now=now))


def _restate_labels(nodes: Sequence[NodeNews], now: datetime) -> int:
    """Judge the places whose terms name a label that changed; others are skipped."""
    changed: dict[str, frozenset[str]] = {}
    at: dict[str, datetime] = {}
    for one in nodes:
        if one.label_keys:
            changed[one.name] = changed.get(one.name, frozenset()) | one.label_keys
            at[one.name] = one.at
    total = 0
    for part in _parts(sorted(changed), _NODES_AT_ONCE):
        places = executing_places(node_names=part)
        rules = rules_by_class(place.class_id for place in places)
        touched = {
            place.node_name
            for place in places
            if rules[place.class_id].keys & changed[place.node_name]
        }
        if touched:
            mine = [place for place in places if place.node_name in touched]
            total += _restate_places(mine, sorted(touched), at, now)
    return total


def _restate_pods(pod_ids: Sequence[int], now: datetime) -> int:
    total = 0
    for part in _parts(pod_ids, _PODS_AT_ONCE):
        total += _state_stays(part, now)
        total += _state_executions(part, {}, now)
    return total


def _count(result: evictions.TimerChanges) -> int:
    return result.dropped + result.written


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[first : first + size] for first in range(0, len(items), size))
