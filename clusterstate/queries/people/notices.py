"""Notices: changes of the log as CloudEvents 1.0, for users and their programs.

A *notice* is one fact about one object: a pod was bound, fits nowhere, was evicted or preempted; a
plan or a brake progressed; or just that an object changed. It is a function of a row of the change
log and the object before and after it, so reading the log again from a revision gives the same
notices, with the same ids. The stream of events and webhooks send them.

Envelope: CloudEvents 1.0, JSON event format. ``source`` names this history, and ``id`` the revision
and the type, so the two together are unique and equal at every delivery.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clusterstate.change_log.changes import ADDED, DELETED, MODIFIED, Change
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import ending
from clusterstate.objects.values.meta import Manifest

BIND: Final = "bind"
UNSCHEDULABLE: Final = "unschedulable"
EVICT: Final = "evict"
PREEMPT: Final = "preempt"
PLAN: Final = "plan"
BRAKE: Final = "brake"
CHANGE: Final = "change"

TYPES: Final = (BIND, UNSCHEDULABLE, EVICT, PREEMPT, PLAN, BRAKE, CHANGE)
"""What a subscriber may ask for."""
OF_EVENTS: Final = {PLAN: "Plan", BRAKE: "Brake"}
"""Types that the service's own Events report, with the kind of the object involved."""
OF_PODS: Final = frozenset({BIND, UNSCHEDULABLE, EVICT, PREEMPT})
"""Those that are about pods only, and need the state before the change."""

_WIRE: Final = {
    BIND: "dev.stowage.pod.bound",
    UNSCHEDULABLE: "dev.stowage.pod.unschedulable",
    EVICT: "dev.stowage.pod.evicted",
    PREEMPT: "dev.stowage.pod.preempted",
}
_OWN: Final = {
    "PlanBegun": "dev.stowage.plan.begun",
    "PlanPaused": "dev.stowage.plan.paused",
    "PlanSetAside": "dev.stowage.plan.setaside",
    "PlanResumed": "dev.stowage.plan.resumed",
    "PlanCancelled": "dev.stowage.plan.cancelled",
    "PlanDone": "dev.stowage.plan.done",
    "PlanFailed": "dev.stowage.plan.failed",
    "EvictionsHeldBack": "dev.stowage.brake.held",
    "EvictionsApproved": "dev.stowage.brake.approved",
    "EvictionsReleased": "dev.stowage.brake.released",
}
_CHANGED: Final = {
    ADDED: "dev.stowage.object.added",
    MODIFIED: "dev.stowage.object.modified",
    DELETED: "dev.stowage.object.deleted",
}
_GROUP_VERSION: Final = "stowage.dev/v1"

_encode = msgspec.json.Encoder(order="sorted").encode


class Notice(msgspec.Struct, frozen=True, gc=False):
    """One event about one object. ``type`` is one of ``TYPES``; ``data`` is the event's content."""

    revision: int
    at: datetime
    type: str
    wire_type: str
    kind: str
    namespace: str
    name: str
    node_name: str
    data: Manifest

    @property
    def id(self) -> str:
        """The id of the event, unique in its source."""
        return f"{self.revision}-{self.type}"

    def envelope(self, source: str) -> bytes:
        """Return the notice as a CloudEvent; ``source`` is ``source_of`` this history."""
        return _encode(
            {
                "specversion": "1.0",
                "id": self.id,
                "source": source,
                "type": self.wire_type,
                "subject": f"{self.namespace}/{self.name}" if self.namespace else self.name,
                "time": self.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "datacontenttype": "application/json",
                "data": self.data,
            }
        )


def source_of(history: str) -> str:
    """Return the ``source`` of events of a history, by its uid."""
    return f"urn:uuid:{history}"


def notices_of(
    change: Change,
    types: frozenset[str],
    new: Callable[[], Manifest],
    old_text: Callable[[], str | None],
) -> list[Notice]:
    """Return the notices of these types for a change. Queries nothing.

    ``new`` returns the object after the change (its last state, for a deletion), ``old_text`` the
    document before it, ``None`` if there was none. Both are called only if needed.
    """
    found: list[Notice] = []
    if change.kind == "Pod" and change.verb != DELETED and not OF_PODS.isdisjoint(types):
        if BIND in types and change.node_name and not change.previous_node_name:
            found.append(_notice(change, BIND, new(), nodeName=change.node_name))
        if UNSCHEDULABLE in types and _began_to_wait(change):
            reason, message = _reason_and_message(change.unschedulable or "{}")
            found.append(_notice(change, UNSCHEDULABLE, new(), reason=reason, message=message))
        if EVICT in types or PREEMPT in types:
            found += _leaving(change, types, new, old_text)
    if change.kind == "Event" and change.verb != DELETED and not types.isdisjoint(OF_EVENTS):
        found += _of_own(change, types, new)
    if CHANGE in types:
        data = {"type": _VERBS[change.verb], "object": new()}
        found.append(_of(change, CHANGE, _CHANGED[change.verb], data))
    return found


_VERBS: Final = {ADDED: "ADDED", MODIFIED: "MODIFIED", DELETED: "DELETED"}


def _began_to_wait(change: Change) -> bool:
    """Return whether a pod newly fits nowhere, or for another reason than before.

    A change of the spec updates the condition's observedGeneration, and nothing else of it.
    """
    now, before = change.unschedulable, change.previous_unschedulable
    if now is None or now == before or '"reason":"Unschedulable"' not in now:
        return False
    return before is None or _reason_and_message(now) != _reason_and_message(before)


def _reason_and_message(condition: str) -> tuple[str, str]:
    """Return reason and message of a condition."""
    members: Manifest = msgspec.json.decode(condition)
    return members.get("reason", ""), members.get("message", "")


def _leaving(
    change: Change,
    types: frozenset[str],
    new: Callable[[], Manifest],
    old_text: Callable[[], str | None],
) -> list[Notice]:
    """Return a notice if this change is the first by which a pod is evicted or preempted."""
    if change.eviction is not None:
        if change.previous_eviction is not None:
            return []
    elif change.previous_eviction is not None or ending.IN_TEXT not in (change.text or ""):
        return []
    else:
        before = old_text()
        if before is not None and ending.IN_TEXT in before:
            return []
    pod = new()
    condition = next(
        (
            one
            for one in (pod.get("status") or {}).get("conditions") or ()
            if one.get("type") == ending.TARGET and one.get("status") == "True"
        ),
        None,
    )
    if condition is None:
        return []
    reason = condition.get("reason", "")
    kind = PREEMPT if reason == ending.PREEMPTED else EVICT
    if kind not in types:
        return []
    node = change.node_name or change.previous_node_name or ""
    until = pod["metadata"].get("deletionTimestamp")
    more = {"deletionTimestamp": until} if until else {}
    causes = {"reason": reason, "message": condition.get("message", "")}
    return [_notice(change, kind, pod, nodeName=node, **causes, **more)]


def _of_own(change: Change, types: frozenset[str], new: Callable[[], Manifest]) -> list[Notice]:
    """Return the notice of an Event about a plan or a brake, if the service itself recorded it.

    Such an Event has no document; one that a client wrote or changed has.
    """
    if change.document_id is not None:
        return []
    event = new()
    involved = event.get("involvedObject") or {}
    wire_type = _OWN.get(event.get("reason", ""))
    kind = next((one for one in OF_EVENTS if OF_EVENTS[one] == involved.get("kind")), None)
    if kind not in types or wire_type is None or involved.get("apiVersion") != _GROUP_VERSION:
        return []
    data = {
        "kind": involved["kind"],
        "name": involved.get("name", ""),
        "reason": event["reason"],
        "message": event.get("message", ""),
        "resourceVersion": str(change.revision),
    }
    found = _of(change, kind, wire_type, data)
    return [msgspec.structs.replace(found, kind=involved["kind"], namespace="", name=data["name"])]


def _notice(change: Change, kind: str, pod: Manifest, **data: Any) -> Notice:
    metadata = pod["metadata"]
    subject: Manifest = {
        "kind": "Pod",
        "namespace": change.namespace,
        "name": change.name,
        "uid": metadata.get("uid", ""),
        "labels": metadata.get("labels") or {},
        "resourceVersion": str(change.revision),
        **data,
    }
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            subject["owner"] = {"kind": owner.get("kind", ""), "name": owner.get("name", "")}
    return _of(change, kind, _WIRE[kind], subject)


def _of(change: Change, kind: str, wire_type: str, data: Manifest) -> Notice:
    return Notice(
        revision=change.revision,
        at=change.at,
        type=kind,
        wire_type=wire_type,
        kind=change.kind,
        namespace=change.namespace,
        name=change.name,
        node_name=change.node_name or change.previous_node_name or "",
        data=data,
    )


def kinds_for(types: frozenset[str], kinds: Sequence[str]) -> frozenset[str]:
    """Return the kinds of the log to follow; ``kinds``: for notices of type ``change``."""
    needed = {"Pod"} if not OF_PODS.isdisjoint(types) else set()
    if not types.isdisjoint(OF_EVENTS):
        needed.add("Event")
    if CHANGE in types:
        needed |= set(kinds)
    assert all(one in KINDS for one in needed)
    return frozenset(needed)
