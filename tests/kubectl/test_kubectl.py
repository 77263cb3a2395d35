"""What people type, and what kubectl prints."""

import json
import re
import time

import pytest
import yaml

from tests.live import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db]

NODE = """
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kubernetes.io/hostname: {name}, own: {own}}}
status:
  capacity: {{cpu: "4", memory: 8Gi, pods: "20"}}
  allocatable: {{cpu: "4", memory: 8Gi, pods: "20"}}
  conditions:
  - {{type: Ready, status: "True", reason: KubeletReady}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  {extra}
  nodeSelector: {{own: {own}}}
  containers:
  - name: c
    image: example.com/i:{version}
    resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}
"""


def pod(kubectl, name, *, version=1, extra="terminationGracePeriodSeconds: 1"):
    return POD.format(name=name, own=kubectl.namespace, version=version, extra=extra)


def field(kubectl, what, path):
    return kubectl.run("get", what, "-o", f"jsonpath={path}")


@pytest.fixture
def node(kubectl):
    name = f"node-{kubectl.namespace}"
    kubectl.says(
        "created", "create", "-f", "-", stdin=NODE.format(name=name, own=kubectl.namespace)
    )
    yield name
    kubectl.run("delete", "node", name, "--ignore-not-found")


@pytest.fixture
def placed(kubectl, node):
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "p"))
    kubectl.says("condition met", "wait", "--for=condition=PodScheduled", "pod/p", "--timeout=20s")
    return "p"


def test_discovery(kubectl):
    kubectl.says(r"Server Version", "version")
    kubectl.says(r"^pods +po .*v1 +true +Pod$", "api-resources")
    kubectl.says(r"^scheduling.k8s.io/v1$", "api-versions")
    kubectl.says("doesn't have a resource type", "get", "flurbs", fails=True)
    kubectl.says("yes", "auth", "can-i", "create", "pods")


def test_a_pod_is_created_placed_and_described(kubectl, node, placed):
    """R75: ``get pods -o wide`` shows the node."""
    kubectl.says(r"^p +0/1 +Pending +0 +\S+$", "get", "pods", "--no-headers")
    kubectl.says(rf"^p .* {node} +<none> +<none>$", "get", "pods", "-o", "wide", "--no-headers")
    kubectl.says(
        rf"Scheduled .*Successfully assigned {kubectl.namespace}/p to {node}",
        "describe", "pod", "p",
    )  # fmt: skip
    kubectl.says(rf"{kubectl.namespace} +p +100m", "describe", "node", node)
    kubectl.says(
        r"Normal +Scheduled +pod/p", "get", "events", "--field-selector", "involvedObject.name=p"
    )
    kubectl.says(
        r"^NAMESPACE +NAME", "get", "pods", "-A", "--field-selector", f"spec.nodeName={node}"
    )


def test_a_pod_that_fits_nowhere_says_why(kubectl, node):
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "big").replace("100m", "64"))
    kubectl.says(
        "timed out", "wait", "--for=condition=PodScheduled", "pod/big", "--timeout=2s", fails=True
    )
    kubectl.says(
        r"FailedScheduling .*nodes are available: .*Insufficient cpu", "describe", "pod", "big"
    )


@pytest.mark.long
def test_overhead_is_shown_as_the_documents_show_it(kubectl, node):
    """R144, R145: 2250m are 56 % of the node's 4 CPUs; containers' limits became requests."""
    examples = ROOT / "examples"
    kubectl.run("apply", "-f", str(examples / "runtimeclass-kata-fc.yaml"))
    own = {"spec": {"nodeSelector": {"own": kubectl.namespace}}}
    manifest = yaml.safe_load((examples / "pod-overhead.yaml").read_text())
    manifest["spec"] |= own["spec"]
    kubectl.run("create", "-f", "-", stdin=json.dumps(manifest))
    kubectl.says(
        "condition met", "wait", "--for=condition=PodScheduled", "pod/test-pod", "--timeout=20s"
    )
    printed = field(kubectl, "pod/test-pod", "{.spec.overhead}")
    assert printed in ("map[cpu:250m memory:120Mi]", '{"cpu":"250m","memory":"120Mi"}')
    cpu, memory = r"2250m \(56%\)", r"320Mi \(3%\)"
    kubectl.says(
        rf"{kubectl.namespace} +test-pod +{cpu} +{cpu} +{memory} +{memory}",
        "describe",
        "node",
        node,
    )


def test_apply_changes_what_the_file_changed_and_leaves_the_rest(kubectl, node):
    kubectl.says("pod/a created", "apply", "-f", "-", stdin=pod(kubectl, "a"))
    kubectl.says("pod/a unchanged", "apply", "-f", "-", stdin=pod(kubectl, "a"))
    kubectl.says("labeled", "label", "pod", "a", "byhand=yes")
    kubectl.says("pod/a configured", "apply", "-f", "-", stdin=pod(kubectl, "a", version=2))
    kept = field(kubectl, "pod/a", "{.spec.containers[0].image} {.metadata.labels.byhand}")
    assert kept == "example.com/i:2 yes"
    kubectl.says(
        "is invalid", "apply", "-f", "-", stdin=pod(kubectl, "a").replace("100m", "200m"),
        fails=True,
    )  # fmt: skip


def test_server_side_apply_keeps_managers_apart(kubectl):
    kubectl.says("serverside-applied", "apply", "--server-side", "-f", "-", stdin=pod(kubectl, "a"))
    other = pod(kubectl, "a", version=2)
    arguments = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    kubectl.says("conflict", *arguments, stdin=other, fails=True)
    kubectl.says("serverside-applied", *arguments, "--force-conflicts", stdin=other)


def test_a_dry_run_changes_nothing(kubectl, node):
    kubectl.says("dry run", "create", "--dry-run=server", "-f", "-", stdin=pod(kubectl, "d"))
    kubectl.says("NotFound", "get", "pod", "d", fails=True)
    kubectl.says("dry run", "cordon", node, "--dry-run=server")
    kubectl.says(rf"^{node} +Ready +<none>", "get", "node", node)


@pytest.mark.long
def test_labels_and_selectors(kubectl, node):
    """R74: ``label nodes``, ``get nodes --show-labels`` and ``describe node``."""
    kubectl.says("labeled", "label", "node", node, "disktype=ssd")
    kubectl.says(rf"^node/{node}$", "get", "nodes", "-l", "disktype in (ssd,nvme)", "-o", "name")
    kubectl.says(rf"^{node} .*disktype=ssd", "get", "nodes", "--show-labels")
    kubectl.says("disktype=ssd", "describe", "node", node)
    kubectl.says("labeled", "label", "node", node, "disktype-")
    assert "disktype" not in field(kubectl, f"node/{node}", "{.metadata.labels}")


@pytest.mark.long
def test_taints_are_set_and_removed_one_by_one(kubectl, node):
    """R112, R113: a NoSchedule taint keeps pods away until it is removed."""
    kubectl.says("tainted", "taint", "node", node, "k=v:NoSchedule", "k=v:PreferNoSchedule")
    kubectl.says(r"k=v:NoSchedule", "describe", "node", node)
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "t"))
    kubectl.says(
        "timed out", "wait", "--for=condition=PodScheduled", "pod/t", "--timeout=2s", fails=True
    )
    kubectl.says("untainted", "taint", "node", node, "k:NoSchedule-")
    assert field(kubectl, f"node/{node}", "{.spec.taints[*].effect}") == "PreferNoSchedule"
    kubectl.says("condition met", "wait", "--for=condition=PodScheduled", "pod/t", "--timeout=20s")
    kubectl.says(
        "Invalid|invalid|Unsupported", "patch", "node", node, "-p",
        json.dumps({"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}), fails=True,
    )  # fmt: skip


def test_drain_cordons_and_empties_a_node(kubectl, node, placed):
    kubectl.says("cordoned", "cordon", node)
    kubectl.says(r"Ready,SchedulingDisabled", "get", "node", node)
    unschedulable = "node.kubernetes.io/unschedulable"
    assert unschedulable in field(kubectl, f"node/{node}", "{.spec.taints[*].key}")
    kubectl.says("uncordoned", "uncordon", node)
    assert unschedulable not in field(kubectl, f"node/{node}", "{.spec.taints[*].key}")
    kubectl.says("--force", "drain", node, fails=True)
    kubectl.says("evict|drained", "drain", node, "--force", "--grace-period=1", "--timeout=40s")
    kubectl.says("NotFound", "get", "pod", placed, fails=True)


@pytest.mark.long
def test_evictions_are_there_to_read_until_they_happen(kubectl, node, placed):
    tolerates = (
        "terminationGracePeriodSeconds: 1\n  tolerations:"
        " [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]"
    )
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "patient", extra=tolerates))
    kubectl.says("condition met", "wait", "--for=condition=PodScheduled", "pod/patient",
                 "--timeout=20s")  # fmt: skip
    kubectl.says("tainted", "taint", "node", node, "k=v:NoExecute")
    row = rf"patient\s+{node}\s+taint\s+k:NoExecute\s+\d+m"
    until(lambda: re.search(row, kubectl.run("get", "evictions")), seconds=60, what="the eviction")
    kubectl.says(row, "get", "evictions", "--field-selector", f"spec.nodeName={node}")
    kubectl.says("EvictionScheduled", "describe", "pod", "patient")
    assert field(kubectl, "eviction/patient", "{.spec.tolerationSeconds}") == "600"
    until(
        lambda: not kubectl.run("get", "pod", placed, "--ignore-not-found"),
        seconds=60, what="the pod that tolerates nothing to be gone",
    )  # fmt: skip
    kubectl.says("untainted", "taint", "node", node, "k-")
    until(
        lambda: "No resources found" in kubectl.run("get", "evictions"),
        seconds=60, what="the eviction to be cancelled",
    )  # fmt: skip
    assert not field(kubectl, "pod/patient", "{.metadata.deletionTimestamp}")


def test_delete_waits_until_the_pod_is_gone(kubectl, placed):
    kubectl.says('pod "p"', "delete", "pod", placed, "--timeout=40s")
    kubectl.says("NotFound", "get", "pod", placed, fails=True)
    kubectl.run("delete", "pod", placed, "--ignore-not-found")


@pytest.mark.long
def test_patches_of_three_types(kubectl, node):
    strategic = '{"metadata":{"labels":{"p1":"a"}}}'
    kubectl.says("patched", "patch", "node", node, "-p", strategic)
    kubectl.says("no change", "patch", "node", node, "-p", strategic)
    merge = '{"metadata":{"labels":{"p1":null,"p2":"b"}}}'
    kubectl.says("patched", "patch", "node", node, "--type=merge", "-p", merge)
    operations = '[{"op":"add","path":"/metadata/labels/p3","value":"c"}]'
    kubectl.says("patched", "patch", "node", node, "--type=json", "-p", operations)
    labels = "{.metadata.labels.p1}-{.metadata.labels.p2}-{.metadata.labels.p3}"
    assert field(kubectl, f"node/{node}", labels) == "-b-c"


def test_watching_prints_each_change(kubectl):
    extra = "schedulerName: nobody"
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "w", extra=extra))
    watch = kubectl.start("get", "pods", "-w", "--output-watch-events", "--no-headers")
    assert watch.stdout is not None
    first = watch.stdout.readline()
    assert first.split()[:2] == ["ADDED", "w"]
    kubectl.run("label", "pod", "w", "x=1")
    assert watch.stdout.readline().split()[:2] == ["MODIFIED", "w"]
    kubectl.run("delete", "pod", "w")
    assert watch.stdout.readline().split()[:2] == ["DELETED", "w"]
    watch.kill()
    watch.communicate()


def test_a_wait_that_never_comes_true_ends_in_time(kubectl):
    kubectl.run("create", "-f", "-", stdin=pod(kubectl, "w", extra="schedulerName: nobody"))
    started = time.monotonic()
    kubectl.run("wait", "--for=condition=Flurb", "pod/w", "--timeout=2s", fails=True)
    assert time.monotonic() - started < 8


@pytest.mark.long
def test_scaling_a_deployment(kubectl):
    kubectl.says("created", "create", "deployment", "web", "--image=example.com/web:1")
    kubectl.says("scaled", "scale", "deployment/web", "--replicas=3")
    assert field(kubectl, "deployment/web", "{.spec.replicas}") == "3"
    kubectl.says("image updated", "set", "image", "deployment/web", "web=example.com/web:2")
    kubectl.says(r"^web +\S+/3 ", "get", "deployments", "--no-headers")
    kubectl.says(r"^deployment.web +\d +<none> +<none>$", "get", "selections", "--no-headers")


def test_types_are_explained(kubectl):
    kubectl.says(r"schedulerName\t<string>", "explain", "pod", "--recursive")
    kubectl.says(r"taints\t<\[\](Object|Taint)>", "explain", "node.spec")


def test_a_wrong_token_is_told_so(kubectl):
    kubectl.says("must be logged in|Unauthorized", "get", "nodes", "--token=wrong", fails=True)
