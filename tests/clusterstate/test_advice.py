"""Warnings about what the cluster as it is does not have (R98)."""

import pytest

from clusterstate import advice
from tests.clusterstate.support import create_node
from tests.roundtrips import counted

pytestmark = pytest.mark.django_db

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(autouse=True)
def _cluster():
    create_node("a", labels={"zone": "one", "disk": "ssd"})
    create_node("b", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])


def said(*, kind="Pod", now=0.0, **spec):
    manifest = {"spec": spec if kind == "Pod" else {"template": {"spec": spec}}}
    return advice.about(kind, manifest, now)


def term(key):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}


def test_a_plain_pod_is_not_asked_about():
    with counted() as round_trips:
        assert said(containers=[]) == []
        assert round_trips.number == 0
        said(affinity={"podAntiAffinity": {REQUIRED: [term("zone")]}})
    assert round_trips.number > 0  # the count would have seen it


def test_an_anti_affinity_over_a_label_that_nodes_lack():
    """R98."""
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    (some,) = said(affinity={"podAntiAffinity": {REQUIRED: [term("zone")]}})
    assert some.startswith(f"spec.affinity.podAntiAffinity.{REQUIRED}[0].topologyKey: ")
    assert some.endswith('1 of 2 nodes have no label "zone": pods there are not kept apart')
    weighted = [{"weight": 1, "podAffinityTerm": term("rack")}]
    (none,) = said(kind="Deployment", affinity={"podAntiAffinity": {preferred: weighted}})
    assert none.startswith(f"spec.template.spec.affinity.podAntiAffinity.{preferred}[0].pod")
    assert none.endswith('topologyKey: no node has the label "rack" now')
    assert said(affinity={"podAffinity": {REQUIRED: [term("zone")]}}) == []
    assert said(affinity={"podAffinity": {REQUIRED: [term("rack")]}}) != []
    assert said(topologySpreadConstraints=[{"topologyKey": "rack"}, {"topologyKey": "zone"}]) == [
        'spec.topologySpreadConstraints[0].topologyKey: no node has the label "rack" now'
    ]


def test_a_toleration_of_no_taint():
    tolerations = [
        {"key": "gpu", "operator": "Exists"},
        {"key": "gpu", "operator": "Equal", "value": "no"},
        {"key": "gup", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    ]
    assert said(tolerations=tolerations) == [
        'spec.tolerations[1]: no node has a taint "gpu" that it tolerates now',
        'spec.tolerations[2]: no node has a taint "gup" that it tolerates now',
    ]


@pytest.mark.parametrize(
    ("kind", "tolerations"),
    [
        ("DaemonSet", [{"operator": "Exists"}]),
        ("DaemonSet", [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
        ("DaemonSet", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        ("Deployment", [{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]),
        ("Deployment", [{"key": "CriticalAddonsOnly", "operator": "Exists"}]),
        ("Pod", [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true"}]),
    ],
)
def test_what_the_manifests_of_most_clusters_tolerate_is_no_news(kind, tolerations):
    """A warning that comes with every add-on is one that nobody reads."""
    assert said(kind=kind, tolerations=tolerations) == []


def test_a_selector_that_no_node_satisfies():
    assert said(nodeSelector={"disk": "ssd"}) == []
    assert said(nodeSelector={"disk": "hdd"}) == ["spec.nodeSelector: no node has these labels now"]

    def affinity(*expressions, **selector):
        terms = [{"matchExpressions": [one]} for one in expressions]
        return said(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}, **selector)

    there = {"key": "zone", "operator": "In", "values": ["one", "two"]}
    nowhere = {"key": "zone", "operator": "In", "values": ["two"]}
    number = {"key": "zone", "operator": "Gt", "values": ["2"]}
    assert affinity(nowhere, there) == []
    assert affinity(number) == []
    assert affinity(nowhere) == [f"spec.affinity.nodeAffinity.{REQUIRED}: no node matches it now"]
    assert affinity({"key": "zone", "operator": "DoesNotExist"}, nodeSelector={"disk": "ssd"}) != []


def test_what_nodes_have_is_remembered_for_a_moment():
    assert said(nodeSelector={"disk": "hdd"}) != []
    create_node("c", labels={"disk": "hdd"})
    assert said(nodeSelector={"disk": "hdd"}, now=4.9) != []
    assert said(nodeSelector={"disk": "hdd"}, now=5.0) == []


def test_an_empty_cluster_has_nothing_to_say(db):
    from clusterstate.actions import objects
    from tests.clusterstate.support import NOW

    for name in ("a", "b"):
        objects.delete("Node", "", name, now=NOW)
    assert (
        said(nodeSelector={"disk": "hdd"}, tolerations=[{"key": "x", "operator": "Exists"}]) == []
    )
