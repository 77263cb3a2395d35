"""Validation of Events of ``events.k8s.io``, with its own field names; pure.

The core group takes nearly anything, as programs have long sent it; the newer group's Events say
who reports what, and change in nothing but their series. Rules:
pkg/apis/core/validation/events.go (``ValidateEventCreate``, ``ValidateEventUpdate``), v1.36.
"""

from typing import Any, Final

from clusterstate.objects.rules import event_names
from clusterstate.objects.values import document
from clusterstate.objects.values import labels as label_rules
from clusterstate.objects.values.errors import FORBIDDEN, INVALID, REQUIRED, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest

_SAID: Final = {"reportingController": 128, "reportingInstance": 128, "action": 128, "reason": 128}
"""Texts that have to be there, and how long they may be."""
_LONGEST_NOTE: Final = 1024
_TYPES: Final = ("Normal", "Warning")
_OLD: Final = (
    "deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource",
)  # fmt: skip
_FIXED: Final = (
    "eventTime", "regarding", "related", "type", "note", *_SAID, *_OLD,
)  # fmt: skip


def require(new: Manifest, old: Manifest | None) -> None:
    """Refuse an Event that this group does not take: a new one, or a change of a stored one.

    Both are as they are stored.

    Raises:
        Invalid: with every wrong field.
    """
    event = event_names.shown(new)
    if old is None:
        errors = _new(event)
    else:
        before = event_names.shown(old)
        errors = [
            FieldError(INVALID, name, event.get(name), "field is immutable")
            for name in _FIXED
            if not _same(name, event.get(name), before.get(name))
        ]
        if event.get("series") != before.get("series"):
            errors += _series(event)
    if errors:
        name = (new.get("metadata") or {}).get("name") or ""
        raise Invalid("Event", name, errors, event_names.GROUP)


def _same(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a field are equal; times may be written differently."""
    if one and other and name == "eventTime":
        return document.parse_time(one) == document.parse_time(other)
    return (one or None) == (other or None)


def _new(event: Manifest) -> list[FieldError]:
    errors = _names(event.get("metadata") or {})
    if not event.get("eventTime"):
        errors.append(FieldError(REQUIRED, "eventTime"))
    for name, longest in _SAID.items():
        text = event.get(name) or ""
        if not text:
            errors.append(FieldError(REQUIRED, name))
        elif len(text.encode()) > longest:
            errors.append(FieldError(INVALID, name, "", f"can have at most {longest} characters"))
    if len((event.get("note") or "").encode()) > _LONGEST_NOTE:
        detail = f"can have at most {_LONGEST_NOTE} characters"
        errors.append(FieldError(INVALID, "note", "", detail))
    kind = event.get("type") or ""
    if kind not in _TYPES:
        errors.append(FieldError(INVALID, "type", "", f"has invalid value: {kind}"))
    errors += [
        FieldError(FORBIDDEN, name, detail="needs to be unset") for name in _OLD if event.get(name)
    ]
    return errors + _series(event)


def _names(metadata: Manifest) -> list[FieldError]:
    """Return errors in a name that is no DNS subdomain; the core group accepts any path segment."""
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    return [
        FieldError(INVALID, f"metadata.{field}", value, problem)
        for field, value, checked in (
            ("generateName", prefix, label_rules.mask_trailing_dash(prefix)),
            ("name", name, name),
        )
        if value
        for problem in label_rules.is_dns1123_subdomain(checked)
    ]


def _series(event: Manifest) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errors = []
    if (series.get("count") or 0) < 2:
        errors.append(FieldError(INVALID, "series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(FieldError(REQUIRED, "series.lastObservedTime"))
    return errors
