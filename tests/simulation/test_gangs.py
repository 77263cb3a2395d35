"""What a PodGroup lacks, and how many more gangs of a shape fit (issue 34)."""

from typing import Any

import msgspec
import pytest

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.workloads import PodDisruptionBudget
from scheduling.framework.configuration.documents import default_configuration
from scheduling.simulation import Base, read, read_headroom, run_headroom
from scheduling.simulation.foresight import NEVER, Foresight, Leaver
from scheduling.simulation.gang_remedies import gang_remedies
from scheduling.simulation.gangs import shortfall
from scheduling.simulation.running import world_of
from tests.builders import make_node, make_pod
from tests.engine.test_groups import RACK, cluster, group, in_rack, member
from tests.harness import kubernetes_framework, to_place
from tests.simulation.builders import document, results, simulate


def lacks(snapshot, made, *pods):
    snapshot.groups.set(made)
    ready = [to_place(snapshot, one.build()) for one in pods]
    return shortfall(snapshot, kubernetes_framework(), made.key, ready)


def test_pods_that_are_not_there_yet_are_missing():
    found = lacks(cluster("4"), group(count=3), member("p0"))
    assert (found.missing, found.waiting, found.placed) == (2, 1, 0)
    assert found.message == "2 more pods must be created: 1 of 3 exist"


def test_room_is_lacking_in_nodes_and_in_one_rack():
    snapshot = cluster("2", "2", "2", "2", racks=("x", "x", "y", "y"))
    before = snapshot.requested.copy()
    found = lacks(snapshot, group(count=8), *(member(f"p{n}", cpu="2") for n in range(8)))
    assert found.domains == {"": 4}
    assert found.message == (
        "4 of 8 needed pods have a place: room for 4 more is lacking, as on 4 free nodes"
    )
    racked = group("r", count=5, **in_rack())
    found = lacks(snapshot, racked, *(member(f"q{n}", "2", of="r") for n in range(5)))
    assert found.domains == {"x": 2, "y": 2}
    assert found.nodes == 3
    assert found.message == (
        "2 of 5 needed pods have a place in one rack, in x: room for 3 more is lacking, as on 3"
        " free nodes"
    )
    assert (snapshot.requested == before).all()


def test_a_group_that_fits_lacks_nothing_and_pods_that_no_node_takes_name_no_nodes():
    assert lacks(cluster("4"), group(count=2), member("p0"), member("p1")) is None
    found = lacks(cluster("4"), group(count=2), member("p0", "9"), member("p1", "9"))
    assert (found.nodes, found.domains) == (0, {"": 0})


def helped(snapshot, made, *pods):
    snapshot.groups.set(made)
    ready = [to_place(snapshot, one.build()) for one in pods]
    framework = kubernetes_framework()
    lacking = shortfall(snapshot, framework, made.key, ready)
    return gang_remedies(snapshot, framework, made.key, ready, lacking)


def test_what_lets_a_gang_in_is_as_few_nodes_of_one_domain_as_it_needs():
    """Rack x has room for two pods and three closed nodes, rack y for one pod and two."""
    sizes, racks = ("4", *["2"] * 3, "2", "2", "2"), ("x",) * 4 + ("y",) * 3
    snapshot = cluster(*sizes, racks=racks)
    for number in (1, 2, 3, 5, 6):
        node = snapshot.node(snapshot.row_of(f"n{number}"))
        spec = msgspec.structs.replace(node.spec, unschedulable=True)
        snapshot.set_node(msgspec.structs.replace(node, spec=spec))
    before = msgspec.to_builtins([snapshot.node(row) for row in snapshot.rows().tolist()])
    pods = [member(f"p{n}", cpu="2") for n in range(4)]
    found = {one.text: one for one in helped(snapshot, group(count=4, **in_rack()), *pods)}
    assert set(found) == {
        "lower minCount from 4 to 2",
        f"uncordon 2 nodes of one {RACK}",
        "add a node like n0",
    }
    opened = found[f"uncordon 2 nodes of one {RACK}"]
    assert (opened.frees, opened.of, opened.names) == (4, 4, ("n1", "n2"))
    (change,) = opened.plan["spec"]["changes"]
    assert change == {"uncordon": {"nodes": ["n1", "n2"]}}
    (added,) = found["add a node like n0"].plan["spec"]["changes"]
    assert added["add"]["objects"][0]["metadata"]["labels"][RACK] == "x"
    patch = found["lower minCount from 4 to 2"].patch
    assert patch == {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    assert msgspec.to_builtins([snapshot.node(row) for row in snapshot.rows().tolist()]) == before
    assert not any(snapshot.knows(f"default/p{n}") for n in range(4))


def test_a_node_to_add_has_a_name_that_no_node_has():
    """An earlier remedy was carried out: its node is there, and stays as it is."""
    snapshot = cluster("4")
    node = snapshot.node(snapshot.row_of("n0"))
    new = msgspec.structs.replace(node.metadata, name="n0-new-1")
    snapshot.set_node(msgspec.structs.replace(node, metadata=new))
    pods = [member(f"p{n}", cpu="4") for n in range(3)]
    found = {one.text: one for one in helped(snapshot, group(count=3), *pods)}
    (change,) = found["add a node like n0"].plan["spec"]["changes"]
    assert [one["metadata"]["name"] for one in change["add"]["objects"]] == ["n0-new-2"]
    assert snapshot.row_of("n0-new-1") is not None


def test_a_gang_whose_pods_have_not_come_can_only_be_smaller():
    (only,) = helped(cluster("4"), group(count=3), member("p0"))
    assert only.text == "lower minCount from 3 to 1"
    assert helped(cluster("4"), group(count=3), member("p0", cpu="9")) == []


def headroom(nodes, **spec):
    pod = make_pod("p").asks(cpu="2").manifest
    objects = [one.manifest for one in nodes]
    document = {"spec": {"base": "empty", "objects": objects, "pod": pod, **spec}}
    return run_headroom(read_headroom(document), Base())["status"]


def test_gangs_of_a_shape_are_counted():
    racks = ("x", "x", "y", "y")
    nodes = [
        make_node(f"n{n}").offers(cpu="4", pods="110").labelled({RACK: rack})
        for n, rack in enumerate(racks)
    ]
    found = headroom(nodes, gang={"minCount": 3})
    assert (found["fits"], sum(found["nodes"].values())) == (2, 6)
    assert found["message"].startswith("2 of 3 needed pods")
    assert headroom(nodes, gang={"minCount": 3, "topologyKey": RACK})["fits"] == 2
    assert headroom(nodes, gang={"minCount": 5, "topologyKey": RACK})["fits"] == 0
    assert headroom(nodes, gang={"minCount": 1}, limit=3)["limited"] is True


@pytest.mark.parametrize("gang", [3, {}, {"minCount": 0}, {"minCount": 2, "more": 1}])
def test_a_shape_that_is_none_is_refused(gang):
    with pytest.raises(Exception, match=r"spec\.gang"):
        headroom([make_node("n").offers(cpu="4")], gang=gang)


def test_what_is_foretold_charges_a_budget_of_groups_once_for_a_group():
    pods = [
        member(f"{name}{n}", of=name).on(f"n{n}").labelled({"app": "t"})
        for name in "ab"
        for n in range(2)
    ]
    snapshot = cluster("4", "4", pods=pods)
    for name in "ab":
        snapshot.groups.set(group(name, 2, disruptionMode={"all": {}}))
    budget = {
        "metadata": {"name": "b", "namespace": "default",
                     "annotations": {"stowage.dev/disruption-unit": "PodGroup"}},
        "spec": {"selector": {"matchLabels": {"app": "t"}}},
        "status": {"disruptionsAllowed": 1},
    }  # fmt: skip
    snapshot.set_budget(msgspec.convert(budget, PodDisruptionBudget))
    future = Foresight(
        snapshot, default_configuration(), now=0.0, details=lambda one: (one.name, 0.0, NEVER)
    )
    future.leave(
        Leaver(key=f"default/{name}{n}", title=f"{name}{n}", due=0.0, grace=30.0, cause="Evicted",
               held_by_budgets=True)
        for name in "ab"
        for n in range(2)
    )  # fmt: skip
    future.run(horizon=10.0)
    held = {one.leaver.title: one.blocked_by for one in future.departures}
    assert held == {
        "a0": "",
        "a1": "",
        **dict.fromkeys(("b0", "b1"), "PodDisruptionBudget default/b"),
    }


def pod_group(name: str = "g", count: int = 3, **spec: Any) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }  # fmt: skip


def of(name: str, cpu: str = "2", group_name: str = "g", **more: Any) -> Manifest:
    made = make_pod(name).asks(cpu=cpu).manifest
    made["spec"] |= {"schedulingGroup": {"podGroupName": group_name}, **more}
    return made


def three_nodes() -> list[Any]:
    racks = ("x", "x", "y")
    return [
        make_node(f"n{at}").labelled({RACK: rack}).offers(cpu=4, pods=10)
        for at, rack in enumerate(racks)
    ]


def placed(found: list[Manifest]) -> dict[str, str]:
    return {one["pod"].removeprefix("default/"): one["nodeName"] for one in found}


@pytest.mark.parametrize("count", [4, 5])
def test_a_simulation_places_a_gang_as_a_whole_or_not_at_all(count: int):
    # In one rack four pods fit. Pods of the gang stand apart in the document, and "free" between.
    constraints = {"topology": [{"key": RACK}]}
    gang = pod_group(count=count, schedulingConstraints=constraints)
    pods = [*(of(f"p{n}") for n in range(2)), make_pod("free").asks(cpu="2")]
    pods += [of(f"p{n}") for n in range(2, count)]
    found = results([*three_nodes(), gang], pods)
    nodes = placed(found)
    assert list(nodes) == ["p0", "p1", "free", *(f"p{n}" for n in range(2, count))]
    assert nodes.pop("free")
    fits = count == 4
    assert set(nodes.values()) == ({"n0", "n1"} if fits else {""})
    if not fits:
        assert "4 of 5 needed pods of group g have a place" in found[0]["message"]


def test_pods_of_a_simulation_wait_for_a_group_that_is_not_there():
    (alone,) = results(three_nodes(), [of("p0")])
    assert alone["status"] == "unschedulable"
    assert 'waiting for pods\'s pod group "g" to appear' in alone["message"]


def test_a_group_of_a_simulation_has_its_priority_and_makes_room():
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value,
         "metadata": {"name": name}}
        for name, value in (("high", 10), ("low", 1))
    ]  # fmt: skip
    low = [
        make_pod(f"low-{n}")
        .asks(cpu="4")
        .on(f"n{n}")
        .with_("spec", "priorityClassName", value="low")
        for n in range(3)
    ]
    gang = pod_group(count=3, priorityClassName="high")
    pods = [of(f"p{n}", priorityClassName="high") for n in range(3)]
    objects = [*three_nodes(), gang, *classes, *low]
    found = simulate(document(objects, pods, preemption="perform"))["status"]
    assert all(placed(found["results"]).values())
    assert len(found["evictions"]) == 2
    assert {one["by"] for one in found["evictions"]} == {"default/p0"}


def test_a_group_of_a_simulation_is_validated_and_needs_the_order():
    with pytest.raises(Invalid) as wrong:
        results([pod_group(count=-1)])
    (error,) = wrong.value.errors
    assert error.field == "spec.objects[0].spec.schedulingPolicy.gang.minCount"
    made = document([*three_nodes(), pod_group()], [of("p0")], mode="independent")
    told = simulate(made)["status"]
    assert told["warnings"] == ["spec.mode: each pod is placed by itself, also those of a PodGroup"]


def test_a_pod_that_has_its_node_takes_no_room_from_a_gang_before_it():
    fixed = make_pod("fixed").asks(cpu="2").on("n2").manifest
    others = [of(f"p{n}", cpu="4") for n in range(3)]
    found = placed(results([*three_nodes(), pod_group()], [*others, fixed]))
    assert sorted(found.values()) == ["n0", "n1", "n2", "n2"]
    assert not any(placed(results([*three_nodes(), pod_group()], [fixed, *others]))[f"p{n}"]
                   for n in range(3))  # fmt: skip


def test_a_budget_of_groups_without_a_status_lets_none_leave_while_another_is_broken():
    names = {"whole": 2, "broken": 1}
    running = [
        of(f"{name}-{n}", group_name=name, nodeName=f"n{n}")
        for name, count in names.items() for n in range(count)
    ]  # fmt: skip
    for pod in running:
        pod["metadata"]["labels"] = {"app": "t"}
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default",
                     "annotations": {"stowage.dev/disruption-unit": "PodGroup"}},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "t"}}},
    }  # fmt: skip
    groups = [pod_group(name, 2) for name in names]
    for objects, allowed in ((running[:2], 1), (running, 0)):
        made = read(document([*three_nodes(), *groups, budget, *objects]), default_base="empty")
        (found,) = world_of(made, Base()).snapshot.disruption_budgets()
        assert found.disruptions_allowed == allowed
