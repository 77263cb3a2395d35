"""The initial load of followers of the change log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from django.conf import settings
from django.db import connection, transaction

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values import document

_SNAPSHOT_SECONDS = 600

_TAKE_TIME = "SELECT set_config('application_name', %s, true), " + ", ".join(
    f"set_config('{limit}_timeout', '{_SNAPSHOT_SECONDS}s', true)"
    for limit in ("transaction", "statement", "idle_in_transaction_session")
)


class NodeRow(msgspec.Struct, frozen=True):
    """A node as stored; ``manifest`` is its JSON."""

    id: int
    name: str
    revision: int
    manifest: bytes


class ClassRow(msgspec.Struct, frozen=True):
    """A scheduling class; ``spec`` is the reduced Pod manifest as JSON."""

    id: int
    spec: bytes


@contextmanager
def consistent_read() -> Iterator[int]:
    """Let several reads see one snapshot; yields the revision from which to follow changes.

    The snapshot contains everything up to that revision, and maybe some later changes, so a
    follower that applies the log afterwards skips changes not newer than the row it holds.
    """
    revision = changes.watermark()  # before the snapshot; changes.py has the reason
    nested = connection.in_atomic_block
    with transaction.atomic():
        if not nested:
            sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # This delays no follower, reads a whole cluster, and computes between statements: other
            # processes recognise it by the session's name (``sessions``).
            sql.fetch(_TAKE_TIME, (settings.SESSION_NAME + sql.LOADS,))
        with sql.patience(_SNAPSHOT_SECONDS):
            yield revision


def load_nodes() -> list[NodeRow]:
    """Return all nodes, by id. Queries once."""
    rows = sql.fetch(
        "SELECT n.id, n.name, n.revision, d.text"
        " FROM node n JOIN document d ON d.id = n.document_id ORDER BY n.id"
    )
    return [
        NodeRow(id_, name, revision, document.compose(text, revision))
        for id_, name, revision, text in rows
    ]


def load_classes(ids: Sequence[int] | None = None) -> list[ClassRow]:
    """Return scheduling classes: all, or those with the ids that exist. Queries once."""
    if ids is None:
        rows = sql.fetch("SELECT id, spec FROM scheduling_class ORDER BY id")
    else:
        rows = sql.fetch(
            "SELECT id, spec FROM scheduling_class WHERE id = ANY(%s)", (sql.Int8s(list(ids)),)
        )
    return [ClassRow(id_, spec.encode()) for id_, spec in rows]
