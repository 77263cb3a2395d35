"""From POST to bound over HTTP, with a scheduler in this process: what a cluster's user states."""

from tests.api.conftest import STRATEGIC
from tests.builders import make_node, make_pod

HOSTNAME = "kubernetes.io/hostname"
OS = "kubernetes.io/os"


def post(api, *builders):
    for builder in builders:
        manifest = builder.manifest
        if manifest["kind"] == "Node":
            api.post("/api/v1/nodes", manifest).ok(201)
        else:
            manifest["metadata"]["namespace"] = "ns"
            api.post("/api/v1/namespaces/ns/pods", manifest).ok(201)


def where(api):
    """Return the nodes of all pods by name, ``None`` where there is none yet."""
    items = api.get("/api/v1/namespaces/ns/pods").ok()["items"]
    return {one["metadata"]["name"]: one["spec"].get("nodeName") for one in items}


def why(api, name):
    """Return what the condition of a pod says that waits."""
    (found,) = api.get(f"/api/v1/namespaces/ns/pods/{name}").ok()["status"]["conditions"]
    assert (found["type"], found["status"], found["reason"]) == (
        "PodScheduled", "False", "Unschedulable",
    )  # fmt: skip
    return found["message"]


def taint(api, node, *taints):
    """Write a node's taints as ``kubectl taint`` does, which sends the whole list."""
    body = {"spec": {"taints": list(taints) or None}}
    return api.patch(f"/api/v1/nodes/{node}", body, STRATEGIC).ok()


def test_a_taint_keeps_pods_away_until_it_is_removed(api, runner):
    """R112, R113, R64, R67, R69: who tolerates it may come, and need not."""
    key1 = {"key": "key1", "value": "value1", "effect": "NoSchedule"}
    other = {"key": "key1", "value": "value1", "effect": "PreferNoSchedule"}
    post(api, make_node("node1"))
    assert taint(api, "node1", key1, other)["spec"]["taints"] == [key1, other]
    tolerant = make_pod("tolerant").tolerates("key1", "value1", "NoSchedule")
    post(api, make_pod("plain"), tolerant)
    runner.turn()
    assert where(api) == {"plain": None, "tolerant": "node1"}
    assert "1 node(s) had untolerated taint(s)" in why(api, "plain")
    assert taint(api, "node1", other)["spec"]["taints"] == [other]
    runner.turn(20)
    assert where(api)["plain"] == "node1"
    taint(api, "node1", key1)
    post(api, make_node("node2"), tolerant.named("elsewhere").selects({HOSTNAME: "node2"}))
    runner.turn()
    assert where(api)["elsewhere"] == "node2"
    assert "taints" not in taint(api, "node1")["spec"]


def test_a_node_under_pressure_takes_who_tolerates_that(api, runner):
    """R133, R126: conditions matter as taints alone, also those of a node that is new."""
    pressed = {"type": "MemoryPressure", "status": "True"}
    post(api, make_node("n").with_("status", "conditions", value=[pressed]))
    key = "node.kubernetes.io/memory-pressure"
    post(api, make_pod("plain"), make_pod("tolerant").tolerates(key, effect="NoSchedule"))
    runner.turn()
    assert where(api) == {"plain": None, "tolerant": "n"}
    body = {"status": {"conditions": [{**pressed, "status": "False"}]}}
    api.patch("/api/v1/nodes/n/status", body, STRATEGIC).ok()
    runner.turn(20)
    assert where(api)["plain"] == "n"


def test_a_runtime_class_adds_to_each_rule_that_its_pods_have(api, runner):
    """R44, R55, R57, R61: its selector holds for every ORed term, and other policies go on."""
    runtime_class = {
        "metadata": {"name": "windows"},
        "handler": "windows",
        "scheduling": {
            "nodeSelector": {OS: "windows"},
            "tolerations": [{"key": "windows.microsoft.com", "operator": "Exists"}],
        },
    }
    api.post("/apis/node.k8s.io/v1/runtimeclasses", runtime_class).ok(201)
    windows = make_node().labelled({OS: "windows"}).tainted("windows.microsoft.com")
    linux = make_node().labelled({OS: "linux"})
    for name, start in (("windows", windows), ("linux", linux)):
        gpu, fast = start.labelled(gpu="yes"), start.labelled(disk="ssd")
        for kind, node in (("gpu", gpu), ("ssd", fast), ("plain", start)):
            node = node.named(f"{name}-{kind}").labelled({HOSTNAME: f"{name}-{kind}"})
            post(api, node)
    # Two ORed terms, and no two of these pods on one node.
    pod = make_pod().labelled(app="w").away_from(HOSTNAME, app="w")
    pod = pod.requires_node(("gpu", "In", ["yes"])).requires_node(("disk", "In", ["ssd"]))
    pod = pod.with_("spec", "runtimeClassName", value="windows")
    post(api, *(pod.named(name) for name in ("first", "second", "third")))
    post(api, make_pod("developer").with_("spec", "runtimeClassName", value="windows"))
    for number in range(4):
        post(api, make_pod(f"linux-{number}"))
    runner.turn()
    found = where(api)
    assert {found["first"], found["second"], found["third"]} == {
        "windows-gpu", "windows-ssd", None,
    }  # fmt: skip
    assert found["developer"].startswith("windows-")
    assert all(found[f"linux-{number}"].startswith("linux-") for number in range(4))
