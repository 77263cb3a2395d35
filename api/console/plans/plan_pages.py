"""The page of a plan, with its prediction, its buttons and its progress; and the list of plans.

The page calls the same functions as the API's ``plans``, with the same rights. An applied plan is
an operation: its page shows each step, and can pause, resume, cancel and undo it. If the
prediction no longer holds, *Apply* changes nothing, and shows the new plan and the differences.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.access import naming_objects
from api.console.fleet.fleet_map import ZONE
from api.console.live import node_cache
from api.console.page import layout, outcomes
from api.console.plans import plan_forms, plan_preview
from api.forms import pages
from api.kinds import own
from api.stowage import plans as api_plans
from clusterstate.actions import plans as actions
from clusterstate.objects.values.errors import BadRequest, Conflict, Forbidden, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.plans import (
    PAUSED,
    PLANNED,
    PLURAL,
    RUNNING,
    StoredPlan,
    find_plan,
    latest_plans,
)

_MANY: Final = 50
_FEW: Final = 200
_BY_STATE: Final = {PLANNED: ("apply",), RUNNING: ("pause", "cancel"), PAUSED: ("resume", "cancel")}


class Option(msgspec.Struct, frozen=True):
    """An option that can be added to the change: its text, its URL, and whether it is on."""

    text: str
    address: str
    is_on: bool


@layout.shown
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Return a plan's page, or the part of it that shows its operation's progress."""
    plan = _readable_plan(request, name)
    if layout.is_part(request):
        return layout.part(request, "plan_progress.html", _progress(request, plan))
    return show(request, plan)


def _readable_plan(request: HttpRequest, name: str) -> StoredPlan:
    """Return a plan if the user may read pods of every namespace, which it names."""
    layout.require(request, "get", PLURAL, group=own.GROUP, name=name)
    layout.require(request, "list", "pods")
    return find_plan(name)


@layout.shown
def listed(request: HttpRequest) -> HttpResponse:
    """Return the latest plans, with the progress of each."""
    layout.require(request, "list", PLURAL, group=own.GROUP)
    may_rebalance = not layout.missing(request, layout.FORETELLING)
    context = {"plans": _rows(request, latest_plans(limit=_MANY)), "may_rebalance": may_rebalance}
    if layout.is_part(request):
        return layout.part(request, "plans_rows.html", context)
    return layout.page(request, "plans.html", "Plans", context)


def _rows(request: HttpRequest, found: Iterable[StoredPlan]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "title": plan_forms.in_words(changes_of(request, one)),
            "state": one.state,
            "by": one.applied_by or one.created_by,
            "at": one.applied_at or one.created_at,
            "summary": one.prediction().get("summary") or {},
            "progress": plan_preview.progress(one),
        }
        for one in found
    ]


def changes_of(request: HttpRequest, plan: StoredPlan) -> list[Manifest]:
    """Return the changes of a plan, as the API returns them to the person.

    Objects that the person may not get are counted (``otherPods`` and the like). May query.
    """
    spec = plan.posted_document().get("spec") or {}
    found: list[Manifest] = naming_objects.visible_spec(layout.user_of(request), spec)["changes"]
    return found


def whole_changes_of(request: HttpRequest, plan: StoredPlan) -> list[Manifest]:
    """Return all changes of a plan, for a new prediction.

    Raises:
        Forbidden: one names an object that the person may not get.
    """
    every: list[Manifest] = (plan.posted_document().get("spec") or {}).get("changes") or []
    if changes_of(request, plan) != every:
        what = f'{PLURAL}.{own.GROUP} "{plan.name}"'
        raise Forbidden(f"{what} is forbidden: it names objects that you have no right to read")
    return every


@layout.shown
def act(request: HttpRequest, name: str) -> HttpResponse:
    """Apply a plan, or pause, resume, cancel or undo its operation (``POST``, ``what``)."""
    what = request.POST.get("what", "")
    if request.method != "POST" or what not in ("apply", "pause", "resume", "cancel", "undo"):
        raise BadRequest("what: must be apply, pause, resume, cancel or undo, sent by POST")
    layout.require(request, "create", PLURAL, group=own.GROUP, subresource=what, name=name)
    plan, now = _readable_plan(request, name), clock.now()
    if what in ("apply", "resume"):
        layout.require_all(request, api_plans.rights(plan))
    if what == "apply":
        return _apply(request, plan)
    if what == "undo":
        layout.require_all(request, layout.FORETELLING)
        try:
            by = layout.user_of(request)
            found = api_plans.undoing(plan, by=by, seconds=layout.FORM_SECONDS)
        except StatusError as error:
            return _unchecked(request, plan, error)
    elif what == "pause":
        found = actions.pause(name, now=now)
    elif what == "resume":
        found = actions.resume(name, now=now)
    else:
        found = actions.cancel(name, now=now)
    return HttpResponseRedirect(reverse("console:plan", args=(found.name,)))


def _apply(request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    holding = request.POST.get("holding") or api_plans.LANDINGS
    known = (api_plans.LANDINGS, api_plans.LEAVING, api_plans.NOTHING)
    if holding not in known:
        raise BadRequest(f"holding: must be one of {', '.join(known)}")
    try:
        by = layout.user_of(request)
        api_plans.begin(plan, holding=holding, by=by, seconds=layout.FORM_SECONDS)
    except Conflict as error:
        if "plan" not in error.details:
            raise
        new = find_plan(error.details["plan"]["metadata"]["name"])
        then, now = ({**one.prediction(), "steps": one.to_do()} for one in (plan, new))
        found = plan_preview.differences(api_plans.differences(then, now, holding))
        return show(request, new, differs=found)
    except StatusError as error:
        return _unchecked(request, plan, error)
    return HttpResponseRedirect(reverse("console:plan", args=(plan.name,)))


def _unchecked(request: HttpRequest, plan: StoredPlan, error: StatusError) -> HttpResponse:
    """Show that nothing was done, since no advisor predicted the outcome in time.

    Raises:
        StatusError: ``error``, if it is of another kind.
    """
    if not layout.is_late(error):
        raise error
    return show(request, plan, unchecked=error.message)


def show(
    request: HttpRequest,
    plan: StoredPlan,
    *,
    differs: Sequence[tuple[str, str, str]] = (),
    overtaken: Sequence[plan_forms.Overtaken] = (),
    unchecked: str = "",
) -> HttpResponse:
    """Return the page of a plan.

    ``differs``: *Apply* changed nothing, since the outcome would be different now. ``overtaken``:
    what others changed since the plan's form was shown. ``unchecked``: why nothing was done: the
    plan could not be predicted anew.
    """
    changes, status = changes_of(request, plan), plan.prediction()
    leaving, zones = plan_preview.leaving(plan, status), _places(request, status)
    summary: dict[str, int] = status.get("summary") or {}
    placed, waiting = status.get("placed") or [], status.get("waiting") or []
    context = {
        **_progress(request, plan),
        "status": status,
        "summary": summary,
        "many": summary.get("leaving", 0) + summary.get("held", 0),
        "leaving": leaving,
        "more_leave": max(len(status.get("leaving") or ()) - len(leaving), 0),
        "fates": outcomes.outcome_counts(status.get("leaving") or ()),
        "zones": zones,
        "landing": sum(one.pods for one in zones),
        "anyway": plan_preview.leaving(plan, status, "leavingAnyway"),
        "anyway_count": len(status.get("leavingAnyway") or ()),
        "placed": [one for one in placed if "anyway" not in one][:_FEW],
        "placed_anyway": [one for one in placed if "anyway" in one][:_FEW],
        "losing": [one for one in waiting if "anyway" in one][:_FEW],
        "placed_exist": plan.applied_at is not None
        or not any("pods" in change for change in changes),
        "waits": [one for one in waiting if "anyway" not in one][:_FEW],
        "how": _how(plan),
        "staying": (status.get("staying") or [])[:_FEW],
        "budgets": status.get("budgets") or [],
        "room": plan_preview.room(status),
        "steps": plan_preview.steps(plan),
        "overtaken": overtaken,
        "unchecked": unchecked,
        "differs": list(differs)[: plan_preview.MOST_ROWS],
        "button": plan_preview.button(changes, summary),
        "danger": summary.get("leaving", 0) + summary.get("held", 0) > 0,
        "kubectl": plan_forms.kubectl(changes),
        "options": _options(request, changes),
        "again": _again(request),
        "back": _back(changes),
        "holding": (api_plans.LANDINGS, api_plans.LEAVING),
    }
    code = 409 if differs else 200
    return layout.page(request, "plan.html", plan_forms.in_words(changes), context, status=code)


def _places(request: HttpRequest, status: Manifest) -> Sequence[outcomes.ZoneCount]:
    """Return the zones where pods land, if the user may list nodes."""
    if not layout.may(request, "list", "nodes"):
        return ()
    zones = {one.name: one.labels.get(ZONE, "") for one in node_cache.nodes().items}
    return outcomes.zone_counts(status.get("leaving") or (), zones)


def _progress(request: HttpRequest, plan: StoredPlan) -> dict[str, Any]:
    """Return the context of the part of the page that shows the operation's progress."""
    about = {"group": own.GROUP, "name": plan.name}
    may = {
        what
        for what in (*_BY_STATE.get(plan.state, ()), "undo")
        if layout.may(request, "create", PLURAL, subresource=what, **about)
    }
    missing = ""
    if {"apply", "resume"} & may:
        missing = layout.missing(request, api_plans.rights(plan))
        may -= {"apply", "resume"} if missing else set()
    if plan.applied_at is None:
        may -= {"undo"}
    return {
        "plan": plan,
        "may": may,
        "missing": missing,
        "progress": plan_preview.progress(plan),
        "moving": plan.state in (RUNNING, PAUSED),
        "applied": plan.applied_at is not None,
        "stuck": [one for one in plan_preview.steps(plan) if one.state in ("held back", "failed")],
    }


def _again(request: HttpRequest) -> str:
    """Return the URL of a new preview of the change in this URL, empty without one."""
    query = request.GET.copy()
    query.pop("plan", None)
    return f"{reverse('console:change')}?{query.urlencode()}" if query.get("do") else ""


def _options(request: HttpRequest, changes: Sequence[Manifest]) -> list[Option]:
    """Return the options of a drain, if the URL is a drain's preview."""
    if request.GET.get("do") != plan_forms.DRAIN or request.method != "GET":
        return []
    texts = {
        "force": "pods without a controller",
        "local": "pods with local data (emptyDir)",
        "hold": "room reserved for each pod before it leaves",
    }
    found = []
    for name, text in texts.items():
        is_on = request.GET.get(name) == "on"
        query = [
            (k, v) for k, values in request.GET.lists() if k not in (name, "plan") for v in values
        ]
        query += [] if is_on else [(name, "on")]
        found.append(Option(text, f"{reverse('console:change')}?{urlencode(query)}", is_on))
    return found


def _back(changes: Sequence[Manifest]) -> str:
    """Return the URL for leaving the preview without making the change."""
    bodies = [body for change in changes for body in change.values() if isinstance(body, dict)]
    nodes = [name for body in bodies for name in body.get("nodes") or ()]
    pods = [pod for body in bodies for pod in body.get("pods") or ()]
    scale = changes[0].get(plan_forms.SCALE) if len(changes) == 1 else None
    if scale and "name" in scale:
        whose = (scale["kind"], scale.get("namespace", "default"), scale["name"])
        return reverse("console:object", args=whose)
    if len(nodes) == 1 and not pods:
        return reverse("console:node", args=nodes)
    if len(pods) == 1 and not nodes:
        return reverse("console:pod", args=pods[0].split("/", 1))
    return reverse("console:pods" if pods else "console:nodes")


@layout.shown
def as_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Return a plan's document, to be stored, posted or opened as a what-if again."""
    layout.require(request, "get", PLURAL, group=own.GROUP, name=name)
    plan = find_plan(name)
    return yaml_file(whole_changes_of(request, plan), f"{name}.yaml", _how(plan))


def _how(plan: StoredPlan) -> Manifest:
    """Return the fields of a plan's ``spec`` besides its changes."""
    spec = plan.posted_document().get("spec") or {}
    fields = ("holdPlaces", "podsPerHour", "schedule", "timeZone")
    return {field: spec[field] for field in fields if field in spec}


def yaml_file(changes: Sequence[Manifest], name: str, how: Manifest | None = None) -> HttpResponse:
    """Return changes as the YAML of a ``Plan``, to be saved."""
    text = pages.as_yaml(plan_forms.document_of(changes, how))
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)
