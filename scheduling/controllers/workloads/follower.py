"""Which namespaces the workload controllers look at, in which order, and when again."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog
from django.conf import settings

from clusterstate import changes
from clusterstate.actions import aside, evictions
from clusterstate.actions.aside import Which
from clusterstate.objects import document
from clusterstate.objects.meta import Manifest
from clusterstate.queries.controllers import PendingWork
from clusterstate.queries.namespaces import changed_namespaces
from clusterstate.queries.workloads import namespaces_with
from scheduling.controllers.workloads import deployments, replica_sets
from scheduling.controllers.workloads.hands import Hands
from scheduling.controllers.workloads.world import World

logger = structlog.get_logger(__name__)

NAME: Final = "workloads"
_ROUNDS: Final = 3
"""Steps in a pass: what a Deployment wants of a ReplicaSet is done before the next second."""

_Sync = Callable[[Hands, Manifest], object]
_STEPS: Final[Mapping[str, tuple[str, _Sync]]] = {
    "deployment": ("Deployment", deployments.sync),
    "replicaset": ("ReplicaSet", replica_sets.sync),
    "replicationcontroller": ("ReplicationController", replica_sets.sync),
}
"""By the controller's name in the settings: its kind and what it does for one object, in order."""
_READS: Final[Mapping[str, tuple[str, ...]]] = {"deployment": ("ReplicaSet",)}
"""The kinds that a controller reads beside its own."""


def must_look_again(seen: PendingWork, now: datetime) -> bool:
    """Return whether a workload waits for nothing but the time."""
    return bool(_due(seen.states.get(NAME, {}), now))


def _due(kept: Mapping[str, str], now: datetime) -> list[str]:
    return [name for name, at in kept.items() if document.parse_time(at) <= now]


def _kinds() -> list[str]:
    """Return the kinds that are read: those of the controllers that work."""
    found = [
        kind
        for name, (own, _) in _STEPS.items()
        if name in settings.CONTROLLERS
        for kind in (own, *_READS.get(name, ()))
    ]
    return list(dict.fromkeys(found))


def follow(now: datetime) -> int:
    """Bring workloads to what they ask for where something changed; return how many namespaces.

    Does nothing while another pass runs, whose pods would be made twice.
    """
    if not settings.CONTROLLERS:
        return 0
    with changes.alone(changes.WORKLOADS_LOCK) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    cursor = evictions.cursor(NAME)
    kept: dict[str, Any] = evictions.state(NAME)
    before = dict(kept)
    mark = changes.watermark()
    kinds = _kinds()
    present = set(namespaces_with(kinds))
    if cursor is None or (found := changed_namespaces(cursor, mark, ("Pod", *kinds))) is None:
        chosen = present
    else:
        chosen = present & {*found, *_due(kept, now)}
    for namespace in sorted(chosen):
        done = aside.each(
            NAME,
            [namespace],
            lambda names: sync(names[0], now),
            which=lambda name: Which("Namespace", name=name),
            now=now,
        )
        kept.pop(namespace, None)
        if done and done[0] is not None:
            kept[namespace] = done[0].isoformat()
    kept = {name: at for name, at in kept.items() if name in present}
    if kept != before:
        evictions.set_state(NAME, kept)
    if cursor is None or mark > cursor:
        evictions.set_cursor(NAME, mark)
    return len(chosen)


def sync(namespace: str, now: datetime) -> datetime | None:
    """Bring the workloads of a namespace to what they ask for.

    Returns when to look again though nothing changed, ``None`` for never.
    """
    due_at: datetime | None = None
    for _ in range(_ROUNDS):
        hands = Hands(World(namespace, _kinds()), now)
        for name, (kind, work) in _STEPS.items():
            if name in settings.CONTROLLERS:
                for owner in list(hands.world.owners[kind]):
                    _alone(hands, owner, work)
        due_at = hands.finish()
        if not hands.wrote:
            break
    return due_at


def _alone(hands: Hands, owner: Manifest, work: _Sync) -> None:
    """Work on one workload; what it cannot digest is set aside, and the others go on."""
    metadata = owner["metadata"]
    which = Which(owner["kind"], namespace=metadata["namespace"], name=metadata["name"])
    aside.each(
        NAME,
        [owner],
        lambda some: work(hands, some[0]),
        which=lambda one: which,
        now=hands.now,
    )
