"""The past: what objects were at any revision and moment, also after the log was trimmed."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import transaction

from clusterstate.actions import objects, past
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes, lineage
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acting
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.queries import past as reading
from clusterstate.queries.objects import find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

KIND_NAMES = ("Node", "Pod", "ConfigMap")


@pytest.fixture(autouse=True)
def kept(settings: Any) -> None:
    settings.PAST_HOURS = 168


def state() -> dict[tuple[str, str, str], Any]:
    """Return every object of the kinds under test, as it is now."""
    found = {}
    for kind in KIND_NAMES:
        for item in list_page(kind).items:
            manifest = msgspec.json.decode(item)
            metadata = manifest["metadata"]
            found[kind, metadata.get("namespace", ""), metadata["name"]] = manifest
    return found


def state_at(revision: int, **options: Any) -> dict[tuple[str, str, str], Any]:
    found = {}
    for kind in KIND_NAMES:
        for item in list_page(kind, at=revision, **options).items:
            manifest = msgspec.json.decode(item)
            metadata = manifest["metadata"]
            found[kind, metadata.get("namespace", ""), metadata["name"]] = manifest
    return found


class Story:
    """Things that happen, and what the world was after each of them."""

    def __init__(self) -> None:
        self.now = NOW
        self.seen: list[tuple[int, datetime, dict[tuple[str, str, str], Any]]] = []

    def then(self, do: Any, *arguments: Any, **named: Any) -> None:
        self.now += timedelta(seconds=10)
        do(*arguments, **named)
        self.seen.append((changes.watermark(), self.now, state()))

    def node(self, name: str) -> None:
        manifest = {"metadata": {"name": name}}
        self.then(lambda: objects.create("Node", "", manifest, now=self.now))

    def label(self, kind: str, namespace: str, name: str, **labels: str) -> None:
        def change(old: Any) -> Any:
            return {**old, "metadata": {**old["metadata"], "labels": labels}}

        self.then(lambda: objects.update(kind, namespace, name, change, now=self.now))

    def pod(self, name: str, **labels: str) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
        manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        self.then(lambda: objects.create("Pod", "default", manifest, now=self.now))

    def bind(self, name: str, node: str) -> None:
        def bound() -> None:
            pod_id = find_pod_id("default", name)
            assert pod_id is not None
            with acting(KUBE_SCHEDULER):
                bind_pods([Binding(pod_id, node)], snapshot_revision=1 << 40, now=self.now)

        self.then(bound)

    def config(self, namespace: str, name: str, text: str) -> None:
        manifest = {"metadata": {"name": name}, "data": {"a": text}}
        self.then(lambda: objects.create("ConfigMap", namespace, manifest, now=self.now))

    def delete(self, kind: str, namespace: str, name: str) -> None:
        wanted = {"gracePeriodSeconds": 0}
        self.then(lambda: objects.delete(kind, namespace, name, wanted, now=self.now))


@pytest.fixture
def story() -> Story:
    told = Story()
    told.node("n1")
    told.node("n2")
    told.pod("stays", app="a")
    told.pod("goes", app="b")
    told.bind("goes", "n1")
    told.label("Node", "", "n1", zone="z1")
    told.config("default", "c", "first")
    told.bind("stays", "n2")
    told.delete("Pod", "default", "goes")
    told.delete("ConfigMap", "default", "c")
    told.pod("goes", app="c")
    told.config("default", "c", "second")
    told.label("Node", "", "n1", zone="z2")
    told.delete("Node", "", "n2")
    return told


def trim_all(story: Story) -> int:
    """Trim the log to its end, as after a long time; return how many changes went."""
    return history.trim(now=story.now, keep_seconds=-3600).changes


def test_every_state_is_read_again_after_the_log_was_trimmed(story: Story) -> None:
    assert trim_all(story) > 10
    assert sql.fetch("SELECT count(*) FROM change") == [(0,)]
    for revision, _, was in story.seen:
        assert state_at(revision) == was


def test_every_state_is_read_again_wherever_packing_and_trimming_stopped(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "CHUNK", 3)
    monkeypatch.setattr(past, "BLOCK_ENTRIES", 2)
    revisions = [row[0] for row in sql.fetch("SELECT revision FROM change ORDER BY revision")]
    while past.pack(now=story.now, patience=timedelta(0)).changes:
        for revision, _, was in story.seen:
            assert state_at(revision) == was
    for boundary in revisions[::4]:
        at = dict(sql.fetch("SELECT revision, at FROM change"))[boundary]
        history.trim(now=at, keep_seconds=0)
        for revision, _, was in story.seen:
            assert state_at(revision) == was


def test_single_objects_are_read_at_every_state(story: Story) -> None:
    every = {key for _, _, was in story.seen for key in was}
    for _ in range(2):
        for revision, _, was in story.seen:
            for kind, namespace, name in every:
                found = reading.find_at(KINDS[kind], namespace, name, revision)
                manifest = None if found is None else msgspec.json.decode(found)
                assert manifest == was.get((kind, namespace, name)), (revision, kind, name)
        trim_all(story)


def test_selectors_and_pages_choose_from_what_was(story: Story) -> None:
    trim_all(story)
    revision, _, was = story.seen[5]  # both pods, the first labelling of n1
    names = [
        msgspec.json.decode(item)["metadata"]["name"]
        for item in list_page("Pod", at=revision, label_selector="app=b").items
    ]
    assert names == ["goes"]
    on_n1 = list_page("Pod", at=revision, field_selector="spec.nodeName=n1").items
    assert [msgspec.json.decode(item)["metadata"]["name"] for item in on_n1] == ["goes"]
    assert list_page("Pod", "elsewhere", at=revision).items == []
    first = list_page("Pod", at=revision, limit=1)
    rest = list_page("Pod", limit=1, continue_token=first.continue_token)
    assert rest.continue_token == ""
    assert rest.revision == first.revision == revision
    found = [msgspec.json.decode(item) for item in (*first.items, *rest.items)]
    assert found == [was["Pod", "default", name] for name in ("goes", "stays")]


def test_a_moment_stands_for_the_last_change_before_it(story: Story) -> None:
    for _ in range(2):
        for revision, at, was in story.seen:
            for moment in (at, at + timedelta(seconds=9)):
                found = reading.revision_at(moment, now=story.now + timedelta(hours=1))
                assert found == revision
                assert state_at(found) == was
        trim_all(story)


def test_a_moment_to_come_and_one_before_everything_are_refused(story: Story) -> None:
    with pytest.raises(BadRequest, match="is in the future"):
        reading.revision_at(story.now + timedelta(minutes=1), now=story.now)
    past.pack_up_to(changes.watermark(), now=story.now)
    trim_all(story)
    with pytest.raises(Expired):
        reading.revision_at(NOW - timedelta(days=300), now=story.now)


def test_what_happened_between_two_histories_is_told_to_be_unknown(story: Story) -> None:
    past.pack(now=story.now)  # from here on the past is kept
    with transaction.atomic():
        lineage.start_again()
    story.pod("later")
    story.pod("last")
    trim_all(story)
    moments = [(at, was) for _, at, was in story.seen]
    for at, was in (*moments[:-3], *moments[-2:]):
        found = reading.revision_at(at, now=story.now + timedelta(hours=1))
        assert state_at(found) == was
    with pytest.raises(Expired, match="restored or failed over"):
        reading.revision_at(moments[-3][0], now=story.now + timedelta(hours=1))


def test_old_partitions_are_dropped_and_what_they_had_is_told_to_be_gone(story: Story) -> None:
    trim_all(story)
    revision, at, _ = story.seen[3]
    story.now += timedelta(days=9)
    story.pod("young")
    newer, moment, was = story.seen[-1]
    trim_all(story)
    assert past.trim(now=story.now) >= 1  # others' tests leave empty ones
    with pytest.raises(Expired):
        list_page("Pod", at=revision)
    with pytest.raises(Expired):
        reading.find_at(KINDS["Node"], "", "n2", revision)
    with pytest.raises(Expired):
        reading.revision_at(at, now=story.now)
    assert state_at(newer) == was
    assert reading.revision_at(moment, now=story.now + timedelta(hours=1)) == newer


def test_without_a_past_nothing_is_packed_and_what_there_was_is_dropped(
    story: Story, settings: Any
) -> None:
    trim_all(story)
    settings.PAST_HOURS = 0
    story.pod("young")
    trim_all(story)
    assert sql.fetch("SELECT count(*) FROM past_head") == [(0,)]
    with pytest.raises(Expired):
        list_page("Pod", at=story.seen[3][0])
    settings.PAST_HOURS = 168
    story.pod("younger")
    trim_all(story)
    with pytest.raises(Expired):
        list_page("Pod", at=story.seen[3][0])
    assert state_at(story.seen[-1][0]) == story.seen[-1][2]


def test_a_log_that_cannot_be_packed_grows_for_a_day_and_no_longer(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.pack(now=story.now)
    packed = past._read_chunk

    def broken(*_: Any) -> Any:
        raise ValueError("a change that nobody foresaw")

    monkeypatch.setattr(past, "_read_chunk", broken)
    assert history.trim(now=story.now + timedelta(hours=2)).changes == 0
    monkeypatch.setattr(past, "_read_chunk", packed)
    for revision, _, was in story.seen:
        assert state_at(revision) == was
    monkeypatch.setattr(past, "_read_chunk", broken)
    assert history.trim(now=story.now + timedelta(days=2)).changes > 10
    with pytest.raises(Expired):
        state_at(story.seen[3][0])


def test_a_chunk_that_another_process_packs_meanwhile_is_written_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = past._read_chunk

    def overtaken(start: int, mark: int) -> Any:
        found = read(start, mark)
        monkeypatch.setattr(past, "_read_chunk", read)
        assert past.pack(now=story.now, patience=timedelta(0)).changes
        return found

    monkeypatch.setattr(past, "_read_chunk", overtaken)
    assert past.pack(now=story.now, patience=timedelta(0)).changes == 0
    ((written,),) = sql.fetch("SELECT sum(entries) FROM past_block")
    assert written == sql.fetch("SELECT count(*) FROM change")[0][0]


def test_what_is_rolled_back_is_not_packed(story: Story) -> None:
    with transaction.atomic():
        past.pack(now=story.now, patience=timedelta(0))
        transaction.set_rollback(True)
    assert sql.fetch("SELECT count(*) FROM past_block") == [(0,)]
    trim_all(story)
    for revision, _, was in story.seen:
        assert state_at(revision) == was


def test_a_chunk_waits_until_it_is_full_or_old(story: Story) -> None:
    assert past.pack(now=story.now).changes == 0
    assert past.pack(now=story.now + timedelta(hours=1)).changes > 10


def test_a_version_that_cannot_be_read_is_told_to_be_unknown(story: Story) -> None:
    revision, _, _ = story.seen[4]
    sql.run("UPDATE document SET text = '{}' WHERE strpos(text, '\"goes\"') > 0")
    trim_all(story)
    with pytest.raises(Expired, match="is not kept"):
        reading.find_at(KINDS["Pod"], "default", "goes", revision)
    assert find_object("Node", "", "n1") is not None


def test_a_pod_whose_amounts_cannot_be_read_does_not_stop_the_packing(story: Story) -> None:
    sql.run(
        "UPDATE document SET text = replace(text, '\"status\":{',"
        ' \'"status":{"containerStatuses":[7],"allocatedResources":{},\')'
        " WHERE strpos(text, '\"goes\"') > 0"
    )
    assert trim_all(story) > 0
    revision, _, seen = story.seen[3]
    found = reading.find_at(KINDS["Node"], "", "n1", revision)
    assert found is not None
    assert msgspec.json.decode(found) == seen["Node", "", "n1"]


def test_kinds_whose_changes_are_not_all_logged_have_no_past(story: Story) -> None:
    with pytest.raises(Expired, match="former states"):
        reading.find_at(KINDS["Lease"], "default", "l", story.seen[0][0])
    with pytest.raises(Expired, match="former states"):
        list_page("Event", at=story.seen[0][0])


def test_the_changes_of_an_object_are_packed_with_it(story: Story) -> None:
    trim_all(story)
    found = list(reading.changes_of(KINDS["Pod"], "default", "goes", 1 << 62))
    assert [one.verb for one in found] == [
        changes.ADDED, changes.DELETED, changes.MODIFIED, changes.ADDED,
    ]  # fmt: skip
    assert found[2].actor == KUBE_SCHEDULER.name
    assert found[2].node_name == "n1"
    assert [one.revision for one in found] == sorted((o.revision for o in found), reverse=True)
