"""ResourceQuotas: their status shows within a second which pods ended in their namespace.

A creation brings the quotas of its namespace up to date itself (``actions.quotas``). This
controller serves namespaces in which nothing is created, and quotas that must be counted from the
beginning.
"""

from datetime import datetime

from clusterstate.actions import aside, quotas
from clusterstate.actions.aside import Which
from clusterstate.queries.namespaces import unsettled_namespaces

NAME = "quotas"


def settle(now: datetime) -> int:
    """Count what ended since the last pass; return in how many namespaces something had."""
    settled = 0
    # Each by itself: a transaction has the quotas of one namespace locked, and not for long.
    for namespace in unsettled_namespaces():
        done = aside.each(
            NAME,
            [namespace],
            lambda names: quotas.settle(names[0], now=now),
            which=lambda name: Which("Namespace", name=name),
            now=now,
        )
        settled += len(done)
    return settled
