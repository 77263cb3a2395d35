"""A node's own credential: its node, its pods, its lease, and nothing else (R59, R77)."""

import pytest

from tests.api.conftest import Api, make_token
from tests.controllers.support import make_node, make_pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
def node(api):
    for name in ("n1", "n2"):
        make_node(name)
    make_pod("mine", "n1")
    make_pod("other", "n2")
    return Api(make_token("system:node:n1", ["system:nodes"]))


def test_its_own_status_and_not_another(node):
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    node.patch("/api/v1/nodes/n1/status", status).ok()
    node.patch("/api/v1/nodes/n2/status", status).fails(403, "Forbidden")


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("example.com.node-restriction.kubernetes.io/fips", False),
        ("node-restriction.kubernetes.io/x", False),
        ("scheduling.k8s.io/x", False),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/x", True),
        ("example.com/x", True),
    ],
)
def test_which_labels_it_may_set(node, label, allowed):
    """R59, R77, C10."""
    answer = node.patch("/api/v1/nodes/n1", {"metadata": {"labels": {label: "true"}}})
    if allowed:
        answer.ok()
    else:
        answer.fails(403, "Forbidden")


def test_not_its_own_taints(node):
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    node.patch("/api/v1/nodes/n1", taints).fails(403, "Forbidden")


def test_the_pods_bound_to_it(node):
    status = {"status": {"phase": "Running"}}
    base = "/api/v1/namespaces/default/pods"
    node.patch(f"{base}/mine/status", status).ok()
    node.patch(f"{base}/other/status", status).fails(403, "Forbidden")
    node.delete(f"{base}/other").fails(403, "Forbidden")
    node.delete(f"{base}/mine?gracePeriodSeconds=0").ok()


def test_its_own_lease(node):
    def lease(name):
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": {"holderIdentity": name},
        }

    node.post(LEASES, lease("n1")).ok(201)
    node.post(LEASES, lease("n2")).fails(403, "Forbidden")


def test_nothing_of_the_cluster(node):
    node.post("/api/v1/namespaces", {"metadata": {"name": "x"}}).fails(403, "Forbidden")
    node.delete("/api/v1/nodes/n1").fails(403, "Forbidden")
    node.get("/apis/policy/v1/poddisruptionbudgets").fails(403, "Forbidden")


PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize("subresource", ["status", "decisions", "log", "ephemeralcontainers"])
def test_no_subresource_is_read(node, subresource):
    for name in ("mine", "other"):
        node.get(f"{PODS}/{name}/{subresource}").fails(403, "Forbidden")


def test_the_trail_of_its_own_pods_and_of_no_others(node):
    path = "/apis/stowage.dev/v1/changes?kind=Pod&namespace=default&name="
    node.get(f"{path}mine").ok()
    node.get(f"{path}other").fails(403, "Forbidden")
    node.get(f"{path}nobody").fails(403, "Forbidden")


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_its_own_pods_and_for_no_others(server, node):
    def ask(name):
        return server.ask(
            "GET", f"{PODS}/{name}?waitFor=PodScheduled&timeoutSeconds=1", node.token
        )[0]

    assert [ask("mine"), ask("other"), ask("nobody")] == [200, 403, 403]


def test_its_own_pods_and_no_others(node):
    """Rule: the Node authorizer with selectors."""
    assert node.get(f"{PODS}/mine").ok()["spec"]["nodeName"] == "n1"
    node.get(f"{PODS}/other").fails(403, "Forbidden")
    node.get(f"{PODS}/nobody").fails(403, "Forbidden")
    own = "fieldSelector=spec.nodeName%3Dn1"
    for path in (PODS, "/api/v1/pods"):
        (only,) = node.get(f"{path}?{own}").ok()["items"]
        assert only["metadata"]["name"] == "mine"
        node.get(f"{path}?{own},metadata.name%3Dmine").ok()
        node.get(path).fails(403, "Forbidden")
        node.get(f"{path}?fieldSelector=spec.nodeName%3Dn2").fails(403, "Forbidden")
        node.get(f"{path}?fieldSelector=spec.nodeName!%3Dn1").fails(403, "Forbidden")
        node.get(f"{path}?fieldSelector=metadata.name%3Dmine").fails(403, "Forbidden")


def test_itself_and_its_lease_and_no_others(node):
    node.get("/api/v1/nodes/n1").ok()
    node.get("/api/v1/nodes/n2").fails(403, "Forbidden")
    node.get("/api/v1/nodes").fails(403, "Forbidden")
    (only,) = node.get("/api/v1/nodes?fieldSelector=metadata.name%3Dn1").ok()["items"]
    assert only["metadata"]["name"] == "n1"
    node.get(LEASES).fails(403, "Forbidden")
    node.get(f"{LEASES}/n2").fails(403, "Forbidden")
    node.get(f"{LEASES}/n1").fails(404, "NotFound")
    node.get("/api/v1/services").ok()


def test_what_can_i_do_says_the_same(node):
    def can(**attributes):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "list", "resource": "pods", **attributes}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return node.post(path, review).ok(201)["status"]["allowed"]

    assert not can()
    assert can(fieldSelector={"rawSelector": "spec.nodeName=n1"})
    own = {"key": "spec.nodeName", "operator": "In", "values": ["n1"]}
    assert can(fieldSelector={"requirements": [own]})
    assert not can(fieldSelector={"requirements": [{**own, "values": ["n1", "n2"]}]})
    assert not can(fieldSelector={"rawSelector": "spec.nodeName"})


REFERENCES = {
    "volumes": [
        {"name": "a", "secret": {"secretName": "in-volume"}},
        {
            "name": "b",
            "projected": {"sources": [{"secret": {"name": "projected"}},
                                      {"configMap": {"name": "projected"}}]},
        },
        {"name": "c", "configMap": {"name": "in-volume"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "claimed"}},
        {
            "name": "e",
            "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}},
        },
    ],
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
        {
            "name": "c",
            "image": "i",
            "envFrom": [{"secretRef": {"name": "whole"}}, {"configMapRef": {"name": "whole"}}],
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}},
            ],
        }
    ],
}  # fmt: skip
NAMED = {
    "secrets": ["in-volume", "projected", "pull", "whole", "one"],
    "configmaps": ["in-volume", "projected", "whole", "one"],
    "persistentvolumeclaims": ["claimed", "refers-e"],
}


def test_what_its_own_pods_refer_to_and_nothing_else(api, node):
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    base = "/api/v1/namespaces/default"
    for resource, names in NAMED.items():
        for name in [*names, "other", "i"]:
            body = {"metadata": {"name": name}}
            if resource == "persistentvolumeclaims":
                body["spec"] = claim
            api.post(f"{base}/{resource}", body).ok(201)
            node.get(f"{base}/{resource}/{name}").fails(403, "Forbidden")
    for name, where in (("refers", "n1"), ("elsewhere", "n2")):
        spec = {**REFERENCES, "nodeName": where}
        if where == "n2":
            spec = {**spec, "imagePullSecrets": [{"name": "other"}]}
        api.post(PODS, {"metadata": {"name": name}, "spec": spec}).ok(201)

    for resource, names in NAMED.items():
        for name in names:
            one = f"{base}/{resource}/{name}"
            assert node.get(one).ok()["metadata"]["name"] == name
            listed = node.get(f"{base}/{resource}?fieldSelector=metadata.name={name}")
            if resource == "persistentvolumeclaims":
                listed.fails(403, "Forbidden")
            else:
                assert [item["metadata"]["name"] for item in listed.ok()["items"]] == [name]
            node.patch(one, {"metadata": {"labels": {"a": "b"}}}).fails(403, "Forbidden")
            node.delete(one).fails(403, "Forbidden")
        # Another pod's, a part of the image's name, and one that is not there.
        for name in ("other", "i", "missing"):
            node.get(f"{base}/{resource}/{name}").fails(403, "Forbidden")
        node.get(f"{base}/{resource}").fails(403, "Forbidden")
        node.get(f"/api/v1/namespaces/kube-system/{resource}/one").fails(403, "Forbidden")
    api.delete(f"{PODS}/refers", {"gracePeriodSeconds": 0}).ok()
    node.get(f"{base}/secrets/pull").fails(403, "Forbidden")


def test_a_mirror_pod_gives_its_agent_nothing_to_read(api, node):
    """The agent makes it, and would choose."""
    base = "/api/v1/namespaces/default"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    name = "mirrored-data"
    api.post(f"{base}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": claim}).ok(201)
    me = api.get("/api/v1/nodes/n1").ok()["metadata"]
    metadata = {
        "name": "mirrored",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": me["uid"], "controller": True}
        ],
    }
    volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    spec = {
        "nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": [volume],
    }  # fmt: skip
    node.post(PODS, {"metadata": metadata, "spec": spec}).ok(201)
    node.get(f"{base}/persistentvolumeclaims/{name}").fails(403, "Forbidden")
