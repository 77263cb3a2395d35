"""Owned pods are replaced (R136)."""

import pytest
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.pods.status import fail_pods
from clusterstate.database import locks
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers import garbage
from scheduling.controllers.workloads import claims
from scheduling.controllers.workloads import follower as workloads
from scheduling.controllers.workloads.control import NamespaceControl
from scheduling.controllers.workloads.world import NamespaceState
from tests.controllers.support import NOW, bind, evict, make_node, make_owner, set_taints, taint
from tests.creating import create_pod

pytestmark = pytest.mark.django_db

SPEC = {"containers": [{"name": "c", "image": "i"}]}


def scale(kind, name, count):
    objects.update(
        kind, "default", name,
        lambda m: {**m, "spec": {**m["spec"], "replicas": count}}, now=NOW,
    )  # fmt: skip


def settle():
    for _ in range(4):
        workloads.follow(NOW)


def live():
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return [
        one["metadata"]["name"]
        for one in found
        if not one["metadata"].get("deletionTimestamp") and one["status"]["phase"] != "Failed"
    ]


def test_two_passes_at_a_time_make_no_pod_twice():
    """Celery starts a pass each second, whether the one before has ended or not."""
    make_owner("ReplicaSet", "rs", 2)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", (locks.WORKLOADS,))
        assert workloads.follow(NOW) == 0
        assert live() == []
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", (locks.WORKLOADS,))
    finally:
        other.close()
    settle()
    assert len(live()) == 2


def test_a_replacement_comes_for_a_pod_that_was_evicted():
    """R136: by taint the pod goes, by starvation it stays as Failed; both are replaced."""
    make_owner("Deployment", "web", 2)
    settle()
    first = live()
    assert len(first) == 2
    make_node("n1")
    for name in first:
        bind(find_pod_id("default", name), "n1")
    set_taints("n1", taint())
    assert evict(0) == sorted(first)
    settle()
    second = live()
    assert len(second) == 2
    assert not set(first) & set(second)
    fail_pods([(find_pod_id("default", second[0]), "Evicted", "low on memory")], now=NOW)
    settle()
    assert len(live()) == 2
    assert second[0] not in live()


def test_scaling_creates_and_deletes():
    make_owner("ReplicaSet", "web", 3)
    settle()
    assert len(live()) == 3
    scale("ReplicaSet", "web", 1)
    settle()
    assert len(live()) == 1
    assert get_manifest("ReplicaSet", "default", "web")["status"]["replicas"] == 1
    settle()
    assert len(live()) == 1


def test_deleting_the_owner_deletes_the_pods():
    make_owner("Deployment", "web", 2)
    settle()
    objects.delete("Deployment", "default", "web", now=NOW)
    garbage.follow(NOW)
    settle()
    assert live() == []
    assert list_page("ReplicaSet", "default").items == []


def test_it_can_be_turned_off(settings):
    settings.CONTROLLERS = frozenset()
    make_owner("ReplicaSet", "web", 3)
    settle()
    assert live() == []


@pytest.mark.parametrize("how", ["Orphan", "Background"])
@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment"])
def test_an_owner_that_is_deleted_meanwhile_adopts_nobody(kind, how):
    """Whom it adopted after its namespace was read went with it."""
    make_owner(kind, "web", 1)
    settle()
    stray = {"name": "stray", "namespace": "default", "labels": {"app": "web"}}
    template = {"metadata": {"labels": stray["labels"]}, "spec": SPEC}
    spec = {"selector": {"matchLabels": stray["labels"]}, "template": template, "replicas": 0}
    objects.create("ReplicaSet", "default", {"metadata": stray, "spec": spec}, now=NOW)
    create_pod({"metadata": stray, "spec": SPEC}, now=NOW)
    control = NamespaceControl(NamespaceState("default", ["ReplicaSet", "Deployment"]), NOW)
    (owner,) = (one for one in control.world.owners[kind] if one["metadata"]["name"] == "web")
    objects.delete(kind, "default", "web", {"propagationPolicy": how}, now=NOW)
    if kind == "Deployment":
        claims.claim(control, owner, "ReplicaSet")
    else:
        control.claim(owner)
    for other in ("ReplicaSet", "Pod"):
        assert "ownerReferences" not in get_manifest(other, "default", "stray")["metadata"]


def test_an_owner_that_leaves_keeps_what_it_selects_and_lets_nothing_go():
    make_owner("Deployment", "web", 1)
    settle()
    control = NamespaceControl(NamespaceState("default", ["ReplicaSet", "Deployment"]), NOW)
    (stored,) = control.world.owners["Deployment"]
    metadata = {**stored["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = {**stored, "metadata": metadata}
    assert len(claims.claim(control, leaving, "ReplicaSet")) == 1
    elsewhere = {**leaving["spec"], "selector": {"matchLabels": {"app": "other"}}}
    assert claims.claim(control, {**leaving, "spec": elsewhere}, "ReplicaSet") == []
    (one,) = [decode_object(item) for item in list_page("ReplicaSet", "default").items]
    assert one["metadata"]["ownerReferences"]
