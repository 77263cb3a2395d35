"""Laws of whole decisions, and the engine's against the plain scheduler's.

Every law is checked on worlds of chance; the plain scheduler says what is right.
"""

from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.compatibility import NEWEST
from scheduling.engine.reference.cycle import Options, schedule_batch, schedule_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.plugins.catalogue import build_framework
from tests import harness
from tests.conformance import area_preemption, area_schedule
from tests.conformance.cluster_cases import differences, read_cluster, read_pod, version_of
from tests.reference.node_resources import allocatable, requested
from tests.reference.scheduler import (
    default_rules,
    schedule,
)
from tests.strategies import Manifest, by_chance, clusters, pods, twisted

worlds = clusters(most_nodes=7, most_pods=8)
incoming = pods()


def _case(world: Manifest, pod: Manifest, **more: Any) -> Manifest:
    return {**world, "pod": pod, **more}


@by_chance
@given(worlds, incoming, st.data())
def test_the_engine_decides_as_the_plain_scheduler(
    world: Manifest, pod: Manifest, data: st.DataObject
) -> None:
    """Feasible and rejected nodes with reasons, scores by plugin, totals, the best, the message."""
    case = data.draw(twisted(_case(world, pod)))
    plain = area_schedule.run_reference(case)
    decided = harness.run_schedule_case(case)
    del plain["preFilterMsg"], decided["preFilterMsg"]
    assert differences(plain, decided) == []


@by_chance
@given(worlds, incoming)
def test_an_empty_term_matches_everything_unless_the_profile_says_otherwise(
    world: Manifest, pod: Manifest
) -> None:
    """C1: the engine's default against the plain rules' default."""
    profile = default_configuration().profile("default-scheduler")
    assert profile is not None
    world = {**world, "compatibility": NEWEST.text}
    decided = harness.decide(world, read_pod({"pod": pod}), framework=build_framework(profile))
    plain = schedule(read_pod({"pod": pod}), read_cluster(world))
    assert harness.decision_outcome(decided)["best"] == sorted(plain.best)


@by_chance
@given(worlds, incoming, st.integers(0, 2))
def test_the_engine_preempts_as_the_plain_scheduler(
    world: Manifest, pod: Manifest, more: int
) -> None:
    """Who may go on which node, how many budgets that violates, and which nodes are best."""
    pod = {**pod, "spec": {**pod["spec"], "priority": more * 10}}
    case = _case(world, pod, ev="full")
    plain, decided = area_preemption.run_reference(case), harness.run_preemption_case(case)
    # The engine takes one of the equals.
    chosen = decided.pop("chosenAnyOf")
    assert set(chosen) <= set(plain["chosenAnyOf"])
    assert bool(chosen) is bool(plain.pop("chosenAnyOf"))
    if plain["nodeStatuses"].keys() != {n["metadata"]["name"] for n in world["nodes"]}:
        return  # something is feasible: preemption is not asked
    plain["potentialNodes"].sort()
    decided["potentialNodes"].sort()
    assert differences(plain, decided) == []


@by_chance
@given(worlds, incoming, st.lists(pods("waiting"), min_size=1, max_size=2), st.data())
def test_nominated_pods_count_where_room_is_made_for_them(
    world: Manifest, pod: Manifest, waiting: list[Manifest], data: st.DataObject
) -> None:
    names = st.sampled_from([node["metadata"]["name"] for node in world["nodes"]])
    nominated = [
        {
            **manifest,
            "metadata": {**manifest["metadata"], "name": f"waiting-{n}", "uid": f"waiting-{n}"},
            "status": {"nominatedNodeName": data.draw(names)},
        }
        for n, manifest in enumerate(waiting)
    ]
    case = _case(world, pod, nominatedPods=nominated)
    plain, decided = area_schedule.run_reference(case), harness.run_schedule_case(case)
    assert plain["feasible"] == decided["feasible"]
    assert differences(plain["rejected"], decided["rejected"]) == []


class Step(NamedTuple):
    """A pod that was scheduled, the world that it found, and its node (empty: none)."""

    pod: Manifest
    world: Manifest
    node: str


def _settled(world: Manifest, waiting: list[Manifest]) -> tuple[Manifest, list[Step]]:
    """Schedule pods one after the other; return the world they end in, and the way there."""
    snapshot = harness.build_snapshot(world)
    numbered = [
        {**pod, "metadata": {**pod["metadata"], "name": f"new-{n}", "uid": f"new-{n}"}}
        for n, pod in enumerate(waiting)
    ]
    to_place = [harness.to_place(snapshot, read_pod({"pod": pod})) for pod in numbered]
    options = Options(seed=7, preempt=False)
    framework = harness.kubernetes_framework(version_of(world))
    decisions = schedule_batch(snapshot, framework, to_place, options)
    steps = []
    for pod, decision in zip(numbered, decisions, strict=True):
        steps.append(Step(pod, world, decision.node_name))
        if decision.scheduled:
            placed = {**pod, "spec": {**pod["spec"], "nodeName": decision.node_name}}
            world = {**world, "pods": [*world["pods"], placed]}
    return world, steps


def _empty(world: Manifest) -> Manifest:
    return {**world, "pods": []}


@by_chance
@given(worlds, st.lists(pods(), min_size=1, max_size=6))
def test_no_node_is_ever_overcommitted(world: Manifest, waiting: list[Manifest]) -> None:
    after, _ = _settled(_empty(world), waiting)
    for node in read_cluster(after).nodes:
        has, used = allocatable(node), requested(node)
        assert len(node.pods) <= has.get("pods", 0)
        for name, amount in used.items():
            assert amount <= has.get(name, 0) or amount == 0, (node.name, name)


@by_chance
@given(worlds, st.lists(pods(), min_size=1, max_size=6))
def test_a_pod_is_placed_exactly_if_it_fits_and_where_it_is_best(
    world: Manifest, waiting: list[Manifest]
) -> None:
    """Safety and liveness: no hard rule is violated, and nobody is left over whom they let in."""
    _, steps = _settled(world, waiting)
    rules = default_rules(empty_term="none")
    for step in steps:
        plain = schedule(read_pod({"pod": step.pod}), read_cluster(step.world), rules)
        assert bool(step.node) is bool(plain.feasible)
        assert not step.node or step.node in plain.best


@by_chance
@given(worlds, pods("first"), pods("second"), st.data())
def test_required_anti_affinity_holds_in_both_directions(
    world: Manifest, first: Manifest, second: Manifest, data: st.DataObject
) -> None:
    """Whoever of two comes first, a term of either keeps them out of each other's domain."""
    key = data.draw(st.sampled_from(("topology.kubernetes.io/zone", "kubernetes.io/hostname")))
    term = {"topologyKey": key, "labelSelector": {}, "namespaceSelector": {}}
    hermit = {
        **first,
        "spec": {
            **first["spec"],
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            },
        },
    }
    for order in ([hermit, second], [second, hermit]):
        after, _ = _settled(_empty(world), order)
        placed = read_cluster(after)
        homes = [n for n in placed.nodes for _ in n.pods]
        if len(homes) == 2:
            values = [node.labels.get(key) for node in homes]
            assert values[0] is None or values[0] != values[1]


@by_chance
@given(worlds, incoming, st.integers(1, 100), st.integers(0, 6), st.integers(0, 9))
def test_sampling_never_changes_feasibility(
    world: Manifest, pod: Manifest, percentage: int, floor: int, start: int
) -> None:
    """Fewer nodes looked at: the chosen node is feasible all the same, and none is missed."""
    profile = msgspec.structs.replace(
        harness.kubernetes_profile(),
        percentage_of_nodes_to_score=percentage,
        min_feasible_nodes_to_find=floor,
    )
    snapshot = harness.build_snapshot(world)
    place = harness.to_place(snapshot, read_pod({"pod": pod}))
    options = Options(preempt=False, full=True)
    some = schedule_pod(snapshot, build_framework(profile), place, options, start=start)
    everything = harness.decide(world, read_pod({"pod": pod}))
    assert some.scheduled is everything.scheduled
    assert some.full is not None
    assert everything.full is not None
    for name, verdict in some.full.nodes.items():
        assert verdict.rejected == everything.full.nodes[name].rejected


@by_chance
@given(worlds, st.lists(pods(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_equal_inputs_give_equal_decisions(
    world: Manifest, waiting: list[Manifest], seed: int
) -> None:
    """R68, C21: chance comes from the seed alone."""

    def run() -> list[str]:
        snapshot = harness.build_snapshot(world)
        to_place = [
            harness.to_place(
                snapshot,
                read_pod({"pod": {**p, "metadata": {**p["metadata"], "name": f"new-{n}"}}}),
            )
            for n, p in enumerate(waiting)
        ]
        options = Options(seed=seed, preempt=False)
        decided = schedule_batch(snapshot, harness.kubernetes_framework(), to_place, options)
        return [decision.node_name or decision.message for decision in decided]

    assert run() == run()
