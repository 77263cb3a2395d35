"""Who must leave a node, and when: NoExecute taints, and labels that no longer match.

A follower of the change log with a cursor in a row. It looks at nodes whose NoExecute taints or
labels changed, and at pods that came to a node that evicts, whose tolerations changed, or that have
a timer already; judges each pair of node and class once (``objects.eviction``); and states the
timers in bulk (``actions.evictions.replan``). What it states follows from the rows alone, so doing
it twice, or after a crash, or from nothing, gives the same timers (C22).

    kubectl taint -> commit -> follow: places on the node -> deadlines -> timers
    the clock     -> fire:   due timers -> judged once more -> condition, deletion, event

``timekeeper`` calls both in a loop, the latter by way of ``firing``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

import msgspec
import structlog
from django.conf import settings
from django.db import transaction

from clusterstate import changes, memory
from clusterstate.actions import aside, evictions
from clusterstate.actions.evictions import Fired, Plan
from clusterstate.objects import eviction
from clusterstate.objects.eviction import Countdown, Rules
from clusterstate.objects.pod import Pod
from clusterstate.queries.eviction_news import NodeNews, eviction_news
from clusterstate.queries.eviction_timers import DURING_EXECUTION, TAINT, DueTaint, is_execution_due
from clusterstate.queries.nodes import evicting_nodes, no_execute_taints, node_labels
from clusterstate.queries.stays import (
    Place,
    Stay,
    class_specs,
    executing_places,
    stays_of,
    stays_on,
)

logger = structlog.get_logger(__name__)

Item = TypeVar("Item")
NAME, BY_LABELS = evictions.FOLLOWER, evictions.FOLLOWER_OF_LABELS
BATCH = 1000
"""Timers fired in one transaction."""
_NODES_AT_ONCE = 200
_PODS_AT_ONCE = 20_000
_UNREMARKABLE = 500
_TELL_EVERY = timedelta(seconds=10)
_CLASSES = 100_000
_decode_pod = msgspec.json.Decoder(Pod).decode


_classes: dict[int, Rules] = {}
_told_at: dict[str, datetime] = {}
"""When a cursor was last written that nothing of note led to, by name."""
memory.when_replaced(_classes.clear)
memory.when_replaced(_told_at.clear)


def _known(class_ids: Iterable[int]) -> Mapping[int, Rules]:
    """Return the classes' rules; queries for those never met."""
    wanted = set(class_ids)
    known = {id_: rules for id_ in wanted if (rules := _classes.get(id_)) is not None}
    missing = wanted - known.keys()
    if missing:
        found = {id_: _rules_of(spec) for id_, spec in class_specs(sorted(missing)).items()}
        known |= found
        if len(_classes) > _CLASSES:
            _classes.clear()
        _classes.update(found)
    return known


@lru_cache(maxsize=4096)
def _rules_of(spec: str) -> Rules:
    return eviction.rules_of(_decode_pod(spec))


# Judging --------------------------------------------------------------------------------------


def plans(stays: Sequence[Stay]) -> list[Plan]:
    """Return by when the pods that stay there must leave because of taints. Queries 1-2 times.

    What counts is worked out once for all pods of a class on a node.
    """
    if not stays:
        return []
    taints = no_execute_taints(sorted({stay.node_name for stay in stays}))
    known = _known(stay.class_id for stay in stays if stay.node_name in taints)
    counted: dict[Place, tuple[Countdown, ...]] = {}
    result = []
    for stay in stays:
        on_node = taints.get(stay.node_name)
        if on_node is None or stay.class_id not in known:
            continue
        place = stay.place
        if place not in counted:
            counted[place] = eviction.countdowns(
                known[place.class_id].tolerations, on_node, added_at=_LONG_AGO
            )
        found = eviction.deadline(counted[place], stay.bound_at)
        if found is not None:
            result.append(
                Plan(
                    place=place,
                    pod_id=stay.pod_id,
                    started_at=found.started_at,
                    due_at=found.due_at,
                    seconds=found.seconds,
                    taint_key=found.taint.key,
                    taint_effect=found.taint.effect,
                )
            )
    return result


# Every NoExecute taint is stamped when it is written; one that is not is as old as can be.
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def broken(places: Sequence[Place]) -> set[Place]:
    """Return the places whose node exists and no longer matches the class' terms (R3).

    Queries 1-2 times. A node that is gone breaks nothing: its pods are somebody else's.
    """
    if not places:
        return set()
    labels = node_labels(sorted({place.node_name for place in places}))
    known = _known(place.class_id for place in places)
    return {
        place
        for place in places
        if place.class_id in known
        and place.node_name in labels
        and eviction.is_broken(known[place.class_id], place.node_name, labels[place.node_name])
    }


def _grace() -> timedelta:
    return timedelta(seconds=settings.REQUIRED_DURING_EXECUTION_GRACE_SECONDS)


def _execution_plans(
    places: Sequence[Place], at: Mapping[str, datetime], now: datetime
) -> list[Plan]:
    """Return plans for places that break their terms, counted from when the labels changed."""
    grace = _grace()
    result = []
    for place in sorted(broken(places), key=lambda one: (one.node_name, one.class_id)):
        started_at = at.get(place.node_name, now)
        result.append(
            Plan(
                place=place,
                started_at=started_at,
                due_at=started_at + grace,
                seconds=int(grace.total_seconds()),
            )
        )
    return result


# Following ------------------------------------------------------------------------------------


def follow(now: datetime) -> int:
    """Bring the timers up to date with the log; return how many timers were dropped or written."""
    total = 0
    while True:
        cursor = evictions.cursor(NAME)
        news = None if cursor is None else eviction_news(cursor)
        if news is None:
            return total + replan_everything(now)
        if not (news.nodes or news.pod_ids) and not _is_worth_a_commit(news.cursor, cursor, now):
            return total
        # Not one transaction: stating timers twice does no harm, running ahead would.
        total += replan_nodes([one.name for one in news.nodes if one.taints], now)
        total += _replan_labels(news.nodes, now)
        total += _replan_pods(news.pod_ids, now)
        evictions.set_cursor(NAME, news.cursor)
        if not news.more:
            return total


def _is_worth_a_commit(reached: int, cursor: int | None, now: datetime) -> bool:
    """Return whether to write that nothing of note came up to ``reached``.

    Looking at these again costs less than a commit, so that is done for many at once, or seldom.
    """
    since = _told_at.setdefault(NAME, now)
    if reached - (cursor or 0) < _UNREMARKABLE and abs(now - since) < _TELL_EVERY:
        return False
    _told_at[NAME] = now
    return reached > (cursor or 0)


def replan_everything(now: datetime) -> int:
    """State all timers from the rows alone: at the first start, or after the log was trimmed."""
    cursor = changes.watermark()
    nodes = evicting_nodes()
    total = evictions.drop_other_nodes(nodes)
    total += replan_nodes(nodes, now)
    places = executing_places()
    names = sorted({place.node_name for place in places})
    for part in _parts(names, _NODES_AT_ONCE):
        chosen = set(part)
        mine = [place for place in places if place.node_name in chosen]
        total += _replan_places(mine, part, {}, now)
    evictions.set_cursor(NAME, cursor)
    logger.info("timers_stated", timers=total, nodes=len(nodes), revision=cursor)
    return total


def replan_nodes(node_names: Sequence[str], now: datetime) -> int:
    """State the timers for the taints of these nodes; return how many were dropped or written."""

    def state(names: Sequence[str]) -> int:
        wanted = plans(stays_on(names))
        return _count(evictions.replan(TAINT, wanted, node_names=names))

    def by_pods(name: str) -> bool:
        pod_ids = [stay.pod_id for stay in stays_on([name])]
        _state_stays(pod_ids, now)
        return bool(pod_ids)

    return sum(
        sum(aside.each(NAME, part, state, which=aside.node, now=now, finer=by_pods))
        for part in _parts(sorted(set(node_names)), _NODES_AT_ONCE)
    )


def _state_stays(pod_ids: Sequence[int], now: datetime) -> int:
    """State the timers of these pods for taints."""

    def state(some: Sequence[int]) -> int:
        return _count(evictions.replan(TAINT, plans(stays_of(some)), pod_ids=some))

    return sum(aside.each(NAME, pod_ids, state, which=aside.pod, now=now))


def _replan_places(
    places: Sequence[Place],
    node_names: Sequence[str],
    at: Mapping[str, datetime],
    now: datetime,
) -> int:
    """State the timers for labels on these nodes; ``places`` are those that may have some."""

    def state(names: Sequence[str]) -> int:
        chosen = set(names)
        wanted = _execution_plans([p for p in places if p.node_name in chosen], at, now)
        return _count(evictions.replan(DURING_EXECUTION, wanted, node_names=names))

    def by_pods(name: str) -> bool:
        pod_ids = [stay.pod_id for stay in stays_on([name])]
        _state_executions(pod_ids, at, now)
        return bool(pod_ids)

    return sum(aside.each(BY_LABELS, node_names, state, which=aside.node, now=now, finer=by_pods))


def _state_executions(pod_ids: Sequence[int], at: Mapping[str, datetime], now: datetime) -> int:
    """State the timers of these pods for labels."""

    def state(some: Sequence[int]) -> int:
        wanted = _execution_plans(executing_places(pod_ids=some), at, now)
        return _count(evictions.replan(DURING_EXECUTION, wanted, pod_ids=some))

    return sum(aside.each(BY_LABELS, pod_ids, state, which=aside.pod, now=now))


def _replan_labels(nodes: Sequence[NodeNews], now: datetime) -> int:
    """Judge the places whose terms name a label that changed; the others are not looked at."""
    changed: dict[str, frozenset[str]] = {}
    at: dict[str, datetime] = {}
    for one in nodes:
        if one.label_keys:
            changed[one.name] = changed.get(one.name, frozenset()) | one.label_keys
            at[one.name] = one.at
    total = 0
    for part in _parts(sorted(changed), _NODES_AT_ONCE):
        places = executing_places(node_names=part)
        known = _known(place.class_id for place in places)
        touched = {
            place.node_name
            for place in places
            if known[place.class_id].keys & changed[place.node_name]
        }
        if touched:
            mine = [place for place in places if place.node_name in touched]
            total += _replan_places(mine, sorted(touched), at, now)
    return total


def _replan_pods(pod_ids: Sequence[int], now: datetime) -> int:
    total = 0
    for part in _parts(pod_ids, _PODS_AT_ONCE):
        total += _state_stays(part, now)
        total += _state_executions(part, {}, now)
    return total


def _count(result: evictions.Replanned) -> int:
    return result.dropped + result.written


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[first : first + size] for first in range(0, len(items), size))


# Firing ---------------------------------------------------------------------------------------


def fire_taints(due: Sequence[DueTaint], now: datetime) -> Fired:
    """Evict those whom taints send away, of these; any number of connections may at a time."""
    done = aside.each(
        NAME,
        due,
        lambda some: evictions.fire_taints(some, now=now, judge=plans),
        which=lambda timer: aside.pod(timer[0]),
        now=now,
        instead=lambda timer: evictions.drop_timer(timer[0]),
    )
    return done[0] if len(done) == 1 else evictions.together(done)


def fire_executions(now: datetime) -> Fired:
    """Evict for labels as fast as the limit allows; the rest get their turns."""
    if not is_execution_due(now):
        return evictions.NOTHING
    evictions.await_landings(now=now)
    rate = settings.REQUIRED_DURING_EXECUTION_RATE
    if rate <= 0:
        return evictions.fire_executions(now=now, limit=BATCH, judge=broken)
    with transaction.atomic():
        # The bucket is a row, so that the limit survives a restart.
        kept = evictions.state(NAME)
        burst = max(1.0, rate)
        elapsed = now.timestamp() - kept.get("at", 0.0)
        tokens = min(burst, kept.get("tokens", burst) + max(0.0, elapsed) * rate)
        evictions.set_state(NAME, {"tokens": tokens, "at": now.timestamp()})
    fired = evictions.fire_executions(now=now, limit=int(tokens + 1e-6), judge=broken)
    spent = len(fired.evicted)
    evictions.set_state(NAME, {"tokens": tokens - spent, "at": now.timestamp()})
    evictions.spread_executions(now=now, rate=rate)
    return fired
