"""Small pieces of HTML for several screens: labels, bars, chips, documents."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
import yaml
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

EMPTY = "—"
_MAX_CHIPS = 4


def badge(text: str, kind: str = "") -> SafeString:
    """Return a coloured label; ``kind`` is success, info, warning, danger or empty."""
    return SafeString(render_to_string("unfold/helpers/label.html", {"text": text, "type": kind}))


def badges(pairs: Iterable[tuple[str, str]]) -> SafeString:
    """Return labels side by side."""
    return format_html_join(" ", "{}", [(badge(text, kind),) for text, kind in pairs])


def chips(texts: Iterable[str], *, limit: int = _MAX_CHIPS, width: int = 14) -> SafeString | str:
    """Return short texts one under another, and the number of those beyond ``limit``.

    Texts wider than ``width`` (in rem) are cut; a tooltip shows the whole text.
    """
    every = list(texts)
    if not every:
        return EMPTY
    rest = len(every) - limit
    shown = format_html_join(
        "",
        '<div class="truncate" style="max-width: {}rem" title="{}">{}</div>',
        [(width, text, text.removeprefix("node.kubernetes.io/")) for text in every[:limit]],
    )
    if rest <= 0:
        return shown
    return shown + format_html('<div title="{}">and {} more</div>', "\n".join(every[limit:]), rest)


def bar(used: float, offered: float, text: str) -> SafeString:
    """Return a text over a bar that shows ``used`` of ``offered``; red if ``used`` is more."""
    share = min(100, round(100 * used / offered)) if offered > 0 else (100 if used > 0 else 0)
    colour = "bg-red-500" if used > offered else "bg-primary-600 dark:bg-primary-500"
    return format_html(
        '<div class="whitespace-nowrap" title="{share} %">{text}'
        '<div class="bg-base-100 overflow-hidden rounded-default dark:bg-base-800"'
        ' style="width: 5.5rem"><div class="{colour}"'
        ' style="width: {share}%; height: 4px"></div></div></div>',
        share=share, text=text, colour=colour,
    )  # fmt: skip


def link(target: str, text: str) -> SafeString:
    """Return a link."""
    return format_html(
        '<a class="text-primary-600 underline dark:text-primary-400" href="{}">{}</a>', target, text
    )


def node_link(node_id: int | None, name: str) -> SafeString | str:
    """Return a link to a node's screen, or the bare name if there is no such node."""
    if not name:
        return EMPTY
    if node_id is None:
        return name
    return link(reverse("admin:clusterstate_node_change", args=(node_id,)), name)


def document(found: bytes | None) -> SafeString | str:
    """Return an object's JSON as YAML in a box."""
    if found is None:
        return EMPTY
    manifest = msgspec.json.decode(found)
    return format_html(
        '<pre tabindex="0" class="bg-base-50 border border-base-200 overflow-auto p-3'
        ' rounded-default text-xs dark:bg-base-800 dark:border-base-700"'
        ' style="max-height: 40rem">{}</pre>',
        yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True),
    )


def moment(at: datetime) -> str:
    """Return a time in UTC, as ``DATETIME_FORMAT`` writes it."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def cpu(milli: int) -> str:
    """Return millicores as cores: ``1.5``, ``21,682.8``."""
    return f"{milli / 1000:,.2f}".rstrip("0").rstrip(".")


def memory(number: int) -> str:
    """Return bytes in the largest binary unit that leaves at least one: ``1.5 GiB``."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.1f}".rstrip("0").rstrip(".") + f" {unit}"
        value /= 1024
    return f"{value:.1f}".rstrip("0").rstrip(".") + " TiB"
