"""Direct eviction and deletion of pods, for users who may not create plans.

A plan names pods of every namespace, so it needs the right to list pods in all of them. A user with
rights in one namespace sees the pods to evict, without their future nodes; the page says so.
Confirming evicts or deletes exactly the pods that were shown, at once.
"""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.page import layout
from api.console.plans import plan_forms
from clusterstate.actions import objects
from clusterstate.actions.pods.evict import evict_on_request
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest


def concerns(changes: Sequence[Manifest]) -> bool:
    """Return whether all changes are evictions or deletions of named pods."""
    return all(list(change) == [plan_forms.EVICT] for change in changes)


def page(
    request: HttpRequest, changes: Sequence[Manifest], no_preview: dict[str, Any] | None = None
) -> HttpResponse:
    """Show the pods to evict; on ``POST`` evict those with the uids in ``seen``.

    ``no_preview``: for users who may create plans, the text of ``_preview.html`` about it.
    """
    pods = [
        (one, entry) for change in changes for entry in change.values() for one in entry["pods"]
    ]
    shown = []
    for title, entry in pods:
        namespace, _, name = title.partition("/")
        if not namespace or not name:
            raise BadRequest("pod: name pods as namespace/name")
        about = {"namespace": namespace, "name": name}
        if entry.get("disableEviction"):
            layout.require(request, "delete", "pods", **about)
        else:
            layout.require(request, "create", "pods", subresource="eviction", **about)
        layout.require(request, "get", "pods", **about)
        shown.append((get_manifest("Pod", namespace, name), entry))
    differs = False
    failed: list[tuple[str, str]] = []
    if request.method == "POST":
        differs = request.POST.getlist("seen") != [one["metadata"]["uid"] for one, _ in shown]
        if not differs:
            failed = [one for pod, entry in shown if (one := _let_go(request, pod, entry))]
            if not failed:
                return HttpResponseRedirect(reverse("console:pods"))
    context = {
        **(no_preview or {}),
        "pods": [one for one, _ in shown],
        "differs": differs,
        "failed": failed,
        "kubectl": plan_forms.kubectl(changes),
    }
    title = plan_forms.in_words(changes)
    return layout.page(request, "unforetold.html", title, context, status=409 if differs else 200)


def _let_go(request: HttpRequest, pod: Manifest, entry: Manifest) -> tuple[str, str] | None:
    """Evict or delete a pod; return its name and the error, None after success."""
    metadata = pod["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    options: Manifest = {"preconditions": {"uid": metadata["uid"]}}
    if "gracePeriodSeconds" in entry:
        options["gracePeriodSeconds"] = entry["gracePeriodSeconds"]
    user, now = layout.user_of(request), clock.now()
    try:
        if entry.get("disableEviction"):
            objects.delete("Pod", namespace, name, options, now=now, user=user)
        else:
            evict_on_request(namespace, name, options, now=now, user=user)
    except StatusError as error:
        return f"{namespace}/{name}", error.message
    return None
