"""A pod: its timeline, decisions, events and YAML, and its actions."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.decisions import decision_pages
from api.console.fleet import devices
from api.console.page import formatting as words
from api.console.page import layout, time_travel
from api.console.pods.pod_list import why_of
from api.forms import pages
from api.forms.cells import parse_time
from api.kinds import own
from clusterstate.actions import objects
from clusterstate.actions.scheduler import reservations as waiting
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest, Conflict, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions.brakes import held_back
from clusterstate.queries.evictions.eviction_timers import Timer, waiting_timers
from clusterstate.queries.objects import decode_object, find_object, not_found
from clusterstate.queries.past import find_at, provenance
from clusterstate.queries.past.trail import TrailEntry
from clusterstate.queries.scheduler import overview, reservations

_PERMIT: Final = {"group": own.GROUP, "subresource": "permit"}
"""With ``create`` on ``waitingpods`` the right to answer for a plugin, as in the API."""


@layout.shown_then
def page(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Return a pod's page, or the part of it that refreshes itself."""
    from scheduling.answers import questions

    layout.require(request, "get", "pods", namespace=namespace, name=name)
    past = time_travel.of(request)
    text = (
        find_object("Pod", namespace, name)
        if past is None
        else find_at(KINDS["Pod"], namespace, name, past.revision)
    )
    since = layout.since(request, "pods", namespace=namespace, name=name)
    steps = time_travel.steps(KINDS["Pod"], namespace, name, past, limit=50, since=since)
    if text is None and not steps:
        raise not_found("Pod", name)
    about = {"namespace": namespace, "name": name}
    decided = []
    if layout.may(request, "get", "pods", subresource="decisions", **about):
        with suppress(NotFound):
            decided = questions.decisions_of(
                namespace,
                name,
                limit=20 if past is None else 200,
                since=decision_pages.since(request, namespace, name),
            )
    if past is not None:
        decided = [one for one in decided if one["at"] <= past.text][:20]
    context: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "gone": text is None,
        "steps": steps,
        "decisions": decided,
        "events": overview.events_of("Pod", namespace, name, limit=30)
        if past is None and layout.may(request, "list", "events", namespace=namespace)
        else [],
        "timers": _timers(namespace, name) if past is None else [],
    }
    timers = context["timers"]
    causes = _causes(request, namespace, name, steps)
    context["timeline"] = timeline(steps, decided, timers, causes)
    if text is not None:
        manifest = decode_object(text)
        context |= _of(manifest)
        context["claims"] = devices.of_pod(request, manifest)
        context["waits"] = _waits(namespace, name) if past is None else []
        context["may_ungate"] = layout.may(request, "update", "pods", **about)
        context["may_permit"] = layout.may(request, "create", "waitingpods", **_PERMIT, **about)
        context["may_create"] = layout.may(request, "create", "pods", namespace=namespace)
        context["may_evict"] = layout.may(
            request, "create", "pods", subresource="eviction", namespace=namespace, name=name
        )
        context["may_delete"] = layout.may(
            request, "delete", "pods", namespace=namespace, name=name
        )
        context["may_ask"] = past is None and not layout.missing(request, layout.FORETELLING)
    if layout.is_part(request):
        return layout.part(request, "pod_part.html", context)
    return layout.page(request, "pod.html", f"{namespace}/{name}", context)


def _of(manifest: Any) -> dict[str, Any]:
    requests = words.requests_of(manifest)
    spec, status = manifest["spec"], manifest.get("status") or {}
    shown = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    owners = manifest["metadata"].get("ownerReferences") or ()
    return {
        "status": words.pod_status(manifest, clock.now()),
        "node": spec.get("nodeName", ""),
        "nominated": status.get("nominatedNodeName", ""),
        "asks": [(key, words.amount(key, amount)) for key, amount in requests.items() if amount],
        "overhead": spec.get("overhead") or {},
        "runtime": spec.get("runtimeClassName", ""),
        "priority": spec.get("priority", 0),
        "priority_class": spec.get("priorityClassName", ""),
        "scheduler": spec.get("schedulerName", ""),
        "pod_group": (spec.get("schedulingGroup") or {}).get("podGroupName", ""),
        "gates": [one.get("name") for one in spec.get("schedulingGates") or ()],
        "owners": [f"{one['kind']}/{one['name']}" for one in owners],
        "created": manifest["metadata"].get("creationTimestamp"),
        "leaves_at": manifest["metadata"].get("deletionTimestamp"),
        "conditions": status.get("conditions") or [],
        "why": why_of(manifest),
        "yaml": pages.as_yaml({**manifest, "metadata": shown}),
    }


class TimelineEntry(msgspec.Struct, frozen=True):
    """A past or future event of a pod. ``mood``: the CSS class of its text, may be empty.

    ``decision``: the id of its decision. ``who``: the author, empty for the scheduler.
    ``revision``: that of the pod's change, 0 if the event is not a change.
    """

    at: datetime
    what: str
    text: str = ""
    node: str = ""
    who: str = ""
    decision: str = ""
    mood: str = ""
    revision: int = 0


def _causes(
    request: HttpRequest, namespace: str, name: str, steps: Sequence[TrailEntry]
) -> dict[int, str]:
    """Return which taint evicted the pod and, for people who may see the node, who set it.

    By revision of the pod's change. Queries for each eviction among the steps.
    """
    found = {}
    for step in steps:
        if not step.is_eviction:
            continue
        cause = provenance.taint_behind(namespace, name, step.revision, step.at)
        if cause is None:
            continue
        taint = cause.taint
        value = f"={taint.value}" if taint.value else ""
        found[step.revision] = f"taint {taint.key}{value}:{taint.effect} on {cause.node_name}"
        if cause.actor and layout.may(request, "get", "nodes", name=cause.node_name):
            found[step.revision] += f", set by {cause.actor}"
    return found


def _timers(namespace: str, name: str) -> list[Timer]:
    held = held_back(clock.now())
    return waiting_timers(namespace=namespace, name=name, limit=5, held=held)


_LEAVES: Final = "metadata.deletionTimestamp"
_GATES: Final = "spec.schedulingGates"


def timeline(
    steps: Sequence[TrailEntry],
    decided: Sequence[Manifest],
    timers: Sequence[Timer],
    causes: Mapping[int, str],
) -> list[TimelineEntry]:
    """Return the future and past events of a pod, the latest first.

    ``causes``: why it was evicted, by revision of the change.
    """
    found = [_changed(one, causes.get(one.revision, "")) for one in steps]
    for one in decided:
        at = parse_time(one["at"])
        if at is not None:
            found.append(_decided(one, at))
    for timer in timers:
        why = f"taint {timer.taint_key}:{timer.taint_effect}" if timer.taint_key else "node labels"
        if timer.blocked_by:
            why += f", held back: {timer.blocked_by}"
        found.append(TimelineEntry(timer.due_at, "eviction due", why, mood="warn"))
    # Of the same second, a pod was created before anything was decided about it.
    return sorted(found, key=lambda one: (one.at, one.what != "created"), reverse=True)


def _changed(step: TrailEntry, cause: str) -> TimelineEntry:
    who = f"{step.actor} by {step.impersonator}" if step.impersonator else step.actor
    if step.verb == "ADDED":
        return TimelineEntry(step.at, "created", who=who, node=step.node, revision=step.revision)
    if step.verb == "DELETED":
        return TimelineEntry(step.at, "deleted", who=who, revision=step.revision)
    if step.node:
        return TimelineEntry(
            step.at, "bound", node=step.node, who=who, mood="ok", revision=step.revision
        )
    if step.is_eviction or _LEAVES in step.fields:
        text = cause or ("a taint of its node" if step.is_eviction else "")
        return TimelineEntry(
            step.at, "termination requested", text, who=who, mood="warn", revision=step.revision
        )
    if any(one.startswith(_GATES) for one in step.fields):
        return TimelineEntry(step.at, "gates changed", who=who, revision=step.revision)
    return TimelineEntry(
        step.at, "changed", ", ".join(step.fields), who=who, revision=step.revision
    )


def _decided(one: Manifest, at: datetime) -> TimelineEntry:
    room = one["preemption"]
    if one["outcome"] == "scheduled":
        best = f"{one['nodes']['feasible']} of {one['nodes']['evaluated']} nodes fit"
        return TimelineEntry(
            at, "decided", best, node=one["nodeName"], decision=one["id"], mood="ok"
        )
    if room["nominatedNode"]:
        text = f"lower-priority pods evicted for it: {room['victims']}"
        return TimelineEntry(at, "nominated", text, node=room["nominatedNode"], decision=one["id"])
    what = "not bound" if one["outcome"] == "stale" else str(one["outcome"])
    return TimelineEntry(at, what, one["message"], decision=one["id"], mood="warn")


def _waits(namespace: str, name: str) -> list[tuple[str, datetime]]:
    """Return the Permit plugins that the pod waits for, with their deadlines. Queries once."""
    found = reservations.waiting(namespace=namespace, name=name)
    return sorted(found[0].waits.items()) if found else []


@layout.shown
def remove_gate(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Remove a scheduling gate (``gate``) from a pod."""
    layout.require(request, "update", "pods", namespace=namespace, name=name)
    gate = _posted(request, "gate")

    def change(pod: Manifest) -> Manifest:
        gates = pod["spec"].get("schedulingGates") or []
        remaining = [one for one in gates if one.get("name") != gate]
        if len(remaining) == len(gates):
            raise Conflict(f"the pod no longer has the scheduling gate {gate}")
        spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
        return {**pod, "spec": {**spec, "schedulingGates": remaining} if remaining else spec}

    objects.update("Pod", namespace, name, change, now=clock.now(), user=layout.user_of(request))
    return HttpResponseRedirect(reverse("console:pod", args=(namespace, name)))


@layout.shown
def permit(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Allow or reject (``decision``) a waiting pod on behalf of a plugin (``plugin``)."""
    about = {"namespace": namespace, "name": name}
    layout.require(request, "create", "waitingpods", **_PERMIT, **about)
    plugin, decided = _posted(request, "plugin"), _posted(request, "decision")
    if decided not in ("Allow", "Reject"):
        raise BadRequest("decision: must be Allow or Reject")
    who = layout.user_of(request).name
    waiting.decide(
        namespace, name, plugin=plugin, allowed=decided == "Allow", message=f"rejected by {who}"
    )
    return HttpResponseRedirect(reverse("console:pod", args=(namespace, name)))


def _posted(request: HttpRequest, field: str) -> str:
    """Return a field of a form.

    Raises:
        BadRequest: it is missing, or the request is not a POST.
    """
    value = request.POST.get(field, "")
    if not value:
        raise BadRequest(f"{field}: send it by the button on the pod's page")
    return value
