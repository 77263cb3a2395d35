"""Stored state of controllers, and whether there is work for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from clusterstate.change_log import changes, lineage
from clusterstate.database import sql
from clusterstate.queries.nodes.usage import UNJUDGED


class PendingWork(msgspec.Struct, frozen=True, kw_only=True):
    """Which controllers have work, as far as one query finds without reading the log.

    ``revisions`` and ``states``: cursor and state of each controller that ever ran, by name.
    """

    mark: int
    unjudged: bool
    """A node reported its use, and the pressure controller has not looked yet."""
    terminating_namespaces: bool
    set_aside: bool
    """Some follower goes on without some object."""
    unsettled_quotas: bool
    """Something ended in a namespace with quotas, and they do not show it yet."""
    guards_canary: bool
    """A configuration that a canary put in force is guarded."""
    deferred_resizes: bool
    """Resizes wait for room on nodes without an agent."""
    revisions: dict[str, int]
    states: dict[str, dict[str, Any]]

    def is_behind(self, name: str) -> bool:
        """Return whether the watermark is above this controller's cursor."""
        return self.revisions.get(name, -1) < self.mark


_GLANCE = f"""
SELECT g.mark, g.unjudged, g.terminating, g.aside, g.unsettled, g.guards, g.last, g.ceiling,
       g.deferred, c.name, c.revision, c.state::text
FROM (SELECT m.mark, m.last, m.ceiling,
             EXISTS (SELECT 1 FROM node_usage WHERE {UNJUDGED}) AS unjudged,
             EXISTS (SELECT 1 FROM namespace WHERE deletion_at IS NOT NULL) AS terminating,
             EXISTS (SELECT 1 FROM set_aside) AS aside,
             EXISTS (SELECT 1 FROM usage_change) AS unsettled,
             EXISTS (SELECT 1 FROM canary WHERE state = 'Switched') AS guards,
             EXISTS (SELECT 1 FROM deferred_resize) AS deferred
      FROM ({changes.WATERMARK}) m) g
LEFT JOIN controller_cursor c ON c.name = ANY(%s)
"""


def pending_work(names: Sequence[str]) -> PendingWork:
    """Return which of these controllers may have work. Queries once."""
    rows = changes.as_follower(lambda: sql.fetch(_GLANCE, (sql.Texts(list(names)),)))
    stored_states = [tuple(row[9:]) for row in rows if row[9] is not None]
    mark, unjudged, terminating, aside, unsettled, guards, last, ceiling, deferred = rows[0][:9]
    lineage.reserve(last, ceiling)
    return PendingWork(
        mark=mark,
        unjudged=unjudged,
        terminating_namespaces=terminating,
        set_aside=aside,
        unsettled_quotas=unsettled,
        guards_canary=guards,
        deferred_resizes=deferred,
        revisions={name: revision for name, revision, _ in stored_states},
        states={name: msgspec.json.decode(state) for name, _, state in stored_states},
    )


def stored_state(name: str) -> dict[str, Any]:
    """Return the state that a controller stored, empty without one. Queries once."""
    row = sql.fetch_one("SELECT state::text FROM controller_cursor WHERE name = %s", (name,))
    return {} if row is None else msgspec.json.decode(row[0])
