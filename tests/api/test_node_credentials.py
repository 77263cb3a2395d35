"""A node's own credential: its node, its pods, its lease, and nothing else (R59, R77)."""

import json

import pytest

from clusterstate.change_log import changes
from tests.api.conftest import MERGE, Api, make_token, names
from tests.api.serve import request
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
        node.get(f"{path}?fieldSelector=metadata.name%3Dother").fails(403, "Forbidden")
    node.get(f"{PODS}?fieldSelector=metadata.name%3Dmine").ok()
    node.get("/api/v1/pods?fieldSelector=metadata.name%3Dmine").fails(403, "Forbidden")


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
    for resource, several in NAMED.items():
        for name in [*several, "other", "i"]:
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

    for resource, several in NAMED.items():
        for name in several:
            one = f"{base}/{resource}/{name}"
            assert node.get(one).ok()["metadata"]["name"] == name
            listed = node.get(f"{base}/{resource}?fieldSelector=metadata.name={name}")
            if resource == "persistentvolumeclaims":
                listed.fails(403, "Forbidden")
            else:
                assert names(listed) == [name]
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
    """The agent makes such pods, and would choose. One that needs objects it may not make."""
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
    status = node.post(PODS, {"metadata": metadata, "spec": spec}).fails(403, "Forbidden")
    assert "reference persistentvolumeclaims (via ephemeral volumes)" in status["message"]
    api.post(PODS, {"metadata": metadata, "spec": spec}).ok(201)
    node.get(f"{base}/persistentvolumeclaims/{name}").fails(403, "Forbidden")


STORAGE = "/apis/storage.k8s.io/v1"
DEVICES = "/apis/resource.k8s.io/v1"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def secret_reference(name, namespace="default"):
    return {"name": name, "namespace": namespace}


def test_volumes_of_its_own_claims_and_their_secrets(api, node):
    base = "/api/v1/namespaces/default"
    csi = {
        "driver": "d.example.com", "volumeHandle": "h",
        "nodePublishSecretRef": secret_reference("publish"),
        "nodeStageSecretRef": secret_reference("stage"),
        "controllerPublishSecretRef": secret_reference("controller"),
    }  # fmt: skip
    for which, where in (("own", "n1"), ("strange", "n2")):
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
        if which == "strange":
            volume["csi"] = {**csi, "nodePublishSecretRef": secret_reference("other")}
            del volume["csi"]["nodeStageSecretRef"]
        volume["claimRef"] = {"namespace": "default", "name": which}
        api.post("/api/v1/persistentvolumes", {"metadata": {"name": which}, "spec": volume}).ok(201)
        claim = {"metadata": {"name": which}, "spec": {**CLAIM, "volumeName": which}}
        api.post(f"{base}/persistentvolumeclaims", claim).ok(201)
        spec = {
            "nodeName": where, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": which}}],
        }  # fmt: skip
        api.post(PODS, {"metadata": {"name": which}, "spec": spec}).ok(201)
    for name in ("publish", "stage", "controller", "other"):
        api.post(f"{base}/secrets", {"metadata": {"name": name}}).ok(201)

    node.get("/api/v1/persistentvolumes/own").ok()
    for path in ("/strange", "/none", "", "?fieldSelector=metadata.name%3Down"):
        node.get(f"/api/v1/persistentvolumes{path}").fails(403, "Forbidden")
    node.get(f"{base}/secrets/publish").ok()
    node.get(f"{base}/secrets/stage").ok()
    node.get(f"{base}/secrets/controller").fails(403, "Forbidden")
    node.get(f"{base}/secrets/other").fails(403, "Forbidden")
    api.delete(f"{PODS}/own", {"gracePeriodSeconds": 0}).ok()
    node.get("/api/v1/persistentvolumes/own").fails(403, "Forbidden")
    node.get(f"{base}/secrets/stage").fails(403, "Forbidden")


def test_the_status_of_its_own_claims_and_no_more_of_them(api, node):
    base = "/api/v1/namespaces/default/persistentvolumeclaims"
    for name, where in (("own", "n1"), ("strange", "n2")):
        api.post(base, {"metadata": {"name": name}, "spec": CLAIM}).ok(201)
        spec = {
            "nodeName": where, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
        }  # fmt: skip
        api.post(PODS, {"metadata": {"name": name}, "spec": spec}).ok(201)
    grown = {"status": {"capacity": {"storage": "2Gi"}}}
    node.patch(f"{base}/own/status", grown).ok()
    node.patch(f"{base}/strange/status", grown).fails(403, "Forbidden")
    node.patch(f"{base}/own", {"metadata": {"labels": {"a": "b"}}}).fails(403, "Forbidden")
    for more in ({"metadata": {"labels": {"a": "b"}}}, {"status": {"phase": "Lost"}}):
        node.patch(f"{base}/own/status", more).fails(403, "Forbidden")


def test_attachments_and_its_own_csi_node(api, node):
    for name, where in (("a1", "n1"), ("a2", "n2")):
        spec = {"attacher": "d", "nodeName": where, "source": {"persistentVolumeName": "v"}}
        api.post(f"{STORAGE}/volumeattachments", {"metadata": {"name": name}, "spec": spec}).ok(201)
    node.get(f"{STORAGE}/volumeattachments/a1").ok()
    node.get(f"{STORAGE}/volumeattachments/a2").fails(403, "Forbidden")
    node.get(f"{STORAGE}/volumeattachments").fails(403, "Forbidden")
    node.delete(f"{STORAGE}/volumeattachments/a1").fails(403, "Forbidden")

    def body(name):
        return {"metadata": {"name": name}, "spec": {"drivers": []}}

    path = f"{STORAGE}/csinodes"
    node.get(f"{path}/n1").fails(404, "NotFound")
    node.post(path, body("n2")).fails(403, "Forbidden")
    node.post(path, body("n1")).ok(201)
    api.post(path, body("n2")).ok(201)
    node.patch(f"{path}/n1", {"metadata": {"labels": {"a": "b"}}}).ok()
    node.patch(f"{path}/n2", {"metadata": {"labels": {"a": "b"}}}).fails(403, "Forbidden")
    node.get(f"{path}/n2").fails(403, "Forbidden")
    node.get(path).fails(403, "Forbidden")
    node.delete(f"{path}/n2").fails(403, "Forbidden")
    node.delete(f"{path}/n1").ok()
    node.get(f"{STORAGE}/csidrivers").ok()


def test_device_claims_of_its_pods_and_its_own_slices(api, node):
    claims = f"{DEVICES}/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    for name in ("named", "made", "other"):
        spec = {"devices": {"requests": [request]}}
        api.post(claims, {"metadata": {"name": name}, "spec": spec}).ok(201)
    wanted = [
        {"name": "a", "resourceClaimName": "named"},
        {"name": "b", "resourceClaimTemplateName": "template"},
    ]
    spec = {
        "nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "resourceClaims": wanted,
    }  # fmt: skip
    api.post(PODS, {"metadata": {"name": "computes"}, "spec": spec}).ok(201)
    node.get(f"{claims}/named").ok()
    node.get(f"{claims}/made").fails(403, "Forbidden")
    status = {"status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}]}}
    node.patch(f"{PODS}/computes/status", status).fails(403, "Forbidden")
    api.patch(f"{PODS}/computes/status", status).ok()
    node.get(f"{claims}/made").ok()
    node.get(f"{claims}/other").fails(403, "Forbidden")
    node.get(claims).fails(403, "Forbidden")

    slices = f"{DEVICES}/resourceslices"

    def body(name, where):
        pool = {"name": where, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": where, "pool": pool}
        return {"metadata": {"name": name}, "spec": spec}

    node.post(slices, body("s1", "n1")).ok(201)
    node.post(slices, body("s2", "n2")).fails(403, "Forbidden")
    api.post(slices, body("s2", "n2")).ok(201)
    label = {"metadata": {"labels": {"a": "b"}}}
    node.patch(f"{slices}/s1", label).ok()
    node.get(f"{slices}/s1").ok()
    node.patch(f"{slices}/s2", label).fails(403, "Forbidden")
    node.get(f"{slices}/s2").fails(403, "Forbidden")
    node.get(slices).fails(403, "Forbidden")
    own = f"{slices}?fieldSelector=spec.nodeName%3Dn1"
    (only,) = node.get(own).ok()["items"]
    assert only["metadata"]["name"] == "s1"
    node.delete(slices).fails(403, "Forbidden")
    node.delete(f"{slices}?fieldSelector=spec.nodeName%3Dn2").fails(403, "Forbidden")
    node.delete(own).ok()
    assert names(api.get(slices)) == ["s2"]


def test_tokens_of_the_accounts_of_its_own_pods(api, node):
    base = "/api/v1/namespaces/default/serviceaccounts"
    for name in ("robot", "other"):
        api.post(base, {"metadata": {"name": name}}).ok(201)
    mounted = {"serviceAccountToken": {"path": "t"}}
    vault = {"serviceAccountToken": {"path": "v", "audience": "vault"}}
    uids = {}
    for name, where in (("own", "n1"), ("strange", "n2")):
        spec = {
            "nodeName": where, "serviceAccountName": "robot",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "projected": {"sources": [mounted, vault]}}],
        }  # fmt: skip
        made = api.post(PODS, {"metadata": {"name": name}, "spec": spec}).ok(201)
        uids[name] = made["metadata"]["uid"]

    def ask(account="robot", pod="own", audiences=(), **bound):
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uids.get(pod), **bound}
        spec = {"audiences": list(audiences), "boundObjectRef": reference}
        return node.post(f"{base}/{account}/token", {"spec": spec})

    ask().ok(201)
    ask(audiences=["vault"]).ok(201)
    ask(account="other").fails(403, "Forbidden")
    for said, wrong in {
        "not bound to a pod": {"kind": "Node", "name": "n1"},
        "without a uid": {"uid": ""},
        "does not match": {"uid": "00000000-0000-0000-0000-000000000000"},
        "on a different node": {"pod": "strange"},
        "0 or 1 audiences": {"audiences": ["vault", ""]},
        "not authorized to request tokens for this audience": {"audiences": ["bank"]},
    }.items():
        assert said in ask(**wrong).fails(403, "Forbidden")["message"]
    node.post(f"{base}/robot/token", {"spec": {}}).fails(403, "Forbidden")
    node.get(f"{base}/robot").fails(403, "Forbidden")
    role = {
        "metadata": {"name": "for-the-bank"},
        "rules": [
            {
                "apiGroups": [""], "resources": ["bank"], "resourceNames": ["robot"],
                "verbs": ["request-serviceaccounts-token-audience"],
            }
        ],
    }  # fmt: skip
    rights = "/apis/rbac.authorization.k8s.io/v1"
    api.post(f"{rights}/clusterroles", role).ok(201)
    binding = {
        "metadata": {"name": "for-the-bank"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "for-the-bank"
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:node:n1"}
        ],
    }  # fmt: skip
    api.post(f"{rights}/clusterrolebindings", binding).ok(201)
    ask(audiences=["bank"]).ok(201)
    ask(audiences=["mint"]).fails(403, "Forbidden")


def test_what_the_role_of_nodes_names_besides(node):
    review = {"spec": {"token": "nobody's"}}
    answer = node.post("/apis/authentication.k8s.io/v1/tokenreviews", review).ok(201)
    assert not answer["status"].get("authenticated")
    question = {"spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    node.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", question).ok(201)
    node.get("/api/v1/namespaces/default/endpoints/none").fails(404, "NotFound")
    node.get("/api/v1/endpoints").fails(403, "Forbidden")
    node.get("/apis/certificates.k8s.io/v1/certificatesigningrequests").ok()


def test_the_server_asks_for_references_before_it_refuses_an_agent(server, node):
    """The event loop judges what is sent by roles alone; of pods only the database knows."""
    base = "/api/v1/namespaces/default"
    api = Api(make_token("operator", ["system:masters"]))
    api.post(f"{base}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": CLAIM}).ok(201)
    mounted = {"serviceAccountToken": {"path": "t"}}
    spec = {
        "nodeName": "n1", "serviceAccountName": "default",
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [
            {"name": "t", "projected": {"sources": [mounted]}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
        ],
    }  # fmt: skip
    uid = api.post(PODS, {"metadata": {"name": "own"}, "spec": spec}).ok(201)["metadata"]["uid"]
    api.post(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})

    def send(method, path, body, kind="application/json"):
        told = json.dumps(body).encode()
        return server.ask(method, f"{base}/{path}", node.token, told, content_type=kind)[0]

    bound = {"apiVersion": "v1", "kind": "Pod", "name": "own", "uid": uid}
    token = {"spec": {"boundObjectRef": bound}}
    grown = {"status": {"capacity": {"storage": "2Gi"}}}
    assert send("POST", "serviceaccounts/default/token", token) == 201
    assert send("PATCH", "persistentvolumeclaims/c/status", grown, MERGE) == 200
    assert send("POST", "serviceaccounts/other/token", token) == 403
    assert send("PATCH", "persistentvolumeclaims/other/status", grown, MERGE) == 403


@pytest.mark.django_db(transaction=True)
def test_a_pod_that_had_the_name_on_another_node_is_not_told(api, server):
    """By name an agent lists and watches its own pod: no version of one that was elsewhere."""
    for name in ("n1", "n2"):
        make_node(name)
    make_pod("p", "n2", labels={"secret": "of-n2"})
    before = changes.watermark()
    pods = "/api/v1/namespaces/default/pods"
    api.patch(f"{pods}/p", {"metadata": {"annotations": {"a": "of-n2"}}}).ok()
    there = changes.watermark()
    api.delete(f"{pods}/p?gracePeriodSeconds=0").ok()
    make_pod("p", "n1")
    agent = Api(make_token("system:node:n1", ["system:nodes"]))
    chosen = f"{pods}?fieldSelector=metadata.name%3Dp"
    assert names(agent.get(chosen)) == ["p"]
    exact = f"{chosen}&resourceVersion={there}&resourceVersionMatch=Exact"
    assert names(api.get(exact)) == ["p"]
    assert "of-n2" not in agent.get(exact).raw.decode()
    agent.get(f"{pods}/p?resourceVersion={there}&resourceVersionMatch=Exact").fails(
        403, "Forbidden"
    )
    for token, told in ((agent.token, False), (api.token, True)):
        with server.connect() as socket:
            path = f"{chosen}&watch=1&timeoutSeconds=1&resourceVersion={before}"
            socket.sendall(request("GET", path, token, connection="close"))
            text = b"".join(iter(lambda: socket.recv(1 << 16), b"")).decode()
        assert ("of-n2" in text) is told
        assert '"type":"ADDED"' in text
    trail = "/apis/stowage.dev/v1/changes?kind=Pod&namespace=default&name=p"
    assert [one["type"] for one in agent.get(trail).ok()["items"]] == ["MODIFIED", "ADDED"]
    agent.get(f"{trail}&continue={there}").fails(403, "Forbidden")
