"""Evictions, read-only: pods that must leave their nodes, when and why."""

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import ReadOnlyAdmin, display
from clusterstate.admin.clock import now
from clusterstate.models import Eviction, EvictionTimer, Node, Pod

_MOST = 1000
"""The most timers in the list; there may be a million."""
_CAUSES = {"taint": "NoExecute taint", "requiredDuringExecution": "node labels"}


class CauseFilter(admin.SimpleListFilter):
    """Filters evictions by cause: taints, or labels."""

    title = "cause"
    parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice of the filter."""
        return [(cause, words.capitalize()) for cause, words in _CAUSES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Eviction]) -> QuerySet[Eviction]:
        """Return the evictions with the chosen cause."""
        if self.value() not in _CAUSES:
            return queryset
        timers = EvictionTimer.objects.filter(pod_id=OuterRef("id"), cause=self.value())
        return queryset.filter(Exists(timers))


@admin.register(Eviction)
class EvictionAdmin(ReadOnlyAdmin[Eviction]):
    """Pods with a timer, the earliest first, a thousand at most; a name links to the pod."""

    list_display = ("name", "namespace", "node", "why", "leaves", "due", "held", "lands")
    list_filter = (CauseFilter, "namespace")
    list_display_links = None
    search_fields = ("name", "node_name")
    search_help_text = f"Name of a pod or of its node. Without it, the first {_MOST:,} to leave."
    list_fullwidth = True
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Eviction]:
        """Return the pods with a timer, annotated with the columns of their earliest one.

        Without a search the list is limited to the first pods due, among those that the filters
        choose, since there may be a million; a search covers all.
        """
        timers = EvictionTimer.objects.filter(pod_id=OuterRef("id"))
        first = timers.order_by("due_at", "cause")
        node = Node.objects.filter(name=OuterRef("node_name")).values("id")[:1]
        columns = ("due_at", "cause", "taint_key", "taint_effect", "blocked_by", "landing")
        return (
            super()
            .get_queryset(request)
            .filter(self._shown(request, timers), deletion_at__isnull=True)
            .annotate(
                **{name: Subquery(first.values(name)[:1]) for name in columns},
                node_id=Subquery(node),
            )
        )

    def _shown(self, request: HttpRequest, timers: QuerySet[EvictionTimer]) -> Q:
        """Return the condition that selects the pods of the list; ``timers`` are a pod's timers."""
        if request.GET.get(SEARCH_VAR):
            return Q(Exists(timers))
        first = EvictionTimer.objects.order_by("due_at", "pod_id")
        if request.GET.get("cause") in _CAUSES:
            first = first.filter(cause=request.GET["cause"])
        if namespace := request.GET.get("namespace"):
            pod = Pod.objects.filter(id=OuterRef("pod_id"), namespace=namespace)
            first = first.filter(Exists(pod))
        return Q(id__in=first.values("pod_id")[:_MOST])

    def get_ordering(self, request: HttpRequest) -> tuple[Any, ...]:
        """Return the order by time; ``ordering`` cannot name an annotation."""
        return (F("due_at").asc(), "id")

    def has_view_permission(self, request: HttpRequest, obj: Eviction | None = None) -> bool:
        """Return whether the person may see pods: an eviction shows nothing more."""
        return request.user.has_perm("clusterstate.view_pod")

    @display(description="Pod", ordering="name")
    def name(self, pod: Any) -> SafeString:
        """Return a link to the pod."""
        return look.link(reverse("admin:clusterstate_pod_change", args=(pod.id,)), pod.name)

    @display(description="Node", ordering="node_name")
    def node(self, pod: Any) -> SafeString | str:
        """Return a link to the node, its bare name if the node is gone."""
        return look.node_link(pod.node_id, pod.node_name)

    @display(description="Why", ordering="cause")
    def why(self, pod: Any) -> str:
        """Return the taint, or that the labels no longer match."""
        if pod.cause == "taint":
            return f"taint {pod.taint_key}:{pod.taint_effect}"
        return "node labels no longer match"

    @display(description="Leaves", ordering="due_at")
    def leaves(self, pod: Any) -> str:
        """Return the seconds until the eviction, as text."""
        seconds = (pod.due_at - now()).total_seconds()
        return f"in {max(1, round(seconds))} s" if seconds > 0 else "now"

    @display(description="Due", ordering="due_at")
    def due(self, pod: Any) -> str:
        """Return the time of the eviction, in UTC."""
        return look.moment(pod.due_at)

    @display(description="Held back by")
    def held(self, pod: Any) -> str:
        """Return why an overdue pod has not been evicted: a budget, or the rate limit."""
        return pod.blocked_by or look.EMPTY

    @display(description="Would land on")
    def lands(self, pod: Any) -> str:
        """Return the predicted node, or why there is none; empty without a prediction."""
        landing = json.loads(pod.landing) if isinstance(pod.landing, str) else pod.landing
        if not landing:
            return look.EMPTY
        return landing.get("nodeName") or f"nowhere: {landing.get('message', '')}"
