"""Canaries: configurations on trial, their hypothetical decisions, and putting one in force."""

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.page import layout, yaml_input
from api.console.scheduler import comparisons, policies
from api.forms import pages
from api.kinds import own
from api.stowage import canaries as api_canaries
from clusterstate.access.rules import Attributes
from clusterstate.actions.scheduler import canaries as actions
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.canaries import (
    OBSERVING,
    PLURAL,
    SWITCHED,
    StoredCanary,
    find_canary,
    latest_canaries,
)
from scheduling.answers import advisor

_NUMBERS: Final = (("guardSeconds", int), ("mostFailures", int), ("slowSeconds", float))
_BY_STATE: Final = {OBSERVING: ("switch", "cancel"), SWITCHED: ("return",)}


@layout.shown
def listed(request: HttpRequest) -> HttpResponse:
    """List the configurations on trial, or start a trial of one (``POST``)."""
    layout.require(request, "list", PLURAL, group=own.GROUP)
    may_create = layout.may(request, "create", PLURAL, group=own.GROUP)
    context: dict[str, Any] = {"canaries": latest_canaries(), "may_create": may_create}
    if layout.is_part(request):
        return layout.part(request, "canaries_rows.html", context)
    status = 200
    if request.method == "POST":
        layout.require(request, "create", PLURAL, group=own.GROUP)
        text = request.POST.get("text", "").replace("\r\n", "\n")
        try:
            canary, _ = api_canaries.create_canary(
                _submitted_spec(request, text), by=layout.user_of(request)
            )
            return HttpResponseRedirect(reverse("console:canary", args=(canary.name,)))
        except StatusError as error:
            context |= {"problems": yaml_input.problems_of(error), "given": request.POST}
            status = error.code
    elif may_create:
        text = pages.as_yaml(_in_force())
    else:
        text = ""
    return layout.page(
        request, "canaries.html", "Canaries", {**context, "text": text}, status=status
    )


def _submitted_spec(request: HttpRequest, text: str) -> Manifest:
    spec: Manifest = {"configuration": yaml_input.read_yaml(text)}
    for name, kind in _NUMBERS:
        if text_ := request.POST.get(name, "").strip():
            try:
                spec[name] = kind(text_)
            except ValueError:
                raise BadRequest(f"{name}: must be a number") from None
    metadata = {"name": request.POST.get("name", "").strip()}
    return {
        "apiVersion": own.API_VERSION,
        "kind": api_canaries.KIND.name,
        "metadata": metadata,
        "spec": spec,
    }


def _in_force() -> Manifest:
    from scheduling.answers import questions

    found = questions.stored_configuration()
    return {key: value for key, value in found.items() if key != "metadata"}


@layout.shown
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a canary: its state and changes; ``report``: how its decisions would have differed.

    The page opens at once and requests the report as a part, with the advisor's progress meanwhile.
    """
    layout.require(request, "get", PLURAL, group=own.GROUP, name=name)
    canary = find_canary(name)
    if request.GET.get("report"):
        layout.require_all(request, _rights("report", name))
        question = api_canaries.question(canary, pictures=True)
        if layout.is_part(request):
            return comparisons.part(request, question, lambda: advisor.ask("comparison", question))
    context: dict[str, Any] = {
        "canary": canary,
        "may": _may(request, canary),
        "may_report": not layout.missing(request, _rights("report", name)),
    }
    if layout.is_part(request):
        return layout.part(request, "canary_part.html", context)
    against = _former(canary)
    text = pages.as_yaml(canary.configuration())
    lines = policies.difference(pages.as_yaml(against), text)
    context |= {"lines": lines, "alike": all(one.sign == " " for one in lines), "text": text}
    if request.GET.get("report"):
        context["asks"] = f"{request.path}?report=1"
    return layout.page(request, "canary.html", f"Canary {name}", context)


def _former(canary: StoredCanary) -> Manifest:
    """Return the configuration to compare with: the one it replaced, or the one in force."""
    from scheduling.answers import questions

    if canary.former:
        return questions.configuration_of(canary.former)
    return _in_force()


def _rights(what: str, name: str) -> list[Attributes]:
    """Return the rights that the API requires for an action."""
    if what == "report":
        own_right = Attributes("get", own.GROUP, PLURAL, what, name=name)
        return [own_right, *(Attributes("list", resource=one) for one in ("nodes", "pods"))]
    wants = [Attributes("create", own.GROUP, PLURAL, what, name=name)]
    if what in ("switch", "return"):
        wants.append(Attributes("update", own.GROUP, "schedulerconfiguration"))
    return wants


def _may(request: HttpRequest, canary: StoredCanary) -> set[str]:
    actions = _BY_STATE.get(canary.state, ())
    return {what for what in actions if not layout.missing(request, _rights(what, canary.name))}


@layout.shown
def act(request: HttpRequest, name: str) -> HttpResponse:
    """Put a canary in force, restore the former configuration, or end the trial (``POST``)."""
    what = request.POST.get("what", "")
    if request.method != "POST" or what not in ("switch", "return", "cancel"):
        raise BadRequest("what: must be switch, return or cancel, sent by POST")
    layout.require(request, "create", PLURAL, group=own.GROUP, subresource=what, name=name)
    layout.require_all(request, _rights(what, name))
    by, now = layout.user_of(request).name, clock.now()
    steps: dict[str, Callable[[], StoredCanary]] = {
        "switch": lambda: actions.switch(name, by=by, now=now),
        "return": lambda: actions.give_back(name, why=f"{by} asked for it", now=now, by=by),
        "cancel": lambda: actions.cancel(name, now=now),
    }
    steps[what]()
    return HttpResponseRedirect(reverse("console:canary", args=(name,)))
