"""Pods: the node of each, or why it is pending. Read-only, except for deletions."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from django.contrib import admin
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import PreviewedAdmin, display, preview
from clusterstate.admin.clock import now
from clusterstate.models import Node, Pod
from clusterstate.objects.rules import resources
from clusterstate.objects.values.pod import Pod as PodObject
from clusterstate.queries.objects import find_object

_COLOURS = {
    "Running": "success",
    "Succeeded": "success",
    "Scheduled": "info",
    "Pending": "warning",
    "SchedulingGated": "warning",
    "Failed": "danger",
    "Terminating": "danger",
}
_STAGES = {
    "active": "the scheduler tries it next",
    "backoff": "waits before the next try",
    "unschedulable": "waits for a change in the cluster",
    "gated": "a plugin keeps it from being tried",
    "inflight": "has a node, waits for a Permit plugin",
}


class PlacementFilter(admin.SimpleListFilter):
    """Filters pods by whether they are on a node."""

    title = "placement"
    parameter_name = "placement"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice of the filter."""
        return [("waiting", "Waiting"), ("refused", "Tried and refused"), ("placed", "On a node")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Pod]) -> QuerySet[Pod]:
        """Return the pods with, or without, a node."""
        if self.value() == "waiting":
            return queryset.filter(pendingpod__isnull=False)
        if self.value() == "refused":
            return queryset.filter(pendingpod__isnull=False, unschedulable__isnull=False)
        if self.value() == "placed":
            return queryset.exclude(node_name="")
        return queryset


@admin.register(Pod)
class PodAdmin(PreviewedAdmin[Pod]):
    """The pod list and a pod's document."""

    list_display = (
        "name", "namespace", "state", "node", "reason", "attempt_number", "next_try", "priority",
        "created",
    )  # fmt: skip
    list_filter = (PlacementFilter, "phase", "namespace", "scheduler_name")
    search_fields = ("name", "node_name")
    search_help_text = "Name of a pod or of its node, or label=value"
    label_column = "scheduling_class__labels"
    ordering = ("-id",)
    list_fullwidth = True
    fields = readonly_fields = (
        "name", "namespace", "state", "node", "reason", "queue", "rejected_by", "attempt_number",
        "next_try", "priority", "scheduler_name", "control_group", "created", "manifest",
    )  # fmt: skip
    nobody_may = frozenset({"add", "change"})  # pods come, and are changed, by the API

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pod]:
        """Return pods with their entry in the queue and the id of their node's row."""
        node = Node.objects.filter(name=OuterRef("node_name")).values("id")[:1]
        return (
            super()
            .get_queryset(request)
            .annotate(
                stage=F("pendingpod__stage"),
                attempts=F("pendingpod__attempts"),
                not_before=F("pendingpod__not_before"),
                refused_by=F("pendingpod__rejected_by"),
                waiting=F("pendingpod__message"),
                node_id=Subquery(node),
            )
        )

    @display(description="Status", ordering="phase")
    def state(self, pod: Any) -> SafeString:
        """Return the phase, or Terminating, SchedulingGated or Scheduled."""
        if pod.deletion_at is not None:
            word = "Terminating"
        elif pod.stage == "gated" and '"SchedulingGated"' in (pod.unschedulable or ""):
            word = "SchedulingGated"
        elif pod.phase == "Pending" and pod.node_name:
            word = "Scheduled"
        else:
            word = pod.phase
        return look.badge(word, _COLOURS.get(word, ""))

    @display(description="Node", ordering="node_name")
    def node(self, pod: Any) -> SafeString | str:
        """Return a link to the node."""
        return look.node_link(pod.node_id, pod.node_name)

    @display(description="Why it waits")
    def reason(self, pod: Any) -> str:
        """Return the scheduler's message for a pod that could not be placed."""
        if pod.stage is None:
            return look.EMPTY
        if pod.unschedulable is not None:
            return str(json.loads(pod.unschedulable).get("message") or pod.waiting or look.EMPTY)
        return str(pod.waiting or look.EMPTY)

    @display(description="In the queue")
    def queue(self, pod: Any) -> str:
        """Return the pod's stage in the queue, in words."""
        return _STAGES.get(pod.stage, look.EMPTY)

    @display(description="Refused by")
    def rejected_by(self, pod: Any) -> str:
        """Return the plugins that rejected the pod last."""
        return ", ".join(pod.refused_by or ()) or look.EMPTY

    @display(description="Attempts", ordering="attempts")
    def attempt_number(self, pod: Any) -> str:
        """Return the number of scheduling attempts."""
        return look.EMPTY if pod.attempts is None else str(pod.attempts)

    @display(description="Next try", ordering="not_before")
    def next_try(self, pod: Any) -> str:
        """Return when the pod is tried again: now, in some seconds, or on a change."""
        if pod.stage == "active":
            return "now"
        if pod.stage == "backoff" and pod.not_before is not None:
            seconds = (pod.not_before - now()).total_seconds()
            return f"in {max(1, round(seconds))} s" if seconds > 0 else "now"
        if pod.stage == "unschedulable":
            return "on a change"
        return look.EMPTY

    @display(description="On its node")
    def control_group(self, pod: Pod) -> str:
        """Return the cgroup limits that the kubelet sets for the pod, overhead included (R146)."""
        found = find_object("Pod", pod.namespace, pod.name)
        if found is None:
            return look.EMPTY
        group = resources.control_group(msgspec.json.decode(found, type=PodObject))
        memory = "no limit" if group.memory_bytes is None else f"{group.memory_bytes} bytes"
        quota = (
            ""
            if group.cpu_quota_us is None
            else f", {group.cpu_quota_us} us of CPU in each 100000 us"
        )
        return f"memory: {memory}; cpu: {group.cpu_shares} shares{quota}"

    @display(description="Manifest")
    def manifest(self, pod: Pod) -> SafeString | str:
        """Return the document as YAML."""
        return look.document(find_object("Pod", pod.namespace, pod.name))

    def preview_of(self, do: str, rows: Iterable[Pod]) -> HttpResponseRedirect:
        """Redirect to the console's preview of a deletion of these pods."""
        return preview(f"{do}-pod", *(("pod", f"{pod.namespace}/{pod.name}") for pod in rows))
