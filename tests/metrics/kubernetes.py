"""Kubernetes' metrics by name: type, labels, and the buckets of histograms.

From test/instrumentation/testdata/stable-metrics-list.yaml, pkg/scheduler/metrics/metrics.go and
apiserver/pkg/endpoints/metrics/metrics.go of Kubernetes 1.36.
"""

_REQUEST = "verb dry_run group version resource subresource scope component"
_LONG = "verb group version resource subresource scope component"
_TWICE = (
    "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384"
)

PROGRAMS = {
    "apiserver_request_total": ("counter", f"{_REQUEST} code", ""),
    "apiserver_request_duration_seconds": (
        "histogram",
        _REQUEST,
        "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60",
    ),
    "apiserver_response_sizes": ("histogram", _LONG, "1000 10000 100000 1e+06 1e+07 1e+08 1e+09"),
    "apiserver_current_inflight_requests": ("gauge", "request_kind", ""),
    "apiserver_longrunning_requests": ("gauge", _LONG, ""),
    "apiserver_watch_events_total": ("counter", "group version resource", ""),
    "scheduler_schedule_attempts_total": ("counter", "result profile", ""),
    "scheduler_scheduling_attempt_duration_seconds": ("histogram", "result profile", _TWICE),
    "scheduler_scheduling_algorithm_duration_seconds": ("histogram", "", _TWICE),
    "scheduler_pending_pods": ("gauge", "queue", ""),
    "scheduler_pod_scheduling_sli_duration_seconds": (
        "histogram",
        "attempts",
        " ".join(f"{0.01 * 2**turn:g}" for turn in range(20)),
    ),
    "scheduler_pod_scheduling_attempts": ("histogram", "", "1 2 4 8 16"),
    "scheduler_preemption_attempts_total": ("counter", "", ""),
    "scheduler_preemption_victims": ("histogram", "", "1 2 4 8 16 32 64"),
    "scheduler_queue_incoming_pods_total": ("counter", "queue event", ""),
    "scheduler_unschedulable_pods": ("gauge", "plugin profile", ""),
    "scheduler_framework_extension_point_duration_seconds": (
        "histogram",
        "extension_point status profile",
        "0.0001 0.0002 0.0004 0.0008 0.0016 0.0032 0.0064 0.0128 0.0256 0.0512 0.1024 0.2048",
    ),
    "scheduler_plugin_execution_duration_seconds": (
        "histogram",
        "plugin extension_point status",
        (
            "1e-05 1.5000000000000002e-05 2.2500000000000005e-05 3.375000000000001e-05"
            " 5.062500000000001e-05 7.593750000000002e-05 0.00011390625000000003"
            " 0.00017085937500000006 0.0002562890625000001 0.00038443359375000017"
            " 0.0005766503906250003 0.0008649755859375004 0.0012974633789062506"
            " 0.0019461950683593758 0.0029192926025390638 0.004378938903808595"
            " 0.006568408355712893 0.009852612533569338 0.014778918800354007"
            " 0.02216837820053101"
        ),
    ),
    "scheduler_cache_size": ("gauge", "type", ""),
}
