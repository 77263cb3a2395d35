"""ResourceQuotas: their status reflects within a second that pods ended.

A creation updates the quotas of its namespace itself (``actions.writing.quotas``). This controller
serves namespaces in which nothing is created, and quotas that must be recounted.
"""

from datetime import datetime
from functools import partial

from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.actions.writing import quotas
from clusterstate.queries.objects.namespaces import unsettled_namespaces

NAME = "quotas"


def settle(now: datetime) -> int:
    """Count the pods that ended since the last pass; return in how many namespaces some did."""

    def settle_one(namespace: str) -> int:
        quotas.settle(namespace, now=now)
        return 1

    # Each in its own transaction, which locks the quotas of one namespace for a short time.
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
