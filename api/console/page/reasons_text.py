"""Parses the reasons why pods wait, by nodes, from the scheduler's messages."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from clusterstate.objects.rules.matching import HARD_EFFECTS, find_untolerated
from clusterstate.objects.rules.stated_terms import terms_for
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.scheduler.overview import WaitingGroup

_SENTENCE: Final = re.compile(r"0/(\d+) nodes are available: (.+)", re.DOTALL)
_TRIED: Final = re.compile(
    r"\. (?:(?:[a-z][A-Za-z ]+, )?preemption: .*|[a-z][A-Za-z ]+)$", re.DOTALL
)
"""The part of a message from PostFilter (``dynamicresources``, ``defaultpreemption``)."""
_PART: Final = re.compile(r"(\d+) (.+)", re.DOTALL)
_CORDON: Final = "node.kubernetes.io/unschedulable"
_MOST_TERMS: Final = 4
_BETWEEN: Final = re.compile(r", (?=\d+ )")


class Hindrance(msgspec.Struct, frozen=True):
    """A reason, and the number of nodes with it; ``every``: the number of all nodes."""

    nodes: int
    text: str
    every: int


def hindrances(message: str) -> list[Hindrance]:
    """Return the reasons in a message like ``0/9 nodes are available: 8 Insufficient cpu, ...``.

    Reasons of most nodes come first. Empty if the message does not count nodes: then pages show the
    message. Its form is ``FitError.Error`` (pkg/scheduler/framework/types.go, v1.36).
    """
    found = _SENTENCE.fullmatch(message)
    if found is None:
        return []
    every = int(found[1])
    nodes = counted(found[2]).removesuffix(".")
    parts = [_PART.fullmatch(one) for one in _BETWEEN.split(nodes)]
    reasons = [Hindrance(int(one[1]), one[2], every) for one in parts if one]
    if len(reasons) != len(parts) or any(one.nodes > every for one in reasons):
        return []
    return sorted(reasons, key=lambda one: (-one.nodes, one.text))


def counted(message: str) -> str:
    """Return a message that counts nodes, without the part from PostFilter."""
    return _TRIED.split(message, maxsplit=1)[0]


class Cause(msgspec.Struct):
    """Pending pods with the same reasons; the nodes are those of the largest class among them.

    ``namespace`` and ``name``: one of the pods. ``message``: its message, empty if none of the pods
    was tried yet. ``since``: when the longest-waiting pod began to wait.
    """

    pods: int
    namespace: str
    name: str
    since: datetime | None
    message: str
    reasons: list[Hindrance]


def by_cause(groups: Iterable[WaitingGroup], nodes: Sequence[FleetNode]) -> list[Cause]:
    """Return groups of pending pods by their reasons, those of the most pods first.

    Classes with the same reasons, about the same taints and terms, are one cause, whatever the
    numbers of nodes. Untolerated taints are those that ``nodes`` have now; the message counted
    nodes when the pod was tried.
    """
    found: dict[tuple[tuple[str, ...], ...], Cause] = {}
    sets = Counter(node.taints for node in nodes)
    untolerated: dict[tuple[Toleration, ...], tuple[str, ...]] = {}
    for one in groups:
        reasons = []
        key: list[tuple[str, ...]] = []
        for reason in hindrances(one.message):
            if "untolerated taint" in reason.text:
                tolerations = one.spec.tolerations
                if tolerations not in untolerated:
                    untolerated[tolerations] = tuple(_untolerated(sets, tolerations))
                about = untolerated[tolerations]
            else:
                about = terms_for(one.spec, reason.text)
            text = with_terms(reason.text, dict.fromkeys(about))
            reasons.append(msgspec.structs.replace(reason, text=text))
            key.append((reason.text, *sorted(about)))
        group = one.spec.scheduling_group
        awaits = f"waits for its PodGroup {group.pod_group_name}" if group else ""
        cause = found.setdefault(
            tuple(sorted(key)) or ((one.message or awaits,),),
            Cause(0, one.namespace, one.name, one.since, one.message or awaits, reasons),
        )
        cause.pods += one.pods
        if one.since is not None:
            cause.since = min(cause.since or one.since, one.since)
    return sorted(found.values(), key=lambda one: -one.pods)


def _untolerated(
    sets: Mapping[tuple[tuple[str, str, str], ...], int], tolerations: Sequence[Toleration]
) -> list[str]:
    """Return the untolerated NoSchedule and NoExecute taints, those of the most nodes first."""
    found: Counter[str] = Counter()
    for taints, nodes in sets.items():
        for key, value, effect in taints:
            taint = Taint(key=key, value=value, effect=effect)
            if key == _CORDON:  # another reason tells of it
                continue
            if find_untolerated([taint], tolerations, HARD_EFFECTS) is not None:
                found[f"{key}={value}:{effect}" if value else f"{key}:{effect}"] += nodes
    return [name for name, _ in found.most_common()]


def with_terms(text: str, terms: Mapping[str, int | None]) -> str:
    """Return a reason with its taints or terms, with numbers of nodes if known."""
    if not terms:
        return text
    parts = [
        name if nodes is None else f"{name} on {nodes:,}"
        for name, nodes in islice(terms.items(), _MOST_TERMS)
    ]
    more = [f"{len(terms) - _MOST_TERMS} more"] if len(terms) > _MOST_TERMS else []
    return f"{text}: {', '.join([*parts, *more])}"
