"""Which events wake a pod that a default plugin rejected; a hint never misses one that helps."""

import msgspec
import pytest
from hypothesis import given, settings
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
from tests.forms import many
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.inter_pod_affinity import InterPodAffinity
from tests.reference.node_affinity import required_match
from tests.reference.pod_topology_spread import PodTopologySpread
from tests.reference.rule import SKIPPED

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


# --- pods in domains ------------------------------------------------------------------------------

KEYS = st.sampled_from(["zone", "rack"])
LABELS = st.sampled_from([WEB, STORE, {}])
PLACES = st.sampled_from(
    [{}, {"zone": "a"}, {"zone": "b"}, {"rack": "a"}, {"zone": "a", "rack": "a"},
     {"zone": "b", "rack": "a"}]
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
    lambda labels, keys, app: pod(
        labels,
        topologySpreadConstraints=[
            {**SPREAD[0], "topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
            for key in keys
        ],
    ),
    LABELS,
    st.lists(KEYS, min_size=1, max_size=2, unique=True),
    st.sampled_from(["web", "store"]),
)


@st.composite
def happenings(draw, pods):
    """Two clusters, and the event between them: a node or a pod came, went or was relabelled."""
    names = ["m", "n", "o"]
    nodes = [
        PlacedNode(node(name, draw(PLACES)), tuple(draw(st.lists(pods, max_size=2))))
        for name in names
    ]
    place = draw(st.integers(0, 2))
    one, rest = nodes[place], nodes[:place] + nodes[place + 1 :]
    what = draw(st.sampled_from(["node changes", "node", "pod changes", "pod"]))
    if what == "node changes":
        other = PlacedNode(node(one.name, draw(PLACES)), one.pods)
        return Cluster(tuple(nodes)), Cluster((*rest, other)), changed(one.node, other.node)
    backwards = draw(st.booleans())
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
