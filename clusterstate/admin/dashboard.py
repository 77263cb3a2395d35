"""The first page: numbers of nodes and pods, the longest-pending pods, and the cluster's use."""

from typing import Any

from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.urls import reverse

from clusterstate.admin import look
from clusterstate.admin.navigation import may_see
from clusterstate.models import Node, PendingPod, Pod, Taint

_SHOWN = 8
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes that are not ready, or whose agents are silent."""


def context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the page's context with the figures that the person may see. Queries six times."""
    if may_see(request, "clusterstate", "node"):
        context |= {"node_cards": _nodes(), "use": _use()}
    if may_see(request, "clusterstate", "pod"):
        context |= {"pod_cards": _pods(), "waiting": _waiting()}
    return context


def _card(title: str, value: int, model: str, choice: str = "") -> dict[str, Any]:
    target = reverse(f"admin:clusterstate_{model}_changelist")
    return {"title": title, "value": value, "href": f"{target}?{choice}" if choice else target}


def _nodes() -> list[dict[str, Any]]:
    found = Node.objects.aggregate(
        total=Count("id"), cordoned=Count("id", filter=Q(unschedulable=True))
    )
    lost = Taint.objects.filter(key__in=_LOST).values("node_id").distinct().count()
    return [
        _card("Nodes", found["total"], "node"),
        {
            "title": "Nodes not ready",
            "value": lost,
            "href": f"{reverse('console:nodes')}?q=is:notready",
        },
        _card("Cordoned nodes", found["cordoned"], "node", "cordoned=yes"),
    ]


def _pods() -> list[dict[str, Any]]:
    placed = Pod.objects.filter(~Q(node_name="")).count()
    return [
        _card("Pods on a node", placed, "pod", "placement=placed"),
        _card("Pods waiting", PendingPod.objects.count(), "pod", "placement=waiting"),
    ]


def _use() -> list[dict[str, Any]]:
    """Return requests of bound, unfinished pods over nodes' allocatable: text and percentage."""
    offered = Node.objects.aggregate(cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"))
    demand = Pod.objects.filter(~Q(node_name=""), ~Q(phase__in=("Succeeded", "Failed"))).aggregate(
        cpu=Sum("scheduling_class__cpu_milli"), memory=Sum("scheduling_class__memory_bytes")
    )
    result = []
    for title, name, text, unit in (
        ("CPU", "cpu", look.cpu, " cores"),
        ("Memory", "memory", look.memory, ""),
    ):
        used, of = int(demand[name] or 0), int(offered[name] or 0)
        result.append(
            {
                "title": title,
                "text": f"{text(used)} of {text(of)}{unit}",
                "percent": str(round(100 * used / of) if of else 0),
            }
        )
    return result


def _waiting() -> list[dict[str, Any]]:
    """Return the pods that have been pending longest."""
    found = PendingPod.objects.select_related("pod").order_by("since", "pod_id")[:_SHOWN]
    return [
        {
            "href": reverse("admin:clusterstate_pod_change", args=(entry.pod_id,)),
            "name": str(entry.pod),
            "since": look.moment(entry.since),
            "attempts": entry.attempts,
            "message": entry.message or look.EMPTY,
        }
        for entry in found
    ]
