"""A mirror that follows the log, row by row or in columns, is as one that is loaded anew."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.status import fail_pods
from clusterstate.change_log import changes, pod_log
from clusterstate.change_log.changes import Change
from clusterstate.database import sql
from clusterstate.objects.values.errors import Expired, StatusError
from scheduling.engine.queue.pending import Backoff
from scheduling.framework.types import PodInfo
from scheduling.worker import mirror as mirrors
from scheduling.worker.mirror import FOLLOWED, Mirror, one_by_one
from tests.clock import after
from tests.controllers.support import NOW, make_node, pod_manifest, set_labels
from tests.forms import many

pytestmark = pytest.mark.django_db
SECONDS = NOW.timestamp()
NODES = ("n0", "n1", "n2", "unknown")


class Cluster:
    """Does at random what happens to pods and nodes."""

    def __init__(self, seed: int) -> None:
        bootstrap.add_missing(now=NOW)
        for name in NODES[:3]:
            make_node(name, labels={"zone": name[-1]})
        self.random = random.Random(seed)
        self.serial = 0

    def ids(self) -> dict[str, int]:
        return dict(sql.fetch("SELECT name, id FROM pod ORDER BY id"))

    def some(self) -> str | None:
        names = list(self.ids())
        return self.random.choice(names) if names else None

    def create(self) -> None:
        manifests = []
        for _ in range(self.random.choice((1, 3, 9))):
            self.serial += 1
            spec: dict[str, Any] = {}
            if self.random.random() < 0.3:
                spec["nodeName"] = self.random.choice(NODES)
            if self.random.random() < 0.1:
                spec["schedulerName"] = "another"
            labels = {"app": self.random.choice("abc")}
            manifests.append(pod_manifest(f"p{self.serial}", metadata={"labels": labels}, **spec))
        create_pods(manifests, now=after(self.serial))

    def bind(self) -> None:
        ids = list(self.ids().values())
        chosen = self.random.sample(ids, min(len(ids), self.random.choice((1, 5, 20))))
        bind_pods(
            [Binding(one, self.random.choice(NODES[:3])) for one in chosen],
            snapshot_revision=2**40,
            now=after(self.serial + 1),
        )

    def change(self) -> None:
        if name := self.some():
            label = {"app": self.random.choice("abc")}

            def edit(manifest: Any) -> Any:
                return {**manifest, "metadata": {**manifest["metadata"], "labels": label}}

            objects.update("Pod", "default", name, edit, now=NOW)

    def hold(self) -> None:
        """Keep a pod from vanishing when it is deleted."""
        if name := self.some():

            def edit(manifest: Any) -> Any:
                held = {**manifest["metadata"], "finalizers": ["example.com/held"]}
                return {**manifest, "metadata": held}

            objects.update("Pod", "default", name, edit, now=NOW)

    def run(self) -> None:
        if name := self.some():

            def edit(manifest: Any) -> Any:
                return {**manifest, "status": {**manifest["status"], "phase": "Running"}}

            objects.update("Pod", "default", name, edit, now=NOW, subresource="status")

    def delete(self) -> None:
        for _ in range(self.random.choice((1, 4))):
            if name := self.some():
                objects.delete("Pod", "default", name, {"gracePeriodSeconds": 0}, now=NOW)

    def finish(self) -> None:
        if name := self.some():
            fail_pods([(self.ids()[name], "Because", "it failed")], now=NOW)

    def node(self) -> None:
        name = self.random.choice(NODES[:3])
        try:
            objects.delete("Node", "", name, now=NOW)
        except StatusError:
            make_node(name, labels={"zone": name[-1]})

    def tell(self) -> None:
        """Let a node say something else of itself, as it does all the time."""
        taint = {"key": "t", "effect": "NoSchedule", "value": self.random.choice("xy")}
        labels = {"zone": self.random.choice("012")}

        def edit(manifest: Any) -> Any:
            spec = {**manifest["spec"], "taints": [taint] if self.random.random() < 0.5 else []}
            return {
                **manifest, "spec": spec, "metadata": {**manifest["metadata"], "labels": labels}
            }  # fmt: skip

        objects.update("Node", "", self.random.choice(NODES[:3]), edit, now=NOW)

    def look_up(self) -> None:
        """Create, change or delete something that scheduling looks up."""
        name, app = self.random.choice("st"), self.random.choice("abc")
        kind = self.random.choice(("Service", "ReplicaSet", "PodDisruptionBudget", "Namespace"))
        if kind == "Namespace":
            made = {"metadata": {"name": name, "labels": {"app": app}}}
        else:
            made = {
                "metadata": {"name": name, "namespace": "default"},
                "spec": selecting(kind, app),
            }
        namespace = "" if kind == "Namespace" else "default"
        try:
            objects.create(kind, namespace, made, now=NOW)
        except StatusError:
            if self.random.random() < 0.3:
                objects.delete(kind, namespace, name, {}, now=NOW)
            elif kind != "ReplicaSet":
                objects.update(kind, namespace, name, lambda old: merged(old, made), now=NOW)

    def act(self) -> None:
        acts: list[Callable[[], None]] = [
            self.create, self.create, self.bind, self.bind, self.change, self.hold, self.hold,
            self.run, self.delete, self.delete, self.finish, self.node, self.tell, self.tell,
            self.look_up, self.look_up,
        ]  # fmt: skip
        try:
            self.random.choice(acts)()
        except StatusError:
            return  # what is being deleted cannot be edited any more


def selecting(kind: str, app: str) -> dict[str, Any]:
    labels = {"app": app}
    if kind == "Service":
        return {"selector": labels, "ports": [{"port": 80}]}
    if kind == "PodDisruptionBudget":
        return {"selector": {"matchLabels": labels}, "maxUnavailable": 1}
    template = pod_manifest("p", metadata={"labels": labels})
    return {"selector": {"matchLabels": labels}, "template": template}


def merged(old: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    return {part: {**value, **made.get(part, {})} if isinstance(value, dict) else value
            for part, value in old.items()}  # fmt: skip


def with_label(manifest: Any) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": {"app": "changed"}}}


def weigh(info: PodInfo) -> int:
    return int(info.labels.get("app") == "a")


def told(mirror: Mirror) -> dict[str, Any]:
    snapshot = mirror.snapshot
    rows = {snapshot.names[row]: row for row in snapshot.rows().tolist()}
    counters = {
        live: snapshot.counter(("app a", live), weigh, live_only=live) for live in (True, False)
    }
    return {
        "nodes": {
            name: (
                snapshot.requested[row].tolist(),
                snapshot.nonzero_requested[row].tolist(),
                int(snapshot.pod_count[row]),
                sorted(record.key for record in snapshot.pods_on(row)),
                *(int(counter.rows[row]) for counter in counters.values()),
            )
            for name, row in rows.items()
        },
        "what nodes are": {
            name: (
                snapshot.node(row).metadata.labels,
                snapshot.taint_sets[snapshot.taint_set.item(row)],
                snapshot.allocatable[row].tolist(),
            )
            for name, row in rows.items()
        },
        "looked up": (
            snapshot._namespaces, snapshot._services, snapshot._controllers, snapshot._budgets,
        ),
        "pods": {
            record.key: (
                record.info.digest, snapshot.node_of(record.key), record.start_time,
                record.terminating, snapshot.is_assumed(record.key),
            )
            for record in snapshot.pods()
        },
        "queue": {
            place.pod_id: (mirror.queue._entries[place.pod_id].pod.class_id, place.queued_at)
            for place in mirror.queue.places()
        },
    }  # fmt: skip


def new_mirror() -> Mirror:
    mirror = Mirror({"default-scheduler": {}}, Backoff())
    mirror.load(SECONDS)
    told(mirror)  # makes the counters, which must follow
    return mirror


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(many(2, 8)))
def test_following_in_columns_or_rows_gives_what_loading_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(seed)
    by_rows, by_columns = new_mirror(), new_mirror()
    for _ in range(12):
        for _ in range(cluster.random.choice((1, 4, 12))):
            cluster.act()
        # A pod that both have decided about, and that is bound there or elsewhere, or not at all.
        for one in (by_rows, by_columns):
            for pod in one.queue.pop_batch(SECONDS, 2):
                row = one.snapshot.row_of("n1")
                if row is not None and not one.snapshot.knows(pod.pod_id):
                    one.snapshot.assume(pod.pod_id, one.info(pod.class_id), row)
        if cluster.random.random() < 0.7:
            cluster.bind()
        monkeypatch.setattr(mirrors, "_FEW", 100_000)
        by_rows.refresh(SECONDS)
        monkeypatch.setattr(mirrors, "_FEW", 1)
        monkeypatch.setattr(one_by_one, "TOGETHER", cluster.random.choice((1, 4)))
        monkeypatch.setattr(mirrors, "_READ_AT_ONCE", cluster.random.choice((3, 7, 5000)))
        by_columns.refresh(SECONDS)
        assert told(by_columns) == told(by_rows)
        assert sorted(by_columns.arrivals) == sorted(by_rows.arrivals)
        assert by_columns.of_unknown_nodes == by_rows.of_unknown_nodes
        assert by_columns.cursor == by_rows.cursor
        for one in (by_rows, by_columns):
            for record in [r for r in one.snapshot.pods() if one.snapshot.is_assumed(r.key)]:
                one.snapshot.forget(record.key)
                one.queue.requeue_stale(record.key, SECONDS)
        found, loaded = told(by_columns), told(new_mirror())
        for one in (found, loaded):
            one["queue"] = sorted(one["queue"])
        assert found == loaded


def test_an_assumed_pod_that_changes_after_its_node_went_is_counted_nowhere() -> None:
    """Also not on a row of another node, when its own node comes back."""
    bootstrap.add_missing(now=NOW)
    for name in NODES[:3]:
        make_node(name)
    create_pods([pod_manifest("p")], now=NOW)
    mirror = new_mirror()
    (pod,) = mirror.queue.pop_batch(SECONDS, 1)
    row = mirror.snapshot.row_of("n1")
    assert row is not None
    mirror.snapshot.assume(pod.pod_id, mirror.info(pod.class_id), row)
    objects.delete("Node", "", "n1", now=NOW)
    objects.update("Pod", "default", "p", with_label, now=NOW)
    mirror.refresh(SECONDS)
    make_node("n1")
    mirror.refresh(SECONDS)
    assert not mirror.snapshot.pod_count.any()
    assert not mirror.snapshot.requested.any()
    mirror.queue.requeue_stale(pod.pod_id, SECONDS)
    (again,) = mirror.queue.pop_batch(SECONDS, 1)
    assert again.spec.metadata.labels == {"app": "changed"}


def test_the_columns_say_what_the_rows_say() -> None:
    cluster = Cluster(5)
    start = changes.watermark()
    for _ in range(60):
        cluster.act()
    rows = changes.read_since(start, kinds=FOLLOWED, documents=[], limit=100_000).items
    found: list[Change] = []
    cursor, more, mark = start, True, changes.watermark()
    while more:
        news = pod_log.read_since(cursor, mark=mark, others=("Node",), limit=17)
        for some in news.in_order(lambda _: True):
            if isinstance(some, list):
                found += some
            else:
                found += map(some.change, range(len(some)))
        cursor, more = news.cursor, news.more
    assert cursor == mark
    assert len(found) > 50

    def said(change: Change) -> tuple[Any, ...]:
        gone = change.verb == changes.DELETED or change.phase in ("Succeeded", "Failed")
        return (
            change.revision, change.kind, change.object_id, change.name, change.class_id,
            change.node_name, change.scheduled_at, change.at, gone, change.deletion_at is None,
        )  # fmt: skip

    assert [said(change) for change in found] == [
        said(change) for change in rows if change.kind in ("Pod", "Node")
    ]


def test_what_nodes_tell_of_themselves_parts_no_pods() -> None:
    """Of each node all that is left is what it told last; a node that came stays where it was."""
    cluster = Cluster(3)
    mirror = new_mirror()
    for number in range(6):
        cluster.create()
        for name in NODES[:2]:
            set_labels(name, told=f"{number}")
        if number == 3:
            make_node("n3")
    mark = changes.watermark()
    news = pod_log.read_since(mirror.cursor, mark=mark, others=("Node",), limit=100)
    before, told, came, after, told_later = news.in_order(mirror._keeps_its_place)
    assert isinstance(before, pod_log.PodChanges)
    assert isinstance(after, pod_log.PodChanges)
    assert len(before) + len(after) == len(news.pods) > 6
    for some, names in ((told, ["n0", "n1"]), (came, ["n3"]), (told_later, ["n0", "n1"])):
        assert isinstance(some, list)
        assert [change.name for change in some] == names
    mirror.refresh(SECONDS)
    row = mirror.snapshot.row_of("n1")
    assert row is not None
    assert mirror.snapshot.node(row).metadata.labels["told"] == "5"


def test_columns_that_were_trimmed_are_expired() -> None:
    Cluster(1).create()
    mark = changes.watermark()
    sql.run("UPDATE history SET trimmed_revision = %s", (mark,))
    with pytest.raises(Expired):
        pod_log.read_since(mark - 1, mark=mark, others=(), limit=10)
    assert not pod_log.read_since(mark, mark=mark, others=(), limit=10).more
