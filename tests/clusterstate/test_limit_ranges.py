"""LimitRanges hold from the moment they are stored, in every process that creates pods."""

from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
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
