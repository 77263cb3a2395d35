"""The pass of a follower that works namespace by namespace.

Workloads, endpoints and disruption budgets are brought up to date in the namespaces in which
something changed since the last pass, and in those in which a time has come. A namespace that fails
is set aside, and the others go on; it is looked at again after a while, since the failure may have
had nothing to do with it. The cursor, and when to look again where nothing but the time passes, are
kept in the follower's row.

Some followers depend on objects without a namespace, too, such as which nodes exist. A node changes
far more often than the parts of it that matter, so a digest of these parts is kept in a row of its
own (`Around`). It is written when the namespaces have been brought up to date with it. A memory of
the process would not do: another worker's pass may have been the last one, and a pass may fail.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes
from clusterstate.objects.values import document
from clusterstate.queries.loops.controllers import PendingWork, stored_state
from clusterstate.queries.objects.namespaces import changed_namespaces

AGAIN: Final = timedelta(minutes=1)
"""Objects that were set aside are tried again after this time, even if they did not change."""
_CLUSTER: Final = ""
"""The namespace, in the log, of objects that have none."""
_AROUND, _DIGEST = "-around", "digest"
_encode = msgspec.json.Encoder(order="sorted").encode


class Around(msgspec.Struct, frozen=True):
    """Objects outside of namespaces that the work in namespaces depends on.

    ``read`` returns all of it that matters, as JSON can have it; ``namespaces`` those that depend
    on it.
    """

    read: Callable[[], object]
    namespaces: Callable[[], set[str]]


def is_due(name: str, pending: PendingWork, now: datetime) -> bool:
    """Return whether a time has come for which a follower waits."""
    return bool(_due(pending.states.get(name, {}), now))


def _digest(of: object) -> str:
    return hashlib.blake2b(_encode(of), digest_size=16).hexdigest()


def _due(times: Mapping[str, str], now: datetime) -> list[str]:
    return [namespace for namespace, at in times.items() if document.parse_time(at) <= now]


def follow(
    name: str,
    now: datetime,
    *,
    kinds: Iterable[str],
    present: Callable[[int | None, int], set[str]],
    sync: Callable[[str], datetime | None],
    around: Around | None = None,
) -> int:
    """Look at the namespaces that need it; return how many.

    ``kinds``: the kinds whose changes are followed. ``present`` returns the namespaces that may
    need work, given the cursor (``None`` in the first pass) and the revision up to which the pass
    looks. ``sync`` brings a namespace up to date, and returns when to look again though nothing
    changed. ``around``: objects without a namespace that matter, too.
    """
    cursor = controller_state.cursor(name)
    due_times: dict[str, Any] = stored_state(name)
    before = dict(due_times)
    mark = changes.watermark()
    found = None if cursor is None else changed_namespaces(cursor, mark, tuple(kinds))
    everywhere = present(cursor, mark)
    chosen = everywhere if found is None else everywhere & {*found, *_due(due_times, now)}
    digest = ""
    if around is not None and (found is None or _CLUSTER in found):
        digest = _digest(around.read())
        if digest == stored_state(f"{name}{_AROUND}").get(_DIGEST):
            digest = ""
        else:
            chosen = chosen | around.namespaces()
    for namespace in sorted(chosen):
        which = ObjectRef("Namespace", name=namespace)
        work = partial(sync, namespace)
        due_at = aside.one(name, which, work, now=now, instead=lambda: now + AGAIN)
        due_times.pop(namespace, None)
        if due_at is not None:
            due_times[namespace] = due_at.isoformat()
    due_times = {namespace: at for namespace, at in due_times.items() if namespace in everywhere}
    if due_times != before:
        controller_state.set_state(name, due_times)
    if digest:
        controller_state.set_state(f"{name}{_AROUND}", {_DIGEST: digest})
    if cursor is None or mark > cursor:
        controller_state.set_cursor(name, mark)
    return len(chosen)
