"""Extended resources that device classes serve, in the plugins that count resources."""

from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.dra.world import DeviceWorld
from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.quantity import Quantity
from tests.conformance.cluster_cases import read_cluster, read_pod
from tests.conformance.plugin_cases import RULES, compare, status


def view(node):
    return NodeView(node.name, node.labels)


def allocatable(case, world, cluster):
    node, name = cluster.nodes[0], case["extendedResource"]
    stated = node.node.status.allocatable.get(name)
    if stated is not None:
        taken = sum(pod_request_ints(pod).get(name, 0) for pod in node.pods)
        return {"allocatable": Quantity.parse(stated).value(), "allocated": taken}
    serving, taken = world.extended_on(view(node), name)
    return {"allocatable": serving, "allocated": taken}


def check(case):
    world = DeviceWorld(
        case.get("claims") or (), case.get("classes") or (), case.get("slices") or ()
    )
    cluster = read_cluster(case)
    if case["kind"] == "allocatable":
        found = allocatable(case, world, cluster)
        return None if found == case["expect"] else f"got {found}, expected {case['expect']}"
    rule = RULES[case["plugin"]](case.get("args") or {}, case.get("featureGates") or {})
    pod = read_pod(case)
    if case["kind"] == "filter":
        rule.class_of = world.class_of
        begun = rule.pre_filter(pod, cluster)
        verdicts = {node.name: rule.filter(begun.state, pod, node) for node in cluster.nodes}
        found = {
            "preFilter": status(begun.verdict.code, begun.verdict.reasons),
            "nodes": {name: status(v.code, v.reasons) for name, v in verdicts.items()},
        }
    else:

        def by_devices(node, name, want):
            serving, taken = world.extended_on(view(node), name)
            return (serving, taken + want, taken) if serving and want else None

        rule.by_devices = by_devices
        begun = rule.pre_score(pod, cluster, cluster.nodes)
        found = {"raw": {n.name: rule.score(begun.state, pod, n, cluster) for n in cluster.nodes}}
    return "; ".join(compare(case, found)) or None
