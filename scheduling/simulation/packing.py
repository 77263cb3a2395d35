"""Places many pods together, better than one by one: a ``Packing`` document in, the answer out.

The scheduler's core places the pods first, one by one, in queue order: the packer starts from that
placement. Then ``scheduling.packing`` searches for a better placement of the pods whose filters can
be stated in numbers. The result is proved: the scheduler's core, with all filters of the profile,
must place each pod on its node after the pods before it. A pod that it refuses is placed by the
scheduler instead, or listed as left.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from clusterstate.objects.values.errors import (
    INVALID,
    NOT_SUPPORTED,
    TYPE_INVALID,
    FieldError,
    Invalid,
    StatusError,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord, group_key
from scheduling.packing import facts, process
from scheduling.packing.facts import Facts, Seeker
from scheduling.packing.problem import PackingAnswer, Problem
from scheduling.simulation.document import API_VERSION, GROUP, Simulation, read_world, without
from scheduling.simulation.improving import TERMS, ZONE, improve
from scheduling.simulation.moves import (
    OF_MOVES,
    STAYING_OWNERS,
    TO_EMPTY,
    Move,
    Prices,
    in_waves,
    may_move,
    put_on,
    read_prices,
)
from scheduling.simulation.preparing import Preparer, Ready, UnplacedStatus
from scheduling.simulation.running import frameworks_of, world_of
from scheduling.simulation.world import Base, World

KIND: Final = "Packing"
NEVER, TO_FIT = "Never", "ToFit"
MOVES: Final = (NEVER, TO_FIT, TO_EMPTY, *TERMS)
DEFAULT_SECONDS: Final = 1.5
LARGEST_SECONDS: Final = 40.0
MOST_PODS: Final = 20_000
_WORK_A_SECOND: Final = 0.5
"""The solver's units of work per second on an idle core, rounded down."""
_PRICE_OF_NODE: Final = 1_000
"""How many moves an emptied node is worth."""
_UNITS: Final = 10_000
"""The highest price of a node or move as an integer of the solver."""
_OF_A_GROUP: Final = "it belongs to a PodGroup, which the packer cannot place as a whole"
Solve = Callable[[Problem], PackingAnswer]


class Question(msgspec.Struct, frozen=True):
    """The question: a cluster with pods, whether running pods may move, and the time limit."""

    simulation: Simulation
    move: str
    seconds: float
    prices: Prices | None = None
    topology_key: str = ZONE


class UnplacedPod(msgspec.Struct, frozen=True):
    """A pod that finds no node; ``impossible``: no placement of the other pods would help."""

    key: Hashable
    message: str
    impossible: bool


class PackingResult(msgspec.Struct, frozen=True):
    """The result, with keys of pods and names of nodes.

    ``alone``: how many pods the scheduler places by itself. ``held``: how many are not in the
    solver's problem, and are placed by the scheduler, if at all.
    """

    placed: dict[Hashable, str]
    moves: list[Move]
    left: list[UnplacedPod]
    alone: int
    held: int
    emptied: list[str]
    packed: PackingAnswer | None
    same_priority: bool
    saves: tuple[float, float] | None = None
    """The prices of the emptied nodes and of the moves, if prices are given."""


def read_packing(document: object) -> Question:
    """Return a parsed ``Packing`` document, with a world and pods as in a ``Simulation``.

    In addition it has ``spec.move`` (of ``MOVES``), ``spec.seconds``, the fields of
    ``moves.read_prices``, and ``topologyKey`` for zones to balance.

    Raises:
        Invalid: with every wrong field.
    """
    if not isinstance(document, dict):
        raise Invalid(KIND, "", [FieldError(TYPE_INVALID, "", None, "must be an object")], GROUP)
    errors: list[FieldError] = []
    if document.get("kind") not in (None, "", KIND):
        errors.append(FieldError(INVALID, "kind", document["kind"], f'must be "{KIND}"'))
    world = {key: value for key, value in document.items() if key not in ("kind", "spec")}
    spec = document.get("spec")
    prices: Prices | None = None
    move: Any = NEVER
    seconds: Any = DEFAULT_SECONDS
    if isinstance(spec, dict):
        move, seconds = spec.get("move", NEVER), spec.get("seconds", DEFAULT_SECONDS)
        prices = read_prices(spec, errors)
        own = ("move", "seconds", "topologyKey", "prices", *OF_MOVES)
        inner = without(spec, own, ("mode", "tieBreak", "explain", "preemption"), errors)
        world["spec"] = {**inner, "explain": "none"}
    elif spec is not None:
        errors.append(FieldError(TYPE_INVALID, "spec", spec, "must be an object"))
    if move not in MOVES:
        detail = "supported values: " + ", ".join(f'"{one}"' for one in MOVES)
        errors.append(FieldError(NOT_SUPPORTED, "spec.move", move, detail))
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not (0 < seconds <= LARGEST_SECONDS)
    ):
        detail = f"must be a number above 0 and at most {LARGEST_SECONDS:g}"
        errors.append(FieldError(INVALID, "spec.seconds", seconds, detail))
    topology_key: Any = spec.get("topologyKey", ZONE) if isinstance(spec, dict) else ZONE
    if not isinstance(topology_key, str) or not topology_key:
        errors.append(FieldError(INVALID, "spec.topologyKey", topology_key, "must be a label"))
    found = read_world(KIND, world, errors)
    return Question(found, move, float(seconds), prices, topology_key)


def gathered(
    simulation: Simulation,
    base: Base,
    waiting: Sequence[PodToPlace] = (),
    title: Callable[[Hashable], str | None] = lambda key: None,
) -> tuple[World, Mapping[str, Framework], list[Seeker], list[Manifest]]:
    """Return the world with its running pods, profiles by name, the pods to place, the refused.

    Raises:
        Invalid: the world is wrong, with every wrong field.
    """
    world = world_of(simulation, base)
    frameworks = frameworks_of(simulation, base)
    preparer = Preparer(world, frameworks)
    pods: list[Seeker] = []
    refused: list[Manifest] = []

    def take(key: Hashable, name: str | None, info: PodInfo, framework: Framework) -> None:
        if framework.schedules_groups and group_key(info.pod) is not None:
            refused.append({"pod": name, "message": _OF_A_GROUP})
        else:
            pods.append(Seeker(key, info, framework))

    for one in waiting:
        name = title(one.key)
        if (framework := frameworks.get(one.info.scheduler_name)) is not None:
            take(one.key, name, one.info, framework)
        else:
            text = f'no profile is named "{one.info.scheduler_name}"'
            refused.append({"pod": name, "message": text})
    for number, given in enumerate(simulation.pods):
        found = preparer.prepare(given.manifest, number)
        if isinstance(found, Ready):
            take(found.title, found.title, found.info, found.framework)
        elif isinstance(found, UnplacedStatus):
            refused.append({"pod": found.title, "message": found.message})
        else:
            world.place(found.manifest, found.title, found.info)
    return world, frameworks, pods, refused


def run_packing(
    question: Question,
    base: Base,
    waiting: Sequence[PodToPlace] = (),
    title: Callable[[Hashable], str | None] = lambda key: None,
) -> Manifest:
    """Return the answer: ``status`` with each pod's node, the pods left, and the bound.

    Args:
        question: the pods to pack and the nodes to pack them onto.
        base: the world before the document's changes.
        waiting: pods of the base that wait for a node.
        title: returns ``namespace/name`` of these.

    Raises:
        Invalid: the world is wrong, with every wrong field.
        ServiceUnavailable: the solver is not installed.
    """
    simulation = question.simulation
    world, frameworks, pods, refused = gathered(simulation, base, waiting, title)
    try:
        if question.move in TERMS:
            return _improved(question, world, frameworks, len(pods) + len(refused), base.go_on)
        found_packing = pack(
            world.snapshot,
            pods,
            frameworks=frameworks,
            move=question.move,
            prices=question.prices,
            seconds=question.seconds,
            seed=simulation.seed,
            go_on=base.go_on,
        )
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    keys = [move.key for move in found_packing.moves]
    names = world.full_names(keys)
    status = described(
        found_packing, lambda key: title(key) or names(key), min(len(pods), MOST_PODS)
    )
    if refused:
        status["skipped"] = refused
    warnings = [*simulation.warnings, *world.warnings]
    if len(pods) > MOST_PODS:
        warnings.append(f"of {len(pods)} pods only the first {MOST_PODS} are packed")
    if warnings:
        status["warnings"] = warnings
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def _improved(
    question: Question,
    world: World,
    frameworks: Mapping[str, Framework],
    waiting: int,
    go_on: Callable[[], None],
) -> Manifest:
    """Return the answer where running pods move towards an objective, and no waiting pod.

    ``waiting``: how many pods wait.

    Raises:
        PluginFailed: a plugin failed.
    """
    before = copy_snapshot(world.snapshot)
    found = improve(
        world.snapshot, frameworks, question.move, prices=question.prices or Prices(),
        topology_key=question.topology_key, seconds=question.seconds, go_on=go_on,
    )  # fmt: skip
    moves = in_waves(before, found.moves, frameworks, go_on)
    status: Manifest = {
        "before": round(found.before, 3), "after": round(found.after, 3),
        "movesCost": round(found.price, 6),
        "moves": moves_answer(moves, world.full_names([one.key for one in moves])),
    }  # fmt: skip
    warnings = [*question.simulation.warnings, *world.warnings]
    if waiting:
        warnings.append(f"pods without a node, which {question.move} does not place: {waiting}")
    if warnings:
        status["warnings"] = warnings
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def described(found: PackingResult, title: Callable[[Hashable], str], pods: int) -> Manifest:
    """Return a result as ``status``."""
    status: Manifest = {
        "of": pods,
        "placed": len(found.placed),
        "schedulerAlone": found.alone,
        "bound": bound(found),
        "pods": [
            {"pod": title(key), "nodeName": node}
            for key, node in sorted(found.placed.items(), key=lambda one: (one[1], title(one[0])))
        ],
        "left": [
            {"pod": title(one.key), "message": one.message, "impossible": one.impossible}
            for one in found.left
        ],
    }
    if found.moves:
        status["moves"] = moves_answer(found.moves, title)
    if found.emptied:
        status["emptied"] = found.emptied
    if found.saves is not None:
        status["saves"], status["movesCost"] = (round(one, 6) for one in found.saves)
    return status


def moves_answer(moves: Sequence[Move], title: Callable[[Hashable], str]) -> list[Manifest]:
    """Return moves as JSON for ``status``, by wave; moves without a wave come last."""
    return [
        {"pod": title(one.key), "from": one.origin, "to": one.target, "wave": one.wave}
        for one in sorted(moves, key=lambda one: (one.wave or 2**31, title(one.key)))
    ]


def bound(found: PackingResult) -> Manifest:
    """Return how far the answer may be from the best possible placement, as JSON.

    ``verdict``: ``ProvedBest``, ``ProvedImpossible`` (no remaining pod fits, however the others are
    placed), ``Within`` (``gapPercent`` of the best) or ``Unknown``; ``atMost``: an upper bound of
    the number of placed pods.
    """
    if found.packed is None:
        message = "every pod fits"
        if found.left:
            message = "the scheduler's placement: the packer supports none of the pods"
        verdict = "Unknown" if found.left else "ProvedBest"
        return {"verdict": verdict, "gapPercent": 0.0, "message": message}
    packed = found.packed
    told: Manifest = {"verdict": "ProvedBest", "gapPercent": 0.0, "message": "proved best"}
    if packed.value < packed.most:
        gap = 100 * (packed.most - packed.value) / packed.most
        told = {
            "verdict": "Within",
            "gapPercent": round(gap, 3),
            "message": f"within {gap:.2g} % of the best possible",
        }
    elif found.left and all(one.impossible for one in found.left):
        told |= {
            "verdict": "ProvedImpossible",
            "message": "proved impossible: none of the remaining pods fits on any node",
        }
    if found.same_priority:
        told["atMost"] = packed.most + found.held
    if packed.cost > packed.least and packed.least:
        told["nodesGapPercent"] = round(100 * (packed.cost - packed.least) / packed.cost, 3)
    if found.held:
        told["message"] += (
            f"; {found.held} pods, whose rules concern more than their own node, stay where the"
            " scheduler puts them"
        )
    return told


def pack(
    snapshot: Snapshot,
    pods: Sequence[Seeker],
    *,
    frameworks: Mapping[str, Framework],
    move: str = NEVER,
    prices: Prices | None = None,
    seconds: float = DEFAULT_SECONDS,
    seed: int = 0,
    go_on: Callable[[], None] = lambda: None,
    solve: Solve | None = None,
) -> PackingResult:
    """Return the pods' placement; the snapshot may be changed.

    Args:
        snapshot: the world, a private copy.
        pods: the waiting pods, in queue order.
        frameworks: the profiles by scheduler name, also of running pods.
        move: whether running pods may move, and why: so that more pods fit, or also to empty
            nodes. Only pods of ``may_move`` move.
        prices: prices of nodes and of moves; by default a node is worth 1,000 moves.
        seconds: how long the solver may search.
        seed: for the solver's search.
        go_on: raises if the search takes too long.
        solve: calls the solver; by default in a process of its own.

    Raises:
        PluginFailed: a plugin failed.
        ServiceUnavailable: the solver is not installed.
    """
    if solve is None:

        def solve(problem: Problem) -> PackingAnswer:
            return process.ask(
                problem, work=seconds * _WORK_A_SECOND, seconds=seconds, seed=seed, go_on=go_on
            )  # fmt: skip

    pods = pods[:MOST_PODS]
    before = copy_snapshot(snapshot) if move != NEVER else None
    packer = Packer(snapshot, pods, frameworks, go_on, prices)
    try:
        found = packer.run(solve, move=move)
        if before is not None and found.moves:
            waves = in_waves(before, found.moves, frameworks, go_on)
            found = msgspec.structs.replace(found, moves=waves)
        return found
    except MoverRefused:
        assert before is not None
        classes = [
            msgspec.structs.replace(pod, info=before.known_class(pod.info.digest)) for pod in pods
        ]
        return Packer(before, classes, frameworks, go_on).run(solve, move=NEVER)


class MoverRefused(Exception):
    """A running pod did not fit the node to which it was to move."""


class Packer:
    """Packs pods once; each step changes its snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        pods: Sequence[Seeker],
        frameworks: Mapping[str, Framework],
        go_on: Callable[[], None],
        prices: Prices | None = None,
    ) -> None:
        self._prices = prices
        self._snapshot = snapshot
        self._pods = pods
        self._frameworks = frameworks
        self._go_on = go_on
        self._messages: dict[Hashable, str] = {}
        self._alone: dict[Hashable, str] = {}
        self._held: dict[Hashable, str] = {}
        self._records: dict[Hashable, PodRecord | None] = {}

    def run(self, solve: Solve, *, move: str) -> PackingResult:
        """Return the result with the placement that the solver finds."""
        found = self.read(move=move)
        packed = None if found is None else solve(found.problem)
        return self.settled(found, None if packed is None else packed.x, packed)

    def read(self, *, move: str, shapes: Sequence[tuple[Node, float]] = ()) -> Facts | None:
        """Remove the pods to pack from their nodes, and return the solver's problem.

        ``None`` if there are none. Other pods stay on their nodes, or the scheduler places them.
        ``shapes``: further nodes of the problem, with prices; the snapshot has them only meanwhile.
        """
        snapshot = self._snapshot
        alone = self._alone = self._schedule(self._pods)
        seekers = [
            msgspec.structs.replace(pod, node_name=alone.get(pod.key, "")) for pod in self._pods
        ]
        waiting = {pod.key for pod in self._pods}
        runners = may_move(snapshot, self._frameworks) if move != NEVER else []
        runners = [pod for pod in runners if pod.key not in waiting]
        records = self._records = {pod.key: snapshot.pod(pod.key) for pod in runners}
        together = [*runners, *seekers]
        self._go_on()
        for node, _ in shapes:
            snapshot.set_node(node)
        found: Facts | None = None
        try:
            able = facts.packable(snapshot, together, list(self._frameworks.values()))
            packed_ones = [pod for pod, is_able in zip(together, able, strict=True) if is_able]
            if len(alone) == len(self._pods) and move != TO_EMPTY:
                packed_ones = []  # nothing is left that could find room
            for pod in packed_ones:
                if pod.node_name:
                    snapshot.remove_pod(pod.key) if pod.runs else snapshot.forget(pod.key)
            if packed_ones:
                found = facts.read(snapshot, packed_ones)
                shut = {found.nodes[at] for at in np.flatnonzero(found.problem.broken()).tolist()}
                if shut:  # the node got a taint or shrank after its pods were placed
                    self._put_back([pod for pod in packed_ones if pod.node_name in shut], records)
                    packed_ones = [pod for pod in packed_ones if pod.node_name not in shut]
                    found = facts.read(snapshot, packed_ones) if packed_ones else None
        finally:
            for node, _ in shapes:
                snapshot.remove_node(node.metadata.name)
        self._held = {key: node for key, node in alone.items() if snapshot.knows(key)}
        if found is not None and (move == TO_EMPTY or shapes):
            found = self._priced(found, {node.metadata.name: price for node, price in shapes})
        return found

    def settled(
        self, found: Facts | None, x: Int64 | None, packed: PackingAnswer | None = None
    ) -> PackingResult:
        """Put the pods on the nodes of a placement, prove each, and return the result.

        Raises:
            MoverRefused: a running pod does not fit its new node.
        """
        targets: list[tuple[Seeker, str]] = []
        hopeless: set[Hashable] = set()
        emptied: list[str] = []
        if found is not None and x is not None:
            if not found.problem.is_valid(x):
                raise AssertionError("the solver's placement breaks a rule of the problem")
            targets = assigned(found, x)
            hopeless = _hopeless(found)
            emptied = _emptied(found, x)
        held, classes = self._held, () if found is None else found.classes
        placed, moved = self._prove(targets, self._records)
        rest = [pod for pod in self._pods if pod.key not in placed and pod.key not in held]
        placed |= held | self._schedule(rest)
        self._go_on()
        emptied = [name for name in emptied if not self.has_others(name)]
        saves = None
        if self._prices is not None:
            costs = (self.price_of_move(one.key) for one in moved)
            saves = sum(map(self._price_of, emptied), 0.0), sum(costs, 0.0)
        return PackingResult(
            placed=placed,
            moves=moved,
            left=[
                UnplacedPod(pod.key, self._messages.get(pod.key, ""), pod.key in hopeless)
                for pod in self._pods
                if pod.key not in placed
            ],
            alone=len(self._alone),
            held=len(self._pods) - sum(not pod.runs for pods in classes for pod in pods),
            emptied=emptied,
            saves=saves,
            packed=packed,
            same_priority=len({pod.info.priority for pod in self._pods}) <= 1,
        )

    def _put_back(
        self, pods: Sequence[Seeker], records: Mapping[Hashable, PodRecord | None]
    ) -> None:
        """Put pods back on their nodes without running filters."""
        snapshot = self._snapshot
        for pod in pods:
            record, row = records.get(pod.key), snapshot.row_of(pod.node_name)
            if pod.runs and record is not None:
                put_on(snapshot, record, pod.node_name)
            elif row is not None:
                snapshot.assume(pod.key, pod.info, row)

    def _schedule(self, pods: Sequence[Seeker]) -> dict[Hashable, str]:
        """Place pods as the scheduler does, in order; return the node of each placed pod."""
        found: dict[Hashable, str] = {}
        for framework in {id(pod.framework): pod.framework for pod in pods}.values():
            self._go_on()
            mine = [pod for pod in pods if pod.framework is framework]
            deciding.warm_for(len(mine), self._snapshot.node_count)
            decided = schedule_batch(
                self._snapshot,
                framework,
                [PodToPlace(pod.key, pod.info) for pod in mine],
                Options(preempt=False, tie_break="first"),
                decider=Decider(self._snapshot, framework),
            )
            found |= dict(decided.placed())
            for decision in decided.unplaced():
                self._messages[decision.key] = decision.message
        return found

    def _priced(self, found: Facts, shapes: Mapping[str, float]) -> Facts:
        """Return the problem with a price for every node that can be emptied or bought."""
        can_be_empty = np.array([not self.has_others(name) for name in found.nodes], np.bool_)
        costs = found.problem.move_costs
        prices = np.full(len(can_be_empty), _PRICE_OF_NODE, np.int64)
        if self._prices is not None:
            asked = np.array(
                [shapes.get(name, self._price_of(name)) for name in found.nodes], np.float64
            )
            moves = np.array(
                [self._prices.of_move(self._snapshot, one[0].info) for one in found.classes]
            )
            units = _UNITS / max(float(asked.max(initial=0.0)), float(moves.max(initial=0)), 1e-12)
            prices = np.rint(asked * units).astype(np.int64)
            costs = costs * np.maximum(np.rint(moves * units).astype(np.int64), 1)
        problem = msgspec.structs.replace(
            found.problem, prices=np.where(can_be_empty, prices, 0), move_costs=costs
        )
        return msgspec.structs.replace(found, problem=problem)

    def _price_of(self, name: str) -> float:
        row = self._snapshot.row_of(name)
        if row is None or self._prices is None:
            return 0.0
        return self._prices.of(self._snapshot.node(row).metadata.labels)

    def price_of_move(self, key: Hashable) -> float:
        """Return the price of moving a running pod."""
        record = self._records.get(key)
        if record is None or self._prices is None:
            return 0.0
        return self._prices.of_move(self._snapshot, record.info)

    def take_back(self, found: Facts | None) -> None:
        """Remove the pods from the nodes that ``settled`` gave them, before another placement."""
        packed = (pod for pods in (found.classes if found else ()) for pod in pods)
        for pod in (*packed, *self._pods):
            if pod.key not in self._held:
                self._snapshot.forget(pod.key)  # which nominates it again, if it was
                self._snapshot.remove_pod(pod.key)

    def has_others(self, name: str) -> bool:
        """Return whether a node has pods other than DaemonSet and static pods."""
        row = self._snapshot.row_of(name)
        return row is not None and any(
            record.info.owner is None or record.info.owner[1] not in STAYING_OWNERS
            for record in self._snapshot.pods_on(row)
        )

    def _prove(
        self, targets: Sequence[tuple[Seeker, str]], records: Mapping[Hashable, PodRecord | None]
    ) -> tuple[dict[Hashable, str], list[Move]]:
        """Let the scheduler's core place pods on their nodes; return nodes by pod, and the moves.

        A refused pod is tried again after the others.

        Raises:
            MoverRefused: a running pod does not fit its new node.
        """
        snapshot = self._snapshot
        waiting: list[tuple[Seeker, str]] = []
        for pod, node in targets:
            record = records.get(pod.key)
            if pod.runs and record is not None and pod.node_name == node:
                put_on(snapshot, record, node)
            else:
                waiting.append((pod, node))
        waiting.sort(key=lambda one: not one[0].runs)
        placed: dict[Hashable, str] = {}
        moves: list[Move] = []
        tried = -1
        while waiting and len(waiting) != tried:
            tried, again = len(waiting), []
            for number, (pod, node) in enumerate(waiting):
                if not number % 64:
                    self._go_on()
                if not self._takes(pod, node):
                    again.append((pod, node))
                elif pod.runs:
                    moves.append(Move(pod.key, pod.node_name, node))
                else:
                    placed[pod.key] = node
            waiting = again
        if any(pod.runs for pod, _ in waiting):
            raise MoverRefused
        return placed, moves

    def _takes(self, pod: Seeker, node: str) -> bool:
        """Put a pod on a node if the scheduler's core accepts it there; return whether it did."""
        snapshot = self._snapshot
        options = Options(preempt=False, tie_break="first")
        place = PodToPlace(pod.key, pod.info, node)
        decision = schedule_pod(snapshot, pod.framework, place, options)
        if decision.node_name != node:
            return False
        snapshot.assume(pod.key, pod.info, decision.row)
        return True


def assigned(found: Facts, x: Int64) -> list[tuple[Seeker, str]]:
    """Return (pod, node) of each pod in a placement; a pod keeps its node if possible."""
    targets: list[tuple[Seeker, str]] = []
    for pods, counts in zip(found.classes, x, strict=True):
        left = {found.nodes[at]: int(counts[at]) for at in np.flatnonzero(counts).tolist()}
        others = []
        for pod in sorted(pods, key=lambda one: not one.runs):
            if left.get(pod.node_name, 0):
                left[pod.node_name] -= 1
                targets.append((pod, pod.node_name))
            else:
                others.append(pod)
        slots = [name for name, many in left.items() for _ in range(many)]
        targets += list(zip(others, slots, strict=False))
    return targets


def _hopeless(found: Facts) -> set[Hashable]:
    """Return the keys of pods that fit no node, whatever other pods are there."""
    takes = found.problem.most_of_each().sum(1)
    return {
        pod.key
        for pods, many in zip(found.classes, takes.tolist(), strict=True)
        if not many
        for pod in pods
    }


def _emptied(found: Facts, x: Int64) -> list[str]:
    """Return the nodes that had pods of the problem before, and have none in the placement."""
    gone = found.problem.stays.any(0) & ~x.any(0)
    return [found.nodes[at] for at in np.flatnonzero(gone).tolist()]
