"""Draws curves as SVG, without a library, a script or external resources."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from scheduling.scenarios import durations

COLOURS: Final = ("#1f5fbf", "#d1571b", "#1d8a4e", "#8e3fb0", "#a67c00", "#c2185b")
_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3", "1 3", "10 4")

Points = Sequence[tuple[float, float]]


def lines(
    title: str,
    curves: Sequence[tuple[str, Points]],
    *,
    form: Callable[[float], str],
    step: bool = True,
    across: Callable[[float], str] = durations.show,
    logarithmic: bool = False,
) -> str:
    """Return curves over time with their legend, as one SVG element.

    Args:
        title: the chart's title, also for screen readers.
        curves: names and points (x, y), x ascending and y not negative.
        form: returns a y as text.
        step: a value holds until the next point, else points are joined.
        across: returns an x as text.
        logarithmic: whether the x axis is logarithmic.
    """
    xs = [x for _, points in curves for x, _ in points]
    ys = [y for _, points in curves for _, y in points]
    lowest, highest = (min(xs, default=0.0), max(xs, default=1.0))
    if logarithmic:
        lowest = max(lowest, 1.0)
    top = _round_up(max(ys, default=1.0))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place_x(x: float) -> float:
        if logarithmic:
            span = math.log(max(highest / lowest, 1.001))
            return _LEFT + wide * math.log(max(x, lowest) / lowest) / span
        return _LEFT + wide * (x - lowest) / ((highest - lowest) or 1.0)

    def place_y(y: float) -> float:
        return _TOP + high * (1 - y / top)

    parts = [
        (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"'
            ' xmlns="http://www.w3.org/2000/svg">'
        )
    ]
    for tick in range(5):
        y = top * tick / 4
        at = place_y(y)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(form(y))}</text>'
        )
    for tick in range(5):
        part = tick / 4
        x = (
            lowest * (highest / lowest) ** part
            if logarithmic
            else lowest + (highest - lowest) * part
        )
        anchor = "start" if not tick else "end" if tick == 4 else "middle"
        parts.append(
            f'<text x="{place_x(x):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
            f"{escape(across(x))}</text>"
        )
    for number, (name, points) in enumerate(curves):
        path = _path(points, place_x, place_y, step=step)
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number % len(_DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}>'
            f"<title>{escape(name)}</title></path>"
        )
    parts.append("</svg>")
    return "".join(parts)


def legend(names: Sequence[str]) -> str:
    """Return the legend of the curves' names, with their colours and dashes, as HTML."""
    entries = []
    for number, name in enumerate(names):
        colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number % len(_DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        entries.append(
            f'<span><svg viewBox="0 0 34 10" width="34" height="10" aria-hidden="true">'
            f'<line x1="0" x2="34" y1="5" y2="5" stroke="{colour}" stroke-width="2.5"{dashed}/>'
            f"</svg> {escape(name)}</span>"
        )
    return f'<p class="legend">{"".join(entries)}</p>'


def _path(
    points: Points,
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
    *,
    step: bool,
) -> str:
    found = ""
    before = 0.0
    for number, (x, y) in enumerate(points):
        if not number:
            found = f"M{place_x(x):.1f} {place_y(y):.1f}"
        elif step and y != before:
            found += f"H{place_x(x):.1f}V{place_y(y):.1f}"
        elif step:
            if number == len(points) - 1:
                found += f"H{place_x(x):.1f}"
        else:
            found += f"L{place_x(x):.1f} {place_y(y):.1f}"
        before = y
    return found


def _round_up(value: float) -> float:
    """Return a number not below ``value`` whose quarters are easy to read; 1 for 0."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10):
        if factor * size >= value * 0.999999:
            return factor * size
    return 10 * size
