"""The change log: nothing missed, nothing out of order, nothing twice."""

import itertools
import random
import threading
import time

import pytest
from django.db import connection, transaction

from clusterstate.actions import objects
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import Expired
from clusterstate.queries.evictions.eviction_news import eviction_news
from clusterstate.queries.objects import dependents, get_manifest
from clusterstate.queries.objects.lists import Page, list_page
from clusterstate.queries.pods import find_pod_id, pods_by_id
from tests.clusterstate.support import (
    LATER,
    NOW,
    Worker,
    create_node,
    everything_since,
    items,
    new_pod,
    pod,
    replay,
)
from tests.creating import create_pod
from tests.followers import everybody
from tests.forms import many

pytestmark = pytest.mark.django_db(transaction=True)

_APPEND = (
    changes.WITH_GATE
    + f", n AS MATERIALIZED (SELECT {changes.NEXT} AS revision, pg_sleep(%s) FROM gate"
    + " WHERE opened = 1) INSERT INTO change (revision, at, kind, verb, object_id, namespace, name,"
    + " actor_id) SELECT revision, %s::timestamptz, 4, 1, 0, '', 'x',"
    + " (SELECT actor_id FROM gate) FROM n RETURNING revision"
)


def test_a_gap_in_the_revisions_is_crossed_at_once() -> None:
    """Revisions jump after a crash and in a new history; nobody walks through the gap in steps."""
    create_node("before")
    cursor = changes.watermark()
    sql.run("SELECT setval('change_revision', %s::bigint)", (cursor + (1 << 33),))
    create_node("after", taints=[{"key": "k", "effect": "NoExecute"}])
    mark = changes.watermark()
    assert mark > cursor + (1 << 33)
    nodes = eviction_news(cursor, limit=10)
    assert nodes is not None
    assert (nodes.cursor, nodes.more, [node.name for node in nodes.nodes]) == (
        mark, False, ["after"],
    )  # fmt: skip
    owners = dependents.news(cursor, pod_owners=[], limit=10)
    assert owners is not None
    assert owners.cursor == mark


def test_a_kind_that_only_a_newer_version_knows_stops_no_follower() -> None:
    """During an upgrade the old processes read what the new ones write."""
    cursor = changes.watermark()
    sql.run(
        f"{changes.WITH_GATE}, n AS MATERIALIZED (SELECT {changes.NEXT} AS revision FROM gate"
        " WHERE opened = 1) INSERT INTO change (revision, at, kind, verb, object_id, namespace,"
        " name, actor_id) SELECT revision, now(), 32000, 1, 7, '', 'x',"
        " (SELECT actor_id FROM gate) FROM n",
        actors.gate(),
    )
    create_node("after")
    read = changes.read_since(cursor)
    assert [one.name for one in read.items] == ["after"]
    assert read.cursor == changes.watermark()
    owners = dependents.news(cursor, pod_owners=[], limit=10)
    assert owners is not None
    assert owners.cursor == read.cursor
    everybody.follow(NOW)
    assert everybody.set_aside() == []


def test_a_window_ends_with_a_change_when_there_are_many() -> None:
    cursor = changes.watermark()
    revisions = [create_node(f"n{number}") for number in range(7)]
    mark = changes.watermark()
    assert changes.window(cursor, mark, limit=3) == revisions[2]
    assert changes.window(revisions[2], mark, limit=3) == revisions[5]
    assert changes.window(revisions[5], mark, limit=3) == mark


@pytest.mark.drawn
def test_a_follower_misses_nothing_under_eight_writers_that_sleep_and_roll_back() -> None:
    """Design idea 2; performance.md section 2: a bare sequence loses a quarter of the events."""
    start = changes.watermark()
    done = threading.Event()
    committed: list[int] = []
    each = many(50, 500)

    def write(seed: int) -> list[int]:
        rng = random.Random(seed)
        mine = []
        while len(mine) < each:
            revisions: list[int] = []
            try:
                with transaction.atomic():
                    for _ in range(rng.choice((1, 1, 1, 3))):
                        pause = rng.choice((0, 0, 0.001, 0.01)) * rng.random()
                        rows = sql.fetch(_APPEND, (*actors.gate(), float(pause), NOW))
                        revisions.append(rows[0][0])
                        if rng.random() < 0.5:
                            time.sleep(rng.random() * 0.01)
                    if rng.random() < 0.1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            mine += revisions
        return mine

    def follow() -> list[int]:
        cursor, seen = start, []
        while True:
            last_round = done.is_set()
            read = changes.read_since(cursor, kinds=["RuntimeClass"], limit=100)
            seen += [change.revision for change in read.items]
            cursor = read.cursor
            if last_round and not read.more:
                return seen

    writers = [Worker(lambda seed=seed: write(seed)) for seed in range(8)]
    follower = Worker(follow)
    for writer in writers:
        committed += writer.result(60)
    done.set()
    seen = follower.result(60)
    assert seen == sorted(committed)


def test_the_watermark_stays_below_an_open_transaction() -> None:
    opened, let_go = threading.Event(), threading.Event()

    def hold() -> int:
        with transaction.atomic():
            (row,) = sql.fetch(_APPEND, (*actors.gate(), 0.0, NOW))
            opened.set()
            assert let_go.wait(10)
        return row[0]

    before = changes.watermark()
    holder = Worker(hold)
    assert opened.wait(10)
    new_pod("a")
    assert changes.watermark() == before
    assert everything_since(before) == []
    let_go.set()
    held = holder.result()
    assert [change.revision for change in everything_since(before)] == [held, held + 1]


def test_revisions_beyond_31_bits_hold_the_watermark_as_well() -> None:
    opened, let_go = threading.Event(), threading.Event()
    large = 2**33 + 5
    sql.run("SELECT setval('change_revision', %s::bigint)", (large,))

    def hold() -> None:
        with transaction.atomic():
            sql.fetch(_APPEND, (*actors.gate(), 0.0, NOW))
            opened.set()
            assert let_go.wait(10)

    holder = Worker(hold)
    assert opened.wait(10)
    new_pod("a")
    assert changes.watermark() == large
    let_go.set()
    holder.result()
    assert changes.watermark() == large + 2


def test_a_transaction_sees_its_own_changes() -> None:
    with transaction.atomic():
        before = changes.watermark()
        new_pod("a")
        assert [change.name for change in everything_since(before)] == ["a"]


def test_revisions_of_one_object_rise_in_commit_order_after_lock_waits() -> None:
    create_node("n1")
    pod_id = new_pod("a")
    start = changes.watermark()

    def relabel(number: int) -> None:
        for i in range(12):
            objects.update(
                "Pod",
                "default",
                "a",
                lambda m, i=i: {
                    **m,
                    "metadata": {**m["metadata"], "annotations": {"by": f"{number}-{i}"}},
                },
                now=NOW,
            )

    def mark(number: int) -> None:
        for i in range(12):
            set_unschedulable([Unschedulable(pod_id=pod_id, message=f"{number}-{i}")], now=NOW)

    workers = [Worker(lambda n=n: relabel(n)) for n in range(3)]
    workers += [Worker(lambda n=n: mark(n)) for n in range(3)]
    for worker in workers:
        worker.result(60)
    log = everything_since(start, "Pod")
    assert len(log) == 72
    for earlier, later in itertools.pairwise(log):
        assert later.previous_revision == earlier.revision
        assert later.previous_document_id == earlier.document_id
        assert later.previous_unschedulable == earlier.unschedulable
    assert log[-1].revision == pods_by_id([pod_id])[pod_id].revision


@pytest.mark.drawn
def test_a_watch_replayed_over_an_old_list_equals_a_new_list_while_others_write() -> None:
    """The law of design.md: watch over list = list; with in-flight transactions all the time."""
    for number in range(4):
        create_node(f"n{number}")
    stop = threading.Event()

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        known: list[str] = []
        serial = 0
        while not stop.is_set():
            action = rng.random()
            with transaction.atomic():
                if action < 0.4 or not known:
                    batch = [f"p{seed}-{serial + i}" for i in range(rng.randint(1, 3))]
                    serial += len(batch)
                    create_pods([pod(name, labels={"a": "b"}) for name in batch], now=NOW)
                    known += batch
                elif action < 0.6:
                    delete_pod("default", known.pop(), now=NOW, grace_seconds=0)
                elif action < 0.8:
                    found = find_pod_id("default", rng.choice(known))
                    if found is not None:
                        bind_pods(
                            [Binding(found, f"n{rng.randint(0, 3)}")],
                            snapshot_revision=2**40,
                            now=NOW,
                        )
                else:
                    label = str(rng.random())
                    objects.update(
                        "Pod",
                        "default",
                        rng.choice(known),
                        lambda m, label=label: {
                            **m,
                            "metadata": {**m["metadata"], "labels": {"a": "b", "x": label}},
                        },
                        now=NOW,
                    )
                time.sleep(rng.random() * 0.01)

    workers = [Worker(lambda s=s: churn(s)) for s in range(4)]
    lists: list[Page] = []
    while len(lists) < many(40, 400):
        # In pages of 7, so that later pages are read long after the first.
        pages = [list_page("Pod", limit=7)]
        while pages[-1].continue_token:
            pages.append(list_page("Pod", limit=7, continue_token=pages[-1].continue_token))
        assert len({page.revision for page in pages}) == 1
        lists.append(Page([i for page in pages for i in page.items], pages[0].revision))
        kept = list_page("Pod", acknowledged=True)  # brought up to date from the log
        assert kept.items == list_page("Pod", exact=kept.revision).items
    stop.set()
    for worker in workers:
        worker.result(30)
    lists.append(list_page("Pod"))
    for earlier, later in itertools.pairwise(lists):
        log = [c for c in everything_since(earlier.revision, "Pod") if c.revision <= later.revision]
        assert replay(items(earlier), log) == items(later)


def test_changes_older_than_the_history_are_expired() -> None:
    new_pod("a")
    start = changes.watermark()
    objects.delete("Pod", "default", "a", {"gracePeriodSeconds": 0}, now=NOW)
    new_pod("b")
    trimmed = history.trim(now=LATER, keep_seconds=60)
    assert trimmed.changes >= 3
    assert trimmed.trimmed_revision == changes.watermark()
    create_pod(pod("c"), now=LATER)
    with pytest.raises(Expired, match=rf"^too old resource version: {start} \("):
        changes.read_since(start)
    assert [c.name for c in everything_since(trimmed.trimmed_revision)] == ["c"]


def test_trimming_drops_superseded_documents_and_keeps_current_ones() -> None:
    new_pod("a")
    new_pod("gone")
    for value in "xyz":
        objects.update(
            "Pod",
            "default",
            "a",
            lambda m, value=value: {
                **m,
                "metadata": {**m["metadata"], "annotations": {"v": value}},
            },
            now=NOW,
        )
    objects.delete("Pod", "default", "gone", now=NOW)
    assert history.trim(now=NOW, keep_seconds=60).documents == 0
    assert history.trim(now=LATER, keep_seconds=60).documents == 4
    assert sql.fetch("SELECT count(*) FROM superseded_document") == [(0,)]
    assert get_manifest("Pod", "default", "a")["metadata"]["annotations"] == {"v": "z"}
    orphans = sql.fetch(
        "SELECT count(*) FROM document d WHERE NOT EXISTS"
        " (SELECT 1 FROM pod WHERE document_id = d.id) AND NOT EXISTS"
        " (SELECT 1 FROM namespace WHERE document_id = d.id) AND NOT EXISTS"
        " (SELECT 1 FROM priority_class WHERE document_id = d.id)"
    )
    assert orphans == [(0,)]


def test_a_continued_list_whose_revision_was_trimmed_is_expired() -> None:
    for number in range(4):
        new_pod(f"p{number}")
    token = list_page("Pod", limit=2).continue_token
    create_pod(pod("later"), now=NOW)
    history.trim(now=LATER, keep_seconds=60)
    with pytest.raises(Expired, match="The provided continue parameter is too old"):
        list_page("Pod", limit=2, continue_token=token)


def test_the_signal_comes_after_the_commit_and_not_after_a_rollback() -> None:
    heard: list[tuple[int, frozenset[str]]] = []

    def hear(sender: object, revision: int, kinds: frozenset[str], **_: object) -> None:
        heard.append((revision, kinds))
        assert not connection.in_atomic_block

    changes.committed.connect(hear)
    try:
        stored = create_pod(pod("a"), now=NOW)
        assert heard == [(stored.revision, frozenset({"Pod"}))]
        with transaction.atomic():
            create_pod(pod("b"), now=NOW)
            transaction.set_rollback(True)
        with rehearsal():
            create_pod(pod("c"), now=NOW)
        assert len(heard) == 1
        with transaction.atomic():
            inner = create_pod(pod("d"), now=NOW)
            assert len(heard) == 1
        assert heard[1:] == [(inner.revision, frozenset({"Pod"}))]
    finally:
        changes.committed.disconnect(hear)


def test_a_long_transaction_holds_one_lock() -> None:
    """The lock table has a few thousand entries; a list of 5,000 nodes must not fill it."""
    with transaction.atomic():
        first = changes.watermark()
        for number in range(5):
            create_node(f"n{number}")
        held = sql.fetch(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            " AND pid = pg_backend_pid() AND classid::bigint >> 16 = %s",
            (0x5357,),
        )
        assert held == [(1,)]
        watcher = Worker(changes.watermark)
        assert watcher.result() == first
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            raise ZeroDivisionError
        assert Worker(changes.watermark).result() == first


def test_a_lock_taken_in_a_savepoint_that_is_rolled_back_is_taken_again() -> None:
    with transaction.atomic():
        with transaction.atomic():
            create_node("undone")
            transaction.set_rollback(True)
        before = changes.watermark()
        create_node("kept")
        assert Worker(changes.watermark).result() == before
    assert [change.name for change in everything_since(before)] == ["kept"]


# The mark, and who waits for it ------------------------------------------------------------------


class Holder:
    """Another connection in a transaction that has taken a revision and has not committed."""

    def __init__(self) -> None:
        self._opened, self._let_go = threading.Event(), threading.Event()
        self._worker = Worker(self._hold)
        assert self._opened.wait(10)

    def _hold(self) -> int:
        with transaction.atomic():
            (row,) = sql.fetch(_APPEND, (*actors.gate(), 0.0, NOW))
            self._opened.set()
            assert self._let_go.wait(30)
        held: int = row[0]
        return held

    def let_go(self) -> int:
        self._let_go.set()
        return self._worker.result()


def test_a_known_mark_is_read_up_to_and_not_further() -> None:
    start = changes.watermark()
    new_pod("a")
    mark = changes.watermark()
    new_pod("b")
    read = changes.read_since(start, mark=mark)
    assert [change.name for change in read.items] == ["a"]
    assert (read.cursor, read.more) == (mark, False)
    assert changes.read_since(mark, mark=mark).items == []
    history.trim(now=LATER, keep_seconds=60)
    with pytest.raises(Expired):
        changes.read_since(start, mark=mark)


def test_whoever_was_told_of_a_change_waits_until_it_can_be_read() -> None:
    holder = Holder()
    new_pod("told")
    question = Worker(lambda: changes.settled(patience=20))
    threading.Event().wait(0.05)
    assert question.is_alive()
    holder.let_go()
    found = question.result()
    assert not found.lacking
    assert "told" in [c.name for c in changes.read_since(0, mark=found.mark, kinds=["Pod"]).items]


def test_the_wait_for_a_change_ends_and_says_that_something_is_lacking() -> None:
    new_pod("before")
    holder = Holder()
    assert not changes.settled().lacking, "nobody was told of what is still open"
    new_pod("told")
    before = time.monotonic()
    found = changes.settled(patience=0.2)
    assert found.lacking
    assert 0.2 <= time.monotonic() - before < 5
    assert [c.name for c in changes.read_since(0, mark=found.mark, kinds=["Pod"]).items] == [
        "before"
    ]
    assert not changes.settled(["Node"], patience=0).lacking, "no node was changed"
    holder.let_go()


def test_the_kept_mark_is_never_above_the_watermark() -> None:
    new_pod("a")
    mark = changes.watermark()
    assert changes.keep_mark()
    assert sql.fetch("SELECT mark FROM history") == [(mark,)]
    assert not changes.keep_mark(), "it is written when it rises"
    holder = Holder()
    new_pod("b")
    assert not changes.keep_mark()
    assert sql.fetch("SELECT mark FROM history") == [(mark,)]
    held = holder.let_go()
    assert changes.keep_mark()
    assert sql.fetch("SELECT mark FROM history") == [(held + 1,)]


def test_the_mark_is_not_waited_for_while_another_holds_its_row() -> None:
    new_pod("a")
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            sql.fetch("SELECT 1 FROM history FOR UPDATE")
            locked.set()
            assert done.wait(30)

    holder = Worker(hold)
    assert locked.wait(10)
    assert Worker(changes.keep_mark).result(10) is False
    done.set()
    holder.result()
    assert changes.keep_mark()


def test_a_list_has_what_was_acknowledged_although_an_earlier_transaction_is_open() -> None:
    holder = Holder()
    new_pod("told")
    assert list_page("Pod").items == [], "whoever follows the log sees it later"
    question = Worker(lambda: items(list_page("Pod", acknowledged=True)))
    # Another kind's list waits for nothing, since nobody was told of a node.
    assert list_page("Node", acknowledged=True).items == []
    threading.Event().wait(0.05)
    assert question.is_alive()
    holder.let_go()
    assert {name for _, name in question.result()} == {"told"}


def test_a_collection_is_deleted_with_what_was_acknowledged() -> None:
    holder = Holder()
    new_pod("told")
    work = Worker(lambda: delete_collection("Pod", "default", now=NOW))
    threading.Event().wait(0.05)
    holder.let_go()
    assert work.result() == 1
