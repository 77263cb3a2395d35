"""Reserves the new places of pods that move, before an operation evicts them.

::

    Places      creates the placeholders of an operation's steps, and checks whether they are placed
    await_turn  for a plan that limits how many pods leave in an hour
    sweep       releases places that are no longer needed; ``Sweeper`` says when it is time to

The scheduler of the pod places the placeholder, so the same rules reserve the place that predicted
it; ``clusterstate.actions.pods.places`` says how the pod's replacement gets it. A placeholder has
the pod's requests, host ports, tolerations, priority and runtime class. Its rules about other pods
and its volumes are not reserved: the prediction has shown that the place keeps them in whatever
order the pods of the plan leave (``answers.plan_holding``), so a pod with such rules moves only
while no other operation moves pods to places.
"""

import time
from datetime import datetime, timedelta
from typing import Any, Final

from clusterstate import catalogue
from clusterstate.actions import objects, plans
from clusterstate.actions.pods.places import (
    HELD,
    MOVES,
    Place,
    are_held_for_others,
    find_places,
    keep,
    may_be_held,
    release,
)
from clusterstate.actions.pods.rewrite import rewrite_pod
from clusterstate.change_log import changes
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.errors import StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.pods import find_pod_id, leaving_together
from clusterstate.queries.scheduler.planning import pods_named
from clusterstate.queries.scheduler.plans import PLACES, full_until, other_mover

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


class NodeHasPlaces(TooManyRequests):
    """A step would change a node on which another operation holds a place: the step waits."""


class PlaceTaken(TooManyRequests):
    """The scheduler refuses the place: the cluster differs from the prediction."""


class Places:
    """Reads an operation's held places once for a batch of steps, and creates more."""

    def __init__(self, plan_id: int) -> None:
        self._plan_id = plan_id
        self._by_pod: dict[str, Place] | None = None
        """By the uid of the moving pod."""
        self._refusal = ""
        self._other: tuple[str, bool] | None = None

    def read(self, now: datetime) -> None:
        """Read the places, and let pods that are created ask for them. Queries only the first time.

        To be called outside a transaction: it locks admission's catalogue, before any row.
        """
        if self._by_pod is None:
            try:
                _mark(catalogue.fresh(), now, held=True)
            except StatusError as error:
                self._refusal = f"no room can be reserved: {error}"
            self._by_pod = {one.uid: one for one in find_places()}
            self._other = other_mover(self._plan_id)

    def hold(self, step: Manifest, *, now: datetime) -> None:
        """Return if all places of the operation are held; else create a step's placeholder.

        Once all places are held, the pods leave one right after the other, as predicted; so rules
        about other pods judge the final state, not the states in between. If several operations
        would move a pod, one of them holds a place for it. Queries up to three times if the pod has
        a place.

        Args:
            step: of the plan: ``namespace``, ``name``, ``uid`` of the pod, and ``place``, its node.
            now: the time.

        Raises:
            PlaceNotHeld: the scheduler has not decided about all places of the operation yet, or
                another operation holds one for the pod, or must move its pods alone.
            PlacesFull: there are ``MOST`` already.
            PlaceTaken: the scheduler or the node rejected the placeholder, which is deleted; or
                another operation moved pods, and rules of this one's are about other pods.
            NotFound: the pod is gone.
        """
        assert self._by_pod is not None
        if self._refusal:
            raise PlaceNotHeld(self._refusal)
        if self._other is not None:
            other, is_stale = self._other
            if is_stale:
                raise PlaceTaken(
                    f"plan {other} moves pods too, and rules of this one's pods are about other"
                    " pods: make it again after that one"
                )
            raise PlaceNotHeld(f"waits for the end of plan {other}")
        node, place = step["place"], self._by_pod.get(step["uid"])
        if place is None:
            if not self._make(step, now):
                return
        elif place.plan_id != self._plan_id:
            raise PlaceNotHeld("another plan has reserved room for this pod's replacement")
        elif place.is_refused:
            release([place.name], now=now)
            raise PlaceTaken(f"there is no room for the replacement pod on node {node} any more")
        elif self._are_placed():
            if lacking := sorted(_together(step) - self._placed()):
                raise PlaceNotHeld(f"no room is reserved for {lacking[0]}, which leaves with it")
            if keep(place.name):
                return
        raise PlaceNotHeld(f"room on node {node} and other nodes is not completely reserved yet")

    def _placed(self) -> set[str]:
        """Return the titles of the operation's pods whose places are held."""
        assert self._by_pod is not None
        found = self._by_pod.values()
        return {one.mover for one in found if one.plan_id == self._plan_id and one.node_name}

    def _are_placed(self) -> bool:
        assert self._by_pod is not None
        mine = (one for one in self._by_pod.values() if one.plan_id == self._plan_id)
        return all(one.node_name for one in mine)

    def _make(self, step: Manifest, now: datetime) -> bool:
        """Create a step's placeholder; false if the pod left or no controller replaces it."""
        assert self._by_pod is not None
        pod = get_manifest("Pod", step["namespace"], step["name"])
        key = step["namespace"], step["name"]
        owner, staying = controller_of(pod), pods_named([key]).get(key)
        if owner is None or staying is None:
            return False
        if len(self._by_pod) >= MOST:
            raise PlacesFull(f"room is reserved for {MOST} pods, which is the most at a time")
        made = Place(
            name=f"{owner['uid']}.{step['uid']}.{self._plan_id}.{staying.class_id}",
            owner=str(owner["uid"]), uid=step["uid"], plan_id=self._plan_id,
            class_id=staying.class_id, node_name="", is_refused=False, mover="/".join(key),
            left_at=None,
        )  # fmt: skip
        try:
            objects.create("Pod", PLACES, _placeholder(pod, made.name, step["place"]), now=now)
            placeholder_id = find_pod_id(PLACES, made.name)
            assert placeholder_id is not None
            rewrite_pod(placeholder_id, _never_preempting, now=now)
            changes.note_atomic()  # else a scheduler may see it before that
        except StatusError as error:
            text = f"room on node {step['place']} cannot be reserved: {error}"
            raise PlaceNotHeld(text) from error
        self._by_pod[made.uid] = made
        return True


def _mark(context: catalogue.Catalogue, now: datetime, *, held: bool) -> None:
    """Set or remove the namespace's annotation that places are held. Queries only if it differs."""

    def marked(namespace: Manifest) -> Manifest:
        metadata = namespace["metadata"]
        others = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != HELD}
        notes = {**others, HELD: "held"} if held else others
        return {**namespace, "metadata": {**metadata, "annotations": notes}}

    if context.namespace(PLACES) is None:
        objects.create("Namespace", "", marked({"metadata": {"name": PLACES}}), now=now)
    elif may_be_held(context) != held:
        objects.update("Namespace", "", PLACES, marked, now=now)


def _together(step: Manifest) -> set[str]:
    """Return the titles of the pods that leave with that of a step. Queries twice at most."""
    namespace, name = step["namespace"], step["name"]
    pod_id = find_pod_id(namespace, name)
    groups = leaving_together([pod_id]) if pod_id is not None else []
    names = {name, *(one for group in groups for one in group.pods.values())}
    return {f"{namespace}/{one}" for one in names}


def await_node(node: str, plan_id: int) -> None:
    """Return if an operation may change or delete a node. Queries up to four times.

    Raises:
        NodeHasPlaces: the replacement of a pod that another operation moves may not fit any more.
    """
    if are_held_for_others(node, plan_id):
        raise NodeHasPlaces("waits for replacements for which another plan has reserved room there")


def await_turn(step: Manifest, plan_id: int, *, now: datetime) -> None:
    """Return if the pod of a step may leave for an operation: so many do in an hour.

    With its group, if they leave together: a larger one leaves when none left in the last hour.
    Queries thrice at most.

    Raises:
        OperationPaced: no more may now.
    """
    most: int = step["podsPerHour"]
    until = full_until(plan_id, max(most + 1 - len(_together(step)), 1), now=now)
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
    """Makes a sweep due once in ``EVERY`` seconds of the monotonic clock."""

    EVERY: Final = 30.0

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self) -> bool:
        """Return whether a sweep is due; if so, the next is due ``EVERY`` seconds later."""
        now = time.monotonic()
        is_due = now >= self._due
        if is_due:
            self._due = now + self.EVERY
        return is_due


def sweep(now: datetime) -> int:
    """Release places that are no longer needed; return how many. Queries once if there are none.

    Places of pods that had not left when their operation ended or was paused, and places of pods
    that are gone for ``UNCLAIMED`` and were not replaced. Once there is none, creations of pods
    look for none any more. The caller holds the lock of operations, so that none is made meanwhile.
    """
    context = catalogue.fresh()
    if not may_be_held(context):
        return 0
    found = find_places()
    at_work = plans.running() if found else ()
    ended = [
        one.name
        for one in found
        if (one.plan_id not in at_work if one.left_at is None else one.left_at + UNCLAIMED < now)
    ]
    release(ended, now=now)
    if not found:
        _mark(context, now, held=False)
    return len(ended)
