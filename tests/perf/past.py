"""A day of changes, packed: what a change costs, and how soon any moment of the day is read again.

Nodes report their status a few times an hour and pods come, are bound and go. The rows of the
log are written in bulk, as actions would have written them; packing, trimming and reading are the
service's own.
"""

import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from clusterstate.actions import objects, past
from clusterstate.actions.past import history
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.queries import past as reading
from clusterstate.queries.objects.lists import list_page
from tests.perf import database
from tests.perf.workloads import Manifest, node, pod

_DAY = timedelta(days=1)
_TICKS = 96
_ASKED = 20


def run(*, nodes: int, changes: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the figures of one day."""
    with database.throw_away():
        settings.PAST_HOURS = 168
        begin = datetime.now(UTC) - _DAY  # noqa: TID251  # a bench is an edge
        day = _Day(begin, nodes, changes)
        say(f"{day.pods_each} pods and {nodes} nodes in each of {_TICKS} quarters of an hour")
        day.live()
        sql.run("ANALYZE change, document, node")
        written = sql.fetch("SELECT count(*) FROM change")[0][0]
        say(f"packing {written} changes")
        started = time.perf_counter()
        end = sql.fetch("SELECT max(revision) FROM change")[0][0]
        past.pack_up_to(end, now=begin + _DAY, seconds=3600.0)
        packing = time.perf_counter() - started
        raw, changed = sql.fetch(
            "SELECT sum(raw_bytes)::bigint, sum(changes)::bigint FROM past_chunk"
        )[0]
        history.trim(now=begin + 2 * _DAY)
        size = sql.fetch(
            "SELECT sum(pg_total_relation_size(inhrelid))::bigint + "
            "pg_total_relation_size('past_chunk') FROM pg_inherits"
            " WHERE inhparent = 'past_block'::regclass"
        )[0][0]
        return [
            {
                "mode": "past",
                "nodes": nodes,
                "changes": changed,
                "bytes_per_change": round(size / changed, 1),
                "megabytes": round(size / 1e6, 1),
                "ratio": round(raw / size, 1),
                "microseconds_to_pack_a_change": round(packing / changed * 1e6, 1),
            },
            *_asked(day, say),
        ]


def _asked(day: "_Day", say: Callable[[str], None]) -> list[dict[str, Any]]:
    dice = random.Random(1)  # chooses what is asked
    say("asking")
    later = day.begin + 2 * _DAY

    def moment() -> int:
        at = day.begin + dice.random() * _DAY
        return reading.revision_at(max(at, day.begin + timedelta(minutes=20)), now=later)

    def one_node() -> None:
        found = reading.find_at(KINDS["Node"], "", f"node-{dice.randrange(day.nodes)}", moment())
        assert found is not None

    def one_pod() -> None:
        tick = dice.randrange(4, _TICKS - 4)
        at = day.begin + (tick + 2.5) * _DAY / _TICKS
        name = f"pod-{tick}-{dice.randrange(day.pods_each)}"
        revision = reading.revision_at(at, now=later)
        assert reading.find_at(KINDS["Pod"], "default", name, revision) is not None

    def all_nodes() -> None:
        assert len(list_page("Node", at=moment()).items) == day.nodes

    def all_pods() -> None:
        assert list_page("Pod", at=moment()).items

    results = []
    for name, ask in (
        ("one node", one_node), ("one pod", one_pod), ("all nodes", all_nodes),
        ("all pods", all_pods),
    ):  # fmt: skip
        took = []
        for _ in range(_ASKED):
            started = time.perf_counter()
            ask()
            took.append((time.perf_counter() - started) * 1000)
        results.append(
            {
                "mode": "past",
                "asked": name,
                "median_ms": round(statistics.median(took), 1),
                "worst_ms": round(max(took), 1),
            }
        )
    return results


class _Day:
    """The rows of a day."""

    def __init__(self, begin: datetime, nodes: int, changes: int) -> None:
        self.begin = begin
        self.nodes = nodes
        self.pods_each = max((changes - nodes * _TICKS) // (_TICKS * 3), 1)
        self.node_text = document.encode("Node", _reporting(node(0)))[0]
        self.pod_text = document.encode("Pod", _placed(pod(0)))[0]

    def live(self) -> None:
        """Write them."""
        self._nodes_begin()
        for tick in range(_TICKS):
            at = self.begin + tick * _DAY / _TICKS
            self._report(at)
            self._pods_come(tick, at)
            if tick >= 4:
                self._pods_go(tick - 4, at)

    def _nodes_begin(self) -> None:
        kind = KINDS["Node"]
        for first in range(0, self.nodes, 500):
            manifests = [
                _named(_reporting(node(number)), f"node-{number}")
                for number in range(first, min(first + 500, self.nodes))
            ]
            objects.create_all([(kind, "", one) for one in manifests], now=self.begin)

    def _report(self, at: datetime) -> None:
        text = self.node_text.replace("2026-01-01T00:00:00Z", document.format_time(at))
        sql.run(
            """
            WITH new AS MATERIALIZED (
                SELECT id, name, document_id AS before, revision AS was,
                       nextval('change_revision') AS revision, nextval('document_id_seq') AS doc
                FROM node),
            docs AS (INSERT INTO document (id, text)
                     SELECT doc, replace(%s, '"NAME"', '"' || name || '"') FROM new),
            old AS (INSERT INTO superseded_document (document_id, revision)
                    SELECT before, revision FROM new),
            moved AS (UPDATE node n SET document_id = doc, revision = new.revision
                      FROM new WHERE n.id = new.id)
            INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                                previous_document_id, previous_revision)
            SELECT revision, %s::timestamptz + random() * interval '800 s', 2, 2, id, '', name, doc,
                   before, was FROM new
            """,
            (text, at),
        )

    def _pods_come(self, tick: int, at: datetime) -> None:
        sql.run(
            """
            WITH new AS MATERIALIZED (
                SELECT %s::bigint * 1000000 + n AS id, 'pod-' || %s::text || '-' || n AS name,
                       nextval('change_revision') AS revision,
                       nextval('change_revision') AS bound, nextval('document_id_seq') AS doc,
                       'node-' || (random() * %s)::int AS node
                FROM generate_series(0, %s::int - 1) n),
            docs AS (INSERT INTO document (id, text)
                     SELECT doc, replace(replace(%s, '"NAME"', '"' || name || '"'), '"UID"',
                                         '"' || gen_random_uuid() || '"') FROM new)
            INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                                previous_document_id, previous_revision, node_name, phase,
                                scheduled_at)
            SELECT revision, %s::timestamptz, 1, 1, id, 'default', name, doc, NULL, NULL, '',
                   'Pending', NULL FROM new
            UNION ALL
            SELECT bound, %s::timestamptz, 1, 2, id, 'default', name, doc, doc, revision, node,
                   'Pending', %s::timestamptz FROM new
            """,
            (tick, str(tick), self.nodes, self.pods_each, self.pod_text, at, at, at),
        )

    def _pods_go(self, tick: int, at: datetime) -> None:
        sql.run(
            """
            INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                                previous_document_id, previous_revision, node_name,
                                previous_node_name, previous_scheduled_at)
            SELECT nextval('change_revision'), %s::timestamptz, 1, 3, object_id, namespace, name,
                   document_id, document_id, revision, node_name, node_name, scheduled_at
            FROM change WHERE kind = 1 AND verb = 2 AND object_id / 1000000 = %s::bigint
            """,
            (at, tick),
        )


def _reporting(manifest: Manifest) -> Manifest:
    """Return a node as its agent describes it: conditions, images, a heartbeat."""
    beat = "2026-01-01T00:00:00Z"
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    images = [
        {"names": [f"registry.example/team/app-{n}@sha256:{n:064x}"], "sizeBytes": 10**8 + n}
        for n in range(20)
    ]
    conditions = [
        {"type": one, "status": "False", "lastHeartbeatTime": beat, "lastTransitionTime": beat}
        for one in kinds
    ]
    status = {**(manifest.get("status") or {}), "images": images, "conditions": conditions}
    metadata = {**manifest["metadata"], "name": "NAME"}
    return {"apiVersion": "v1", "kind": "Node", **manifest, "metadata": metadata, "status": status}


def _named(manifest: Manifest, name: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


def _placed(manifest: Manifest) -> Manifest:
    metadata = {**manifest["metadata"], "name": "NAME", "namespace": "default", "uid": "UID"}
    return {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": metadata}
