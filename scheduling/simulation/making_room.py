"""Finds pods to move to other nodes so that a waiting pod fits.

Each node is tried as in preemption: all pods that may move are removed; if the waiting pod then
fits, they are put back one by one, the highest priority and the largest first, while it still fits.
Each of the others must find another node, with the waiting pod in place.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import RequestFilter
from scheduling.packing.facts import Seeker
from scheduling.simulation.packing import may_move

_MOST_NODES: Final = 200
_MOST_AHEAD: Final = 16
_OPTIONS: Final = Options(preempt=False, tie_break="first")


def ways(
    snapshot: Snapshot,
    frameworks: Mapping[str, Framework],
    pod: PodToPlace,
    go_on: Callable[[], None],
    *,
    most: int = _MOST_NODES,
    ahead: Sequence[PodToPlace] = (),
) -> list[list[Hashable]]:
    """Return sets of pods to move so that the pod fits, the smallest set first.

    Each set is of one node.

    Args:
        snapshot: a private copy; it is changed and restored.
        frameworks: the profiles by scheduler name.
        pod: the waiting pod.
        go_on: raises if the search takes too long.
        most: how many nodes are tried, those with the fewest movable pods first.
        ahead: pods of the same profile that are tried before this one and fit nowhere now; a set
            with which one of them would fit is left out. Of a few classes the first pod is tried.

    Raises:
        PluginFailed: a plugin failed.
    """
    framework = frameworks[pod.info.scheduler_name]
    requests = {
        column: amount
        for plugin in framework.filter_plugins
        if isinstance(plugin, RequestFilter)
        for amount, column in plugin.request_checks(pod.info, snapshot)
    }
    firsts: dict[int, PodToPlace] = {}
    for other in ahead:
        if len(firsts) < _MOST_AHEAD:
            firsts.setdefault(other.info.index, other)
    on_node: dict[str, list[Seeker]] = {}
    for one in may_move(snapshot, frameworks):
        on_node.setdefault(one.node_name, []).append(one)
    found = []
    nodes = [name for name, pods in on_node.items() if _has_amounts(snapshot, requests, name, pods)]
    for node in sorted(nodes, key=lambda name: (len(on_node[name]), name))[:most]:
        go_on()
        if movers := _movers(snapshot, framework, pod, on_node[node], firsts):
            found.append([one.key for one in movers])
    return sorted(found, key=len)


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
        snapshot.add_pod(one.key, record.info, node, start_time=record.start_time, name=record.name)

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
