"""Whether nodes would have room for a pod if some of theirs were gone, in numbers.

Preemption asks this many times a node. Where filters depend on nodes alone but for one that only
compares requests with what is free (``terms.PlainFilter``), the answer is a few sums: *slack* is
what is left of pod places and of each resource that is compared, with the pod and the guests (pods
that are nominated to the node) counted; the pod fits where none of it is negative.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scheduling.framework.interface import NodeTable, Rows
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.terms import PlainFilter
from scheduling.framework.types import PodInfo

Slack = npt.NDArray[np.int64]
"""Pod places, then each resource that is compared, int64 (rows, 1 + resources)."""


class Rooms:
    """What is asked about many rows for one pod.

    Args:
        pod: the pod that looks for room.
        snapshot: the nodes; only pods may come and go while this is used.
        fit: the filter that compares.
        fit_name: its name.
        before: rejections by filters that come before it, by row.
        after: rejections by filters that come after it, by row.
    """

    def __init__(
        self,
        pod: PodInfo,
        snapshot: NodeTable,
        fit: PlainFilter,
        fit_name: str,
        before: Mapping[int, Status],
        after: Mapping[int, Status],
    ) -> None:
        self._pod = pod
        self._snapshot = snapshot
        self._fit = fit
        self._fit_name = fit_name
        self._before = before
        self._after = after
        checks = fit.plain_filter(pod, snapshot)
        self._columns = [column for _, column in checks]
        self._amounts = np.array([amount for amount, _ in checks], np.int64)

    def slack(self, rows: Rows, guests: Mapping[int, Sequence[PodInfo]]) -> Slack:
        """Return what is left of nodes once the pod and their guests are there."""
        snapshot = self._snapshot
        left = np.empty((len(rows), 1 + len(self._columns)), np.int64)
        left[:, 0] = snapshot.allowed_pods[rows] - snapshot.pod_count[rows] - 1
        for at, column in enumerate(self._columns):
            free = snapshot.allocatable[rows, column] - snapshot.requested[rows, column]
            left[:, at + 1] = free - self._amounts[at]
        if guests:
            seats = [
                (at, other) for at, row in enumerate(rows.tolist()) for other in guests.get(row, ())
            ]
            kinds = list(dict.fromkeys(other for _, other in seats))
            number = {other: at for at, other in enumerate(kinds)}
            of = [number[other] for _, other in seats]
            np.subtract.at(left, [at for at, _ in seats], self.taken(kinds)[of])
        return left

    def taken(self, others: Sequence[PodInfo]) -> Slack:
        """Return what other pods take of it, int64 (pods, 1 + resources)."""
        found = np.ones((len(others), 1 + len(self._columns)), np.int64)
        for number, other in enumerate(others):
            found[number, 1:] = self._snapshot.request_vector(other)[self._columns]
        return found

    def rejections(self, rows: Rows, left: Slack) -> list[Status]:
        """Return the first rejection of each row with so much left, or Success."""
        short = left < 0
        bits = short[:, 0].astype(np.int64)
        for at, column in enumerate(self._columns):
            never = self._amounts[at] > self._snapshot.allocatable[rows, column]
            bits |= np.where(short[:, at + 1], np.where(never, 3, 1), 0) << (2 * at + 1)
        told = {0: SUCCESS}
        for number in np.unique(bits[bits != 0]).tolist():
            code, reasons = self._fit.plain_rejection(self._pod, self._snapshot, number)
            told[number] = Status(code, reasons, self._fit_name)
        found = [told[number] for number in bits.tolist()]
        if self._before or self._after:
            for position, row in enumerate(rows.tolist()):
                if row in self._before:
                    found[position] = self._before[row]
                elif found[position].ok:
                    found[position] = self._after.get(row, SUCCESS)
        return found
