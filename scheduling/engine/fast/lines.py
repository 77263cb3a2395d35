"""Totals of rows for each distinct request under a sheet, shared by all classes with both."""

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np

from scheduling.engine.compiled.layout import (
    AMOUNT,
    BLOCK,
    COLUMN,
    KINDS,
    ONCE,
    SCORED_COLUMNS,
    TOGETHER,
    WEIGHT,
)
from scheduling.engine.fast.sheets import MOST_GROUPS, Sheet
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int16, Int32, Int64, Mask, UInt64, numbered
from scheduling.framework.node_table import Rows

CHECKS = 8
"""This many amounts are compared at most."""
SHORTEST = 16
_FIRST_LINES = 512
"""The number of lines allocated at first: memory that is not touched costs nothing."""
PARTS = (1, 3, 3 + CHECKS, 3 + 2 * CHECKS)
"""Where parts of a line's key begin: sheet, amounts with defaults, checks, their columns, vector.

The vector is followed by what scores look at.
"""
_LINE_BYTES = 128 * 2**20
_WARM_BYTES = 12 * 2**20
_FEW_LINES = 256
_MOST_MET = 65_536
_FIRST = (ONCE, TOGETHER)
_BY_PLACE = frozenset(
    {
        "total", "bits", "highest", "tied", "widest", "dense", "group", "group_size", "entries",
        "entry_group", "entry_top", "entry_ties",
    }
)  # fmt: skip


class OfPlan(NamedTuple):
    """A sheet's data for lines: which groups have feasible rows (as bits), and base scores.

    ``least`` and ``balanced``: the weights of NodeResourcesFit and of balance, 0 where the sheet
    lacks that score.
    """

    mask: int
    base: int
    least: int
    balanced: int


class Lines:
    """A cache of lines: the totals of all rows for each distinct request under a sheet.

    When all lines are in use, a known request replaces the least recently used one. A request that
    occurs for the first time may never occur again: it gets one of the first ``ONCE`` lines, for
    one pod. The totals of these share few places, which stay in the processor's cache. ``kept``:
    the capacity for permanent lines, which are numbered from ``ONCE`` on. Arrays with a dimension
    of rows, blocks or groups, and ``widest`` and ``dense``, are indexed by place
    (``compiled.anew.place_of``), all others by line.

    ``total`` int32 (places, rows): ``_LOW`` where not feasible. ``bits``: why a row is not
    feasible; see ``shared.fit_bits``. ``highest`` and ``tied`` (places, blocks): the highest total
    of 64 rows and how many have it. ``cursor``: position in the log up to which the line is up to
    date, -1: score all rows anew. ``anew``: the same, but ``group`` is up to date to the cursor.
    ``group`` int16 (places, rows), for classes with programs: the group of each row, of the sheet
    or of the program itself. ``scored`` int64 (lines, 2, resources, SCORED_COLUMNS): what
    NodeResourcesFit and balance score. ``terms`` float64 (lines, 9): cpu and memory that must be
    free, that are scored, and that are balanced, the weights of scored ones and one over their sum;
    for rows that are not odd.
    """

    def __init__(self, snapshot: Snapshot, rows: int, more_scored: int) -> None:
        self.rows = rows
        self.scored_count = more_scored or 2
        blocks = rows // BLOCK
        self.width = snapshot.requested.shape[1]
        self.key_length = 3 + 2 * CHECKS + self.width + 2 * self.scored_count * SCORED_COLUMNS
        # Lines for requests that never occur again must fit into the processor's cache.
        warm = max(_WARM_BYTES // (rows * 8), _FEW_LINES)
        self.most = max(min(warm, _LINE_BYTES // (rows * 8)), SHORTEST)
        self.of_key: OrderedDict[bytes, int] = OrderedDict()
        self.kept = 0
        self._met: set[int] = set()
        self.sheets: list[Sheet] = []
        self.total: Int32 = np.zeros((0, rows), np.int32)
        self.bits: Int32 = np.zeros((0, rows), np.int32)
        self.highest: Int32 = np.zeros((0, blocks), np.int32)
        self.tied: Int32 = np.zeros((0, blocks), np.int32)
        self.kinds: Int32 = np.zeros((0, KINDS, 2), np.int32)
        self.feasible: Int64 = np.zeros(0, np.int64)
        self.cursor: Int64 = np.zeros(0, np.int64)
        self.amounts: Int64 = np.zeros((0, CHECKS), np.int64)
        self.columns: Int64 = np.zeros((0, CHECKS), np.int64)
        self.more: Mask = np.zeros(0, np.bool_)
        self.terms: Float64 = np.zeros((0, 9), np.float64)
        self.weights: Int32 = np.zeros((0, 2), np.int32)
        self.scored: Int64 = np.zeros((0, 2, self.scored_count, SCORED_COLUMNS), np.int64)
        self.vectors: Int64 = np.zeros((0, self.width), np.int64)
        self.nonzero: Int64 = np.zeros((0, 2), np.int64)
        self.base_of: Int32 = np.zeros(0, np.int32)
        self.mask_of: UInt64 = np.zeros(0, np.uint64)
        self.sheet_of: Int32 = np.zeros(0, np.int32)
        self.witness: Int32 = np.zeros((0, MOST_GROUPS), np.int32)
        self.anew: Mask = np.zeros(0, np.bool_)
        # Used by lines of classes with programs; see ``compiled.entries``.
        self.widest: Int32 = np.zeros(0, np.int32)
        self.dense: Int32 = np.zeros(0, np.int32)
        self.group: Int16 = np.zeros((0, 0), np.int16)
        self.group_size: Int32 = np.zeros((0, 0), np.int32)
        self.entries: Int32 = np.zeros((0, 0), np.int32)
        self.entry_group: Int16 = np.zeros((0, 0, 0), np.int16)
        self.entry_top: Int32 = np.zeros((0, 0, 0), np.int32)
        self.entry_ties: Int32 = np.zeros((0, 0, 0), np.int32)

    def keeps(self, key: bytes) -> bool:
        """Return whether a request gets a permanent line: there is space, or it occurred before.

        Each call notes the request. A hash collision or a forgotten request only changes whether
        the pod's line is permanent.
        """
        if key in self.of_key or len(self.of_key) < self.most:
            return True
        number = hash(key)
        if number in self._met:
            return True
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        self._met.add(number)
        return False

    def give(self, key: bytes, held: Container[int]) -> tuple[int, bool]:
        """Return the line of a key, and whether the line is new and must be written.

        A new key replaces the least recently used line that is not in ``held``; -1 if all are.
        """
        number = self.of_key.get(key)
        if number is not None:
            self.of_key.move_to_end(key)
            return number, False
        if len(self.of_key) < self.most:
            count = len(self.of_key)
            if count >= self.kept:
                self.reserve(min(max(_FIRST_LINES, 2 * count), self.most))
            number = ONCE + count
        else:
            oldest = next(iter(self.of_key.items()))
            number = oldest[1]
            if number in held:
                return -1, False
            del self.of_key[oldest[0]]
        self.of_key[key] = number
        return number, True

    def write(
        self, lines: Sequence[int], keys: Sequence[bytes], of_sheet: Callable[[int], OfPlan]
    ) -> None:
        """Write the data of some lines into the arrays that the compiled loop reads.

        Args:
            lines: their numbers.
            keys: their keys, of ``key_length`` numbers each.
            of_sheet: returns the data of a sheet, by its number.

        Raises:
            PluginFailed: a plugin failed.
        """
        if not self.kept:
            self.reserve(min(_FIRST_LINES, self.most))
        numbers = np.array(lines)
        written = np.frombuffer(b"".join(keys), np.int64).reshape(len(numbers), -1)
        sheet_of, nonzero, amounts, columns, rest = np.split(written, PARTS, axis=1)
        resources = rest[:, self.width :].reshape(len(numbers), *self.scored.shape[1:])
        sheets, at = numbered(sheet_of[:, 0])
        masks, bases, least, balanced = zip(*map(of_sheet, sheets.tolist()), strict=True)
        weights = np.array([least, balanced], np.int32).T[at]
        self.sheet_of[numbers] = sheet_of[:, 0]
        self.amounts[numbers] = amounts
        self.columns[numbers] = columns
        self.more[numbers] = (columns > 1).any(axis=1)
        self.vectors[numbers] = rest[:, : self.width]
        self.nonzero[numbers] = nonzero
        self.mask_of[numbers] = np.array(masks, np.uint64)[at]
        self.base_of[numbers] = np.array(bases, np.int32)[at]
        self.weights[numbers] = weights
        self.scored[numbers] = resources
        self.terms[numbers] = _terms(amounts, columns, resources, weights)
        self.witness[numbers] = -1
        self.cursor[numbers] = -1
        self.anew[numbers] = False

    def move_rows(self, sheet: Sheet, rows: Rows) -> None:
        """Mark a sheet's lines to be scored anew, since the sheet's ``rows`` changed."""
        kept = np.fromiter(self.of_key.values(), np.intp, len(self.of_key))
        kept = kept[self.sheet_of[kept] == sheet.number]
        self.cursor[kept] = -1
        self.witness[kept] = -1
        if sheet.keyed and self.group.shape[1]:
            self.group[(kept - ONCE + TOGETHER)[:, None], rows] = sheet.group[rows]

    def reserve_groups(self, count: int) -> None:
        """Grow the arrays to ``count`` groups of rows per line."""
        known = self.group_size.shape[1]
        if count <= known:
            return
        places = len(self.total)
        size = np.zeros((places, count), np.int32)
        size[:, :known] = self.group_size
        self.group_size = size
        if not known:
            blocks = self.rows // BLOCK
            self.group = np.zeros((places, self.rows), np.int16)
            self.entries = np.zeros((places, blocks), np.int32)
            self.entry_group = np.zeros((places, BLOCK, blocks), np.int16)
            self.entry_top = np.zeros((places, BLOCK, blocks), np.int32)
            self.entry_ties = np.zeros((places, BLOCK, blocks), np.int32)

    def reserve(self, size: int) -> None:
        """Grow the arrays to ``size`` permanent lines."""
        known = len(self.total)
        for name, old in list(vars(self).items()):
            if isinstance(old, np.ndarray):
                new = np.zeros((size + _FIRST[name in _BY_PLACE], *old.shape[1:]), old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        self.kept = size
        self.widest[known:] = BLOCK  # entries are cleared when they are first made


def _terms(amounts: Int64, columns: Int64, resources: Int64, weights: Int32) -> Float64:
    """Return ``Lines.terms`` of each line: cpu and memory for vectors, float64 (lines, 9)."""
    terms = np.zeros((len(amounts), 9))
    for column in range(2):
        terms[:, column] = np.where(columns == column, amounts, -np.inf).max(axis=1)
        for score, place in ((0, 2), (1, 4)):
            is_it = resources[:, score, :, COLUMN] == column
            asked = np.where(is_it, resources[:, score, :, AMOUNT], 0).sum(axis=1)
            # A score that the sheet lacks counts as 0.
            terms[:, place + column] = np.where(weights[:, score] > 0, asked, 0)
            if score == 0:
                shares = np.where(is_it, resources[:, score, :, WEIGHT], 0).sum(axis=1)
                terms[:, 6 + column] = shares
    summed = terms[:, 6:8].sum(axis=1)
    terms[:, 8] = np.divide(1.0, summed, out=np.zeros(len(amounts)), where=summed > 0)
    return terms
