"""Placing the pods of a simulation, and saying of each what became of it and why."""

from collections.abc import Iterable, Mapping

import msgspec

from clusterstate.admission import CREATE, admit
from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.errors import DUPLICATE, INVALID, FieldError, Invalid, StatusError
from clusterstate.objects.meta import Manifest
from clusterstate.objects.quantity import QuantityError
from scheduling.engine import class_cache
from scheduling.engine.class_cache import Cache
from scheduling.engine.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.decision import ERROR, SCHEDULED, Decision
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.types import Candidate, PodInfo, PodRecord
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import causes
from scheduling.simulation.document import (
    API_VERSION,
    FULL,
    GROUP,
    KIND,
    NONE,
    Given,
    Simulation,
    type_error,
    unknown_fields,
)
from scheduling.simulation.world import FINISHED, NOBODY, Base, World, name_of


def run(simulation: Simulation, base: Base) -> Manifest:
    """Return the answer: the document's name and ``status`` with one result per pod.

    Raises:
        Invalid: objects of the document are wrong, with every wrong field.
        TooLarge: it takes longer than the base allows.
    """
    world = world_of(simulation, base)
    frameworks = frameworks_of(simulation, base)
    runner = _Run(simulation, world, frameworks)
    results = []
    for number, pod in enumerate(simulation.pods):
        base.go_on()
        results.append(runner.place(number, pod))
    status: Manifest = {"results": results}
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
    """Return the profiles of the document's configuration, else of the base's, ready to run.

    Raises:
        Invalid: a profile names a plugin that does not exist, or where it cannot act.
    """
    configuration = simulation.configuration or base.configuration()
    percentage = simulation.percentage_of_nodes_to_score
    key = (id(configuration), percentage)
    known = _built.get(key)
    if known is not None:
        return known[1]
    found = {}
    for profile in configuration.profiles:
        used = profile
        if percentage is not None:
            used = msgspec.structs.replace(profile, percentage_of_nodes_to_score=percentage)
        try:
            found[profile.scheduler_name] = build_framework(used)
        except ConfigurationError as error:
            errors = [FieldError(INVALID, "spec.configuration.profiles", None, str(error))]
            raise Invalid(KIND, "", errors, GROUP) from error
    if len(_built) >= _KEPT:
        _built.clear()
    _built[key] = configuration, found
    return found


# Plugins keep nothing between pods but what they note on a pod's class, so they serve many runs.
# The configuration is kept with them, so that its id is not used again.
_built: dict[
    tuple[int, int | None], tuple[KubeSchedulerConfiguration, Mapping[str, Framework]]
] = {}
_KEPT = 32


_WORTH_A_CACHE = 16


class _Run:
    """Placing the pods of one simulation, one after the other."""

    def __init__(
        self, simulation: Simulation, world: World, frameworks: Mapping[str, Framework]
    ) -> None:
        self._simulation = simulation
        self._world = world
        self._frameworks = frameworks
        self._starts: dict[str, int] = {}
        self._caches: dict[str, Cache] = {}
        # A cache serves only where no table is asked for, and pays for itself after some pods.
        self._repeats = simulation.explain == NONE and len(simulation.pods) >= _WORTH_A_CACHE
        self._options = Options(
            seed=simulation.seed,
            tie_break=simulation.tie_break,
            full=simulation.explain != NONE,
            candidates=True,
        )

    def place(self, number: int, given: Given) -> Manifest:
        """Return the result for one pod; a later one sees it when the mode is sequential."""
        manifest = given.manifest
        problem = type_error("Pod", manifest)
        if problem is not None:
            return self._result(_display(manifest, number), "invalid", errors=[problem])
        manifest = _named(manifest, number)
        title = _display(manifest, number)
        warnings = [f"{field}: unknown field" for field in unknown_fields("Pod", manifest)]
        try:
            manifest = admitted(manifest, self._world, warnings)
            info = self._world.intern(manifest)
        except Invalid as invalid:
            return self._result(title, "invalid", invalid.message, errors=invalid.errors)
        except StatusError as error:
            refusal = FieldError(error.reason, "", None, error.message)
            return self._result(title, "invalid", error.message, errors=[refusal])
        except QuantityError as error:
            refusal = FieldError(INVALID, "spec", None, str(error))
            return self._result(title, "invalid", str(error), errors=[refusal])
        result = self._decided(number, manifest, info, title)
        if warnings:
            result["warnings"] = warnings
        return result

    def _decided(self, number: int, manifest: Manifest, info: PodInfo, title: str) -> Manifest:
        world = self._world
        namespace, name = name_of(manifest)
        if world.key(namespace, name) is not None:
            taken = FieldError(DUPLICATE, "metadata.name", name)
            text = f'pods "{name}" already exists'
            return self._result(title, "invalid", text, errors=[taken])
        node_name = manifest["spec"].get("nodeName") or ""
        if node_name:
            if self._simulation.sequential:
                world.place(manifest, title, info)
            text = "spec.nodeName is set: the scheduler leaves the pod alone"
            return self._result(title, "skipped", text, node_name=node_name)
        if (manifest.get("status") or {}).get("phase") in FINISHED:
            return self._result(title, "skipped", "the pod is finished")
        framework = self._frameworks.get(info.scheduler_name)
        if framework is None:
            text = f'no profile is named "{info.scheduler_name}": the pod is left alone'
            return self._result(title, "skipped", text)
        try:
            gate = framework.pre_enqueue(info)
        except PluginFailed as failure:
            return self._result(title, "error", failure.status.message)
        if gate.code.rejects:
            return self._result(title, "gated", gate.message)
        if not gate.ok:
            return self._result(title, "error", gate.message)
        nominated = (manifest.get("status") or {}).get("nominatedNodeName") or ""
        pod = PodToPlace(title, info, nominated)
        decision = self._decide(number, pod, framework)
        if self._simulation.sequential and decision.scheduled:
            world.note_placed(namespace, name, title)
        result = self._explained(decision, title)
        if decision.full is not None and self._simulation.explain == FULL:
            result = causes.with_runtime_class(result, manifest, world.snapshot, info)
        return result

    def _decide(self, number: int, pod: PodToPlace, framework: Framework) -> Decision:
        snapshot, options = self._world.snapshot, self._options
        if not self._simulation.sequential:
            return schedule_pod(snapshot, framework, pod, options, draw=number)
        name = framework.scheduler_name
        cache = self._caches.get(name)
        if cache is None and self._repeats:
            class_cache.warm_for(len(self._simulation.pods), snapshot.node_count)
            cache = self._caches[name] = Cache(snapshot, framework)
        (decision,) = schedule_batch(
            snapshot,
            framework,
            [pod],
            options,
            start=self._starts.get(name, 0),
            draw=number,
            cache=cache,
        )
        self._starts[name] = decision.next_start
        return decision

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
        if self._simulation.explain != NONE:
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
        if decision.outcome not in (SCHEDULED, ERROR):
            result["preemption"] = self._preemption(decision)
        return result

    def _preemption(self, decision: Decision) -> Manifest:
        nomination = decision.nomination
        if nomination is None:
            return {"nominatedNode": "", "victims": [], "candidates": {}}
        candidates = nomination.candidates
        keys = {v.key for c in candidates for v in c.victims} | {v.key for v in nomination.victims}
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
            "victims": listed(nomination.victims),
            "candidates": {c.node_name: described(c) for c in candidates},
        }


def admitted(manifest: Manifest, world: World, warnings: list[str]) -> Manifest:
    """Return a pod to place as it would be stored; without admission it gets defaults only.

    Raises:
        Invalid: with every wrong field.
        Forbidden, NotFound, Conflict, BadRequest: from the admission plugin that objects.
    """
    if world.admission:
        found = admit("Pod", CREATE, manifest, None, None, world, NOBODY)
        warnings += found.warnings
        return found.manifest
    taken: Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
    set_defaults("Pod", taken)
    return taken


def explain_table(decision: Decision, *, scores: bool) -> Manifest:
    """Return what a decision with its full table says of every node; ``scores``: by plugin too.

    Scores are there when at least two nodes are feasible; a single one wins unseen.
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
    known = error.type.startswith("FieldValue")
    text = error.message() if known else error.detail
    found: Manifest = {"field": error.field, "type": error.type, "detail": error.detail}
    if error.bad_value is not None:
        found["badValue"] = error.bad_value
    return found | {"message": f"{error.field}: {text}" if error.field else text}


def _named(manifest: Manifest, number: int) -> Manifest:
    """Return the pod with namespace and, from ``generateName``, a name, as the API gives them."""
    meta = dict(manifest.get("metadata") or {})
    meta["namespace"] = meta.get("namespace") or "default"
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = f"{meta['generateName']}{number}"
    return {**manifest, "metadata": meta}


def _display(manifest: Manifest, number: int) -> str:
    meta = manifest.get("metadata")
    if not isinstance(meta, dict):
        meta = {}
    return f"{meta.get('namespace') or 'default'}/{meta.get('name') or f'pod-{number}'}"


def refused(error: StatusError) -> Manifest:
    """Return the answer to a document that could not be run: no results, and every reason."""
    status: Manifest = {
        "results": [],
        "reason": error.reason,
        "message": error.message,
        "errors": [],
    }
    if isinstance(error, Invalid):
        status["errors"] = [described_error(wrong) for wrong in error.errors]
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}
