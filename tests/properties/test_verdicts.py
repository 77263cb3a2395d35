"""Every filter on every node: the verdicts agree with what the engine decides."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.reference.cycle import Options, schedule_pod
from scheduling.simulation.verdicts import judge, scores_of
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance.cluster_cases import read_pod
from tests.strategies import Manifest, by_chance, clusters, pods

worlds = clusters(most_nodes=7, most_pods=8)


@by_chance
@given(worlds, pods(), st.lists(pods("waiting"), max_size=2), st.data())
def test_a_node_that_all_filters_pass_is_feasible_and_no_other(
    world: Manifest, pod: Manifest, waiting: list[Manifest], data: st.DataObject
) -> None:
    """The first rejection is the engine's, and so are the scores, with nominated pods as well."""
    names = st.sampled_from([node["metadata"]["name"] for node in world["nodes"]])
    nominated = [
        {
            **manifest,
            "metadata": {**manifest["metadata"], "name": f"waiting-{n}", "uid": f"waiting-{n}"},
            "status": {"nominatedNodeName": data.draw(names)},
        }
        for n, manifest in enumerate(waiting)
    ]
    case = {**world, "pod": pod, "nominatedPods": nominated}
    snapshot = harness.build_snapshot(case)
    framework = harness.kubernetes_framework()
    to_place = harness.to_place(snapshot, read_pod(case))
    options = Options(full=True, preempt=False)
    decision = schedule_pod(snapshot, framework, to_place, options)
    verdicts = judge(snapshot, framework, to_place)
    assert decision.full is not None
    table = decision.full.nodes
    found = {
        snapshot.node_name(row): verdicts.statuses[number]
        for row, number in zip(verdicts.rows.tolist(), verdicts.first.tolist(), strict=True)
    }
    feasible = {snapshot.node_name(row) for row in verdicts.feasible.tolist()}
    assert feasible == {name for name, said in table.items() if said.rejected is None}
    for name, said in table.items():
        if said.rejected is not None:
            assert found[name].reasons == said.rejected.reasons
            assert found[name].code is said.rejected.code
    scores = scores_of(snapshot, framework, to_place.info, verdicts)
    if scores is not None:
        totals = zip(scores.rows.tolist(), scores.total.tolist(), strict=True)
        assert {snapshot.node_name(row): total for row, total in totals} == {
            name: said.total for name, said in table.items() if said.rejected is None
        }


@by_chance
@given(worlds, pods())
def test_a_filter_that_alone_rejects_a_node_keeps_it_closed_and_nothing_else_does(
    world: Manifest, pod: Manifest
) -> None:
    """Without that filter in the profile the node is feasible."""
    case: Any = {**world, "pod": pod}
    snapshot = harness.build_snapshot(case)
    framework = harness.kubernetes_framework()
    to_place = harness.to_place(snapshot, read_pod(case))
    verdicts = judge(snapshot, framework, to_place)
    for plugin in verdicts.plugins:
        names = [p.name for p in framework.filter_plugins if p.name != plugin]
        without = judge(snapshot, harness.narrowed(names), to_place)
        opened = set(without.feasible.tolist()) - set(verdicts.feasible.tolist())
        alone = verdicts.by(plugin) & (verdicts.rejections == 1)
        assert opened == set(verdicts.rows[alone].tolist())


@by_chance
@given(worlds, pods())
def test_the_funnel_ends_at_the_feasible_nodes(world: Manifest, pod: Manifest) -> None:
    case: Any = {**world, "pod": pod}
    snapshot = harness.build_snapshot(case)
    to_place = harness.to_place(snapshot, read_pod(case))
    verdicts = judge(snapshot, harness.kubernetes_framework(), to_place)
    left = len(verdicts.rows)
    for step in verdicts.funnel():
        left -= step.rejected
        assert step.left == left
        assert step.alone <= step.rejects
        assert step.rejected <= step.rejects
    assert left == len(verdicts.feasible)


def test_a_node_that_pre_filter_leaves_out_is_told_as_the_cycle_tells_it() -> None:
    """Named nodes alone are filtered; another filter may be the first to reject one of these."""
    named = {"key": "metadata.name", "operator": "In", "values": ["named"]}
    asked = {"key": "disk", "operator": "Exists"}
    term = {"matchExpressions": [asked], "matchFields": [named]}
    pod = make_pod().with_(
        "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
        value={"nodeSelectorTerms": [term]},
    )  # fmt: skip
    nodes = [make_node("named").cordoned(), make_node("other").cordoned(), make_node("third")]
    world = {"nodes": [node.manifest for node in nodes], "pod": pod.manifest}
    snapshot = harness.build_snapshot(world)
    framework = harness.kubernetes_framework()
    to_place = harness.to_place(snapshot, read_pod(world))
    decision = schedule_pod(snapshot, framework, to_place, Options(full=True, preempt=False))
    verdicts = judge(snapshot, framework, to_place)
    assert decision.full is not None
    for row, number in zip(verdicts.rows.tolist(), verdicts.first.tolist(), strict=True):
        said = decision.full.nodes[snapshot.node_name(row)].rejected
        assert said is not None
        assert verdicts.statuses[number].reasons == said.reasons
    assert [step.rejected for step in verdicts.funnel() if step.rejected] == [1, 2]
    assert verdicts.by("NodeAffinity").all()
