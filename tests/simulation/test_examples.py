"""The worked examples of the design documents, as simulations."""

import itertools

import pytest

from tests.builders import make_node, make_pod
from tests.simulation.builders import KATA_FC, document, result, results, simulate

HOSTNAME = "kubernetes.io/hostname"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
def test_three_caches_and_three_web_servers_share_three_nodes(order: tuple[int, ...]) -> None:
    """R99."""
    caches = [
        make_pod(f"cache-{n}").labelled(app="store").away_from(HOSTNAME, app="store") for n in order
    ]
    webs = [
        make_pod(f"web-{n}")
        .labelled(app="web-store")
        .away_from(HOSTNAME, app="web-store")
        .near(HOSTNAME, app="store")
        for n in order
    ]
    found = results([make_node(f"node-{n}") for n in range(3)], [*caches, *webs])
    names = ["node-0", "node-1", "node-2"]
    assert sorted(r["nodeName"] for r in found[:3]) == names
    assert sorted(r["nodeName"] for r in found[3:]) == names


def test_bin_packing_scores_the_nodes_of_the_design() -> None:
    """R109, R110: 5 and 7 of 10 are 60 and 69 of 100."""
    nodes = [
        make_node("node-1").offers(cpu="8", memory="1Gi").offers_also({"intel.com/foo": "4"}),
        make_node("node-2").offers(cpu="8", memory="1Gi").offers_also({"intel.com/foo": "8"}),
    ]
    used = [
        make_pod("a").asks(cpu="1", memory="256Mi").asks_also({"intel.com/foo": "1"}).on("node-1"),
        make_pod("b").asks(cpu="6", memory="512Mi").asks_also({"intel.com/foo": "2"}).on("node-2"),
    ]
    pod = make_pod().asks(cpu="2", memory="256Mi").asks_also({"intel.com/foo": "2"})
    limits = {"cpu": "2", "memory": "256Mi", "intel.com/foo": "2"}
    first = pod.manifest["spec"]["containers"][0]
    first["resources"]["limits"] = limits
    pod = pod.with_("spec", "containers", value=[first])
    args = {
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [
                {"name": "intel.com/foo", "weight": 5},
                {"name": "memory", "weight": 1},
                {"name": "cpu", "weight": 3},
            ],
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
            },
        }
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}],
    }
    found = result([*nodes, *used], pod, explain="full", configuration=configuration)
    scores = {name: s["normalized"]["NodeResourcesFit"] for name, s in found["scores"].items()}
    assert scores == {"node-1": 60, "node-2": 69}


def test_two_zones_are_required_and_a_label_is_preferred() -> None:
    """R81: the preference of weight 1 decides between the two zones, and never beyond them."""
    zone, other = "kubernetes.io/e2e-az-name", "another-node-label-key"
    value = "another-node-label-value"
    pod = (
        make_pod()
        .requires_node((zone, "In", ["e2e-az1", "e2e-az2"]))
        .prefers_node(1, (other, "In", [value]))
    )
    nodes = [
        make_node("elsewhere").labelled({zone: "e2e-az3", other: value}),
        make_node("plain").labelled({zone: "e2e-az1"}),
        make_node("preferred").labelled({zone: "e2e-az2", other: value}),
    ]
    found = result(nodes, pod, explain="full")
    assert set(found["feasible"]) == {"plain", "preferred"}
    assert found["nodeName"] == "preferred"
    assert result(nodes[:2], pod)["nodeName"] == "plain"


def test_a_newer_kernel_without_gpu_and_with_fuse() -> None:
    """R29: three operators in one selector."""
    pod = make_pod().requires_node(
        ("kernel", "Gt", ["3"]), ("gpu", "DoesNotExist", []), ("fuse", "Exists", [])
    )
    nodes = [
        make_node("right").labelled(kernel="4", fuse=""),
        make_node("old").labelled(kernel="3", fuse=""),
        make_node("unversioned").labelled(kernel="four", fuse=""),
        make_node("gpu").labelled(kernel="4", fuse="", gpu="yes"),
        make_node("no-fuse").labelled(kernel="4"),
    ]
    assert result(nodes, pod, explain="full")["feasible"] == ["right"]


@pytest.mark.parametrize(("shape", "chosen"), [((0, 10), "full"), ((10, 0), "empty")])
def test_a_rising_shape_packs_and_a_falling_one_spreads(
    shape: tuple[int, int], chosen: str
) -> None:
    """R105."""
    points = [
        {"utilization": at, "score": score} for at, score in zip((0, 100), shape, strict=True)
    ]
    strategy = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": points}}
    args = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    only = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": only, "pluginConfig": [args]}],
    }
    nodes = [make_node(name).offers(cpu="8", memory="8Gi") for name in ("empty", "full")]
    guest = make_pod("guest").asks(cpu="4", memory="4Gi").on("full")
    pod = make_pod().asks(cpu="1", memory="1Gi")
    assert result([*nodes, guest], pod, configuration=configuration)["nodeName"] == chosen


def test_three_taints_and_two_tolerations() -> None:
    """R121: the pod cannot come, and keeps running where it is."""
    node = (
        make_node()
        .tainted("key1", "value1", "NoSchedule")
        .tainted("key1", "value1", "NoExecute")
        .tainted("key2", "value2", "NoSchedule")
    )
    pod = make_pod().tolerates("key1", "value1", "NoSchedule")
    pod = pod.tolerates("key1", "value1", "NoExecute")
    assert result([node], pod) == {
        "pod": "default/pod-1",
        "status": "unschedulable",
        "nodeName": "",
        "feasible": [],
        "infeasible": {
            "node-1": {
                "plugin": "TaintToleration",
                "code": "UnschedulableAndUnresolvable",
                "reasons": ["node(s) had untolerated taint(s)"],
            }
        },
        "best": [],
        "message": (
            "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to"
            " deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for"
            " scheduling."
        ),
        "errors": [],
        "preemption": {"nominatedNode": "", "victims": [], "candidates": {}},
    }
    running = result([node], pod.on("node-1"))
    assert (running["status"], running["nodeName"]) == ("skipped", "node-1")


@pytest.mark.parametrize(
    ("cpu", "memory", "status"),
    [
        pytest.param("2250m", "320Mi", "scheduled", id="R143-exactly"),
        pytest.param("2249m", "320Mi", "unschedulable", id="R143-cpu"),
        pytest.param("2250m", "319Mi", "unschedulable", id="R143-memory"),
    ],
)
def test_limits_become_requests_and_the_overhead_is_added(
    cpu: str, memory: str, status: str
) -> None:
    """R143, R139, R148: the scheduler looks for 2.25 CPU and 320 MiB, without any switch."""
    pod = make_pod("test-pod").with_("spec", "runtimeClassName", value="kata-fc")
    limits = [("busybox-ctr", "500m"), ("nginx-ctr", "1500m")]
    containers = [
        {"name": name, "image": "x", "resources": {"limits": {"cpu": amount, "memory": "100Mi"}}}
        for name, amount in limits
    ]
    pod = pod.with_("spec", "containers", value=containers)
    node = make_node().offers(cpu=cpu, memory=memory)
    assert result([KATA_FC, node], pod)["status"] == status


def test_an_empty_node_selector_term_matches_all_unless_the_configuration_says_otherwise() -> None:
    """C1."""
    pod = make_pod().with_(
        "spec",
        "affinity",
        value={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}
            }
        },
    )
    args = {"name": "NodeAffinity", "args": {"emptyNodeSelectorTerm": "none"}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [args]}],
    }
    assert result([make_node()], pod)["status"] == "scheduled"
    assert result([make_node()], pod, configuration=configuration)["status"] == "unschedulable"


def test_equal_documents_get_equal_answers() -> None:
    nodes = [make_node(f"node-{n}") for n in range(20)]
    pods = [make_pod(f"pod-{n}") for n in range(10)]
    first, again, other = (
        simulate(document(nodes, pods, tieBreak="random", seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
