"""Finds pods to move to other nodes so that a waiting pod or PodGroup fits.

Each node is tried as in preemption: all pods that may move are removed; if the waiting pod then
fits, they are put back one by one, the highest priority and the largest first, while it still fits.
Each of the others must find another node, with the waiting pod in place. For a group as few nodes
as possible of one topology domain are tried together, those whose pods cost the least first.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import RequestFilter
from scheduling.packing.facts import Seeker
from scheduling.simulation.gangs import domains_of
from scheduling.simulation.moves import Prices, may_move, put_on

_MOST_NODES: Final = 200
_MOST_AHEAD: Final = 16
_MOST_DOMAINS: Final = 64
_OPTIONS: Final = Options(preempt=False, tie_break="first")


def ways(
    snapshot: Snapshot,
    frameworks: Mapping[str, Framework],
    pod: PodToPlace,
    go_on: Callable[[], None],
    *,
    prices: Prices = Prices(),  # noqa: B008
    most: int = _MOST_NODES,
    ahead: Sequence[PodToPlace] = (),
) -> list[list[Hashable]]:
    """Return sets of pods to move so that the pod fits, the cheapest first.

    Each set is of one node.

    Args:
        snapshot: a private copy; it is changed and restored.
        frameworks: the profiles by scheduler name.
        pod: the waiting pod.
        go_on: raises if the search takes too long.
        prices: of the moves.
        most: how many nodes are tried, those with the fewest movable pods first.
        ahead: pods of the same profile that are tried before this one and fit nowhere now; a set
            with which one of them would fit is left out. Of a few classes the first pod is tried.

    Raises:
        PluginFailed: a plugin failed.
    """
    framework = frameworks[pod.info.scheduler_name]
    requests = _requests(snapshot, framework, pod)
    firsts: dict[int, PodToPlace] = {}
    for other in ahead:
        if len(firsts) < _MOST_AHEAD:
            firsts.setdefault(other.info.index, other)
    on_node: dict[str, list[Seeker]] = {}
    for one in may_move(snapshot, frameworks):
        on_node.setdefault(one.node_name, []).append(one)
    found: list[list[Seeker]] = []
    nodes = [name for name, pods in on_node.items() if _has_amounts(snapshot, requests, name, pods)]
    for node in sorted(nodes, key=lambda name: (len(on_node[name]), name))[:most]:
        go_on()
        if movers := _movers(snapshot, framework, pod, on_node[node], firsts):
            found.append(movers)
    return _by_price(snapshot, found, prices)


def ways_for_group(
    snapshot: Snapshot,
    frameworks: Mapping[str, Framework],
    group: PodGroup,
    pods: Sequence[PodToPlace],
    go_on: Callable[[], None],
    *,
    prices: Prices = Prices(),  # noqa: B008
) -> list[list[Hashable]]:
    """Return sets of pods to move so that a group fits, the cheapest first.

    One set at most for each domain of the group's topology constraint.

    Args:
        snapshot: a private copy; it is changed and restored.
        frameworks: the profiles by scheduler name.
        group: the group.
        pods: its waiting pods.
        go_on: raises if the search takes too long.
        prices: of the moves.

    Raises:
        PluginFailed: a plugin failed.
    """
    framework = frameworks[pods[0].info.scheduler_name]
    requests = _requests(snapshot, framework, pods[0])
    on_node: dict[str, list[Seeker]] = {}
    for one in may_move(snapshot, frameworks):
        on_node.setdefault(one.node_name, []).append(one)
    names = [name for name, on in on_node.items() if _has_amounts(snapshot, requests, name, on)]
    costs = {
        name: sum(prices.of_move(snapshot, one.info) for one in on_node[name]) for name in names
    }
    found = []
    for rows in domains_of(snapshot, group, snapshot.rows())[:_MOST_DOMAINS]:
        inside = [name for row in rows.tolist() if (name := snapshot.node_name(row)) in costs]
        inside.sort(key=lambda name: (costs[name], name))

        def placed_without(count: int, inside: Sequence[str] = inside) -> list[Seeker] | None:
            go_on()
            left = [one for name in inside[:count] for one in on_node[name]]
            return _movers_for_group(snapshot, framework, group, pods, left)

        low, high = 1, len(inside)
        best = placed_without(high) if inside else None
        while best is not None and low < high:
            middle = (low + high) // 2
            if (now := placed_without(middle)) is not None:
                high, best = middle, now
            else:
                low = middle + 1
        if best:
            found.append(best)
    return _by_price(snapshot, found, prices)


def _by_price(
    snapshot: Snapshot, sets: Sequence[Sequence[Seeker]], prices: Prices
) -> list[list[Hashable]]:
    def price(movers: Sequence[Seeker]) -> float:
        return sum(prices.of_move(snapshot, one.info) for one in movers)

    return [[one.key for one in movers] for movers in sorted(sets, key=price)]


def _requests(snapshot: Snapshot, framework: Framework, pod: PodToPlace) -> dict[int, int]:
    """Return the amounts that the filters compare, by column."""
    return {
        column: amount
        for plugin in framework.filter_plugins
        if isinstance(plugin, RequestFilter)
        for amount, column in plugin.request_checks(pod.info, snapshot)
    }


def _movers_for_group(
    snapshot: Snapshot,
    framework: Framework,
    group: PodGroup,
    pods: Sequence[PodToPlace],
    left: Sequence[Seeker],
) -> list[Seeker] | None:
    """Return which of the pods in ``left`` must move; ``None`` if the group does not fit then.

    Also ``None`` if one of them finds no other node.
    """
    records = [(one, snapshot.pod(one.key)) for one in left]
    for one in left:
        snapshot.remove_pod(one.key)
    decided = schedule_group(snapshot, framework, group.key, pods, _OPTIONS)
    placed: list[Hashable] = [one.key for one in decided.decisions if one.scheduled]
    movers: list[Seeker] = []
    fits = decided.placed
    for one in sorted(left, key=_importance) if fits else ():
        place = PodToPlace(("instead of", one.key), one.info, one.node_name)
        decision = schedule_pod(snapshot, one.framework, place, _OPTIONS)
        if decision.node_name == one.node_name:
            snapshot.assume(place.key, one.info, decision.row)
            placed.append(place.key)
        else:
            movers.append(one)
    for one in movers:
        instead = PodToPlace(("instead of", one.key), one.info)
        fits = fits and _land(snapshot, one.framework, instead, placed)
    for key in placed:
        snapshot.forget(key)
    for one, record in records:
        assert record is not None
        put_on(snapshot, record, one.node_name)
    return movers if fits else None


def _has_amounts(
    snapshot: Snapshot, requests: Mapping[int, int], node: str, pods: list[Seeker]
) -> bool:
    """Return whether a node without these pods has the requested amounts free, by column."""
    row = snapshot.row_of(node)
    assert row is not None
    free = {
        column: int(snapshot.allocatable[row, column] - snapshot.requested[row, column])
        for column in requests
    }
    for pod in pods:
        for column, amount in pod.info.amounts:
            if column in free:
                free[column] += amount
    return all(free[column] >= amount for column, amount in requests.items())


def _movers(
    snapshot: Snapshot,
    framework: Framework,
    pod: PodToPlace,
    pods: list[Seeker],
    ahead: Mapping[int, PodToPlace],
) -> list[Seeker]:
    """Return which of a node's pods must move; none if that does not help or one fits nowhere.

    Also none if a pod of ``ahead`` (by class) would take the room.
    """
    node = pods[0].node_name
    records = {one.key: snapshot.pod(one.key) for one in pods}

    def put_back(one: Seeker) -> None:
        record = records[one.key]
        assert record is not None
        put_on(snapshot, record, node)

    def is_taken() -> bool:
        place = PodToPlace(pod.key, pod.info, node)
        return schedule_pod(snapshot, framework, place, _OPTIONS).node_name == node

    for one in pods:
        snapshot.remove_pod(one.key)
    movers: list[Seeker] = []
    placed: list[Hashable] = []
    if is_taken():
        for one in sorted(pods, key=_importance):
            put_back(one)
            if not is_taken():
                snapshot.remove_pod(one.key)
                movers.append(one)
        finds_room = not any(
            schedule_pod(snapshot, framework, PodToPlace(one.key, one.info), _OPTIONS).node_name
            for one in ahead.values()
        )
        finds_room = finds_room and _land(
            snapshot, framework, PodToPlace(pod.key, pod.info, node), placed
        )
        for one in movers:
            instead = PodToPlace(("instead of", one.key), one.info)
            finds_room = finds_room and _land(snapshot, one.framework, instead, placed)
        for key in placed:
            snapshot.forget(key)
        for one in movers:
            put_back(one)
        return movers if finds_room else []
    for one in pods:
        put_back(one)
    return []


def _land(
    snapshot: Snapshot, framework: Framework, pod: PodToPlace, placed: list[Hashable]
) -> bool:
    """Place a pod as the scheduler does; return whether it found a node."""
    decision = schedule_pod(snapshot, framework, pod, _OPTIONS)
    if not decision.node_name:
        return False
    snapshot.assume(pod.key, pod.info, decision.row)
    placed.append(pod.key)
    return True


def _importance(pod: Seeker) -> tuple[int, int, int]:
    requests = pod.info.requests
    return -pod.info.priority, -requests.get("cpu", 0), -requests.get("memory", 0)
