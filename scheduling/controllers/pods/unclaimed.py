"""Sets a condition on pods whose schedulerName no profile here has.

Another scheduler may serve the name and bind the pod within seconds, and Kubernetes sets no
condition on such a pod. So the condition is set late, and changes nothing: a profile of that name
takes the pod as soon as it is configured.
"""

from datetime import datetime, timedelta
from typing import Final

from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.admission.warnings import unknown_profile
from clusterstate.objects.values.pod import NO_SUCH_PROFILE
from clusterstate.queries.pods.queue import unclaimed
from clusterstate.queries.scheduler import decisions

_AFTER: Final = timedelta(seconds=10)
_AT_ONCE: Final = 1000


def tell(now: datetime) -> int:
    """Write the condition NoSuchProfile to pods whose scheduler is unknown; return how many.

    Queries twice, and writes at most a thousand pods by one statement.
    """
    profiles = decisions.admission_rules().profiles
    found = unclaimed(sorted(profiles), since=now - _AFTER, limit=_AT_ONCE)
    items = [
        Unschedulable(
            pod_id=one.pod_id,
            message=unknown_profile({"schedulerName": one.scheduler_name}, profiles),
            reason=NO_SUCH_PROFILE,
            stage="active",
            attempts=0,
            early=one.early,
            not_before=one.not_before,
        )
        for one in found
    ]
    return len(set_unschedulable(items, now=now))
