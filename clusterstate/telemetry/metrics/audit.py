"""Metrics of the audit log: lines written, and lines dropped."""

from clusterstate.telemetry.metrics import families

written = families.counter(
    "stowage_audit_lines_total", "Lines of the audit log that were written, by destination.", "to"
)
dropped = families.counter(
    "stowage_audit_lines_dropped_total",
    "Lines of the audit log that were lost: the buffer was full, or the database or file failed.",
    "of",
)
