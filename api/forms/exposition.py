"""Prometheus' text format (0.0.4), line by line.

Not by prometheus_client, whose objects for each sample make the answer ten times as slow:
histograms have twenty lines each, and other requests wait meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from clusterstate.queries.loops.metrics import Total
from clusterstate.telemetry.metrics import apiserver, audit, scheduler
from clusterstate.telemetry.metrics.families import FAMILIES, Kind, labels_text

DECLARED: Final = (apiserver, audit, scheduler)
"""What any process may have counted: the one that answers must know their types and buckets."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def head(name: str, kind: Kind | str, text: str) -> str:
    """Return the two lines that a metric begins with."""
    written = text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {written}\n# TYPE {name} {kind}\n"


def line(name: str, labels: str, value: float) -> str:
    """Return one sample."""
    return f"{name}{{{labels}}} {value!r}\n" if labels else f"{name} {value!r}\n"


def gauge(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], float] | float,
    labels: Sequence[str] = (),
) -> str:
    """Return a gauge: one value, or values by the values of its labels."""
    if isinstance(values, Mapping):
        lines = [
            line(name, labels_text(zip(labels, key, strict=True)), float(value))
            for key, value in sorted(values.items())
        ]
    else:
        lines = [line(name, "", float(values))]
    return head(name, "gauge", text) + "".join(lines)


def bound_text(bound: float) -> str:
    """Return a bound as Go writes it, such as ``0.005``, ``1`` or ``1e+06``."""
    short = f"{bound:g}"
    return short if float(short) == bound else repr(bound)


def histogram(
    name: str, labels: str, bounds: Sequence[float], counts: Sequence[float], total: float
) -> str:
    """Return one histogram; ``counts`` are of each bucket alone, the last one is ``+Inf``."""
    before = f"{labels}," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    lines: list[str] = []
    number = 0.0
    for bound, count in zip((*map(bound_text, bounds), "+Inf"), counts, strict=True):
        number += count
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {number!r}\n')
    lines.append(f"{name}_count{braces} {number!r}\n{name}_sum{braces} {total!r}\n")
    return "".join(lines)


def totals(found: Iterable[Total]) -> str:
    """Return the totals of all processes; every declared counter without labels has a line."""
    by_name: dict[str, list[Total]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    parts: list[str] = []
    for name, family in sorted(FAMILIES.items()):
        if family.kind == "gauge":
            continue
        parts.append(head(name, family.kind, family.text))
        width = len(family.bounds) + 2 if family.bounds else 1
        series = by_name.get(name, [])
        if not series and not family.labels:
            series = [Total(name, "", [0.0] * width)]
        for one in series:
            if len(one.figures) != width:
                continue  # buckets of another version, until a process counts again
            if family.bounds:
                *counts, total = one.figures
                parts.append(histogram(name, one.labels, family.bounds, counts, total))
            else:
                parts.append(line(name, one.labels, one.figures[0]))
    return "".join(parts)


def gauges(found: Mapping[tuple[str, str], float]) -> str:
    """Return the gauges of processes."""
    parts: list[str] = []
    last = ""
    for (name, labels), value in sorted(found.items()):
        if name != last:
            family = FAMILIES.get(name)
            kind = "counter" if name.endswith("_total") else "gauge"
            parts.append(head(name, kind, family.text if family else PROCESS.get(name, name)))
            last = name
        parts.append(line(name, labels, value))
    return "".join(parts)


PROCESS: Final = {
    "process_cpu_seconds_total": "User and system CPU time of a process, in seconds.",
    "process_max_fds": "Files that a process may have open.",
    "process_open_fds": "Files that a process has open.",
    "process_resident_memory_bytes": "Memory of a process that is not paged out.",
    "process_start_time_seconds": "When a process began, in seconds since the epoch.",
    "process_virtual_memory_bytes": "Virtual memory of a process, in bytes.",
}
"""What the kernel says of each process."""
