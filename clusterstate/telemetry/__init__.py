"""Telemetry: logs, metrics, traces, slowness.

::

    logs        format and output of log lines
    troubles    rate-limited logging of repeated failures
    metrics     counters, gauges and histograms of a process
    tracing     traces of pods for OpenTelemetry
    blanking    removes credentials from logged texts
    slowness    how many times slower than usual this process is
"""
