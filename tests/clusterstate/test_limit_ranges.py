"""LimitRanges hold from the moment they are stored, in every process that creates pods."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusterstate import catalogue
from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.errors import Forbidden, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest
from tests.clusterstate.support import NOW
from tests.creating import create_pod

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)


def limit(namespace: str = "default", name: str = "limits", **item: Any) -> None:
    spec = {"limits": [{"type": "Container", **item}]}
    objects.create("LimitRange", namespace, {"metadata": {"name": name}, "spec": spec}, now=NOW)


def made(name: str, namespace: str = "default", **resources: Any) -> Manifest:
    """Create a pod and return what its only container asks for."""
    containers = [{"name": "main", "image": "i", "resources": resources}]
    manifest = {"metadata": {"name": name}, "spec": {"containers": containers}}
    create_pod(manifest, namespace=namespace, now=NOW)
    stored = get_manifest("Pod", namespace, name)
    resources_of: Manifest = stored["spec"]["containers"][0].get("resources") or {}
    return resources_of


def test_a_limit_range_holds_for_its_namespace_from_now_on() -> None:
    assert made("before") == {}
    limit(default={"cpu": "1"})
    assert made("after") == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert made("elsewhere", namespace="kube-public") == {}
    objects.delete("LimitRange", "default", "limits", now=NOW)
    assert made("later") == {}


def test_a_changed_limit_range_holds_for_pods_alike() -> None:
    """What admission made of a pod's spec is remembered; other limits make something else of it."""
    limit(default={"cpu": "1"})
    assert made("one")["limits"] == {"cpu": "1"}

    def raised(manifest: Manifest) -> Manifest:
        limits = [{"type": "Container", "default": {"cpu": "2"}}]
        return {**manifest, "spec": {"limits": limits}}

    objects.update("LimitRange", "default", "limits", raised, now=NOW)
    assert made("two")["limits"] == {"cpu": "2"}


def test_a_refused_pod_leaves_nothing_behind() -> None:
    limit(max={"cpu": "1"})
    with pytest.raises(Forbidden, match="maximum cpu usage per Container is 1, but limit is 2"):
        made("large", limits={"cpu": "2"})
    with pytest.raises(NotFound):
        get_manifest("Pod", "default", "large")


def test_a_namespace_that_goes_gets_no_limits_any_more() -> None:
    objects.create("Namespace", "", {"metadata": {"name": "going"}}, now=NOW)
    made("keeps", namespace="going")
    objects.delete("Namespace", "", "going", now=NOW)
    with pytest.raises(Forbidden, match="because it is being terminated"):
        limit("going")


# --- Updates in a process that remembers the rules of before -----------------------------------


@contextmanager
def elsewhere() -> Iterator[None]:
    """Let what is done within be done by another process: this one remembers what it knew."""
    known = catalogue.current()
    yield
    catalogue._memory.catalogue = known


def resized(cpu: str) -> None:
    def change(pod: Manifest) -> Manifest:
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpu
        return pod

    objects.update("Pod", "default", "p", change, now=NOW, subresource="resize")


def grown(storage: str) -> None:
    def change(claim: Manifest) -> Manifest:
        claim["spec"]["resources"]["requests"]["storage"] = storage
        return claim

    objects.update("PersistentVolumeClaim", "default", "c", change, now=NOW)


def test_a_resize_is_judged_by_the_limits_that_other_processes_made_and_deleted() -> None:
    made("p", requests={"cpu": "100m"}, limits={"cpu": "1"})
    with elsewhere():
        limit(max={"cpu": "2"})
    with pytest.raises(Forbidden, match="maximum cpu usage"):
        resized("3")
    with elsewhere():
        objects.delete("LimitRange", "default", "limits", now=NOW)
    resized("3")


def test_a_claim_grows_within_the_limits_that_other_processes_made() -> None:
    storage_class = {"metadata": {"name": "s"}, "provisioner": "p", "allowVolumeExpansion": True}
    objects.create("StorageClass", "", storage_class, now=NOW)
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    objects.create("PersistentVolumeClaim", "default", claim, now=NOW)
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    objects.update(
        "PersistentVolumeClaim", "default", "c", lambda one: one | bound, now=NOW,
        subresource="status",
    )  # fmt: skip
    with elsewhere():
        spec = {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}]}
        objects.create("LimitRange", "default", {"metadata": {"name": "l"}, "spec": spec}, now=NOW)
    with pytest.raises(Forbidden, match="maximum storage usage"):
        grown("3Gi")


def test_every_change_of_the_rules_is_seen_before_the_next_update() -> None:
    """Of each kind in the catalogue: what was written elsewhere is known when it is asked for."""
    written = {
        "Namespace": ("", {}),
        "PriorityClass": ("", {"value": 1}),
        "RuntimeClass": ("", {"handler": "h"}),
        "LimitRange": ("default", {"spec": {"limits": []}}),
        "ResourceQuota": ("default", {"spec": {"hard": {"pods": "5"}}}),
    }
    assert written.keys() == {kind.name for kind in ALL_KINDS if kind.in_catalogue}
    for kind, (namespace, body) in written.items():
        with elsewhere():
            objects.create(kind, namespace, {"metadata": {"name": "new"}, **body}, now=NOW)
        stale = catalogue.current()
        assert not catalogue.is_current(stale)
        assert catalogue.fresh() is not stale
        assert catalogue.fresh() is catalogue.current()
