"""The world that questions see: the same to every process, whatever it met before."""

import json

import pytest

from clusterstate.actions.pods.status import nominate
from clusterstate.actions.scheduler import scheduler_configuration
from scheduling.answers.live import Live, LiveWorld
from tests.clock import NOW, after
from tests.controllers.support import bind, make_node, make_pod

pytestmark = pytest.mark.django_db


def nominated(pod_id):
    return LiveWorld().snapshot().nominated_node_of(pod_id)


def waiting():
    return LiveWorld().look(lambda mirror: [place.pod_id for place in mirror.queue.places()])


@pytest.mark.parametrize("others", [0, 200], ids=["few changes", "many changes"])
def test_the_log_says_for_whom_room_is_made(others):
    """A mirror that has followed for long decides as one that is loaded now."""
    make_node("n1")
    make_node("n2")
    pod_id, second = make_pod("vip"), make_pod("second")
    assert nominated(pod_id) == ""
    nominate({pod_id: "n1", second: "n1"}, now=after(1))
    for number in range(others):
        make_pod(f"other-{number}")
    assert nominated(pod_id) == nominated(second) == "n1"
    nominate({pod_id: "n2", second: ""}, now=after(2))
    for number in range(others):
        make_pod(f"more-{number}")
    assert (nominated(pod_id), nominated(second)) == ("n2", "")
    fresh = Live()
    fresh.follow()
    assert fresh.look(lambda mirror, _: mirror.snapshot.nominated_node_of(pod_id)) == "n2"


def test_pods_of_a_profile_that_was_stored_later_wait_and_hold_room():
    """A mirror that has followed for long has the profiles of the configuration in force."""
    make_node("n1")
    assert waiting() == []
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "later"}],
    }
    scheduler_configuration.store(document=json.dumps(document), by="x", now=NOW)
    pod_id = make_pod("p", schedulerName="later")
    nominate({pod_id: "n1"}, now=after(1))
    assert waiting() == [pod_id]
    assert nominated(pod_id) == "n1"


def test_equal_pods_stand_in_the_same_order_for_every_mirror():
    """Whoever was decided first, and whichever came first to a mirror."""
    make_node("n1")
    first, second, third = (make_pod(name) for name in ("a", "b", "c"))
    LiveWorld().snapshot()
    for pod_id in (third, first, second):
        bind(pod_id, "n1", now=NOW)

    def order(snapshot):
        return [pod.key for pod in sorted(snapshot.pods_on(0), key=lambda pod: pod.order)]

    fresh = Live()
    assert order(LiveWorld().snapshot()) == [first, second, third]
    assert fresh.look(lambda mirror, _: order(mirror.snapshot)) == [first, second, third]


def test_what_is_kept_holds_for_one_revision():
    make_node("n1")
    world, again = LiveWorld(), LiveWorld()
    assert world.snapshot().node_count == again.snapshot().node_count == 1
    assert world.revision == again.revision > 0
    assert world.keep("count", lambda: [1]) is again.keep("count", lambda: [2])
    make_node("n2")
    later = LiveWorld()
    assert later.snapshot().node_count == 2
    assert later.revision > world.revision
    assert later.keep("count", lambda: [3]) == [3]
