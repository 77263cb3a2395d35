"""The warm state that follows the change log is what loading everything anew gives."""

from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.queries.pods import find_pod_id
from scheduling.engine.queue.pending import Backoff, PendingPod
from scheduling.engine.snapshot import Snapshot
from scheduling.worker.mirror import Mirror
from tests.controllers.support import NOW, make_node, make_pod, pod_manifest
from tests.creating import create_pod

MANY, FEW = 40, 3


@pytest.fixture
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    for number in range(4):
        make_node(f"n{number}")


def arrive(first: int, count: int) -> list[int]:
    """Create pods that name their node, one of which is not known."""
    manifests = [pod_manifest(f"p{i}", nodeName=f"n{i % 5}") for i in range(first, first + count)]
    create_pods(manifests, now=NOW)
    found = [find_pod_id("default", f"p{i}") for i in range(first, first + count)]
    return [pod_id for pod_id in found if pod_id is not None]


def told(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "requested": snapshot.requested.tolist(),
        "count": snapshot.pod_count.tolist(),
        "pods": {r.key: (r.info.digest, r.row) for r in snapshot.pods()},
        "started": {r.key: r.start_time for r in snapshot.pods() if r.row >= 0},
        "nodes": {r.key: snapshot.node_of(r.key) for r in snapshot.pods()},
    }


def test_pods_that_arrive_are_counted_as_if_loaded(cluster: None) -> None:
    followed = Mirror({}, Backoff())
    followed.load(NOW.timestamp())
    arrived = []
    for first, count in ((0, MANY), (MANY, FEW), (MANY + FEW, MANY)):
        arrived += arrive(first, count)
        assert followed.refresh(NOW.timestamp()) >= count
    loaded = Mirror({}, Backoff())
    loaded.load(NOW.timestamp())
    assert told(followed.snapshot) == told(loaded.snapshot)
    assert sorted(followed.arrivals) == sorted(arrived)


def changed_while_assumed() -> tuple[Mirror, PendingPod]:
    """A pod got another label after it was decided and assumed; the mirror has not followed yet."""
    create_pod(pod_manifest("p"), now=NOW)
    seconds = NOW.timestamp()
    mirror = Mirror({"default-scheduler": {}}, Backoff())
    mirror.load(seconds)
    (assumed,) = mirror.queue.pop_batch(seconds, 10)
    mirror.snapshot.assume(assumed.pod_id, mirror.info(assumed.class_id), 0)
    objects.update(
        "Pod",
        "default",
        "p",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {"new": "label"}}},
        now=NOW,
    )
    return mirror, assumed


def test_a_pod_that_changes_while_it_is_being_bound_is_decided_anew_as_what_it_is(
    cluster: None,
) -> None:
    """Its bind is refused, since it was decided as of another class."""
    mirror, before = changed_while_assumed()
    seconds = NOW.timestamp()
    mirror.refresh(seconds)
    mirror.snapshot.forget(before.pod_id)
    mirror.queue.requeue_stale(before.pod_id, seconds)
    (after,) = mirror.queue.pop_batch(seconds, 10)
    assert after.pod_id == before.pod_id
    assert after.spec.metadata.labels == {"new": "label"}


def test_a_pod_that_was_bound_does_not_come_back_by_an_older_change(cluster: None) -> None:
    mirror, popped = changed_while_assumed()
    seconds = NOW.timestamp()
    mirror.queue.done(popped.pod_id)
    mirror.refresh(seconds)
    assert popped.pod_id not in mirror.queue


def test_a_pod_that_says_the_word_and_was_not_preempted_is_no_victim(cluster: None) -> None:
    """What counts is the condition: an annotation of a pod that a client deletes is none."""
    reason = {"reason": "PreemptionByScheduler", "status": "True"}
    said = {"why": reason["reason"]}
    create_pods(
        [
            pod_manifest("victim", nodeName="n1"),
            pod_manifest("words", nodeName="n1", metadata={"annotations": said}),
            pod_manifest("other", nodeName="n1"),
        ],
        now=NOW,
    )
    delete_pod("default", "victim", now=NOW, condition={"type": "DisruptionTarget", **reason})
    delete_pod("default", "words", now=NOW)
    delete_pod("default", "other", now=NOW, condition={"type": "stowage.dev/Other", **reason})
    mirror = Mirror({}, Backoff())
    mirror.load(NOW.timestamp())
    found = [record.key for record in mirror.snapshot.pods() if record.preempted]
    assert found == [find_pod_id("default", "victim")]


def test_a_pod_counts_for_what_its_node_still_bears_while_it_is_resized(cluster: None) -> None:
    """As long as an agent says so, and whether the mirror followed or was loaded since."""
    asks = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    make_pod("p", "n1", containers=[asks])
    followed = Mirror({}, Backoff())
    followed.load(NOW.timestamp())

    def requested(mirror: Mirror) -> int:
        row = mirror.snapshot.row_of("n1")
        assert row is not None
        return int(mirror.snapshot.requested[row, 0])

    for reported, counts in (("3", 3000), ("1", 1000)):
        told = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        told |= {"allocatedResources": {"cpu": reported}}
        status = {"phase": "Running", "containerStatuses": [told]}
        objects.update(
            "Pod", "default", "p", lambda pod, status=status: {**pod, "status": status},
            now=NOW, subresource="status",
        )  # fmt: skip
        followed.refresh(NOW.timestamp())
        loaded = Mirror({}, Backoff())
        loaded.load(NOW.timestamp())
        assert requested(followed) == requested(loaded) == counts
