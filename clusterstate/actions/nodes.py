"""What a write does to nodes' taints: which come along, when each was added (R123), their rows.

Taints that speak for ``spec.unschedulable`` and for conditions come and go in the write that
changes these, so that no reader sees a cordoned node without its taint, and a bind that was decided
before meets a node that has changed.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from clusterstate import locks, sql
from clusterstate.actions import eviction_warnings
from clusterstate.actions.writing import NewVersion, Writer
from clusterstate.objects import document, node_taints
from clusterstate.objects.kind import Kind
from clusterstate.objects.matching import NO_EXECUTE
from clusterstate.objects.meta import Manifest
from clusterstate.objects.node_taints import UNINITIALIZED


def taints_of(manifest: Manifest | None) -> list[dict[str, Any]]:
    """Return ``spec.taints``."""
    if manifest is None:
        return []
    return (manifest.get("spec") or {}).get("taints") or []


def _initialize(manifest: Manifest, old: Manifest | None) -> Manifest:
    """Return the node with or without its ``uninitialized`` taint (R127).

    Where an external cloud provider looks after nodes, a new one is tainted until something names
    its provider; the program that does this may also remove the taint.
    """
    if not settings.EXTERNAL_CLOUD_PROVIDER:
        return manifest
    spec = manifest.get("spec") or {}
    present = taints_of(manifest)
    known = bool(spec.get("providerID"))
    if old is None and not known and not any(t.get("key") == UNINITIALIZED for t in present):
        taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        return {**manifest, "spec": {**spec, "taints": [*present, taint]}}
    if old is not None and known and not (old.get("spec") or {}).get("providerID"):
        rest = [taint for taint in present if taint.get("key") != UNINITIALIZED]
        return {**manifest, "spec": {**spec, "taints": rest}}
    return manifest


def _govern(manifest: Manifest, old: Manifest | None) -> Manifest:
    """Return the node with the taints that what this write changes asks for (R126, R133)."""
    spec = manifest.get("spec") or {}
    present = taints_of(manifest)
    wanted = node_taints.governed(
        present,
        unschedulable=bool(spec.get("unschedulable")),
        before=None if old is None else _conditions(old),
        after=_conditions(manifest),
    )
    if wanted == present:
        return manifest
    spec = {**spec, "taints": wanted}
    if not wanted:
        del spec["taints"]
    return {**manifest, "spec": spec}


def _conditions(manifest: Manifest) -> list[dict[str, Any]]:
    return (manifest.get("status") or {}).get("conditions") or []


def settle_taints(manifest: Manifest, old: Manifest | None, now: datetime) -> Manifest:
    """Return the node with the taints this write brings, and ``timeAdded`` on every NoExecute one.

    A taint that was there before (same key and effect) keeps its time when the client leaves it
    out, as clients that send the whole list do; so a countdown does not start again. Nobody can
    have added a taint later than now: such a time, from a clock that is ahead, counts as none.
    Else an untolerated taint would evict nobody until then (R122).
    """
    manifest = _govern(_initialize(manifest, old), old)
    spec: Manifest = manifest.get("spec") or {}
    taints = taints_of(manifest)
    if not taints:
        if "taints" not in spec:
            return manifest
        return {**manifest, "spec": {key: spec[key] for key in spec if key != "taints"}}
    times = {(one.get("key"), one.get("effect")): one.get("timeAdded") for one in taints_of(old)}
    settled = [_settled(taint, times, now) for taint in taints]
    if settled == taints:
        return manifest
    return {**manifest, "spec": {**spec, "taints": settled}}


def _settled(
    taint: dict[str, Any], times: Mapping[tuple[Any, Any], str | None], now: datetime
) -> dict[str, Any]:
    """Return the taint as its row says it: no other members, no empty value, whole seconds."""
    key, effect, given = taint.get("key"), taint.get("effect"), taint.get("timeAdded")
    added = document.parse_time(given) if given else None
    if added is not None and added > now:
        added = None
    if added is None and effect == NO_EXECUTE:
        before = times.get((key, effect))
        added = min(document.parse_time(before), now) if before else now
    result = {"effect": effect, "key": key}
    if added is not None:
        result["timeAdded"] = document.format_time(added)
    if value := taint.get("value"):
        result["value"] = value
    return result


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
    """Nodes come with the rows of their taints, and hold up binds that were decided before."""

    def lock_before(self) -> None:
        """Take the placement lock shared: a bind that waits for it sees the change."""
        sql.run(f"SELECT pg_advisory_xact_lock_shared({locks.PLACEMENT})")

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Return the node with the taints that the write brings."""
        return settle_taints(new, old, now)

    def foretell(self, new: Manifest, old: Manifest, now: datetime) -> list[str]:
        """Return which pods would leave the node."""
        return eviction_warnings.for_node(old, new, now)

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """Write the node, and its taints if they differ."""
        revision = super().store(kind, version, now)
        rewrite_taints(version.row.id, version.old, version.new)
        return revision
