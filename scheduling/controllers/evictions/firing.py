"""Evicts due pods: each is judged once more, in the transaction that deletes it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from clusterstate.actions import evictions
from clusterstate.actions.brakes import paces
from clusterstate.actions.evictions import FiredTimers
from clusterstate.actions.loops import aside, controller_state
from clusterstate.queries.evictions.brakes import NOTHING, HeldBack, zones_by_pod
from clusterstate.queries.evictions.eviction_timers import DueTaint, is_execution_due
from clusterstate.queries.loops.controllers import stored_state
from scheduling.controllers.evictions.judgement import broken, departures
from scheduling.controllers.evictions.timers import NAME

BATCH = 1000
"""Timers fired in one transaction."""


def fire_taints(due: Sequence[DueTaint], now: datetime) -> FiredTimers:
    """Evict the pods of these timers whose taints still require it, as fast as zones allow.

    Several connections may do so at the same time.
    """
    zones: dict[int, str] = {}
    granted: Counter[str] = Counter()
    if settings.ZONE_EVICTION_RATE:
        zones = zones_by_pod([timer[0] for timer in due])
        due, granted = _in_turn(due, zones, now)
    done = aside.each(
        NAME,
        due,
        lambda some: evictions.fire_taints(some, now=now, judge=departures),
        which=lambda timer: aside.pod(timer[0]),
        now=now,
        instead=lambda timer: evictions.drop_timer(timer[0]),
    )
    fired = done[0] if len(done) == 1 else evictions.joined(done)
    if zones:
        # The other pods of a group need no token: they leave with its first pod.
        paces.give_back(granted - Counter(zones[one] for one in fired.evicted if one in zones))
    return fired


def _in_turn(
    due: Sequence[DueTaint], zones: Mapping[int, str], now: datetime
) -> tuple[list[DueTaint], Counter[str]]:
    """Return the timers that the rate allows to fire now, and their number by zone.

    Takes the tokens out of the zones' buckets: a client may request an eviction at the same time.
    """
    present = [timer for timer in due if timer[0] in zones]
    requested = Counter(zones[timer[0]] for timer in present)
    granted = Counter(paces.spend(requested, now=now, waits=False))
    remaining = Counter(granted)
    found = [timer for timer in due if timer[0] not in zones]  # the pod is gone
    for timer in present:
        zone = zones[timer[0]]
        if remaining[zone] > 0:
            remaining[zone] -= 1
            found.append(timer)
    return found, granted


def fire_executions(now: datetime, held: HeldBack = NOTHING) -> FiredTimers:
    """Evict pods whose node labels no longer match, as fast as the rate limit allows.

    Moves the timers of the other pods to when the limit will allow them.
    """
    if not is_execution_due(now):
        return evictions.NOTHING
    evictions.await_landings(now=now)
    rate = settings.REQUIRED_DURING_EXECUTION_RATE
    if rate <= 0:
        return evictions.fire_executions(now=now, limit=BATCH, judge=broken, held=held)
    with transaction.atomic():
        # The token bucket is a row, so that the limit survives a restart.
        bucket = stored_state(NAME)
        burst = max(1.0, rate)
        elapsed = now.timestamp() - bucket.get("at", 0.0)
        tokens = min(burst, bucket.get("tokens", burst) + max(0.0, elapsed) * rate)
        controller_state.set_state(NAME, {"tokens": tokens, "at": now.timestamp()})
    fired = evictions.fire_executions(now=now, limit=int(tokens + 1e-6), judge=broken, held=held)
    spent = len(fired.evicted)
    controller_state.set_state(NAME, {"tokens": tokens - spent, "at": now.timestamp()})
    evictions.spread_executions(now=now, rate=rate)
    return fired
