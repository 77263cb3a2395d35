r"""Stored object versions as JSON text with slots.

A *document* is the manifest as compact JSON with sorted members. A raw control character ``\x01``,
which JSON text can never contain, marks the places whose value lives in columns of the narrow row:

* every kind: the value of ``metadata.resourceVersion`` (the row's revision),
* pods: the ``spec.nodeName`` member and the PodScheduled entry of ``status.conditions``; and what
  an eviction for a taint says, which is the deletion's two members of ``metadata`` and the
  DisruptionTarget entry of ``status.conditions``. That a deletion begins counts as a generation,
  so the document of a pod that a taint evicted has one less than what is given out.

So binding a pod, finding that it does not fit, or evicting it, writes a narrow row and leaves the
document alone; and GET, LIST and WATCH join strings and never parse. ``compose`` is a split and a
join.

Two manifests that differ in nothing but the slots and the order of members have the same text,
which is how an update that changes nothing is recognised. PodScheduled is always given out as the
first condition.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate.objects.values import ending, moments
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import PodCondition
from clusterstate.objects.values.remembered import remembered

SLOT: Final = "\x01"

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder()


class Eviction(msgspec.Struct, frozen=True):
    """A NoExecute taint evicted the pod at ``at``; it must have ended by ``until``.

    Both are whole seconds; their difference is the grace period.
    """

    at: datetime
    until: datetime


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a pod's slots.

    ``scheduled_at`` is when PodScheduled became true; ``unschedulable`` is the whole PodScheduled
    condition as JSON text while it is not true. If a true condition has more fields than its time,
    both are set, and clients get the text. A condition without ``observedGeneration`` is about the
    pod as the document has it; clients get it with the document's ``metadata.generation``. So the
    scheduler need not read the generation, and an update of the spec keeps the condition's old one.
    """

    node_name: str = ""
    scheduled_at: datetime | None = None
    unschedulable: str | None = None
    eviction: "Eviction | None" = None
    leaving: str = ""
    """The condition of a pod that will be evicted, as JSON text; composed, never stored."""


LEAVING: Final = "stowage.dev/EvictionScheduled"
TAINT_EVICTION: Final = ending.condition(
    ending.TAINTED, "Taint manager: deleting due to NoExecute taint"
)
"""The condition of an ``Eviction``, without its time."""
EMPTY: Final = Overlay()


def format_time(moment: datetime) -> str:
    """Return RFC 3339 text in UTC with whole seconds, as ``metav1.Time`` is written."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def format_micro_time(moment: datetime) -> str:
    """Return RFC 3339 text in UTC with microseconds, as ``metav1.MicroTime`` is written."""
    return f"{format_time(moment)[:-1]}.{moment.microsecond:06d}Z"


def parse_time(text: str) -> datetime:
    """Return the moment that RFC 3339 text names, within ``moments.FIRST`` and ``NEVER``.

    Raises:
        ValueError: the text is not RFC 3339, or has no zone.
    """
    return moments.parse(text)


def encode(kind: str, manifest: Manifest) -> tuple[str, Overlay]:
    """Return the document of a manifest and, for pods, what was in its slots.

    ``metadata.resourceVersion`` is dropped; the manifest is not changed.

    Raises:
        ValueError: PodScheduled carries a time that is not RFC 3339.
    """
    metadata = dict(manifest.get("metadata") or ())
    metadata.pop("resourceVersion", None)
    overlay = EMPTY
    rest = {
        key: value
        for key, value in manifest.items()
        if key not in ("apiVersion", "kind", "metadata", "spec", "status")
    }
    spec: str | None = None
    status: str | None = None
    if kind == "Pod":
        spec, status, overlay = _pod_parts(manifest, metadata)
    else:
        if "spec" in manifest:
            spec = _json(manifest["spec"])
        if "status" in manifest:
            status = _json(manifest["status"])
    parts = [f'"{key}":{_json(manifest[key])}' for key in ("apiVersion", "kind") if key in manifest]
    members = _json(metadata)[1:-1]
    comma = "," if members else ""
    parts.append(f'"metadata":{{{members}{comma}"resourceVersion":"{SLOT}"}}')
    if rest:
        parts.append(_json(rest)[1:-1])
    if spec is not None:
        parts.append(f'"spec":{spec}')
    if status is not None:
        parts.append(f'"status":{status}')
    return f"{{{','.join(parts)}}}", overlay


class Template(msgspec.Struct, frozen=True):
    """A document without its creation time, name and uid: the text around them."""

    before_created: str
    before_name: str
    before_uid: str
    rest: str

    def fill(self, created: str, name: str, uid: str) -> str:
        """Return the document; ``created`` and ``uid`` are plain ASCII."""
        return (
            f"{self.before_created}{created}{self.before_name}{_json(name)}"
            f"{self.before_uid}{uid}{self.rest}"
        )


def template(text: str, metadata: Manifest) -> Template | None:
    """Return the template of a document that ``encode`` made of a manifest with this metadata.

    ``None`` if filling it would not give the same text again, as without one of the three members.
    """
    created, name, uid = (metadata.get(key, "") for key in ("creationTimestamp", "name", "uid"))
    head, found, _ = text.partition('"metadata":{')
    head += found
    keys = sorted(metadata.keys() - {"resourceVersion", "creationTimestamp", "name", "uid"})
    first, second, third, fourth = (
        _json({key: metadata[key] for key in keys if low < key < high})[1:-1]
        for low, high in (
            ("", "creationTimestamp"), ("creationTimestamp", "name"), ("name", "uid"),
            ("uid", "\U0010ffff"),
        )
    )  # fmt: skip
    before = f'{head}{first}{"," if first else ""}"creationTimestamp":"'
    before_name = f'",{second}{"," if second else ""}"name":'
    before_uid = f',{third}{"," if third else ""}"uid":"'
    after = f'"{"," if fourth else ""}{fourth}'
    length = len(Template(before, before_name, before_uid, after).fill(created, name, uid))
    result = Template(before, before_name, before_uid, after + text[length:])
    return result if result.fill(created, name, uid) == text else None


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()


def _pod_parts(manifest: Manifest, metadata: Manifest) -> tuple[str, str, Overlay]:
    """Return spec, status and slots of a pod; remove from ``metadata`` what went into slots."""
    spec = dict(manifest.get("spec") or ())
    node_name = spec.pop("nodeName", None) or ""
    status = dict(manifest.get("status") or ())
    scheduled_at: datetime | None = None
    unschedulable: str | None = None
    others: list[Any] = []
    conditions = status.pop("conditions", None) or ()
    evicting, eviction = _eviction_in(metadata, conditions)
    if eviction is not None and type(generation := metadata.get("generation")) is int:
        metadata["generation"] = generation - bool(generation)
    for condition in conditions:
        if condition.get("type") == LEAVING:
            continue  # given out with the pod, and maybe sent back
        if condition.get("type") == "PodScheduled":
            scheduled_at, unschedulable = _scheduled(condition, metadata)
        elif condition is not evicting:
            others.append(condition)
    if eviction is not None:
        del metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]
    if others:
        status["conditions"] = others
        # Sorted members put conditions first or behind others; the slot stands inside the list.
        head, tail = _split_conditions(status, others)
        status_text = f"{head}{SLOT}{tail}"
    else:
        status_text = "{" + SLOT + _json(status)[1:]
    overlay = (
        Overlay(
            node_name=node_name,
            scheduled_at=scheduled_at,
            unschedulable=unschedulable,
            eviction=eviction,
        )
        if node_name or scheduled_at or unschedulable or eviction
        else EMPTY
    )
    return "{" + SLOT + _json(spec)[1:], status_text, overlay


def _scheduled(condition: Manifest, metadata: Manifest) -> tuple[datetime | None, str | None]:
    """Return a PodScheduled condition as the ``Overlay`` stores it: when it became true, and JSON.

    That it was made for the pod as it is now is not said.
    """
    generation = metadata.get("generation")
    if type(generation) is int and condition.get("observedGeneration") == generation:
        condition = {key: value for key, value in condition.items() if key != "observedGeneration"}
    if condition.get("status") == "True" and condition.get("lastTransitionTime"):
        since = parse_time(condition["lastTransitionTime"])
        return since, _beyond_time(condition, since)
    return None, _json(condition)


def _beyond_time(condition: Manifest, since: datetime) -> str | None:
    """Return a true PodScheduled condition as JSON; ``None`` if it has only the usual members."""
    members = {key: value for key, value in condition.items() if value}
    if members.keys() <= _TRUE_MEMBERS:
        return None
    return _json({**members, "lastTransitionTime": format_time(since)})


_TRUE_MEMBERS: Final = frozenset({"lastTransitionTime", "status", "type"})


def _eviction_in(
    metadata: Manifest, conditions: Iterable[Manifest]
) -> tuple[Manifest | None, Eviction | None]:
    """Return the condition of a NoExecute eviction, and the eviction; (``None``, ``None``) without.

    The eviction, composed, gives this condition, and the deletion and generation of ``metadata``.
    """
    if metadata.get("deletionTimestamp") and metadata.get("generation") != 1:
        for condition in conditions:
            if (found := _eviction(metadata, condition)) is not None:
                return condition, found
    return None, None


def _eviction(metadata: Manifest, condition: Manifest) -> Eviction | None:
    """Return the eviction that, composed, gives this condition and the metadata's deletion."""
    if condition.get("reason") != ending.TAINTED:
        return None
    since, until = condition.get("lastTransitionTime"), metadata["deletionTimestamp"]
    if not since or condition != {**TAINT_EVICTION, "lastTransitionTime": since}:
        return None
    found = Eviction(parse_time(since), parse_time(until))
    grace = metadata.get("deletionGracePeriodSeconds")
    if (found.until - found.at).total_seconds() != grace:
        return None
    return found if (format_time(found.at), format_time(found.until)) == (since, until) else None


def _split_conditions(status: Manifest, others: list[Any]) -> tuple[str, str]:
    listed = _json(others)
    del status["conditions"]
    members = _json(status)[1:-1]
    comma = "," if members else ""
    return '{"conditions":[', f"{listed[1:]}{comma}{members}}}"


def _scheduled_condition(overlay: Overlay, head: str) -> str:
    """Return the PodScheduled condition as JSON text; empty if the pod was not looked at yet.

    ``head`` is the document up to the slot in its metadata. A member's name is followed by its
    value only outside of texts, in which quotes have a backslash before them.
    """
    if overlay.unschedulable is not None:
        condition = overlay.unschedulable
        if _OBSERVED in condition or (observed := _generation(head)) == "":
            return condition
        return f"{condition[:-1]},{_OBSERVED}{observed}}}"
    if overlay.scheduled_at is None:
        return ""
    if _FIRST in head:  # nearly always, and a third of the time
        return _true_at_first(overlay.scheduled_at)
    return _true_since(overlay.scheduled_at, _generation(head))


_OBSERVED: Final = '"observedGeneration":'
_COUNTED: Final = '"generation":'
_FIRST: Final = f"{_COUNTED}1,"


def _generation(head: str) -> str:
    """Return the digits of ``metadata.generation``, empty if there is none.

    The first number of this name is it: annotations, which come before, are texts, and so are the
    members in front of metadata.
    """
    at = head.find(_COUNTED)
    while at >= 0:
        at += len(_COUNTED)
        if head[at].isdecimal():
            return head[at : head.index(",", at)]
        at = head.find(_COUNTED, at)
    return ""


def _of_next_generation(head: str) -> str:
    """Return the beginning of a document with its generation, if it has one, raised by 1."""
    present = _generation(head)
    if present in ("", "0"):
        return head
    before, counted, after = head.partition(f"{_COUNTED}{present},")
    return f"{before}{_COUNTED}{int(present) + 1},{after}" if counted else head


@lru_cache(maxsize=4096)
def _true_at_first(moment: datetime) -> str:
    return _true_since(moment, "1")


@lru_cache(maxsize=4096)
def _true_since(moment: datetime, generation: str) -> str:
    observed = f"{_OBSERVED}{generation}," if generation else ""
    since = format_time(moment)
    return f'{{"lastTransitionTime":"{since}",{observed}"status":"True","type":"PodScheduled"}}'


@lru_cache(maxsize=4096)
def _evicted(at: datetime, until: datetime) -> tuple[str, str]:
    """Return two pieces of an evicted pod's JSON: its deletion in metadata, and its condition.

    The former begins by closing the version's quotes and leaves its own last ones to the document.
    """
    grace = (until - at) // timedelta(seconds=1)
    deletion = f'","deletionGracePeriodSeconds":{grace},"deletionTimestamp":"{format_time(until)}'
    return deletion, _json({**TAINT_EVICTION, "lastTransitionTime": format_time(at)})


@remembered(16_384)
def _node_member(name: str) -> str:
    return f'"nodeName":{_json(name)}'


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[PodCondition, ...] = ()


class _Told(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_decode_told: Final = msgspec.json.Decoder(_Told).decode


def conditions(text: str) -> tuple[PodCondition, ...]:
    """Return the conditions in a pod's document, without those of its columns; none if unreadable.

    To look for a word in the text says less: it may stand in an annotation.
    """
    try:
        return _decode_told(text.replace(SLOT, "")).status.conditions
    except msgspec.DecodeError:
        return ()


def compose(text: str, revision: int, overlay: Overlay = EMPTY) -> bytes:
    """Return the manifest as JSON: the stored text with revision and overlay put between its parts.

    Nothing is parsed.
    """
    parts = text.split(SLOT)
    if len(parts) == 2:
        return f"{parts[0]}{revision}{parts[1]}".encode()
    head, spec, status, tail = parts
    node = ""
    if overlay.node_name:
        node = _node_member(overlay.node_name) + ("" if status[0] == "}" else ",")
    condition = _scheduled_condition(overlay, head)
    deletion = ""
    if overlay.eviction is not None:
        if ending.IN_TEXT in text:
            parts = _undisrupted(text).split(SLOT)
            head, spec, status, tail = parts
        deletion, disrupted = _evicted(overlay.eviction.at, overlay.eviction.until)
        condition += f",{disrupted}" if condition else disrupted
        head = _of_next_generation(head)
    if overlay.leaving:
        condition += f",{overlay.leaving}" if condition else overlay.leaving
    if condition:
        if status[-1] == "[":
            condition += ","
        else:
            condition = f'"conditions":[{condition}]' + ("" if tail[0] == "}" else ",")
    return f"{head}{revision}{deletion}{spec}{node}{status}{condition}{tail}".encode()


def _undisrupted(text: str) -> str:
    """Return a pod's document without DisruptionTarget: the eviction adds its own condition."""
    manifest = decode(text, 0)
    status = dict(manifest.get("status") or ())
    status["conditions"] = [
        one for one in status.get("conditions") or () if one.get("type") != ending.TARGET
    ]
    return encode("Pod", {**manifest, "status": status})[0]


def decode(text: str, revision: int, overlay: Overlay = EMPTY) -> Manifest:
    """Return the manifest with the slots filled."""
    manifest: Manifest = _decoder.decode(compose(text, revision, overlay))
    return manifest
