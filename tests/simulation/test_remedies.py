"""What would let a waiting pod in: each remedy opens what it says, and frees the pods it says."""

from typing import Any

import pytest

from scheduling.engine.reference.cycle import PodToPlace
from scheduling.simulation.remedies import Question, Remedy, remedies
from scheduling.simulation.verdicts import judge
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance.cluster_cases import read_pod
from tests.strategies import ZONE


def world(nodes: list[Any], pods: list[Any] = ()) -> dict[str, Any]:  # type: ignore[assignment]
    return {
        "nodes": [node.manifest for node in nodes],
        "pods": [pod.manifest for pod in pods],
    }


def found(
    cluster: dict[str, Any], pod: Any, *, waiting: int = 1, priorities: Any = ()
) -> list[Remedy]:
    """Return the remedies for a pod that waits with so many of its kind."""
    snapshot = harness.build_snapshot(cluster)
    framework = harness.kubernetes_framework()
    first = harness.to_place(snapshot, read_pod({"pod": pod.manifest}))
    others = [PodToPlace(f"default/other-{n}", first.info) for n in range(waiting - 1)]
    verdicts = judge(snapshot, framework, first)
    before = snapshot.pod_total, [snapshot.node(row) for row in snapshot.rows().tolist()]
    question = Question(first, [first, *others], priorities)
    answer = remedies(snapshot, framework, question, verdicts)
    # Nothing of what was tried is left behind.
    after = snapshot.pod_total, [snapshot.node(row) for row in snapshot.rows().tolist()]
    assert before == after
    assert judge(snapshot, framework, first).verdict.tolist() == verdicts.verdict.tolist()
    return answer


def texts(answer: list[Remedy]) -> list[str]:
    return [one.text for one in answer]


def test_a_label_opens_the_nodes_that_lack_it():
    nodes = [make_node(f"node-{n}") for n in range(12)]
    answer = found(world(nodes), make_pod().selects(disktype="ssd"))
    by_text = {one.text: one for one in answer}
    label = by_text["label disktype=ssd on any of 12 nodes"]
    assert (label.target, label.opens, label.frees) == ("Node", 12, 1)
    assert label.patch == {"metadata": {"labels": {"disktype": "ssd"}}}
    drop = by_text["drop disktype from the node selector"]
    assert (drop.target, drop.opens) == ("Pod", 12)
    # Of equals the change of the pod comes first.
    assert answer[0] is drop


def test_a_toleration_opens_tainted_nodes_and_frees_as_many_as_have_room():
    nodes = [make_node(f"node-{n}").tainted("gpu").offers(cpu="2") for n in range(9)]
    answer = found(world(nodes), make_pod().asks(cpu="2"), waiting=20)
    tolerate = next(one for one in answer if one.target == "Pod")
    assert tolerate.text == "tolerate gpu:NoSchedule"
    assert (tolerate.opens, tolerate.frees, tolerate.of) == (9, 9, 20)
    assert tolerate.patch == {
        "spec": {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}
    }
    untaint = next(one for one in answer if one.target == "Node")
    assert untaint.text == "remove the taint gpu:NoSchedule from any of 9 nodes"
    assert untaint.frees == 1  # the first node alone, as its preview changes it


def test_missing_room_is_told_as_so_much_more_on_any_of_so_many():
    nodes = [make_node(f"node-{n}").offers(cpu="2") for n in range(30)]
    nodes.append(make_node("nearly").offers(cpu="3500m"))
    answer = found(world(nodes), make_pod().asks(cpu="4"))
    assert "2 more cpu on any of 31 nodes" in texts(answer)
    assert "500m more cpu on the node nearly" in texts(answer)
    assert "ask for at most 2 cpu" in texts(answer)
    least = next(one for one in answer if one.text == "ask for at most 3.5 cpu")
    assert (least.opens, least.names) == (1, ("nearly",))


def test_memory_is_told_in_whole_mebibytes_that_suffice():
    nodes = [make_node("node").offers(memory="1000Mi")]
    answer = found(world(nodes), make_pod().asks(memory="1073741900"))
    assert texts(answer) == ["ask for at most 1000Mi memory", "25Mi more memory on the node node"]


def test_a_cordon_is_lifted_with_the_taint_that_it_brought():
    cordoned = make_node("node").cordoned()
    cordoned = cordoned.tainted("node.kubernetes.io/unschedulable")
    answer = found(world([cordoned]), make_pod())
    assert texts(answer) == ["uncordon the node node"]


def test_two_needs_are_met_together_where_one_does_not_do():
    nodes = [make_node(f"node-{n}").tainted("gpu") for n in range(3)]
    (first, second) = found(world(nodes), make_pod().selects(disktype="ssd"))
    assert first.text == "tolerate gpu:NoSchedule and drop disktype from the node selector"
    assert [one["action"] for one in first.edits] == ["Tolerate", "DropNodeSelector"]
    assert second.text == (
        "remove the taint gpu:NoSchedule from and label disktype=ssd on any of 3 nodes"
    )
    assert second.opens == 3


def test_anti_affinity_and_spreading_are_relaxed_term_by_term():
    nodes = [make_node("a").in_zone("east"), make_node("b").in_zone("east")]
    placed = [make_pod("one").labelled(app="web").on("a")]
    pod = make_pod().labelled(app="web").away_from(ZONE, app="web")
    assert texts(found(world(nodes, placed), pod)) == [
        "drop required term 1 of the pod anti-affinity"
    ]
    nodes.append(make_node("west").in_zone("west").offers(cpu="0"))
    pod = make_pod().labelled(app="web").asks(cpu="1").spread(ZONE, app="web")
    answer = found(world(nodes, placed), pod)
    assert "make spread constraint 1 ScheduleAnyway" in texts(answer)


def test_a_priority_class_that_makes_room_is_the_lowest_that_does():
    placed = [make_pod("low").asks(cpu="4").priority(10).on("node")]
    nodes = [make_node("node").offers(cpu="4")]
    answer = found(
        world(nodes, placed), make_pod().asks(cpu="4"),
        priorities=[(5, "too-low"), (20, "enough"), (30, "more")],
    )  # fmt: skip
    raised = next(one for one in answer if one.preempts)
    assert raised.edits[0]["priorityClassName"] == "enough"
    assert (raised.names, raised.preempts) == (("node",), 1)


def test_a_host_port_that_is_taken_is_named():
    placed = [make_pod("web").host_port(80).on("node")]
    answer = found(world([make_node("node")], placed), make_pod().host_port(80))
    assert texts(answer) == ["do without the host ports"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("500m", "500m"), ("1", "1"), ("1001m", "1.001"), ("2500m", "2.5"), ("63500m", "63.5"),
        ("70", "70"),
    ],
)  # fmt: skip
def test_lowered_requests_stay_quantities_and_are_told_in_cpus(value, shown):
    answer = found(world([make_node("node").offers(cpu=value)]), make_pod().asks(cpu="120"))
    (less,) = [one for one in answer if one.target == "Pod"]
    assert less.text == f"ask for at most {shown} cpu"
    assert less.edits[0]["resources"] == {"cpu": value}


def test_a_cluster_without_nodes_has_no_remedy():
    assert found(world([]), make_pod()) == []
