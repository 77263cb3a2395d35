"""Moves of running pods: who may move, at which price, and in which order.

A move's price is that of the pod's class, and of the work that is lost: the annotation
``stowage.dev/lost-work`` of its PodGroup says how much that is.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.errors import INVALID, REQUIRED, TYPE_INVALID, FieldError
from clusterstate.objects.values.labels import Selector, SelectorError, parse_selector
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord, group_key
from scheduling.packing.facts import Seeker

TO_EMPTY: Final = "ToEmptyNodes"
_LARGEST_PRICE: Final = 1e12
STAYING_OWNERS: Final = frozenset({"DaemonSet", "Node"})
"""Owners of pods that cannot leave their node."""


class Prices(msgspec.Struct, frozen=True):
    """Prices of nodes and of moves of pods, by labels: the first selector that matches counts.

    ``move``: the price of moving a pod that no selector of ``moves`` matches. ``lost_work``: the
    price of an hour of work that a PodGroup loses.
    """

    nodes: tuple[tuple[Selector, float], ...] = ()
    move: float = 1.0
    moves: tuple[tuple[Selector, float], ...] = ()
    lost_work: float = 0.0

    def of(self, labels: Mapping[str, str]) -> float:
        """Return the price of a node with these labels, 0 if no selector matches."""
        return next((price for selector, price in self.nodes if selector.matches(labels)), 0.0)

    def of_move(self, snapshot: Snapshot, *pods: PodInfo) -> float:
        """Return the price of moving a pod, or all pods of a PodGroup that leaves as a whole."""
        price = sum(
            next((price for one, price in self.moves if one.matches(pod.labels)), self.move)
            for pod in pods
        )
        group = snapshot.groups.find(group_key(pods[0].pod))
        lost = 0.0 if group is None else group.lost_work or 0.0
        return price + self.lost_work * lost / 3600


class Move(msgspec.Struct, frozen=True):
    """A running pod that moves to another node.

    ``wave``: moves of one wave can run in parallel after those of earlier waves: the room on the
    new node is free before the pod leaves the old one. 0: the move is part of a cycle of pods that
    wait for each other's room.
    """

    key: Hashable
    origin: str
    target: str
    wave: int = 0


OF_MOVES: Final = ("movePrice", "movePrices", "lostWorkPrice")
"""The fields of the prices of moves."""


def read_prices(spec: Manifest, errors: list[FieldError]) -> Prices | None:
    """Return the prices of nodes and moves, ``None`` if ``spec`` has none.

    Its fields are ``prices`` and ``movePrices`` (``selector`` and ``price`` each), ``movePrice``
    and ``lostWorkPrice`` (of an hour).
    """
    if not spec.keys() & {"prices", *OF_MOVES}:
        return None
    if "prices" not in spec:
        errors.append(FieldError(REQUIRED, "spec.prices"))
    nodes = _selected_prices("spec.prices", spec.get("prices", ()), errors)
    return msgspec.structs.replace(read_move_prices(spec, "spec", errors, 0.0), nodes=nodes)


def read_move_prices(spec: Manifest, path: str, errors: list[FieldError], default: float) -> Prices:
    """Return prices of moves; ``default``: of a move without ``movePrice``."""
    numbers = {"movePrice": default, "lostWorkPrice": 0.0}
    for name, value in list(numbers.items()):
        if _is_price(given := spec.get(name, value)):
            numbers[name] = float(given)
        else:
            errors.append(FieldError(INVALID, f"{path}.{name}", given, "must be at least 0"))
    moves = _selected_prices(f"{path}.movePrices", spec.get("movePrices", ()), errors)
    return Prices((), numbers["movePrice"], moves, numbers["lostWorkPrice"])


def _selected_prices(
    name: str, given: object, errors: list[FieldError]
) -> tuple[tuple[Selector, float], ...]:
    if not isinstance(given, list | tuple):
        errors.append(FieldError(TYPE_INVALID, name, given, "must be a list"))
        given = []
    found = []
    for number, entry in enumerate(given):
        path = f"{name}[{number}]"
        if not isinstance(entry, dict) or entry.keys() != {"selector", "price"}:
            errors.append(FieldError(INVALID, path, None, "must have selector and price"))
        elif not isinstance(entry["selector"], str) or not _is_price(entry["price"]):
            errors.append(
                FieldError(
                    INVALID, path, None, "must be a label selector and a price of at least 0"
                )
            )
        else:
            try:
                found.append((parse_selector(entry["selector"]), float(entry["price"])))
            except SelectorError as error:
                errors.append(FieldError(INVALID, f"{path}.selector", None, str(error)))
    return tuple(found)


def _is_price(given: object) -> bool:
    return isinstance(given, int | float) and given is not True and 0 <= given <= _LARGEST_PRICE


def may_move(
    snapshot: Snapshot, frameworks: Mapping[str, Framework], *, whole_groups: bool = False
) -> list[Seeker]:
    """Return running pods that may move: a controller recreates them, and budgets allow it.

    Without those of PodGroups that leave as a whole, unless ``whole_groups``.
    """
    closed = [one for one in snapshot.disruption_budgets() if one.disruptions_allowed <= 0]
    found = []
    for record in snapshot.pods():
        info, framework = record.info, frameworks.get(record.info.scheduler_name)
        if (
            framework is not None
            and info.owner is not None
            and info.owner[1] not in STAYING_OWNERS
            and not record.terminating
            and (whole_groups or group_of(snapshot, info) is None)
            and not any(
                one.namespace == info.namespace and one.selector.matches(info.labels)
                for one in closed
            )
        ):
            node = snapshot.node_of(record.key) or ""
            found.append(Seeker(record.key, info, framework, node, runs=True))
    return found


def group_of(snapshot: Snapshot, info: PodInfo) -> PodGroup | None:
    """Return the PodGroup with which a pod leaves as a whole, ``None`` if it leaves alone."""
    group = snapshot.groups.find(group_key(info.pod))
    return group if group is not None and group.leaves_together else None


def put_on(snapshot: Snapshot, record: PodRecord, node: str) -> None:
    """Put a pod that was removed on a node, with what was known of it."""
    snapshot.add_pod(
        record.key, record.info, node, start_time=record.start_time,
        terminating=record.terminating, name=record.name,
    )  # fmt: skip


def in_waves(
    snapshot: Snapshot,
    moves: Sequence[Move],
    frameworks: Mapping[str, Framework],
    go_on: Callable[[], None],
) -> list[Move]:
    """Return moves with their waves: the new room of each is free while the pods still run.

    Args:
        snapshot: the world before any move; each move changes it.
        moves: all moves to make.
        frameworks: the profiles by scheduler name.
        go_on: raises if the run takes too long.
    """
    options = Options(preempt=False, tie_break="first")
    found: list[Move] = []
    waiting, wave = list(moves), 0
    while waiting:
        wave += 1
        held: list[Move] = []
        again: list[Move] = []
        for move in waiting:
            go_on()
            record = snapshot.pod(move.key)
            assert record is not None
            place = PodToPlace(("instead of", move.key), record.info, move.target)
            framework = frameworks[record.info.scheduler_name]
            decision = schedule_pod(snapshot, framework, place, options)
            if decision.node_name == move.target:
                snapshot.assume(place.key, record.info, decision.row)
                held.append(msgspec.structs.replace(move, wave=wave))
            else:
                again.append(move)
        if not held:
            return [*found, *waiting]
        for move in held:
            snapshot.remove_pod(move.key)
        found += held
        waiting = again
    return found
