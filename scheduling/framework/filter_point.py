"""Runs Filter: plugins in order, with and without nominated pods, extenders last.

``runtime.Framework`` adds the other points of the scheduling cycle. Source:
pkg/scheduler/framework/runtime/framework.go and schedule_one.go, v1.36 (R154).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scheduling.framework.answers import check_filter_result, failed, rejection_of
from scheduling.framework.arrays import numbered
from scheduling.framework.binding_points import BindingPoints, metered
from scheduling.framework.interface import CycleState, Filter
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.outcomes import Filtered
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import PodInfo

_FEW = 64
"""Up to this many rejections a dictionary is faster than sorting an array."""


class FilterPoint(BindingPoints):
    """The Filter of a profile: plugins ``_inside`` the process, then extenders.

    ``_beyond_rows``: names of plugins for which the pods of other rows matter.
    """

    _inside: list[Filter]
    _outside: list[Filter]
    _beyond_rows: list[str]

    def filter(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Filtered:
        """Run Filter in order, then call extenders for the rows that pass (R154).

        Raises:
            PluginFailed: a plugin failed.
        """
        judged = self.filter_inside(state, pod, snapshot, rows)
        return self.ask_extenders(state, pod, snapshot, judged)

    def ask_extenders(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, judged: Filtered
    ) -> Filtered:
        """Return ``judged`` without the rows that extenders reject.

        Rule: schedule_one.go ``findNodesThatPassExtenders``: in order, while a node is left.

        Raises:
            PluginFailed: an extender failed.
        """
        if not self._outside:
            return judged
        places = np.flatnonzero(judged.verdict == 0)
        answer = self.filter_some(self._outside, state, pod, snapshot, judged.rows[places])
        return judged if len(answer.statuses) == 1 else judged.narrowed(places, answer)

    @metered("Filter")
    def filter_inside(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> Filtered:
        """Run Filter in order without extenders; each plugin sees the rows that passed all before.

        A pod nominated to a node counts as if it ran there, if its priority is not lower: the node
        must pass with it as well (runtime ``RunFilterPluginsWithNominatedPods``).

        Raises:
            PluginFailed: a plugin failed.
        """
        filtered = self.filter_alone(state, pod, snapshot, rows)
        nominated = snapshot.nominated_pods(pod.priority, state.pod_key, rows)
        if not nominated:
            return filtered
        verdict = filtered.verdict.copy()
        statuses = list(filtered.statuses)
        concerned = np.flatnonzero(np.isin(rows, np.fromiter(nominated, np.intp)))
        if not len(concerned):
            return filtered
        # A node must pass with its nominated pods and without; the former rejection is reported.
        judged = self.judge_with_nominated(state, pod, snapshot, rows[concerned], nominated)
        numbers = {status: number for number, status in enumerate(statuses)}
        for position, status in zip(concerned.tolist(), judged, strict=True):
            if not status.ok:
                number = numbers.setdefault(status, len(statuses))
                if number == len(statuses):
                    statuses.append(status)
                verdict[position] = number
        # A status that no row has any more is not among the reasons.
        used = np.bincount(verdict, minlength=len(statuses)) > 0
        used[0] = True
        renumbered = (np.cumsum(used, dtype=np.int32) - 1)[verdict]
        present = tuple(status for status, is_used in zip(statuses, used, strict=True) if is_used)
        return Filtered(rows, renumbered, present)

    def judge_with_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> list[Status]:
        """Return the status of each row with the pods nominated to it counted there.

        Args:
            state: the cycle state after PreFilter.
            pod: the pod to place.
            snapshot: the nodes.
            rows: some of the keys of ``nominated``.
            nominated: from ``snapshot.nominated_pods``, by row.

        Raises:
            PluginFailed: a plugin failed.
        """
        there = rows.tolist()
        # If no filter looks beyond a row, pods nominated to one row do not matter to others.
        if self.filters_rows_alone(state):
            together = {row: nominated[row] for row in there}
            found = self._filter_with_nominated(state, pod, snapshot, together)
            return [found.statuses[number] for number in found.verdict.tolist()]
        return [
            self._filter_with_nominated(state, pod, snapshot, {row: nominated[row]}).status(0)
            for row in there
        ]

    def filters_rows_alone(self, state: CycleState) -> bool:
        """Return whether the verdict on each row depends on nothing of other rows.

        ``state``: as PreFilter left it.
        """
        return state.skip_filter.issuperset(self._beyond_rows)

    def filter_alone(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> Filtered:
        """Run Filter without nominated pods and extenders."""
        return self.filter_some(self._inside, state, pod, snapshot, rows)

    def filter_some(
        self,
        plugins: Sequence[Filter],
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
    ) -> Filtered:
        """Run the Filter of some plugins, in order.

        Raises:
            PluginFailed: a plugin failed.
        """
        count = len(rows)
        verdict = np.zeros(count, np.int32)
        statuses = [SUCCESS]
        remaining: npt.NDArray[np.intp] | None = None  # positions that still pass; None: all
        for plugin in plugins:
            if plugin.name in state.skip_filter:
                continue
            here = rows if remaining is None else rows[remaining]
            if not len(here):
                break
            result = self._call(plugin, "Filter", plugin.filter, state, pod, snapshot, here)
            if result is None:
                continue
            check_filter_result(plugin, result, len(here))
            codes = result.codes
            failing = np.flatnonzero(codes)
            if not len(failing):
                continue
            # Number the distinct (code, reasons) pairs of this plugin after those before it.
            kinds: dict[tuple[int, int], int] = {}
            base = len(statuses)
            if len(failing) <= _FEW:
                pairs = zip(codes[failing].tolist(), result.reason[failing].tolist(), strict=True)
                numbers = np.array([kinds.setdefault(one, base + len(kinds)) for one in pairs])
            else:
                width = len(result.reasons) + 1
                combined = codes[failing].astype(np.int64) * width + result.reason[failing]
                found, inverse = numbered(combined)
                numbers = base + inverse
                kinds = {divmod(kind, width): 0 for kind in found.tolist()}
            for code, reason in kinds:
                status = rejection_of(plugin, result, code, reason)
                statuses.append(status)
                if status.code is Code.ERROR:
                    text = f'running "{plugin.name}" filter plugin: {status.message}'
                    raise failed(plugin, text)
            where = failing if remaining is None else remaining[failing]
            verdict[where] = numbers
            remaining = np.flatnonzero(verdict == 0)
        return Filtered(rows, verdict, tuple(statuses))

    def _filter_with_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Filtered:
        """Return the outcome of Filter with the pods nominated to rows counted there."""
        # Plugins that skip keep skipping, whatever the nominated pods require, as in
        # kube-scheduler.
        own = state.clone()
        with snapshot.counting_nominated(nominated):
            return self.filter_alone(own, pod, snapshot, np.array(list(nominated), np.intp))

    def run_filters(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, row: int) -> Status:
        """Return the first rejection of one row by ``filter_inside``, or Success.

        Raises:
            PluginFailed: a plugin failed.
        """
        rows = np.array([row], np.intp)
        return self.filter_inside(state, pod, snapshot, rows).status(0)
