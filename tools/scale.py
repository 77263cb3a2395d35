"""Write the tables of ``docs/scale.md``: ``python -m tools.scale``.

The first tables are arithmetic from costs that were measured on one machine. The last one is a
simulation of cells: clusters of their own, each with a database and schedulers, that share the
namespaces of one organisation. The random numbers have a fixed seed, so the same figures give the
same bytes, and a test compares them with the page.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

PAGE: Final = Path(__file__).parents[1] / "docs/scale.md"
BEGIN: Final = "<!-- tables: python -m tools.scale -->"
END: Final = "<!-- end of tables -->"

CREATED: Final = 23.0
"""CPU time of PostgreSQL in microseconds for a pod of a PodList (``make bench ARGS=--backlog``)."""
CREATED_ALONE: Final = 350.0
"""For a pod that is POSTed by itself over 16 connections (``make bench ARGS=--cost``)."""
BOUND: Final = 34.0
"""To bind it, and to read the change as the one scheduler that decides."""
TOLD: Final = 35.0
"""To keep its decision and its Event."""
DELETED: Final = 20.0
FOLLOWED: Final = 2.4
"""For each change and each further process that follows the change log."""
CHANGES: Final = 3
"""Of a pod: it is created, bound and gone."""
RENEWED: Final = 30.0
"""For a Lease that is renewed, 64 in a batch; 60 with 16, and 650 alone."""
WAL_BYTES: Final = {"created": 2150, "bound": 870, "told": 1720, "deleted": 750, "renewed": 400}
ROW_BYTES: Final = 2200
"""Of a pod at rest: its row, its document, its change and their indexes."""
CHANGE_BYTES: Final = 200
RENEWAL_SECONDS: Final = 10

NODES: Final = (5_000, 100_000, 1_000_000)
PODS_A_NODE: Final = 30
SCHEDULERS: Final = 4
CHURN: Final = (1_000, 5_000, 15_000, 50_000)

CELLS: Final = 10
CELL_NODES: Final = 100_000
NAMESPACES: Final = 5_000
HOURS: Final = 24 * 7
FILLS: Final = (0.6, 0.8, 0.9, 0.95)
MOVES_AN_HOUR: Final = 5


class Outcome(NamedTuple):
    """What a week in cells came to, in percent of the pods that wanted to run."""

    waited: float
    """Pods that waited in a full cell while another cell had room, mean over the hours."""
    moved: float
    """Pods that were recreated in another cell, a day."""
    spread: float
    """Points between the fullest and the emptiest cell, mean over the hours."""


def heartbeats() -> list[str]:
    """Return the rows about heartbeats: what every node costs each ten seconds."""
    rows = ["| Nodes | renewals a second | PostgreSQL, cores | WAL |", "|---|---|---|---|"]
    for nodes in NODES:
        rate = nodes / RENEWAL_SECONDS
        rows.append(
            f"| {nodes:,} | {rate:,.0f} | {rate * RENEWED / 1e6:.1f} "
            f"| {rate * WAL_BYTES['renewed'] / 1e6:.1f} MB/s |"
        )
    return rows


def pods() -> list[str]:
    """Return the rows about pods that come, are bound and go, at several rates."""
    rows = [
        "| Pods a second | made by | PostgreSQL, cores | WAL | Change log of an hour |",
        "|---|---|---|---|---|",
    ]
    following = CHANGES * (SCHEDULERS - 1) * FOLLOWED
    wal = sum(WAL_BYTES[step] for step in ("created", "bound", "told", "deleted"))
    for rate in CHURN:
        for name, create in (("PodLists", CREATED), ("one POST each", CREATED_ALONE)):
            cores = rate * (create + BOUND + TOLD + DELETED + following) / 1e6
            rows.append(
                f"| {rate:,} | {name} | {cores:.1f} | {rate * wal / 1e6:.0f} MB/s "
                f"| {rate * 3600 * CHANGES * CHANGE_BYTES / 1e9:.1f} GB |"
            )
    return rows


def at_rest() -> list[str]:
    """Return the rows about size: tables, and a scheduler's memory."""
    rows = ["| Nodes | Pods | Tables |", "|---|---|---|"]
    for nodes in NODES:
        count = nodes * PODS_A_NODE
        rows.append(f"| {nodes:,} | {count:,} | {count * ROW_BYTES / 1e9:.1f} GB |")
    return rows


def week(fill: float, *, moves: int, seed: int = 1) -> Outcome:
    """Return what happens in a week to pods of namespaces that are divided over cells.

    ``fill`` is the demand of all namespaces, as a share of the room of all cells. ``moves`` is how
    many namespaces an hour may be handed to another cell. A namespace's demand is drawn from a
    log-normal distribution (a hundredth of the namespaces have 45 % of the pods, the largest 6 %),
    follows the hour of the day with a phase of its own, and wanders by some percent an hour. A new
    namespace goes to the cell with the most room, and so does one that is moved.
    """
    draw = np.random.default_rng(seed)
    room = float(CELL_NODES * PODS_A_NODE)
    base = draw.lognormal(0.0, 2.0, NAMESPACES)
    phase = draw.uniform(0, 24, NAMESPACES)
    cell = np.zeros(NAMESPACES, dtype=np.int64)
    used = np.zeros(CELLS)
    scale = fill * room * CELLS / base.sum()
    for namespace in range(NAMESPACES):
        cell[namespace] = used.argmin()
        used[cell[namespace]] += base[namespace] * scale
    waited = moved = spread = total = 0.0
    for hour in range(HOURS):
        base = base * draw.lognormal(0.0, 0.03, NAMESPACES)
        demand = base * (1 + 0.3 * np.sin((hour + phase) * 2 * np.pi / 24))
        demand *= fill * room * CELLS / demand.sum()
        moved += _hand_over(cell, demand, room, moves)
        used = _used(cell, demand)
        over = np.maximum(used - room, 0).sum()
        waited += min(over, float(np.maximum(room - used, 0).sum()))
        spread += float(used.max() - used.min()) / room
        total += float(demand.sum())
    return Outcome(
        waited=100 * waited / total,
        moved=100 * moved / total * 24,
        spread=100 * spread / HOURS,
    )


def _used(cell: npt.NDArray[np.int64], demand: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the demand in each cell, shape (cells,)."""
    return np.bincount(cell, weights=demand, minlength=CELLS).astype(np.float64)


def _hand_over(
    cell: npt.NDArray[np.int64], demand: npt.NDArray[np.float64], room: float, moves: int
) -> float:
    """Move up to ``moves`` namespaces out of full cells; return how many pods that recreates.

    The smallest namespace that ends the excess goes, else the largest that the emptiest cell takes.
    """
    pods = 0.0
    for _ in range(moves):
        used = _used(cell, demand)
        full, empty = int(used.argmax()), int(used.argmin())
        excess, left = used[full] - room, room - used[empty]
        if excess <= 0:
            break
        here = np.flatnonzero((cell == full) & (demand <= left))
        if not here.size:
            break
        sizes = demand[here]
        enough = here[sizes >= excess]
        chosen = enough[demand[enough].argmin()] if enough.size else here[sizes.argmax()]
        cell[chosen] = empty
        pods += float(demand[chosen])
    return pods


def cells() -> list[str]:
    """Return the rows of the simulation: ten cells of 100,000 nodes over a week."""
    rows = [
        f"| Demand | No moves | | At most {MOVES_AN_HOUR} moves an hour | | |",
        "|---|---|---|---|---|---|",
        "| | waiting | spread | waiting | recreated a day | spread |",
    ]
    for fill in FILLS:
        still, moving = week(fill, moves=0), week(fill, moves=MOVES_AN_HOUR)
        rows.append(
            f"| {fill:.0%} | {still.waited:.2f} % | {still.spread:.0f} points "
            f"| {moving.waited:.2f} % | {moving.moved:.2f} % | {moving.spread:.0f} points |"
        )
    return rows


def tables() -> str:
    """Return all tables as Markdown, as they stand in the page."""
    parts = (
        ("Heartbeats", heartbeats()),
        ("Pods that come and go", pods()),
        ("At rest", at_rest()),
        ("A week in ten cells", cells()),
    )
    return "\n\n".join(f"### {title}\n\n" + "\n".join(rows) for title, rows in parts)


def written(page: str) -> str:
    """Return the page with its tables made anew."""
    before, rest = page.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stderr.write(f"written: {PAGE}\n")
