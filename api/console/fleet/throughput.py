"""Latency and throughput of the last hour, drawn on the server as pictures of a few shapes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import log10
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api import clock
from api.console.page import layout
from clusterstate.queries.pods.pace import MINUTES, Minute, last_hour

WIDTH, HEIGHT = 360, 64
_STEP: Final = WIDTH / MINUTES
_LOW, _HIGH = -2.0, 3.0
"""The scale of waits: powers of ten, in seconds."""
_MINUTE: Final = timedelta(minutes=1)


class Shape(msgspec.Struct, frozen=True):
    """A minute in a picture: a rectangle, and its text on hover."""

    x: float
    y: float
    height: float
    says: str


@layout.shown
@layout.alike(lasts=10.0)
def part(request: HttpRequest) -> HttpResponse:
    """Return the pictures of throughput and latency, and their figures as a table."""
    layout.require(request, "list", "pods")
    now = clock.now()
    minutes = last_hour(now)
    context: dict[str, Any] = {
        "minutes": minutes,
        "bound": sum(one.pods for one in minutes),
        "most": max((one.pods for one in minutes), default=0),
        "throughput": throughput(minutes, now),
        "waits": waits(minutes, now),
        "grid": [(seconds, _level(seconds)) for seconds in (0.1, 1, 10, 100)],
        "width": WIDTH,
        "height": HEIGHT,
        "thick": round(_STEP - 1, 2),
    }
    return layout.part(request, "pace.html", context)


def throughput(minutes: Sequence[Minute], now: datetime) -> list[Shape]:
    """Return a bar for each minute; its height is the number of pods."""
    most = max((one.pods for one in minutes), default=1)
    found = []
    for one in minutes:
        height = max(1.5, HEIGHT * one.pods / most)
        says = f"{one.begin:%H:%M}: {one.pods:,} pods"
        found.append(Shape(_x(one, now), _short(HEIGHT - height), _short(height), says))
    return found


def waits(minutes: Sequence[Minute], now: datetime) -> list[Shape]:
    """Return a bar for each minute, from the median to the 95th percentile."""
    found = []
    for one in minutes:
        top, bottom = _level(one.p95), _level(one.median)
        says = f"{one.begin:%H:%M}: half within {seconds(one.median)}, 95 % {seconds(one.p95)}"
        found.append(Shape(_x(one, now), top, _short(max(2.0, bottom - top)), says))
    return found


def seconds(value: float) -> str:
    """Return a wait as text: ``38 ms``, ``1.4 s``, ``12 min``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def _x(one: Minute, now: datetime) -> float:
    return _short(WIDTH - _STEP * ((now - one.begin) / _MINUTE))


def _level(value: float) -> float:
    """Return the y coordinate of a wait, from the top; waits beyond the scale lie at its end."""
    power = min(max(log10(value) if value > 0 else _LOW, _LOW), _HIGH)
    return _short(HEIGHT * (_HIGH - power) / (_HIGH - _LOW))


def _short(value: float) -> float:
    return round(value, 1)
