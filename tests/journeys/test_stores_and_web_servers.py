"""The worked example of redis-cache and web-server as Deployments (R99)."""

from collections import Counter

from tests.kubelets import Kubelets
from tests.live import Service
from tests.waiting import until

NAMESPACE = "worked-example"


def terms(*apps: str) -> dict:
    expression = {"key": "app", "operator": "In", "values": list(apps)}
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchExpressions": [expression]},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }


def deployment(name: str, app: str, image: str, **affinity: dict) -> dict:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {
                    "nodeSelector": {"own": NAMESPACE},
                    "affinity": affinity,
                    "containers": [{"name": "main", "image": image}],
                },
            },
        },
    }


def test_one_store_and_one_web_server_on_each_of_three_nodes(live: Service) -> None:
    """R99, R136."""
    namespace = {"metadata": {"name": NAMESPACE}}
    assert live.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    web = deployment(
        "web-server", "web-store", "nginx:1.16-alpine",
        podAntiAffinity=terms("web-store"), podAffinity=terms("store"),
    )  # fmt: skip
    store = deployment("redis-cache", "store", "redis:3.2-alpine", podAntiAffinity=terms("store"))
    nodes = [f"worked-{number}" for number in (1, 2, 3)]
    with Kubelets(live, NAMESPACE, nodes, NAMESPACE):
        # The web servers come first and wait for their stores.
        for manifest in (web, store):
            assert live.request("POST", path, manifest)[0] == 201

        def available() -> bool:
            items = live.request("GET", path)[1]["items"]
            return [one["status"].get("availableReplicas") for one in items] == [3, 3]

        until(available, what="both Deployments available")
        pods = live.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")[1]["items"]
        found = Counter((one["metadata"]["labels"]["app"], one["spec"]["nodeName"]) for one in pods)
        assert found == {(app, node): 1 for app in ("store", "web-store") for node in nodes}
        live.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
