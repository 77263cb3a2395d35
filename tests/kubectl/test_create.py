"""``kubectl create`` of the kinds that people make by hand, and what a cluster has by itself."""

import base64
import json

import pytest

from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db]


def fetched(kubectl, *what):
    return json.loads(kubectl.run("get", *what, "-o", "json"))


def test_configuration_is_created_and_shown(kubectl):
    kubectl.says(r"configmap/settings created", "create", "configmap", "settings",
                 "--from-literal=color=blue", "--from-literal=size=7")  # fmt: skip
    kubectl.says(r"^settings +2 +\d+s$", "get", "cm", "settings", "--no-headers")
    kubectl.says("secret/login created", "create", "secret", "generic", "login",
                 "--from-literal=password=pear")  # fmt: skip
    printed = kubectl.says(r"^login +Opaque +1 +\d+s$", "get", "secret", "login", "--no-headers")
    assert "pear" not in printed
    secret = fetched(kubectl, "secret", "login")
    assert base64.b64decode(secret["data"]["password"]) == b"pear"
    described = kubectl.run("describe", "secret", "login")
    assert "password:  4 bytes" in described
    kubectl.says("serviceaccount/builder created", "create", "serviceaccount", "builder")
    kubectl.says(r"^builder ", "get", "sa", "--no-headers")


def test_services_get_an_address(kubectl):
    kubectl.says("service/web created", "create", "service", "clusterip", "web", "--tcp=80:8080")
    kubectl.says("service/door created", "create", "service", "nodeport", "door", "--tcp=80")
    first, second = fetched(kubectl, "svc", "web")["spec"], fetched(kubectl, "svc", "door")["spec"]
    assert first["clusterIP"] != second["clusterIP"]
    assert 30000 <= second["ports"][0]["nodePort"] <= 32767
    kubectl.says(rf"^web +ClusterIP +{first['clusterIP']} +<none> +80/TCP", "get", "svc",
                 "--no-headers")  # fmt: skip


@pytest.mark.long
def test_work_and_routes_are_created(kubectl):
    kubectl.says("job.batch/once created", "create", "job", "once", "--image=example.com/i:1")
    kubectl.says(r"^once +Running +0/1 ", "get", "jobs", "--no-headers")
    kubectl.says(
        "cronjob.batch/nightly created", "create", "cronjob", "nightly",
        "--image=example.com/i:1", "--schedule=0 3 * * *",
    )  # fmt: skip
    kubectl.says(r"^nightly +0 3 \* \* \* +<none> +False +0 +<none> ", "get", "cj", "--no-headers")
    kubectl.says("ingress.networking.k8s.io/web created", "create", "ingress", "web",
                 "--rule=example.org/*=web:80")  # fmt: skip
    kubectl.says(r"^web +<none> +example.org +80 ", "get", "ing", "--no-headers")


@pytest.mark.long
def test_what_a_cluster_has_by_itself_is_there_and_comes_back(kubectl):
    def there(*what):
        return kubectl.run("get", *what, "--ignore-not-found", "-o", "name").strip()

    until(lambda: there("sa", "default"), what="the account default")
    until(lambda: there("cm", "kube-root-ca.crt"), what="the certificate authority")
    data = fetched(kubectl, "cm", "kube-root-ca.crt")["data"]["ca.crt"]
    assert data == (kubectl.service.state / "ca.crt").read_text()
    uid = fetched(kubectl, "sa", "default")["metadata"]["uid"]
    kubectl.run("delete", "sa", "default")
    until(
        lambda: (
            there("sa", "default") and fetched(kubectl, "sa", "default")["metadata"]["uid"] != uid
        ),
        what="the account to come back",
    )
    kubectl.says(r"^kubernetes +ClusterIP +10.96.0.1 ", "get", "svc", "-n", "default",
                 "kubernetes", "--no-headers")  # fmt: skip
    kubectl.run("create", "deployment", "one", "--image=example.com/i:1")
    until(lambda: there("pods"), what="a pod")
    pod = fetched(kubectl, "pods")["items"][0]
    assert pod["spec"]["serviceAccountName"] == "default"
