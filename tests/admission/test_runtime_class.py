"""RuntimeClass: where its pods may go and what they cost (R42-R60, R137-R146)."""

import msgspec
import pytest

from clusterstate.admission.plugins.runtime_class import WAIT_GATE, provenance, resume
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.pod import Pod
from tests.admission.context import Known, create, pod
from tests.builders import make_node
from tests.reference.node_affinity import required_match

WINDOWS = {
    "metadata": {"name": "windows"},
    "handler": "docker-windows",
    "scheduling": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [
            {"key": "windows.microsoft.com", "operator": "Exists", "effect": "NoSchedule"}
        ],
    },
}
KATA = {
    "metadata": {"name": "kata-fc"},
    "handler": "kata-fc",
    "overhead": {"podFixed": {"memory": "120Mi", "cpu": "250m"}},
}


def _known(*classes, **switches):
    return Known(runtime_classes=classes or (WINDOWS, KATA), **switches)


def test_the_class_selects_nodes_and_tolerates_their_taint():
    """R42, R43, R47, R57: a developer names the runtime and states no constraint."""
    spec = create(pod({"runtimeClassName": "windows"}), _known()).manifest["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "windows"}
    assert WINDOWS["scheduling"]["tolerations"][0] in spec["tolerations"]


def test_a_pod_without_class_gets_no_constraint():
    """R52, R57, R62: Linux pods do not tolerate the Windows taint, and nobody chooses a class."""
    spec = create(pod(), _known()).manifest["spec"]
    assert "runtimeClassName" not in spec
    assert "nodeSelector" not in spec
    assert all(t["key"].startswith("node.kubernetes.io/") for t in spec["tolerations"])


def test_a_class_without_scheduling_adds_nothing():
    """R52."""
    bare = {"metadata": {"name": "bare"}, "handler": "runc"}
    admitted = create(pod({"runtimeClassName": "bare"}), _known(bare)).manifest
    assert "nodeSelector" not in admitted["spec"]
    assert provenance(admitted) is None


def test_the_pods_own_selector_and_that_of_the_class_both_hold():
    """R44, R46: a GPU selector and a Windows runtime mean Windows nodes with GPU."""
    manifest = pod({"runtimeClassName": "windows", "nodeSelector": {"gpu": "yes"}})
    spec = create(manifest, _known()).manifest["spec"]
    assert spec["nodeSelector"] == {"gpu": "yes", "kubernetes.io/os": "windows"}


def test_a_conflicting_selector_is_refused():
    """R48."""
    manifest = pod({"runtimeClassName": "windows", "nodeSelector": {"kubernetes.io/os": "linux"}})
    with pytest.raises(Forbidden) as refused:
        create(manifest, _known())
    assert refused.value.message == (
        'pods "web" is forbidden: conflict: runtimeClass.scheduling.nodeSelector'
        "[kubernetes.io/os] = windows; pod.spec.nodeSelector[kubernetes.io/os] = linux"
    )


def test_tolerations_are_united_and_duplicates_merged():
    """R49."""
    own = {"key": "windows.microsoft.com", "operator": "Exists"}
    manifest = pod({"runtimeClassName": "windows", "tolerations": [own]})
    tolerations = create(manifest, _known()).manifest["spec"]["tolerations"]
    # The pod's own toleration covers every effect, that of the class among them.
    assert [t for t in tolerations if t["key"] == "windows.microsoft.com"] == [own]


def test_an_unknown_class_is_refused():
    """R50, R51: the plugin is on by default."""
    with pytest.raises(Forbidden, match='pod rejected: RuntimeClass "nope" not found'):
        create(pod({"runtimeClassName": "nope"}), _known())


def test_an_unknown_class_may_be_waited_for():
    """R54, C8: with waitForRuntimeClass the pod is held, and goes on when the class appears."""
    known = _known(KATA, wait_for_runtime_class=True)
    waiting = create(pod({"runtimeClassName": "windows"}), known)
    assert waiting.manifest["spec"]["schedulingGates"] == [{"name": WAIT_GATE}]
    assert len(waiting.warnings) == 1
    resumed = resume(waiting.manifest, WINDOWS)
    assert "schedulingGates" not in resumed["spec"]
    assert resumed["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}


def test_who_names_a_node_does_not_wait_for_a_class():
    """R50, R54: a gate would keep the node's name from being accepted, in words about the gate."""
    known = _known(KATA, wait_for_runtime_class=True)
    with pytest.raises(Forbidden, match='pod rejected: RuntimeClass "windows" not found'):
        create(pod({"runtimeClassName": "windows", "nodeName": "n1"}), known)


def test_what_came_from_the_class_is_noted():
    """C7, R53: the explanation can name the RuntimeClass as the cause."""
    manifest = pod({"runtimeClassName": "windows", "nodeSelector": {"gpu": "yes"}})
    note = provenance(create(manifest, _known()).manifest)
    assert note is not None
    assert (note.name, note.node_selector) == ("windows", ("kubernetes.io/os",))
    assert [t["key"] for t in note.tolerations] == ["windows.microsoft.com"]


def test_a_sandbox_is_kept_apart():
    """R58: trusted pods stay off the tainted nodes, sandboxed ones go there and nowhere else."""
    sandbox = {
        "metadata": {"name": "sandboxed"},
        "handler": "gvisor",
        "scheduling": {
            "nodeSelector": {"sandboxed.kubernetes.io/runtime": "gvisor"},
            "tolerations": [{"key": "sandboxed.kubernetes.io", "operator": "Exists"}],
        },
    }
    spec = create(pod({"runtimeClassName": "sandboxed"}), _known(sandbox)).manifest["spec"]
    assert {"key": "sandboxed.kubernetes.io", "operator": "Exists"} in spec["tolerations"]
    assert spec["nodeSelector"] == {"sandboxed.kubernetes.io/runtime": "gvisor"}


def test_overhead_comes_from_the_class():
    """R137, R142, R144: ``test-pod`` of the documents."""
    containers = [
        {"name": "busybox-ctr", "image": "busybox", "resources": {"limits": {"cpu": "500m"}}},
        {"name": "nginx-ctr", "image": "nginx", "resources": {"limits": {"cpu": "1500m"}}},
    ]
    manifest = pod({"runtimeClassName": "kata-fc", "containers": containers})
    spec = create(manifest, _known()).manifest["spec"]
    assert spec["overhead"] == {"memory": "120Mi", "cpu": "250m"}


def test_the_same_overhead_may_be_stated():
    """C14: a manifest that was read back carries it; 0.25 and 250m are the same."""
    overhead = {"cpu": "0.25", "memory": "120Mi"}
    manifest = pod({"runtimeClassName": "kata-fc", "overhead": overhead})
    assert create(manifest, _known()).manifest["spec"]["overhead"] == KATA["overhead"]["podFixed"]


def test_another_overhead_is_refused():
    """R138, C14."""
    manifest = pod({"runtimeClassName": "kata-fc", "overhead": {"cpu": "1"}})
    with pytest.raises(Forbidden, match="doesn't match RuntimeClass's defined Overhead"):
        create(manifest, _known())


def test_overhead_without_class_is_refused():
    """R138."""
    with pytest.raises(Forbidden, match="set without corresponding RuntimeClass"):
        create(pod({"overhead": {"cpu": "1"}}), _known())


@pytest.mark.parametrize(("os", "matches"), [("windows", True), ("linux", False)])
def test_only_nodes_of_the_class_match(os, matches):
    """R43, R60."""
    admitted = create(pod({"runtimeClassName": "windows"}), _known()).manifest
    node = make_node("n").labelled({"kubernetes.io/os": os}).build()
    assert required_match(msgspec.convert(admitted, Pod), node) is matches
