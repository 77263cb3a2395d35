"""Finds which nodes to remove and which to buy instead, for waiting and running pods.

The packer's solver proposes several sets of nodes, from the one without moves to the cheapest
(``scheduling.packing.exchange``). Each is proved: with its nodes in the snapshot, the scheduler's
core places every moving or waiting pod on its node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from clusterstate.objects.values.node import Node
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.runtime import Framework
from scheduling.packing import exchange, process
from scheduling.packing.exchange import Exchanges
from scheduling.packing.facts import Facts, Seeker
from scheduling.packing.problem import Bought, Needs, PackingAnswer, Problem
from scheduling.simulation.moves import TO_EMPTY, Prices, in_waves
from scheduling.simulation.node_advice import Offer, new_node
from scheduling.simulation.packing import (
    NEVER,
    MoverRefused,
    Packer,
    PackingResult,
)

_SECONDS: Final = 4.0
_BUYING: Final = 0.3
_PACKING: Final = 0.1
"""The solver's limit of work for one of its answers, and its limit in seconds."""


class Exchange(msgspec.Struct, frozen=True):
    """Nodes to remove and to buy, after a placement of all pods on the result was found.

    ``remove``: names of nodes to remove. ``buy``: nodes to add, with the index of their offer.
    ``after``: the price of all nodes then. ``moves_cost``: the price of all moves. ``shares``: the
    requested part of each node's fullest resource, for nodes with a price and new ones.
    """

    remove: tuple[str, ...]
    buy: tuple[tuple[Node, int], ...]
    after: float
    moves_cost: float
    shares: dict[str, float]
    packing: PackingResult


class Frontier(msgspec.Struct, frozen=True):
    """The sets to choose from: each costs less than those before it, and moves more pods.

    ``chosen``: index of the recommended set. ``today``: the present price of all nodes. ``shares``:
    as in ``Exchange``, at present. ``least``: a lower bound of the price for as many pods.
    """

    exchanges: list[Exchange]
    chosen: int
    today: float
    shares: dict[str, float]
    least: float


def frontier(
    snapshot: Snapshot,
    pods: Sequence[Seeker],
    offers: Sequence[Offer],
    *,
    frameworks: Mapping[str, Framework],
    prices: Prices,
    most: int,
    most_moves: int | None = None,
    may_move: bool = True,
    go_on: Callable[[], None] = lambda: None,
) -> Frontier:
    """Return the sets of nodes to choose from; the chosen one is the cheapest with its moves.

    Args:
        snapshot: a private copy; it is changed.
        pods: the waiting pods, in queue order.
        offers: the node types that can be bought.
        frameworks: the profiles by scheduler name, also of running pods.
        prices: prices of existing nodes and of moves. Nodes without a price stay.
        most: the most nodes to buy.
        most_moves: the most pods that the chosen set moves. If the sets that place the most pods
            all move more, the answer moves none.
        may_move: whether running pods may move at all.
        go_on: raises if the search takes too long.

    Raises:
        PluginFailed: a plugin failed.
        ServiceUnavailable: the solver is not installed.
    """
    before = copy_snapshot(snapshot)
    found = _Exchanging(snapshot, pods, offers, frameworks, prices, go_on).run(
        most, TO_EMPTY if may_move else NEVER
    )
    able = [
        at
        for at, one in enumerate(found.exchanges)
        if most_moves is None or len(one.packing.moves) <= most_moves
    ]
    if not able:
        again = [
            msgspec.structs.replace(pod, info=before.known_class(pod.info.digest)) for pod in pods
        ]
        return frontier(
            before, again, offers, frameworks=frameworks, prices=prices, most=most, may_move=False,
            go_on=go_on,
        )  # fmt: skip
    chosen = min(able, key=lambda at: found.exchanges[at].after + found.exchanges[at].moves_cost)
    best = found.exchanges[chosen]
    for node, _ in best.buy:
        before.set_node(node)
    waves = in_waves(before, best.packing.moves, frameworks, go_on)
    packing = msgspec.structs.replace(best.packing, moves=waves)
    found.exchanges[chosen] = msgspec.structs.replace(best, packing=packing)
    return msgspec.structs.replace(found, chosen=chosen)


class _Exchanging:
    """One search for an exchange of nodes; tries each proposal on its packer's snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        pods: Sequence[Seeker],
        offers: Sequence[Offer],
        frameworks: Mapping[str, Framework],
        prices: Prices,
        go_on: Callable[[], None],
    ) -> None:
        self._snapshot, self._offers, self._prices = snapshot, offers, prices
        self._packer = Packer(snapshot, pods, frameworks, go_on, prices)
        self._go_on = go_on
        rows = ((snapshot.node_name(row), snapshot.node(row)) for row in snapshot.rows().tolist())
        prices_now = ((name, prices.of(node.metadata.labels)) for name, node in rows)
        self._today = {name: price for name, price in prices_now if price}
        self._shares = self._shares_of(self._today)

    def run(self, most: int, move: str) -> Frontier:
        """Return the sets to choose from; the first one is marked as chosen."""
        offers, today = self._offers, sum(self._today.values())
        shapes = [(new_node(self._snapshot, one, 0), one.price) for one in offers]
        facts = self._packer.read(move=move, shapes=shapes)
        if facts is None:
            return Frontier([self._proved(None, None, [])], 0, today, self._shares, 0.0)
        # Shapes are rows of the snapshot like other nodes: here they come last.
        last = {node.metadata.name for node, _ in shapes}
        order = [at for at, name in enumerate(facts.nodes) if name not in last]
        here = len(order)
        order += [facts.nodes.index(node.metadata.name) for node, _ in shapes]
        problem = exchange.columns_of(facts.problem, order)
        names = [facts.nodes[at] for at in order]
        prices = [self._today.get(name, 0.0) for name in names[:here]] + [o.price for o in offers]
        floats = np.where(problem.prices > 0, np.array(prices), 0.0)
        many = np.array([min(one.most, most) for one in offers], np.int64)
        found = exchange.explore(problem, floats, many, most, buy=self._buy, pack=self._pack)
        others = today - float(floats[:here].sum())
        nodes = self._nodes(found, names, here)
        wide = Facts(found.problem, [name for name, _, _ in nodes], facts.classes)
        proved = []
        for x in found.placements:
            try:
                proved.append(self._proved(wide, x, nodes))
            except MoverRefused:
                continue
            finally:
                self._packer.take_back(wide)
        if not proved:  # no pod moves; the scheduler places the waiting pods it can
            proved.append(self._proved(wide, found.problem.start, nodes))
        return Frontier(_cheaper(proved), 0, today, self._shares, others + found.least)

    def _nodes(
        self, found: Exchanges, names: Sequence[str], here: int
    ) -> list[tuple[str, Node | None, int]]:
        """Return (name, node, offer) of each column; (name, ``None``, -1) of an existing node."""
        nodes: list[tuple[str, Node | None, int]] = []
        counts = [0] * len(self._offers)
        for column in found.columns:
            if column < here:
                nodes.append((names[column], None, -1))
                continue
            number = column - here
            node = new_node(self._snapshot, self._offers[number], counts[number])
            counts[number] += 1
            nodes.append((node.metadata.name, node, number))
        return nodes

    def _proved(
        self, facts: Facts | None, x: Int64 | None, nodes: Sequence[tuple[str, Node | None, int]]
    ) -> Exchange:
        """Return a proposal after the scheduler's core has placed its pods as proposed.

        Raises:
            MoverRefused: a running pod does not fit its new node.
        """
        used = set() if x is None else set(np.flatnonzero(x.any(0)).tolist())
        bought = [
            (node, number)
            for at, (_, node, number) in enumerate(nodes)
            if node is not None and at in used
        ]
        try:
            for node, _ in bought:
                self._snapshot.set_node(node)
            packing = self._packer.settled(facts, x)
            remove = tuple(name for name in self._today if not self._packer.has_others(name))
            stays = [name for name in self._today if name not in remove]
            shares = self._shares_of([*stays, *(node.metadata.name for node, _ in bought)])
        finally:
            for node, _ in bought:
                self._snapshot.remove_node(node.metadata.name)
        after = {name: price for name, price in self._today.items() if name not in remove}
        return Exchange(
            remove=remove,
            buy=tuple(bought),
            after=sum(after.values()) + sum(self._offers[number].price for _, number in bought),
            moves_cost=sum(self._packer.price_of_move(one.key) for one in packing.moves),
            shares=shares,
            packing=packing,
        )

    def _shares_of(self, names: Iterable[str]) -> dict[str, float]:
        snapshot, found = self._snapshot, {}
        for name in names:
            row = snapshot.row_of(name)
            offered = snapshot.allocatable[row]
            has = offered > 0
            found[name] = float((snapshot.requested[row][has] / offered[has]).max(initial=0.0))
        return found

    def _buy(self, needs: Needs) -> Bought:
        return process.buy(needs, work=_BUYING, seconds=_SECONDS, go_on=self._go_on)

    def _pack(self, problem: Problem) -> PackingAnswer:
        return process.ask(problem, work=_PACKING, seconds=_SECONDS, go_on=self._go_on)


def _cheaper(proved: Sequence[Exchange]) -> list[Exchange]:
    """Return the Pareto front of price of moves and price of nodes, among sets with most pods."""
    most = max(len(one.packing.placed) for one in proved)
    able = [one for one in proved if len(one.packing.placed) == most]
    cheaper: list[Exchange] = []
    for one in sorted(able, key=lambda one: (one.moves_cost, len(one.packing.moves), one.after)):
        if not cheaper or one.after < cheaper[-1].after - 1e-9:
            cheaper.append(one)
    return cheaper
