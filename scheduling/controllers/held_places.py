"""Reserves the new places of pods that move, before an operation evicts them.

::

    hold        creates the placeholder of a step, and checks whether it is placed
    await_turn  for a plan that limits how many pods leave in an hour
    sweep       releases places that are no longer needed; ``Sweeper`` does so from time to time

The scheduler of the pod places the placeholder, so the same rules reserve the place that predicted
it; ``clusterstate.actions.pods.places`` says how the pod's replacement gets it. A placeholder has
the pod's requests, host ports, tolerations, priority and runtime class; volumes, device claims and
affinity to other pods are not reserved.
"""

import time
from datetime import datetime, timedelta
from typing import Any, Final

from clusterstate import catalogue
from clusterstate.actions import objects, plans
from clusterstate.actions.pods.places import MOVES, find_places, release
from clusterstate.actions.pods.rewrite import rewrite_pod
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.errors import StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.planning import pods_named
from clusterstate.queries.scheduler.plans import PLACES, full_until

MOST: Final = 100
"""Places that are held at a time."""
IMAGE: Final = "registry.k8s.io/pause:3.10"
UNCLAIMED: Final = timedelta(minutes=10)
"""For so long a place waits for a replacement after its pod is gone."""
_OF_SPEC: Final = (
    "tolerations", "priorityClassName", "schedulerName", "runtimeClassName", "resources",
)  # fmt: skip
_OF_CONTAINER: Final = ("name", "restartPolicy", "resources")


class PlaceNotHeld(TooManyRequests):
    """The new place of a pod is not held yet: the pod stays until it is."""


class PlacesFull(TooManyRequests):
    """The limit of held places is reached."""


class OperationPaced(TooManyRequests):
    """As many pods left in the last hour as the plan allows; the next one may at ``until``."""

    def __init__(self, most: int, until: datetime) -> None:
        super().__init__(f"waits for its turn: at most {most} pods leave in an hour")
        self.until = until


class PlaceTaken(TooManyRequests):
    """The scheduler refuses the place: the cluster differs from the prediction."""


def hold(step: Manifest, plan_id: int, *, now: datetime) -> None:
    """Return if all places of an operation are held; else create a step's placeholder.

    Once all places are held, the pods leave one right after the other, as predicted; so rules about
    other pods judge the final state, not the states in between.

    Args:
        step: of a plan: ``namespace``, ``name``, ``uid`` of the pod, and ``place``, its new node.
        plan_id: of the operation.
        now: the time.

    Raises:
        PlaceNotHeld: the scheduler has not decided about all places of the operation yet.
        PlacesFull: there are ``MOST`` already.
        PlaceTaken: the scheduler or the node rejected the placeholder, which is deleted.
        NotFound: the pod is gone.
    """
    pod = get_manifest("Pod", step["namespace"], step["name"])
    owner = controller_of(pod)
    if owner is None:
        return  # no controller replaces it
    key = step["namespace"], step["name"]
    staying = pods_named([key]).get(key)
    if staying is None:
        return  # it left without the operation
    name = f"{owner['uid']}.{step['uid']}.{plan_id}.{staying.class_id}"
    node = step["place"]
    places = find_places()
    place = next((one for one in places if one.name == name), None)
    if place is None:
        if len(places) >= MOST:
            raise PlacesFull(f"{MOST} places are held already")
        try:
            if catalogue.fresh().namespace(PLACES) is None:
                objects.create("Namespace", "", {"metadata": {"name": PLACES}}, now=now)
            objects.create("Pod", PLACES, _placeholder(pod, name, node), now=now)
            placeholder_id = find_pod_id(PLACES, name)
            assert placeholder_id is not None
            rewrite_pod(placeholder_id, _never_preempting, now=now)
        except StatusError as error:
            raise PlaceNotHeld(f"its place on node {node} cannot be held: {error}") from error
    elif place.is_refused:
        release([name], now=now)
        raise PlaceTaken(f"there is no room for it on node {node} any more")
    elif all(one.node_name for one in places if one.plan_id == plan_id):
        return
    raise PlaceNotHeld(f"its place on node {node} is not held yet, or that of another one")


def await_turn(most: int, plan_id: int, *, now: datetime) -> None:
    """Return if another pod may leave for an operation: at most ``most`` an hour. Queries once.

    Raises:
        OperationPaced: no more may now.
    """
    until = full_until(plan_id, most, now=now)
    if until is not None:
        raise OperationPaced(most, until)


def _placeholder(pod: Manifest, name: str, node: str) -> Manifest:
    spec, meta = pod["spec"], pod["metadata"]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    return {
        "metadata": {
            "name": name,
            "annotations": {MOVES: f"{meta['namespace']}/{meta['name']}"},
        },
        "spec": {
            **{field: spec[field] for field in _OF_SPEC if field in spec},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [_container(one) for one in spec["containers"]],
            "initContainers": [_container(one) for one in spec.get("initContainers") or ()],
            "affinity": {"nodeAffinity": required},
        },
    }


def _never_preempting(placeholder: Manifest) -> Manifest:
    """Return the placeholder with preemptionPolicy ``Never``, which admission overwrote."""
    return {**placeholder, "spec": {**placeholder["spec"], "preemptionPolicy": "Never"}}


def _container(given: dict[str, Any]) -> dict[str, Any]:
    kept: Manifest = {field: given[field] for field in _OF_CONTAINER if field in given}
    if "resources" in kept:
        amounts = ("requests", "limits")
        kept["resources"] = {k: v for k, v in kept["resources"].items() if k in amounts}
    ports = [one for one in given.get("ports") or () if one.get("hostPort")]
    return {**kept, "image": IMAGE, **({"ports": ports} if ports else {})}


class Sweeper:
    """Sweeps at most once in ``EVERY`` seconds of the monotonic clock."""

    EVERY: Final = 30.0

    def __init__(self) -> None:
        self._due = 0.0

    def look(self, now: datetime) -> None:
        """Sweep, if it is time to."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self.EVERY
            sweep(now)


def sweep(now: datetime) -> int:
    """Release places that are no longer needed; return how many. Queries once if there are none.

    Places of pods that had not left when their operation ended or was paused, and places of pods
    that are gone for ``UNCLAIMED`` and were not replaced.
    """
    if catalogue.fresh().namespace(PLACES) is None:
        return 0
    found = find_places()
    at_work = plans.running() if found else ()
    ended = [
        one.name
        for one in found
        if (one.plan_id not in at_work if one.left_at is None else one.left_at + UNCLAIMED < now)
    ]
    release(ended, now=now)
    return len(ended)
