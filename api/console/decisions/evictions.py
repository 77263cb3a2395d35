"""Evictions: who leaves which node, when and why, what holds pods back, and approving a brake.

A brake holds back the pods of a zone, a namespace or an owner of which too many would leave
(``scheduling.controllers.evictions.brake``). Its page shows them, with what else holds each back
and where each would land; approving lets them go for an hour, if as many would leave as were shown.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.live.shared_answers import Answer, SharedQuestion
from api.console.page import formatting, layout
from api.kinds import own
from clusterstate.actions import brakes as approvals
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.queries.evictions.brakes import (
    HELD,
    NAMESPACE,
    OWNER,
    ZONE,
    Brake,
    brakes,
    held_back,
)
from clusterstate.queries.evictions.eviction_timers import Timer, waiting_timers
from clusterstate.queries.loops.controllers import stored_state

_MOST: Final = 500
_LANDINGS: Final = 100
"""For this many pods, the next to leave, the page asks where each would land."""
_next = SharedQuestion("landings", deadline=10.0)


@layout.shown
@layout.alike()
def page(request: HttpRequest) -> HttpResponse:
    """Return the page of evictions: which pods leave, when and why, brakes, and zones."""
    layout.require(request, "list", "evictions", group=own.GROUP)
    state = stored_state("node-lifecycle")
    timers = waiting_timers(limit=_MOST, held=held_back(clock.now()))
    context: dict[str, Any] = {
        **_leaving(timers, _next.answer),
        "zones": [(name, zone) for name, zone in sorted((state.get("zones") or {}).items())],
        "brakes": brakes() if layout.may(request, "list", "brakes", group=own.GROUP) else [],
    }
    if layout.is_part(request):
        return layout.part(request, "evictions_part.html", context)
    return layout.page(request, "evictions.html", "Evictions", context)


def _leaving(
    timers: Sequence[Timer], ask: Callable[[list[tuple[str, str]]], Answer]
) -> dict[str, Any]:
    """Return the timers, each with the node where its pod would be placed.

    The node was predicted before, or an advisor predicts it now.
    """
    unknown = [(one.namespace, one.name) for one in timers if not one.landing][:_LANDINGS]
    found: dict[tuple[str, str], str] = {}
    context: dict[str, Any] = {}
    if unknown:
        try:
            answer = ask(unknown)
        except StatusError as error:
            context["problem"] = error.message
        else:
            found = {
                (namespace, name): formatting.landing_of(one)
                for (namespace, name), one in zip(answer.document, answer.value, strict=True)
            }
            context |= {"age": round(answer.age), "is_behind": answer.is_behind}
    rows = []
    for one in timers:
        lands = found.get((one.namespace, one.name), formatting.NONE)
        rows.append((one, formatting.landing(one.landing) if one.landing else lands))
    return {**context, "timers": rows}


def _ask_now(keys: list[tuple[str, str]]) -> Answer:
    found = layout.ask("landings", keys)
    return Answer(keys, found, 0.0, is_behind=False)


@layout.shown
def brake(request: HttpRequest, key: str) -> HttpResponse:
    """Show the pods that a brake holds back, or approve it (``POST``, ``seen``)."""
    layout.require(request, "list", "brakes", group=own.GROUP)
    layout.require(request, "list", "evictions", group=own.GROUP)
    about = {"group": own.GROUP, "subresource": "approve", "name": key}
    found = _find(key)
    if request.method == "POST":
        layout.require(request, "create", "brakes", **about)
        if request.POST.get("seen") == _progress(found):
            approvals.approve(key, by=layout.user_of(request).name, now=clock.now())
            return HttpResponseRedirect(reverse("console:evictions"))
        return _show(request, found, differs=True)
    return _show(request, found)


def _find(key: str) -> Brake:
    for one in brakes():
        if one.key == key:
            return one
    raise NotFound(
        f'"{key}" holds no evictions back any more: fewer evictions than its limit are due'
    )


def _progress(one: Brake) -> str:
    return f"{one.leaving} of {one.total}"


def _show(request: HttpRequest, found: Brake, *, differs: bool = False) -> HttpResponse:
    timers = waiting_timers(
        zone=found.name if found.scope == ZONE else "",
        namespace=found.name if found.scope == NAMESPACE else "",
        owner=found.name if found.scope == OWNER else "",
        limit=_MOST,
        held=held_back(clock.now()),
    )
    context = {
        **_leaving(timers, _ask_now),
        "brake": found,
        "differs": differs,
        "seen": _progress(found),
        "share": round(100 * found.leaving / found.total) if found.total else 0,
        "held": found.state == HELD,
        "may_approve": layout.may(
            request, "create", "brakes", group=own.GROUP, subresource="approve", name=found.key
        ),
        "others": sorted({one.blocked_by for one in timers} - {"", f"brake {found.key}"}),
    }
    title = f"Eviction brake of {found.scope} {found.name}"
    return layout.page(request, "brake.html", title, context, status=409 if differs else 200)
