"""The pass of a follower that works namespace by namespace.

Workloads, endpoints and disruption budgets are brought up to date in the namespaces in which
something changed since the last pass, and in those in which a time has come. A namespace that fails
is set aside, and the others go on; it is looked at again after a while, since the failure may have
had nothing to do with it. The cursor, and when to look again where nothing but the time passes, are
kept in the follower's row.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from clusterstate import changes
from clusterstate.actions import aside, controller_state
from clusterstate.actions.aside import Which
from clusterstate.objects import document
from clusterstate.queries.controllers import PendingWork, stored_state
from clusterstate.queries.namespaces import changed_namespaces

AGAIN: Final = timedelta(minutes=1)
"""After so long what was set aside is looked at again, also if it did not change."""
_CLUSTER: Final = ""
"""The namespace, in the log, of objects that have none."""


def is_due(name: str, seen: PendingWork, now: datetime) -> bool:
    """Return whether a time has come for which a follower waits."""
    return bool(_due(seen.states.get(name, {}), now))


def _due(kept: Mapping[str, str], now: datetime) -> list[str]:
    return [namespace for namespace, at in kept.items() if document.parse_time(at) <= now]


def follow(
    name: str,
    now: datetime,
    *,
    kinds: Iterable[str],
    present: Callable[[int | None, int], set[str]],
    moved: Callable[[], set[str]],
    sync: Callable[[str], datetime | None],
) -> int:
    """Look at the namespaces that need it; return how many.

    ``kinds``: of what changes are followed. ``present``: the namespaces that may need work, by the
    cursor, which is ``None`` in the first pass, and the revision up to which is looked. ``moved``:
    those that need work because of objects without a namespace; asked when such objects changed.
    ``sync`` brings one up to date, and returns when to look again though nothing changed.
    """
    cursor = controller_state.cursor(name)
    kept: dict[str, Any] = stored_state(name)
    before = dict(kept)
    mark = changes.watermark()
    found = None if cursor is None else changed_namespaces(cursor, mark, tuple(kinds))
    everywhere = present(cursor, mark)
    chosen = everywhere if found is None else everywhere & {*found, *_due(kept, now)}
    if found is None or _CLUSTER in found:
        chosen = chosen | moved()
    for namespace in sorted(chosen):
        done = aside.each(
            name,
            [namespace],
            lambda names: sync(names[0]),
            which=lambda one: Which("Namespace", name=one),
            now=now,
        )
        due_at = done[0] if done else now + AGAIN
        kept.pop(namespace, None)
        if due_at is not None:
            kept[namespace] = due_at.isoformat()
    kept = {namespace: at for namespace, at in kept.items() if namespace in everywhere}
    if kept != before:
        controller_state.set_state(name, kept)
    if cursor is None or mark > cursor:
        controller_state.set_cursor(name, mark)
    return len(chosen)
