"""Which nodes to buy, and which to remove: a catalogue as YAML in; maps, moves and prices out.

An advisor answers, as for ``POST nodeadvice``, and nothing is stored. The question is in the URL. A
choice can be put into *What if* as a plan: the new nodes, and a drain of the removed ones.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from api.console.live import node_cache
from api.console.page import layout, yaml_input
from api.console.scheduler import comparisons
from api.forms import pages
from api.kinds import own
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME, with_pods
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.quantity import BINARY_SI, Quantity
from scheduling.answers import advisor

_TYPE: Final = "node.kubernetes.io/instance-type"
_MOST_SHAPES: Final = 8
_SHOWN: Final = 200
_MOST_DRAWN: Final = 1_000
_LONGEST_ADDRESS: Final = 6000
_WIDE, _HIGH, _EDGE = 720, 240, 40
_SIDE: Final = 14


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show the form and the advice: ``yours`` is the ``spec`` as ``packed`` returns it.

    A form posts it as ``text``. ``moves``: the highest number of pods that move.
    """
    layout.require_all(request, layout.ADVISING)
    text = request.POST.get("text", "").replace("\r\n", "\n").strip()
    if request.method == "POST":
        address = (
            f"{reverse('console:node-advice')}?{urlencode({'yours': comparisons.packed(text)})}"
        )
        if len(address) > _LONGEST_ADDRESS:
            return _page(
                request,
                text,
                wrong=BadRequest("too long for a page's address: shorten it, or use the API"),
            )
        return HttpResponseRedirect(address)
    moves = request.GET.get("moves", "")
    try:
        text = comparisons.unpacked(request.GET.get("yours", ""))
        question = _question(text, moves) if text else None
    except BadRequest as error:
        return _page(request, text, wrong=error)
    if question is None:
        return _page(request, pages.as_yaml(_begun()))
    if layout.is_part(request):
        if request.GET.get("progress"):
            return layout.progress_of(request, "node-advice", question)
        answer = advisor.ask("node-advice", question)["status"]
        return layout.part(request, "_node_advice.html", _shown(request, question, answer))
    return _page(request, text, asks=request.get_full_path())


def _page(
    request: HttpRequest, text: str, *, wrong: StatusError | None = None, asks: str = ""
) -> HttpResponse:
    problems = yaml_input.problems_of(wrong) if wrong else []
    context = {"text": text, "problems": problems, "asks": asks}
    code = wrong.code if wrong else 200
    return layout.page(request, "node_advice.html", "Node advice", context, status=code)


def _question(text: str, moves: str) -> Manifest:
    """Return the question in a form.

    Raises:
        BadRequest: the text is no object, or the moves are no number.
    """
    spec = yaml_input.read_yaml(text)
    if moves:
        if (most := natural(moves)) is None:
            raise BadRequest("moves: must be a whole number")
        spec = {**spec, "mostMoves": most}
    return {"spec": spec}


def _begun() -> Manifest:
    """Return a first question: the shapes of the existing nodes, priced by their CPU."""
    shapes: Counter[tuple[str, int, int]] = Counter()
    for node in node_cache.nodes().items:
        offered = node.offered
        cpu, memory = offered.get("cpu", 0), offered.get("memory", 0)
        shapes[node.labels.get(_TYPE, ""), cpu, memory] += 1
    catalogue: list[Manifest] = []
    prices: list[Manifest] = []
    for number, ((kind, cpu, memory), _) in enumerate(shapes.most_common(_MOST_SHAPES), 1):
        capacity = {
            "cpu": str(Quantity.parse(f"{cpu}m")),
            "memory": str(Quantity(memory, scale=0, format=BINARY_SI)),
        }
        labels = {"metadata": {"labels": {_TYPE: kind}}} if kind else {}
        price = round(cpu / 1000, 3)
        # New nodes are called by it, and types such as Standard_D4s_v3 name no node.
        name = re.sub(r"[^a-z0-9.-]", "-", kind.lower()) or f"shape-{number}"
        entry = {"name": name, "price": price, "node": {**labels, "status": {"capacity": capacity}}}
        if not any(one["name"] == name for one in catalogue):
            catalogue.append(entry)
            prices.append({"selector": f"{_TYPE}={kind}" if kind else f"!{_TYPE}", "price": price})
    return {"catalogue": catalogue, "prices": prices, "movePrice": 0.01}


def _shown(request: HttpRequest, question: Manifest, status: Manifest) -> dict[str, Any]:
    """Return the context of ``_node_advice.html`` for an answer."""
    yours = request.GET.get("yours", "")
    drawn = status.get("map", [])[:_MOST_DRAWN]
    frontier = status.get("frontier", [])
    addresses = [
        f"?{urlencode({'yours': yours, 'moves': one['moves']})}" if _wins(one, frontier) else ""
        for one in frontier
    ]
    return {
        "status": status,
        "removed": status.get("remove", [])[:_SHOWN],
        "moves": status.get("moves", [])[:_SHOWN],
        "places": status["places"][:_SHOWN],
        "most": _SHOWN,
        "drawn": len(drawn),
        "frontier": list(zip(frontier, addresses, strict=True)),
        "picture": _curve(frontier, status["bound"].get("atLeast")) if len(frontier) > 1 else "",
        "maps": [
            (title, _map(title, [(one["node"], one[when]) for one in drawn]))
            for title, when in (("Today", "today"), ("After", "after"))
            if drawn
        ],
        "plan": pages.as_yaml(plan) if (plan := _plan(question, status)) else "",
    }


def _wins(one: Manifest, frontier: Sequence[Manifest]) -> bool:
    """Return whether a choice has the lowest cost of all that move at most as many pods."""
    sums = [
        other["after"] + other["movesCost"] for other in frontier if other["moves"] <= one["moves"]
    ]
    return bool(one["after"] + one["movesCost"] <= min(sums))


def _plan(question: Manifest, status: Manifest) -> Manifest | None:
    """Return the plan that adds the new nodes and drains the removed ones, ``None`` for neither."""
    entries = {one["name"]: one["node"] for one in question["spec"]["catalogue"]}
    changes: list[Manifest] = []
    objects = []
    for name, shape in status["newNodes"].items():
        node = with_pods(entries[shape])
        metadata = node.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), HOSTNAME: name}
        objects.append(
            {**node, "kind": "Node", "metadata": {**metadata, "name": name, "labels": labels}}
        )
    if objects:
        changes.append({"add": {"objects": objects}})
    if removed := status.get("remove"):
        changes.append({"drain": {"nodes": removed}})
    if not changes:
        return None
    return {"apiVersion": own.API_VERSION, "kind": "Plan", "spec": {"changes": changes}}


def _curve(frontier: Sequence[Manifest], least: float | None) -> SafeString:
    """Return the price of all nodes over the number of moves, as SVG, with the lower bound."""
    right = max(1, *(one["moves"] for one in frontier))
    top = max(one["after"] for one in frontier) or 1.0

    def across(moves: float) -> str:
        return f"{_EDGE + (_WIDE - 2 * _EDGE) * moves / right:.1f}"

    def down(price: float) -> str:
        return f"{_HIGH - _EDGE - (_HIGH - 2 * _EDGE) * price / top:.1f}"

    first = frontier[0]["after"]
    path = f"M{across(0)} {down(first)}"
    path += "".join(f"H{across(one['moves'])}V{down(one['after'])}" for one in frontier)
    path += f"H{across(right)}"
    dots = format_html_join(
        "",
        '<circle cx="{}" cy="{}" r="{}" fill="#1f5fbf"><title>{} for {} moves</title></circle>',
        (
            (
                across(one["moves"]),
                down(one["after"]),
                6 if one["chosen"] else 3,
                f"{one['after']:g}",
                one["moves"],
            )
            for one in frontier
        ),
    )
    bound: SafeString | str = ""
    if least is not None:
        bound = format_html(
            '<line x1="{}" x2="{}" y1="{}" y2="{}" class="grid" stroke-dasharray="4 3"/>'
            '<text x="{}" y="{}" text-anchor="end">no choice of nodes costs less than {}</text>',
            across(0), across(right), down(least), down(least), across(right),
            f"{float(down(least)) + 13:.1f}", f"{least:g}",
        )  # fmt: skip
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="Price of all nodes by moves of pods">'
        '<line x1="{}" x2="{}" y1="{}" y2="{}" class="grid"/>{}'
        '<path d="{}" fill="none" stroke="#1f5fbf" stroke-width="1.8"/>{}'
        '<text x="{}" y="{}">{}</text><text x="{}" y="{}">0 pods move</text>'
        '<text x="{}" y="{}" text-anchor="end">{} pods move</text></svg>',
        _WIDE, _HIGH, across(0), across(right), down(0), down(0), bound, path, dots,
        across(0), f"{float(down(first)) - 10:.1f}", f"price {first:g}",
        across(0), _HIGH - 12, across(right), _HIGH - 12, right,
    )  # fmt: skip


def _map(title: str, nodes: Iterable[tuple[str, float | None]]) -> SafeString:
    """Return a square for each node, darker for fuller ones; an outline for a missing one."""
    across = _WIDE // _SIDE
    cells = []
    for at, (name, share) in enumerate(nodes):
        says = f"{name}: not there" if share is None else f"{name}: {100 * share:.0f} % full"
        opacity = "0" if share is None else f"{0.1 + 0.9 * min(share, 1.0):.2f}"
        cells.append((at % across * _SIDE, at // across * _SIDE, opacity, says))
    high = (len(cells) + across - 1) // across * _SIDE
    there = sum(opacity != "0" for _, _, opacity, _ in cells)
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}: {} nodes">{}</svg>',
        _WIDE, max(high, _SIDE), title, there,
        format_html_join(
            "",
            '<rect x="{}" y="{}" width="12" height="12" rx="2" fill="#1f5fbf" fill-opacity="{}"'
            ' stroke="#7a8699" stroke-width="0.6"><title>{}</title></rect>',
            cells,
        ),
    )  # fmt: skip
