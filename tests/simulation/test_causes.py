"""The RuntimeClass is named where it is the reason (R53, C7, C9)."""

from tests.builders import make_node, make_pod
from tests.simulation.builders import document, simulate

KATA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "scheduling": {
        "nodeSelector": {"runtime": "kata"},
        "tolerations": [{"key": "sandboxed", "operator": "Exists"}],
    },
    "overhead": {"podFixed": {"cpu": "250m"}},
}


def result_of(nodes, pod):
    return simulate(document([KATA, *nodes], [pod], explain="full"))["status"]["results"][0]


def sandboxed(**asks):
    return make_pod("p").asks(**asks).with_("spec", "runtimeClassName", value="kata")


def test_the_seeds_sentence():
    """R53, with the seed's own numbers and words."""
    small = [make_node(f"s{n}").labelled(runtime="kata").offers(memory="1Gi") for n in range(5)]
    others = [make_node(f"o{n}").offers(memory="1Gi") for n in range(5)]
    found = result_of([*small, *others], sandboxed(memory="2Gi"))
    assert found["status"] == "unschedulable"
    assert "5 node(s) didn't match Pod's node affinity/selector" in found["message"]
    due = found["runtimeClass"]
    assert due["message"] == (
        "0/10 Nodes are available: 5 nodes do not have enough memory,"
        " 5 nodes don't match RuntimeClass"
    )
    assert (due["name"], due["nodeSelector"]) == ("kata", {"runtime": "kata"})
    assert due["tolerations"] == [{"key": "sandboxed", "operator": "Exists"}]
    assert due["overhead"] == {"cpu": "250m"}
    assert due["nodes"] == {f"o{n}": {"nodeSelector": {"runtime": "kata"}} for n in range(5)}


def test_a_selector_of_the_pods_own_is_not_the_classs_fault():
    node = make_node("n").labelled(runtime="kata")
    due = result_of([node], sandboxed().selects(disk="ssd"))["runtimeClass"]
    assert due["nodes"] == {}
    assert due["message"] == (
        "0/1 Nodes are available: 1 nodes didn't match Pod's node affinity/selector"
    )


def test_overhead_that_tips_the_scales_is_named():
    node = make_node("n").labelled(runtime="kata").offers(cpu="1")
    tips = result_of([node], sandboxed(cpu="900m"))
    assert tips["runtimeClass"]["nodes"] == {"n": {"overhead": {"cpu": "250m"}}}
    anyway = result_of([node], sandboxed(cpu="2"))
    assert anyway["runtimeClass"]["nodes"] == {}


def test_a_pod_without_a_class_is_explained_as_before():
    found = result_of([make_node("n")], make_pod("p"))
    assert found["status"] == "scheduled"
    assert "runtimeClass" not in found
