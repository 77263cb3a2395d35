"""LimitRanger: what LimitRanges fill in and what they refuse, in Kubernetes' words."""

import copy
from typing import Any

import pytest

from clusterstate.admission import CREATE, UPDATE, admit
from clusterstate.admission.defaults import set_defaults
from clusterstate.admission.plugins import limit_ranger
from clusterstate.admission.request import Request
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.meta import Manifest
from tests.admission.context import NOBODY, Known, create, pod

CPU = "cpu"


def limit_range(*items: Manifest, name: str = "limits") -> Manifest:
    """A LimitRange as it is stored: its own defaults are filled in."""
    manifest = {"metadata": {"name": name, "namespace": "default"}, "spec": {"limits": list(items)}}
    set_defaults("LimitRange", manifest)
    return manifest


def container(name: str = "main", **resources: Any) -> Manifest:
    return {"name": name, "image": "i", "resources": resources}


def admitted(spec: Manifest, *ranges: Manifest, **metadata: Any) -> Manifest:
    return create(pod(spec, **metadata), Known(limit_ranges=ranges)).manifest


def resources_of(manifest: Manifest) -> list[Manifest]:
    spec = manifest["spec"]
    return [
        c.get("resources") or {} for c in (*spec["containers"], *spec.get("initContainers", ()))
    ]


@pytest.mark.parametrize(
    ("item", "stated", "expected"),
    [
        pytest.param(
            {"default": {"cpu": "1"}},
            {},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            id="requests default to limits",
        ),
        pytest.param(
            {"max": {"cpu": "2"}},
            {},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
            id="limits default to maxima",
        ),
        pytest.param(
            {"min": {"memory": "1Mi"}}, {}, {"requests": {"memory": "1Mi"}}, id="minima, too"
        ),
        pytest.param(
            {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}},
            {},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}},
            id="both",
        ),
        pytest.param(
            {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}},
            {"requests": {"cpu": "200m"}},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "200m"}},
            id="what is stated stays",
        ),
        pytest.param(
            {"default": {"cpu": "1", "memory": "1Gi"}},
            {"limits": {"cpu": "300m"}},
            {
                "limits": {"cpu": "300m", "memory": "1Gi"},
                "requests": {"cpu": "300m", "memory": "1Gi"},
            },
            id="resource by resource",
        ),
        pytest.param(
            {"default": {"example.com/gpu": "1"}},
            {},
            {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}},
            id="extended resources",
        ),
    ],
)
def test_what_a_container_leaves_out_is_filled_in(
    item: Manifest, stated: Manifest, expected: Manifest
) -> None:
    containers = {"containers": [container(**stated)], "initContainers": [container("i", **stated)]}
    made = admitted(containers, limit_range({"type": "Container", **item}))
    assert resources_of(made) == [expected, expected]


def test_the_pod_says_what_was_filled_in() -> None:
    ranges = limit_range(
        {"type": "Container", "default": {"memory": "1Gi", "cpu": "1"}},
    )
    spec = {
        "containers": [container("a"), container("b", requests={"cpu": "1", "memory": "1Gi"})],
        "initContainers": [container("c", limits={"cpu": "1"})],
    }
    made = admitted(spec, ranges, annotations={"x": "y"})
    assert made["metadata"]["annotations"] == {
        "x": "y",
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: cpu, memory request for container a;"
            " cpu, memory limit for container a; cpu, memory limit for container b;"
            " memory request for init container c; memory limit for init container c"
        ),
    }


def test_a_pod_that_states_all_is_not_annotated() -> None:
    stated = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    made = admitted(
        {"containers": [container(**stated)]},
        limit_range({"type": "Container", "default": {"cpu": "2"}}),
    )
    assert "annotations" not in made["metadata"]


def test_defaults_come_before_the_pods_own_are_checked() -> None:
    item = {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}, "min": {"cpu": "1"}}
    assert resources_of(admitted({}, limit_range(item)))


@pytest.mark.parametrize(
    ("item", "stated", "words"),
    [
        (
            {"min": {"cpu": "200m"}},
            {"requests": {"cpu": "0.1"}},
            "minimum cpu usage per Container is 200m, but request is 100m",
        ),
        (
            {"min": {"memory": "64Mi"}, "defaultRequest": {"memory": "64Mi"}},
            {"limits": {"memory": "1Mi"}, "requests": {"memory": "1Mi"}},
            "minimum memory usage per Container is 64Mi, but request is 1Mi",
        ),
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1"}},
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "300m"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            (
                "cpu max limit to request ratio per Container is 2, but no request is specified or"
                " request is 0"
            ),
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            (
                "cpu max limit to request ratio per Container is 2, but no limit is specified or"
                " limit is 0"
            ),
        ),
    ],
)
def test_what_a_container_may_not_ask_for(item: Manifest, stated: Manifest, words: str) -> None:
    with pytest.raises(Forbidden) as refused:
        admitted({"containers": [container(**stated)]}, limit_range({"type": "Container", **item}))
    assert refused.value.message == f'pods "web" is forbidden: {words}'


def test_all_violations_of_a_limit_range_are_named_once_each() -> None:
    item = {
        "type": "Container",
        "min": {"cpu": "200m", "memory": "1Gi"},
        "max": {"cpu": "1"},
        "default": {"cpu": "1"},
    }
    spec = {
        "containers": [
            container("a", requests={"cpu": "100m", "memory": "1Mi"}, limits={"cpu": "2"}),
            container("b", requests={"cpu": "100m", "memory": "1Gi"}),
        ],
        "initContainers": [container("c", requests={"cpu": "100m", "memory": "1Gi"})],
    }
    with pytest.raises(Forbidden) as refused:
        admitted(spec, limit_range(item))
    assert refused.value.message == (
        'pods "web" is forbidden: [minimum cpu usage per Container is 200m, but request is 100m,'
        " minimum memory usage per Container is 1Gi, but request is 1Mi,"
        " maximum cpu usage per Container is 1, but limit is 2]"
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {
                "containers": [
                    container("a", limits={"cpu": "600m"}),
                    container("b", limits={"cpu": "600m"}),
                ]
            },
            "maximum cpu usage per Pod is 1, but limit is 1200m",
        ),
        ({}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        (
            {
                "containers": [container("a", limits={"cpu": "600m"})],
                "initContainers": [
                    {**container("s", limits={"cpu": "600m"}), "restartPolicy": "Always"}
                ],
            },
            "maximum cpu usage per Pod is 1, but limit is 1200m",
        ),
        (
            {"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}}},
            "maximum cpu usage per Pod is 1, but limit is 3",
        ),
    ],
)
def test_what_a_pod_may_not_ask_for(spec: Manifest, words: str) -> None:
    with pytest.raises(Forbidden) as refused:
        admitted(spec, limit_range({"type": "Pod", "max": {"cpu": "1"}}))
    assert refused.value.message == f'pods "web" is forbidden: {words}'


def test_init_containers_run_before_the_others_and_overhead_is_not_the_pods() -> None:
    spec = {
        "containers": [container("a", limits={"cpu": "1"})],
        "initContainers": [container("b", limits={"cpu": "1"})],
        "runtimeClassName": "heavy",
    }
    heavy = {
        "metadata": {"name": "heavy"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
    }
    known = Known(
        limit_ranges=(limit_range({"type": "Pod", "max": {"cpu": "1"}}),), runtime_classes=(heavy,)
    )
    made = create(pod(spec), known).manifest
    assert made["spec"]["overhead"] == {"cpu": "1"}


def test_each_limit_range_is_asked_and_the_first_that_objects_speaks() -> None:
    first = limit_range({"type": "Container", "max": {"cpu": "4"}}, name="a")
    other = limit_range({"type": "Container", "max": {"cpu": "2"}}, name="b")
    with pytest.raises(Forbidden, match="maximum cpu usage per Container is 2, but limit is 3"):
        admitted({"containers": [container(limits={"cpu": "3"})]}, first, other)


def test_a_pod_that_is_there_is_not_asked_again() -> None:
    known = Known(limit_ranges=(limit_range({"type": "Container", "min": {"cpu": "1"}}),))
    old = create(pod({"containers": [container(requests={"cpu": "1m"})]})).manifest
    old["metadata"]["resourceVersion"] = "1"
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    kept = admit("Pod", UPDATE, new, old, "", known, NOBODY).manifest
    assert resources_of(kept) == [{"requests": {"cpu": "1m"}}]
    assert "annotations" not in kept["metadata"]


def test_it_can_be_switched_off() -> None:
    known = Known(
        limit_ranges=(limit_range({"type": "Container", "max": {"cpu": "1"}}),), limit_ranger=False
    )
    made = admit("Pod", CREATE, pod(), None, "", known, NOBODY).manifest
    assert resources_of(made) == [{}]


# What differs by version: docs/compatibility.md ------------------------------------------------


def judge(
    manifest: Manifest,
    old: Manifest | None,
    *ranges: Manifest,
    kind: str = "Pod",
    version: Compatibility = NEWEST,
) -> None:
    limit_ranger.validate(
        Request(
            kind=kind,
            operation=CREATE if old is None else UPDATE,
            manifest=manifest,
            old=old,
            subresource="resize" if kind == "Pod" and old is not None else "",
            namespace="default",
            name="web",
            user=NOBODY,
            context=Known(limit_ranges=ranges, compatibility=version),
        )
    )


def resize(
    old: Manifest, resources: Manifest, item: Manifest, version: Compatibility = NEWEST
) -> None:
    """Resize the container ``a`` of a pod."""
    new = copy.deepcopy(old)
    for field in ("containers", "initContainers"):
        for one in new["spec"].get(field, ()):
            if one["name"] == "a":
                one["resources"] = resources
    judge(new, old, {"spec": {"limits": [item]}}, version=version)


IN_FORCE: list[Manifest] = [
    {"type": "Container", "min": {"memory": "128Mi"}, "max": {"cpu": "2"}},
    {"type": "Container", "max": {"memory": "32Mi", "cpu": "2"}},
    {"type": "Container", "maxLimitRequestRatio": {"memory": "1"}, "max": {"cpu": "2"}},
    {"type": "Pod", "max": {"memory": "100Mi", "cpu": "3"}},
]


@pytest.mark.parametrize("item", IN_FORCE)
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_resize_is_judged_by_what_it_changes(item: Manifest, field: str) -> None:
    """kubernetes#142171: until 1.37 it was judged by what had been there, too."""
    stored = {
        "requests": {"cpu": "1", "memory": "48Mi"},
        "limits": {"cpu": "1", "memory": "64Mi"},
    }
    always = {"restartPolicy": "Always"} if field == "initContainers" else {}
    spec: Manifest = {"containers": [container("b", **stored)]}
    spec[field] = [*spec.get(field, ()), {**container("a", **stored), **always}]
    old = pod(spec)

    def asking(cpu: str, limit: str = "64Mi") -> Manifest:
        return {
            "requests": {"cpu": cpu, "memory": "48Mi"},
            "limits": {"cpu": cpu, "memory": limit},
        }

    resize(old, asking("1500m"), item)
    with pytest.raises(Forbidden, match="memory"):
        resize(old, asking("1500m"), item, Compatibility.V1_37)
    with pytest.raises(Forbidden, match="cpu"):
        resize(old, asking("4"), item)
    with pytest.raises(Forbidden, match="memory"):
        resize(old, asking("1", "96Mi"), item)


def claim(amount: str, **more: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default", **more},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": amount}},
        },
    }


def test_a_claim_is_judged_by_a_request_that_changes() -> None:
    """kubernetes#142170: a label may be set on a claim that an earlier LimitRange let pass."""
    kind = "PersistentVolumeClaim"
    item = {"type": kind, "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    limits: Manifest = {"spec": {"limits": [item]}}
    labelled = claim("512Mi", labels={"a": "b"})
    judge(labelled, claim("512Mi"), limits, kind=kind)
    with pytest.raises(Forbidden, match="minimum storage"):
        judge(labelled, claim("512Mi"), limits, kind=kind, version=Compatibility.V1_37)
    with pytest.raises(Forbidden, match="minimum storage"):
        judge(claim("768Mi"), claim("512Mi"), limits, kind=kind)
    with pytest.raises(Forbidden, match="minimum storage"):
        judge(claim("512Mi"), None, limits, kind=kind)


LARGE = 2**63 // 1000 + 1
"""The first whole number whose thousandths do not fit into 64 bits."""


@pytest.mark.parametrize(
    ("item", "stated", "passes_until"),
    [
        ({"min": {CPU: "1"}}, {"requests": {CPU: "0.9999"}}, Compatibility.V1_37),
        ({"min": {CPU: "1"}}, {"requests": {CPU: "0.999"}}, None),
        ({"max": {CPU: "1"}}, {"limits": {CPU: "1.0001"}}, None),
        ({"min": {"memory": f"{LARGE}"}}, {"requests": {"memory": f"{LARGE - 1}.5"}},
         Compatibility.V1_37),
        ({"min": {"memory": f"{LARGE}"}}, {"requests": {"memory": f"{LARGE - 1}"}}, None),
        ({"maxLimitRequestRatio": {CPU: "2"}},
         {"requests": {CPU: "0.9999"}, "limits": {CPU: "2"}}, Compatibility.V1_37),
        ({"maxLimitRequestRatio": {CPU: "2"}}, {"requests": {CPU: "1"}, "limits": {CPU: "3"}},
         None),
    ],
)  # fmt: skip
def test_amounts_are_compared_exactly(
    item: Manifest, stated: Manifest, passes_until: Compatibility | None
) -> None:
    """kubernetes#141348: until 1.37 as thousandths, or as whole units where these overflow."""
    limits: Manifest = {"spec": {"limits": [{"type": "Container", **item}]}}
    for version in Compatibility:
        manifest = pod({"containers": [container(**stated)]})
        if passes_until is not None and version <= passes_until:
            judge(manifest, None, limits, version=version)
        else:
            with pytest.raises(Forbidden):
                judge(manifest, None, limits, version=version)
