"""Finds the cheapest nodes to add for waiting pods, and proves them by placing the pods.

The scheduler's core places pods that already fit. For the others the packer's solver searches for
the cheapest set (``scheduling.packing.purchase``) and a lower bound of the price. The set is
proved: the scheduler's core, with each pod nominated for its new node, must place it there. The
live scheduler may spread pods without a nomination differently, so the answer also says how many it
would place by itself. A greedy search replaces the solver if it is not installed, if numbers cannot
state the pods' filters, if its set has too many nodes, or if pods are not to be nominated:

The catalogue lists node types with prices. The search adds one node of each type to the snapshot,
places the waiting pods, and takes the type with the lowest price per placed pod, repeatedly while
each further node places as many; then it continues with the remaining pods. It does the same with
each type alone, keeps the cheapest result that places the most pods, and removes nodes that are not
needed. A cheaper set may exist, but the number of placed pods is proved.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from clusterstate.objects.values.node import HOSTNAME, Node
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.packing import facts, process
from scheduling.packing.facts import Seeker
from scheduling.packing.problem import Bought, Needs

MOST_PODS: Final = 1_000
"""The most waiting pods for which nodes are sought, in queue order."""
MOST_SHAPES: Final = 32
DEFAULT_NODES: Final = 50
LARGEST_NODES: Final = 200
_SECONDS: Final = 4.0
_WORK: Final = 0.4
"""The solver's limit of work for an answer, in its own unit, and its limit in seconds."""


class Offer(msgspec.Struct, frozen=True):
    """A node type with its price; ``node``: such a node, except for its name.

    ``most``: how many of them can be bought.
    """

    name: str
    price: float
    node: Node
    most: int = LARGEST_NODES


class Advice(msgspec.Struct, frozen=True):
    """Nodes to add: how many of each offer, their price, and the pods that fit with them.

    ``counts``: by index of the offer. ``placed``: keys of pods with their nodes' names, of
    ``waiting`` pods tried. ``before``: how many fit without a new node. ``least``: a lower bound of
    the price for as many pods; ``None`` if unknown. ``alone``: how many the scheduler places with
    these nodes without nominations. ``names``: names of the new nodes with the index of their
    offer.
    """

    counts: tuple[int, ...]
    price: float
    placed: tuple[tuple[object, str], ...]
    waiting: int
    before: int
    least: float | None = None
    alone: int = 0
    names: tuple[tuple[str, int], ...] = ()


class _Set(msgspec.Struct, frozen=True):
    """Indexes of the offers to buy, and how many pods fit with these nodes."""

    numbers: tuple[int, ...]
    placed: int


def advise(
    snapshot: Snapshot,
    framework: Framework,
    pods: Sequence[PodToPlace],
    offers: Sequence[Offer],
    *,
    most: int = DEFAULT_NODES,
    nominate: bool = True,
    go_on: Callable[[], None] = lambda: None,
) -> Advice:
    """Return which nodes to add; none if no offer helps.

    Args:
        snapshot: a private copy; nodes are added and removed in it.
        framework: the profile of all pods.
        pods: the waiting pods, in queue order.
        offers: the catalogue.
        most: the most nodes to add.
        nominate: whether pods may be nominated for the nodes in the answer; else the scheduler must
            place as many by itself.
        go_on: raises if the search takes too long.

    Raises:
        PluginFailed: a plugin failed.
    """
    trial = _Trial(snapshot, framework, pods[:MOST_PODS], offers, go_on)
    if nominate and process.is_installed() and (bought := trial.bought(most)) is not None:
        return bought
    before = trial.placed(())
    everything = range(len(offers))
    found = [trial.grown(everything, before, most)]
    found += [trial.grown([number], before, most) for number in everything if len(offers) > 1]
    best = min(found, key=lambda one: (-one.placed, trial.price(one.numbers), len(one.numbers)))
    numbers = trial.trimmed(best)
    return Advice(
        counts=tuple(numbers.count(number) for number in everything),
        price=trial.price(numbers),
        placed=tuple(trial.placements(numbers)),
        waiting=len(pods[:MOST_PODS]),
        before=before,
        alone=trial.placed(numbers),
        names=trial.names(numbers),
    )


def _classes(pods: Sequence[Seeker]) -> list[int]:
    """Return the indexes of the classes of pods, in the order of ``facts.read``."""
    return list(dict.fromkeys(pod.info.index for pod in pods))


class _Trial:
    """Tries additions of nodes: places the pods with them, and restores the snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        framework: Framework,
        pods: Sequence[PodToPlace],
        offers: Sequence[Offer],
        go_on: Callable[[], None],
    ) -> None:
        self._snapshot = snapshot
        self._framework = framework
        self._pods = pods
        self._offers = offers
        self._go_on = go_on
        self._placed: dict[tuple[int, ...], int] = {}
        deciding.warm_for(len(pods), snapshot.node_count)
        self._decider = Decider(snapshot, framework)

    def price(self, numbers: Sequence[int]) -> float:
        """Return the total price of the offers with these indexes."""
        return round(sum(self._offers[number].price for number in numbers), 6)

    def placed(self, numbers: tuple[int, ...]) -> int:
        """Return how many of the pods fit with these nodes added."""
        key = tuple(sorted(numbers))
        if key not in self._placed:
            self._placed[key] = len(self.placements(key))
        return self._placed[key]

    def placements(self, numbers: Sequence[int]) -> list[tuple[object, str]]:
        """Return the pods that fit with these nodes added, with their nodes."""
        self._go_on()
        names = self._add(numbers)
        try:
            decided = schedule_batch(
                self._snapshot,
                self._framework,
                self._pods,
                Options(preempt=False, tie_break="first"),
                decider=self._decider,
            )
            found = [(key, name) for key, name in decided.placed()]
            for key, _ in found:
                self._snapshot.forget(key)
            return found
        finally:
            for name in names:
                self._snapshot.remove_node(name)

    def names(self, numbers: Sequence[int]) -> tuple[tuple[str, int], ...]:
        """Return (name, index of its offer) of each new node that ``placements`` adds."""
        ordered = sorted(numbers)
        return tuple(
            (self._node(number, at).metadata.name, number) for at, number in enumerate(ordered)
        )

    def _add(self, numbers: Sequence[int]) -> list[str]:
        """Add nodes of offers to the snapshot; return their names."""
        names = []
        for at, number in enumerate(sorted(numbers)):
            node = self._node(number, at)
            names.append(node.metadata.name)
            self._snapshot.set_node(node)
        return names

    def bought(self, most: int) -> Advice | None:
        """Return the cheapest set that the solver finds, proved by placing each pod on its node.

        ``None`` if numbers cannot state the pods' filters, or the set has too many nodes.
        """
        snapshot = self._snapshot
        options = Options(preempt=False, tie_break="first")
        decided = schedule_batch(
            snapshot, self._framework, self._pods, options, decider=self._decider
        )
        before = list(decided.placed())
        names: list[str] = []
        placed: list[tuple[object, str]] = list(before)
        try:
            here = {key for key, _ in before}
            rest = [Seeker(p.key, p.info, self._framework) for p in self._pods if p.key not in here]
            found = self._solved(rest, most)
            if found is None:
                return None
            numbers = sorted(found.shapes.tolist())
            names = self._add(numbers)
            by_offer: dict[int, list[str]] = {}
            for name, number in zip(names, numbers, strict=True):
                by_offer.setdefault(number, []).append(name)
            pods_of: dict[int, list[Seeker]] = {}
            for pod in rest:
                pods_of.setdefault(pod.info.index, []).append(pod)
            waiting = []
            for shape, counts in zip(found.shapes.tolist(), found.pods.tolist(), strict=True):
                name = by_offer[shape].pop(0)
                for index, many in zip(_classes(rest), counts, strict=True):
                    waiting += [(pods_of[index].pop(), name) for _ in range(many)]
            for pod, name in waiting:
                place = PodToPlace(pod.key, pod.info, name)
                decision = schedule_pod(snapshot, self._framework, place, options)
                if decision.node_name != name:
                    return None
                snapshot.assume(pod.key, pod.info, decision.row)
                placed.append((pod.key, name))
        finally:
            for key, _ in placed:
                snapshot.forget(key)
            for name in names:
                snapshot.remove_node(name)
        price = self.price(numbers)
        return Advice(
            counts=tuple(numbers.count(number) for number in range(len(self._offers))),
            price=price,
            placed=tuple(placed),
            waiting=len(self._pods),
            before=len(before),
            least=min(found.least, price),
            alone=self.placed(tuple(numbers)),
            names=tuple(zip(names, numbers, strict=True)),
        )

    def _solved(self, rest: Sequence[Seeker], most: int) -> Bought | None:
        """Return the solver's purchase for ``rest``; ``None``: unsupported, or too many nodes."""
        snapshot, offers = self._snapshot, self._offers
        names = self._add(range(len(offers)))
        try:
            if not all(facts.packable(snapshot, rest, [self._framework])):
                return None
            read = facts.read(snapshot, rest)
        finally:
            for name in names:
                snapshot.remove_node(name)
        columns = [read.nodes.index(name) for name in names]
        whole = read.problem
        problem = msgspec.structs.replace(
            whole,
            free=whole.free[columns],
            limits=whole.limits[:, columns],
            prices=whole.prices[columns],
            stays=whole.stays[:, columns],
            start=whole.start[:, columns],
        )
        needs = Needs(
            problem=problem,
            prices=np.array([offer.price for offer in offers], np.float64),
            most=np.array([min(offer.most, most) for offer in offers], np.int64),
        )
        found = process.buy(needs, work=_WORK, seconds=_SECONDS, go_on=self._go_on)
        return found if len(found.shapes) <= most else None

    def grown(self, allowed: Sequence[int], before: int, most: int) -> _Set:
        """Build a set greedily: add the node with the lowest price per newly placed pod."""
        numbers: tuple[int, ...] = ()
        now = before
        while len(numbers) < most and now < len(self._pods):
            best: tuple[float, int, int] | None = None
            for number in allowed:
                if numbers.count(number) >= self._offers[number].most:
                    continue
                gained = self.placed((*numbers, number)) - now
                if gained > 0:
                    cost = (self._offers[number].price / gained, -gained, number)
                    best = cost if best is None else min(best, cost)
            if best is None:
                break
            gained, number = -best[1], best[2]
            numbers, now = (*numbers, number), now + gained
            numbers, now = self._repeated(numbers, number, now, gained, most)
        return _Set(numbers, now)

    def _repeated(
        self, numbers: tuple[int, ...], number: int, now: int, gained: int, most: int
    ) -> tuple[tuple[int, ...], int]:
        """Add the same offer again while each node places as many more pods, in growing steps."""
        step = 1
        of_these = self._offers[number].most - numbers.count(number) + len(numbers)
        while step and len(numbers) + step <= min(most, of_these):
            more = (*numbers, *[number] * step)
            placed = self.placed(more)
            if placed - now >= gained * step:
                numbers, now, step = more, placed, 2 * step
            else:
                step //= 2
        return numbers, now

    def trimmed(self, found: _Set) -> tuple[int, ...]:
        """Return the set without unneeded nodes; the most expensive are tried first."""
        numbers = list(found.numbers)
        for number in sorted(set(numbers), key=lambda one: (-self._offers[one].price, one)):
            while number in numbers:
                fewer = numbers.copy()
                fewer.remove(number)
                if self.placed(tuple(fewer)) < found.placed:
                    break
                numbers = fewer
        return tuple(numbers)

    def _node(self, number: int, at: int) -> Node:
        return new_node(self._snapshot, self._offers[number], at)


def new_node(snapshot: Snapshot, offer: Offer, at: int) -> Node:
    """Return a new node of an offer, with a name that no node of the snapshot has."""
    name = f"new-{offer.name}-{at + 1}"
    while snapshot.row_of(name) is not None:
        name += "-new"
    labels = {**offer.node.metadata.labels, HOSTNAME: name}
    metadata = msgspec.structs.replace(offer.node.metadata, name=name, labels=labels)
    return msgspec.structs.replace(offer.node, metadata=metadata)
