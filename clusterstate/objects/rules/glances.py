"""Summary of one pod version for the fleet's past: its node and requests, or why it waited.

The past keeps that beside the versions (`clusterstate.change_log.blocks`), so that the fleet of a
moment is added up without reading one of them.
"""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.rules import resizing, scheduling_class
from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.pod import Pod, PodStatus

_OVER: Final = ("Succeeded", "Failed")
_decode_pod = msgspec.json.Decoder(Pod).decode


class Glance(msgspec.Struct, frozen=True, gc=False):
    """The node of a pod version, and its requests as text; the text is empty if it had ended.

    Of one on a node ``text`` is a ``Use`` as JSON, of one that waited (``node_name`` empty) a
    ``Wait``.
    """

    node_name: str
    text: str


class Use(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The requests of a pod, itself included (``pods``), and whether (1) it was being deleted."""

    leaving: int
    amounts: dict[str, int]


class Wait(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why and since when a pod waited: the scheduler's message, and an RFC 3339 text."""

    words: str
    since: str | None

    @property
    def moment(self) -> datetime | None:
        """Return the time since when the pod waits."""
        return parse_time(self.since) if self.since else None


use_of = msgspec.json.Decoder(Use).decode
wait_of = msgspec.json.Decoder(Wait).decode
_encode = msgspec.json.Encoder().encode


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The parts of a pod's spec with its node and its requests, as they are written."""

    node_name: str = ""
    containers: msgspec.Raw = msgspec.Raw(b"")
    init_containers: msgspec.Raw = msgspec.Raw(b"")
    overhead: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The amounts in a container's status, not decoded."""

    name: str = ""
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    reason: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a pod that are decoded for a glance; amounts stay JSON, as cache keys."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_glance = msgspec.json.Decoder(_Version).decode


_Held = tuple[tuple[str, bytes, bytes], ...]


class Glances:
    """Returns glances at versions; caches the requests of pods by the JSON of their amounts."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, tuple[bytes, ...], _Held], str] = {}

    def at(self, body: bytes) -> Glance:
        """Return the glance at a pod's version, given as JSON.

        Raises:
            msgspec.DecodeError, QuantityError: it cannot be read.
        """
        glance = _glance(body)
        spec = glance.spec
        if glance.status.phase in _OVER:
            return Glance(spec.node_name, "")
        if not spec.node_name:
            return Glance("", _text(_waiting(_decode_pod(body))))
        leaving = 1 if glance.metadata.deletion_timestamp else 0
        held = _amounts(glance.status)
        parts = spec.containers, spec.init_containers, spec.overhead, spec.resources
        written = leaving, tuple(bytes(one) for one in parts), held
        text = self._texts.get(written)
        if text is None:
            if held:  # what it holds while it is resized counts, too
                whole = scheduling_class.reduce(msgspec.json.decode(body))
                pod = msgspec.convert(whole, Pod)
            else:
                pod = msgspec.structs.replace(_decode_pod(body), status=PodStatus())
            text = _text(Use(leaving, {"pods": 1, **pod_request_ints(pod)}))
            self._texts[written] = text
        return Glance(spec.node_name, text)


def _text(one: Use | Wait) -> str:
    return _encode(one).decode()


def _amounts(status: _Status) -> _Held:
    """Return the amounts in a status as they are written; empty if there are none.

    Agents report them for each container. Equal pods have equal texts.
    """
    found = [
        (one.name, bytes(one.allocated_resources), bytes(one.resources))
        for one in (*status.container_statuses, *status.init_container_statuses)
        if bytes(one.allocated_resources) or bytes(one.resources)
    ]
    whole = bytes(status.allocated_resources), bytes(status.resources)
    if any(whole):
        found.append(("", *whole))
    reasons = (one.reason for one in status.conditions if one.type == resizing.PENDING)
    if next(reasons, "") == resizing.INFEASIBLE:
        found.append((resizing.INFEASIBLE, b"", b""))
    return tuple(found)


def _waiting(pod: Pod) -> Wait:
    words, since = "", pod.metadata.creation_timestamp
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            words = one.message or one.reason
            since = one.last_transition_time or since
    return Wait(words, since or None)
