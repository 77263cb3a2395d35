"""Which pods must leave a node, and when: the only statement of the rule (R3, R120-R123, C22).

NoExecute taints. A pod that tolerates a taint for some seconds "remains bound for the specified
amount of time". Each taint counts from the later of its ``timeAdded`` and the pod's binding to that
node, and the earliest end decides. Both times are stored, so a restart or a late notice changes
nothing. Which toleration counts, and for how long, is Kubernetes' rule
(pkg/controller/tainteviction/taint_eviction.go, v1.36).

    tolerations, taints -> countdowns (once for all pods of a class on a node)
    countdowns, bound_at -> deadline  (for each pod)

Terms that are required during execution. A pod whose node no longer matches them must leave.

    Rules, node's name and labels -> is_broken (once for all pods of a class on a node)

The timers, their firing, the warnings of a dry run, the audit and the tests all use this.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from clusterstate.objects.rules.matching import (
    NO_EXECUTE,
    NodeSelectorMatcher,
    node_fields,
    tolerates,
)
from clusterstate.objects.values import moments
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Pod, Toleration

# Taints ---------------------------------------------------------------------------------------


class Countdown(msgspec.Struct, frozen=True):
    """A taint evicts pods that have been under it for ``seconds``, which is not negative."""

    taint: Taint
    added_at: datetime
    seconds: int


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """When a pod must leave, since when that counts, and the taint that requires it."""

    due_at: datetime
    started_at: datetime
    taint: Taint
    seconds: int


def used_tolerations(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    comparison_operators: bool = False,
) -> Iterator[tuple[Taint, Toleration | None]]:
    """Yield each NoExecute taint with the first toleration that tolerates it; only that one counts.

    ``None`` stands for a taint that is not tolerated. ``comparison_operators`` says whether
    tolerations may use Gt and Lt. Rule: GetMatchingTolerations.
    """
    for taint in taints:
        if taint.effect == NO_EXECUTE:
            yield (
                taint,
                next(
                    (
                        one
                        for one in tolerations
                        if tolerates(one, taint, comparison_operators=comparison_operators)
                    ),
                    None,
                ),
            )


def tolerated_seconds(used: Toleration | None) -> int | None:
    """Return how long a pod tolerates a taint in seconds: not below 0, and ``None`` for ever.

    ``used``: the toleration that counts, ``None`` without one. Rule: getMinTolerationTime.
    """
    if used is None:
        return 0
    return None if used.toleration_seconds is None else max(used.toleration_seconds, 0)


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
    for taint, used in used_tolerations(
        tolerations, taints, comparison_operators=comparison_operators
    ):
        seconds = tolerated_seconds(used)
        if seconds is not None:
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


# What a pod's class says ----------------------------------------------------------------------


class Rules(msgspec.Struct, frozen=True):
    """The facts of a pod that decide whether it must leave.

    ``terms`` are those required during execution, ``keys`` the labels that these name.
    """

    tolerations: tuple[Toleration, ...]
    terms: NodeSelectorMatcher | None
    keys: frozenset[str]


def rules_of(pod: Pod) -> Rules:
    """Return the rules of a pod, or of a scheduling class."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    selector = affinity.required_during_scheduling_required_during_execution if affinity else None
    if selector is None:
        return Rules(pod.spec.tolerations, None, frozenset())
    keys = frozenset(
        requirement.key
        for term in selector.node_selector_terms
        for requirement in term.match_expressions
    )
    return Rules(pod.spec.tolerations, NodeSelectorMatcher(selector), keys)


def is_broken(rules: Rules, node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels does not match what the rules require (R3)."""
    return rules.terms is not None and not rules.terms.matches(labels, node_fields(node_name))
