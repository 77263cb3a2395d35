"""What a Simulation may say, what each part of it means, and how it is refused."""

from typing import Any

import pytest

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from tests.builders import make_node, make_pod
from tests.simulation.builders import document, result, results, simulate

PRIORITY = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"kind": "Simulator"}, "kind", "Simulation"),
        ({"apiVersion": "v1"}, "apiVersion", "stowage.dev/v1"),
        ({"spec": 5}, "spec", "must be an object"),
        ({"sepc": {}}, "sepc", "unknown field"),
        ({"spec": {"nodes": []}}, "spec.nodes", "unknown field"),
        ({"spec": {"base": "full"}}, "spec.base", '"live", "empty"'),
        ({"spec": {"mode": "parallel"}}, "spec.mode", '"sequential", "independent"'),
        ({"spec": {"tieBreak": 1}}, "spec.tieBreak", "must be a string"),
        ({"spec": {"explain": "all"}}, "spec.explain", '"none", "summary", "full"'),
        ({"spec": {"admission": "yes"}}, "spec.admission", "must be a boolean"),
        ({"spec": {"seed": -1}}, "spec.seed", "must be between 0"),
        ({"spec": {"seed": 1.5}}, "spec.seed", "must be an integer"),
        (
            {"spec": {"percentageOfNodesToScore": -1}},
            "spec.percentageOfNodesToScore",
            "not in valid range",
        ),
        ({"spec": {"pods": {}}}, "spec.pods", "must be a list"),
        ({"spec": {"pods": ["a"]}}, "spec.pods[0]", "must be an object"),
        ({"spec": {"pods": [{"kind": "Node"}]}}, "spec.pods[0].kind", "Pod"),
        ({"spec": {"objects": [{}]}}, "spec.objects[0].kind", "Required"),
        ({"spec": {"objects": [{"kind": "Gadget"}]}}, "spec.objects[0].kind", "Gadget"),
        (
            {"spec": {"objects": [{"kind": "Node", "metadata": {}}]}},
            "spec.objects[0].metadata.name",
            "Required",
        ),
        (
            {"spec": {"objects": [{"kind": "List", "items": [make_node().manifest, 3]}]}},
            "spec.objects[0].items[1]",
            "must be an object",
        ),
        (
            {"spec": {"objects": [make_node().with_("spec", "taints", value=1).manifest]}},
            "spec.objects[0].spec.taints",
            "",
        ),
        (
            {"spec": {"objects": [make_node().offers(cpu="lots").manifest]}},
            "spec.objects[0].status.capacity.cpu",
            "",
        ),
        (
            {"spec": {"objects": [make_pod().manifest]}},
            "spec.objects[0].spec.nodeName",
            "spec.pods",
        ),
        ({"spec": {"delete": [{"kind": "Node"}]}}, "spec.delete[0].name", "Required"),
        (
            {"spec": {"delete": [{"kind": "Node", "name": "gone"}]}},
            "spec.delete[0].name",
            "Not found",
        ),
        (
            {"spec": {"configuration": {"kind": "KubeSchedulerConfiguration", "profile": []}}},
            "spec.configuration.profile",
            "unknown field",
        ),
    ],
)
def test_a_wrong_field_is_named(change: Manifest, field: str, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        simulate({"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": {}, **change})
    messages = {error.field: error.message() for error in caught.value.errors}
    assert field in messages
    assert text in messages[field]


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        simulate({"kind": "Simulation", "spec": {"base": 1, "mode": "x", "extra": True}})
    assert {e.field for e in caught.value.errors} == {"spec.base", "spec.mode", "spec.extra"}


@pytest.mark.parametrize("value", [None, 5, "text", [], True])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        simulate(value)


def test_a_pod_that_is_invalid_gets_its_errors_and_the_others_their_nodes() -> None:
    wrong = make_pod("wrong").tolerates("a b").with_("spec", "restartPolicy", value="Sometimes")
    found = results([make_node()], [make_pod("fine"), wrong, make_pod("fine-too")])
    assert [r["status"] for r in found] == ["scheduled", "invalid", "scheduled"]
    fields = {error["field"] for error in found[1]["errors"]}
    assert fields == {"spec.tolerations[0].key", "spec.restartPolicy"}


def test_more_resources_than_are_counted_are_told_of_the_pod_or_the_node_that_has_them() -> None:
    many = {f"example.com/r{number}": "1" for number in range(600)}
    container = {"name": "main", "image": "busybox", "resources": {"limits": many}}
    greedy = make_pod("greedy").with_("spec", "containers", value=[container])
    told, fine = results([make_node("n")], [greedy, make_pod("fine")])
    assert (told["status"], fine["status"]) == ("invalid", "scheduled")
    assert "new resource names" in told["errors"][0]["message"]
    with pytest.raises(Invalid, match="new resource names"):
        results([make_node("n").offers(**many)], [make_pod("fine")])


def test_a_pod_with_a_field_of_the_wrong_type_is_invalid() -> None:
    found = result([make_node()], make_pod().with_("spec", "containers", value="none"))
    assert found["status"] == "invalid"
    assert found["errors"][0]["field"] == "spec.containers"


def test_without_admission_pods_are_taken_as_they_are() -> None:
    sloppy = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}}
    assert result([make_node()], sloppy)["status"] == "invalid"
    assert result([make_node()], sloppy, admission=False)["status"] == "scheduled"


def test_a_missing_class_is_said_by_admission() -> None:
    pod = make_pod().with_("spec", "priorityClassName", value="high")
    missing = result([make_node()], pod)
    assert missing["status"] == "invalid"
    assert "no PriorityClass with name high was found" in missing["message"]
    assert result([make_node(), PRIORITY], pod)["status"] == "scheduled"


def test_pods_with_gates_wait() -> None:
    pod = make_pod().append("spec", "schedulingGates", value={"name": "example.com/hold"})
    found = result([make_node()], pod)
    assert found["status"] == "gated"
    assert found["message"] == "waiting for scheduling gates: [example.com/hold]"


def test_pods_of_other_schedulers_are_left_alone() -> None:
    found = result([make_node()], make_pod().with_("spec", "schedulerName", value="mine"))
    assert found["status"] == "skipped"
    assert "mine" in found["message"]


def test_each_pod_sees_those_before_it_unless_they_are_independent() -> None:
    nodes = [make_node("a").offers(cpu="2")]
    pods = [make_pod(f"pod-{n}").asks(cpu="2") for n in range(2)]
    sequential = [r["status"] for r in results(nodes, pods)]
    independent = [r["status"] for r in results(nodes, pods, mode="independent")]
    assert sequential == ["scheduled", "unschedulable"]
    assert independent == ["scheduled", "scheduled"]


def test_best_names_all_nodes_with_the_top_total() -> None:
    nodes = [make_node(f"node-{n:02}") for n in range(15)]
    found = result([*nodes, make_node("other").tainted("a", effect="PreferNoSchedule")], make_pod())
    assert found["best"] == [f"node-{n:02}" for n in range(15)]
    assert found["nodeName"] == "node-00"
    assert len(found["feasible"]) == 16


def test_full_explanations_hold_every_score_of_every_plugin() -> None:
    nodes = [make_node("a"), make_node("b").offers(cpu="8")]
    found = result(nodes, make_pod().asks(cpu="2"), explain="full")
    scores = found["scores"]["b"]
    assert scores["total"] == sum(scores["weighted"].values())
    assert scores["weighted"]["TaintToleration"] == 3 * scores["normalized"]["TaintToleration"]
    assert found["best"] == ["b"]


def test_no_explanation_is_short() -> None:
    found = result([make_node()], make_pod(), explain="none")
    assert found["nodeName"] == "node-1"
    assert not {"feasible", "infeasible", "scores", "best"} & found.keys()


def test_objects_can_be_deleted_again() -> None:
    taken = make_pod("taken").asks(cpu="4").on("node-1")
    gone = {"kind": "Pod", "namespace": "default", "name": "taken"}
    pod = make_pod().asks(cpu="4")
    assert result([make_node(), taken], pod)["status"] == "unschedulable"
    assert result([make_node(), taken], pod, delete=[gone])["status"] == "scheduled"
    node = {"kind": "Node", "name": "node-1"}
    assert result([make_node()], pod, delete=[node])["message"] == (
        "no nodes available to schedule pods"
    )


def test_room_is_made_for_the_more_important_within_budgets() -> None:
    nodes = [make_node("guarded").offers(cpu="1"), make_node("open").offers(cpu="1")]
    running = [
        make_pod("a").labelled(app="a").asks(cpu="1").on("guarded"),
        make_pod("b").asks(cpu="1").on("open"),
    ]
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    pod = make_pod("vip").asks(cpu="1").with_("spec", "priorityClassName", value="high")
    found = result([*nodes, *running, budget, PRIORITY], pod)
    assert found["preemption"] == {
        "nominatedNode": "open",
        "victims": ["default/b"],
        "candidates": {
            "guarded": {"victims": ["default/a"], "numPDBViolations": 1},
            "open": {"victims": ["default/b"], "numPDBViolations": 0},
        },
    }


def test_pods_on_nodes_get_what_their_classes_give() -> None:
    running = make_pod("a").asks(cpu="4").on("node-1")
    running = running.with_("spec", "priorityClassName", value="high")
    pod = make_pod("b").asks(cpu="4")
    found = result([PRIORITY, make_node(), running], pod.with_("spec", "priority", value=0))
    assert found["preemption"]["victims"] == []


def test_a_name_is_taken_once() -> None:
    found = results([make_node()], [make_pod("a"), make_pod("a")])
    assert [r["status"] for r in found] == ["scheduled", "invalid"]
    assert found[1]["errors"][0]["field"] == "metadata.name"


def test_sampling_looks_at_some_nodes_only() -> None:
    """R171, R175, R176: never fewer than 50, and all of them where there are fewer."""
    nodes = [make_node(f"node-{n:03}") for n in range(200)]
    found = result(nodes, make_pod(), percentageOfNodesToScore=30)
    assert len(found["feasible"]) == 60
    floor = result(nodes, make_pod(), percentageOfNodesToScore=10)
    assert len(floor["feasible"]) == 50
    few = result(nodes[:49], make_pod(), percentageOfNodesToScore=10)
    assert len(few["feasible"]) == 49
    assert result(nodes, make_pod())["feasible"] == sorted(
        n.manifest["metadata"]["name"] for n in nodes
    )


def test_the_document_is_left_as_it_was() -> None:
    given = document([make_node()], [make_pod()])
    before = document([make_node()], [make_pod()])
    simulate(given)
    assert given == before


def test_unknown_fields_of_objects_are_warned_of() -> None:
    answer = simulate(document([make_node().with_("spec", "tants", value=[])], [make_pod()]))
    assert answer["status"]["warnings"] == ["spec.objects[0].spec.tants: unknown field"]


def test_the_default_priority_class_counts_until_it_is_deleted() -> None:
    default = {**PRIORITY, "globalDefault": True}
    running = make_pod("low").asks(cpu="4").on("node-1").with_("spec", "priority", value=0)
    pod = make_pod().asks(cpu="4")
    gone = {"kind": "PriorityClass", "name": "high"}
    victims = result([make_node(), running, default], pod)["preemption"]["victims"]
    assert victims == ["default/low"]
    found = result([make_node(), running, default], pod, delete=[gone])
    assert found["preemption"]["victims"] == []
