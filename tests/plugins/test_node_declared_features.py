"""NodeDeclaredFeatures: which features a pod needs, what is said of nodes without them."""

import pytest

from clusterstate.objects.rules import scheduling_class
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_class
from scheduling.framework.configuration.documents import load
from scheduling.plugins.catalogue import build_framework
from tests.plugins.test_queueing_hints import node

RESTART = {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]}
MOUNTED = {"initContainers": [{"volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}]}
OWN_USERS = {"hostNetwork": True, "hostUsers": False}
EVERYTHING = RESTART | MOUNTED | OWN_USERS
MISSING = "node(s) didn't match Pod's required features"
MISSING_1_36 = "node declared features check failed - unsatisfied requirements: "


def place(spec, features, version="1.37"):
    """Return what is decided about two pods, the second after the node declares everything."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "compatibility": version,
    }
    (profile,) = load(document).profiles
    framework = build_framework(profile)
    snapshot = Snapshot(capacity=4)
    snapshot.set_node(node(features=features, cpu="4"))
    info = snapshot.intern(
        from_class(*scheduling_class.encode({"spec": spec}), profile.compatibility)
    )
    decider, found = Decider(snapshot, framework), []
    for name in ("first", "second"):
        pods = [PodToPlace(name, info)]
        made = schedule_batch(snapshot, framework, pods, Options(), decider=decider)
        refused = [one.message for one in made.unplaced()]
        found.append(refused[0] if refused else True)
        every = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
        snapshot.set_node(node(features=[*every, "VolumeBindMountOptions"], cpu="4"))
    return found


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (RESTART, "RestartAllContainersOnContainerExits"),
        (OWN_USERS, "UserNamespacesHostNetworkSupport"),
        (MOUNTED, "VolumeBindMountOptions"),
    ],
)
def test_a_pod_waits_for_a_node_that_declares_what_it_needs(spec, needed):
    assert place(spec, [needed]) == [True, True]
    refused, later = place(spec, ["Another"])
    assert refused.startswith(f"0/1 nodes are available: 1 {MISSING}.")
    assert later is True, "the node declares it now"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"restartPolicyRules": [{"action": "Restart"}]}]},
        {"hostNetwork": True},
        {"hostUsers": False},
        {"containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    ],
)
def test_other_pods_need_nothing(spec):
    assert place(spec, []) == [True, True]


def test_until_1_37_what_is_missing_is_named_and_mounts_need_nothing():
    refused, later = place(EVERYTHING, ["UserNamespacesHostNetworkSupport"], "1.36")
    wanted = f"{MISSING_1_36}RestartAllContainersOnContainerExits"
    assert refused.startswith(f"0/1 nodes are available: 1 {wanted}.")
    assert later is True
    assert place(MOUNTED, [], "1.36") == [True, True]
