"""Times, amounts and shares as people read them, for templates (``{% load console %}``)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

import msgspec
from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from api import clock
from api.console.page.outcomes import OutcomeCount
from api.console.page.reasons_text import counted, hindrances
from api.forms import tables
from api.forms.cells import human_duration, parse_time
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.queries.evictions.eviction_timers import Timer

register = template.Library()
NONE: Final = "-"
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BYTES: Final = ("memory", "ephemeral-storage")


def amount(resource: str, number: int) -> str:
    """Return an amount with its unit: milli-CPU as cores, bytes in the largest binary unit."""
    if resource == "cpu":
        return _short(number / 1000)
    if resource in _BYTES or resource.startswith("hugepages-"):
        value = float(number)
        for unit in _BINARY:
            if abs(value) < 1024 or unit == _BINARY[-1]:
                return f"{_short(value)} {unit}"
            value /= 1024
    return f"{number:,}"


def requests_of(pod: Manifest) -> dict[str, int]:
    """Return a pod's requests as the scheduler counts them, overhead included."""
    return pod_request_ints(msgspec.convert(pod, Pod))


def _short(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_as_of: ContextVar[datetime | None] = ContextVar("as_of", default=None)
"""The moment of the page that is being rendered; ``None``: now."""


@contextmanager
def counted_from(moment: datetime | None) -> Iterator[None]:
    """Within the block, ages count from a moment of the past, or from now."""
    token = _as_of.set(moment)
    try:
        yield
    finally:
        _as_of.reset(token)


def _seconds_since(moment: datetime) -> float:
    return ((_as_of.get() or clock.now()) - moment).total_seconds()


@register.filter
def ago(moment: datetime | str | None) -> SafeString | str:
    """Return how long ago a time is, or in how long, with the exact time on hover.

    On a page of the past, ages count from the moment of the page.
    """
    if isinstance(moment, str):
        moment = parse_time(moment)
    return NONE if moment is None else _ago(moment, _seconds_since(moment))


@register.filter
def before_now(moment: datetime) -> SafeString:
    """Return how long ago a past moment is from now, also on a page of the past."""
    return _ago(moment, (clock.now() - moment).total_seconds(), "from-now")


def _ago(moment: datetime, seconds: float, form: str = "ago") -> SafeString:
    text = "now"
    if seconds >= 1:
        text = f"{human_duration(seconds)} ago"
    elif seconds <= -1:
        text = f"in {human_duration(-seconds)}"
    return _time(moment, form, text)


def _time(moment: datetime, form: str, text: str) -> SafeString:
    """Return a time element; ``console.js`` updates its text while the page is open."""
    return format_html(
        '<time datetime="{}" title="{} UTC" data-form="{}">{}</time>',
        f"{moment:%Y-%m-%dT%H:%M:%SZ}", f"{moment:%Y-%m-%d %H:%M:%S}", form, text,
    )  # fmt: skip


@register.filter
def exact(moment: datetime) -> str:
    """Return a time in full, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


@register.simple_tag(takes_context=True)
def time_query(context: template.Context, at: str) -> str:
    """Return the query parameters of this page at another moment; empty: now."""
    query = context["request"].GET.copy()
    for name in ("at", "start", "continue", "before"):
        query.pop(name, None)
    if at:
        query["at"] = at
    return str(query.urlencode())


@register.filter
def age(moment: datetime | str | None) -> SafeString | str:
    """Return the age of an object at the moment of the page, with the exact time on hover."""
    if isinstance(moment, str):
        moment = parse_time(moment)
    if moment is None:
        return NONE
    return _time(moment, "age", human_duration(max(0.0, _seconds_since(moment))))


@register.filter
def many(number: int) -> str:
    """Return a number of things with commas between thousands."""
    return f"{number:,}"


@register.filter
def percent(share: float) -> str:
    """Return a share as a whole percentage."""
    return f"{round(100 * share)} %"


@register.simple_tag
def bar(share: float, title: str = "") -> SafeString:
    """Return a bar filled by a share; its colour changes from 80 %, from 95 % and above 100 %."""
    kind = "over" if share > 1 else "full" if share >= 0.95 else "high" if share >= 0.8 else "fine"
    return _bar(share, title or percent(share), kind)


@register.simple_tag
def share_bar(part: int, whole: int) -> SafeString:
    """Return a bar for a part of a whole, in a neutral colour."""
    return _bar(part / whole if whole else 0.0, f"{part:,} of {whole:,}", "fine")


def _bar(share: float, title: str, kind: str) -> SafeString:
    return format_html(
        '<svg class="bar {}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="rail" width="100" height="8"/>'
        '<rect class="fill" width="{}" height="8"/></svg>',
        kind, title, f"{min(100.0, 100 * share):.1f}",
    )  # fmt: skip


register.filter("hindrances", hindrances)
register.filter("counted", counted)


@register.simple_tag
def nodes_bar(nodes: int, alone: int, every: int) -> SafeString:
    """Return a bar of the share of nodes with a reason; darker for nodes with that reason alone."""
    wide, dark = (100 * min(one / every, 1.0) if every else 0.0 for one in (nodes, alone))
    says = f"{nodes:,} of {every:,} nodes" + (f", only reason on {alone:,}" if alone else "")
    return format_html(
        '<svg class="bar nodes" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="rail" width="100" height="8"/><rect class="fill"'
        ' width="{}" height="8"/><rect class="alone" width="{}" height="8"/></svg>',
        says, f"{wide:.1f}", f"{dark:.1f}",
    )  # fmt: skip


@register.simple_tag
def outcomes_bar(fates: Sequence[OutcomeCount]) -> SafeString:
    """Return one bar for all pods that leave, with a segment for each outcome."""
    every = sum(one.pods for one in fates)
    begin, parts = 0.0, []
    for one in fates:
        wide = 100 * one.pods / max(every, 1)
        parts.append((one.kind, f"{begin:.2f}", f"{wide:.2f}", f"{one.pods:,} {one.text}"))
        begin += wide
    drawn = '<rect class="{}" x="{}" width="{}" height="8"><title>{}</title></rect>'
    says = ", ".join(f"{one.pods:,} {one.text}" for one in fates)
    return format_html(
        '<svg class="bar fates" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>',
        says, format_html_join("", drawn, parts),
    )  # fmt: skip


_SPAN_LEAST: Final = 60.0
_COLUMNS: Final = 120
_ROWS: Final = 12


@register.simple_tag
def countdown(timers: Sequence[tuple[Timer, str]]) -> SafeString:
    """Return a drawing of eviction timers: a square for each, from now to the last one.

    Squares move to the left as time goes by (``console.js``). Blocked evictions have another
    colour, and overdue ones stay at the left edge. At most ``_ROWS`` squares are drawn at one time;
    the text counts all.
    """
    now = clock.now()
    dues = [((one.due_at - now).total_seconds(), bool(one.blocked_by)) for one, _ in timers]
    span = max([_SPAN_LEAST, *(due for due, _ in dues)])
    held = sum(is_held for _, is_held in dues)
    heights: dict[int, int] = {}
    marks = []
    for due, is_held in dues:
        column = max(0, min(_COLUMNS - 1, int(due / span * _COLUMNS)))
        row = heights[column] = heights.get(column, 0) + 1
        if row <= _ROWS:
            kind = "held" if is_held else "due" if due <= 0 else "later"
            marks.append((kind, 5 * column, 5 * (_ROWS - row)))
    squares = format_html_join("", '<rect class="{}" x="{}" y="{}" width="4" height="4"/>', marks)
    many = f"{len(dues)} pod{'' if len(dues) == 1 else 's'}"
    text = f"{many} leave within {human_duration(span)}" + (f", {held} held back" * bool(held))
    return format_html(
        '<figure class="countdown"><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><line x1="0" x2="{}" y1="{}" y2="{}"/><g data-drawn="{}" data-span="{}"'
        ' data-width="{}">{}</g></svg><figcaption><span>now</span><span>in {}</span>'
        "<span>in {}</span></figcaption></figure>",
        5 * _COLUMNS, 5 * _ROWS + 1, text, 5 * _COLUMNS, 5 * _ROWS + 0.5, 5 * _ROWS + 0.5,
        f"{now:%Y-%m-%dT%H:%M:%S.%fZ}", f"{span:.1f}", 5 * _COLUMNS, squares,
        human_duration(span / 2), human_duration(span),
    )  # fmt: skip


def pod_status(pod: Manifest, now: datetime) -> str:
    """Return a pod's status as kubectl prints it, and also whether a running pod is unready."""
    status = str(tables.printer(KINDS["Pod"]).cells(pod, now)[2])
    ready = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    return f"{status}, unready" if status == "Running" and ready.get("Ready") == "False" else status


@register.filter
def landing(text: str | None) -> str:
    """Return the predicted node as text, from the JSON of an eviction's landing."""
    return landing_of(msgspec.json.decode(text)) if text else NONE


def landing_of(found: Manifest) -> str:
    """Return the node that an advisor predicts, or the scheduler's message."""
    message = str(found.get("message") or "")
    if message.startswith("0/"):
        message = f"nowhere: {message}"
    return str(found.get("nodeName") or message or found.get("status") or NONE)


@register.filter
def get(mapping: Any, key: str) -> Any:
    """Return a value of a mapping, None if the key is missing."""
    return None if mapping is None else mapping.get(key)


@register.filter
def taint(one: tuple[str, str, str]) -> str:
    """Return a taint as kubectl writes it."""
    key, value, effect = one
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"
