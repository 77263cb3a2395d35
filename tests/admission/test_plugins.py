"""The other plugins, through the chain."""

import pytest

from clusterstate.admission import UPDATE, User, admit
from clusterstate.objects.rules.own_annotations import LIMITS_ANTI_AFFINITY
from clusterstate.objects.values.errors import Forbidden, Invalid
from tests.admission.context import NOBODY, Known, create, pod

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
AGENT = User(name="system:node:n1", groups=("system:nodes", "system:authenticated"))


def _seconds(manifest):
    return {t.get("key", ""): t.get("tolerationSeconds") for t in manifest["spec"]["tolerations"]}


# DefaultTolerationSeconds ---------------------------------------------------------------------


def test_pods_stay_five_minutes_on_a_failed_node():
    """R131."""
    assert _seconds(create(pod()).manifest) == {NOT_READY: 300, UNREACHABLE: 300}


def test_a_pods_own_seconds_stay():
    """R130, R131: 6000 s for unreachable, the default for not-ready."""
    own = {
        "key": UNREACHABLE,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 6000,
    }
    admitted = create(pod({"tolerations": [own]})).manifest
    assert _seconds(admitted) == {UNREACHABLE: 6000, NOT_READY: 300}


def test_a_toleration_of_everything_needs_no_default():
    """R117, R131."""
    admitted = create(pod({"tolerations": [{"operator": "Exists"}]})).manifest
    assert admitted["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_the_seconds_are_configurable():
    known = Known(not_ready_toleration_seconds=5, unreachable_toleration_seconds=7)
    assert _seconds(create(pod(), known).manifest) == {NOT_READY: 5, UNREACHABLE: 7}


# Priority -------------------------------------------------------------------------------------

HIGH = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}


def test_the_class_gives_the_priority():
    spec = create(pod({"priorityClassName": "high"}), Known(priority_classes=(HIGH,))).manifest[
        "spec"
    ]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_the_default_class_is_named_in_the_pod():
    default = {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
    spec = create(pod(), Known(priority_classes=(HIGH, default))).manifest["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 5)


def test_a_priority_of_ones_own_is_refused():
    known = Known(priority_classes=(HIGH,))
    with pytest.raises(Forbidden, match=r"integer value of priority \(7\) must not be provided"):
        create(pod({"priorityClassName": "high", "priority": 7}), known)


def test_the_value_of_a_class_never_changes():
    old = {**HIGH, "metadata": {"name": "high", "resourceVersion": "1"}}
    with pytest.raises(Invalid) as refused:
        admit("PriorityClass", UPDATE, {**old, "value": 7}, old, "", Known(), NOBODY)
    assert [e.field for e in refused.value.errors] == ["value"]


def test_a_class_of_users_stays_below_the_systems():
    with pytest.raises(Invalid, match="maximum allowed value of a user defined priority"):
        create({"metadata": {"name": "p"}, "value": 1_000_000_001}, kind="PriorityClass")


# ExtendedResourceToleration, dedicated nodes --------------------------------------------------


def test_who_asks_for_a_device_tolerates_its_taint():
    """R125."""
    resources = {"limits": {"example.com/fpga": "1", "cpu": "1"}}
    containers = [{"name": "a", "image": "b", "resources": resources}]
    known = Known(extended_resource_toleration=True)
    tolerations = create(pod({"containers": containers}), known).manifest["spec"]["tolerations"]
    device = {"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"}
    assert device in tolerations
    assert not any(t["key"] == "cpu" for t in tolerations)


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "example.com/fpga", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "example.com/fpga", "value": "a", "effect": "NoSchedule"}, True),
    ],
    ids=["same", "every-effect", "everything", "a-value"],
)
def test_the_toleration_for_a_device_is_added_unless_the_pod_has_that_very_one(own, added):
    """R125: what covers the taint in another way is no reason to leave it out."""
    containers = [{"name": "a", "image": "b", "resources": {"limits": {"example.com/fpga": "1"}}}]
    known = Known(extended_resource_toleration=True)
    manifest = pod({"containers": containers, "tolerations": [own]})
    found = create(manifest, known).manifest["spec"]["tolerations"]
    device = {"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"}
    assert found[0] == own
    assert found.count(device) == 1
    assert (device in found[1:]) is added


def test_a_dedicated_namespace_goes_to_its_nodes_and_nowhere_else():
    """R124: toleration and node affinity, in every term of the pod's own affinity."""
    namespace = {
        "metadata": {
            "name": "default",
            "annotations": {"scheduling.stowage.dev/dedicated": "team-a"},
        }
    }
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    affinity = {"nodeAffinity": {rule: {"nodeSelectorTerms": terms}}}
    known = Known(namespaces={"default": namespace})
    spec = create(pod({"affinity": affinity}), known).manifest["spec"]
    toleration = {
        "key": "dedicated",
        "operator": "Equal",
        "value": "team-a",
        "effect": "NoSchedule",
    }
    assert toleration in spec["tolerations"]
    requirement = {"key": "dedicated", "operator": "In", "values": ["team-a"]}
    merged = spec["affinity"]["nodeAffinity"][rule]["nodeSelectorTerms"]
    assert len(merged) == 2
    assert all(requirement in term["matchExpressions"] for term in merged)


# LimitPodHardAntiAffinityTopology -------------------------------------------------------------


def _anti_affine(topology_key):
    term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": {"app": "web"}}}
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    return pod({"affinity": {"podAntiAffinity": {rule: [term]}}})


def test_hard_anti_affinity_by_zone_is_allowed_by_default():
    """R94, R95, C11."""
    create(_anti_affine("topology.kubernetes.io/zone"))


def test_hard_anti_affinity_can_be_limited_to_hosts():
    """R94."""
    known = Known(limit_pod_hard_anti_affinity_topology=True)
    create(_anti_affine("kubernetes.io/hostname"), known)
    with pytest.raises(Forbidden, match="but only key kubernetes"):
        create(_anti_affine("topology.kubernetes.io/zone"), known)


@pytest.mark.parametrize(("cluster", "namespace"), [(False, "true"), (True, "false")])
def test_a_namespace_decides_for_itself(cluster, namespace):
    """R94, C11."""
    annotated = {"metadata": {"name": "default", "annotations": {LIMITS_ANTI_AFFINITY: namespace}}}
    known = Known(namespaces={"default": annotated}, limit_pod_hard_anti_affinity_topology=cluster)
    if namespace == "true":
        with pytest.raises(Forbidden):
            create(_anti_affine("zone"), known)
    else:
        create(_anti_affine("zone"), known)


# TaintNodesByCondition, NodeRestriction -------------------------------------------------------


def _node(labels=None, **spec):
    return {"metadata": {"name": "n1", "labels": labels or {}}, "spec": spec}


def test_the_node_of_an_agent_starts_not_ready():
    """R126."""
    admitted = create(_node(), kind="Node", user=AGENT).manifest
    assert admitted["spec"]["taints"] == [{"key": NOT_READY, "effect": "NoSchedule"}]


def test_a_node_that_a_person_registers_is_usable_at_once():
    assert "taints" not in create(_node(), kind="Node").manifest["spec"]


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("kubernetes.io/hostname", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/instance-type", True),
        ("kubelet.kubernetes.io/anything", True),
        ("example.com/rack", True),
        ("node-restriction.kubernetes.io/fips", False),
        ("example.com.node-restriction.kubernetes.io/fips", False),
        ("other.kubernetes.io/role", False),
        ("k8s.io/role", False),
    ],
)
def test_which_labels_a_node_may_give_itself(label, allowed):
    """R59, R77, C10."""
    if allowed:
        create(_node({label: "x"}), kind="Node", user=AGENT)
    else:
        with pytest.raises(Forbidden, match="is not allowed to set the following labels"):
            create(_node({label: "x"}), kind="Node", user=AGENT)


def _relabelled(before, after):
    old = _node(before)
    old["metadata"]["resourceVersion"] = "1"
    new = {**old, "metadata": {**old["metadata"], "labels": after}}
    return admit("Node", UPDATE, new, old, "", Known(), AGENT)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({}, {"KEY": "x"}, True),
        ({"KEY": "x"}, {"KEY": "y"}, True),
        ({"KEY": "x"}, {"KEY": ""}, True),
        ({"KEY": "x"}, {}, True),
        ({"KEY": "x"}, {"KEY": "x", "example.com/rack": "1"}, False),
    ],
    ids=["added", "changed", "emptied", "removed", "kept"],
)
@pytest.mark.parametrize(
    "key",
    ["node-restriction.kubernetes.io/fips", "a.node-restriction.kubernetes.io/b", "k8s.io/role"],
)
def test_a_node_may_not_change_a_label_that_it_may_not_give_itself(key, before, after, changed):
    """R59, R77."""
    before, after = (
        {name.replace("KEY", key): value for name, value in one.items()} for one in (before, after)
    )
    if not changed:
        assert _relabelled(before, after).manifest["metadata"]["labels"] == after
        return
    with pytest.raises(Forbidden, match=f"is not allowed to modify labels: {key}"):
        _relabelled(before, after)


def test_a_node_may_change_and_remove_its_own_labels():
    """R59."""
    before = {"topology.kubernetes.io/zone": "a", "example.com/rack": "1"}
    assert _relabelled(before, {"topology.kubernetes.io/zone": "b"})


def test_administrators_may_set_any_label():
    """R77: that is what makes the restricted ones trustworthy."""
    create(_node({"node-restriction.kubernetes.io/fips": "true"}), kind="Node")


def test_a_node_may_not_touch_its_taints():
    old = _node()
    old["metadata"]["resourceVersion"] = "1"
    new = {**old, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    with pytest.raises(Forbidden, match="is not allowed to modify taints"):
        admit("Node", UPDATE, new, old, "", Known(), AGENT)


def test_a_node_may_not_touch_another():
    other = {"metadata": {"name": "n2", "resourceVersion": "1"}, "spec": {}}
    with pytest.raises(Forbidden, match='not allowed to modify node "n2"'):
        admit("Node", UPDATE, other, other, "status", Known(), AGENT)


def test_a_node_renews_its_own_lease_only():
    lease = {"metadata": {"name": "n2", "namespace": "kube-node-lease"}, "spec": {}}
    with pytest.raises(Forbidden, match="same name as the requesting node"):
        create(lease, kind="Lease", user=AGENT)


# PodTolerationRestriction ---------------------------------------------------------------------


def test_a_namespace_limits_what_its_pods_tolerate():
    whitelist = '[{"key": "gpu", "operator": "Exists"}]'
    namespace = {
        "metadata": {
            "name": "default",
            "annotations": {"scheduler.alpha.kubernetes.io/tolerationsWhitelist": whitelist},
        }
    }
    known = Known(
        namespaces={"default": namespace},
        pod_toleration_restriction=True,
        default_toleration_seconds=False,
    )
    create(pod({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), known)
    with pytest.raises(Forbidden, match="conflict with its namespace whitelist"):
        create(pod({"tolerations": [{"operator": "Exists"}]}), known)


def test_a_namespace_limits_for_how_long_its_pods_tolerate():
    allowed = (
        '[{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]'
    )
    known = _restricting(tolerationsWhitelist=allowed)

    def asking(seconds):
        more = {} if seconds is None else {"tolerationSeconds": seconds}
        own = {"key": "gone", "operator": "Exists", "effect": "NoExecute", **more}
        return create(pod({"tolerations": [own]}), known)

    assert asking(59)
    assert asking(60)
    for too_long in (61, None):
        with pytest.raises(Forbidden, match="conflict with its namespace whitelist"):
            asking(too_long)


PRESSURE = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def _restricting(**annotations):
    prefix = "scheduler.alpha.kubernetes.io/"
    named = {f"{prefix}{name}": text for name, text in annotations.items()}
    return Known(
        namespaces={"default": {"metadata": {"name": "default", "annotations": named}}},
        pod_toleration_restriction=True,
        default_toleration_seconds=False,
    )


def test_a_stored_pod_with_requests_gets_the_toleration_of_memory_pressure_with_its_next_update():
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    stored = create(pod({"containers": [container]}), Known()).manifest
    stored["metadata"]["resourceVersion"] = "1"
    before = stored["spec"]["tolerations"]
    admitted = admit("Pod", UPDATE, stored, stored, "", _restricting(), NOBODY).manifest
    assert admitted["spec"]["tolerations"] == [*before, PRESSURE]
    idle = create(pod(), Known()).manifest
    idle["metadata"]["resourceVersion"] = "1"
    admitted = admit("Pod", UPDATE, idle, idle, "", _restricting(), NOBODY).manifest
    assert admitted["spec"]["tolerations"] == idle["spec"]["tolerations"]


def test_an_update_does_not_repeat_the_default_tolerations():
    known = _restricting(defaultTolerations='[{"key": "gpu", "operator": "Exists"}]')
    stored = create(pod(), Known(default_toleration_seconds=False)).manifest
    stored["metadata"]["resourceVersion"] = "1"
    assert (
        "tolerations"
        not in admit("Pod", UPDATE, stored, stored, "", known, NOBODY).manifest["spec"]
    )
    assert create(pod(), known).manifest["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Exists"}
    ]


def test_of_the_default_tolerations_one_that_another_covers_is_left_out():
    text = '[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}]'
    admitted = create(pod(), _restricting(defaultTolerations=text)).manifest
    assert admitted["spec"]["tolerations"] == [{"operator": "Exists"}]
