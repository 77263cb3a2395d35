"""Differences between outcomes of one script: figures, pods, nodes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from scheduling.scenarios.outcome import Outcome, PodTimeline

MOST_SHOWN: Final = 200
"""The most differing pods that are listed; the numbers count all."""


class Figure(msgspec.Struct, frozen=True):
    """A figure with its value in each outcome, and its format.

    ``form``: ``count``, ``share`` or ``seconds``. ``better``: ``less``, ``more`` or empty.
    """

    name: str
    form: str
    values: tuple[float, ...]
    better: str = ""


class PodDifference(msgspec.Struct, frozen=True):
    """A pod whose outcomes differ: for each outcome its node, its wait and how it ended."""

    pod: str
    nodes: tuple[str, ...]
    waited: tuple[float | None, ...]
    ends: tuple[str, ...]


class NodeDifference(msgspec.Struct, frozen=True):
    """How many pods a node got in total, by outcome."""

    node: str
    counts: tuple[int, ...]


class Comparison(msgspec.Struct, frozen=True):
    """The differences between outcomes, all compared with the first one.

    ``elsewhere``: how many pods have another node. ``waited_longer`` and ``waited_less``: how many
    waited longer, or less, by more than a second.
    """

    titles: tuple[str, ...]
    figures: tuple[Figure, ...]
    elsewhere: tuple[int, ...]
    waited_longer: tuple[int, ...]
    waited_less: tuple[int, ...]
    pods: tuple[PodDifference, ...]
    nodes: tuple[NodeDifference, ...]


_FIGURES: Final = (
    ("pods created", "pods", "count", ""),
    ("bound", "bound", "count", "more"),
    ("never bound", "neverBound", "count", "less"),
    ("mean wait of bound pods", "waitMean", "seconds", "less"),
    ("median wait of bound pods", "waitP50", "seconds", "less"),
    ("wait, 90th percentile", "waitP90", "seconds", "less"),
    ("wait, 99th percentile", "waitP99", "seconds", "less"),
    ("longest wait", "waitMost", "seconds", "less"),
    ("moved: preempted, evicted or lost", "moved", "count", "less"),
    ("preempted", "preempted", "count", "less"),
    ("evicted", "evicted", "count", "less"),
    ("lost with a node", "lost", "count", "less"),
    ("nodes in use, mean", "nodesUsed", "count", "less"),
    ("nodes in use, most", "nodesUsedPeak", "count", "less"),
    ("free but too fragmented to use, mean", "fragmented", "share", "less"),
    ("free but too fragmented to use, most", "fragmentedPeak", "share", "less"),
)


def compare(outcomes: Sequence[Outcome]) -> Comparison:
    """Return the differences between outcomes; all are compared with the first one."""
    summaries = [outcome.summary() for outcome in outcomes]
    figures = [
        Figure(name, form, tuple(float(one[key]) for one in summaries), better)
        for name, key, form, better in _FIGURES
    ]
    for resource in sorted({key for one in summaries for key in one if key.startswith("used:")}):
        name = resource.removeprefix("used:")
        for text, key in (("mean", resource), ("most", f"peak:{name}")):
            values = tuple(float(one.get(key, 0.0)) for one in summaries)
            figures.append(Figure(f"{name} in use, {text}", "share", values, ""))
    by_pod = [_by_pod(outcome) for outcome in outcomes]
    first = by_pod[0]
    elsewhere, longer, less = [0], [0], [0]
    for other in by_pod[1:]:
        both = [(fate, other[pod]) for pod, fate in first.items() if pod in other]
        elsewhere.append(sum(one.node != another.node for one, another in both))
        gaps = [_gap(one, another) for one, another in both]
        longer.append(sum(gap > 1 for gap in gaps))
        less.append(sum(gap < -1 for gap in gaps))
    return Comparison(
        titles=tuple(outcome.title for outcome in outcomes),
        figures=tuple(figures),
        elsewhere=tuple(elsewhere),
        waited_longer=tuple(longer),
        waited_less=tuple(less),
        pods=tuple(_pods(by_pod)),
        nodes=tuple(_nodes(outcomes)),
    )


def _by_pod(outcome: Outcome) -> dict[str, PodTimeline]:
    """Return the first timeline of each pod by name."""
    found: dict[str, PodTimeline] = {}
    for fate in outcome.fates:
        found.setdefault(fate.pod, fate)
    return found


_NEVER: Final = 1e18


def _gap(one: PodTimeline, other: PodTimeline) -> float:
    """Return how many seconds longer the other pod waited; an unbound pod waited longest."""
    waits = [_NEVER if fate.waited is None else fate.waited for fate in (one, other)]
    return waits[1] - waits[0]


def _pods(by_pod: Sequence[dict[str, PodTimeline]]) -> list[PodDifference]:
    """Return the pods that differ most: bound only in some outcomes, then by waiting time."""
    if len(by_pod) < 2:
        return []
    ranked: list[tuple[float, str, list[PodTimeline]]] = []
    for pod, fate in by_pod[0].items():
        fates = [fate, *(other[pod] for other in by_pod[1:] if pod in other)]
        if len(fates) < len(by_pod):
            continue
        gaps = [abs(_gap(fate, other)) for other in fates[1:]]
        if max(gaps) > 1 or any(other.end is not fate.end for other in fates[1:]):
            ranked.append((max(gaps), pod, fates))
    ranked.sort(key=lambda one: (-one[0], one[1]))
    return [
        PodDifference(
            pod,
            tuple(fate.node for fate in fates),
            tuple(fate.waited for fate in fates),
            tuple(str(fate.end) or fate.status for fate in fates),
        )
        for _, pod, fates in ranked[:MOST_SHOWN]
    ]


def _nodes(outcomes: Sequence[Outcome]) -> list[NodeDifference]:
    """Return the nodes that got different numbers of pods, the most different first."""
    counts_by_node: dict[str, list[int]] = {}
    for number, outcome in enumerate(outcomes):
        for fate in outcome.fates:
            if fate.node:
                counts_by_node.setdefault(fate.node, [0] * len(outcomes))[number] += 1
    differing = [
        NodeDifference(node, tuple(counts))
        for node, counts in counts_by_node.items()
        if len(set(counts)) > 1
    ]
    differing.sort(key=lambda one: (min(one.counts) - max(one.counts), one.node))
    return differing[:MOST_SHOWN]
