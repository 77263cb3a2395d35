"""Metrics of requests, by kube-apiserver's names (apiserver/pkg/endpoints/metrics, v1.36).

The values of labels come from the served kinds and verbs, never from text that a client sends.
"""

from typing import Final

from clusterstate.telemetry.metrics import families

KUBERNETES: Final = "kube-apiserver"

requests = families.counter(
    "apiserver_request_total",
    "Requests answered, by verb, dry run, resource, scope and HTTP code.",
    "verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code",
    source=KUBERNETES,
)  # fmt: skip
durations = families.histogram(
    "apiserver_request_duration_seconds",
    "Time from a complete request to its answer; of a watch, how long it was open.",
    "verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component",
    bounds=(
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
        30, 45, 60,
    ),
    source=KUBERNETES,
)  # fmt: skip
sizes = families.histogram(
    "apiserver_response_sizes",
    "Bytes of the answers to GET and LIST, before compression.",
    "verb", "group", "version", "resource", "subresource", "scope", "component",
    bounds=families.exponential(1000, 10, 7),
    source=KUBERNETES,
)  # fmt: skip
in_flight = families.peak(
    "apiserver_current_inflight_requests",
    "The most requests answered at the same time since the last scrape.",
    "request_kind",
    source=KUBERNETES,
)
long_running = families.level(
    "apiserver_longrunning_requests",
    "Watches, and reads that wait for a pod, that are open now.",
    "verb", "group", "version", "resource", "subresource", "scope", "component",
    source=KUBERNETES,
)  # fmt: skip
watch_events = families.counter(
    "apiserver_watch_events_total",
    "Events sent to watches.",
    "group", "version", "resource",
    source=KUBERNETES,
)  # fmt: skip
