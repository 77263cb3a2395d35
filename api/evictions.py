"""Who must leave which node, when and why: ``evictions`` of the group ``stowage.dev``.

An eviction here is a timer: read-only, named after its pod. ``kubectl get evictions -A`` prints
them, the earliest first. (Posting a ``policy/v1`` Eviction to a pod is another thing; that one is
carried out at once.)
"""

import base64
import binascii
from datetime import datetime
from typing import Any

import msgspec
from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, clock, negotiation, replies, tables, wire
from api.views import StatusView
from clusterstate import changes
from clusterstate.access.rules import Attributes
from clusterstate.actions import usage
from clusterstate.objects.document import format_time
from clusterstate.objects.errors import BadRequest, NotFound
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest
from clusterstate.queries.controllers import controller_state
from clusterstate.queries.eviction_timers import TAINT, Timer, waiting_timers
from clusterstate.queries.objects import get_object
from clusterstate.queries.usage import usage_of

GROUP = "stowage.dev"
KIND = Kind(
    name="Eviction",
    group=GROUP,
    plural="evictions",
    singular="eviction",
    wire_type=msgspec.Struct,
)
_MOST = 10_000
"""Timers in one answer; there may be a million, and the token leads to the rest."""
_SELECTABLE = ("metadata.namespace", "metadata.name", "spec.nodeName")


class EvictionsView(StatusView):
    """Lists of timers: all, of a namespace, of a node, of a pod; and a pod's own by its name."""

    http_method_names = ["get"]

    def get(
        self, request: Request, namespace: str = "", node: str = "", pod: str = "", name: str = ""
    ) -> HttpResponse:
        """Return an EvictionList or an Eviction, as JSON or as a Table."""
        auth.require(
            self.user,
            Attributes(
                verb="get" if name else "list",
                group=GROUP,
                resource=KIND.plural,
                namespace=namespace,
                name=name,
            ),
        )
        if node:
            get_object("Node", "", node)
        if pod:
            get_object("Pod", namespace, pod)
        query = request.query_params
        chosen = _fields(query.get("fieldSelector", ""))
        limit = min(wire.integer(query.get("limit"), "limit") or _MOST, _MOST)
        revision = changes.watermark()
        found = waiting_timers(
            namespace=namespace or chosen.get("metadata.namespace", ""),
            name=name or pod or chosen.get("metadata.name", ""),
            node_name=node or chosen.get("spec.nodeName", ""),
            after=_read_token(query.get("continue", "")),
            limit=limit + 1,
        )
        table = negotiation.form(request.META.get("HTTP_ACCEPT", "")) == negotiation.TABLE
        include = replies.include_object(query.get("includeObject"))
        now = clock.now()
        if name:
            if not found:
                raise NotFound(
                    f'{KIND.resource} "{name}" not found',
                    {"name": name, "group": GROUP, "kind": KIND.plural},
                )
            item = manifest(found[0])
            if wire.boolean(query.get("landing"), "landing"):
                item["status"]["landing"] = _landing(namespace, name)
            if table:
                shown = tables.table(
                    KIND, [item], {"resourceVersion": str(revision)}, now=now, include=include
                )
                return replies.reply(replies.encode(shown))
            return self._plain(request, item)
        token = ""
        if len(found) > limit:
            found = found[:limit]
            token = _write_token(found[-1])
        metadata = replies.list_metadata(revision, token)
        items = [manifest(timer) for timer in found]
        if table:
            shown = tables.table(KIND, items, metadata, now=now, include=include)
            return replies.reply(replies.encode(shown))
        document = {
            "kind": KIND.list_kind,
            "apiVersion": KIND.api_version,
            "metadata": metadata,
            "items": items,
        }
        return self._plain(request, document)

    def _plain(self, request: Request, document: Manifest) -> HttpResponse:
        body = replies.encode(document)
        if wire.boolean(request.query_params.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body)


def _landing(namespace: str, name: str) -> Manifest:
    """Return where the pod would go if it came again now: ``nodeName``, or why nowhere."""
    from scheduling.answers import questions

    (found,) = questions.landings([(namespace, name)])
    return found


def manifest(timer: Timer) -> Manifest:
    """Return a timer as clients read it."""
    spec: dict[str, Any] = {
        "nodeName": timer.node_name,
        "podUID": timer.pod_uid,
        "cause": timer.cause,
    }
    if timer.cause == TAINT:
        taint = {"key": timer.taint_key, "effect": timer.taint_effect}
        if timer.taint_value:
            taint["value"] = timer.taint_value
        spec["taint"] = taint
        spec["tolerationSeconds"] = timer.seconds
    elif timer.seconds:
        spec["graceSeconds"] = timer.seconds
    status: dict[str, Any] = {"startedAt": _micro(timer.started_at), "dueAt": _micro(timer.due_at)}
    if timer.blocked_by:
        status["blockedBy"] = timer.blocked_by
    if timer.landing is not None:
        status["landing"] = msgspec.json.decode(timer.landing)
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.name,
        "metadata": {
            "name": timer.name,
            "namespace": timer.namespace,
            "uid": timer.pod_uid,
            "creationTimestamp": format_time(timer.started_at),
        },
        "spec": spec,
        "status": status,
    }


def _micro(moment: datetime) -> str:
    """Return RFC 3339 with microseconds, as ``metav1.MicroTime`` is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fields(selector: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in filter(None, selector.split(",")):
        path, sign, value = part.partition("==" if "==" in part else "=")
        if not sign or path.endswith("!") or path not in _SELECTABLE:
            raise BadRequest(f"field label not supported: {path.rstrip('!')}")
        chosen[path] = value
    return chosen


def _write_token(timer: Timer) -> str:
    position = [timer.due_at.isoformat(), timer.pod_id]
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


def _read_token(token: str) -> tuple[datetime, int] | None:
    if not token:
        return None
    try:
        due, pod_id = msgspec.json.decode(
            base64.urlsafe_b64decode(token.encode()), type=tuple[datetime, int]
        )
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("continue key is not valid: it was not given out by this server") from None
    return due, pod_id


class UsageView(StatusView):
    """What a node's agent says that node and pods use: reported with PUT, read with GET (R135)."""

    http_method_names = ["get", "put"]

    def get(self, request: Request, node: str) -> HttpResponse:
        """Return the last report with what was concluded from it: pressures and next victims."""
        self._require("get", node)
        get_object("Node", "", node)
        return replies.reply(replies.encode(_usage_manifest(node)))

    def put(self, request: Request, node: str) -> HttpResponse:
        """Keep a report; the body's ``usage`` is that of ``Report``."""
        self._require("update", node)
        body = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
        given = body.get("usage") if isinstance(body, dict) else None
        usage.report(node, given if isinstance(given, dict) else {}, now=clock.now())
        return replies.reply(replies.encode(_usage_manifest(node)))

    def _require(self, verb: str, node: str) -> None:
        """Allow a node its own report, and others what their roles allow."""
        wants = Attributes(verb=verb, group=GROUP, resource="nodes", subresource="usage", name=node)
        auth.require(self.user, wants)


def _usage_manifest(node: str) -> Manifest:
    found = usage_of(node)
    result: Manifest = {
        "apiVersion": KIND.api_version,
        "kind": "NodeUsage",
        "metadata": {"name": node},
        "usage": {},
        "status": {"pressures": {}, "victims": []},
    }
    if found is not None:
        result["usage"] = msgspec.to_builtins(found.usage)
        result["status"] = {**result["status"], **found.outcome}
        result["status"]["reportedAt"] = _micro(found.reported_at)
    return result


class ZonesView(StatusView):
    """How the zones are, and how fast nodes in them may be tainted (R129)."""

    http_method_names = ["get"]

    def get(self, request: Request) -> HttpResponse:
        """Return a ZoneList: state, taints per second, and how many are left at once."""
        auth.require(self.user, Attributes(verb="list", resource="nodes"))
        kept = controller_state("node-lifecycle")
        items = [
            {
                "metadata": {"name": name},
                "status": {
                    "state": zone["state"],
                    "taintsPerSecond": zone["rate"],
                    "tokens": round(zone["tokens"], 3),
                },
            }
            for name, zone in sorted(kept.get("zones", {}).items())
        ]
        document = {
            "kind": "ZoneList",
            "apiVersion": KIND.api_version,
            "metadata": {"resourceVersion": str(changes.watermark())},
            "items": items,
            "waitingNodes": kept.get("waiting", []),
        }
        return replies.reply(replies.encode(document))
