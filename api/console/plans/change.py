"""The preview of a change: one page for every change of nodes and pods.

``GET`` asks an advisor for a plan, as ``POST /apis/stowage.dev/v1/plans`` does, and shows it; the
change is in the URL, so that a user can send a preview to a colleague. Confirming carries out
exactly that plan (``plans.act``), so it is stored as a *preview*. No list shows a preview, and a
new one deletes only older previews of the same user: a stranger who makes a browser open such pages
changes nothing else. ``POST`` makes a plan of a text: nodes, pods, a configuration, plans.
"""

import functools
from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.page import layout
from api.console.plans import direct_eviction, plan_forms, plan_pages
from api.stowage import plans as api_plans
from clusterstate.actions import objects
from clusterstate.admission.request import User
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    StatusError,
    TooLarge,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.scheduler.plans import StoredPlan, find_plan
from scheduling.answers import advisor

_SHORTER_SECONDS: Final = 600
"""The horizon of a plan if the prediction for a whole day takes too long."""
_SOON_SECONDS: Final = 3.0
"""Seconds that a page waits for its preview; after that the page loads the preview later."""


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show the effects of a change."""
    if request.GET.get("q"):  # what a query finds must not be told by a refusal either
        layout.require(request, "list", "nodes")
    changes = plan_forms.changes_of(request.GET) if request.GET.get("do") else []
    confirms = request.method == "POST" and "seen" in request.POST
    if (
        changes
        and direct_eviction.concerns(changes)
        and (confirms or layout.missing(request, layout.FORETELLING))
    ):
        return direct_eviction.page(request, changes)
    if request.method == "POST" and request.POST.get("plain"):
        return _plain(request, changes)
    if (missing := layout.missing(request, layout.FORETELLING)) and _may_do_plain(request, changes):
        return _no_preview(request, changes, Forbidden(missing))
    layout.require_all(request, layout.FORETELLING)
    user = layout.user_of(request)
    if request.method == "POST":
        changes = plan_forms.read(request.POST.get("text", "").replace("\r\n", "\n"))
        document = plan_forms.document_of(changes)
        plan = api_plans.predicted_plan(document, by=user, seconds=layout.FORM_SECONDS)
        return HttpResponseRedirect(reverse("console:plan", args=(plan.name,)))
    if not changes:
        if not request.GET.get("do"):
            return HttpResponseRedirect(reverse("console:what-if"))
        return layout.page(request, "plan_nothing.html", "There is no change to preview", {})
    try:
        document = plan_forms.document_of(changes, plan_forms.how_of(request.GET))
        if layout.is_part(request):
            return _late_preview(request, document, user)
        plan = _earlier_preview(request, document, user) or api_plans.predicted_plan(
            document, by=user, is_preview=True, seconds=_SOON_SECONDS
        )
    except StatusError as error:
        if error.code < 500 and not isinstance(error, TooLarge):
            raise
        return _no_preview(request, changes, error)
    return plan_pages.show(request, plan, overtaken=_overtaken(request))


def _late_preview(request: HttpRequest, document: Manifest, user: User) -> HttpResponse:
    """Redirect an open page to its preview once that is made, which may take a minute.

    With ``progress`` in the URL: return the advisor's progress.

    Raises:
        StatusError: an advisor cannot predict the change.
    """
    if request.GET.get("progress"):
        return layout.progress_of(request, "plan", document)
    plan = api_plans.predicted_plan(document, by=user, is_preview=True)
    address = _address(request, plan=plan.name)
    if request.GET.get("do") == plan_forms.REBALANCE:  # its changes are others than the address's
        address = reverse("console:plan", args=(plan.name,))
    return HttpResponse(headers={"HX-Redirect": address})


def _earlier_preview(request: HttpRequest, document: Manifest, user: User) -> StoredPlan | None:
    """Return the preview named in the URL, if it is the user's own of the same change."""
    try:
        plan = find_plan(request.GET.get("plan", ""))
    except NotFound:
        return None
    is_same = (plan.created_by, plan.posted_document()) == (user.name, document)
    return plan if is_same and plan.applied_at is None else None


def _address(request: HttpRequest, **more: str) -> str:
    query = request.GET.copy()
    for name, value in more.items():
        query[name] = value
    return f"?{query.urlencode()}"


def _no_preview(
    request: HttpRequest, changes: Sequence[Manifest], error: StatusError
) -> HttpResponse:
    """Return a page that says why there is no preview yet, with the actions that need none."""
    horizon = plan_forms.horizon_of(request.GET)
    is_long = horizon is None or horizon > _SHORTER_SECONDS
    is_slow = isinstance(error, TooLarge)
    context: dict[str, Any] = {
        "failure": error,
        "shorter": _address(request, horizon=str(_SHORTER_SECONDS)) if is_slow and is_long else "",
        "is_busy": error.code != 403,
    }
    if layout.is_part(request):
        return layout.part(request, "_preview.html", context)
    if is_slow or isinstance(error, advisor.NoAnswer):
        context["asks"] = request.get_full_path()
    if direct_eviction.concerns(changes):
        return direct_eviction.page(request, changes, context)
    context |= {
        "kubectl": plan_forms.kubectl(changes),
        "plain": plan_forms.plain(changes) if _may_do_plain(request, changes) else "",
    }
    return layout.page(request, "plan_unknown.html", plan_forms.in_words(changes), context)


def _may_do_plain(request: HttpRequest, changes: Sequence[Manifest]) -> bool:
    """Return whether this person may make a change without a preview."""
    verbs = {"delete" if plan_forms.DELETE in change else "patch" for change in changes}
    return bool(plan_forms.plain(changes)) and all(
        layout.may(request, verb, "nodes") for verb in verbs
    )


def _plain(request: HttpRequest, changes: Sequence[Manifest]) -> HttpResponse:
    """Change nodes without a preview, if none can be had (``POST``, ``plain``).

    Of a drain only the cordon is done: no new pods come, and a later preview evicts the others.
    """
    if not plan_forms.plain(changes):
        raise BadRequest("plain: this change cannot be made without a preview")
    names: dict[str, None] = {}
    for change in changes:
        for what, entry in change.items():
            for name in entry["nodes"]:
                names[name] = None
                user, now = layout.user_of(request), clock.now()
                if what == plan_forms.DELETE:
                    layout.require(request, "delete", "nodes", name=name)
                    objects.delete("Node", "", name, now=now, user=user)
                    continue
                layout.require(request, "patch", "nodes", name=name)
                edit = functools.partial(plan_forms.edited, what, entry)
                objects.update("Node", "", name, edit, now=now, user=user)
    if len(names) == 1 and plan_forms.DELETE not in changes[0]:
        return HttpResponseRedirect(reverse("console:node", args=tuple(names)))
    return HttpResponseRedirect(reverse("console:nodes"))


def _overtaken(request: HttpRequest) -> list[plan_forms.Overtaken]:
    """Return the fields that a node's form changes and others changed since it was shown.

    Queries once if the request is a node's form.
    """
    names = request.GET.getlist("node")
    if request.GET["do"] not in (plan_forms.EDIT, plan_forms.RESIZE) or len(names) != 1:
        return []
    return plan_forms.overtaken(request.GET, get_manifest(KINDS["Node"], "", names[0]))
