"""How the agent of a hollow node resizes a running pod, as a kubelet does.

Pure. The statuses of the pod's containers have the allocated amounts. A resize that fits is done at
once; a container whose policy requires that for a changed resource is restarted. One that does not
fit waits, with the reason in the condition ``PodResizePending``, and is tried again every second.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from clusterstate.objects.rules import resizing
from clusterstate.objects.rules.resizing import Amounts

Pod = dict[str, Any]
AGAIN: Final = 1.0
"""Seconds after which a pending resize is tried again."""


class Room(msgspec.Struct, frozen=True):
    """A node's allocatable amounts, and those allocated to its other pods."""

    offered: Amounts
    others: Amounts


def reported_resources(container: dict[str, Any], previous: dict[str, Any]) -> dict[str, Any]:
    """Return the resources in the status of a running container.

    Until the container is resized, they are those of its last status (``previous``); for a new
    container, those of its spec.
    """
    if previous.get("resources") is not None:
        fields = ("allocatedResources", "resources")
        return {name: previous[name] for name in fields if name in previous}
    return resizing.reported_resources(container.get("resources") or {})


def decide(pod: Pod, room: Callable[[], Room], now: str) -> Pod | None:
    """Return a running pod after the decision on its resize, ``None`` if nothing changes.

    ``now`` is as statuses have it. ``room`` is called only if there is a resize.
    """
    had = resizing.allocated(pod)
    if not resizing.differs(pod["spec"], had["spec"]) and not resizing.waits(pod):
        return None
    found, generation = room(), pod["metadata"].get("generation", 0)
    requested, has = resizing.amounts(pod), resizing.amounts(had)
    why = resizing.verdict(requested, has, found.others, found.offered)
    if why is None:
        decided = _restarted(resizing.carry_out(pod, generation), had, now)
    else:
        decided = resizing.hold(pod, had, why, generation, now)
    return None if decided["status"] == pod["status"] else decided


def _restarted(pod: Pod, had: Pod, now: str) -> Pod:
    """Return a resized pod; containers whose policies require it are restarted."""
    before = {one["name"]: one.get("resources") or {} for one in had["spec"]["containers"]}
    names = {
        one["name"]
        for one in pod["spec"]["containers"]
        if _must_restart(one, before.get(one["name"], {}))
    }
    if not names:
        return pod
    statuses = []
    for one in pod["status"].get("containerStatuses") or ():
        running, again = (one.get("state") or {}).get("running"), {}
        if one["name"] in names and running is not None:
            ended = {
                "exitCode": 143, "reason": "Error", "startedAt": running.get("startedAt") or now,
                "finishedAt": now,
            }  # fmt: skip
            again = {"restartCount": (one.get("restartCount") or 0) + 1}
            again |= {"lastState": {"terminated": ended}, "state": {"running": {"startedAt": now}}}
        statuses.append({**one, **again})
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}


def _must_restart(container: dict[str, Any], before: dict[str, Any]) -> bool:
    resources = container.get("resources") or {}
    changed = {
        name
        for part in ("requests", "limits")
        for name in {**(resources.get(part) or {}), **(before.get(part) or {})}
        if (resources.get(part) or {}).get(name) != (before.get(part) or {}).get(name)
    }
    return any(
        one.get("resourceName") in changed and one.get("restartPolicy") == "RestartContainer"
        for one in container.get("resizePolicy") or ()
    )
