"""Pods whose labels change while a controller reads its namespace are there all the time.

With other labels a pod is of another scheduling class. A controller finds pods by their classes, so
that it must not pass over one that changes its class between two statements: a ReplicaSet would
make a pod in its place, and then delete one too many.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from clusterstate.actions import objects
from clusterstate.objects.rules.ownership import Owner
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, dependents, find_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.workloads import classes_in, pods_of_classes
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers import garbage
from scheduling.controllers.endpoints.pods import Pods
from scheduling.controllers.workloads import follower as workloads
from scheduling.controllers.workloads.world import NamespaceState
from tests.controllers.support import NOW, make_node, make_owner, make_pod
from tests.controllers.test_endpoints import report

pytestmark = pytest.mark.django_db(transaction=True)

_SECONDS = 2.0


def pod_names() -> list[str]:
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return [one["metadata"]["name"] for one in found]


def relabel(name: str, mark: str) -> None:
    def changed(pod: Manifest) -> Manifest:
        metadata = pod["metadata"]
        return {**pod, "metadata": {**metadata, "labels": {**metadata["labels"], "mark": mark}}}

    objects.update("Pod", "default", name, changed, now=NOW)


@contextmanager
def relabelling(names: list[str]) -> Iterator[None]:
    """Change labels of these pods, one after the other, as long as the block lasts."""
    stop = threading.Event()
    failed: list[Exception] = []

    def work() -> None:
        try:
            for number, name in enumerate(itertools.cycle(names)):
                if stop.is_set():
                    return
                relabel(name, f"m{number}")
        except Exception as error:  # noqa: BLE001  # raised where the block ends
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    assert failed == []


def repeated(look: Callable[[], object]) -> list[object]:
    end = time.monotonic() + _SECONDS
    found = []
    while time.monotonic() < end:
        found.append(look())
    return found


def test_a_workload_has_all_its_pods_at_every_look() -> None:
    make_owner("ReplicaSet", "web", 3)
    workloads.follow(NOW)
    names = pod_names()
    assert len(names) == 3
    owner = get_manifest("ReplicaSet", "default", "web")
    with relabelling(names):
        counts = repeated(lambda: len(NamespaceState("default", ["ReplicaSet"]).pods_of(owner)))
    assert set(counts) == {3}


def test_what_changes_its_class_between_two_statements_is_found_by_the_second() -> None:
    """One pod leaves the classes that were read, one comes into existence, and both are there."""
    make_owner("ReplicaSet", "web", 2)
    workloads.follow(NOW)
    first, second = pod_names()
    mark, classes = classes_in("default")
    relabel(first, "new")
    make_pod("late")
    found = pods_of_classes("default", classes, mark)
    assert [row.id for row in found] == sorted(
        find_pod_id("default", name) for name in (first, second, "late")
    )
    assert len({row.class_id for row in found}) == 3


def test_a_pod_that_is_relabelled_keeps_its_endpoint_at_every_look() -> None:
    make_node("n1")
    for number in range(3):
        name = f"web-{number}"
        make_pod(name, "n1", metadata={"labels": {"app": "web"}})
        report(name, f"10.0.0.{number + 1}")
    with relabelling([f"web-{number}" for number in range(3)]):
        counts = repeated(lambda: len(Pods("default", [{"app": "web"}]).chosen_by({"app": "web"})))
    assert set(counts) == {3}


def test_the_collector_finds_pods_that_were_relabelled_since_it_read_the_log() -> None:
    """An owner that orphans its pods must not go while one of them still names it."""
    make_owner("ReplicaSet", "web", 2)
    workloads.follow(NOW)
    garbage.follow(NOW)
    manifest = get_manifest("ReplicaSet", "default", "web")
    owner = Owner("ReplicaSet", "default", "web", manifest["metadata"]["uid"])
    mark, classes = classes_in("default")
    found = dependents.pods_of(owner, classes, mark, live=True, limit=10)
    assert len(found) == 2
    for number, name in enumerate(pod_names()):
        relabel(name, f"m{number}")
    assert dependents.pods_of(owner, classes, mark, live=True, limit=10) == found
    assert dependents.pods_of(owner, classes, mark, live=True, limit=1) == found[:1]


def test_pods_that_are_relabelled_while_their_owner_goes_are_orphaned_and_stay() -> None:
    make_owner("ReplicaSet", "web", 2)
    workloads.follow(NOW)
    garbage.follow(NOW)
    names = pod_names()
    objects.delete("ReplicaSet", "default", "web", {"propagationPolicy": "Orphan"}, now=NOW)
    (graph,) = garbage._graphs
    garbage._read_news(graph)
    for number, name in enumerate(names):
        relabel(name, f"m{number}")  # after the pass has read the log
    garbage._end(graph, ("ReplicaSet", "default", "web"), NOW)
    for _ in range(3):
        garbage.follow(NOW)
    assert find_object("ReplicaSet", "default", "web") is None
    assert sorted(pod_names()) == sorted(names)
    for name in names:
        assert not get_manifest("Pod", "default", name)["metadata"].get("ownerReferences")
