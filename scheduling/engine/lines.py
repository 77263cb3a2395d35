"""Totals of rows for each distinct request under a plan, shared by all classes that ask for it."""

import struct
from collections import OrderedDict

import numpy as np

from scheduling.engine.plain_run import KINDS, Plan
from scheduling.engine.plans import BLOCK, MOST_GROUPS
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int32, Int64, Mask, UInt64

CHECKS = 8
"""So many amounts are compared at most."""
SHORTEST = 16
_LINE_BYTES = 128 * 2**20
_WARM_BYTES = 12 * 2**20
_FEW_LINES = 256


class Lines:
    """The totals of each distinct request under a plan, the least recently used given away.

    ``total`` int32 (lines, rows): ``_LOW`` where not feasible. ``bits``: of those, why; see
    ``shared.fit_bits``. ``highest`` and ``tied`` (lines, blocks): of each 64 rows the
    highest total and how many have it. ``cursor``: what of the log is worked off, -1: all anew.
    """

    def __init__(self, snapshot: Snapshot, rows: int) -> None:
        self.rows = rows
        blocks = rows // BLOCK
        self.width = snapshot.requested.shape[1]
        self.numbers = struct.Struct(f"{9 + 2 * CHECKS + self.width}q")
        # A stream of requests that never come again should stay in the processor's cache.
        warm = max(_WARM_BYTES // (rows * 8), _FEW_LINES)
        self.most = max(min(warm, _LINE_BYTES // (rows * 8)), SHORTEST)
        self.of_key: OrderedDict[bytes, int] = OrderedDict()
        self.plans: list[Plan] = []
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
        self.asked: Int64 = np.zeros((0, 4), np.int64)
        self.vectors: Int64 = np.zeros((0, self.width), np.int64)
        self.nonzero: Int64 = np.zeros((0, 2), np.int64)
        self.base_of: Int32 = np.zeros(0, np.int32)
        self.mask_of: UInt64 = np.zeros(0, np.uint64)
        self.plan_of: Int32 = np.zeros(0, np.int32)
        self.witness: Int32 = np.zeros((0, MOST_GROUPS), np.int32)
        # By group and block, for plans with programs.
        self.entry_top: Int32 = np.zeros((0, 0, blocks), np.int32)
        self.entry_ties: Int32 = np.zeros((0, 0, blocks), np.int32)
        self.group_size: Int32 = np.zeros((0, 0), np.int32)

    def reserve_groups(self, count: int) -> None:
        """Make room for so many groups of a plan with programs."""
        known = self.group_size.shape[1]
        if count <= known:
            return
        size = max(count, 2 * known)
        for name in ("entry_top", "entry_ties", "group_size"):
            old = getattr(self, name)
            new = np.zeros((len(old), size, *old.shape[2:]), old.dtype)
            new[:, :known] = old
            setattr(self, name, new)

    def reserve(self, size: int) -> None:
        """Make room for ``size`` lines."""
        for name, old in list(vars(self).items()):
            if isinstance(old, np.ndarray):
                new = np.zeros((size, *old.shape[1:]), old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
