"""What the scheduler does otherwise under each version of Kubernetes: docs/compatibility.md."""

from typing import Any

import pytest

from clusterstate.objects.rules import resources
from clusterstate.objects.rules.resources import PodResourcesOptions
from clusterstate.objects.values.compatibility import NEWEST, Compatibility, parse
from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from scheduling.framework.configuration.documents import load
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance import plugin_cases
from tests.simulation.builders import result

V1_36, V1_37, V1_38 = Compatibility
DOCUMENT = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
MIB = 1024 * 1024


def under(version: Compatibility) -> Manifest:
    return {**DOCUMENT, "compatibility": version.text}


def test_the_configuration_names_a_version_and_the_newest_is_the_default() -> None:
    assert load(DOCUMENT).compatibility is NEWEST is V1_38
    for version in Compatibility:
        loaded = load(under(version))
        assert loaded.compatibility is version is parse(version.text)
        assert {one.compatibility for one in loaded.profiles} == {version}
        assert loaded.document["compatibility"] == version.text
    assert load({**DOCUMENT, "compatibility": 1.36}).compatibility is V1_36, "as YAML reads it"


@pytest.mark.parametrize("wrong", ["1.35", "1.36.2", "newest", "v1.37", 1, True, [], {"a": 1}])
def test_another_version_is_an_error_of_the_field(wrong: object) -> None:
    with pytest.raises(Invalid) as refused:
        load({**DOCUMENT, "compatibility": wrong})
    (error,) = refused.value.errors
    assert (error.field, error.detail) == (
        "compatibility",
        'must be one of "1.36", "1.37", "1.38"',
    )


def spreading(selector: Manifest | None) -> Manifest:
    constraint: Manifest = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }
    if selector is not None:
        constraint["labelSelector"] = selector
    pod = make_pod("new").manifest
    return {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": [constraint]}}


@pytest.mark.parametrize("version", Compatibility)
@pytest.mark.parametrize("terminating", [False, True])
def test_an_empty_selector_of_a_spread_constraint(
    version: Compatibility, terminating: bool
) -> None:
    """kubernetes#141340: until 1.37 it counts nobody but the pod itself; absent, never anybody."""
    there = [make_pod(f"there-{n}").on("n-a") for n in range(3)]
    if terminating:
        there = [one.deleted() for one in there]
    objects = [make_node("n-a").in_zone("a"), make_node("n-b").in_zone("b").cordoned(), *there]
    found = result(objects, spreading({}), configuration=under(version))
    counts = version >= V1_38 and not terminating
    assert found["status"] == ("unschedulable" if counts else "scheduled"), found
    other = [make_pod("other").on("n-a").in_namespace("elsewhere")]
    found = result([*objects[:2], *other], spreading({}), configuration=under(version))
    assert found["status"] == "scheduled"
    found = result(objects, spreading(None), configuration=under(version))
    assert found["status"] == "scheduled"


def budget(selector: Manifest) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": selector},
        "status": {"disruptionsAllowed": 0},
    }


@pytest.mark.parametrize("version", Compatibility)
@pytest.mark.parametrize("labels", [{}, {"app": "web"}])
@pytest.mark.parametrize(
    "selector",
    [{}, {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}],
)
def test_a_budget_that_guards_pods_without_labels(
    version: Compatibility, labels: dict[str, str], selector: Manifest
) -> None:
    """kubernetes#141785: until 1.37 preemption passes over an empty selector, and such pods."""
    guarded = make_pod("guarded").labelled(labels).on("n-1").asks(cpu=4).priority(1)
    free = make_pod("free").in_namespace("elsewhere").on("n-2").asks(cpu=4).priority(2)
    objects = [make_node("n-1").offers(cpu=4), make_node("n-2").offers(cpu=4), guarded, free]
    found = result(
        [*objects, budget(selector)],
        make_pod("vip").asks(cpu=4).priority(10),
        configuration=under(version),
        admission=False,
    )
    guards = version >= V1_38 or bool(labels and selector)
    assert found["preemption"]["nominatedNode"] == ("n-2" if guards else "n-1")


@pytest.mark.parametrize(("version", "score"), [(V1_36, 100), (V1_37, 49), (V1_38, 49)])
def test_an_image_volume_counts_once(version: Compatibility, score: int) -> None:
    """kubernetes#138951: until 1.36 it adds to the sum and does not raise the limit."""
    pod = make_pod("new").image("small").manifest
    volume = {"name": "data", "image": {"reference": "large:latest"}}
    node = make_node("n-1").with_(
        "status", "images", value=[{"names": ["large:latest"], "sizeBytes": 1000 * MIB}]
    )
    case: Manifest = {
        "plugin": "ImageLocality",
        "kind": "score",
        "compatibility": version.text,
        "nodes": [node.manifest],
        "candidates": ["n-1"],
        "pod": {**pod, "spec": {**pod["spec"], "volumes": [volume]}},
        "expect": {},
    }
    for found in (plugin_cases.run_reference(case), harness.run_plugin_case(case)):
        assert found["raw"] == {"n-1": score}


def resized(*, pod_status: bool = False, infeasible: bool = False) -> Pod:
    """Two containers, each largest in another state: spec 1+4, allocated 2+3, actual 3+1."""
    containers = [
        {"name": name, "resources": {"requests": {"cpu": amount}}}
        for name, amount in (("a", "1"), ("b", "4"))
    ]
    statuses = [
        {
            "name": name,
            "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": actual}},
        }
        for name, allocated, actual in (("a", "2", "3"), ("b", "3", "1"))
    ]
    status: dict[str, Any] = {"containerStatuses": statuses}
    if infeasible:
        pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        status["conditions"] = [pending]
    if pod_status:
        status |= {"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "2"}}}
    return make_pod("p").with_("spec", "containers", value=containers).with_(
        "status", value=status
    ).build()  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "by_container", "by_sum"),
    [
        (resized(), 7000, 5000),
        (resized(infeasible=True), 6000, 5000),
        (resized(pod_status=True), 7000, 6000),
    ],
)
def test_what_a_pod_asks_for_while_it_is_resized(pod: Pod, by_container: int, by_sum: int) -> None:
    """Until 1.36 the sum of the largest; then the largest sum, or what the pod's status says."""
    for version in Compatibility:
        expected = by_container if version < V1_37 else by_sum
        assert resources.pod_request_ints(pod, version) == {"cpu": expected}
        assert resources.non_zero_requests(pod, version)[0] == expected
        options = PodResourcesOptions(use_status_resources=True, compatibility=version)
        assert resources.pod_requests(pod, options)["cpu"].milli_value() == expected
