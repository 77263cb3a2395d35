"""Hypothesis strategies for objects of a small world, made to collide.

Few label keys, values, taints, namespaces and ports exist, so that selectors hit, tolerations
cover and ports clash often. All strategies give manifests (JSON objects); ``clusters`` gives whole
worlds.
"""

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from clusterstate.objects.values.compatibility import Compatibility
from tests.forms import many

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES") or many(10, 100))
"""How many worlds each property is tried on."""
by_chance = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES)

Manifest = dict[str, Any]
Objects = st.SearchStrategy[Manifest]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
KEYS = ("app", "tier", "disk")
VALUES = ("a", "b", "3", "10")
TOPOLOGY_KEYS = (ZONE, HOSTNAME, "rack")
NAMESPACES = ("default", "blue", "green")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
IMAGES = ("app", "app:v1", "base")
EXTENDED = "example.com/gpu"

names = st.sampled_from(KEYS)
values = st.sampled_from(VALUES)
labels = st.dictionaries(names, values, max_size=3)


def _without_empty(manifest: Manifest) -> Manifest:
    return {key: value for key, value in manifest.items() if value not in (None, [], {}, "")}


def _object(**members: st.SearchStrategy[Any]) -> Objects:
    return st.fixed_dictionaries(members).map(_without_empty)


def _requirement(operators: tuple[str, ...], keys: st.SearchStrategy[str]) -> Objects:
    def complete(key: str, operator: str, picked: list[str], number: int) -> Manifest:
        if operator in ("In", "NotIn"):
            return {"key": key, "operator": operator, "values": picked}
        if operator in ("Gt", "Lt"):
            return {"key": key, "operator": operator, "values": [str(number)]}
        return {"key": key, "operator": operator}

    picked = st.lists(values, min_size=1, max_size=2, unique=True)
    return st.builds(complete, keys, st.sampled_from(operators), picked, st.integers(0, 11))


label_requirements = _requirement(("In", "NotIn", "Exists", "DoesNotExist"), names)
node_requirements = _requirement(
    ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), st.sampled_from((*KEYS, ZONE))
)
label_selectors = _object(
    matchLabels=st.dictionaries(names, values, max_size=1),
    matchExpressions=st.lists(label_requirements, max_size=1),
)
"""Empty selectors are among them."""

taints = st.builds(
    lambda key, value, effect: _without_empty({"key": key, "value": value, "effect": effect}),
    st.sampled_from(("gpu", "spot")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(EFFECTS),
)
tolerations = st.builds(
    lambda key, operator, value, effect: _without_empty(
        {
            "key": key,
            "operator": "Exists" if not key else operator,
            "value": "" if operator == "Exists" or not key else value,
            "effect": effect,
        }
    ),
    st.sampled_from(("", "gpu", "spot", "node.kubernetes.io/unschedulable")),
    st.sampled_from(("Exists", "Equal", "")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("", *EFFECTS)),
)

_named = st.builds(
    lambda operator, number: {
        "key": "metadata.name", "operator": operator, "values": [f"node-{number}"],
    },
    st.sampled_from(("In", "NotIn")),
    st.integers(0, 4),
)  # fmt: skip
node_selector_terms = _object(
    matchExpressions=st.lists(node_requirements, max_size=2),
    matchFields=st.one_of(st.just([]), st.just([]), st.lists(_named, max_size=2)),
)
_node_selectors = st.builds(
    lambda terms: {"nodeSelectorTerms": terms},
    st.lists(node_selector_terms, min_size=1, max_size=2),
)
_weights = st.sampled_from((1, 1, 5, 100))
node_affinities = _object(
    requiredDuringSchedulingRequiredDuringExecution=st.one_of(
        st.none(), st.none(), st.none(), _node_selectors
    ),
    requiredDuringSchedulingIgnoredDuringExecution=st.one_of(st.none(), _node_selectors),
    preferredDuringSchedulingIgnoredDuringExecution=st.lists(
        st.builds(
            lambda weight, term: {"weight": weight, "preference": term},
            _weights,
            node_selector_terms,
        ),
        max_size=2,
    ),
)

_maybe_selector = st.one_of(st.none(), label_selectors)


def _affinity_term(
    key: str, selector: Manifest | None, inside: list[str], among: Manifest | None
) -> Manifest:
    term: Manifest = {"topologyKey": key, "namespaces": inside}
    term = _without_empty(term)
    if selector is not None:
        term["labelSelector"] = selector
    if among is not None:
        term["namespaceSelector"] = among
    return term


_namespace_lists = st.one_of(
    st.just([]), st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True)
)
pod_affinity_terms = st.builds(
    _affinity_term,
    st.sampled_from(TOPOLOGY_KEYS),
    st.one_of(label_selectors, label_selectors, _maybe_selector),
    _namespace_lists,
    st.one_of(st.none(), st.none(), label_selectors),
)
pod_affinities = _object(
    requiredDuringSchedulingIgnoredDuringExecution=st.lists(pod_affinity_terms, max_size=2),
    preferredDuringSchedulingIgnoredDuringExecution=st.lists(
        st.builds(
            lambda weight, term: {"weight": weight, "podAffinityTerm": term},
            _weights,
            pod_affinity_terms,
        ),
        max_size=2,
    ),
)
_rarely_pod_affinities = st.one_of(st.none(), st.none(), pod_affinities)
affinities = _object(
    nodeAffinity=st.one_of(st.none(), node_affinities),
    podAffinity=_rarely_pod_affinities,
    podAntiAffinity=_rarely_pod_affinities,
)


def _spread_constraint(
    key: str,
    max_skew: int,
    action: str,
    selector: Manifest | None,
    min_domains: int | None,
    affinity: str | None,
    taint: str | None,
    keys: list[str],
) -> Manifest:
    constraint = _without_empty(
        {
            "topologyKey": key,
            "maxSkew": max_skew,
            "whenUnsatisfiable": action,
            "minDomains": min_domains if action == "DoNotSchedule" else None,
            "nodeAffinityPolicy": affinity,
            "nodeTaintsPolicy": taint,
            "matchLabelKeys": keys,
        }
    )
    if selector is not None:
        constraint["labelSelector"] = selector
    return constraint


_policies = st.sampled_from((None, "Honor", "Ignore"))
spread_constraints = st.builds(
    _spread_constraint,
    st.sampled_from(TOPOLOGY_KEYS),
    st.integers(1, 3),
    st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    _maybe_selector,
    st.one_of(st.none(), st.integers(1, 3)),
    _policies,
    _policies,
    st.one_of(st.just([]), st.lists(names, max_size=1)),
)

_cpu = st.sampled_from(("100m", "250m", "1", "1500m", "0"))
_memory = st.sampled_from(("64Mi", "200Mi", "1Gi", "0"))
requests = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {},
        optional={
            "cpu": _cpu,
            "memory": _memory,
            "ephemeral-storage": st.sampled_from(("1Gi", "0")),
            EXTENDED: st.sampled_from(("1", "2", "0")),
        },
    ),
)
ports = st.builds(
    lambda port, protocol, ip: _without_empty(
        {"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip}
    ),
    st.sampled_from((80, 443)),
    st.sampled_from(("", "TCP", "UDP")),
    st.sampled_from(("", "0.0.0.0", "127.0.0.1")),
)


FEATURES = (
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
)
_needs_features = st.sampled_from(
    (
        *[{}] * 9,
        {"restartPolicyRules": [{"action": "RestartAllContainers"}]},
        {"volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]},
    )
)


def _container(
    image: str, amounts: Manifest, listed: list[Manifest], policy: str, needs: Manifest
) -> Manifest:
    resources = {"requests": amounts} if amounts else {}
    return _without_empty(
        {
            "name": "main",
            "image": image,
            "resources": resources,
            "ports": listed,
            "restartPolicy": policy,
            **needs,
        }
    )


_few_ports = st.one_of(st.just([]), st.just([]), st.just([]), st.lists(ports, max_size=2))
containers = st.builds(
    _container, st.sampled_from(IMAGES), requests, _few_ports, st.just(""), _needs_features
)
init_containers = st.builds(
    _container,
    st.sampled_from(IMAGES),
    requests,
    _few_ports,
    st.sampled_from(("", "Always")),
    _needs_features,
)


def _pod_spec(**members: Any) -> Manifest:
    spec = _without_empty(members)
    spec.setdefault("containers", [])
    if spec.pop("userNamespace", False):
        spec |= {"hostNetwork": True, "hostUsers": False}
    return spec


pod_specs = st.builds(
    _pod_spec,
    containers=st.lists(containers, min_size=1, max_size=2),
    initContainers=st.one_of(st.just([]), st.lists(init_containers, max_size=2)),
    overhead=st.sampled_from(({}, {}, {"cpu": "50m"})),
    nodeSelector=st.one_of(st.just({}), st.dictionaries(names, values, max_size=1)),
    affinity=st.one_of(st.none(), affinities),
    tolerations=st.lists(tolerations, max_size=2),
    topologySpreadConstraints=st.one_of(st.just([]), st.lists(spread_constraints, max_size=2)),
    resources=st.one_of(
        st.none(), st.none(), st.none(), st.just({"requests": {"cpu": "300m", "memory": "300Mi"}})
    ),
    volumes=st.sampled_from(([], [], [{"name": "v", "image": {"reference": "base"}}])),
    userNamespace=st.sampled_from((*[False] * 9, True)),
)
owners = st.sampled_from(
    (None, None, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True})
)


def _pod(
    name: str, namespace: str, own: Manifest, owner: Manifest | None, spec: Manifest, priority: int
) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": own}
    if owner:
        metadata["ownerReferences"] = [owner]
    return {"metadata": _without_empty(metadata), "spec": {**spec, "priority": priority}}


def pods(name: str = "incoming") -> Objects:
    """Pods without a node."""
    return st.builds(
        _pod,
        st.just(name),
        st.sampled_from(NAMESPACES),
        labels,
        owners,
        pod_specs,
        st.sampled_from((0, 0, 5, 10)),
    )


def _place(
    pod: Manifest, number: int, node: int, terminating: bool, started: int | None
) -> Manifest:
    name = f"placed-{number}"
    metadata = {**pod["metadata"], "name": name, "uid": name}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    placed = {"metadata": metadata, "spec": {**pod["spec"], "nodeName": f"node-{node}"}}
    if started is not None:
        placed["status"] = {"startTime": f"2026-01-01T00:00:0{started}Z"}
    return placed


_started = st.one_of(st.none(), st.integers(0, 3))
_rarely = st.sampled_from((False, False, False, False, True))


def _node(
    number: int,
    own: dict[str, str],
    zone: str | None,
    rack: str | None,
    hostname: bool,
    spec: Manifest,
    allocatable: dict[str, str],
    images: list[Manifest],
    declared: list[str],
) -> Manifest:
    name = f"node-{number}"
    placed = {ZONE: zone, "rack": rack, HOSTNAME: name if hostname else None}
    carried = {**own, **{key: value for key, value in placed.items() if value}}
    return {
        "metadata": _without_empty({"name": name, "labels": carried}),
        "spec": spec,
        "status": _without_empty(
            {
                "allocatable": allocatable,
                "capacity": allocatable,
                "images": images,
                "declaredFeatures": declared,
            }
        ),
    }


_images = st.lists(
    st.builds(
        lambda name, mebibytes: {"names": [name], "sizeBytes": mebibytes * 1024 * 1024},
        st.sampled_from(("app:latest", "app:v1", "base:latest")),
        st.sampled_from((10, 100, 900)),
    ),
    max_size=2,
    unique_by=lambda image: image["names"][0],
)
_allocatable = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(("1", "2", "4")),
        "memory": st.sampled_from(("1Gi", "4Gi")),
        "pods": st.sampled_from(("2", "110")),
    },
    optional={"ephemeral-storage": st.just("10Gi"), EXTENDED: st.sampled_from(("1", "4"))},
)


def nodes(number: int) -> Objects:
    """Nodes named by number."""
    return st.builds(
        _node,
        st.just(number),
        labels,
        st.sampled_from((None, "z1", "z1", "z2")),
        st.sampled_from((None, "r1", "r2")),
        st.sampled_from((True, True, True, False)),
        _object(
            taints=st.lists(
                taints, max_size=1, unique_by=lambda taint: (taint["key"], taint["effect"])
            ),
            unschedulable=_rarely,
        ).map(lambda spec: {k: v for k, v in spec.items() if v}),
        _allocatable,
        _images,
        st.lists(st.sampled_from(FEATURES), max_size=3, unique=True).map(sorted),
    )


budgets = st.builds(
    lambda namespace, selector, allowed: {
        "metadata": {"name": "budget", "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    },
    st.sampled_from(NAMESPACES),
    label_selectors,
    st.integers(0, 2),
)
services = st.builds(
    lambda namespace, selector: {
        "metadata": {"name": "service", "namespace": namespace},
        "spec": {"selector": selector},
    },
    st.sampled_from(NAMESPACES),
    st.dictionaries(names, values, min_size=1, max_size=1),
)
replica_sets = st.builds(
    lambda namespace, selector: {
        "metadata": {"name": "rs", "namespace": namespace},
        "spec": {"selector": selector},
    },
    st.sampled_from(NAMESPACES),
    label_selectors,
)


@st.composite
def clusters(draw: st.DrawFn, *, most_nodes: int = 5, most_pods: int = 6) -> Manifest:
    """A world in the form of the recorded cases: nodes, pods, namespaces and what selects pods."""
    count = draw(st.integers(1, most_nodes))
    world: Manifest = {"nodes": [draw(nodes(number)) for number in range(count)]}
    placed = []
    for number in range(draw(st.integers(0, most_pods))):
        pod = draw(pods())
        place = draw(st.integers(0, count - 1))
        placed.append(_place(pod, number, place, draw(_rarely), draw(_started)))
    world["pods"] = placed
    world["namespaces"] = [
        {"metadata": {"name": name, "labels": draw(labels)}} for name in NAMESPACES
    ]
    world["services"] = draw(st.lists(services, max_size=1))
    world["replicaSets"] = draw(st.lists(replica_sets, max_size=1))
    world["pdbs"] = draw(st.lists(budgets, max_size=1))
    world["compatibility"] = draw(st.sampled_from(Compatibility)).text
    return world


# Twists: what the strategies above never give --------------------------------------------------

_NUMBERS = ("", "0", "010", "1.5", "-3", "9223372036854775807", "9223372036854775808")
_AMOUNTS = ("0.25", "1e1", "1E1", ".5", "3u", "100n", "12e-1", "2500m", "1Ki", "0.5Gi", "1T", "0")
_MORE_RESOURCES = (
    "hugepages-2Mi",
    "example.com/disk",
    "ephemeral-storage",
    "cpu",
    "memory",
    "pods",
)
_MORE_PORTS: tuple[Manifest, ...] = (
    {"containerPort": 80},
    {"containerPort": 80, "hostPort": 80, "protocol": "SCTP"},
    {"containerPort": 80, "hostPort": 80, "hostIP": "::"},
    {"containerPort": 81, "hostPort": 80, "hostIP": "10.0.0.1"},
)
_MORE_IMAGES = ("app@sha256:" + "a" * 64, "localhost:5000/app", "localhost:5000/app:v1", "")


def _some_pod(draw: st.DrawFn, case: Manifest) -> Manifest:
    placed = case.get("pods") or []
    return draw(st.sampled_from([case["pod"], case["pod"], *placed]))


def _some_container(draw: st.DrawFn, case: Manifest) -> Manifest:
    spec = _some_pod(draw, case)["spec"]
    container: Manifest = draw(
        st.sampled_from([*spec["containers"], *spec.get("initContainers", [])])
    )
    return container


def _some_node(draw: st.DrawFn, case: Manifest) -> Manifest:
    node: Manifest = draw(st.sampled_from(case["nodes"]))
    return node


def _label_another_way(draw: st.DrawFn, case: Manifest) -> None:
    thing = draw(st.sampled_from([case["pod"], *case["nodes"]]))
    key = draw(st.sampled_from((*KEYS, ZONE, "rack")))
    thing["metadata"].setdefault("labels", {})[key] = draw(st.sampled_from(_NUMBERS))


def _compare_another_number(draw: st.DrawFn, case: Manifest) -> None:
    affinity = case["pod"]["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    expression = {
        "key": draw(names),
        "operator": draw(st.sampled_from(("Gt", "Lt"))),
        "values": [draw(st.sampled_from(_NUMBERS))],
    }
    preferred = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    preferred.append({"weight": 7, "preference": {"matchExpressions": [expression]}})


def _ask_another_amount(draw: st.DrawFn, case: Manifest) -> None:
    asked = _some_container(draw, case).setdefault("resources", {}).setdefault("requests", {})
    asked[draw(st.sampled_from(_MORE_RESOURCES))] = draw(st.sampled_from(_AMOUNTS))


def _have_another_amount(draw: st.DrawFn, case: Manifest) -> None:
    has = _some_node(draw, case)["status"].setdefault("allocatable", {})
    has[draw(st.sampled_from(_MORE_RESOURCES))] = draw(st.sampled_from(_AMOUNTS))


def _have_nothing(draw: st.DrawFn, case: Manifest) -> None:
    _some_node(draw, case)["status"].pop("allocatable", None)


def _limit_alone(draw: st.DrawFn, case: Manifest) -> None:
    own = case["pod"]["spec"].setdefault("resources", {})
    own["limits"] = {"cpu": "2"}


def _taint_again(draw: st.DrawFn, case: Manifest) -> None:
    listed = _some_node(draw, case).setdefault("spec", {}).setdefault("taints", [])
    value = draw(st.sampled_from(_NUMBERS))
    effect = draw(st.sampled_from(EFFECTS))
    listed.append(_without_empty({"key": "gpu", "value": value, "effect": effect}))


def _tolerate_by_number(draw: st.DrawFn, case: Manifest) -> None:
    _taint_again(draw, case)
    case["featureGates"] = {"TaintTolerationComparisonOperators": draw(st.booleans())}
    toleration = {
        "key": "gpu",
        "operator": draw(st.sampled_from(("Lt", "Gt"))),
        "value": draw(st.sampled_from(_NUMBERS)),
        "effect": draw(st.sampled_from(("", *EFFECTS))),
    }
    case["pod"]["spec"].setdefault("tolerations", []).append(_without_empty(toleration))


def _open_another_port(draw: st.DrawFn, case: Manifest) -> None:
    _some_container(draw, case).setdefault("ports", []).append(
        dict(draw(st.sampled_from(_MORE_PORTS)))
    )


def _name_a_node(draw: st.DrawFn, case: Manifest) -> None:
    names_of_nodes = [node["metadata"]["name"] for node in case["nodes"]]
    case["pod"]["spec"]["nodeName"] = draw(st.sampled_from([*names_of_nodes, "elsewhere"]))


def _run_another_image(draw: st.DrawFn, case: Manifest) -> None:
    _some_container(draw, case)["image"] = draw(st.sampled_from(_MORE_IMAGES))


def _have_another_image(draw: st.DrawFn, case: Manifest) -> None:
    listed = _some_node(draw, case)["status"].setdefault("images", [])
    several = draw(st.lists(st.sampled_from((*_MORE_IMAGES, "app:latest", "app:v1")), max_size=3))
    listed.append({"names": several, "sizeBytes": draw(st.sampled_from((0, 1, 10**9, 10**12)))})


def _say_it_twice(draw: st.DrawFn, case: Manifest) -> None:
    spec = _some_pod(draw, case)["spec"]
    affinity = spec.get("affinity") or {}
    lists = [spec.get("tolerations"), spec.get("topologySpreadConstraints")]
    for kind in affinity.values():
        for part in kind.values():
            lists.append(part if isinstance(part, list) else part.get("nodeSelectorTerms"))
    listed = draw(st.sampled_from([one for one in lists if one] or [[{}]]))
    listed.append(listed[0])


def _spread_widely(draw: st.DrawFn, case: Manifest) -> None:
    for constraint in case["pod"]["spec"].get("topologySpreadConstraints") or ():
        constraint["maxSkew"] = draw(st.sampled_from((1, 2**31 - 1)))
        if constraint["whenUnsatisfiable"] == "DoNotSchedule":
            constraint["minDomains"] = draw(st.sampled_from((1, 4, 100)))


def _belong_to_another_kind(draw: st.DrawFn, case: Manifest) -> None:
    member, version, kind = draw(
        st.sampled_from(
            (
                ("replicationControllers", "v1", "ReplicationController"),
                ("statefulSets", "apps/v1", "StatefulSet"),
                ("replicaSets", "extensions/v1beta1", "ReplicaSet"),
            )
        )
    )
    own = draw(st.dictionaries(names, values, max_size=1))
    selector = own if kind == "ReplicationController" else {"matchLabels": own}
    meta = case["pod"]["metadata"]
    meta["ownerReferences"] = [
        {"apiVersion": version, "kind": kind, "name": "one", "controller": True}
    ]
    namespace = draw(st.sampled_from((meta["namespace"], *NAMESPACES)))
    case.setdefault(member, []).append(
        {"metadata": {"name": "one", "namespace": namespace}, "spec": {"selector": selector}}
    )


_TWISTS = (
    _label_another_way,
    _compare_another_number,
    _ask_another_amount,
    _have_another_amount,
    _have_nothing,
    _limit_alone,
    _taint_again,
    _tolerate_by_number,
    _open_another_port,
    _name_a_node,
    _run_another_image,
    _have_another_image,
    _say_it_twice,
    _spread_widely,
    _belong_to_another_kind,
)


@st.composite
def twisted(draw: st.DrawFn, case: Manifest) -> Manifest:
    """Return a case with up to three things that the strategies above never give.

    Numbers as text, amounts in other notations, taints and tolerations that compare, ports on other
    addresses, images with several names, entries that stand twice, owners of other kinds.

    Args:
        draw: Hypothesis.
        case: a world with the ``pod`` that is to be placed; it is not changed.
    """
    case = copy.deepcopy(case)
    for twist in draw(st.lists(st.sampled_from(_TWISTS), max_size=3)):
        twist(draw, case)
    return case


def happenings(
    *places: st.SearchStrategy[Any], fewest: int, most: int, **others: int
) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """What happens to a cluster, step by step.

    Args:
        places: which pods are placed in a step; each is as likely as another kind of step.
        fewest: steps.
        most: steps.
        others: by what else happens (``remove_node``: "remove node"), the highest number it is
            told.
    """
    return st.lists(
        st.one_of(
            *(st.tuples(st.just("place"), which) for which in places),
            *(
                st.tuples(st.just(what.replace("_", " ")), st.integers(0, highest))
                for what, highest in others.items()
            ),
        ),
        min_size=fewest,
        max_size=most,
    )
