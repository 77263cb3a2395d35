"""When NoExecute taints end a pod's stay on its node: the one statement of the rule (R122, C22).

A pod that tolerates a taint for some seconds "remains bound for the specified amount of time". So
each taint counts from the later of two moments, its ``timeAdded`` and the pod's binding to that
node, and the earliest end decides. Both moments are stored, and neither depends on who looks or
when: a restart or late notice moves nothing. The timers, what fires them, the warnings of a dry run
and the tests that judge all these ask here.

    tolerations, taints -> countdowns (once for all pods of a class on a node)
    countdowns, bound_at -> deadline  (for each pod)
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from clusterstate.objects import moments
from clusterstate.objects.matching import NO_EXECUTE, tolerates
from clusterstate.objects.node import Taint
from clusterstate.objects.pod import Toleration


class Countdown(msgspec.Struct, frozen=True):
    """A taint sends away whoever has been under it for ``seconds``, which is not negative."""

    taint: Taint
    added_at: datetime
    seconds: int


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which a pod must leave, since when that counts, and the taint that asks."""

    due_at: datetime
    started_at: datetime
    taint: Taint
    seconds: int


def no_execute(taints: Iterable[Taint]) -> list[Taint]:
    """Return the taints that evict."""
    return [taint for taint in taints if taint.effect == NO_EXECUTE]


def matching_toleration(
    tolerations: Iterable[Toleration], taint: Taint, *, comparison_operators: bool = False
) -> Toleration | None:
    """Return the first toleration that tolerates the taint; only that one counts."""
    for toleration in tolerations:
        if tolerates(toleration, taint, comparison_operators=comparison_operators):
            return toleration
    return None


def countdowns(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    added_at: datetime,
    comparison_operators: bool = False,
) -> tuple[Countdown, ...]:
    """Return what counts for pods with these tolerations under these taints, in their order.

    A taint that is not tolerated counts no seconds at all; one tolerated for ever is left out.

    Args:
        tolerations: those of the pod.
        taints: those of its node; effects other than NoExecute are passed over.
        added_at: stands in for the ``timeAdded`` of a taint that has none.
        comparison_operators: whether tolerations may use Gt and Lt.
    """
    found = []
    for taint in no_execute(taints):
        used = matching_toleration(tolerations, taint, comparison_operators=comparison_operators)
        if used is not None and used.toleration_seconds is None:
            continue
        seconds = 0 if used is None else max(used.toleration_seconds or 0, 0)
        since = moments.parse(taint.time_added) if taint.time_added else added_at
        found.append(Countdown(taint, since, seconds))
    return tuple(found)


def deadline(counted: Sequence[Countdown], bound_at: datetime) -> Deadline | None:
    """Return when a pod that was bound at that moment must leave, ``None`` for never (C22).

    The earliest end wins, and among equal ones the first taint's.
    """
    first: Deadline | None = None
    for one in counted:
        started_at = max(one.added_at, bound_at)
        due_at = moments.after(started_at, one.seconds)
        if moments.is_never(due_at):
            continue
        if first is None or due_at < first.due_at:
            first = Deadline(
                due_at=due_at, started_at=started_at, taint=one.taint, seconds=one.seconds
            )
    return first
