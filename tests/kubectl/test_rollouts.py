"""kubectl rollout, scale and wait against workloads whose pods run on nodes with agents."""

import json
from collections.abc import Iterator

import pytest

from tests.forms import few
from tests.kubectl.conftest import Kubectl
from tests.kubelets import Kubelets
from tests.live import Service
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db]

TEMPLATE = """
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {{own: {own}}}
      containers:
      - name: main
        image: {image}
        resources: {{requests: {{cpu: 10m, memory: 16Mi}}}}
"""
DEPLOYMENT = (
    """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  progressDeadlineSeconds: {deadline}
"""
    + TEMPLATE
)
DAEMON_SET = (
    """
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}}}
spec:
"""
    + TEMPLATE
)


@pytest.fixture
def kubelets(kubectl: Kubectl, live: Service) -> Iterator[Kubelets]:
    own = kubectl.namespace
    with Kubelets(live, own, [f"{own}-a", f"{own}-b"], own) as running:
        yield running


def deploy(kubectl, *, name="web", replicas=3, image="example.com/web:1", deadline=60):
    text = DEPLOYMENT.format(
        name=name, replicas=replicas, image=image, own=kubectl.namespace, deadline=deadline
    )
    kubectl.says("created", "create", "-f", "-", stdin=text)


def rolled_out(kubectl, what="deployment/web"):
    kubectl.says("successfully rolled out", "rollout", "status", what, "--timeout=50s")


def images(kubectl, app="web"):
    found = json.loads(kubectl.run("get", "pods", "-l", f"app={app}", "-o", "json"))["items"]
    return sorted(
        one["spec"]["containers"][0]["image"].rpartition("/")[2]
        for one in found
        if "deletionTimestamp" not in one["metadata"]
    )


def test_a_deployment_is_rolled_out_undone_and_told(kubectl, kubelets):
    deploy(kubectl)
    rolled_out(kubectl)
    kubectl.says("condition met", "wait", "--for=condition=Available", "deploy/web", "--timeout=9s")
    kubectl.says(r"^web +3/3 +3 +3 ", "get", "deployments", "--no-headers")
    kubectl.run("set", "image", "deployment/web", "main=example.com/web:2")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 3
    kubectl.says(r"^2 ", "rollout", "history", "deployment/web")
    kubectl.says(r"web:1", "rollout", "history", "deployment/web", "--revision=1")
    kubectl.says("rolled back", "rollout", "undo", "deployment/web")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:1"] * 3
    history = kubectl.run("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["2", "3"]
    kubectl.says("rolled back", "rollout", "undo", "deployment/web", "--to-revision=2")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 3
    described = kubectl.run("describe", "deployment/web")
    assert "NewReplicaSetAvailable" in described
    assert "ScalingReplicaSet" in described


STATEFUL_SET = (
    """
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  replicas: 1
"""
    + TEMPLATE
)


@pytest.mark.parametrize("kind", few(["deployment", "statefulset", "daemonset"]))
def test_a_change_can_be_undone_by_the_next_command(kubectl, kubelets, kind):
    """Each change has its revision by then: the undo finds it, and what was before it."""
    manifest = {"deployment": DEPLOYMENT, "statefulset": STATEFUL_SET, "daemonset": DAEMON_SET}
    text = manifest[kind].format(
        name="web", replicas=1, image="example.com/web:1", own=kubectl.namespace, deadline=60
    )
    kubectl.says("created", "create", "-f", "-", stdin=text)
    kubectl.run("rollout", "status", f"{kind}/web", "--timeout=50s")
    image = ("get", kind, "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    for number in (2, 3):
        kubectl.run("set", "image", f"{kind}/web", f"main=example.com/web:{number}")
        kubectl.says("rolled back", "rollout", "undo", f"{kind}/web")
        assert kubectl.run(*image).strip() == "example.com/web:1"
    kubectl.run("rollout", "status", f"{kind}/web", "--timeout=50s")


@pytest.mark.long
def test_restart_pause_resume_and_scale(kubectl, kubelets):
    deploy(kubectl)
    rolled_out(kubectl)
    before = kubectl.run("get", "pods", "-o", "name").split()
    kubectl.says("restarted", "rollout", "restart", "deployment/web")
    rolled_out(kubectl)
    # A rollout is over while a pod of before still ends; its agent removes it.
    now = ("get", "pods", "-o", "name")
    until(lambda: not set(before) & set(kubectl.run(*now).split()), what="their end")
    kubectl.says("paused", "rollout", "pause", "deployment/web")
    kubectl.run("set", "image", "deployment/web", "main=example.com/web:2")
    kubectl.says("scaled", "scale", "deployment/web", "--replicas=5")
    until(lambda: images(kubectl) == ["web:1"] * 5, what="five pods of the former template")
    kubectl.says("resumed", "rollout", "resume", "deployment/web")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 5
    kubectl.says("scaled", "scale", "deployment/web", "--current-replicas=5", "--replicas=1")
    until(lambda: images(kubectl) == ["web:2"], what="one pod")


@pytest.mark.long
def test_a_rollout_that_does_not_go_on_is_told(kubectl, kubelets):
    deploy(kubectl, deadline=4)
    rolled_out(kubectl)
    kubectl.run("set", "image", "deployment/web", "main=broken.example.com/web:2")
    kubectl.says(
        "exceeded its progress deadline",
        "rollout", "status", "deployment/web", "--timeout=50s", fails=True,
    )  # fmt: skip
    assert images(kubectl) == ["web:1"] * 3 + ["web:2"]
    message = kubectl.run(
        "get", "deployment/web", "-o",
        "jsonpath={.status.conditions[?(@.type=='Available')].message}",
    )  # fmt: skip
    assert "1 not reported ready by the agent of their node" in message
    kubectl.says("rolled back", "rollout", "undo", "deployment/web")
    rolled_out(kubectl)


@pytest.mark.long
def test_without_agents_a_rollout_goes_through(kubectl, live):
    """Nodes that were only described: what is bound there counts as ready."""
    own = kubectl.namespace
    node = {
        "metadata": {"name": f"{own}-n", "labels": {"own": own}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}},
    }
    assert live.request("POST", "/api/v1/nodes", node)[0] == 201
    try:
        deploy(kubectl)
        rolled_out(kubectl)
        kubectl.run("set", "image", "deployment/web", "main=example.com/web:2")
        rolled_out(kubectl)
        assert images(kubectl) == ["web:2"] * 3
    finally:
        live.request("DELETE", f"/api/v1/nodes/{own}-n")


@pytest.mark.long
def test_a_daemon_set_is_rolled_out_and_undone(kubectl, kubelets):
    text = DAEMON_SET.format(name="agent", image="example.com/agent:1", own=kubectl.namespace)
    kubectl.says("created", "create", "-f", "-", stdin=text)
    rolled_out(kubectl, "daemonset/agent")
    assert images(kubectl, "agent") == ["agent:1"] * 2
    kubelets.add(f"{kubectl.namespace}-c")
    until(lambda: len(images(kubectl, "agent")) == 3, what="a daemon on the new node")
    kubectl.run("set", "image", "daemonset/agent", "main=example.com/agent:2")
    rolled_out(kubectl, "daemonset/agent")
    assert images(kubectl, "agent") == ["agent:2"] * 3
    kubectl.says(r"^2 ", "rollout", "history", "daemonset/agent")
    kubectl.says("rolled back", "rollout", "undo", "daemonset/agent")
    rolled_out(kubectl, "daemonset/agent")
    assert images(kubectl, "agent") == ["agent:1"] * 3


def test_a_job_completes(kubectl, kubelets):
    """kubectl create job, with a selector for the test's own nodes."""
    made = kubectl.run("create", "job", "once", "--image=busybox", "--dry-run=client", "-o", "json")
    job = json.loads(made)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"own": kubectl.namespace}
    kubectl.says("created", "create", "-f", "-", stdin=json.dumps(job))
    kubectl.says("condition met", "wait", "--for=condition=complete", "job/once", "--timeout=50s")
    kubectl.says(r"^once .*1/1", "get", "jobs", "--no-headers")
