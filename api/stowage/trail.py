"""The history of an object: ``changes`` of the group ``stowage.dev``.

``GET /apis/stowage.dev/v1/changes?kind=Pod&namespace=default&name=web-1`` answers the object's
changes in the log, the newest first; it needs the right to get the object. Conversely,
``?cause=UID`` answers which pods a plan, an approved brake or a request evicted.
"""

import uuid
from collections.abc import Iterable
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase

from api.access import auth, reach
from api.forms import errors, replies, wire
from api.kinds import own
from api.kinds.own import OwnViewSet
from api.requests import Request
from api.stowage.story import story
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import causes
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.past import consequences, provenance, trail
from clusterstate.queries.past.trail import TrailEntry

_MANY = 50
MOST = 500
MOST_GONE = 10_000
"""At most so many pods of one cause are named."""


class ChangesViewSet(OwnViewSet):
    """The changes of one object, the newest first, with their authors."""

    resource = "changes"
    kind = "Change"
    versioned = ("list",)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to get the object or, without one in the query, to list changes."""
        if "cause" in request.query_params:
            return super().wants(request)
        try:
            kind, namespace, name = _object(request)
        except BadRequest:
            return super().wants(request)
        return (Attributes("get", kind.group, kind.plural, namespace=namespace, name=name),)

    def list(self, request: Request) -> HttpResponseBase:
        """Return a ChangeList; ``continue`` leads to older changes.

        ``format=table``: the same as text for people. ``cause``: the pods that a plan, an approval
        or a request evicted, of those that the user may get.
        """
        query = request.query_params
        if "cause" in query:
            if self.revision is not None:
                raise BadRequest("at: cannot be combined with cause, which is about the present")
            return self._gone_for(query["cause"])
        form = query.get("format") or "json"
        if form not in ("json", "table"):
            raise BadRequest(f'invalid value "{form}" for format: supported values: json, table')
        kind, namespace, name = _object(request)
        (wants,) = self.wants(request)
        began = reach.beginning(self.user, wants)
        if kind.name == "Pod":
            auth.require_own_pod(self.user, namespace, name)
        limit = min(wire.integer(query.get("limit"), "limit") or _MANY, MOST)
        before = wire.integer(query.get("continue"), "continue") or 0
        found = trail.trail_of(
            kind, namespace, name, limit=limit, before=before, until=self.revision
        )
        if began is not None:
            found = trail.from_revision(found, began.revision)
        if kind.name == "Pod" and authorizer.reads_own_pods_only(self.user, namespace, name):
            present = trail.trail_of(kind, namespace, name, limit=1)
            if found.object_id != present.object_id:  # of a pod that had the name before
                raise auth.AccessDenied(self.user, wants)
        if not found.steps:
            raise NotFound(
                f'no changes of {kind.resource} "{name}" are kept',
                {"name": name, "group": kind.group, "kind": kind.plural},
            )
        document: Manifest = {
            "kind": "ChangeList",
            "apiVersion": own.API_VERSION,
            "metadata": {"continue": str(found.more)} if found.more else {},
            "complete": found.complete,
            "items": [_item(one, kind, namespace, name, self.user) for one in found.steps],
        }
        if kind.name == "Pod" and not before:
            document["preempted"] = [
                {
                    "namespace": one.namespace,
                    "name": one.name,
                    "time": format_time(one.at),
                    "resourceVersion": str(one.revision),
                }
                for one in provenance.victims_of(namespace, name, found.object_id)
                if self.revision is None or one.revision <= self.revision
                if may_see_pod(self.user, one.namespace, one.name, one.revision)
            ]
        if form == "table":
            text = story(document["items"], more=bool(found.more))
            answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
            answer["Cache-Control"] = errors.NO_CACHE
            return answer
        return replies.reply(document)

    def _gone_for(self, cause: str) -> HttpResponseBase:
        try:
            uid = str(uuid.UUID(cause))
        except ValueError:
            raise BadRequest(f'invalid value "{cause[:100]}" for cause: must be a UUID') from None
        found = provenance.gone_for(uid, limit=MOST_GONE + 1)
        items = [
            {
                "kind": "Pod",
                "namespace": one.namespace,
                "name": one.name,
                "time": format_time(one.at),
                "resourceVersion": str(one.revision),
            }
            for one in found[:MOST_GONE]
            if may_see_pod(self.user, one.namespace, one.name, one.revision)
        ]
        document: Manifest = {
            "kind": "ChangeList",
            "apiVersion": own.API_VERSION,
            "complete": len(found) <= MOST_GONE,
            "items": items,
        }
        because = wanted_by(uid, self.user)
        return replies.reply(document | ({"because": [because]} if because else {}))


def _object(request: Request) -> tuple[Kind, str, str]:
    """Return kind, namespace and name of the object in the query.

    Raises:
        BadRequest: one of them is missing, or there is no such kind.
    """
    query = request.query_params
    kind = _kind(query.get("kind", ""))
    name = query.get("name", "")
    if not name:
        raise BadRequest("name: Required value: the name of the object")
    namespace = query.get("namespace", "") if kind.namespaced else ""
    if kind.namespaced and not namespace:
        raise BadRequest(f"namespace: Required value: a {kind.name} is in a namespace")
    return kind, namespace, name


def _kind(name: str) -> Kind:
    if not name:
        raise BadRequest("kind: Required value: the kind of the object")
    if name not in KINDS:
        raise BadRequest(f'kind: Invalid value: "{name}": there is no such kind here')
    return KINDS[name]


def may_see_pod(user: User, namespace: str, name: str, revision: int) -> bool:
    """Return whether the user may see the name of a pod at a revision, such as a preemptor's.

    May query.
    """
    wants = Attributes("get", resource="pods", namespace=namespace, name=name)
    if not authorizer.decide(user, wants).allowed:
        return False
    if authorizer.reads_own_pods_only(user, namespace, name):
        return False  # whose node that pod was on is not known any more
    return reach.tells(user, wants, revision)


def _may_see_node(user: User, name: str) -> bool:
    return authorizer.decide(user, Attributes("get", resource="nodes", name=name)).allowed


def _change(step: TrailEntry) -> dict[str, Any]:
    """Return the fields that any change has as JSON, without unknown ones."""
    item: dict[str, Any] = {
        "resourceVersion": str(step.revision),
        "time": format_time(step.at),
        "type": step.verb,
        "user": {"username": step.actor} if step.actor else {},
    }
    if step.impersonator:
        item["user"]["impersonatedBy"] = step.impersonator
    if step.request and not causes.is_own(step.request):
        item["auditID"] = step.request
    if step.fields:
        item["fields"] = list(step.fields)
    return item


def _because(step: TrailEntry, kind: Kind, namespace: str, name: str, user: User) -> list[Manifest]:
    """Return the causes of a change, up to the first object that the user may not get.

    A cause is an applied plan, an approved brake, or the change to which a controller reacted.
    """
    found = [one for one in (wanted_by(step.request, user),) if one is not None]
    for cause in consequences.causes_of(step, kind, namespace, name):
        of = cause.kind
        wants = Attributes("get", of.group, of.plural, namespace=cause.namespace, name=cause.name)
        if not authorizer.decide(user, wants).allowed:
            break
        if not reach.tells(user, wants, cause.step.revision):
            break
        about = {"kind": of.name, "namespace": cause.namespace, "name": cause.name}
        found.append({key: value for key, value in about.items() if value} | _change(cause.step))
    return found


def wanted_by(cause: str, user: User) -> Manifest | None:
    """Return the plan or the approved brake behind a change, if the user may get it."""
    found = provenance.wanted_by(cause)
    if found is None:
        return None
    plural = f"{found.kind.lower()}s"
    wants = Attributes("get", own.GROUP, plural, name=found.name)
    if not authorizer.decide(user, wants).allowed:
        return None
    item: Manifest = {"kind": found.kind, "uid": found.uid}
    if found.name:
        item |= {"name": found.name, "user": {"username": found.by}}
    if found.at is not None:
        item["time"] = format_time(found.at)
    return item


def _item(step: TrailEntry, kind: Kind, namespace: str, name: str, user: User) -> Manifest:
    """Return a change as JSON for a user, without unknown fields."""
    item = _change(step)
    if step.node:
        item["nodeName"] = step.node
    if step.decision is not None:
        item["decision"] = str(step.decision)
    if step.for_pod:
        item["preemptedFor"] = {"uid": step.for_pod}
        found = provenance.preemptor_of(step.for_pod, step.revision, step.at)
        if found is not None and may_see_pod(user, found.namespace, found.name, step.revision):
            item["preemptedFor"].update(namespace=found.namespace, name=found.name)
            if found.decision:
                item["preemptedFor"]["decision"] = str(found.decision)
    if because := _because(step, kind, namespace, name, user):
        item["because"] = because
    if step.is_eviction:
        taint = provenance.taint_behind(namespace, name, step.revision, step.at)
        if taint is not None:
            whole = _may_see_node(user, taint.node_name)
            item["evictedFor"] = provenance.shown(taint, is_whole=whole)
            by = wanted_by(taint.request, user) if whole else None
            if by is not None:
                item["evictedFor"]["because"] = [by]
    return item
