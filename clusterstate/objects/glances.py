"""What a version of a pod tells of the fleet: where it was and what it asked for, or why it waited.

The past keeps that beside the versions (`clusterstate.blocks`), so that the fleet of a moment is
added up without reading one of them.
"""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects import scheduling_class
from clusterstate.objects.document import parse_time
from clusterstate.objects.pod import Pod, PodStatus
from clusterstate.objects.resources import pod_request_ints

_OVER: Final = ("Succeeded", "Failed")
_decode_pod = msgspec.json.Decoder(Pod).decode


class Glance(msgspec.Struct, frozen=True, gc=False):
    """Where a pod was, and its use as text: empty where it had ended.

    Of one on a node ``text`` is a ``Use`` as JSON, of one that waited (``node_name`` empty) a
    ``Wait``.
    """

    node_name: str
    text: str


class Use(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a pod asked for, itself included (``pods``), and whether (1) it was being deleted."""

    leaving: int
    amounts: dict[str, int]


class Wait(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why a pod waited, as the scheduler said it, and since when, as it is written."""

    words: str
    since: str | None

    @property
    def moment(self) -> datetime | None:
        """Return since when."""
        return parse_time(self.since) if self.since else None


use_of = msgspec.json.Decoder(Use).decode
wait_of = msgspec.json.Decoder(Wait).decode
_encode = msgspec.json.Encoder().encode


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What of a pod's spec says where it is and what it asks for, the latter as it is written."""

    node_name: str = ""
    containers: msgspec.Raw = msgspec.Raw(b"")
    init_containers: msgspec.Raw = msgspec.Raw(b"")
    overhead: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    container_statuses: msgspec.Raw = msgspec.Raw(b"")
    init_container_statuses: msgspec.Raw = msgspec.Raw(b"")
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: msgspec.Raw = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class _Version(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod, as far as it has to be read if another one asked for the same."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_glance = msgspec.json.Decoder(_Version).decode


class Glances:
    """Glances at versions; remembers what pods ask for that are written alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[bytes, ...]], str] = {}

    def at(self, body: bytes) -> Glance:
        """Return what a version tells.

        Raises:
            msgspec.DecodeError, QuantityError: it cannot be read.
        """
        seen = _glance(body)
        spec = seen.spec
        if seen.status.phase in _OVER:
            return Glance(spec.node_name, "")
        if not spec.node_name:
            return Glance("", _text(_waiting(_decode_pod(body))))
        leaving = 1 if seen.metadata.deletion_timestamp else 0
        if _tells_amounts(seen.status):  # its agent tells what it holds: it is read by itself
            whole = scheduling_class.reduce(msgspec.json.decode(body))
            amounts = pod_request_ints(msgspec.convert(whole, Pod))
            return Glance(spec.node_name, _text(Use(leaving, {"pods": 1, **amounts})))
        parts = spec.containers, spec.init_containers, spec.overhead, spec.resources
        written = leaving, tuple(bytes(one) for one in parts)
        text = self._known.get(written)
        if text is None:
            pod = msgspec.structs.replace(_decode_pod(body), status=PodStatus())
            text = _text(Use(leaving, {"pods": 1, **pod_request_ints(pod)}))
            self._known[written] = text
        return Glance(spec.node_name, text)


def _text(one: Use | Wait) -> str:
    return _encode(one).decode()


def _tells_amounts(status: _Status) -> bool:
    return bool(bytes(status.allocated_resources) or bytes(status.resources)) or any(
        word in bytes(one)
        for one in (status.container_statuses, status.init_container_statuses)
        for word in (b'"allocatedResources"', b'"resources"')
    )


def _waiting(pod: Pod) -> Wait:
    words, since = "", pod.metadata.creation_timestamp
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            words = one.message or one.reason
            since = one.last_transition_time or since
    return Wait(words, since or None)
