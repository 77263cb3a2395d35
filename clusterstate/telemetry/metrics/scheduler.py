"""Metrics of scheduling attempts, by kube-scheduler's names (pkg/scheduler/metrics, v1.36).

Pods are decided in batches, so an attempt has the times of its batch: ``algorithm`` is the batch's
time divided by its pods, ``attempts_took`` the time from when the batch left the queue until its
pods were bound or rejected.
"""

from typing import Final

from clusterstate.telemetry.metrics import families

KUBERNETES: Final = "kube-scheduler"
SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
PREEMPTING: Final = "preempting"

attempts = families.counter(
    "scheduler_schedule_attempts_total",
    "Attempts to place a pod, by result; error counts nodes that changed meanwhile, too.",
    "result", "profile",
    source=KUBERNETES,
)  # fmt: skip
attempts_took = families.histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Time of an attempt, deciding and binding.",
    "result", "profile",
    bounds=families.exponential(0.001, 2, 15),
    source=KUBERNETES,
)  # fmt: skip
algorithm = families.histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Time of deciding about a pod.",
    bounds=families.exponential(0.001, 2, 15),
    source=KUBERNETES,
)
until_scheduled = families.histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from when a pod could first be tried until it was bound, by its attempts (15+: or more).",
    "attempts",
    bounds=families.exponential(0.01, 2, 20),
    source=KUBERNETES,
)
attempts_needed = families.histogram(
    "scheduler_pod_scheduling_attempts",
    "Attempts that it took to place a pod.",
    bounds=families.exponential(1, 2, 5),
    source=KUBERNETES,
)
preemptions = families.counter(
    "scheduler_preemption_attempts_total",
    "Pods that fitted nowhere, for which preemption was tried.",
    source=KUBERNETES,
)
victims = families.histogram(
    "scheduler_preemption_victims",
    "Victims of one preemption.",
    bounds=families.exponential(1, 2, 7),
    source=KUBERNETES,
)
groups = families.counter(
    "stowage_podgroup_decisions_total",
    "Attempts to place a PodGroup, by the result; preempting: it waits until its victims are gone.",
    "result",
)
searches = families.counter(
    "stowage_podgroup_searches_total",
    "Exact searches for the placement of a PodGroup after placing pod by pod failed, by outcome.",
    "outcome",
)
incoming = families.counter(
    "scheduler_queue_incoming_pods_total",
    "Pods that were added to a queue, and why.",
    "queue", "event",
    source=KUBERNETES,
)  # fmt: skip
extension_points = families.histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "Time of an extension point for a pod; for pods decided in batches, Bind only.",
    "extension_point", "status", "profile",
    bounds=families.exponential(0.0001, 2, 12),
    source=KUBERNETES,
)  # fmt: skip
plugins_took = families.histogram(
    "scheduler_plugin_execution_duration_seconds",
    "Time of one call of a plugin at an extension point, of all nodes together; one call of ten.",
    "plugin", "extension_point", "status",
    bounds=families.exponential(0.00001, 1.5, 20),
    source=KUBERNETES,
)  # fmt: skip
divided = families.counter(
    "stowage_divided_pods_total",
    "Attempts with several schedulers, by scheduler; common: the place may depend on other pods.",
    "scheduler", "pods",
)  # fmt: skip
largest_component = families.gauge(
    "stowage_largest_component_ratio",
    "Share of placed pods that one scheduler must decide because hard rules connect them.",
)
overtaken = families.counter(
    "stowage_overtaken_pods_total",
    "Pods that were decided again because another scheduler bound something first.",
    "scheduler",
)
cached = families.gauge(
    "scheduler_cache_size",
    "Objects in the active scheduler's cache: nodes, pods, and pods assumed on a node.",
    "type",
    source=KUBERNETES,
)
waited_refused = families.histogram(
    "stowage_refused_pod_waiting_seconds",
    "Time from when a pod came until it was bound, of pods that a plugin refused meanwhile.",
    "plugin", "namespace", "priority",
    bounds=families.exponential(0.1, 4, 10),
)  # fmt: skip
waited = families.histogram(
    "stowage_pod_waiting_seconds",
    "Time from when a pod could first be tried until it was bound, by profile and priority.",
    "profile", "priority",
    bounds=families.exponential(0.01, 4, 12),
)  # fmt: skip
woken = families.level(
    "stowage_loop_wakes",
    "How often a loop, or a follower of a Redis channel, woke up, and why.",
    "of", "reason",
)  # fmt: skip
