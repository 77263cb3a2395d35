"""Places the pods of a simulation, and reports each pod's node or the reason for none."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from clusterstate.objects.values.errors import DUPLICATE, INVALID, FieldError, Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import GroupKey
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.fast.run import Run
from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.reference.decision import ERROR, SCHEDULED, Decision, Decisions
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.types import Candidate, PodRecord, group_key
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import causes, claims
from scheduling.simulation.document import API_VERSION, FULL, GROUP, KIND, NONE, Simulation
from scheduling.simulation.leaving import BudgetCharges
from scheduling.simulation.preparing import Preparer, Ready, Set, UnplacedStatus
from scheduling.simulation.world import Base, World


def run(simulation: Simulation, base: Base) -> Manifest:
    """Return the answer: the document's name and ``status`` with one result per pod.

    Raises:
        Invalid: objects of the document are wrong, with every wrong field.
        TooLarge: the run takes longer than the base allows.
    """
    world = world_of(simulation, base)
    frameworks = frameworks_of(simulation, base)
    runner = _Run(simulation, world, frameworks)
    status: Manifest = {"results": runner.run()}
    if simulation.performs_preemption:
        status["evictions"] = runner.evictions
    warnings = [*simulation.warnings, *world.warnings]
    if warnings:
        status["warnings"] = warnings
    answer: Manifest = {"apiVersion": API_VERSION, "kind": KIND}
    if simulation.metadata:
        answer["metadata"] = simulation.metadata
    answer["status"] = status
    return answer


def world_of(simulation: Simulation, base: Base) -> World:
    """Return the base with the document's changes.

    Raises:
        Invalid: with every wrong field of the objects.
    """
    world = World(base, admission=simulation.admission)
    world.apply(simulation.objects, simulation.delete)
    if world.errors:
        name = simulation.metadata.get("name")
        raise Invalid(KIND, name if isinstance(name, str) else "", world.errors, GROUP)
    return world


def frameworks_of(simulation: Simulation, base: Base) -> Mapping[str, Framework]:
    """Return the profiles, by name, of the document's configuration, or else of the base's.

    Raises:
        Invalid: a profile names a plugin that does not exist or lacks the extension point.
    """
    configuration = simulation.configuration or base.configuration()
    percentage = simulation.percentage_of_nodes_to_score
    key = (id(configuration), percentage)
    cached = _built.get(key)
    if cached is not None:
        return cached[1]
    try:
        found = build_frameworks(configuration, percentage)
    except ConfigurationError as error:
        errors = [FieldError(INVALID, "spec.configuration.profiles", None, str(error))]
        raise Invalid(KIND, "", errors, GROUP) from error
    if len(_built) >= _KEPT:
        _built.clear()
    _built[key] = configuration, found
    return found


def build_frameworks(
    configuration: KubeSchedulerConfiguration, percentage: int | None = None
) -> dict[str, Framework]:
    """Return the profiles with their plugins by scheduler name.

    ``percentage``: replaces each profile's ``percentageOfNodesToScore``.

    Raises:
        ConfigurationError: a profile's plugin does not exist or lacks the extension point.
    """
    found = {}
    for profile in configuration.profiles:
        used = profile
        if percentage is not None:
            used = msgspec.structs.replace(profile, percentage_of_nodes_to_score=percentage)
        found[profile.scheduler_name] = build_framework(used)
    return found


# Plugins keep nothing between pods but what they note on a pod's class, so they serve many runs.
# The configuration is kept with them, so that its id is not used again.
_built: dict[
    tuple[int, int | None], tuple[KubeSchedulerConfiguration, Mapping[str, Framework]]
] = {}
_KEPT = 32


_WORTH_A_CACHE = 16
_AT_ONCE = 1024
"""The number of pods decided between two checks of the deadline."""


class _Run:
    """Places the pods of one simulation, one after the other.

    Successive pods that can be decided together are collected in ``_waiting``.
    """

    def __init__(
        self, simulation: Simulation, world: World, frameworks: Mapping[str, Framework]
    ) -> None:
        self._simulation = simulation
        self._world = world
        self._starts: dict[str, int] = {}
        self._deciders: dict[str, Decider] = {}
        self._explains = simulation.explain != NONE
        # A decider is used only without tables, and is worth its cost after some pods.
        self._repeats = not self._explains and len(simulation.pods) >= _WORTH_A_CACHE
        self._budgets = BudgetCharges(world.snapshot)
        self._options = Options(
            seed=simulation.seed,
            tie_break=simulation.tie_break,
            full=self._explains,
            candidates=True,
        )
        remembers = simulation.explain != FULL
        self._preparer = Preparer(world, frameworks, remembers=remembers)
        self._places_groups = any(one.schedules_groups for one in frameworks.values())
        self._results: list[Manifest] = []
        self._place_of: dict[str, int] = {}
        self._waiting: list[tuple[int, Ready]] = []
        self._group: GroupKey | None = None  # that of the collected pods
        self._names: set[tuple[str, str]] = set()
        self.evictions: list[Manifest] = []

    def run(self) -> list[Manifest]:
        """Return one result per pod, in the document's order."""
        pods = [entry.manifest for entry in self._simulation.pods]
        self._results = [{} for _ in pods]
        order = self._in_turn(pods)
        for place, number in enumerate(order):
            if not place % _AT_ONCE:
                self._world.base.go_on()
                self._world.expect(pods[one] for one in order[place : place + _AT_ONCE])
            self._take(number, pods[number])
        self._decide_waiting()
        return self._results

    def _in_turn(self, pods: Sequence[Manifest]) -> Sequence[int]:
        """Return the pods' numbers in order; those of a group follow the group's first pod."""
        groups = [_named_group(manifest) for manifest in pods]
        if not self._places_groups or not any(groups):
            return range(len(pods))
        if not self._simulation.sequential:
            text = "spec.mode: each pod is placed by itself, also those of a PodGroup"
            self._world.warnings.append(text)
            return range(len(pods))
        first: dict[object, int] = {}
        turns = [number if key is None else first.setdefault(key, number)
                 for number, key in enumerate(groups)]  # fmt: skip
        return sorted(range(len(pods)), key=lambda number: (turns[number], number))

    def _take(self, number: int, manifest: Manifest) -> None:
        """Add a pod to the ones to decide, or note its result."""
        pod = self._preparer.prepare(manifest, number)
        if isinstance(pod, Ready):
            place: tuple[str, str] | None = (pod.namespace, pod.name)
        else:
            if self._group is None or _named_group(manifest) != self._group:
                self._decide_waiting()
            place = pod.place if isinstance(pod, UnplacedStatus) else (pod.namespace, pod.name)
        if place is not None and (
            place in self._names
            # A collected pod may replace the pod that has this name now.
            or (self._simulation.performs_preemption and self._world.key(*place) is not None)
        ):
            self._decide_waiting()
        if place is not None and self._world.key(*place) is not None:
            self._decide_waiting()
            error = FieldError(DUPLICATE, "metadata.name", place[1])
            text = f'pods "{place[1]}" already exists'
            self._note(number, self._result(pod.title, "invalid", text, errors=[error]), pod)
        elif isinstance(pod, UnplacedStatus):
            found = self._result(pod.title, pod.status, pod.message, errors=pod.errors)
            self._note(number, found, pod)
        elif isinstance(pod, Set):
            if self._simulation.sequential:
                self._world.place(pod.manifest, pod.title, pod.info)
            text = "spec.nodeName is set, so the scheduler ignores the pod"
            found = self._result(pod.title, "skipped", text, node_name=pod.node_name)
            self._note(number, found, pod)
        else:
            group = self._group_of(pod)
            if self._waiting and (
                group != self._group
                or self._waiting[-1][1].framework is not pod.framework
                or (group is None and self._ends_run(number))
            ):
                self._decide_waiting()
            self._group = group
            self._waiting.append((number, pod))
            self._names.add((pod.namespace, pod.name))

    def _group_of(self, pod: Ready) -> GroupKey | None:
        """Return the group with which a pod is decided; ``None`` if it is decided alone."""
        together = self._simulation.sequential and pod.framework.schedules_groups
        return group_key(pod.info.pod) if together else None

    def _ends_run(self, number: int) -> bool:
        """Return whether the collected pods are decided before this one."""
        return (
            self._explains
            or not self._simulation.sequential
            or self._waiting[-1][0] != number - 1
            or len(self._waiting) >= _AT_ONCE
        )

    def _note(self, number: int, result: Manifest, pod: Ready | Set | UnplacedStatus) -> None:
        if pod.warnings:
            result["warnings"] = list(pod.warnings)
        self._results[number] = result

    def _decide_waiting(self) -> None:
        """Decide the collected pods in order; in sequential mode they are placed in the world."""
        waiting, self._waiting = self._waiting, []
        group, self._group = self._group, None
        self._names.clear()
        if not waiting:
            return
        self._world.base.go_on()
        if group is not None:
            self._decide_group(group, waiting)
            return
        if not self._simulation.sequential:
            for number, ready in waiting:
                pod = PodToPlace(ready.title, ready.info, ready.nominated)
                snapshot, options = self._world.snapshot, self._options
                decision = schedule_pod(snapshot, ready.framework, pod, options, draw=number)
                self._note_decision(number, ready, decision)
            return
        while waiting:
            waiting = self._decide_together(waiting)

    def _decide_together(self, waiting: list[tuple[int, Ready]]) -> list[tuple[int, Ready]]:
        """Decide pods of one profile; return those after the first one that preempts."""
        performs = self._simulation.performs_preemption
        pods = [PodToPlace(ready.title, ready.info, ready.nominated) for _, ready in waiting]
        first, framework = waiting[0][0], waiting[0][1].framework
        decisions = self._schedule(framework, pods, first, _makes_room if performs else None)
        at = 0
        for part in decisions.parts:
            if isinstance(part, Run):
                self._note_run(waiting[at : at + len(part)], part)
            else:
                for (number, ready), decision in zip(waiting[at:], part, strict=False):
                    if performs and _makes_room(decision):
                        self._make_room(number, ready, decision)
                    else:
                        self._note_decision(number, ready, decision)
            at += len(part)
        return waiting[at:]

    def _schedule(
        self,
        framework: Framework,
        pods: list[PodToPlace],
        first: int,
        stop: Callable[[Decision], bool] | None,
    ) -> Decisions:
        name, snapshot = framework.scheduler_name, self._world.snapshot
        decisions = schedule_batch(
            snapshot,
            framework,
            pods,
            self._options,
            start=self._starts.get(name, 0),
            draw=first,
            decider=self._decider(framework),
            stop=lambda batch: claims.settle(snapshot, batch) or (stop is not None and stop(batch)),
        )
        self._starts[name] = decisions.next_start
        return decisions

    def _decider(self, framework: Framework) -> Decider | None:
        name, snapshot = framework.scheduler_name, self._world.snapshot
        decider = self._deciders.get(name)
        if decider is None and self._repeats:
            deciding.warm_for(len(self._simulation.pods), snapshot.node_count)
            decider = self._deciders[name] = Decider(snapshot, framework)
        return decider

    def _decide_group(self, key: GroupKey, waiting: list[tuple[int, Ready]]) -> None:
        """Decide the pods of a group together; if they preempt, again without the victims."""
        waiting = sorted(waiting, key=lambda one: -one[1].info.priority)
        nominated = [ready.nominated for _, ready in waiting]
        found = self._schedule_group(key, waiting, nominated)
        described: dict[int, Manifest] = {}
        if self._simulation.performs_preemption and any(map(_makes_room, found)):
            for (number, ready), decision in zip(waiting, found, strict=True):
                if _makes_room(decision):
                    described[number] = self._let_leave(ready, decision)
            nominated = [one.nomination.node_name if one.nomination else "" for one in found]
            found = self._schedule_group(key, waiting, nominated)
        for (number, ready), decision in zip(waiting, found, strict=True):
            claims.settle(self._world.snapshot, decision)
            self._note_decision(number, ready, decision)
            if number in described:
                self._results[number]["preemption"] = described[number]

    def _schedule_group(
        self, key: GroupKey, waiting: Sequence[tuple[int, Ready]], nominated: Sequence[str]
    ) -> list[Decision]:
        framework, (first, _) = waiting[0][1].framework, waiting[0]
        pods = [
            PodToPlace(ready.title, ready.info, node)
            for (_, ready), node in zip(waiting, nominated, strict=True)
        ]
        return schedule_group(
            self._world.snapshot, framework, key, pods, self._options,
            start=self._starts.get(framework.scheduler_name, 0), draw=first,
            decider=self._decider(framework),
        ).decisions  # fmt: skip

    def _make_room(self, number: int, ready: Ready, decision: Decision) -> None:
        """Remove the victims and decide the pod again, as the live scheduler does later."""
        described = self._let_leave(ready, decision)
        pod = PodToPlace(ready.title, ready.info, described["nominatedNode"])
        (again,) = self._schedule(ready.framework, [pod], number, None)
        self._note_decision(number, ready, again)
        self._results[number]["preemption"] = described

    def _let_leave(self, ready: Ready, decision: Decision) -> Manifest:
        """Remove the victims of a decision; return the preemption for the result."""
        nomination = decision.nomination
        assert nomination is not None
        described = self._preemption(decision)
        for victim, title in zip(decision.victims, described["victims"], strict=True):
            self._budgets.leave(victim, title.rpartition("/")[2])
            self._world.note_left(title)
            self.evictions.append(
                {"pod": title, "nodeName": nomination.node_name, "by": ready.title}
            )
            if (placed := self._place_of.pop(title, None)) is not None:
                self._results[placed]["preemptedBy"] = ready.title
        return described

    def _note_run(self, waiting: list[tuple[int, Ready]], run: Run) -> None:
        """Note the results of pods that a compiled loop decided: all of them are placed."""
        names, evaluated = run.node_names(), run.evaluated.tolist()
        for (number, ready), node_name, figures, nodes in zip(
            waiting, names, run.figures.tolist(), evaluated, strict=True
        ):
            title = ready.title
            self._world.note_placed(ready.namespace, ready.name, title)
            self._place_of[title] = number
            result = {
                "pod": title,
                "status": SCHEDULED,
                "nodeName": node_name,
                "message": "",
                "errors": [],
                "total": figures[1],
                "nodes": {
                    "known": run.node_count,
                    "evaluated": nodes,
                    "feasible": figures[5],
                    "best": figures[2],
                },
            }
            if ready.warnings:
                result["warnings"] = list(ready.warnings)
            self._results[number] = result

    def _note_decision(self, number: int, ready: Ready, decision: Decision) -> None:
        if self._simulation.sequential and decision.scheduled:
            self._world.note_placed(ready.namespace, ready.name, ready.title)
            self._place_of[ready.title] = number
        result = self._explained(decision, ready.title)
        if ready.manifest is not None and self._simulation.explain == FULL:
            result = causes.with_runtime_class(
                result, ready.manifest, self._world.snapshot, ready.info
            )
        self._note(number, result, ready)

    def _result(
        self,
        title: str,
        status: str,
        message: str = "",
        *,
        node_name: str = "",
        errors: Iterable[FieldError] = (),
    ) -> Manifest:
        described = [described_error(error) for error in errors]
        if not message and described:
            message = described[0]["message"]
        result: Manifest = {"pod": title, "status": status, "nodeName": node_name}
        if self._explains:
            result |= {"feasible": [], "infeasible": {}}
            if self._simulation.explain == FULL:
                result["scores"] = {}
            result["best"] = []
        return result | {"message": message, "errors": described}

    def _explained(self, decision: Decision, title: str) -> Manifest:
        result = self._result(
            title, decision.outcome, decision.message, node_name=decision.node_name
        )
        if decision.scheduled:
            result["total"] = decision.total
        if decision.full is not None:
            result |= explain_table(decision, scores=self._simulation.explain == FULL)
        elif decision.outcome != ERROR:
            result["nodes"] = {
                "known": decision.node_count,
                "evaluated": decision.evaluated,
                "feasible": decision.feasible,
                "best": decision.ties,
            }
        if decision.outcome not in (SCHEDULED, ERROR):
            result["preemption"] = self._preemption(decision)
        return result

    def _preemption(self, decision: Decision) -> Manifest:
        nomination = decision.nomination
        if nomination is None:
            return {"nominatedNode": "", "victims": [], "candidates": {}}
        candidates = nomination.candidates
        keys = {v.key for c in candidates for v in c.victims} | {v.key for v in decision.victims}
        names = self._world.full_names(keys)

        def listed(victims: Iterable[PodRecord]) -> list[str]:
            return [names(victim.key) for victim in victims]

        def described(candidate: Candidate) -> Manifest:
            return {
                "victims": listed(candidate.victims),
                "numPDBViolations": candidate.pdb_violations,
            }

        return {
            "nominatedNode": nomination.node_name,
            "victims": listed(decision.victims),
            "candidates": {c.node_name: described(c) for c in candidates},
        }


def _named_group(manifest: Manifest) -> tuple[object, object] | None:
    """Return namespace and name of the pod's group as stated, unchecked; ``None`` without one."""
    parts = [manifest.get("metadata"), manifest.get("spec")]
    meta, spec = (part if isinstance(part, dict) else {} for part in parts)
    group = spec.get("schedulingGroup")
    name = group.get("podGroupName") if isinstance(group, dict) else None
    return (str(meta.get("namespace") or "default"), str(name)) if name else None


def _makes_room(decision: Decision) -> bool:
    """Return whether a decision preempts pods."""
    return bool(decision.victims)


def explain_table(decision: Decision, *, scores: bool) -> Manifest:
    """Return each node's result from a decision with its full table; ``scores``: by plugin, too.

    Scores exist if at least two nodes are feasible; a single one is not scored.
    """
    assert decision.full is not None
    nodes = decision.full.nodes
    feasible = sorted(name for name, verdict in nodes.items() if verdict.rejected is None)
    top = max((nodes[name].total for name in feasible), default=0)
    found: Manifest = {
        "feasible": feasible,
        "infeasible": {
            name: {
                "plugin": verdict.rejected.plugin,
                "code": verdict.rejected.code.wire,
                "reasons": list(verdict.rejected.reasons),
            }
            for name, verdict in nodes.items()
            if verdict.rejected is not None
        },
    }
    if scores:
        found["scores"] = {
            name: {
                "raw": dict(nodes[name].raw),
                "normalized": dict(nodes[name].normalized),
                "weighted": dict(nodes[name].weighted),
                "total": nodes[name].total,
            }
            for name in feasible
            if len(feasible) > 1
        }
    found["best"] = [name for name in feasible if nodes[name].total == top]
    return found


def described_error(error: FieldError) -> Manifest:
    """Return a field error as JSON: ``field``, ``type`` (Go's name), ``detail``, ``message``."""
    has_text = error.type.startswith("FieldValue")
    text = error.message() if has_text else error.detail
    found: Manifest = {"field": error.field, "type": error.type, "detail": error.detail}
    if error.bad_value is not None:
        found["badValue"] = error.bad_value
    return found | {"message": f"{error.field}: {text}" if error.field else text}


def refused(error: StatusError) -> Manifest:
    """Return the answer to an invalid document: no results, all errors."""
    status: Manifest = {
        "results": [],
        "reason": error.reason,
        "message": error.message,
        "errors": [],
    }
    if isinstance(error, Invalid):
        status["errors"] = [described_error(wrong) for wrong in error.errors]
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}
