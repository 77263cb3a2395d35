"""Results of extension points: the nodes left, the statuses of the others, and scores."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.framework.arrays import Int64
from scheduling.framework.node_table import Rows
from scheduling.framework.status import Status


class PluginFailed(Exception):
    """A plugin raised, answered Error, or broke the contract; ``status`` has name and error."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class PreFiltered(msgspec.Struct, frozen=True):
    """Outcome of PreFilter: the ``rows`` that remain, and the status of all others.

    ``status``: Success, or the rejection of the pod on every node. ``absent``: status of the nodes
    that are not in ``rows``. ``narrowed_by``: names of the plugins that selected nodes, sorted; a
    pod that fits on none of these also waits for events that may change their selection.
    """

    status: Status
    rows: Rows
    absent: Status
    narrowed_by: tuple[str, ...] = ()


class Filtered(msgspec.Struct, frozen=True):
    """Outcome of Filter over ``rows``.

    ``verdict``: int32 over ``rows``, index into ``statuses``; 0 is Success. ``counted``: how many
    rows have each status, if already counted.
    """

    rows: Rows
    verdict: npt.NDArray[np.int32]
    statuses: tuple[Status, ...]
    counted: tuple[int, ...] = ()

    @property
    def counts(self) -> Sequence[int]:
        """How many rows have each status."""
        if self.counted:
            return self.counted
        found: list[int] = np.bincount(self.verdict, minlength=len(self.statuses)).tolist()
        return found

    def narrowed(self, places: npt.NDArray[np.intp], other: "Filtered") -> "Filtered":
        """Return a copy with verdicts of ``other`` for the rows at ``places``, which pass here."""
        verdict = self.verdict.copy()
        base = np.int32(len(self.statuses) - 1)
        verdict[places] = np.where(other.verdict > 0, other.verdict + base, 0)
        return Filtered(self.rows, verdict, (*self.statuses, *other.statuses[1:]))

    @property
    def feasible(self) -> Rows:
        """The rows that pass, in the same order."""
        passing: Rows = self.rows[self.verdict == 0]
        return passing

    def status(self, position: int) -> Status:
        """Return the status of ``rows[position]``."""
        return self.statuses[int(self.verdict[position])]


class ScoreTable(msgspec.Struct, frozen=True):
    """Outcome of Score over ``rows``: int64 matrices, shape (plugins, rows).

    ``skipped``: plugins whose PreScore answered Skip; they have no line and count as 0.
    """

    rows: Rows
    plugins: tuple[str, ...]
    raw: Int64
    normalized: Int64
    weighted: Int64
    total: Int64
    skipped: tuple[str, ...] = ()
