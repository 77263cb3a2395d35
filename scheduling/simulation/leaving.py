"""Applies evictions to a snapshot: the node's free amounts, and disruption budgets.

In the live system the pod's row is deleted, and the budgets' controller then updates
``disruptionsAllowed``. Here both happen at once.
"""

from collections.abc import Collection, Hashable

import msgspec

from clusterstate.objects.rules.disruption import breaks
from clusterstate.objects.values.pod_group import GroupKey, PodGroup
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import DisruptionBudget, PodRecord, group_key
from scheduling.simulation import claims


class BudgetCharges:
    """Tells which budgets forbid an eviction, and charges budgets for evicted pods.

    The rules are those of ``actions.pods.evict``. ``unready``: keys of pods that are not ready.
    """

    def __init__(self, snapshot: Snapshot, unready: Collection[Hashable] = ()) -> None:
        self._snapshot = snapshot
        self._unready = unready
        # Pods that leave with the first pod of their group, which was charged for all.
        self._charged: dict[tuple[str, GroupKey], frozenset[Hashable]] = {}

    def refusal(self, record: PodRecord) -> str:
        """Return which budget forbids the pod's eviction, empty if none does."""
        budgets = self._covering(record)
        if len(budgets) > 1:
            return "more than one PodDisruptionBudget covers it"
        for one in budgets:
            spared = one.spares_unready and record.key in self._unready
            if one.disruptions_allowed <= 0 and not spared and self._breaks(one, record):
                return f"PodDisruptionBudget {one.namespace}/{one.name}"
        return ""

    def charge(self, record: PodRecord) -> None:
        """Lower the allowed disruptions of the pod's budgets; the pod stays on its node."""
        for one in self._covering(record):
            group = self._group(one, record)
            lost = group is None and record.key in self._unready  # the pod was not healthy before
            if lost or record.name in one.disrupted or not self._breaks(one, record):
                continue
            if group is not None and group.leaves_together:
                members = self._snapshot.members_of(group.key)
                self._charged[one.name, group.key] = frozenset(other.key for other in members)
            left = max(one.disruptions_allowed - 1, 0)
            self._snapshot.keep_budget(msgspec.structs.replace(one, disruptions_allowed=left))

    def leave(self, victim: PodRecord, name: str) -> None:
        """Remove a preempted pod from its node, and charge its budgets."""
        self.charge(victim)
        self._snapshot.remove_pod(victim.key)
        claims.give_back(self._snapshot, victim.info, victim.key, name)

    def _covering(self, record: PodRecord) -> list[DisruptionBudget]:
        namespace, labels = record.info.namespace, record.info.labels
        return [
            one
            for one in self._snapshot.disruption_budgets()
            if one.namespace == namespace and one.selector.matches(labels)
        ]

    def _group(self, budget: DisruptionBudget, record: PodRecord) -> PodGroup | None:
        """Return the PodGroup that a budget counts instead of the pod, ``None`` for the pod."""
        key = group_key(record.info.pod) if budget.counts_groups else None
        return self._snapshot.groups.find(key)

    def _breaks(self, budget: DisruptionBudget, record: PodRecord) -> bool:
        """Return whether the eviction uses up a disruption: of a group, only the first one does."""
        group = self._group(budget, record)
        if group is None:
            return True
        if record.key in self._charged.get((budget.name, group.key), ()):
            return False
        ready = sum(
            not one.terminating and one.key not in self._unready
            for one in self._snapshot.members_of(group.key)
        )
        return breaks(
            ready, group.min_count,
            is_ready=record.key not in self._unready, together=group.leaves_together,
        )  # fmt: skip
