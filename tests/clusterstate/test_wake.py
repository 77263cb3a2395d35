"""Wake-ups: what a pod may wait for is announced at once, other news are gathered."""

import math
import socket
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from redis import Redis
from redis.client import PubSub

from clusterstate.change_log import wake
from tests import waiting


@pytest.fixture
def heard(redis_client: "Redis", monkeypatch: pytest.MonkeyPatch) -> Iterator[PubSub]:
    """Listen to all channels, which have names of their own: other tests publish, too."""
    for name in ("CHANGES", "TIMERS", "SCHEDULER", "WORKLOADS"):
        monkeypatch.setattr(wake, name, f"{name}-{uuid4()}")
    monkeypatch.setattr(wake, "_announcer", wake._Announcer())
    monkeypatch.setattr(wake, "_pause", wake._Pause())
    pubsub = redis_client.pubsub()
    pubsub.subscribe(wake.CHANGES, wake.TIMERS, wake.SCHEDULER, wake.WORKLOADS)
    for _ in range(4):
        assert pubsub.get_message(timeout=10)["type"] == "subscribe"
    yield pubsub
    pubsub.close()


def until(heard: PubSub, revision: int, channel: str) -> list[tuple[str, int]]:
    """Return what is heard until that revision is announced on that channel."""
    found: list[tuple[str, int]] = []

    def is_there() -> bool:
        message = heard.get_message(timeout=0.1)
        if message is not None:
            found.append((message["channel"].decode(), int(message["data"])))
        return (channel, revision) in found

    waiting.until(is_there, what=f"revision {revision} on {channel}")
    return found


def test_the_first_news_wake_every_loop_at_once(heard, monkeypatch):
    monkeypatch.setattr(wake, "GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(wake, "TIMERS_GATHER_SECONDS", 3600.0)
    wake.announce(revision=7, kinds=("Node",))
    found = until(heard, 7, wake.TIMERS)
    assert found == [(wake.CHANGES, 7), (wake.SCHEDULER, 7), (wake.TIMERS, 7)]


def test_pods_wake_the_timers_too_but_seldom(heard, monkeypatch):
    """Pods that came to a tainted node must leave it; the first of them is told of at once."""
    monkeypatch.setattr(wake, "TIMERS_OF_PODS_SECONDS", 3600.0)
    wake.announce(revision=1, kinds=("Pod",))
    until(heard, 1, wake.TIMERS)
    wake.announce(revision=2, kinds=("Pod",))
    wake.announce(revision=3, kinds=("Pod",))
    assert [one for one in until(heard, 3, wake.SCHEDULER) if one[0] == wake.TIMERS] == []


def test_a_pod_wakes_the_scheduler_while_other_news_are_gathered(heard, monkeypatch):
    monkeypatch.setattr(wake, "GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(wake, "TIMERS_GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(wake, "TIMERS_OF_PODS_SECONDS", 3600.0)
    wake.announce(revision=1, kinds=("Node",))
    until(heard, 1, wake.TIMERS)
    wake.announce(revision=2, kinds=("Node",))
    wake.announce(revision=3, kinds=("Service",))
    until(heard, 3, wake.CHANGES)
    wake.announce(revision=4, kinds=("Pod",), leaving=True)
    until(heard, 4, wake.CHANGES)
    wake.announce(revision=5, kinds=("Pod",))
    found = until(heard, 5, wake.SCHEDULER)
    assert [one for one in found if one[0] != wake.CHANGES] == [(wake.SCHEDULER, 5)]


def test_what_is_gathered_is_announced_when_nothing_else_comes(heard):
    for revision in range(1, 101):
        wake.announce(revision=revision, kinds=("Node",))
    until(heard, 100, wake.SCHEDULER)


def test_what_is_gathered_for_the_timers_comes_as_well(heard):
    for revision in range(1, 101):
        wake.announce(revision=revision, kinds=("Node",))
    until(heard, 100, wake.TIMERS)


def test_what_the_scheduler_made_itself_does_not_wake_it(heard):
    with wake.without_scheduler():
        wake.announce(revision=5, kinds=("Pod",))
    assert until(heard, 5, wake.CHANGES) == [(wake.CHANGES, 5)]


def test_a_connection_that_redis_ended_is_made_again(heard, redis_client):
    publisher = wake._Publisher()
    publisher.publish(1, [wake.CHANGES])
    until(heard, 1, wake.CHANGES)
    assert publisher._connection is not None
    publisher._connection.send_command("CLIENT", "ID")
    redis_client.client_kill_filter(_id=str(publisher._connection.read_response()))
    publisher.publish(2, [wake.CHANGES, wake.TIMERS])
    assert until(heard, 2, wake.TIMERS) == [(wake.CHANGES, 2), (wake.TIMERS, 2)]


def connected(heard: PubSub) -> wake._Announcer:
    """Announce revision 1; return the announcer once callers may use its connection."""
    wake.announce(revision=1, kinds=("Service",))
    until(heard, 1, wake.SCHEDULER)
    waiting.until(lambda: wake._announcer._is_free, what="a connection that callers may use")
    return wake._announcer


def test_a_caller_publishes_by_itself_once_there_is_a_connection(heard, monkeypatch):
    monkeypatch.setattr(wake, "TIMERS_OF_PODS_SECONDS", 0.0)
    monkeypatch.setattr(wake, "_ANSWER_SECONDS", math.inf)
    monkeypatch.setattr(connected(heard), "_wake", lambda: pytest.fail("left to the thread"))
    for revision in (2, 3):
        time.sleep(2 * wake._GAP_SECONDS)
        wake.announce(revision=revision, kinds=("Pod",))
        until(heard, revision, wake.SCHEDULER)


def test_a_caller_leaves_a_connection_that_redis_ended_to_the_thread(heard, redis_client):
    connection = connected(heard)._publisher._connection
    connection.send_command("CLIENT", "ID")
    redis_client.client_kill_filter(_id=str(connection.read_response()))
    time.sleep(2 * wake._GAP_SECONDS)
    wake.announce(revision=2, kinds=("Pod",))
    assert {channel for channel, _ in until(heard, 2, wake.SCHEDULER)} >= {wake.CHANGES}
    wake.announce(revision=3, kinds=("Pod",))
    until(heard, 3, wake.SCHEDULER)


def test_a_message_that_is_lost_with_its_connection_is_sent_again(heard, redis_client):
    """The kernel took it; Redis ends the connection before it does what the message says."""
    connection = connected(heard)._publisher._connection
    connection.send_command("CLIENT", "ID")
    number = connection.read_response()
    time.sleep(2 * wake._GAP_SECONDS)
    redis_client.client_pause(60_000, all=False)
    try:
        wake.announce(revision=2, kinds=("Pod",))
        redis_client.client_kill_filter(_id=str(number))
    finally:
        redis_client.client_unpause()
    assert {channel for channel, _ in until(heard, 2, wake.SCHEDULER)} >= {wake.CHANGES}


def test_messages_that_nobody_answers_are_bounded(heard):
    """A Redis that reads nothing must not keep a caller waiting: the kernel has room for these."""
    publisher = wake._Publisher()
    publisher.publish(1, [wake.CHANGES])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sent = 0
        while not publisher.is_full:
            sent += 1
            publisher.send(sent, [wake.CHANGES])
            ours.send(wake._message(wake.CHANGES, sent))  # to somebody who never reads
    publisher.publish(sent + 1, [wake.CHANGES])
    assert not publisher.is_full
    assert len(until(heard, sent + 1, wake.CHANGES)) == sent + 2


@pytest.mark.parametrize(
    "kind",
    ["Deployment", "StatefulSet", "DaemonSet", "Job", "ResourceClaimTemplate", "Pod", "Node"],
)
def test_workload_controllers_are_woken_by_workloads_that_others_wrote(heard, monkeypatch, kind):
    monkeypatch.setattr(wake, "WORKLOADS_GATHER_SECONDS", 0.0)
    with wake.without_workloads():
        wake.announce(revision=1, kinds=(kind,))
        until(heard, 1, wake.CHANGES)
    wake.announce(revision=2, kinds=(kind,))
    found = until(heard, 2, wake.SCHEDULER)
    assert (wake.WORKLOADS, 1) not in found
    if kind not in ("Pod", "Node"):
        found += until(heard, 2, wake.WORKLOADS) if (wake.WORKLOADS, 2) not in found else []
    assert ((wake.WORKLOADS, 2) in found) == (kind not in ("Pod", "Node"))
