"""How many more pods like one fit, and why the next one does not, by reason and number of nodes.

If pods of the class affect only their own node, they are counted at once (``room``). Otherwise the
pod is placed again and again in the simulation's world until it fits nowhere, with affinity,
spreading and every other rule of the profile.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from clusterstate.objects.values.errors import (
    INVALID,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
    Invalid,
    StatusError,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.reference.decision import ERROR, Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo
from scheduling.simulation.claims import another, settle
from scheduling.simulation.document import (
    API_VERSION,
    GROUP,
    Given,
    Simulation,
    below,
    read_world,
    type_error,
    without,
)
from scheduling.simulation.gangs import gangs_that_fit
from scheduling.simulation.preparing import admitted, with_claims
from scheduling.simulation.room import room_for
from scheduling.simulation.running import frameworks_of, world_of
from scheduling.simulation.world import Base

KIND: Final = "Headroom"
DEFAULT_LIMIT: Final = 10_000
LARGEST_LIMIT: Final = 1_000_000
MOST_OF_A_GANG: Final = 10_000
_MOST_GANGS: Final = 1_000
"""The most gangs that are counted if no limit is given."""
_KEY: Final = "headroom"
_FIRST_BATCH: Final = 16
_LARGEST_BATCH: Final = 256
"""The most pods decided between two checks of the deadline."""


class Headroom(msgspec.Struct, frozen=True):
    """A question: the world and the scheduler's options, the pod, and when to stop counting.

    ``limit`` ``None``: ``DEFAULT_LIMIT`` if pods must be placed one by one, else no limit.
    ``gang``: count gangs of such pods.
    """

    simulation: Simulation
    pod: Given
    limit: int | None
    gang: "Gang | None" = None


class Gang(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A number of pods that must be placed together, in one domain of ``topology_key``, if any."""

    min_count: Annotated[int, msgspec.Meta(ge=1, le=MOST_OF_A_GANG)]
    topology_key: str = ""


def read_headroom(document: object) -> Headroom:
    """Return a parsed ``Headroom`` document: ``spec.pod``, ``gang``, ``limit`` and a world.

    A Pod may be given instead of a document. The world is stated as in a ``Simulation``: base,
    objects, delete, configuration, percentageOfNodesToScore, admission.

    Raises:
        Invalid: with every wrong field.
        BadRequest: the document is nested too deeply.
    """
    if isinstance(document, dict) and document.get("kind") == "Pod":
        document = {"spec": {"pod": document}}
    if not isinstance(document, dict):
        raise Invalid(KIND, "", [FieldError(TYPE_INVALID, "", None, "must be an object")], GROUP)
    errors: list[FieldError] = []
    spec = document.get("spec")
    pod: Any = None
    limit: Any = None
    gang: Any = None
    world = {key: value for key, value in document.items() if key not in ("kind", "spec")}
    if document.get("kind") not in (None, "", KIND):
        errors.append(FieldError(INVALID, "kind", document["kind"], f'must be "{KIND}"'))
    if isinstance(spec, dict):
        pod, limit, gang = spec.get("pod"), spec.get("limit"), spec.get("gang")
        inner = without(
            spec, ("pod", "limit", "gang"), ("pods", "mode", "seed", "tieBreak", "explain"), errors
        )
        world["spec"] = {**inner, "tieBreak": "first", "explain": "none"}
    elif spec is not None:
        errors.append(FieldError(TYPE_INVALID, "spec", spec, "must be an object"))
    if pod is None:
        errors.append(FieldError(REQUIRED, "spec.pod"))
    elif not isinstance(pod, dict):
        errors.append(FieldError(TYPE_INVALID, "spec.pod", pod, "must be an object"))
    else:
        problem = type_error("Pod", pod)
        if problem is not None:
            errors.append(below("spec.pod", problem))
    if limit is not None and not _is_limit(limit):
        detail = f"must be an integer between 1 and {LARGEST_LIMIT}"
        errors.append(FieldError(INVALID, "spec.limit", limit, detail))
    try:
        shape = None if gang is None else msgspec.convert(gang, Gang)
    except msgspec.ValidationError as error:
        errors.append(FieldError(INVALID, "spec.gang", gang, str(error)))
        shape = None
    found = read_world(KIND, world, errors)
    return Headroom(found, Given(pod, "spec.pod"), limit, shape)


def _is_limit(value: object) -> bool:
    return isinstance(value, int) and value is not True and 1 <= value <= LARGEST_LIMIT


def run_headroom(question: Headroom, base: Base) -> Manifest:
    """Return the answer: ``status`` with ``fits``, ``nodes`` (how many on each) and ``blockers``.

    ``limited``: counting stopped at the limit, and ``blockers`` is empty.

    Raises:
        Invalid: the pod or the world is wrong, with every wrong field.
        Forbidden, NotFound, Conflict, BadRequest: the pod is not admitted.
    """
    simulation = question.simulation
    world = world_of(simulation, base)
    warnings: list[str] = list(simulation.warnings)
    manifest = _template(question.pod.manifest)
    try:
        manifest = with_claims(admitted(manifest, world, warnings), world)
        info = world.intern(manifest)
    except Invalid as invalid:
        errors = [below(question.pod.path, error) for error in invalid.errors]
        raise Invalid(KIND, "", errors, GROUP) from invalid
    except QuantityError as error:
        wrong = FieldError(INVALID, f"{question.pod.path}.spec", None, str(error))
        raise Invalid(KIND, "", [wrong], GROUP) from error
    framework = frameworks_of(simulation, base).get(info.scheduler_name)
    if framework is None:
        path = f"{question.pod.path}.spec.schedulerName"
        detail = "no profile has this name"
        raise Invalid(KIND, "", [FieldError(INVALID, path, info.scheduler_name, detail)], GROUP)
    gang, seed = question.gang, simulation.seed
    try:
        if gang is None:
            status = headroom_of(
                world.snapshot, framework, info, limit=question.limit, seed=seed, go_on=base.go_on
            )
        else:
            status = gangs_that_fit(
                world.snapshot, framework, info, size=gang.min_count,
                topology_key=gang.topology_key, limit=question.limit or _MOST_GANGS, seed=seed,
                go_on=base.go_on,
            )  # fmt: skip
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    if warnings:
        status["warnings"] = warnings
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def headroom_of(
    snapshot: Snapshot,
    framework: Framework,
    info: PodInfo,
    *,
    limit: int | None = None,
    seed: int = 0,
    go_on: Callable[[], None] = lambda: None,
) -> Manifest:
    """Return ``fits``, ``limited``, ``nodes``, ``message`` and ``blockers`` of a class of pods.

    The counted pods may stay in the snapshot, so it must be a private copy.

    Raises:
        PluginFailed: a plugin failed.
        StatusError: a plugin failed for the first pod that did not fit.
    """
    gate = framework.pre_enqueue(info)
    if not gate.ok:
        blockers = [_blocker(gate.plugin, gate.message, 0)]
        return {
            "fits": 0, "limited": False, "nodes": {}, "message": gate.message, "blockers": blockers,
        }  # fmt: skip
    room = room_for(snapshot, framework, PodToPlace(_KEY, info))
    if room is not None and (limit is None or room.total < limit):
        if room.next.outcome == ERROR:
            raise StatusError(room.next.message)
        used = np.flatnonzero(room.counts)
        names = [snapshot.node_name(row) for row in room.rows[used].tolist()]
        return {
            "fits": room.total,
            "limited": False,
            "nodes": dict(sorted(zip(names, room.counts[used].tolist(), strict=True))),
            "message": room.next.message,
            "blockers": _blockers(room.next),
        }
    return _placed(snapshot, framework, info, limit or DEFAULT_LIMIT, seed, go_on)


def _placed(
    snapshot: Snapshot,
    framework: Framework,
    info: PodInfo,
    limit: int,
    seed: int,
    go_on: Callable[[], None],
) -> Manifest:
    """Return the result of ``headroom_of`` by placing one pod after the other."""
    decider = Decider(snapshot, framework)
    options = Options(seed=seed, tie_break="first", preempt=False)
    counts: dict[str, int] = {}
    fits, start = 0, 0
    batch = _FIRST_BATCH
    while fits < limit:
        go_on()
        deciding.warm_for(fits, snapshot.node_count)
        pods = [
            PodToPlace((_KEY, n), another(snapshot, info, f"{n}"))
            for n in range(fits, min(fits + batch, limit))
        ]
        decisions = schedule_batch(
            snapshot, framework, pods, options, start=start, draw=fits, decider=decider,
            stop=lambda batch_: settle(snapshot, batch_),
        )  # fmt: skip
        placed = [decision for decision in decisions if decision.scheduled]
        for decision in placed:
            counts[decision.node_name] = counts.get(decision.node_name, 0) + 1
        fits += len(placed)
        if len(placed) < len(pods):
            # If one pod does not fit, no pod after it does.
            start = decisions[len(placed)].next_start
            break
        start = decisions.next_start
        batch = min(2 * batch, _LARGEST_BATCH)
    status: Manifest = {"fits": fits, "limited": fits >= limit}
    status["nodes"] = dict(sorted(counts.items()))
    if status["limited"]:
        return {**status, "message": "", "blockers": []}
    decision = schedule_pod(
        snapshot,
        framework,
        PodToPlace((_KEY, fits), another(snapshot, info, "next")),
        options,
        draw=fits,
        start=start,
    )
    if decision.outcome == ERROR:
        raise StatusError(decision.message)
    return {**status, "message": decision.message, "blockers": _blockers(decision)}


def _template(pod: Manifest) -> Manifest:
    """Return the pod as a new one: with a name, on no node, without a status."""
    meta = {**(pod.get("metadata") or {})}
    meta["namespace"] = meta.get("namespace") or "default"
    meta["name"] = meta.get("name") or f"{meta.get('generateName', 'pod-')}x"
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    members = {key: value for key, value in pod.items() if key != "status"}
    return {**members, "metadata": meta, "spec": spec}


def _blockers(decision: Decision) -> list[Manifest]:
    """Return the reasons why the next pod does not fit, each with its number of nodes."""
    counts: dict[tuple[str, str], int] = {}
    rejections = [(one.status, one.nodes) for one in decision.rejections]
    if not decision.absent.ok:
        rejections.append((decision.absent, decision.node_count - decision.evaluated))
    for status, nodes in rejections:
        for reason in status.reasons:
            key = (status.plugin, reason)
            counts[key] = counts.get(key, 0) + nodes
    if not counts:
        return [_blocker("", decision.message, 0)]
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [_blocker(plugin, reason, nodes) for (plugin, reason), nodes in ordered if nodes]


def _blocker(plugin: str, reason: str, nodes: int) -> Manifest:
    return {"reason": reason, "plugin": plugin, "nodes": nodes}
