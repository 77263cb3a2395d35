"""The first run: a button that creates example nodes and a pod in an empty cluster."""

from contextlib import suppress
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.page import layout
from api.console.pods import submit
from clusterstate.actions import objects
from clusterstate.objects.values.errors import AlreadyExists, BadRequest
from clusterstate.objects.values.meta import Manifest

_POD: Final = "small"


def _node(name: str, zone: str, more: dict[str, str] | None = None, **spec: Any) -> Manifest:
    offer = {"cpu": "16", "memory": "64Gi", "pods": "110", **(more or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone},
        },
        "spec": spec,
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Example"}],
        },
    }


NODES: Final = (
    _node("example-a", "a"),
    _node("example-b", "b"),
    _node("example-gpu", "a", {"nvidia.com/gpu": "4"}),
    _node(
        "example-tainted",
        "b",
        taints=[{"key": "dedicated", "value": "example", "effect": "NoSchedule"}],
    ),
)
"""Nodes without an agent, so none is reported as lost. Each example pod fits on one of them."""


@layout.shown
def examples(request: HttpRequest) -> HttpResponse:
    """Create the example nodes and a pod, and redirect to the pod's page (``POST``).

    A person who may not create pods is redirected to the map.
    """
    if request.method != "POST":
        raise BadRequest("examples need a POST: use the button on the map of an empty cluster")
    layout.require(request, "create", "nodes")
    user, now = layout.user_of(request), clock.now()
    for node in NODES:
        with suppress(AlreadyExists):
            objects.create("Node", "", node, now=now, user=user)
    if not layout.may(request, "create", "pods", namespace="default"):
        return HttpResponseRedirect(reverse("console:fleet"))
    with suppress(AlreadyExists):
        objects.create("Pod", "default", submit.EXAMPLES[_POD][1], now=now, user=user)
    return HttpResponseRedirect(reverse("console:pod", args=("default", _POD)))
