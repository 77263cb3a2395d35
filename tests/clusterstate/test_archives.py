"""A backup holds everything of one moment, and is put back whole or not at all."""

import io
import itertools
import random
import struct
import threading
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions import objects
from clusterstate.actions.past import archives
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.scheduler import decisions
from clusterstate.change_log import changes, lineage
from clusterstate.database import archive, sql
from clusterstate.objects.values.errors import Expired
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from tests.clusterstate.support import (
    NOW,
    Worker,
    bind,
    create_node,
    items,
    new_pod,
    pod,
)
from tests.creating import create_pod
from tests.waiting import BLOCKED, until

pytestmark = pytest.mark.django_db(transaction=True)


def quiet(table: str, rows: int) -> None:
    """Tell nobody."""


def saved() -> bytes:
    file = io.BytesIO()
    archives.write(file, version="test", now=NOW, progress=quiet)
    return file.getvalue()


def restored(data: bytes) -> int:
    return archives.restore(io.BytesIO(data), progress=quiet)


def everything() -> dict[str, list[Any]]:
    """Return all rows of all tables but the one that says which history it is."""
    return {
        table: sql.fetch(f"SELECT t::text FROM {table} t ORDER BY 1")
        for table in archives.shape()
        if table not in ("history", "binder")
    }


def decide(name: str) -> None:
    decisions.make_partitions([NOW])
    sql.run(
        "INSERT INTO decision SELECT nextval('decision_id'), %s::timestamptz, id, uid, namespace,"
        " name, class_id, 1, 'p', 0, 0, 0, 0, 'scheduled', node_name, 0, NULL, 1, 1, 1, 1, '',"
        " '\\x0001ff', NULL FROM pod WHERE name = %s",
        (NOW, name),
    )


def test_everything_comes_back_as_it_was() -> None:
    decisions.trim(now=NOW + timedelta(days=9), keep_seconds=0)  # what other tests left
    create_node("n1", labels={"odd": "value"})
    for number in range(5):
        new_pod(f"p{number}", annotations={"text": "tab\t line\n back\\slash \u2028 ü NUL-free"})
    bind(new_pod("bound"), "n1")
    decide("bound")
    before, page = everything(), items(list_page("Pod"))
    data = saved()
    assert everything() == before
    assert len(before["decision"]) == 1
    objects.delete("Pod", "default", "p0", {"gracePeriodSeconds": 0}, now=NOW)
    new_pod("later")
    # The partition that the decision was in is gone by now.
    assert decisions.trim(now=NOW + timedelta(days=9), keep_seconds=60) == 1
    restored(data)
    assert everything() == before
    assert items(list_page("Pod")) == page
    # Ids go on above those of both, so nothing takes another's place.
    ((highest,),) = sql.fetch("SELECT max(id) FROM pod")
    assert new_pod("new") > highest + 1


def test_a_restore_begins_a_new_history() -> None:
    new_pod("a")
    data = saved()
    told = changes.watermark()
    uid = lineage.identity()["uid"]
    token = list_page("Namespace", limit=1).continue_token
    new_pod("b")
    first = restored(data)
    assert lineage.identity()["uid"] != uid
    assert first >= told + lineage.GAP
    for revision in (told, told + 1, first - 1):
        with pytest.raises(Expired):
            changes.read_since(revision)
        with pytest.raises(Expired):
            lineage.require(revision)
    with pytest.raises(Expired):
        list_page("Namespace", limit=1, continue_token=token)
    page = list_page("Pod")
    assert page.revision >= first
    created = create_pod(pod("c"), now=NOW)
    assert created.revision > page.revision
    assert [c.name for c in changes.read_since(page.revision).items] == ["c"]


def test_what_was_decided_before_a_restore_is_not_bound_after_it() -> None:
    create_node("n1")
    pod_id = new_pod("a")
    data = saved()
    snapshot = changes.watermark()
    restored(data)
    late = bind_pods([Binding(pod_id, "n1")], snapshot_revision=snapshot, now=NOW)
    assert late.bound == []
    assert bind(pod_id, "n1")


def test_what_processes_remember_is_outdated_by_a_restore() -> None:
    objects.create("RuntimeClass", "", {"metadata": {"name": "r"}, "handler": "x"}, now=NOW)
    data = saved()
    objects.delete("RuntimeClass", "", "r", now=NOW)
    new_pod("with-a-class", labels={"only": "here"})
    remembered = catalogue.current()
    assert remembered.runtime_class("r") is None
    restored(data)
    assert not catalogue.is_current(remembered)
    # The class of the pod was stored after the backup, and its id is remembered here.
    assert sql.fetch("SELECT count(*) FROM scheduling_class") == [(0,)]
    new_pod("again", labels={"only": "here"})
    assert sql.fetch("SELECT count(*) FROM pod p JOIN scheduling_class c ON c.id = p.class_id") == [
        (1,)
    ]


def test_a_backup_of_a_cluster_at_work_is_one_moment() -> None:
    for number in range(3):
        create_node(f"n{number}")
    stop = threading.Event()

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        for serial in itertools.count():
            if stop.is_set():
                return
            with transaction.atomic():
                # Always two at a time: a backup with an odd number has seen half of a transaction.
                create_pods([pod(f"{seed}-{serial}-{i}") for i in range(2)], now=NOW)
            if rng.random() < 0.3:
                with transaction.atomic():
                    for i in range(2):
                        objects.delete(
                            "Pod", "default", f"{seed}-{serial}-{i}",
                            {"gracePeriodSeconds": 0}, now=NOW,
                        )  # fmt: skip

    workers = [Worker(lambda seed=seed: churn(seed)) for seed in range(3)]
    backups = [saved() for _ in range(3)]
    stop.set()
    for worker in workers:
        worker.result()
    for data in backups:
        restored(data)
        ((count, documents, classes),) = sql.fetch(
            "SELECT count(*), count(d.id), count(c.id) FROM pod p"
            " LEFT JOIN document d ON d.id = p.document_id"
            " LEFT JOIN scheduling_class c ON c.id = p.class_id"
        )
        assert count % 2 == 0
        assert documents == classes == count


def test_a_restore_waits_for_who_writes() -> None:
    data = saved()
    opened, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            new_pod("late")
            opened.set()
            assert let_go.wait(10)

    holder = Worker(hold)
    assert opened.wait(10)
    restorer = Worker(lambda: restored(data))
    until(lambda: sql.fetch(BLOCKED), what="the restore to wait")
    let_go.set()
    holder.result()
    restorer.result()
    assert find_pod_id("default", "late") is None


def test_a_restore_that_fails_leaves_what_was_there() -> None:
    new_pod("a")
    data = saved()
    before = everything()
    broken = data[: len(data) // 2]
    with pytest.raises(archive.Damaged, match="cut off"):
        restored(broken)
    assert everything() == before
    assert find_pod_id("default", "a") is not None


@pytest.mark.parametrize("position", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_damaged_file_is_found_before_anything_is_done(position: float) -> None:
    new_pod("a")
    data = bytearray(saved())
    data[int(len(data) * position)] ^= 0x10
    with pytest.raises(archive.Damaged):
        archives.check(io.BytesIO(bytes(data)), progress=quiet)


def test_a_cut_or_lengthened_file_is_found() -> None:
    data = saved()
    assert archives.check(io.BytesIO(data), progress=quiet).version == "test"
    for wrong in (b"", data[:10], data[:-1], data + b"x", b"PGDMP" + data):
        with pytest.raises(archive.Damaged):
            archives.check(io.BytesIO(wrong), progress=quiet)


def test_a_piece_that_is_missing_is_found_though_each_has_its_sum() -> None:
    data = saved()
    position = len(archive.MAGIC)
    pieces = []
    head = struct.Struct(">cII")
    while position < len(data):
        _, length, _ = head.unpack_from(data, position)
        pieces.append(data[position : position + head.size + length])
        position += head.size + length
    for number in (1, len(pieces) // 2, len(pieces) - 2):
        less = archive.MAGIC + b"".join(pieces[:number] + pieces[number + 1 :])
        with pytest.raises(archive.Damaged):
            archives.check(io.BytesIO(less), progress=quiet)


def test_a_backup_of_another_version_is_refused() -> None:
    head = archive.Head(
        version="9.9", taken_at="", history="", mark=1, tables=archives.shape(),
        migrations=[*archives.migrations(), "clusterstate.9999_tomorrow"],
    )  # fmt: skip
    with pytest.raises(archives.CannotRestore, match=r"newer version of Stowage \(9\.9\), with"):
        archives.require_fit(head)
    older = msgspec.structs.replace(head, migrations=archives.migrations()[:-1])
    with pytest.raises(archives.CannotRestore, match="older version"):
        archives.require_fit(older)


def test_every_table_is_saved() -> None:
    rows = sql.fetch(
        "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = current_schema()::regnamespace"
    )
    # Counts of what processes did say nothing about the cluster, nor what a crash is known by.
    apart = {"django_migrations", "metric_total", "process_metric", "revisions_marker"}
    assert {name for (name,) in rows} == archives.shape().keys() | apart
