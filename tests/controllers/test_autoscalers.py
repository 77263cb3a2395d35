"""HorizontalPodAutoscalers in the database: within their bounds, and honest about the rest."""

import pytest

from clusterstate.actions import objects
from clusterstate.queries.objects import get_manifest
from scheduling.controllers.workloads import follower
from tests.controllers.support import NOW, after, make_owner

pytestmark = pytest.mark.django_db


def make_autoscaler(kind="Deployment", name="web", **spec):
    manifest = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
            "minReplicas": 2, "maxReplicas": 4, **spec,
        },
    }  # fmt: skip
    objects.create("HorizontalPodAutoscaler", "default", manifest, now=NOW)


def size():
    return get_manifest("Deployment", "default", "web")["spec"]["replicas"]


def status():
    return get_manifest("HorizontalPodAutoscaler", "default", "web")["status"]


def conditions():
    return {one["type"]: (one["status"], one["reason"]) for one in status()["conditions"]}


@pytest.mark.parametrize(("replicas", "wanted"), [(1, 2), (3, 3), (9, 4)])
def test_the_target_is_kept_between_the_bounds(replicas, wanted):
    make_owner("Deployment", "web", replicas)
    make_autoscaler()
    follower.follow(NOW)
    assert size() == wanted
    follower.follow(after(1))
    assert conditions()["ScalingActive"] == ("False", "FailedGetResourceMetric")
    assert conditions()["AbleToScale"] == ("True", "SucceededGetScale")
    assert status()["desiredReplicas"] == (0 if replicas == wanted else wanted)
    assert ("lastScaleTime" in status()) == (replicas != wanted)


def test_a_target_of_size_zero_is_left_alone():
    make_owner("Deployment", "web", 0)
    make_autoscaler()
    follower.follow(NOW)
    assert size() == 0
    assert conditions()["ScalingActive"] == ("False", "ScalingDisabled")


def test_a_target_that_is_not_there_is_named():
    make_autoscaler(kind="StatefulSet", name="nobody")
    follower.follow(NOW)
    assert conditions() == {"AbleToScale": ("False", "FailedGetScale")}
    (condition,) = status()["conditions"]
    assert condition["message"].endswith("current scale: StatefulSet nobody not found")


def test_nothing_is_written_while_nothing_changes():
    make_owner("Deployment", "web", 3)
    make_autoscaler()
    for second in (0, 1, 2):
        follower.follow(after(second))
    before = get_manifest("HorizontalPodAutoscaler", "default", "web")
    for second in (3, 4):
        follower.sync("default", after(second))
    assert get_manifest("HorizontalPodAutoscaler", "default", "web") == before
