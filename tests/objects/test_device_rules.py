"""Whose a claim is, where its devices can be used, and whom their taints drive away."""

import msgspec
import pytest

from clusterstate.objects.dra.allocated import AllocatedState
from clusterstate.objects.dra.allocator import AllocationError, Allocator
from clusterstate.objects.dra.attempt import Attempt
from clusterstate.objects.dra.slices import NodeView, SliceView
from clusterstate.objects.dra.tainteviction import device_taints, pod_leaves
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.values.pod import Pod
from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.events import Action, ClusterEvent, Resource
from scheduling.plugins.queueing_hints import registrations

AT = "2026-01-01T00:00:00Z"
TAINT = {"key": "broken", "effect": "NoExecute", "timeAdded": AT}
RESULT = {"request": "r", "driver": "d.example.org", "pool": "p", "device": "a"}
META = {"name": "pod", "namespace": "ns", "uid": "u"}
MADE = {"name": "gpu", "resourceClaimName": "pod-gpu"}
POD = {
    "metadata": META,
    "spec": {
        "nodeName": "n", "schedulingGroup": {"podGroupName": "g"},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    },
    "status": {"resourceClaimStatuses": [MADE]},
}  # fmt: skip


def a_slice(**spec):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "a", "taints": [TAINT]}]
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": "d.example.org", "pool": pool, "devices": devices, **spec},
    }


def a_claim(owner, user=None, **status):
    return {
        "metadata": {
            "name": "pod-gpu", "namespace": "ns", "uid": "c",
            "ownerReferences": [{"controller": True, **owner}],
        },
        "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
        ]}},
        "status": {**status, **({"reservedFor": [user]} if user else {})},
    }  # fmt: skip


def test_the_claim_of_a_group_drives_its_pods_away_where_groups_have_claims():
    """device_taint_eviction.go (DRAWorkloadResourceClaims), v1.36."""
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "x"}
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "x"}
    held = a_claim(owner, group, allocation={"devices": {"results": [RESULT]}})
    taints = device_taints([a_slice(nodeName="n")])
    assert pod_leaves(POD, {"pod-gpu": held}, taints) is None
    assert pod_leaves(POD, {"pod-gpu": held}, taints, workload_claims=True) is not None


@pytest.mark.parametrize(("owner", "helps"), [("u", True), ("another pod", False)])
def test_a_claim_that_is_another_pods_wakes_nobody(owner, helps):
    """dynamicresources.go (``foreachPodResourceClaim``), v1.36."""
    pod = msgspec.convert(POD, Pod)
    claim = a_claim({"kind": "Pod", "uid": owner})
    event = ClusterEvent(
        resource=Resource.RESOURCE_CLAIM, action=Action.ADD, new=claim,
        devices=DeviceWorld([claim]),
    )  # fmt: skip
    profile = Profile(points={"filter": (PluginUse("DynamicResources"),)})
    hints = registrations(profile)["DynamicResources"]
    assert any(one.covers(event) and one.says_yes(pod, event) for one in hints) is helps


def test_devices_of_a_selector_with_two_terms_are_given_to_nobody():
    """allocator_incubating.go (``createNodeSelector``), v1.36."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    selector = {"nodeSelectorTerms": [term, term]}
    free = a_slice(nodeSelector=selector, devices=[{"name": "a"}])
    classes = {"gpu": {"metadata": {"name": "gpu"}, "spec": {}}}
    allocator = Allocator([SliceView(free)], classes, AllocatedState())
    with pytest.raises(AllocationError, match="create NodeSelector for claim pod-gpu: unsupported"):
        allocator.allocate(NodeView("n", {"zone": "a"}), [a_claim({})])


@pytest.mark.parametrize("spec", [None, {}, {"devices": {}}])
def test_a_claim_that_asks_for_nothing_is_allocated_nothing(spec):
    """allocator_incubating.go (``Allocate``), v1.36: there is nothing that is not satisfied."""
    claim = a_claim({"kind": "Pod", "uid": "u"})
    claim = {name: one for name, one in {**claim, "spec": spec}.items() if one is not None}
    attempt = Attempt(DeviceWorld([claim], (), [a_slice(nodeName="n")]), POD)
    assert attempt.pre_filter({}).ok
    assert attempt.filter(NodeView("n", {})).ok
    assert attempt.answers["n"].allocations == [{"devices": {"results": []}}]
    assert attempt.signature is not None
