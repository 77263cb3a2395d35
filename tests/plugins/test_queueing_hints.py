"""Which events wake a pod that a default plugin rejected; a hint never misses one that helps."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.matching import (
    HARD_EFFECTS,
    find_untolerated,
)
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from scheduling.framework.documents import default_configuration, load
from scheduling.framework.events import Action, ClusterEvent, Resource, diff_node
from scheduling.plugins.queueing_hints import registrations
from tests.reference.node_affinity import required_match

ALL = registrations(default_configuration().profiles[0])


def node(name="n", labels=None, taints=(), unschedulable=False, **allocatable):
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), "unschedulable": unschedulable},
            "status": {"allocatable": {"pods": "10", **allocatable}},
        },
        Node,
    )


def pod(labels=None, namespace="default", requests=None, ports=(), **spec):
    container = {"resources": {"requests": requests or {}}, "ports": list(ports)}
    return msgspec.convert(
        {
            "metadata": {"namespace": namespace, "labels": labels or {}},
            "spec": {"containers": [container], **spec},
        },
        Pod,
    )


def wakes(plugin, target, event):
    return any(r.covers(event) and (r.hint is None or r.hint(target, event)) for r in ALL[plugin])


def came(new):
    resource = Resource.NODE if isinstance(new, Node) else Resource.ASSIGNED_POD
    return ClusterEvent(resource=resource, action=Action.ADD, new=new)


def went(old):
    resource = Resource.NODE if isinstance(old, Node) else Resource.ASSIGNED_POD
    return ClusterEvent(resource=resource, action=Action.DELETE, old=old)


def changed(old, new):
    action = diff_node(old, new) if isinstance(new, Node) else Action.UPDATE_POD_LABEL
    resource = Resource.NODE if isinstance(new, Node) else Resource.ASSIGNED_POD
    return ClusterEvent(resource=resource, action=action, old=old, new=new)


TAINT = {"key": "a", "effect": "NoSchedule"}
TWO_CPU = pod(requests={"cpu": "2"})
AFFINE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
}
NEAR_STORE = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "store"}}, "topologyKey": "zone"}
        ]
    }
}
NOT_NEAR_STORE = {"podAntiAffinity": NEAR_STORE["podAffinity"]}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]
STORE, WEB = {"app": "store"}, {"app": "web"}
PORT = [{"hostPort": 80}]


@pytest.mark.parametrize(
    ("plugin", "target", "event", "expected"),
    [
        # taints
        ("TaintToleration", pod(), changed(node(taints=[TAINT]), node()), True),
        ("TaintToleration", pod(), changed(node(), node(taints=[TAINT])), False),
        ("TaintToleration", pod(), changed(node(), node(cpu="9")), False),
        ("TaintToleration", pod(), came(node()), True),
        ("TaintToleration", pod(), came(node(taints=[TAINT])), False),
        (
            "TaintToleration",
            pod(tolerations=[{"key": "a", "operator": "Exists"}]),
            came(node(taints=[TAINT])),
            True,
        ),
        ("NodeUnschedulable", pod(), changed(node(unschedulable=True), node()), True),
        ("NodeUnschedulable", pod(), came(node(unschedulable=True)), False),
        # labels
        ("NodeAffinity", pod(affinity=AFFINE), came(node()), False),
        ("NodeAffinity", pod(affinity=AFFINE), came(node(labels={"disk": "x"})), True),
        (
            "NodeAffinity",
            pod(affinity=AFFINE),
            changed(node(), node(labels={"disk": "x"})),
            True,
        ),
        (
            "NodeAffinity",
            pod(affinity=AFFINE),
            changed(node(labels={"disk": "x"}), node(labels={"disk": "y"})),
            False,
        ),
        (
            "NodeAffinity",
            pod(nodeSelector={"disk": "ssd"}),
            changed(node(), node(labels={"disk": "ssd"})),
            True,
        ),
        # resources
        ("NodeResourcesFit", TWO_CPU, came(node(cpu="1")), False),
        ("NodeResourcesFit", TWO_CPU, came(node(cpu="2")), True),
        ("NodeResourcesFit", TWO_CPU, changed(node(cpu="2"), node(cpu="3")), True),
        ("NodeResourcesFit", TWO_CPU, changed(node(cpu="3"), node(cpu="2")), False),
        (
            "NodeResourcesFit",
            TWO_CPU,
            changed(node(cpu="3"), node(cpu="3", memory="1Gi")),
            False,
        ),
        ("NodeResourcesFit", TWO_CPU, changed(node(cpu="1"), node(cpu="1500m")), False),
        ("NodeResourcesFit", TWO_CPU, went(pod(requests={"cpu": "1"})), True),
        ("NodeResourcesFit", TWO_CPU, came(pod()), False),
        # ports
        ("NodePorts", pod(ports=PORT), went(pod(ports=PORT)), True),
        ("NodePorts", pod(ports=PORT), went(pod(ports=[{"hostPort": 81}])), False),
        (
            "NodePorts",
            pod(ports=PORT),
            went(pod(ports=[{"hostPort": 80, "protocol": "UDP"}])),
            False,
        ),
        (
            "NodePorts",
            pod(ports=PORT),
            went(pod(ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])),
            True,
        ),
        # affinity to pods
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(pod(STORE)), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(pod(WEB)), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(pod(STORE, "other")), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), changed(pod(WEB), pod(STORE)), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), came(pod(STORE)), False),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), went(pod(STORE)), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), went(pod(WEB)), False),
        ("InterPodAffinity", pod(STORE), went(pod(affinity=NOT_NEAR_STORE)), True),
        ("InterPodAffinity", pod(WEB), went(pod(affinity=NOT_NEAR_STORE)), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(node(labels={"zone": "a"})), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(node()), False),
        # spreading
        ("PodTopologySpread", pod(topologySpreadConstraints=SPREAD), came(pod(WEB)), True),
        ("PodTopologySpread", pod(topologySpreadConstraints=SPREAD), went(pod(WEB)), True),
        ("PodTopologySpread", pod(topologySpreadConstraints=SPREAD), went(pod(STORE)), False),
        ("PodTopologySpread", pod(topologySpreadConstraints=SPREAD), went(pod(WEB, "x")), False),
        (
            "PodTopologySpread",
            pod(topologySpreadConstraints=SPREAD),
            came(node(labels={"zone": "b"})),
            True,
        ),
        ("PodTopologySpread", pod(topologySpreadConstraints=SPREAD), came(node()), False),
        (
            "PodTopologySpread",
            pod(topologySpreadConstraints=SPREAD),
            went(node(labels={"zone": "b"})),
            True,
        ),
    ],
)
def test_an_event_wakes_whom_it_may_help(plugin, target, event, expected):
    assert wakes(plugin, target, event) is expected


def test_a_namespace_selector_is_asked_when_the_labels_are_known():
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {},
                    "topologyKey": "zone",
                    "namespaceSelector": {"matchLabels": {"team": "a"}},
                }
            ]
        }
    }
    target = pod(affinity=affinity)
    for labels, expected in ((None, True), ({"team": "a"}, True), ({"team": "b"}, False)):
        event = ClusterEvent(
            resource=Resource.ASSIGNED_POD,
            action=Action.ADD,
            new=pod(namespace="x"),
            namespace_labels=labels,
        )
        assert wakes("InterPodAffinity", target, event) is expected


def test_an_added_affinity_counts():
    """R86."""
    configuration = load(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "schedulerName": "disk",
                    "pluginConfig": [
                        {"name": "NodeAffinity", "args": {"addedAffinity": AFFINE["nodeAffinity"]}}
                    ],
                }
            ],
        }
    )
    [registration, _] = registrations(configuration.profiles[0])["NodeAffinity"]
    assert not registration.hint(pod(), came(node()))
    assert registration.hint(pod(), came(node(labels={"disk": "x"})))


NODES = st.builds(
    node,
    labels=st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from("xy"), max_size=2),
    taints=st.lists(
        st.fixed_dictionaries({"key": st.sampled_from("ab"), "effect": st.just("NoExecute")}),
        max_size=2,
        unique_by=lambda t: t["key"],
    ),
    cpu=st.sampled_from(["1", "2", "3"]),
)
PODS = st.builds(
    pod,
    nodeSelector=st.dictionaries(st.just("disk"), st.sampled_from("xy")),
    tolerations=st.lists(st.just({"key": "a", "operator": "Exists"}), max_size=1),
    requests=st.fixed_dictionaries({"cpu": st.sampled_from(["0", "1500m", "2500m"])}),
)


def rejections(target, on):
    found = set()
    if find_untolerated(on.spec.taints, target.spec.tolerations, HARD_EFFECTS):
        found.add("TaintToleration")
    if not required_match(target, on):
        found.add("NodeAffinity")
    cpu = float(target.spec.containers[0].resources.requests["cpu"].rstrip("m"))
    if cpu / (1000 if cpu > 100 else 1) > float(on.status.allocatable["cpu"]):
        found.add("NodeResourcesFit")
    return found


@given(PODS, NODES, NODES)
def test_a_change_of_a_node_that_makes_a_pod_fit_always_wakes_it(target, old, new):
    before = rejections(target, old)
    if not before or rejections(target, new):
        return
    # Whichever plugin was the first to reject, its hint hears of the change.
    for plugin in before:
        assert wakes(plugin, target, changed(old, new))
