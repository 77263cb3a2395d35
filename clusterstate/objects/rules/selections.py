"""Objects selected by selectors, and overlaps of two selectors (R41).

Pods are counted twice, or fought for, when two Services, two controllers or two disruption budgets
select them, and pools of nodes are not independent when two RuntimeClasses select the same node
(R58). So only members of one role are compared: a Service is meant to select what a Deployment
makes. Pure; nothing of the length of the cluster is compared with each selector: labels are looked
up in sets of bits, one bit for each group of things with equal labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from clusterstate.objects.rules.matching import PREFER_NO_SCHEDULE, tolerated
from clusterstate.objects.values.labels import (
    DOES_NOT_EXIST,
    DOUBLE_EQUALS,
    EQUALS,
    EXISTS,
    IN,
    NOT_EQUALS,
    NOT_IN,
    Requirement,
    Selector,
)
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration

ROLES: Final[dict[str, str]] = {
    "Service": "Service",
    "PodDisruptionBudget": "PodDisruptionBudget",
    "ReplicationController": "controller",
    "ReplicaSet": "controller",
    "Deployment": "controller",
    "StatefulSet": "controller",
    "DaemonSet": "controller",
    "Job": "controller",
}
"""What the objects of a kind do with the pods that they select."""

MOST_NAMED: Final = 20
"""How many others one object is shown to overlap with; a thousand may select the same pods."""


_CONDITION_PREFIX: Final = "node.kubernetes.io/"
"""Taints of a node's condition come and go, and are no reason to leave the node out of a pool."""


def admits(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Return whether pods of a RuntimeClass with these tolerations may go to a node (R60)."""
    return all(
        taint.effect == PREFER_NO_SCHEDULE
        or taint.key.startswith(_CONDITION_PREFIX)
        or tolerated(taint, tolerations)
        for taint in taints
    )


class LabelledCount(msgspec.Struct, frozen=True):
    """The number of pods or nodes that have exactly these labels."""

    labels: Mapping[str, str]
    count: int = 1


class SelectorOwner(msgspec.Struct, frozen=True):
    """An object with a selector."""

    kind: str
    namespace: str
    name: str
    selector: Selector


class SelectorOverlap(msgspec.Struct, frozen=True):
    """Another object of the same role, and the number of pods or nodes that both select."""

    kind: str
    name: str
    count: int


class Selection(msgspec.Struct, frozen=True):
    """The selection of one object: how many, and how many others of its role overlap with it.

    ``overlaps`` names at most ``MOST_NAMED`` of these, those with the most in common first.
    ``users`` is how many pods name the object (a RuntimeClass); ``None`` for other kinds.
    """

    of: SelectorOwner
    count: int
    overlapping: int
    overlaps: tuple[SelectorOverlap, ...]
    users: int | None = None


class Index:
    """Indexes objects by labels; ``select`` returns the selected ones as the bits of an int."""

    def __init__(self, things: Sequence[LabelledCount]) -> None:
        self._counts = [thing.count for thing in things]
        self._all = (1 << len(things)) - 1
        self._pairs: dict[tuple[str, str], list[int]] = {}
        self._keys: dict[str, list[int]] = {}
        for number, thing in enumerate(things):
            for pair in thing.labels.items():
                self._pairs.setdefault(pair, []).append(number)
                self._keys.setdefault(pair[0], []).append(number)
        self._weights: dict[int, int] = {0: 0}

    def select(self, selector: Selector) -> int:
        """Return the things that a label selector selects, one bit for each."""
        found = 0 if selector.nothing else self._all
        for requirement in selector.requirements:
            found &= self._satisfying(requirement)
        return found

    def _satisfying(self, requirement: Requirement) -> int:
        key, operator = requirement.key, requirement.operator
        if operator in (EXISTS, DOES_NOT_EXIST):
            numbers: Iterable[int] = self._keys.get(key, ())
        elif operator in (IN, EQUALS, DOUBLE_EQUALS, NOT_IN, NOT_EQUALS):
            found = (self._pairs.get((key, value), ()) for value in requirement.values)
            numbers = (number for some in found for number in some)
        else:
            raise ValueError(f"a label selector has no operator {operator!r}")
        bits = self._bits(numbers)
        return self._all & ~bits if operator in (DOES_NOT_EXIST, NOT_IN, NOT_EQUALS) else bits

    def _bits(self, numbers: Iterable[int]) -> int:
        octets = bytearray(len(self._counts) // 8 + 1)
        for number in numbers:
            octets[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(octets, "little")

    def count(self, bits: int) -> int:
        """Return the sum of the counts whose bits are set."""
        weight = self._weights.get(bits)
        if weight is None:
            octets = bits.to_bytes(len(self._counts) // 8 + 1, "little")
            weight = self._weights[bits] = sum(
                self._counts[8 * place + bit]
                for place, octet in enumerate(octets)
                if octet
                for bit in range(8)
                if octet >> bit & 1
            )
        return weight


def compare(index: Index, selected: Sequence[tuple[SelectorOwner, int]]) -> list[Selection]:
    """Return the selections of objects of one role, in their order; int bits: what each selects.

    Objects that select the very same things are compared with others once.
    """
    alike: dict[int, list[SelectorOwner]] = {}
    for one, bits in selected:
        alike.setdefault(bits, []).append(one)
    shared: dict[int, list[tuple[int, int]]] = {bits: [] for bits in alike}
    different = [bits for bits in alike if bits]
    for position, first in enumerate(different):
        shared[first].append((first, index.count(first)))
        for second in different[position + 1 :]:
            if common := first & second:
                count = index.count(common)
                shared[first].append((second, count))
                shared[second].append((first, count))
    result = []
    for one, bits in selected:
        by_size = sorted(shared[bits], key=lambda entry: -entry[1])
        overlapping = sum(len(alike[other]) for other, _ in by_size) - bool(bits)
        others = (
            SelectorOverlap(other.kind, other.name, count)
            for bits_of_other, count in by_size
            for other in alike[bits_of_other]
            if other is not one
        )
        named = tuple(islice(others, MOST_NAMED))
        result.append(Selection(one, index.count(bits), overlapping, named))
    return result


def of_pods(pods: Sequence[LabelledCount], members: Iterable[SelectorOwner]) -> list[Selection]:
    """Return what objects of one namespace select of its pods, by role, kind and name."""
    index = Index(pods)
    by_role: dict[str, list[SelectorOwner]] = {}
    for one in sorted(members, key=lambda one: (one.kind, one.name)):
        by_role.setdefault(ROLES[one.kind], []).append(one)
    return [
        selection
        for _, same in sorted(by_role.items())
        for selection in compare(index, [(one, index.select(one.selector)) for one in same])
    ]
