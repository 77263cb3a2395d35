"""Which PodDisruptionBudgets guard the pods of each class, as arrays for the dry run.

A budget is indexed by one label that its selector requires, so that a new class is compared only
with budgets that can select it. The allowed disruptions of a budget change with every pod, its
selector does not, so the two are updated separately. Rule: ``filterPodsWithPDBViolation``
(preemption.go); which pods a budget guards depends on the version (``DisruptionBudget.guards``).
"""

from collections.abc import Hashable, Sequence

import numpy as np

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.labels import EQUALS, IN, Selector
from scheduling.engine.compiled.row_arguments import Budgets
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.types import DisruptionBudget, PodInfo


class BudgetArrays:
    """A snapshot's disruption budgets as arrays; ``arrays()`` brings them up to date."""

    def __init__(self, snapshot: Snapshot, compatibility: Compatibility) -> None:
        self._snapshot = snapshot
        self._compatibility = compatibility
        self._version = -1
        self._budgets: Sequence[DisruptionBudget] = ()
        self._selectors: list[tuple[str, str, Selector]] = []
        self._filed: dict[Hashable, list[int]] = {}
        # The budgets of class c are which[first[c]:first[c + 1]].
        self._first: list[int] = [0]
        self._which: list[int] = []
        self._arrays = Budgets(_NO_NUMBERS, np.zeros(0, np.int32), _NO_NUMBERS, _NO_NUMBERS)

    def arrays(self) -> Budgets:
        """Return the arrays, updated if budgets or classes changed."""
        snapshot = self._snapshot
        classes = len(snapshot.classes) if self._budgets else len(self._first) - 1
        if self._version != snapshot.budget_version or classes != len(self._first) - 1:
            self._follow()
        if any(budget.disrupted for budget in self._budgets):
            return self._arrays._replace(spared=self._spared())
        return self._arrays

    def _follow(self) -> None:
        snapshot = self._snapshot
        budgets = self._budgets = snapshot.disruption_budgets()
        self._version = snapshot.budget_version
        selectors = [(one.namespace, one.name, one.selector) for one in budgets]
        if selectors != self._selectors:
            self._selectors = selectors
            self._file()
            self._first, self._which = [0], []
        if budgets:
            for info in snapshot.classes[len(self._first) - 1 :]:
                self._which += self._guarding(info)
                self._first.append(len(self._which))
        self._arrays = Budgets(
            np.array(self._first, np.int64),
            np.array(self._which, np.int32),
            np.array([budget.disruptions_allowed for budget in budgets], np.int64),
            _NO_NUMBERS,
        )

    def _file(self) -> None:
        """Index each budget by its namespace and, if its selector requires one, a label."""
        self._filed = {}
        for number, budget in enumerate(self._budgets):
            if budget.selector.nothing:
                continue
            key: Hashable = budget.namespace
            for one in budget.selector.requirements:
                if one.operator in (EQUALS, IN) and len(one.values) == 1:
                    key = (budget.namespace, one.key, one.values[0])
                    break
            self._filed.setdefault(key, []).append(number)

    def _guarding(self, info: PodInfo) -> list[int]:
        """Return the budgets that guard pods of a class."""
        if not self._filed:
            return []
        near = [*self._filed.get(info.namespace, ())]
        for label in info.labels.items():
            near += self._filed.get((info.namespace, *label), ())
        budgets = self._budgets
        version = self._compatibility
        return sorted(number for number in near if budgets[number].guards(info, version))

    def _spared(self) -> Int64:
        """Return ``Budgets.spared``: pods that are being disrupted, sorted, int64."""
        budgets, first, which = self._budgets, self._first, self._which
        busy = {number for number, budget in enumerate(budgets) if budget.disrupted}
        classes = [
            index
            for index in range(len(first) - 1)
            if not busy.isdisjoint(which[first[index] : first[index + 1]])
        ]
        found = [
            record.slot * len(budgets) + number
            for record in self._snapshot.pods_of(classes)
            for number in which[first[record.info.index] : first[record.info.index + 1]]
            if record.name in budgets[number].disrupted
        ]
        return np.array(sorted(found), np.int64)


_NO_NUMBERS = np.zeros(0, np.int64)
