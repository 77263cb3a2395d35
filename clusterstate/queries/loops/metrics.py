"""Counters of all processes, and gauges of those that are alive."""

from typing import Final

import msgspec

from clusterstate.database import sql

ALIVE_SECONDS: Final = 30
"""A process that told its gauges longer ago is taken for gone."""


class Total(msgspec.Struct, frozen=True, gc=False):
    """One series; ``labels`` and ``figures`` as in ``telemetry.metrics.families.SeriesCounts``."""

    name: str
    labels: str
    figures: list[float]


def totals() -> list[Total]:
    """Return all series, in the order of name and labels. Queries once."""
    return [
        Total(*row)
        for row in sql.fetch("SELECT name, labels, figures FROM metric_total ORDER BY 1, 2")
    ]


def gauges() -> dict[tuple[str, str], float]:
    """Return the sum of the gauges of living processes, by name and labels. Queries once."""
    found: dict[tuple[str, str], float] = {}
    rows = sql.fetch(
        "SELECT gauges FROM process_metric"
        f" WHERE at > clock_timestamp() - interval '{ALIVE_SECONDS} seconds' ORDER BY holder"
    )
    for (text,) in rows:
        for name, labels, value in msgspec.json.decode(text, type=list[tuple[str, str, float]]):
            found[name, labels] = found.get((name, labels), 0.0) + value
    return found
