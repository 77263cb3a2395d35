"""Metrics of the audit log: lines written, and lines dropped."""

from clusterstate.telemetry.metrics import families

written = families.counter(
    "stowage_audit_lines_total", "Lines of the audit log that were written, by destination.", "to"
)
dropped = families.counter(
    "stowage_audit_lines_dropped_total",
    "Lines of the audit log that were not written: no room to wait, a file that could not be"
    " written, or an error.",
    "of",
)
