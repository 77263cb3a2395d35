"""Comparisons: the recent past beside what other configurations would have made of it, in pictures.

The answer is an advisor's, as that of ``POST comparisons`` is, and nothing is stored. The question
stands in the address, but for a configuration of one's own, which is posted.
"""

from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.safestring import SafeString, mark_safe

from api.access import outgoing
from api.console import frame, records
from api.kinds import own
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.errors import BadRequest, StatusError
from clusterstate.objects.meta import Manifest
from scheduling.answers import advisor

POLICIES: Final = (
    ("default", "what an empty configuration means"),
    ("least", "the emptiest node first"),
    ("most", "the fullest node first, CPU and memory"),
    ("packing", "as few nodes as can be, dear resources first"),
    ("fragmentation", "what is left fits typical pods"),
)
"""The names of policies that a comparison knows (``scheduling.scenarios.policies``), in words."""
WANTS: Final = (
    Attributes("create", own.GROUP, "comparisons"),
    Attributes("list", resource="nodes"),
    Attributes("list", resource="pods"),
)
_SHOWN: Final = 50


class Line(msgspec.Struct, frozen=True):
    """A figure, or a count, of each run; ``best`` says which runs do best."""

    name: str
    cells: list[tuple[str, bool]]


@frame.shown
def page(request: HttpRequest) -> HttpResponse:
    """Ask how the last hours would have been (``hours``, ``policy``, and posted ``text``)."""
    frame.require_all(request, WANTS)
    query: QueryDict = request.POST if request.method == "POST" else request.GET
    chosen, text = query.getlist("policy"), query.get("text", "").replace("\r\n", "\n")
    context: dict[str, Any] = {
        "policies": [(name, about, name in chosen) for name, about in POLICIES],
        "hours": query.get("hours", "1"),
        "text": text,
    }
    status = 200
    if chosen or text.strip():
        try:
            context |= shown(_ask(frame.user_of(request), query.get("hours", "1"), chosen, text))
        except StatusError as error:
            context["problems"], status = records.problems_of(error), error.code
    return frame.page(request, "comparisons.html", "Comparisons", context, status=status)


def _ask(user: User, hours: str, chosen: list[str], text: str) -> Manifest:
    try:
        wanted = float(hours)
    except ValueError:
        raise BadRequest("hours: must be a number") from None
    policies: list[Manifest] = [{"name": name} for name in chosen]
    if text.strip():
        policies.append({"name": "yours", "configuration": records.read_yaml(text)})
    spec = {"hours": wanted, "policies": policies, "pictures": True}
    outgoing.require_extenders(user, {"spec": spec})
    found: Manifest = advisor.ask("comparison", {"spec": spec})
    return found


def shown(comparison: Manifest) -> dict[str, Any]:
    """Return what ``_comparison.html`` shows of a comparison that was asked with pictures."""
    status = comparison["status"]
    runs = status["runs"]
    lines = [_line(one) for one in status["figures"] if any(one["values"])]
    for text, name in (
        ("on another node", "elsewhere"),
        ("that wait longer", "waitedLonger"),
        ("that wait less", "waitedLess"),
    ):
        cells = [("-", False), *((f"{count:,}", False) for count in status[name][1:])]
        lines.append(Line(f"pods {text} than {runs[0]['title']}", cells))
    return {
        "titles": [one["title"] for one in runs],
        "lines": lines,
        "legend": _drawn(status["legend"]),
        "pictures": [(one["title"], _drawn(one["svg"])) for one in status["pictures"]],
        "differing": [_pod(one) for one in status["pods"][:_SHOWN]],
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


def _line(figure: Manifest) -> Line:
    values = figure["values"]
    best = None
    if figure["better"] and len(set(values)) > 1:
        best = min(values) if figure["better"] == "less" else max(values)
    return Line(
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
    """Return a drawing of ours as it is: an advisor made it, with every name in it escaped."""
    return mark_safe(text)  # noqa: S308
