"""Pending evictions, with due times and causes: ``evictions`` of the group ``stowage.dev``.

An eviction here is a timer: read-only, named after its pod. ``kubectl get evictions -A`` prints
them, the earliest first. (Posting a ``policy/v1`` Eviction to a pod is different: it takes effect
at once.)
"""

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from rest_framework.response import Response

from api import clock
from api.forms import renderers, replies, wire
from api.forms.pagination import ContinuePagination, Page
from api.forms.replies import MadeManifests
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.actions.agents import usage
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.document import format_micro_time, format_time
from clusterstate.objects.values.errors import BadRequest, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions.brakes import held_back
from clusterstate.queries.evictions.eviction_timers import TAINT, Timer, waiting_timers
from clusterstate.queries.loops.controllers import stored_state
from clusterstate.queries.nodes.usage import usage_of
from clusterstate.queries.objects import get_object
from scheduling.answers import advisor
from scheduling.answers.zones import zones_at

KIND = Kind(name="Eviction", group=GROUP)
_SELECTABLE = ("metadata.namespace", "metadata.name", "spec.nodeName")


class EvictionsPagination(ContinuePagination):
    """Pages of timers, of which there may be a million."""

    most = 10_000


class EvictionListViewSet(OwnViewSet):
    """Lists of timers: all, or those of a namespace, a node or a pod."""

    kind = "Eviction"
    resource = KIND.plural
    no_past = "a timer is deleted once it fired or is cancelled; the pod's changes say which"
    is_namespaced = True
    renderer_classes = renderers.OF_OBJECTS
    pagination_class = EvictionsPagination

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to read timers; a node or pod in the path only selects."""
        return (
            Attributes(
                verb="get" if self.action == "retrieve" else "list",
                group=GROUP,
                resource=KIND.plural,
                namespace=self.kwargs.get("namespace", ""),
                name=self.kwargs.get("name", ""),
            ),
        )

    def list(
        self, request: Request, namespace: str = "", node: str = "", pod: str = ""
    ) -> Response:
        """Return an EvictionList, the earliest first."""
        if node:
            get_object("Node", "", node)
        if pod:
            get_object("Pod", namespace, pod)
        chosen = _fields(request.query_params.get("fieldSelector", ""))
        revision = changes.watermark()

        def read(limit: int | None, token: str) -> Page[Timer]:
            assert limit is not None
            found = waiting_timers(
                namespace=namespace or chosen.get("metadata.namespace", ""),
                name=pod or chosen.get("metadata.name", ""),
                node_name=node or chosen.get("spec.nodeName", ""),
                after=_read_token(token),
                limit=limit + 1,
                held=held_back(clock.now()),
            )
            if len(found) <= limit:
                return Page(found, revision)
            return Page(found[:limit], revision, _write_token(found[limit - 1]))

        paginator = self.pagination_class()
        items = [manifest(timer) for timer in paginator.paginate_queryset(read, request, self)]
        return replies.reply(MadeManifests(KIND, items, paginator.metadata))


class EvictionsViewSet(EvictionListViewSet):
    """The timers of a namespace, and that of a pod by its name."""

    asks = True

    def retrieve(self, request: Request, namespace: str, name: str) -> Response:
        """Return an Eviction; ``landing=true`` adds where its pod would go if created again now."""
        lands = wire.boolean(request.query_params.get("landing"), "landing")
        revision = changes.watermark()
        held = held_back(clock.now())
        found = waiting_timers(namespace=namespace, name=name, limit=1, held=held)
        if not found:
            raise NotFound(
                f'{KIND.resource} "{name}" not found',
                {"name": name, "group": GROUP, "kind": KIND.plural},
            )
        item = manifest(found[0])
        if lands:
            item["status"]["landing"] = _landing(namespace, name)
        return replies.reply(
            MadeManifests(KIND, [item], {"resourceVersion": str(revision)}, alone=True)
        )


def _landing(namespace: str, name: str) -> Manifest:
    """Return the node of a copy of the pod created now (``nodeName``), or why there is none."""
    found: Manifest
    (found,) = advisor.ask("landings", [(namespace, name)])
    return found


def manifest(timer: Timer) -> Manifest:
    """Return a timer as in the API."""
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
    status: dict[str, Any] = {
        "startedAt": format_micro_time(timer.started_at),
        "dueAt": format_micro_time(timer.due_at),
    }
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


class UsageViewSet(OwnViewSet):
    """Usage of a node and its pods: the node's agent reports it with PUT; GET reads it (R135).

    An agent may report and read its own node's, other users what their roles allow.
    """

    kind = "NodeUsage"
    resource, subresource, owner = "nodes", "usage", "node"
    is_single = True

    def retrieve(self, request: Request, node: str) -> Response:
        """Return the last report with its conclusions: pressures and next victims."""
        get_object("Node", "", node)
        return replies.reply(_usage_manifest(node))

    def update(self, request: Request, node: str) -> Response:
        """Store a report; the body's ``usage`` is that of ``Report``."""
        body = request.data
        report = body.get("usage") if isinstance(body, dict) else None
        usage.report(node, report if isinstance(report, dict) else {}, now=clock.now())
        return replies.reply(_usage_manifest(node))


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
        result["status"]["reportedAt"] = format_micro_time(found.reported_at)
    return result


class ZonesViewSet(OwnViewSet):
    """The states of the zones, and the rates at which their nodes may be tainted (R129)."""

    kind = "Zone"
    group, resource = "", "nodes"
    versioned = ("list",)

    def list(self, request: Request) -> Response:
        """Return a ZoneList: state, taints per second, and how many may be set at once.

        For a past moment: computed from the nodes of that time, without the last number.
        """
        then = self.revision
        zones: dict[str, Manifest]
        if then is None:
            stored = stored_state("node-lifecycle")
            waiting = stored.get("waiting", [])
            zones = {
                name: {
                    "state": zone["state"],
                    "taintsPerSecond": zone["rate"],
                    "tokens": round(zone["tokens"], 3),
                }
                for name, zone in stored.get("zones", {}).items()
            }
        else:
            found = zones_at(then)
            waiting = found.waiting
            zones = {
                name: {"state": state, "taintsPerSecond": rate}
                for name, (state, rate) in found.zones.items()
            }
        document = {
            "kind": "ZoneList",
            "apiVersion": KIND.api_version,
            "metadata": replies.list_metadata(changes.watermark() if then is None else then),
            "items": [
                {"metadata": {"name": name}, "status": status}
                for name, status in sorted(zones.items())
            ],
            "waitingNodes": waiting,
        }
        return replies.reply(document)
