"""The preview of a change, and carrying it out: one component for every change of nodes and pods.

``GET`` shows what will happen; everything it needs stands in the address, so that a preview can be
sent to a colleague. ``POST`` carries it out if the outcome is still the one that was shown, and
otherwise shows the new one. A drain evicts as long as budgets allow and the request may last; what
is left is shown, and can be evicted from there when the budgets allow it.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from api import clock
from api.console import foretelling, frame, kept, language
from api.console.foretelling import DELETE, DELETE_POD, DRAIN, EDIT, EVICT, Foretold, Wanted
from clusterstate.actions import objects
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.objects.errors import BadRequest, StatusError
from clusterstate.objects.matching import EFFECTS
from clusterstate.objects.meta import Manifest
from clusterstate.queries.stays import stays_on

_SECONDS: Final = 8.0
_MOST_NODES: Final = 500
_TITLES: Final = {
    "cordon": "Cordon",
    "uncordon": "Uncordon",
    DRAIN: "Drain",
    DELETE: "Delete",
    EDIT: "Change",
    "taint": "Taint",
    EVICT: "Evict",
    DELETE_POD: "Delete",
}


class Done(msgspec.Struct, frozen=True):
    """What became of one object of a change; ``error`` is empty where it was done."""

    name: str
    error: str = ""


@frame.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show what a change will do, or carry it out."""
    if request.GET.get("q"):  # what a query finds must not be told by a refusal either
        frame.require(request, "list", "nodes")
    wanted = wanted_of(request.GET)
    _require(request, wanted)
    now = clock.now()
    told = foretelling.foretell(wanted, now=now)
    differs = False
    if request.method == "POST":
        if request.POST.get("seen") == told.digest:
            done = carry_out(request, told)
            if not any(one.error for one in done):
                return HttpResponseRedirect(_after(wanted))
            return _show(request, foretelling.foretell(wanted, now=clock.now()), done=done)
        differs = True
    return _show(request, told, differs=differs)


def wanted_of(query: QueryDict) -> Wanted:
    """Return the change that an address asks for.

    Raises:
        BadRequest: it asks for none, or for nonsense.
    """
    do = query.get("do", "")
    if do not in _TITLES:
        raise BadRequest(f"do: must be one of {', '.join(_TITLES)}")
    if do in (EVICT, DELETE_POD):
        pods = [tuple(one.split("/", 1)) for one in query.getlist("pod")]
        if not pods or any(len(one) != 2 for one in pods):
            raise BadRequest("pod: name pods as namespace/name")
        return Wanted(do=do, pods=tuple((one[0], one[1]) for one in pods))
    names = list(dict.fromkeys(query.getlist("node")))
    if text := query.get("q", ""):
        try:
            names += [one.name for one in language.matching(kept.nodes().items, text)]
        except language.QueryError as error:
            raise BadRequest(str(error)) from None
    if not names:
        raise BadRequest("node: name at least one")
    if len(names) > _MOST_NODES:
        raise BadRequest(f"at most {_MOST_NODES} nodes at a time; narrow the query")
    nodes = tuple(dict.fromkeys(names))
    if do == "cordon" or do == "uncordon":  # reads as what it asks
        return Wanted(do=EDIT, nodes=nodes, cordon=do == "cordon")
    if do == "taint":
        key, effect = query.get("key", "").strip(), query.get("effect", "")
        if not key or effect not in EFFECTS:
            raise BadRequest(f"a taint needs a key and one of {', '.join(EFFECTS)}")
        return Wanted(do=EDIT, nodes=nodes, taints={(key, effect): query.get("value", "").strip()})
    if do == EDIT:
        return _edit(nodes, query)
    return Wanted(do=do, nodes=nodes, force=query.get("force") == "on")


def _edit(nodes: tuple[str, ...], query: QueryDict) -> Wanted:
    """Return an edit from rows of labels and taints, and from those that the form showed.

    Only what the person changed is asked for: what others changed meanwhile stays.
    """
    had = dict(_rows(query, "had_label"))
    has = {key: value for key, value in _rows(query, "label") if key}
    had_taints = {(key, effect): value for key, value, effect in _triples(query, "had_taint")}
    taints = {(key, effect): value for key, value, effect in _triples(query, "taint") if key}
    cordon = query.get("cordoned")
    return Wanted(
        do=EDIT,
        nodes=nodes,
        cordon=None if cordon is None else cordon == "yes",
        labels={key: value for key, value in has.items() if had.get(key) != value},
        gone_labels=tuple(key for key in had if key not in has),
        taints={key: value for key, value in taints.items() if had_taints.get(key) != value},
        gone_taints=tuple(key for key in had_taints if key not in taints),
    )


def _rows(query: QueryDict, name: str) -> list[tuple[str, str]]:
    keys, values = query.getlist(f"{name}_key"), query.getlist(f"{name}_value")
    return [(key.strip(), value.strip()) for key, value in zip_longest(keys, values, fillvalue="")]


def _triples(query: QueryDict, name: str) -> list[tuple[str, str, str]]:
    effects = query.getlist(f"{name}_effect")
    rows = zip_longest(_rows(query, name), effects, fillvalue="")
    return [(row[0], row[1], effect) for row, effect in rows if row]


def _require(request: HttpRequest, wanted: Wanted) -> None:
    """Raise AccessDenied unless the person may do by the API what the change does."""
    if wanted.do == EVICT:
        for namespace, name in wanted.pods:
            frame.require(
                request, "create", "pods", subresource="eviction", namespace=namespace, name=name
            )
    elif wanted.do == DELETE_POD:
        for namespace, name in wanted.pods:
            frame.require(request, "delete", "pods", namespace=namespace, name=name)
    else:
        verb = "delete" if wanted.do == DELETE else "patch"
        for name in wanted.nodes:
            frame.require(request, verb, "nodes", name=name)
        frame.require(request, "list", "pods")
        if wanted.do == DRAIN:
            frame.require(request, "create", "pods", subresource="eviction")


def carry_out(request: HttpRequest, told: Foretold) -> list[Done]:
    """Do it, and return what became of each object."""
    wanted, user = told.wanted, frame.user_of(request)
    until = time.monotonic() + _SECONDS

    def edit(name: str) -> None:
        objects.update("Node", "", name, wanted.applied_to, now=clock.now(), user=user)

    def evict(key: str) -> None:
        if time.monotonic() > until:
            raise StatusError("not tried yet: the request has lasted long enough; go on below")
        namespace, name = key.split("/", 1)
        evict_pod(namespace, name, same[key], now=clock.now(), user=user)

    def delete(key: str) -> None:
        kind, namespace, name = "Node", "", key
        if wanted.pods:
            kind, (namespace, name) = "Pod", key.split("/", 1)
        objects.delete(kind, namespace, name, same.get(key), now=clock.now(), user=user)

    # Another pod may have taken a name since: it is none of those that were shown.
    same: dict[str, Manifest] = {
        f"{one.namespace}/{one.name}": {"preconditions": {"uid": one.uid}} for one in told.leavers
    }
    pods = list(same)
    if wanted.do == DRAIN:
        return [*_each(wanted.nodes, edit), *_each(pods, evict)]
    if wanted.do == EVICT:
        return _each(pods, evict)
    if wanted.do == DELETE_POD:
        return _each(pods, delete)
    return _each(wanted.nodes, delete if wanted.do == DELETE else edit)


def _each(names: Sequence[str], act: Callable[[str], None]) -> list[Done]:
    """Do something with each object, so that one refusal stops no other."""
    done = []
    for name in names:
        try:
            act(name)
        except StatusError as error:
            done.append(Done(name, error.message))
        else:
            done.append(Done(name))
    return done


def _after(wanted: Wanted) -> str:
    """Return where one goes when a change was carried out."""
    if wanted.do == DRAIN:
        query = urlencode([("node", name) for name in wanted.nodes])
        return f"{reverse('console:drained')}?{query}"
    if wanted.pods and len(wanted.pods) == 1:
        return reverse("console:pod", args=wanted.pods[0])
    if wanted.do == DELETE or len(wanted.nodes) != 1:
        return reverse("console:nodes")
    return reverse("console:node", args=wanted.nodes)


def _show(
    request: HttpRequest, told: Foretold, *, differs: bool = False, done: Sequence[Done] = ()
) -> HttpResponse:
    wanted = told.wanted
    what = ", ".join(wanted.nodes[:3] or [f"{one[0]}/{one[1]}" for one in wanted.pods[:3]])
    more = max(len(wanted.nodes), len(wanted.pods)) - 3
    if more > 0:
        what += f" and {more} more"
    title = f"{_TITLES[request.GET['do']]} {what}"
    context = {
        "told": told,
        "what": what,
        "button": _button(told, request.GET["do"]),
        "kubectl": kubectl(wanted),
        "differs": differs,
        "failed": [one for one in done if one.error],
        "done": len([one for one in done if not one.error]),
        "back": _back(wanted),
        "query": request.GET.urlencode(),
        "unmanaged": any("force" in one.stays for one in told.staying),
        "nothing": wanted.do == EDIT and not _changes_something(wanted),
    }
    status = 409 if differs else 200
    return frame.page(request, "change.html", title, context, status=status)


def _changes_something(wanted: Wanted) -> bool:
    parts = (wanted.labels, wanted.gone_labels, wanted.taints, wanted.gone_taints)
    return wanted.cordon is not None or any(parts)


def _button(told: Foretold, do: str) -> str:
    pods = f"{len(told.leavers)} pod{'' if len(told.leavers) == 1 else 's'}"
    if do == DRAIN:
        return f"Cordon and evict {pods}" if told.leavers else "Cordon"
    if do in (EVICT, DELETE_POD):
        return f"{_TITLES[do]} {pods}"
    many = len(told.wanted.nodes)
    nodes = "node" if many == 1 else f"{many} nodes"
    words = {"cordon": "Cordon", "uncordon": "Uncordon", "taint": "Taint", DELETE: "Delete"}
    verb = words.get(do, "Change")
    return f"{verb} {nodes}, {pods} will leave" if told.leavers else f"{verb} {nodes}"


def _back(wanted: Wanted) -> str:
    if len(wanted.nodes) == 1:
        return reverse("console:node", args=wanted.nodes)
    if len(wanted.pods) == 1:
        return reverse("console:pod", args=wanted.pods[0])
    return reverse("console:nodes")


def kubectl(wanted: Wanted) -> str:
    """Return the commands that do the same, or nearly so."""
    # Anybody may write an address with a preview: a shell must find words in it and nothing else.
    names = shlex.join(wanted.nodes)
    lines = []
    if wanted.do == DRAIN:
        force = " --force" if wanted.force else ""
        lines.append(f"kubectl drain {names} --ignore-daemonsets --delete-emptydir-data{force}")
    elif wanted.do == DELETE:
        lines.append(f"kubectl delete node {names}")
    elif wanted.do in (EVICT, DELETE_POD):
        lines += [shlex.join(["kubectl", "delete", "pod", "-n", *one]) for one in wanted.pods]
    if wanted.cordon is not None:
        lines.append(f"kubectl {'cordon' if wanted.cordon else 'uncordon'} {names}")
    if wanted.labels or wanted.gone_labels:
        parts = [f"{key}={value}" for key, value in wanted.labels.items()]
        parts += [f"{key}-" for key in wanted.gone_labels]
        lines.append(f"kubectl label --overwrite nodes {names} {shlex.join(parts)}")
    if wanted.taints or wanted.gone_taints:
        parts = [
            f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            for (key, effect), value in wanted.taints.items()
        ]
        parts += [f"{key}:{effect}-" if effect else f"{key}-" for key, effect in wanted.gone_taints]
        lines.append(f"kubectl taint --overwrite nodes {names} {shlex.join(parts)}")
    return "\n".join(lines)


@frame.shown
def drained(request: HttpRequest) -> HttpResponse:
    """Show how far a drain is: what is left on the nodes."""
    frame.require(request, "list", "nodes")
    frame.require(request, "list", "pods")
    names = tuple(request.GET.getlist("node"))[:_MOST_NODES]
    told = foretelling.foretell(Wanted(do=DRAIN, nodes=names), now=clock.now())
    known = {one.name: one for one in kept.nodes().items}
    context: dict[str, Any] = {
        "names": names,
        "nodes": [known[name] for name in names if name in known],
        "told": told,
        "left": len(stays_on(names)) if names else 0,
        "again": urlencode([("do", DRAIN), *(("node", name) for name in names)]),
        "undo": urlencode([("do", "uncordon"), *(("node", name) for name in names)]),
        "may_change": frame.may(request, "patch", "nodes"),
    }
    if frame.is_part(request):
        return frame.part(request, "drained_part.html", context)
    return frame.page(request, "drained.html", f"Draining {', '.join(names[:3])}", context)
