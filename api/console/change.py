"""The preview of a change: one component for every change of nodes and pods.

``GET`` asks an advisor for a plan, as ``POST /apis/stowage.dev/v1/plans`` does, and shows it; what
is asked stands in the address, so that a preview can be sent to a colleague. Confirming carries out
just that plan (``plans.act``), which is why what was shown is kept: as a *preview*, that no list
shows and for which only older previews of the user go, so whoever makes somebody's browser open
pages changes nothing that anybody asked for. ``POST`` makes a plan of a text: nodes, pods, a
configuration, plans.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api.console import direct_eviction, layout, plan_forms, plans
from api.stowage import plans as api_plans
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import ServiceUnavailable, TooLarge
from clusterstate.queries.objects import get_manifest

_SHORTER_SECONDS: Final = 600
"""How far ahead it may be looked where a day takes too long to be foretold."""


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show what a change will do."""
    if request.GET.get("q"):  # what a query finds must not be told by a refusal either
        layout.require(request, "list", "nodes")
    changes = plan_forms.changes_of(request.GET) if request.GET.get("do") else []
    if (
        changes
        and direct_eviction.concerns(changes)
        and layout.missing(request, layout.FORETELLING)
    ):
        return direct_eviction.page(request, changes)
    layout.require_all(request, layout.FORETELLING)
    user = layout.user_of(request)
    if request.method == "POST":
        changes = plan_forms.read(request.POST.get("text", "").replace("\r\n", "\n"))
        plan = api_plans.made(plan_forms.document_of(changes), by=user)
        return HttpResponseRedirect(reverse("console:plan", args=(plan.name,)))
    if not changes:
        if not request.GET.get("do"):
            return HttpResponseRedirect(reverse("console:what-if"))
        return layout.page(request, "plan_nothing.html", "Nothing is to be changed", {})
    horizon = plan_forms.horizon_of(request.GET)
    try:
        document = plan_forms.document_of(changes, horizon=horizon)
        plan = api_plans.made(document, by=user, is_preview=True)
    except (ServiceUnavailable, TooLarge) as error:
        shorter = ""
        if isinstance(error, TooLarge) and (horizon is None or horizon > _SHORTER_SECONDS):
            query = request.GET.copy()
            query["horizon"] = str(_SHORTER_SECONDS)
            shorter = f"?{query.urlencode()}"
        context = {"failure": error, "kubectl": plan_forms.kubectl(changes), "shorter": shorter}
        title = plan_forms.in_words(changes)
        return layout.page(request, "plan_unknown.html", title, context, status=error.code)
    return plans.show(request, plan, overtaken=_overtaken(request))


def _overtaken(request: HttpRequest) -> list[plan_forms.Overtaken]:
    """Return what others changed of a node since its form was shown, where the form writes over it.

    Queries once where a form of a node was sent.
    """
    names = request.GET.getlist("node")
    if request.GET["do"] not in (plan_forms.EDIT, plan_forms.RESIZE) or len(names) != 1:
        return []
    return plan_forms.overtaken(request.GET, get_manifest(KINDS["Node"], "", names[0]))
