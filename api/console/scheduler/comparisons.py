"""Comparisons: replays of the recent past with other configurations, as figures and pictures.

An advisor answers, as for ``POST comparisons``, and nothing is stored. The question is in the URL,
so that it can be sent to a colleague: the end of the replayed time, its hours, the policies, and a
person's own configuration, packed. The page opens at once and requests its answer as a part; until
that is ready, it shows the advisor's progress.
"""

import base64
import binascii
import zlib
from collections.abc import Callable
from datetime import UTC
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from api import clock
from api.access import outgoing
from api.console.page import layout, yaml_input
from api.kinds import own
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.answers import advisor

POLICIES: Final = (
    ("default", "the scheduler's defaults"),
    ("least", "the emptiest node first"),
    ("most", "the fullest node first, CPU and memory"),
    ("packing", "as few nodes as possible, expensive resources first"),
    ("fragmentation", "leave free resources that typical pods can use"),
)
"""Names and labels of a comparison's policies (``scheduling.scenarios.policies``)."""
WANTS: Final = (
    Attributes("create", own.GROUP, "comparisons"),
    Attributes("list", resource="nodes"),
    Attributes("list", resource="pods"),
)
_SHOWN: Final = 50
_HOURS: Final = "1"
_LONGEST_ADDRESS: Final = 6000
"""A question with a longer URL is answered, but its page has no URL to send."""
_LONGEST_TEXT: Final = 256 << 10
"""At most so many bytes are unpacked from a URL."""


class ComparisonFigure(msgspec.Struct, frozen=True):
    """A figure, or a count, of each run; ``best`` says which runs have the best value."""

    name: str
    cells: list[tuple[str, bool]]


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show how the last hours would have been.

    ``hours`` up to ``until``, ``policy`` (several), ``yours``: a configuration as ``packed``
    returns it. A form posts it as ``text``.
    """
    layout.require_all(request, WANTS)
    if request.method == "POST":
        return _posted(request)
    chosen, text = request.GET.getlist("policy"), unpacked(request.GET.get("yours", ""))
    hours, until = request.GET.get("hours", _HOURS), request.GET.get("until", "")
    if not (chosen or text):
        return _page(request, hours, chosen, text)
    try:
        question = _question(hours, until, chosen, text)
        if _names_extenders(question):
            # A link from a stranger must not make the advisor send requests to the stranger's URLs.
            raise BadRequest("yours: no link may hold a configuration with extenders; use the form")
    except BadRequest as error:
        problems = {"problems": yaml_input.problems_of(error)}
        return _page(request, hours, chosen, text, problems, status=error.code)
    if not until:
        return HttpResponseRedirect(_address(hours, chosen, text))
    if not layout.is_part(request):
        return _page(request, hours, chosen, text, {"asks": request.get_full_path()})
    return part(request, question, lambda: _ask_advisor(request, question))


def part(request: HttpRequest, question: Manifest, answer: Callable[[], Manifest]) -> HttpResponse:
    """Return the answer to a question as a part of a page; ``progress``: the advisor's progress.

    ``_asking.html`` requests both.
    """
    if request.GET.get("progress"):
        return layout.progress_of(request, "comparison", question)
    return layout.part(request, "_comparison.html", shown(answer()))


def _posted(request: HttpRequest) -> HttpResponse:
    """Redirect to the URL of a posted question; answer at once if that is too long."""
    query: QueryDict = request.POST
    chosen, text = query.getlist("policy"), query.get("text", "").replace("\r\n", "\n").strip()
    hours = query.get("hours", _HOURS)
    try:
        until = format_time(clock.now().astimezone(UTC))
        question = _question(hours, until, chosen, text)
        address = _address(hours, chosen, text)
        is_short = len(address) <= _LONGEST_ADDRESS and len(text.encode()) < _LONGEST_TEXT
        if is_short and not _names_extenders(question):
            return HttpResponseRedirect(address)
        found = shown(_ask_advisor(request, question, seconds=layout.FORM_SECONDS))
    except StatusError as error:
        problems = {"problems": yaml_input.problems_of(error)}
        return _page(request, hours, chosen, text, problems, status=error.code)
    return _page(request, hours, chosen, text, found)


def _ask_advisor(
    request: HttpRequest, question: Manifest, seconds: float | None = None
) -> Manifest:
    outgoing.require_extenders(layout.user_of(request), question)
    found: Manifest = advisor.ask("comparison", question, deadline=seconds)
    return found


def _names_extenders(question: Manifest) -> bool:
    policies = question["spec"]["policies"]
    return any((one.get("configuration") or {}).get("extenders") for one in policies)


def _page(
    request: HttpRequest,
    hours: str,
    chosen: list[str],
    text: str,
    more: dict[str, Any] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        "policies": [(name, about, name in chosen) for name, about in POLICIES],
        "hours": hours,
        "text": text,
        **(more or {}),
    }
    return layout.page(request, "comparisons.html", "Comparisons", context, status=status)


def _address(hours: str, chosen: list[str], text: str) -> str:
    """Return the URL of a question about the hours up to now."""
    query = [("hours", hours), ("until", format_time(clock.now().astimezone(UTC)))]
    query += [("policy", one) for one in chosen]
    if text:
        query.append(("yours", packed(text)))
    return f"{reverse('console:comparisons')}?{urlencode(query)}"


def packed(text: str) -> str:
    """Return a text for a URL: compressed, in base64 without padding."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(text: str) -> str:
    """Return the text that ``packed`` took.

    Raises:
        BadRequest: ``packed`` did not make the text, or its content is over 256 KiB.
    """
    if not text:
        return ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        found = reader.decompress(raw, _LONGEST_TEXT)
        if not reader.eof:
            raise BadRequest("yours: the configuration in this address is cut off or too long")
        return found.decode()
    except (ValueError, binascii.Error, zlib.error):
        raise BadRequest(
            "yours: the configuration in this address was not written by this page"
        ) from None


def _question(hours: str, until: str, chosen: list[str], text: str) -> Manifest:
    """Return the ``Comparison`` document that a filled-in form describes.

    Raises:
        BadRequest: the hours are no number, or the text is no object.
    """
    try:
        number = float(hours)
    except ValueError:
        raise BadRequest("hours: must be a number") from None
    policies: list[Manifest] = [{"name": name} for name in chosen]
    if text:
        policies.append({"name": "yours", "configuration": yaml_input.read_yaml(text)})
    return {"spec": {"hours": number, "until": until, "policies": policies, "pictures": True}}


def shown(comparison: Manifest) -> dict[str, Any]:
    """Return the context of ``_comparison.html`` for a comparison, which has ``pictures``."""
    status = comparison["status"]
    runs = status["runs"]
    lines = [_line(one) for one in status["figures"] if any(one["values"])]
    for text, name in (
        ("on another node", "elsewhere"),
        ("that wait longer", "waitedLonger"),
        ("that wait less", "waitedLess"),
    ):
        cells = [("-", False), *((f"{count:,}", False) for count in status[name][1:])]
        lines.append(ComparisonFigure(f"pods {text} than {runs[0]['title']}", cells))
    return {
        "titles": [one["title"] for one in runs],
        "lines": lines,
        "legend": _drawn(status["legend"]),
        "pictures": [(one["title"], _drawn(one["svg"])) for one in status["pictures"]],
        "differing": [_pod(one) for one in status["pods"][:_SHOWN]],
        "nodes": [(one["node"], one["given"]) for one in status["nodes"][:_SHOWN]],
        "warned": [(one["title"], text) for one in runs for text in one.get("warnings") or ()],
        "failing": [
            (one["title"], plugin)
            for one in runs
            for plugin in one.get("plugins") or ()
            if plugin["failures"]
        ],
        "since": status["since"],
        "until": status["until"],
    }


def _line(figure: Manifest) -> ComparisonFigure:
    values = figure["values"]
    best = None
    if figure["better"] and len(set(values)) > 1:
        best = min(values) if figure["better"] == "less" else max(values)
    return ComparisonFigure(
        figure["name"], [(_written(figure["form"], value), value == best) for value in values]
    )


def _written(form: str, value: float) -> str:
    if form == "share":
        return f"{100 * value:.1f} %"
    if form == "seconds":
        return f"{value:,.1f} s"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _pod(one: Manifest) -> dict[str, Any]:
    waited = ["" if each is None else f"after {each:,.1f} s, " for each in one["waited"]]
    nodes = [each or "-" for each in one["nodes"]]
    runs = list(zip(nodes, waited, one["ends"], strict=True))
    return {"pod": one["pod"], "runs": runs}


def _drawn(text: str) -> SafeString:
    """Return an advisor's SVG as safe HTML; the advisor has escaped every name in it."""
    return mark_safe(text)  # noqa: S308
