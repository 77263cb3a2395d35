"""Applies a preemption to a snapshot: the node's free amounts, and disruption budgets.

In the live system the victim's row goes, and the controller of budgets works out anew how many
pods may still leave. Here both happen at once.
"""

import msgspec

from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import PodRecord
from scheduling.simulation import claims


def leave(snapshot: Snapshot, victim: PodRecord, name: str) -> None:
    """Take a preempted pod off its node, and count it against the budgets that cover it."""
    snapshot.remove_pod(victim.key)
    claims.give_back(snapshot, victim.info, victim.key, name)
    count_against_budgets(snapshot, victim)


def count_against_budgets(snapshot: Snapshot, victim: PodRecord) -> None:
    """Let one pod fewer leave under each budget that covers a victim."""
    for budget in snapshot.disruption_budgets():
        if (
            budget.namespace == victim.info.namespace
            and victim.name not in budget.disrupted
            and budget.selector.matches(victim.info.labels)
        ):
            left = max(budget.disruptions_allowed - 1, 0)
            snapshot.keep_budget(msgspec.structs.replace(budget, disruptions_allowed=left))
