"""The cluster as a client sees it: events of watches, in the order of their revisions.

`State` holds the objects of all kinds that are watched as of a revision and can go back, since a
decision is judged by the states between its snapshot and its binding.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.faults import arithmetic, claims

Object = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of a watch: ADDED, MODIFIED or DELETED, with the object as it was sent."""

    revision: int
    kind: str
    verb: str
    item: Object
    seen_at: float = 0.0


def revision_of(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def uid_of(item: Object) -> str:
    return str(item["metadata"]["uid"])


def key_of(item: Object) -> str:
    """Return namespace/name, or the name alone of what has no namespace."""
    space = item["metadata"].get("namespace")
    name = item["metadata"]["name"]
    return f"{space}/{name}" if space else name


def node_of(pod: Object) -> str:
    return pod["spec"].get("nodeName") or ""


def finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def labels_of(item: Object) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def owner_of(item: Object) -> str:
    """Return the uid of the managing owner, empty without one."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((one["uid"] for one in owners if one.get("controller")), "")


def condition(item: Object, kind: str) -> Object | None:
    found = (item.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == kind), None)


def bound_at(pod: Object) -> float:
    """Return when the pod was bound, in whole seconds since 1970; 0 if it does not say."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled is None or scheduled["status"] != "True":
        return 0.0
    return arithmetic.seconds(scheduled.get("lastTransitionTime")) or 0.0


def priority_of(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


@dataclass
class State:
    """Nodes by name, pods, ReplicaSets and objects of other kinds by uid, as of a revision."""

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    revision: int = 0
    sets: dict[str, Object] = field(default_factory=dict)
    others: dict[str, dict[str, Object]] = field(default_factory=dict)
    _undo: list[tuple[int, str, str, Object | None]] = field(default_factory=list)

    def table(self, kind: str) -> dict[str, Object]:
        known = {"Node": self.nodes, "Pod": self.pods, "ReplicaSet": self.sets}
        return known[kind] if kind in known else self.others.setdefault(kind, {})

    def lists(self) -> dict[str, list[Object]]:
        """Return the objects of the kinds that claims, devices and volumes are judged by."""
        return {kind: list(self.table(kind).values()) for kind in claims.KINDS}

    def apply(self, event: Event) -> Object | None:
        """Take one event in; return the object as it was before, or None."""
        table = self.table(event.kind)
        key = key_of(event.item) if event.kind == "Node" else uid_of(event.item)
        before = table.get(key)
        self._undo.append((self.revision, event.kind, key, before))
        if event.verb == "DELETED":
            table.pop(key, None)
        else:
            table[key] = event.item
        self.revision = event.revision
        return before

    def forget(self, keep: int = 5000) -> None:
        """Give up the way back but for the last so many events."""
        del self._undo[:-keep]

    def back_to(self, revision: int) -> Iterator["State"]:
        """Go back event by event, in place, down to a revision; give the state after each step."""
        while self._undo and self.revision > revision:
            self.revision, kind, key, before = self._undo.pop()
            if before is None:
                self.table(kind).pop(key, None)
            else:
                self.table(kind)[key] = before
            yield self

    def copy(self) -> "State":
        undo = list(self._undo)
        others = {kind: dict(table) for kind, table in self.others.items()}
        mine = dict(self.nodes), dict(self.pods), self.revision, dict(self.sets)
        return State(*mine, others, undo)

    def beyond(self, owner: str) -> int:
        """Return how many active pods a ReplicaSet has more than it asks for; negative: fewer."""
        asks = self.sets[owner]["spec"]["replicas"]
        has = sum(
            owner_of(pod) == owner and not leaving(pod) and not finished(pod)
            for pod in self.pods.values()
        )
        return has - int(asks)

    def on_node(self, name: str) -> list[Object]:
        """Return the pods that take room on a node."""
        return [pod for pod in self.pods.values() if node_of(pod) == name and not finished(pod)]


def in_order(*streams: Iterable[Event]) -> list[Event]:
    """Return the events of several watches by revision."""
    return sorted((event for stream in streams for event in stream), key=lambda one: one.revision)
