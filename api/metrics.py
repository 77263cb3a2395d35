"""Counters and durations of this process, and how timers, loops and queue stand, for Prometheus.

Requests are measured where they enter the process, watches included; their labels are bounded by
what is served, never by what a client sends. The scrape itself needs a token of the group
``system:monitoring``, or one that may do everything, unless STOWAGE_METRICS_OPEN is set.
"""

import time
from collections.abc import Iterator

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from api import auth, clock, errors
from api.routes import Route
from clusterstate import aside, progress
from clusterstate.access.rules import Attributes
from clusterstate.queries.eviction_timers import LATENESS_BOUNDS, timer_totals
from clusterstate.queries.queue import oldest_untried, pending_counts
from scheduling.answers import questions

_PATIENCE_SECONDS = 5.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

requests = Counter("stowage_requests_total", "Requests answered.", ["method", "resource", "code"])
durations = Histogram(
    "stowage_request_seconds",
    "Time from a complete request to its answer.",
    ["method", "resource"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
watches = Gauge("stowage_watches", "Watches open now.")
watch_events = Counter("stowage_watch_events_total", "Events sent to watches.")


class _Timers:
    """The eviction timers, asked of the database at each scrape: any process tells the same."""

    def describe(self) -> list[Metric]:
        """Return nothing: registering asks the database for nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield how many wait, how long the first is overdue, and how late pods left. Queries."""
        try:
            found = timer_totals(clock.now())
        except DatabaseError:
            return  # /readyz says so
        waiting = GaugeMetricFamily(
            "stowage_eviction_timers", "Pods that must leave their node later.", labels=["cause"]
        )
        for cause, number in sorted(found.waiting.items()):
            waiting.add_metric([cause], number)
        yield waiting
        yield GaugeMetricFamily(
            "stowage_eviction_overdue_seconds",
            "How long the first of them should have left already.",
            value=found.overdue_seconds,
        )
        buckets, total = [], 0
        for bound, number in zip((*LATENESS_BOUNDS, "+Inf"), found.figures.later_than, strict=True):
            total += number
            buckets.append((str(bound), total))
        yield HistogramMetricFamily(
            "stowage_eviction_lateness_seconds",
            "Time from an eviction's due time to when it was durable.",
            buckets=buckets,
            sum_value=found.figures.seconds,
        )


class _Progress:
    """How far the loops are, asked of the database at each scrape."""

    def describe(self) -> list[Metric]:
        """Return nothing: registering asks the database for nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield how long the log is held up, and how far behind the loops are. Queries."""
        try:
            found = progress.standing(patience=_PATIENCE_SECONDS)
        except DatabaseError:
            return  # /readyz says so
        yield GaugeMetricFamily(
            "stowage_watermark_age_seconds",
            "Age of the oldest transaction that keeps followers of the log from reading on.",
            value=found.log_held_seconds,
        )
        yield GaugeMetricFamily(
            "stowage_scheduler_behind_revisions",
            "Revisions that the scheduler has not followed yet.",
            value=found.scheduler_behind,
        )
        silent = GaugeMetricFamily(
            "stowage_loop_silent_seconds", "Time since a loop did its work.", labels=["loop"]
        )
        for loop, seconds in sorted(found.silent_seconds.items()):
            silent.add_metric([loop], seconds)
        yield silent


class _Queue:
    """The pods that wait for a node, asked of the database at each scrape."""

    def describe(self) -> list[Metric]:
        """Return nothing: registering asks the database for nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield how many wait by stage, and how old the oldest is that was never tried. Queries."""
        try:
            counts = pending_counts()
            names = [profile.scheduler_name for profile in questions.configuration().profiles]
            since = oldest_untried(names)
        except DatabaseError:
            return  # /readyz says so
        pending = GaugeMetricFamily(
            "stowage_pending_pods", "Pods without a node, by where they wait.", labels=["stage"]
        )
        for stage, number in sorted(counts.items()):
            pending.add_metric([stage], number)
        yield pending
        age = 0.0 if since is None else max((clock.now() - since).total_seconds(), 0.0)
        yield GaugeMetricFamily(
            "stowage_oldest_untried_pod_seconds",
            "Age of the oldest pod that the scheduler never tried to place; 0 without one.",
            value=age,
        )


class _Followers:
    """The followers of the log, asked of the database at each scrape."""

    def describe(self) -> list[Metric]:
        """Return nothing: registering asks the database for nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield what was set aside and how far behind each is, by follower. Queries once."""
        try:
            found = aside.standing(clock.now())
        except DatabaseError:
            return  # /readyz says so
        kept = GaugeMetricFamily(
            "stowage_objects_set_aside",
            "Objects that a follower failed on, and goes on without until they change.",
            labels=["follower"],
        )
        for follower, number in sorted(found.set_aside.items()):
            kept.add_metric([follower], number)
        yield kept
        lag = GaugeMetricFamily(
            "stowage_follower_lag_seconds",
            "Age of the first change that a follower has not acted on; 0 when there is none.",
            labels=["follower"],
        )
        for follower, seconds in sorted(found.lag_seconds.items()):
            lag.add_metric([follower], seconds)
        yield lag


REGISTRY.register(_Timers())
REGISTRY.register(_Followers())
REGISTRY.register(_Queue())
REGISTRY.register(_Progress())
_known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}


def _resource(route: Route) -> str:
    target = route.target
    if target is None:
        return "other"
    if target.subresource:
        return f"{target.kind.plural}/{target.subresource}"
    return target.kind.plural


def observe(method: str, route: Route, code: int, started: float) -> None:
    """Count one answer. ``started`` is ``time.perf_counter()`` when the request was complete."""
    key = (method if method in _METHODS else "other", _resource(route), code)
    children = _known.get(key)
    if children is None:
        children = (requests.labels(key[0], key[1], str(code)), durations.labels(key[0], key[1]))
        _known[key] = children
    children[0].inc()
    children[1].observe(time.perf_counter() - started)


def view(request: HttpRequest) -> HttpResponse:
    """Answer ``/metrics``."""
    try:
        if request.method != "GET":
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        if not settings.METRICS_OPEN:
            user = auth.user_of(request.META)
            auth.require(user, Attributes(verb="get", path="/metrics"))
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return errors.respond(error)
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)
