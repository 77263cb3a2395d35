"""Explains a pod's decision over all nodes, as columns: rejections per filter, scores, the choice.

``explain`` combines verdicts and scores once; ``head`` and ``page`` write parts of it as JSON.
Nodes are sorted: the chosen one, then feasible ones from the highest total down, then others from
the fewest rejections up, equal ones by name.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from clusterstate.objects.values.meta import Manifest
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.outcomes import ScoreTable
from scheduling.framework.status import Status
from scheduling.simulation.verdicts import Verdicts

_UNSCORED: Final = -(2**62)


class Explanation(msgspec.Struct, frozen=True):
    """Verdicts and scores of one pod, with the nodes' names at that time.

    ``names``: names of ``verdicts.rows``. ``order``: sorted positions in ``names``. ``scored``
    int64 (nodes,): position in ``scores``, -1 where a node was not scored. ``chosen``: position of
    the pod's node, -1 without one. ``weights``: by score plugin.
    """

    verdicts: Verdicts
    scores: ScoreTable | None
    names: list[str]
    order: Int64
    scored: Int64
    chosen: int
    weights: dict[str, int]


def explain(
    snapshot: Snapshot,
    verdicts: Verdicts,
    scores: ScoreTable | None,
    *,
    chosen: str = "",
    weights: dict[str, int],
) -> Explanation:
    """Return verdicts and scores, with nodes sorted; ``chosen``: a node's name, or ""."""
    rows = verdicts.rows
    names = [snapshot.names[row] for row in rows.tolist()]
    scored = np.full(len(rows), -1, np.int64)
    totals = np.full(len(rows), _UNSCORED, np.int64)
    if scores is not None:
        at = np.searchsorted(rows, scores.rows)
        scored[at] = np.arange(len(scores.rows))
        totals[at] = scores.total
    row = snapshot.row_of(chosen) if chosen else None
    place = -1 if row is None else int(np.searchsorted(rows, row))
    others = np.arange(len(rows)) != place
    rank = snapshot.name_rank()[rows]
    order = np.lexsort((rank, -totals, verdicts.rejections, others))
    return Explanation(verdicts, scores, names, order, scored, place, weights)


def head(explained: Explanation) -> Manifest:
    """Return the answer without the nodes: counts per filter, ``blockers`` and the choice.

    ``funnel`` lists, filter by filter, how many nodes remain. The choice needs scores.
    """
    verdicts = explained.verdicts
    found: Manifest = {
        "nodes": {"known": len(verdicts.rows), "feasible": len(verdicts.feasible)},
        "funnel": [msgspec.to_builtins(step) for step in verdicts.funnel()],
        "blockers": blockers(verdicts),
    }
    choice = _choice(explained)
    if choice is not None:
        found["choice"] = choice
    return found


def blockers(verdicts: Verdicts) -> list[Manifest]:
    """Return each rejecting status, how many nodes it rejects and how many it alone rejects.

    The most frequent comes first. A node counts for each filter that rejects it.
    """
    found = [
        {
            "plugin": status.plugin,
            "code": status.code.wire,
            "reasons": list(status.reasons),
            "nodes": nodes,
            "alone": alone,
        }
        for status, nodes, alone in verdicts.counts()
    ]
    return sorted(found, key=lambda one: (-one["nodes"], one["plugin"], one["reasons"]))


def page(
    explained: Explanation, *, offset: int = 0, limit: int = 500, rejected_by: str = ""
) -> Manifest:
    """Return some of the nodes in columns, all of the same length.

    ``name``; ``rejections``: how many filters reject the node; ``verdicts``: by filter, an index
    into ``statuses``; ``total`` and ``scores`` (raw, normalized and weighted by plugin), if any
    node was scored, with ``null`` for the others.

    Args:
        explained: from ``explain``.
        offset: how many nodes come before the page.
        limit: the most nodes of the page.
        rejected_by: only nodes that this filter rejects.
    """
    verdicts = explained.verdicts
    order = explained.order
    if rejected_by:
        order = order[verdicts.by(rejected_by)[order]]
    chosen = order[offset : offset + limit]
    names = explained.names
    found: Manifest = {
        "count": len(order),
        "offset": offset,
        "name": [names[at] for at in chosen.tolist()],
        "rejections": verdicts.rejections[chosen].tolist(),
        "statuses": [_status(status) for status in verdicts.statuses],
        "verdicts": {
            plugin: line[chosen].tolist()
            for plugin, line in zip(verdicts.plugins, verdicts.verdict, strict=True)
            if line.any()
        },
    }
    scores, at = explained.scores, explained.scored[chosen]
    if scores is not None and (at >= 0).any():
        found["total"] = _column(scores.total, at)
        found["scores"] = {
            plugin: {
                "weight": explained.weights.get(plugin, 1),
                "raw": _column(scores.raw[line], at),
                "normalized": _column(scores.normalized[line], at),
                "weighted": _column(scores.weighted[line], at),
            }
            for line, plugin in enumerate(scores.plugins)
        }
    return found


def _status(status: Status) -> Manifest:
    return {
        "plugin": status.plugin,
        "code": status.code.wire,
        "reasons": list(status.reasons),
    }


def _column(values: Int64, at: Int64) -> list[int | None]:
    if (at >= 0).all():
        column: list[int | None] = values[at].tolist()
        return column
    padded: Sequence[int | None] = [*values.tolist(), None]
    return [padded[number] for number in at.tolist()]


def _choice(explained: Explanation) -> Manifest | None:
    """Return the chosen or best node, its lead in score, and the next node's lower scores."""
    scores, verdicts = explained.scores, explained.verdicts
    if scores is None:
        if not len(verdicts.feasible):
            return None
        (row,) = verdicts.feasible[:1].tolist()
        name = explained.names[int(np.searchsorted(verdicts.rows, row))]
        return {"nodeName": name, "only": True}
    top = int(scores.total.max())
    best = np.flatnonzero(scores.total == top)
    place = int(explained.scored[explained.chosen]) if explained.chosen >= 0 else -1
    winner = place if place >= 0 else int(best[0])
    places = np.searchsorted(verdicts.rows, scores.rows).tolist()
    others = scores.total.copy()
    others[winner] = _UNSCORED
    level = np.flatnonzero(others == others.max()).tolist()
    next_one = min(level, key=lambda number: explained.names[places[number]])
    total = int(scores.total[winner])
    lacks: list[dict[str, Any]] = []
    for line, plugin in enumerate(scores.plugins):
        mine, its = int(scores.weighted[line, winner]), int(scores.weighted[line, next_one])
        if mine != its:
            lacks.append({"plugin": plugin, "chosen": mine, "runnerUp": its, "by": mine - its})
    lacks.sort(key=lambda one: (-one["by"], one["plugin"]))
    return {
        "nodeName": explained.names[places[winner]],
        "total": total,
        "best": top,
        "rank": int((scores.total > total).sum()) + 1,
        "ties": len(best),
        "margin": total - int(others.max()),
        "skipped": list(scores.skipped),
        "runnerUp": {
            "nodeName": explained.names[places[next_one]],
            "total": int(others.max()),
            "differences": lacks,
        },
    }
