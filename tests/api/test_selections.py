"""Selections over HTTP: who counts which pods and nodes, and who counts some twice (R41)."""

import pytest

from tests.api.conftest import TABLE, Api, make_token
from tests.builders import make_node, make_pod

SELECTIONS = "/apis/stowage.dev/v1/selections"


def workload(name, labels, **metadata):
    template = {"metadata": {"labels": labels}, "spec": make_pod().manifest["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
def cluster(api):
    """Pods of a shop; two Services and two budgets that share some, a Deployment that does not."""
    for name, labels in (
        ("web-1", {"app": "shop", "tier": "web"}), ("web-2", {"app": "shop", "tier": "web"}),
        ("db", {"app": "shop", "tier": "db"}), ("other", {"app": "other"}),
    ):  # fmt: skip
        pod = make_pod(name).in_namespace("ns").labelled(labels).manifest
        api.post("/api/v1/namespaces/ns/pods", pod).ok(201)
    done = make_pod("done").in_namespace("ns").labelled(app="shop").manifest
    api.post("/api/v1/namespaces/ns/pods", done).ok(201)
    api.patch("/api/v1/namespaces/ns/pods/done/status", {"status": {"phase": "Succeeded"}}).ok()
    for name, selector in (("shop", {"app": "shop"}), ("web", {"tier": "web"}), ("none", None)):
        spec = {"ports": [{"port": 80}]} | ({"selector": selector} if selector else {})
        service = {"metadata": {"name": name}, "spec": spec}
        api.post("/api/v1/namespaces/ns/services", service).ok(201)
    for name, selector in (
        ("all", {}),
        ("db", {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}),
    ):
        budget = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}
        api.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    deployment = workload("web", {"tier": "web"})
    made = api.post("/apis/apps/v1/namespaces/ns/deployments", deployment).ok(201)
    owner = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": made["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    owned = workload("web-abc", {"tier": "web"}, ownerReferences=[owner])
    api.post("/apis/apps/v1/namespaces/ns/replicasets", owned).ok(201)
    return api


def found(api, path=SELECTIONS):
    items = api.get(path).ok()["items"]
    return {
        one["metadata"]["name"]: (
            one["status"].get("nodes"),
            one["status"].get("pods"),
            {f"{o['kind']}/{o['name']}": o["shared"] for o in one["status"]["overlaps"]},
        )
        for one in items
    }


def test_services_and_budgets_that_share_pods_say_so_and_a_deployment_is_no_rival(cluster):
    """R41: finished pods do not count, nor does a ReplicaSet beside its own Deployment."""
    alone = {"deployment.web": (None, 2, {})}
    overlapping = {
        "service.shop": (None, 3, {"Service/web": 2}),
        "service.web": (None, 2, {"Service/shop": 2}),
        "poddisruptionbudget.all": (None, 4, {"PodDisruptionBudget/db": 2}),
        "poddisruptionbudget.db": (None, 2, {"PodDisruptionBudget/all": 2}),
    }
    mine = SELECTIONS.replace("selections", "namespaces/ns/selections")
    assert found(cluster, mine) == alone | overlapping
    assert found(cluster, f"{mine}?overlapping=true") == overlapping
    (service,) = [
        one for one in cluster.get(mine).ok()["items"]
        if one["metadata"]["name"] == "service.web"
    ]  # fmt: skip
    assert (service["metadata"]["namespace"], service["spec"]) == (
        "ns", {"kind": "Service", "name": "web", "selector": "tier=web"},
    )  # fmt: skip
    listed = cluster.get(mine, accept=TABLE).ok()
    (row,) = [row["cells"] for row in listed["rows"] if row["cells"][0] == "service.web"]
    assert row == ["service.web", 2, "<none>", "service.shop (2)", "tier=web"]


def test_runtime_classes_that_share_nodes_say_so_with_their_pods(api):
    """R41, R58, R60: nodes that a class does not tolerate are no part of its pool."""
    for name, labels in (("a", {"kata": "yes"}), ("b", {"kata": "yes", "gpu": "yes"})):
        api.post("/api/v1/nodes", make_node(name).labelled(labels).manifest).ok(201)
    closed = make_node("c").labelled(kata="yes").tainted("sandbox").manifest
    api.post("/api/v1/nodes", closed).ok(201)
    for name, selector, tolerations in (
        ("kata", {"kata": "yes"}, []),
        ("gpu", {"gpu": "yes"}, []),
        ("sandbox", {"kata": "yes"}, [{"key": "sandbox", "operator": "Exists"}]),
        ("nowhere", {"kata": "no"}, []),
    ):
        scheduling = {"nodeSelector": selector, "tolerations": tolerations}
        one = {"metadata": {"name": name}, "handler": "x", "scheduling": scheduling}
        api.post("/apis/node.k8s.io/v1/runtimeclasses", one).ok(201)
    pod = make_pod("p").in_namespace("ns").with_("spec", "runtimeClassName", value="kata")
    # The name in a label and in an annotation is not the field.
    quoted = '{"spec":{"runtimeClassName":"gpu"}}'
    other = make_pod("q").in_namespace("ns").labelled(runtimeClassName="gpu")
    other = other.with_("metadata", "annotations", value={"note": quoted})
    for one in (pod, other):
        api.post("/api/v1/namespaces/ns/pods", one.manifest).ok(201)
    assert found(api) == {
        "runtimeclass.gpu": (1, 0, {"RuntimeClass/kata": 1, "RuntimeClass/sandbox": 1}),
        "runtimeclass.kata": (2, 1, {"RuntimeClass/sandbox": 2, "RuntimeClass/gpu": 1}),
        "runtimeclass.nowhere": (0, 0, {}),
        "runtimeclass.sandbox": (3, 0, {"RuntimeClass/kata": 2, "RuntimeClass/gpu": 1}),
    }


def test_who_may_read_pods_everywhere_may_see_what_selects_them(reader):
    assert reader.get(SELECTIONS).ok()["kind"] == "SelectionList"
    stranger = Api(make_token("stranger", ["team"]))
    stranger.get(SELECTIONS).fails(403, "Forbidden")
    stranger.get("/apis/stowage.dev/v1/namespaces/ns/selections").fails(403, "Forbidden")
    reader.get(f"{SELECTIONS}?overlapping=perhaps").fails(400, "BadRequest")
