"""Writes of nodes: the taints that follow from other fields (`rules.node_taints`), and their rows.

Taints for ``spec.unschedulable`` and for conditions change in the same write as these, so that no
reader sees a cordoned node without its taint, and a bind that was decided before finds a changed
node.
"""

from collections.abc import Iterable
from datetime import datetime

from django.conf import settings

from clusterstate.actions.kinds import eviction_warnings
from clusterstate.actions.writing import NewVersion, Writer
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules.node_taints import settle_taints, taints_of
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest

_INSERT = """
INSERT INTO taint (node_id, position, key, value, effect, added_at)
SELECT i.node_id, i.position::smallint, i.key, i.value, i.effect, i.added_at
FROM unnest(%s, %s, %s, %s, %s, %s) AS i(node_id, position, key, value, effect, added_at)
"""


def write_taints(nodes: Iterable[tuple[int, Manifest]]) -> None:
    """Insert the taints of nodes (id, manifest) that have no rows yet."""
    rows = [
        (node_id, position, taint)
        for node_id, manifest in nodes
        for position, taint in enumerate(taints_of(manifest), start=1)
    ]
    if rows:
        times = [taint.get("timeAdded") for _, _, taint in rows]
        sql.run(
            _INSERT,
            (
                sql.Int8s([node_id for node_id, _, _ in rows]),
                sql.Int4s([position for _, position, _ in rows]),
                sql.Texts([taint.get("key") or "" for _, _, taint in rows]),
                sql.Texts([taint.get("value") or "" for _, _, taint in rows]),
                sql.Texts([taint.get("effect") or "" for _, _, taint in rows]),
                sql.Times([document.parse_time(time) if time else None for time in times]),
            ),
        )


def rewrite_taints(node_id: int, old: Manifest, new: Manifest) -> None:
    """Make a node's taint rows those of ``new``, if they differ."""
    if taints_of(old) != taints_of(new):
        sql.run("DELETE FROM taint WHERE node_id = %s::bigint", (node_id,))
        write_taints([(node_id, new)])


class NodeWriter(Writer):
    """Writes nodes with the rows of their taints, under the placement lock that binds take."""

    def lock_before(self) -> None:
        """Take the placement lock shared: a bind that waits for it sees the change."""
        sql.run(f"SELECT pg_advisory_xact_lock_shared({locks.PLACEMENT})")

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Return the node with the taints that follow from the write."""
        return settle_taints(new, old, now, is_cloud=settings.EXTERNAL_CLOUD_PROVIDER)

    def foretell(self, new: Manifest, old: Manifest, now: datetime) -> list[str]:
        """Return which pods would leave the node."""
        return eviction_warnings.for_node(old, new, now)

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """Write the node, and its taints if they differ."""
        revision = super().store(kind, version, now)
        rewrite_taints(version.row.id, version.old, version.new)
        return revision
