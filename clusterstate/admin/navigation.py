"""The sidebar: links to the screens that the person may see, by group."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

_GROUPS = (
    (
        "Cluster",
        (
            ("Nodes", "dns", "clusterstate", "node"),
            ("Pods", "deployed_code", "clusterstate", "pod"),
            ("Evictions", "timer", "clusterstate", "eviction"),
            ("Namespaces", "folder", "clusterstate", "namespace"),
            ("Runtime classes", "memory", "clusterstate", "runtimeclass"),
            ("Priority classes", "low_priority", "clusterstate", "priorityclass"),
            ("Scheduler", "tune", "clusterstate", "schedulerconfiguration"),
        ),
    ),
    (
        "Access",
        (
            ("Users", "person", "auth", "user"),
            ("Groups", "group", "auth", "group"),
            ("API tokens", "key", "clusterstate", "apitoken"),
            ("One-time codes", "password", "clusterstate", "onetimecodes"),
            ("Failed log-ins", "lock", "axes", "accessattempt"),
            ("Audit log", "policy", "clusterstate", "auditline"),
        ),
    ),
)


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of links in Unfold's shape."""
    overview = {
        "title": "Overview",
        "icon": "dashboard",
        "link": reverse("admin:index"),
        "active": request.path == reverse("admin:index"),
    }
    result: list[dict[str, Any]] = []
    for title, entries in _GROUPS:
        items = [
            {"title": name, "icon": icon, "link": reverse(f"admin:{app}_{model}_changelist")}
            for name, icon, app, model in entries
            if may_see(request, app, model)
        ]
        result.append({"title": title, "items": items, "separator": bool(result)})
    result[0]["items"].insert(0, overview)
    return [group for group in result if group["items"]]


def may_see(request: HttpRequest, app: str, model: str) -> bool:
    """Return whether the person may view objects of a model; evictions are seen with pods."""
    model = "pod" if model == "eviction" else model
    return any(request.user.has_perm(f"{app}.{verb}_{model}") for verb in ("view", "change"))
