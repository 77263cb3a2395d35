"""The palette (Ctrl+K): search for pages, kinds, nodes, pods, label queries and actions.

An action (``drain node-1``) links to its preview; the palette itself changes nothing.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from api.console.fleet import devices
from api.console.live import node_cache
from api.console.page import language, layout
from api.console.scheduler import comparisons
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.objects import finding

_MOST: Final = 8
_MOST_SPACES: Final = 10
"""At most so many namespaces are searched for a person who may not list all."""
_MOST_ACTED_ON: Final = 5
_MOST_TOGETHER: Final = 50
"""A URL names at most so many nodes; more are chosen on the page Nodes."""
_OF_NODES: Final = ("cordon", "uncordon", "drain", "delete")
_OF_PODS: Final = {"evict": "evict", "delete": "delete-pod"}
"""Actions by their first word, with the parameters of their preview."""
_MORE: Final = (
    layout.NavigationEntry("New pod", "submit", "", Attributes("create", resource="pods")),
    layout.NavigationEntry("New object", "create", "", Attributes("list", resource="pods")),
    layout.NavigationEntry("Changes by time", "changes", "", Attributes("list", resource="pods")),
    layout.NavigationEntry("Devices", "devices", "", devices.WANTS),
    layout.NavigationEntry("Saved plans", "plans", "", Attributes("list", "stowage.dev", "plans")),
    layout.NavigationEntry(
        "Who can", "who-can", "",
        Attributes("list", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ),
    layout.NavigationEntry(
        "Configuration revisions", "revisions", "",
        Attributes("get", "stowage.dev", "schedulerconfiguration"),
    ),
    layout.NavigationEntry(
        "Effective plugins", "plugins", "",
        Attributes("get", "stowage.dev", "schedulerconfiguration"),
    ),
    layout.NavigationEntry(
        "Node advice", "node-advice", "", layout.ADVISING[0], besides=layout.ADVISING[1:]
    ),
    layout.NavigationEntry(
        "Comparisons", "comparisons", "", comparisons.WANTS[0], besides=comparisons.WANTS[1:]
    ),
    layout.NavigationEntry(
        "Canaries", "canaries", "", Attributes("list", "stowage.dev", "canaries")
    ),
)  # fmt: skip
"""Pages that are not in the navigation."""


class Item(msgspec.Struct, frozen=True):
    """A search result: its text, its kind, and its URL."""

    text: str
    about: str
    to: str


@layout.shown
def find(request: HttpRequest) -> HttpResponse:
    """Return the search results, as JSON."""
    text = request.GET.get("q", "").strip()[:200]
    acts = _actions(request, text)
    items = [*acts, *_pages(request, text), *_nodes(request, text), *_pods(request, text)]
    items += _kinds(request, text)
    return HttpResponse(msgspec.json.encode({"items": items}), content_type="application/json")


def _actions(request: HttpRequest, text: str) -> list[Item]:
    """Return actions that begin with the first word, on nodes or pods that further words name."""
    verb, _, rest = text.partition(" ")
    verb, rest = verb.casefold(), rest.strip()
    if not rest:
        return []
    base = reverse("console:change")
    found = []
    sees_nodes = layout.may(request, "list", "nodes")
    if verb in _OF_NODES and sees_nodes and layout.may(request, *_right(verb)):
        named = _named(rest)
        if 1 < len(named) <= _MOST_TOGETHER:
            query = urlencode([("do", verb), *(("node", one.name) for one in named)])
            text = f"{verb} {len(named)} nodes: {rest}"
            found.append(Item(text, "nodes, by preview", f"{base}?{query}"))
        for one in named[:_MOST_ACTED_ON]:
            query = urlencode({"do": verb, "node": one.name})
            found.append(Item(f"{verb} {one.name}", "node, by preview", f"{base}?{query}"))
    if verb in _OF_PODS:
        for space, pod in _pods_like(request, rest)[:_MOST_ACTED_ON]:
            if not _may_go(request, verb, space, pod):
                continue
            query = urlencode({"do": _OF_PODS[verb], "pod": f"{space}/{pod}"})
            found.append(Item(f"{verb} {space}/{pod}", "pod, by preview", f"{base}?{query}"))
    return found


def _may_go(request: HttpRequest, verb: str, namespace: str, name: str) -> bool:
    about = {"namespace": namespace, "name": name}
    if verb == "delete":
        return layout.may(request, "delete", "pods", **about)
    return layout.may(request, "create", "pods", subresource="eviction", **about)


def _right(verb: str) -> tuple[str, str]:
    return ("delete" if verb == "delete" else "patch"), "nodes"


def _pages(request: HttpRequest, text: str) -> list[Item]:
    part = text.casefold()
    visible = {place.view for place in layout.places(request)}
    visible |= {place.view for place in _MORE if layout.leads_to(request, place)}
    return [
        Item(
            place.title,
            f"page, g {place.key}" if place.key else "page",
            reverse(f"console:{place.view}"),
        )
        for place in (*layout.PLACES, *(_MORE if part else ()))
        if part in place.title.casefold() and place.view in visible
    ]


def _kinds(request: HttpRequest, text: str) -> list[Item]:
    part = text.casefold()
    kinds = [one for one in ALL_KINDS if part and part in one.name.casefold()]
    may = [one for one in kinds if layout.sees(request, Attributes("list", one.group, one.plural))]
    return [
        Item(one.name, "kind", reverse("console:objects", args=(one.name,))) for one in may[:_MOST]
    ]


def _nodes(request: HttpRequest, text: str) -> list[Item]:
    if not text or not layout.may(request, "list", "nodes"):
        return []
    found = _named(text)
    base = reverse("console:nodes")
    items = [Item(one.name, "node", f"{base}{quote(one.name)}/") for one in found[:_MOST]]
    if len(found) > 1:
        query = urlencode({"q": text})
        items.append(Item(f"{len(found):,} nodes: {text}", "list of nodes", f"{base}?{query}"))
    return items


def _pods(request: HttpRequest, text: str) -> list[Item]:
    if len(text) < 2 or " " in text:
        return []
    base = reverse("console:fleet") + "pods/"
    about, found = "pod", _pods_like(request, text)
    if not found:
        about, found = "deleted pod", _search_pods(request, text, finding.deleted_pods)
    return [
        Item(f"{space}/{pod}", about, f"{base}{quote(space)}/{quote(pod)}/") for space, pod in found
    ]


def _named(text: str) -> list[FleetNode]:
    """Return the nodes that match a query, none if the query is invalid."""
    try:
        return language.matching(node_cache.nodes().items, text)
    except language.QueryError:
        return []


def _pods_like(request: HttpRequest, text: str) -> list[tuple[str, str]]:
    """Return (namespace, name) of pods that the person may see with the text in their names."""
    return _search_pods(request, text, finding.pods_like)


def _search_pods(
    request: HttpRequest, text: str, search: Callable[..., list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """Return pods by ``NAME`` or ``NAMESPACE/NAME``, found by ``search`` in allowed namespaces.

    Queries once for each namespace.
    """
    namespace, slash, name = text.rpartition("/")
    spaces = [namespace if slash else ""]
    if not layout.may(request, "list", "pods", namespace=spaces[0]):
        mine = layout.namespaces(request, Attributes("list", resource="pods"))
        spaces = [] if slash else mine[:_MOST_SPACES]
    found = [one for space in spaces for one in search(name, namespace=space, limit=_MOST)]
    return found[:_MOST]
