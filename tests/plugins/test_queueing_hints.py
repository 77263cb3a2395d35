"""Which events wake a pod that a default plugin rejected; a hint never misses one that helps."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    find_untolerated,
)
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.queue.waking import PodState, Waking
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration, load
from scheduling.framework.events import Action, ClusterEvent, Resource, diff_node, diff_pod
from scheduling.plugins.queueing_hints import registrations
from tests.forms import many
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.inter_pod_affinity import InterPodAffinity
from tests.reference.node_affinity import required_match
from tests.reference.pod_topology_spread import PodTopologySpread
from tests.reference.rule import SKIPPED

ALL = registrations(default_configuration().profiles[0])


def node(name="n", labels=None, taints=(), unschedulable=False, features=(), **allocatable):
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), "unschedulable": unschedulable},
            "status": {
                "allocatable": {"pods": "10", **allocatable},
                "declaredFeatures": list(features),
            },
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


class Beside(Waking):
    """What events mean beside some nodes and placed pods."""

    def __init__(self, cluster):
        self.snapshot = Snapshot(capacity=4)
        for place, one in enumerate(cluster.nodes):
            self.snapshot.set_node(one.node)
            for number, other in enumerate(one.pods):
                info = self.snapshot.intern(from_pod(other))
                self.snapshot.add_pod(f"{place}/{number}", info, one.name)


def relabelled(old, new, affinities=()):
    """The event of a node with other labels, on which pods with such affinity are placed."""
    placed = PlacedNode(old, tuple(pod(affinity=one) for one in affinities))
    beside = Beside(Cluster((placed,)))
    beside.snapshot.intern(from_pod(pod(affinity=NOT_NEAR_STORE)))  # waits, so it repels nobody
    return beside.event_of_node(old, new)


def became(old, new):
    """The event of the waiting pod itself that changed."""
    return ClusterEvent(resource=Resource.PENDING_POD, action=diff_pod(old, new), old=old, new=new)


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
RACK = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "rack"}
[ZONE] = NEAR_STORE["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
IN_RACK = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [RACK]}, **NOT_NEAR_STORE,
}  # fmt: skip
IN_BOTH = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [RACK, ZONE]}}
ZONE_A, ZONE_B = (node(labels={"zone": one}) for one in ("a", "b"))
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]
STORE, WEB = {"app": "store"}, {"app": "web"}
TIER = {"tier": "x"}
FAST, QUIET = {"fast": ""}, {"quiet": ""}
BOTH = FAST | QUIET
TWO_KINDS = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchExpressions": [{"key": k, "operator": "Exists"}]},
             "topologyKey": "zone"}
            for k in ("fast", "quiet")
        ]
    }
}  # fmt: skip
A = {"zone": "a"}
BARE, DISK = node(), node(labels={"disk": "x"})
ZONE_A_DISK = node(labels={**A, "disk": "x"})
ZONE_AND_RACK, OTHER_RACK = (node(labels={**A, "rack": one}) for one in ("1", "2"))
SHUT_AND_TAINTED = node(unschedulable=True, taints=[TAINT])
EVERYWHERE = {"operator": "Exists"}


def spread(labels=None, *more, tolerations=(), affinity=None, **changes):
    """A pod that is spread by SPREAD, changed so, and by copies of it that are changed as well."""
    constraints = [{**SPREAD[0], **changes}, *({**SPREAD[0], **one} for one in more)]
    return pod(
        labels or WEB,
        topologySpreadConstraints=constraints,
        tolerations=list(tolerations),
        affinity=affinity or {},
    )


BY_ZONE = spread()
BY_BOTH = spread(WEB, {"topologyKey": "rack"})
BY_TWO = spread(
    WEB, {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}
)
BY_TAINTS = spread(nodeTaintsPolicy="Honor")
ON_DISK = spread(affinity=AFFINE)
ON_ANY = spread(affinity=AFFINE, nodeAffinityPolicy="Ignore")
SOFTLY = spread(whenUnsatisfiable="ScheduleAnyway")
OF_ITS_OWN = spread({**WEB, "rev": "2"}, matchLabelKeys=["rev"])
SPREAD_STORE, SPREAD_WEB_MORE = spread(STORE), spread({**WEB, "more": "x"})
TOLERANT = spread(tolerations=[EVERYWHERE])
TOLERANT_BY_TAINTS = spread(tolerations=[EVERYWHERE], nodeTaintsPolicy="Honor")
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
        # declared features
        ("NodeDeclaredFeatures", pod(), came(node(features=["A"])), True),
        ("NodeDeclaredFeatures", pod(), changed(node(), node(features=["A"])), True),
        ("NodeDeclaredFeatures", pod(), changed(node(), node(labels={"disk": "x"})), False),
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
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), changed(pod(STORE), pod(WEB)), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), changed(pod(WEB), pod(STORE)), False),
        (
            "InterPodAffinity",
            pod(affinity=NOT_NEAR_STORE),
            changed(pod(STORE), pod({**STORE, "more": "x"})),
            False,
        ),
        (
            "InterPodAffinity",
            pod(affinity=NEAR_STORE),
            changed(pod(STORE), pod({**STORE, "more": "x"})),
            False,
        ),
        # who wants two kinds at once wants pods that are both
        ("InterPodAffinity", pod(affinity=TWO_KINDS), changed(pod(FAST), pod(QUIET)), False),
        ("InterPodAffinity", pod(affinity=TWO_KINDS), changed(pod(FAST), pod(BOTH)), True),
        ("InterPodAffinity", pod(affinity=TWO_KINDS), came(pod(FAST)), False),
        ("InterPodAffinity", pod(BOTH, affinity=TWO_KINDS), went(pod(BOTH)), True),
        ("InterPodAffinity", pod(FAST, affinity=TWO_KINDS), went(pod(BOTH)), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), changed(pod(STORE), pod(WEB)), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), went(pod(STORE)), False),
        # the last store may have gone, where this one is a store itself
        ("InterPodAffinity", pod(STORE, affinity=NEAR_STORE), went(pod(STORE)), True),
        ("InterPodAffinity", pod(STORE, affinity=NEAR_STORE), changed(pod(STORE), pod(WEB)), True),
        (
            "InterPodAffinity",
            pod(STORE),
            changed(pod(affinity=NOT_NEAR_STORE), pod(WEB, affinity=NOT_NEAR_STORE)),
            False,
        ),
        ("InterPodAffinity", pod(STORE), went(pod(affinity=NOT_NEAR_STORE)), True),
        ("InterPodAffinity", pod(WEB), went(pod(affinity=NOT_NEAR_STORE)), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(node(labels={"zone": "a"})), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), came(node()), False),
        ("InterPodAffinity", pod(affinity=IN_RACK), came(node(labels={"zone": "a"})), False),
        ("InterPodAffinity", pod(affinity=IN_BOTH), came(node(labels={"zone": "a"})), True),
        # a store leaves the zone, on a node without racks; this pod fits on another node then
        (
            "InterPodAffinity",
            pod(affinity=IN_RACK),
            changed(ZONE_A, node(labels={"zone": "b"})),
            True,
        ),
        ("InterPodAffinity", pod(affinity=IN_BOTH), changed(node(), ZONE_A), True),
        # by the label of the node that changed: who wants to be near gains where it comes,
        ("InterPodAffinity", pod(affinity=NEAR_STORE), relabelled(ZONE_A, ZONE_B), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), relabelled(BARE, ZONE_A), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), relabelled(ZONE_A, BARE), False),
        ("InterPodAffinity", pod(STORE, affinity=NEAR_STORE), relabelled(ZONE_A, BARE), True),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), relabelled(ZONE_A, ZONE_A_DISK), False),
        ("InterPodAffinity", pod(affinity=NEAR_STORE), relabelled(BARE, DISK), False),
        # who wants to be apart gains where it goes
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), relabelled(ZONE_A, ZONE_B), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), relabelled(BARE, ZONE_A), False),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), relabelled(ZONE_A, BARE), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), relabelled(ZONE_A, ZONE_A_DISK), False),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), came(BARE), True),
        ("InterPodAffinity", pod(affinity=NOT_NEAR_STORE), came(ZONE_A), True),
        # and so does whom placed pods keep away, by their key alone
        ("InterPodAffinity", pod(STORE), relabelled(ZONE_A, BARE, [NOT_NEAR_STORE]), True),
        ("InterPodAffinity", pod(STORE), relabelled(ZONE_A, ZONE_B, [NOT_NEAR_STORE]), True),
        ("InterPodAffinity", pod(WEB), relabelled(ZONE_A, ZONE_B, [NOT_NEAR_STORE]), False),
        ("InterPodAffinity", pod(STORE), relabelled(DISK, BARE, [NOT_NEAR_STORE]), False),
        ("InterPodAffinity", pod(STORE), relabelled(BARE, ZONE_A, [NOT_NEAR_STORE]), False),
        ("InterPodAffinity", pod(STORE, "x"), relabelled(ZONE_A, BARE, [NOT_NEAR_STORE]), False),
        ("InterPodAffinity", pod(STORE), relabelled(ZONE_A, BARE), False),
        ("InterPodAffinity", pod(STORE), came(BARE), True),
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
        ("PodTopologySpread", BY_ZONE, went(BARE), False),
        ("PodTopologySpread", BY_ZONE, changed(ZONE_A, ZONE_B), True),
        ("PodTopologySpread", BY_ZONE, changed(ZONE_A, BARE), True),
        ("PodTopologySpread", BY_ZONE, changed(BARE, ZONE_A), True),
        ("PodTopologySpread", BY_ZONE, changed(ZONE_A, ZONE_A_DISK), False),
        ("PodTopologySpread", BY_ZONE, changed(BARE, DISK), False),
        ("PodTopologySpread", BY_ZONE, changed(ZONE_A, node(labels=A, taints=[TAINT])), True),
        ("PodTopologySpread", BY_ZONE, changed(BARE, node(taints=[TAINT])), False),
        ("PodTopologySpread", BY_ZONE, changed(ZONE_A, node(labels=A, unschedulable=True)), False),
        ("PodTopologySpread", BY_BOTH, came(ZONE_A), False),
        ("PodTopologySpread", BY_BOTH, came(ZONE_AND_RACK), True),
        ("PodTopologySpread", BY_BOTH, went(ZONE_A), False),
        ("PodTopologySpread", BY_BOTH, changed(ZONE_A, ZONE_B), False),
        ("PodTopologySpread", BY_BOTH, changed(ZONE_AND_RACK, ZONE_A), True),
        ("PodTopologySpread", BY_BOTH, changed(ZONE_AND_RACK, OTHER_RACK), True),
        # a node that the pod's own affinity means, or no longer, is counted or not
        ("PodTopologySpread", ON_DISK, changed(ZONE_A, ZONE_A_DISK), True),
        ("PodTopologySpread", ON_DISK, changed(ZONE_A_DISK, ZONE_A), True),
        ("PodTopologySpread", ON_ANY, changed(ZONE_A, ZONE_A_DISK), False),
        ("PodTopologySpread", BY_ZONE, changed(pod(WEB), pod(STORE)), True),
        ("PodTopologySpread", BY_ZONE, changed(pod(STORE), pod(WEB)), True),
        ("PodTopologySpread", BY_ZONE, changed(pod(WEB), pod({**WEB, "more": "x"})), False),
        ("PodTopologySpread", BY_ZONE, changed(pod(STORE), pod({**STORE, "more": "x"})), False),
        ("PodTopologySpread", BY_ZONE, changed(pod(STORE, "x"), pod(WEB, "x")), False),
        ("PodTopologySpread", BY_TWO, changed(pod(WEB), pod({**WEB, "tier": "x"})), True),
        ("PodTopologySpread", BY_TWO, changed(pod(TIER), pod({**TIER, "tier": "y"})), False),
        ("PodTopologySpread", BY_TWO, changed(pod(WEB), pod({**WEB, "more": "y"})), False),
        ("PodTopologySpread", SOFTLY, came(pod(WEB)), False),
        # matchLabelKeys take part in whom a constraint counts
        ("PodTopologySpread", OF_ITS_OWN, came(pod({**WEB, "rev": "2"})), True),
        ("PodTopologySpread", OF_ITS_OWN, came(pod({**WEB, "rev": "1"})), False),
        (
            "PodTopologySpread",
            OF_ITS_OWN,
            changed(pod({**WEB, "rev": "1"}), pod({**WEB, "rev": "2"})),
            True,
        ),
        # the waiting pod itself
        ("PodTopologySpread", BY_ZONE, became(BY_ZONE, SPREAD_STORE), True),
        ("PodTopologySpread", BY_ZONE, became(BY_ZONE, SPREAD_WEB_MORE), False),
        ("PodTopologySpread", BY_ZONE, became(BY_ZONE, TOLERANT), False),
        ("PodTopologySpread", BY_TAINTS, became(BY_TAINTS, TOLERANT_BY_TAINTS), True),
        ("NodeResourcesFit", TWO_CPU, became(TWO_CPU, pod(requests={"cpu": "1"})), True),
        ("NodeResourcesFit", TWO_CPU, became(TWO_CPU, pod(requests={"cpu": "3"})), False),
        ("NodeResourcesFit", TWO_CPU, became(TWO_CPU, pod(requests={"memory": "1Gi"})), True),
        ("TaintToleration", pod(), became(pod(), pod(tolerations=[EVERYWHERE])), True),
        ("TaintToleration", pod(), became(pod(), pod(WEB)), False),
        # node_unschedulable.go (isSchedulableAfterPodTolerationChange), v1.36
        ("NodeUnschedulable", pod(), became(pod(), pod(tolerations=[EVERYWHERE])), True),
        (
            "NodeUnschedulable",
            pod(),
            became(pod(), pod(tolerations=[{"key": "a", "operator": "Exists"}])),
            False,
        ),
        ("NodeUnschedulable", pod(), changed(node(), node(labels=A)), False),
        ("NodeUnschedulable", pod(), changed(node(unschedulable=True), SHUT_AND_TAINTED), False),
        ("NodeUnschedulable", pod(tolerations=[EVERYWHERE]), came(node(unschedulable=True)), True),
    ],
)
def test_an_event_wakes_whom_it_may_help(plugin, target, event, expected):
    assert wakes(plugin, target, event) is expected


GPU = "example.org/gpu"
BY_NAME = "deviceclass.resource.kubernetes.io/gpu"


@pytest.mark.parametrize(
    ("requests", "old", "new", "expected"),
    [
        ({"cpu": "2", GPU: "1"}, None, node(cpu="2"), True),
        ({"cpu": "2", BY_NAME: "1"}, None, node(cpu="2"), True),
        ({"cpu": "2", GPU: "1"}, None, node(cpu="1"), False),
        ({"cpu": "2", "example.org/fpga": "1"}, None, node(cpu="2"), False),
        ({GPU: "1"}, node(cpu="2"), node(cpu="1"), True),
        ({GPU: "1"}, None, node(**{GPU: "0"}), True),
        ({GPU: "2"}, None, node(**{GPU: "1"}), False),
        ({GPU: "1"}, node(**{GPU: "4"}), node(**{GPU: "1"}), False),
    ],
)
def test_what_devices_serve_lacks_on_no_node_that_has_none(requests, old, new, expected):
    """noderesources/fit.go (``shouldDelegateResourceToDRA``) and its test, v1.36."""
    beside = Beside(Cluster(()))
    class_of_devices = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}
    beside.snapshot.devices.set("DeviceClass", class_of_devices)
    event = beside.event_of_node(old, new)
    assert wakes("NodeResourcesFit", pod(requests=requests), event) is expected


def group(min_count=None, uid="u", name="g"):
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    spec = {"schedulingPolicy": policy}
    metadata = {"namespace": "default", "name": name, "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, group(), True),
        (None, group(name="other"), False),
        (group(3), group(2), True),
        (group(2), group(3), False),
        (group(2), group(2), False),
        (group(), group(2), False),
        (group(2), group(3, uid="v"), True),
    ],
)
def test_a_group_that_wants_fewer_pods_wakes_them(old, new, expected):
    """gangscheduling.go (``isSchedulableAfterPodGroupUpdated``), v1.37."""
    action = Action.ADD if old is None else Action.UPDATE
    event = ClusterEvent(resource=Resource.POD_GROUP, action=action, old=old, new=new)
    member = pod(schedulingGroup={"podGroupName": "g"})
    assert wakes("GangScheduling", member, event) is expected


def test_room_that_a_pod_does_not_ask_for_is_no_help():
    """noderesources/fit.go (``isSchedulableAfterPodScaleDown``), v1.36."""
    event = ClusterEvent(
        resource=Resource.ASSIGNED_POD, action=Action.UPDATE_POD_SCALE_DOWN,
        old=pod(requests={"cpu": "2"}), new=pod(requests={"cpu": "1"}),
    )  # fmt: skip
    assert wakes("NodeResourcesFit", TWO_CPU, event)
    assert not wakes("NodeResourcesFit", pod(requests={"cpu": "0", "memory": "1Gi"}), event)


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


# --- pods in domains ------------------------------------------------------------------------------

KEYS = st.sampled_from(["zone", "rack"])
LABELS = st.sampled_from([WEB, STORE, {}])
PLACES = st.sampled_from(
    [{}, {"zone": "a"}, {"zone": "b"}, {"rack": "a"}, {"zone": "a", "rack": "a"},
     {"zone": "b", "rack": "a"}, {"zone": "a", "disk": "x"},
     {"zone": "b", "rack": "a", "disk": "x"}]
)  # fmt: skip
TERMS = st.lists(
    st.builds(
        lambda app, key: {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key},
        st.sampled_from(["web", "store"]),
        KEYS,
    ),
    max_size=2,
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WITH_TERMS = st.builds(
    lambda labels, near, away: pod(
        labels,
        affinity={
            "podAffinity": {REQUIRED: near}, "podAntiAffinity": {REQUIRED: away},
        },
    ),
    LABELS,
    TERMS,
    TERMS,
)  # fmt: skip
SPREADING = st.builds(
    lambda labels, keys, app, disk: pod(
        labels,
        affinity=AFFINE if disk else {},
        topologySpreadConstraints=[
            {**SPREAD[0], "topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
            for key in keys
        ],
    ),
    LABELS,
    st.lists(KEYS, min_size=1, max_size=2, unique=True),
    st.sampled_from(["web", "store"]),
    st.booleans(),
)


@st.composite
def happenings(draw, pods):
    """Two clusters, and the event between them.

    A node or a pod came, went or was relabelled, went before its pods, or began to end.
    """
    names = ["m", "n", "o"]
    nodes = [
        PlacedNode(node(name, draw(PLACES)), tuple(draw(st.lists(pods, max_size=2))))
        for name in names
    ]
    place = draw(st.integers(0, 2))
    one, rest = nodes[place], nodes[:place] + nodes[place + 1 :]
    kinds = ["node changes", "node", "node with pods", "pod changes", "pod", "pod ends"]
    what = draw(st.sampled_from(kinds))
    if what == "node changes":
        other = PlacedNode(node(one.name, draw(PLACES)), one.pods)
        before = Cluster(tuple(nodes))
        event = Beside(before).event_of_node(one.node, other.node)
        return before, Cluster((*rest, other)), event or changed(one.node, other.node)
    backwards = draw(st.booleans())
    if what == "node with pods":
        before = Cluster(tuple(nodes))
        event = Beside(before).event_of_node(one.node, None)
        return before, Cluster(tuple(rest)), event
    if what == "node":
        alone = PlacedNode(one.node)
        before, after = Cluster(tuple(rest)), Cluster((*rest, alone))
        if backwards:
            return after, before, went(one.node)
        return before, after, came(one.node)
    some = draw(pods)
    before, after = Cluster(tuple(nodes)), Cluster((*rest, one.with_pod(some)))
    if what == "pod":
        return (after, before, went(some)) if backwards else (before, after, came(some))
    if what == "pod ends":
        metadata = msgspec.structs.replace(some.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        ending = msgspec.structs.replace(some, metadata=metadata)
        stood = PodState(pod=some, on_node=True)
        stands = PodState(pod=some, on_node=True, terminating=True)
        event = Beside(after).event_of_pod(stood, stands)
        return after, Cluster((*rest, one.with_pod(ending))), event
    relabelled = msgspec.convert(
        {**msgspec.to_builtins(some), "metadata": {"namespace": "default", "labels": draw(LABELS)}},
        Pod,
    )
    return after, Cluster((*rest, one.with_pod(relabelled))), changed(some, relabelled)


def fits_on(rule, target, cluster):
    begun = rule.pre_filter(target, cluster)
    return {
        one.name
        for one in cluster.nodes
        if begun.verdict == SKIPPED
        or (begun.verdict.success and rule.filter(begun.state, target, one).success)
    }


@pytest.mark.parametrize(
    ("rule", "targets"),
    [(InterPodAffinity(), WITH_TERMS), (PodTopologySpread(), SPREADING)],
    ids=["InterPodAffinity", "PodTopologySpread"],
)
@settings(max_examples=many(80, 800))
@given(data=st.data())
def test_what_lets_a_pod_into_a_domain_always_wakes_it(rule, targets, data):
    target = data.draw(targets)
    before, after, event = data.draw(happenings(WITH_TERMS))
    # It may not fit on the other nodes for another reason.
    if event.action and fits_on(rule, target, after) - fits_on(rule, target, before):
        assert wakes(rule.name, target, event)
