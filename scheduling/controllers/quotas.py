"""ResourceQuotas: their status shows within a second which pods ended in their namespace.

A creation brings the quotas of its namespace up to date itself (``actions.writing.quotas``). This
controller serves namespaces in which nothing is created, and quotas that must be counted from the
beginning.
"""

from datetime import datetime
from functools import partial

from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.actions.writing import quotas
from clusterstate.queries.objects.namespaces import unsettled_namespaces

NAME = "quotas"


def settle(now: datetime) -> int:
    """Count what ended since the last pass; return in how many namespaces something had."""

    def settle_one(namespace: str) -> int:
        quotas.settle(namespace, now=now)
        return 1

    # Each by itself: a transaction has the quotas of one namespace locked, and not for long.
    return sum(
        aside.one(
            NAME,
            ObjectRef("Namespace", name=one),
            partial(settle_one, one),
            now=now,
            instead=lambda: 0,
        )
        for one in unsettled_namespaces()
    )
