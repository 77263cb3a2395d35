"""Improves sets of nodes: removes some nodes and fills others with their pods, again and again.

Every resource of every kind of node has a value, and so has every class of pods, from the linear
program (``purchase``). The loss of a node is its price above the value of its pods; the losses of
all nodes are what the set costs above the bound. Nodes with large losses are removed with some
others, and their pods fill new nodes one by one, first those with the least loss relative to their
value. More expensive sets are accepted too, at first often and later seldom (simulated annealing).
This is ruin and recreate (Schrimpf et al., "Record breaking optimization results using the ruin and
recreate principle", 2000).

Numba compiles this and caches the code on disk until this file changes; with NUMBA_DISABLE_JIT=1
the functions run as plain Python. They call nothing outside of this file.
"""

from typing import Any, Final, NamedTuple

import numba
import numpy as np

from scheduling.framework.arrays import Float64, Int64, Mask

_UNPLACED: Final = 1e6
"""A pod without a node costs so many times the dearest node."""
_MOST_RUINED: Final = 6
_HEAT: Final = 0.02
"""In the beginning a step may raise the price by this fraction of a node's mean price."""
_SWAY: Final = 0.05
"""A random number below this is added to each loss before losses are compared."""


class Facts(NamedTuple):
    """The facts about classes of pods (C), resources (R) and kinds of nodes (K)."""

    requests: Int64
    """(C, R) the amounts that one pod requests."""
    free: Int64
    """(K, R) the free amounts of one node."""
    caps: Int64
    """(K, C) the most pods of a class on a node, if it takes no others."""
    apart: Mask
    """(C, C) whether pods of two classes must not share a node."""
    rents: Float64
    """(K, R) the worth of one unit of a resource."""
    class_losses: Float64
    """(K, C) the worth of the room that a pod takes, less the worth of the pod."""
    worth: Float64
    """(C,) the worth of one pod."""
    prices: Float64
    """(K,) the price of one node."""
    most: Int64
    """(K,) the number of nodes that can be had."""
    chances: Float64
    """(K,) the chance that a kind is tried."""


_compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _fill(
    facts: Facts,
    kind: int,
    left: Int64,
    listed: Int64,
    pods: Int64,
    room: Int64,
    noise: Float64,
    rng: np.random.Generator,
) -> int:
    """Fill a node greedily into ``pods`` with the listed classes; return the number of tries.

    Half of the fillings take the largest pod, the others the one that best matches what is free.
    """
    requests, caps, rents = facts.requests, facts.caps, facts.rents
    resources, many = requests.shape[1], len(listed)
    room[:] = facts.free[kind]
    for at in range(many):
        pods[listed[at]] = 0
    matching = rng.random() < 0.5
    strength = rng.random() ** 2
    for at in range(many):
        noise[at] = 1 + strength * (rng.random() - 0.5)
    tries = 0
    while True:
        best, best_value = -1, -np.inf
        for at in range(many):
            c = listed[at]
            tries += 1
            if pods[c] >= left[c] or pods[c] >= caps[kind, c]:
                continue
            value, fits = 0.0, True
            for r in range(resources):
                asked = requests[c, r]
                if asked > room[r]:
                    fits = False
                    break
                if asked:
                    size = rents[kind, r] * asked
                    value += size * room[r] / facts.free[kind, r] if matching else size
            if not fits:
                continue
            value = (value - 3 * facts.class_losses[kind, c]) * noise[at]
            if value > best_value:
                closed = False
                if not pods[c]:
                    for other in range(many):
                        if pods[listed[other]] and facts.apart[c, listed[other]]:
                            closed = True
                            break
                if not closed:
                    best, best_value = c, value
        if best < 0:
            return tries
        pods[best] += 1
        for r in range(resources):
            room[r] -= requests[best, r]


@_compiled
def _refill(
    facts: Facts,
    left: Int64,
    used: Int64,
    fillings: int,
    limit: float,
    kinds: Int64,
    pods: Int64,
    rng: np.random.Generator,
) -> tuple[int, float, int]:
    """Place the pods of ``left`` on new nodes; return the number of nodes, price, and tries.

    Pods that no kind takes stay in ``left``. -1 nodes: the price would exceed ``limit``.
    """
    caps, worth, prices = facts.caps, facts.worth, facts.prices
    classes = len(left)
    known = np.empty(classes, np.int64)
    now, best_pods = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    noise, room = np.empty(classes), np.empty(facts.requests.shape[1], np.int64)
    nodes, price, tries = 0, 0.0, 1
    while True:
        many, rest, count = 0, 0.0, 0
        for c in range(classes):
            if left[c]:
                known[many] = c
                many += 1
                rest += worth[c] * left[c]
                count += left[c]
        listed = known[:many]
        if not many:
            return (nodes if price <= limit else -1), price, tries
        if price + rest > limit or nodes >= len(kinds):
            return -1, price, tries
        best, best_loss, is_open = -1, np.inf, False
        for kind in range(len(prices)):
            if used[kind] >= facts.most[kind]:
                continue
            takes = False
            for at in range(many):
                takes = takes or caps[kind, listed[at]] > 0
            is_open = is_open or takes
            if not takes or rng.random() > facts.chances[kind]:
                continue
            for _ in range(fillings):
                tries += _fill(facts, kind, left, listed, now, room, noise, rng)
                value = 0.0
                for at in range(many):
                    value += worth[listed[at]] * now[listed[at]]
                if value <= 0:
                    continue
                loss = prices[kind] / value + _SWAY * rng.random()
                if loss < best_loss:
                    best, best_loss = kind, loss
                    for at in range(many):
                        best_pods[listed[at]] = now[listed[at]]
        if best < 0:
            if is_open:
                continue
            price += count * _UNPLACED * prices.max()
            return (nodes if price <= limit else -1), price, tries
        kinds[nodes] = best
        pods[nodes] = 0
        for at in range(many):
            c = listed[at]
            pods[nodes, c] = best_pods[c]
            left[c] -= best_pods[c]
        used[best] += 1
        price += prices[best]
        nodes += 1


class Set(NamedTuple):
    """A set of nodes, the first ``nodes`` of ``kinds`` (N,) and ``pods`` (N, C); ``left``: (C,)."""

    nodes: int
    price: float
    kinds: Int64
    pods: Int64
    left: Int64


@_compiled
def begin(facts: Facts, demand: Int64, rng: np.random.Generator) -> Set:
    """Return a set of nodes with all pods of ``demand``, as far as there are nodes."""
    most, left = demand.sum(), demand.copy()
    kinds, pods = np.zeros(most, np.int64), np.zeros((most, len(demand)), np.int64)
    used = np.zeros(len(facts.prices), np.int64)
    nodes, price, _ = _refill(facts, left, used, 4, np.inf, kinds, pods, rng)
    return Set(nodes, price, kinds, pods, left)


@_compiled
def improve(
    facts: Facts, now: Set, best: Set, steps: int, heat: float, rng: np.random.Generator
) -> tuple[Set, Set, int]:
    """Remove some nodes and fill new ones, ``steps`` times; changes the arrays of both sets.

    Args:
        facts: the classes of pods and kinds of nodes.
        now: the set that is changed.
        best: the best set so far, with arrays of its own.
        steps: how many times.
        heat: 1 in the beginning, 0 at the end: how readily more expensive sets are accepted.
        rng: chooses the nodes to remove.

    Returns:
        Both sets, and the number of tries of a pod on a node: a measure of the work.
    """
    nodes, price, kinds, pods, left = now
    best_nodes, best_price, best_kinds, best_pods, best_left = best
    classes, prices, worth = pods.shape[1], facts.prices, facts.worth
    chosen = np.empty(_MOST_RUINED, np.int64)
    new_kinds, new_pods = np.empty_like(kinds), np.empty_like(pods)
    asked = np.empty(classes, np.int64)
    losses = np.empty(len(kinds))
    used = np.zeros(len(prices), np.int64)
    for node in range(nodes):
        losses[node] = prices[kinds[node]] - (worth * pods[node]).sum()
    tries = 0
    for _ in range(steps):
        ruined = min(2 + int(rng.random() * (_MOST_RUINED - 1)), nodes)
        for at in range(ruined):
            while True:
                node = int(rng.random() * nodes)
                if rng.random() < 0.5:  # a node of larger loss than others
                    for _again in range(3):
                        other = int(rng.random() * nodes)
                        if losses[other] > losses[node]:
                            node = other
                if not (chosen[:at] == node).any():
                    break
            chosen[at] = node
        asked[:] = left
        used[:] = 0
        for node in range(nodes):
            used[kinds[node]] += 1
        before = left.sum() * _UNPLACED * prices.max()
        for at in range(ruined):
            node = chosen[at]
            before += prices[kinds[node]]
            used[kinds[node]] -= 1
            asked += pods[node]
        dearer = -heat * _HEAT * price / nodes * np.log(1 - rng.random())
        made, cost, some = _refill(
            facts, asked, used, 1, before + dearer + 1e-9 * price, new_kinds, new_pods, rng
        )
        tries += some
        if made < 0 or nodes - ruined + made > len(kinds):
            continue
        for node in np.sort(chosen[:ruined])[::-1]:
            nodes -= 1
            kinds[node], losses[node] = kinds[nodes], losses[nodes]
            pods[node] = pods[nodes]
        for at in range(made):
            kinds[nodes] = new_kinds[at]
            pods[nodes] = new_pods[at]
            losses[nodes] = prices[kinds[nodes]] - (worth * pods[nodes]).sum()
            nodes += 1
        left[:] = asked
        price += cost - before
        if price < best_price * (1 - 1e-9):
            best_nodes, best_price = nodes, price
            best_kinds[:nodes] = kinds[:nodes]
            best_pods[:nodes] = pods[:nodes]
            best_left[:] = left
    return (
        Set(nodes, price, kinds, pods, left),
        Set(best_nodes, best_price, best_kinds, best_pods, best_left),
        tries,
    )
