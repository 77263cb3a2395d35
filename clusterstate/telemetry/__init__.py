"""Telemetry: logs, metrics, traces, slowness.

::

    logs        how log lines look and leave the process
    troubles    rate-limited logging of repeated failures
    metrics     counters, gauges and histograms of a process
    tracing     traces of pods for OpenTelemetry
    blanking    credentials in texts that are kept are blanked
    slowness    how much slower than usual this process gets on
"""
