"""Metrics of requests, counted where they enter the process, and ``/metrics``.

The answer covers the whole service, whichever process gives it: the counts of all processes
(``clusterstate.telemetry.metrics``), and the state of timers, loops and the queue in the database.
The scrape needs a token of the group ``system:monitoring``, or one with all rights, unless
STOWAGE_METRICS_OPEN is set. While the database is away the answer is 503.
"""

import time
from collections.abc import Iterator

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from api import clock
from api.access import auth
from api.forms import errors, exposition, failures
from api.routes import Route, split, verb
from api.server import room
from clusterstate.access.rules import Attributes
from clusterstate.actions.loops import metrics as actions
from clusterstate.change_log import replica
from clusterstate.health import aside, progress
from clusterstate.objects.values.errors import StatusError
from clusterstate.queries.evictions.eviction_timers import LATENESS_BOUNDS, timer_totals
from clusterstate.queries.loops import metrics as queries
from clusterstate.queries.pods.queue import oldest_untried, pending_counts, refused_counts
from clusterstate.queries.scheduler import decision_checks
from clusterstate.telemetry.metrics import apiserver
from clusterstate.telemetry.metrics.families import Counter, Histogram
from scheduling.answers import advisor

_PATIENCE_SECONDS = 5.0
_ADVISOR_SECONDS = 1.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER_PATHS = frozenset(
    {
        "/", "/api", "/apis", "/version", "/metrics", "/openapi/v2", "/openapi/v3", "/admin",
        "/static", "/docs", "/.well-known", "/openid",
    }
)  # fmt: skip
"""Prefixes of the paths without a resource that have series of their own."""
_COMPONENT = "apiserver"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})

_READING = apiserver.in_flight.of("readOnly")
_CHANGING = apiserver.in_flight.of("mutating")


class _RequestScope(tuple[str, str, str, str, str]):
    """Group, version, resource, subresource and scope of a request."""

    __slots__ = ()


def _place(path: str, route: Route, reported: str) -> _RequestScope:
    """Return the labels of a path (``CleanScope`` of the apiserver)."""
    target = route.target
    if target is None:
        first = "/".join(path.split("/")[:3]).rstrip("/") or "/"
        prefix = first if first in _OTHER_PATHS else "/" + path.strip("/").partition("/")[0]
        return _RequestScope(("", "", "", prefix if prefix in _OTHER_PATHS else "", ""))
    found = split(path)
    if target.name or reported == "POST":
        scope = "resource"
    else:
        scope = "namespace" if target.namespace else "cluster"
    version = found[1] if found else ""
    kind = target.kind
    return _RequestScope((kind.group, version, kind.plural, target.subresource, scope))


def reported_verb(method: str, route: Route, *, applies: bool = False) -> str:
    """Return the verb as kube-apiserver reports it, such as ``LIST`` or ``APPLY``."""
    if method not in _METHODS:
        return "OTHER"
    if route.target is not None:
        if method == "GET":
            return verb(method, route.target).upper()
        if method == "DELETE" and not route.target.name:
            return "DELETECOLLECTION"
        if method == "PATCH" and applies:
            return "APPLY"
    return method


_Counted = tuple[Counter, Histogram, Histogram | None]
_known: dict[tuple[str, str, str, str, bool, bool, bool, bool, int], _Counted] = {}


def begin(method: str) -> None:
    """Count a request as in flight; called on the event loop."""
    (_READING if method in _READS else _CHANGING).up()


def end(method: str) -> None:
    """Count a request as no longer in flight."""
    (_READING if method in _READS else _CHANGING).down()


def observe(
    method: str,
    path: str,
    route: Route,
    code: int,
    started: float,
    *,
    dry_run: bool = False,
    applies: bool = False,
    size: int = 0,
) -> None:
    """Count one answer of ``size`` bytes, which began at ``started`` (``time.perf_counter()``)."""
    target = route.target
    if target is None:
        counted = _series(method, path, route, code, dry_run=dry_run, applies=applies)
    else:
        kind = target.kind
        key = (
            method, kind.plural, kind.group, target.subresource, not target.name,
            not target.namespace, dry_run, applies, code,
        )  # fmt: skip
        found = _known.get(key)
        if found is None:
            found = _series(method, path, route, code, dry_run=dry_run, applies=applies)
            if method in _METHODS and len(kind.versions) == 1:
                _known[key] = found
        counted = found
    counted[0].add()
    counted[1].observe(time.perf_counter() - started)
    if counted[2] is not None:
        counted[2].observe(size)


def _series(
    method: str, path: str, route: Route, code: int, *, dry_run: bool, applies: bool
) -> _Counted:
    reported = reported_verb(method, route, applies=applies)
    place = _place(path, route, reported)
    dry = "All" if dry_run else ""
    return (
        apiserver.requests.of(reported, dry, *place, _COMPONENT, str(code)),
        apiserver.durations.of(reported, dry, *place, _COMPONENT),
        apiserver.sizes.of(reported, *place, _COMPONENT) if reported in ("GET", "LIST") else None,
    )


class OpenAnswer:
    """A watch, or another open answer: counted while it is open, and when it ends."""

    def __init__(self, path: str, route: Route, reported: str = "WATCH") -> None:
        self._verb = reported
        self._place = _place(path, route, reported)
        self._open = apiserver.long_running.of(reported, *self._place, _COMPONENT)
        self._events = apiserver.watch_events.of(*self._place[:3])
        self._started = time.perf_counter()
        self._open.up()

    def sent(self, events: int) -> None:
        """Count events that were sent."""
        self._events.add(events)

    def end(self, code: int = 200) -> None:
        """Count the answer, which has ended."""
        self._open.down()
        labels = (self._verb, "", *self._place, _COMPONENT)
        apiserver.requests.of(*labels, str(code)).add()
        apiserver.durations.of(*labels).observe(time.perf_counter() - self._started)


# --- how the service stands, asked of the database at each scrape --------------------------------


def _timers() -> Iterator[str]:
    found = timer_totals(clock.now())
    yield exposition.gauge(
        "stowage_eviction_timers",
        "Pods that have an eviction timer.",
        {(cause,): number for cause, number in found.waiting.items()},
        ["cause"],
    )
    yield exposition.gauge(
        "stowage_eviction_overdue_seconds",
        "How long the most overdue eviction has been due.",
        found.overdue_seconds,
    )
    name = "stowage_eviction_lateness_seconds"
    yield exposition.head(
        name, "histogram", "Time from an eviction's due time until it was committed."
    )
    yield exposition.histogram(
        name,
        "",
        LATENESS_BOUNDS,
        [float(n) for n in found.figures.later_than],
        found.figures.seconds,
    )


def _loops() -> Iterator[str]:
    found = progress.standing(patience=_PATIENCE_SECONDS)
    yield exposition.gauge(
        "stowage_watermark_age_seconds",
        "Age of the oldest open transaction that delays all processes that read the change log.",
        found.log_held_seconds,
    )
    yield exposition.gauge(
        "stowage_scheduler_behind_revisions",
        "Revisions that the scheduler has not followed yet.",
        found.scheduler_behind,
    )
    yield exposition.gauge(
        "stowage_loop_silent_seconds",
        "Time since a loop last finished its work.",
        {(loop,): seconds for loop, seconds in found.silent_seconds.items()},
        ["loop"],
    )


def _configuration() -> Iterator[str]:
    use = progress.configuration_use(patience=_PATIENCE_SECONDS)
    yield exposition.gauge(
        "stowage_configuration_unusable_profiles",
        "Profiles that cannot be used: their pods wait, or the revision before is in force.",
        0 if use is None else len(use.problems),
    )


def _decision_checks() -> Iterator[str]:
    yield exposition.gauge(
        "stowage_decision_checks",
        "Decisions that were computed again from the database, by the result.",
        {(result,): count for result, count in decision_checks.counts().items()},
        ["result"],
    )


_QUEUES = ("active", "backoff", "gated", "unschedulable")


def _queue() -> Iterator[str]:
    from scheduling.answers import questions  # NumPy, which comes with the first scrape

    counts = pending_counts()
    names = [profile.scheduler_name for profile in questions.configuration().profiles]
    since = oldest_untried(names)
    now = clock.now()
    yield exposition.gauge(
        "scheduler_pending_pods",
        "Pods without a node, by the queue that they wait in.",
        {(stage,): counts.get(stage, 0) for stage in _QUEUES},
        ["queue"],
    )
    yield exposition.gauge(
        "stowage_reserved_pods",
        "Pods that have a node and wait on Permit or PreBind plugins.",
        counts.get("inflight", 0),
    )
    yield exposition.gauge(
        "stowage_oldest_untried_pod_seconds",
        "Age of the oldest pod that the scheduler never tried to place; 0 without one.",
        0.0 if since is None else max((now - since).total_seconds(), 0.0),
    )
    refused = refused_counts()
    yield exposition.gauge(
        "scheduler_unschedulable_pods",
        "Pods that a plugin refused, for each of the plugins that did.",
        {(one.plugin, one.profile): one.count for one in refused},
        ["plugin", "profile"],
    )
    yield exposition.gauge(
        "stowage_oldest_refused_pod_seconds",
        "How long the oldest pod that a plugin rejected has waited.",
        {(one.plugin, one.profile): (now - one.since).total_seconds() for one in refused},
        ["plugin", "profile"],
    )


def _followers() -> Iterator[str]:
    found = aside.standing(clock.now())
    yield exposition.gauge(
        "stowage_objects_set_aside",
        "Objects that a follower failed to process and skips until they change.",
        {(follower,): number for follower, number in found.set_aside.items()},
        ["follower"],
    )
    yield exposition.gauge(
        "stowage_follower_lag_seconds",
        "Age of the first change that a follower has not acted on; 0 when there is none.",
        {(follower,): seconds for follower, seconds in found.lag_seconds.items()},
        ["follower"],
    )


def _replica() -> Iterator[str]:
    if not settings.READS_FROM_REPLICA or not replica.standing.looked(_ADVISOR_SECONDS):
        return
    lag = replica.standing.lag_seconds
    if lag is not None:  # else it does not answer
        yield exposition.gauge(
            "stowage_replica_lag_seconds",
            "For how long the replica has lacked a change that the primary has; 0: it has all.",
            lag,
        )


def _disk() -> Iterator[str]:
    free = room.free()
    if free is not None:  # the disk of another server is not visible
        yield exposition.gauge(
            "stowage_disk_free_bytes", "Free space on the disk of the embedded database.", free
        )


def _headroom() -> Iterator[str]:
    try:
        items = advisor.ask("room", {}, deadline=_ADVISOR_SECONDS)["items"]
    except StatusError:
        items = []  # no advisor answers in time: a scrape does not wait for one
    yield exposition.gauge(
        "stowage_headroom_pods",
        "Pods of a shape that would still find room.",
        {(one["metadata"]["name"],): one["status"]["fits"] for one in items},
        ["shape"],
    )
    yield exposition.gauge(
        "stowage_headroom_blocked_nodes",
        "Nodes that reject one more pod of a shape, when no more fit, by plugin and reason.",
        {
            (one["metadata"]["name"], blocker["plugin"], blocker["reason"]): blocker["nodes"]
            for one in items
            for blocker in one["status"]["blockers"]
        },
        ["shape", "plugin", "reason"],
    )


def text() -> str:
    """Return the text of a scrape. Queries.

    This process's counts are added to the stored totals first, and only stored totals are shown, so
    no number decreases, whichever process answers the next scrape.

    Raises:
        django.db.Error: the database is away.
    """
    actions.add()
    parts = [exposition.totals(queries.totals()), exposition.gauges(queries.gauges())]
    for ask in (
        _timers,
        _followers,
        _queue,
        _loops,
        _configuration,
        _decision_checks,
        _headroom,
        _replica,
        _disk,
    ):
        parts += ask()
    return "".join(parts)


def require(request: HttpRequest) -> None:
    """Check that the sender may scrape.

    Raises:
        MethodNotAllowed, Unauthorized, AccessDenied: it is no GET, or the sender may not.
    """
    if request.method != "GET":
        raise errors.MethodNotAllowed(errors.WRONG_METHOD)
    if not settings.METRICS_OPEN:
        auth.require(auth.user_of(request.META), Attributes(verb="get", path=request.path_info))


def view(request: HttpRequest) -> HttpResponse:
    """Answer ``/metrics``."""
    try:
        require(request)
        return HttpResponse(text(), content_type=exposition.CONTENT_TYPE)
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return failures.answer_to(request, error)
