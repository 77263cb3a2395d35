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
}
