"""The pass of a follower that works namespace by namespace.

Workloads, endpoints and disruption budgets are processed in the namespaces in which something
changed since the last pass, and in those whose due time has come. A namespace that fails is set
aside, and the others continue; it is tried again later, since the failure may have had another
cause. The follower's row has the cursor and the due times.

Some followers also depend on objects without a namespace, such as which nodes exist. A node changes
far more often than the parts of it that matter, so a digest of these parts is stored in a row of
its own (`Around`), once the namespaces have been processed with it. Memory of the process would not
do: another worker may have run the last pass, and a pass may fail.
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
    """Objects without a namespace on which the work in namespaces depends.

    ``read`` returns everything of them that matters, as JSON values; ``namespaces`` returns the
    dependent namespaces.
    """

    read: Callable[[], object]
    namespaces: Callable[[], set[str]]


def is_due(name: str, pending: PendingWork, now: datetime) -> bool:
    """Return whether a due time of a follower has come."""
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
    sync_changes: Callable[[str, int, int], datetime | None] | None = None,
    around: Around | None = None,
) -> int:
    """Process the namespaces that need it; return how many.

    ``kinds``: the kinds whose changes are followed. ``present`` returns the namespaces that may
    need work, given the cursor (``None`` in the first pass) and the revision up to which the pass
    reads. ``sync`` processes a namespace, and returns when to do so again without any change.
    ``sync_changes`` does so for the changes between two revisions alone, while the namespace is not
    to be processed again. ``around``: objects without a namespace that matter, too.
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
        if sync_changes and cursor is not None and found is not None and namespace not in due_times:
            work = partial(sync_changes, namespace, cursor, mark)
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
