"""Formats outcomes and comparisons as text tables and as JSON lines."""

from collections.abc import Iterator, Sequence

import msgspec

from clusterstate.objects.values import text_table
from clusterstate.objects.values.meta import Manifest
from scheduling.scenarios import durations
from scheduling.scenarios.comparing import Comparison, Figure
from scheduling.scenarios.outcome import Outcome

_MOST_PODS = 50


def shown(figure: Figure, value: float) -> str:
    """Return a value of a figure as text with its unit."""
    if figure.form == "share":
        return f"{100 * value:.2f} %"
    if figure.form == "seconds":
        return durations.show(value)
    return f"{value:.1f}" if value != int(value) else f"{int(value)}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a text table: the first column left-aligned, the others right-aligned."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   ".join(cells).rstrip())
    return "\n".join(lines)


def comparison_table(found: Comparison) -> str:
    """Return the figures side by side; for several outcomes also how many pods differ."""
    rows = [["", *found.titles]]
    rows += [
        [figure.name, *(shown(figure, value) for value in figure.values)]
        for figure in found.figures
        if any(figure.values) or figure.name in ("bound", "never bound")
    ]
    if len(found.titles) > 1:
        first = found.titles[0]
        for text, counts in (
            (f"pods on another node than under {first}", found.elsewhere),
            (f"pods that wait longer than under {first}", found.waited_longer),
            (f"pods that wait less than under {first}", found.waited_less),
        ):
            rows.append([text, "-", *(str(count) for count in counts[1:])])
    return columns(rows)


def pods_table(outcome: Outcome) -> str:
    """Return a table of at most ``_MOST_PODS`` pods and their results, unplaced ones first."""
    ordered = sorted(
        outcome.fates, key=lambda fate: (fate.bound_at is not None, fate.came_at, fate.pod)
    )
    rows = [["POD", "CAME", "WAITED", "NODE", "END", "WHY"]]
    for fate in ordered[:_MOST_PODS]:
        waited = "-" if fate.waited is None else durations.show(fate.waited)
        why = fate.by or fate.message
        end = str(fate.end) or fate.status
        rows.append([fate.pod, durations.show(fate.came_at), waited, fate.node or "-", end, why])
    lines = text_table.columns(rows)
    if len(ordered) > _MOST_PODS:
        lines.append(f"... and {len(ordered) - _MOST_PODS} more (all with -o jsonl)")
    return "\n".join(lines)


def json_lines(outcomes: Sequence[Outcome], found: Comparison) -> Iterator[bytes]:
    """Yield JSON lines: pods, samples and a summary of each outcome, then the differences."""
    encode = msgspec.json.encode
    for outcome in outcomes:
        for fate in outcome.fates:
            line: Manifest = {
                "type": "pod",
                "run": outcome.title,
                "pod": fate.pod,
                "cameAt": fate.came_at,
                "boundAt": fate.bound_at,
                "node": fate.node,
                "leftAt": fate.left_at,
                "left": str(fate.end),
                "by": fate.by,
                "attempts": fate.attempts,
                "status": fate.status,
                "message": fate.message,
                "given": fate.has_fixed_node,
            }
            yield encode(line)
        for sample in outcome.samples:
            yield encode(
                {
                    "type": "sample",
                    "run": outcome.title,
                    "at": sample.at,
                    "pending": sample.pending,
                    "running": sample.running,
                    "nodes": sample.nodes,
                    "nodesUsed": sample.nodes_used,
                    "used": sample.used,
                    "fragmented": sample.fragmented,
                }
            )
        yield encode({"type": "summary", "run": outcome.title, **outcome.summary()})
    for one in found.nodes:
        counts = dict(zip(found.titles, one.counts, strict=True))
        yield encode({"type": "node", "node": one.node, "given": counts})
