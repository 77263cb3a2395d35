"""What if: a basket of changes that any page adds to, compared with the present.

The basket is in the person's session. Opening it asks an advisor for a plan that is not stored;
``share`` stores one, whose URL can be sent to a colleague and whose page can apply it.
"""

from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from api.access import outgoing
from api.console.page import layout, yaml_input
from api.console.plans import plan_forms, plan_pages, plan_preview
from api.console.scheduler import comparisons
from api.forms import pages
from api.kinds import own
from api.stowage import plans as api_plans
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.scheduler import overview
from clusterstate.queries.scheduler.plans import PLURAL, find_plan

_KEPT: Final = "what-if"
MOST_CHANGES: Final = 50
_MOST_BYTES: Final = 256 << 10
_SHOWN: Final = 100
_LIKE: Final = ("namespace", "labels", "annotations")
_LONGEST: Final = 240


class Comparison(msgspec.Struct, frozen=True):
    """A figure of today and with the changes; ``worse``: it shows less room, or more problems."""

    what: str
    today: str
    then: str
    worse: bool


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Show the basket, and its effects."""
    layout.require_all(request, layout.FORETELLING)
    return _show(request)


def _basket(request: HttpRequest) -> list[Manifest]:
    found = request.session.get(_KEPT)
    return found if isinstance(found, list) else []


def _show(
    request: HttpRequest, *, text: str = "", wrong: StatusError | None = None
) -> HttpResponse:
    changes = _basket(request)
    context: dict[str, Any] = {
        "items": [(at, plan_forms.in_words([one])) for at, one in enumerate(changes)],
        "kubectl": plan_forms.kubectl(changes),
        "text": text,
        "wrong": yaml_input.problems_of(wrong) if wrong else [],
        "effects": EFFECTS,
        "query": request.GET,
        "policies": comparisons.POLICIES,
        "configuration": _configuration(changes),
    }
    if changes:
        try:
            status = layout.ask("plan", plan_forms.document_of(changes))["status"]
        except StatusError as error:
            context["problem"] = yaml_input.problems_of(error)
        else:
            context |= {
                "status": status,
                "compared": _compared(status),
                "leaving": (status.get("leaving") or [])[:_SHOWN],
                "placed": (status.get("placed") or [])[:_SHOWN],
                "waits": _waiting(status, changes)[:_SHOWN],
            }
    code = wrong.code if wrong else 200
    return layout.page(request, "what_if.html", "What if", context, status=code)


def _configuration(changes: list[Manifest]) -> str:
    """Return the YAML of the configuration that the basket would apply; empty without one."""
    found = [one["configuration"] for one in changes if "configuration" in one]
    return pages.as_yaml(found[-1]) if found else ""


def _waiting(status: Manifest, changes: list[Manifest]) -> list[Manifest]:
    """Return the pods that find no node with the changes, those of the basket first."""
    added = {
        f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata'].get('name', '')}"
        for one in changes
        for pod in (one.get("pods") or {}).get("objects") or ()
    }
    return sorted(status.get("waiting") or [], key=lambda one: one["pod"] not in added)


def _compared(status: Manifest) -> list[Comparison]:
    summary: dict[str, int] = status.get("summary") or {}
    waiting, leaving, lost = overview.pending(), summary.get("leaving", 0), summary.get("stuck", 0)
    then = summary.get("waiting", 0) + lost
    return [
        Comparison("pods that leave", "-", f"{leaving:,}", worse=False),
        Comparison("pods that leave and find no node", "-", f"{lost:,}", lost > 0),
        Comparison("pods that wait", f"{waiting:,}", f"{then:,}", then > waiting),
        *(
            Comparison(one.name, one.before, one.after, one.less)
            for one in plan_preview.room(status)
        ),
    ]


@layout.shown
def add(request: HttpRequest) -> HttpResponse:
    """Add changes to the session's list: from a plan, a form, a text, or a copy of a pod."""
    layout.require_all(request, layout.FORETELLING)
    text = request.POST.get("text", "").replace("\r\n", "\n")
    changes = [*_basket(request)]
    try:
        changes += _submitted_objects(request, text)
        if len(changes) > MOST_CHANGES:
            raise BadRequest(f"at most {MOST_CHANGES} changes at a time")
        if len(msgspec.json.encode(changes)) > _MOST_BYTES:
            raise BadRequest("the basket is full: save its changes as a plan, then empty it")
        document = plan_forms.document_of(changes)
        outgoing.require_extenders(layout.user_of(request), document)
        layout.ask("plan", document)  # what is wrong is told before it is kept
    except BadRequest as error:
        return _show(request, text=text, wrong=error)
    except StatusError as error:
        if error.code == 422:
            return _show(request, text=text, wrong=error)
        if not layout.is_late(error):
            raise
    request.session[_KEPT] = changes
    return HttpResponseRedirect(reverse("console:what-if"))


def _submitted_objects(request: HttpRequest, text: str) -> list[Manifest]:
    form: QueryDict = request.POST
    if name := form.get("plan", ""):
        layout.require(request, "get", PLURAL, group=own.GROUP, name=name)
        return plan_pages.whole_changes_of(request, find_plan(name))
    if like := form.get("like", ""):
        return [{"pods": {"objects": [_one_more(request, like, len(_basket(request)))]}}]
    if form.get("do"):
        if form.get("q"):
            layout.require(request, "list", "nodes")
        return plan_forms.changes_of(form)
    return plan_forms.read(text)


def _one_more(request: HttpRequest, title: str, number: int) -> Manifest:
    """Return a copy of an existing pod, with another name and without a node."""
    namespace, _, name = title.partition("/")
    layout.require(request, "get", "pods", namespace=namespace, name=name)
    pod = get_manifest("Pod", namespace, name)
    metadata = {key: pod["metadata"][key] for key in _LIKE if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    metadata["name"] = f"{name[:_LONGEST]}-more-{number + 1}"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@layout.shown
def remove(request: HttpRequest) -> HttpResponse:
    """Remove a change from the basket (``at``), or all of them (``POST``)."""
    at = request.POST.get("at", "")
    changes = _basket(request)
    if at == "all":
        request.session.pop(_KEPT, None)
    elif (position := natural(at)) is not None and position < len(changes):
        request.session[_KEPT] = [one for place, one in enumerate(changes) if place != position]
    else:
        raise BadRequest("at: must be the number of a change in the basket, or all")
    return HttpResponseRedirect(reverse("console:what-if"))


@layout.shown
def share(request: HttpRequest) -> HttpResponse:
    """Store the basket as a plan, and redirect to its page (``POST``)."""
    layout.require_all(request, layout.FORETELLING)
    changes = _basket(request)
    if request.method != "POST" or not changes:
        raise BadRequest("there is nothing in the basket")
    document = plan_forms.document_of(changes)
    plan = api_plans.predicted_plan(
        document, by=layout.user_of(request), seconds=layout.FORM_SECONDS
    )
    return HttpResponseRedirect(reverse("console:plan", args=(plan.name,)))


@layout.shown
def as_yaml(request: HttpRequest) -> HttpResponse:
    """Return the basket as the YAML of a ``Plan``."""
    return plan_pages.yaml_file(_basket(request), "what-if.yaml")
