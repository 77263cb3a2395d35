"""The palette (Ctrl+K): pages, nodes, pods and label queries by what was typed."""

from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from api.console import frame, kept, language
from clusterstate.access import authorizer, people
from clusterstate.queries import finding

_MOST: Final = 8


class Item(msgspec.Struct, frozen=True):
    """Something found: its words, what it is, and where it leads."""

    text: str
    about: str
    to: str


@frame.shown
def find(request: HttpRequest) -> HttpResponse:
    """Return what the palette lists, as JSON."""
    text = request.GET.get("q", "").strip()[:200]
    items = [*_pages(request, text), *_nodes(request, text), *_pods(request, text)]
    return HttpResponse(msgspec.json.encode({"items": items}), content_type="application/json")


def _pages(request: HttpRequest, text: str) -> list[Item]:
    user = people.user_of(request.user)
    part = text.casefold()
    return [
        Item(place.title, f"page, g {place.key}", reverse(f"console:{place.view}"))
        for place in frame.PLACES
        if part in place.title.casefold() and authorizer.decide(user, place.wants).allowed
    ]


def _nodes(request: HttpRequest, text: str) -> list[Item]:
    if not text or not frame.may(request, "list", "nodes"):
        return []
    try:
        found = language.matching(kept.nodes().items, text)
    except language.QueryError:
        return []
    base = reverse("console:nodes")
    items = [Item(one.name, "node", f"{base}{quote(one.name)}/") for one in found[:_MOST]]
    if len(found) > 1:
        query = urlencode({"q": text})
        items.append(Item(f"{len(found):,} nodes: {text}", "list of nodes", f"{base}?{query}"))
    return items


def _pods(request: HttpRequest, text: str) -> list[Item]:
    if len(text) < 2 or not frame.may(request, "list", "pods"):
        return []
    namespace, slash, name = text.rpartition("/")
    found = finding.pods_like(name, namespace=namespace if slash else "", limit=_MOST)
    base = reverse("console:fleet") + "pods/"
    return [
        Item(f"{space}/{pod}", "pod", f"{base}{quote(space)}/{quote(pod)}/") for space, pod in found
    ]
