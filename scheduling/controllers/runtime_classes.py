"""Removes the scheduling gate of pods that wait for a RuntimeClass, when it appears (R54, C8).

With ``waitForRuntimeClass``, admission gives a pod whose RuntimeClass is missing a scheduling gate.
This controller follows the log: when a RuntimeClass was created or changed, each pod that waits for
it gets its nodeSelector, tolerations and overhead and loses the gate, in one write. A pod that
contradicts its RuntimeClass keeps the gate, and an event says why.
"""

from datetime import datetime
from functools import partial

import structlog

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.pods.rewrite import rewrite_pod
from clusterstate.admission.plugins import runtime_class
from clusterstate.change_log import changes
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.namespaces import changed_namespaces
from clusterstate.queries.pods import pods_by_id, pods_gated_by

logger = structlog.get_logger(__name__)

NAME = "runtime-classes"


def follow(now: datetime) -> int:
    """Remove the RuntimeClass gate from pods whose RuntimeClass now exists; return how many."""
    cursor = controller_state.cursor(NAME)
    mark = changes.watermark()
    if cursor is not None and mark <= cursor:
        return 0
    resumed = 0
    if cursor is None or changed_namespaces(cursor, mark, ("RuntimeClass",)) != []:
        resumed = _resume_all(now)
    controller_state.set_cursor(NAME, mark)
    return resumed


def _resume_all(now: datetime) -> int:
    classes: dict[str, Manifest | None] = {}
    problems: list[Occurrence] = []

    def resume(pod_id: int, namespace: str, name: str) -> bool:
        try:
            return rewrite_pod(pod_id, lambda pod: _resumed(pod, classes), now=now) is not None
        except runtime_class.Conflict as conflict:
            row = pods_by_id([pod_id]).get(pod_id)
            problems.append(
                Occurrence(
                    kind="Pod",
                    namespace=namespace,
                    name=name,
                    uid="" if row is None else row.uid,
                    type="Warning",
                    reason="RuntimeClassConflict",
                    message=str(conflict),
                )
            )
            return False

    # One by one: a rewritten pod no longer waits.
    resumed = sum(
        aside.one(NAME, aside.pod(one[0]), partial(resume, *one), now=now, instead=lambda: False)
        for one in pods_gated_by(runtime_class.WAIT_GATE)
    )
    if problems:
        events.record_many(problems, now=now)
    if resumed or problems:
        logger.info("pods_resumed", count=resumed, conflicts=len(problems))
    return resumed


def _resumed(pod: Manifest, classes: dict[str, Manifest | None]) -> Manifest:
    """Return the pod with its class applied, or unchanged if the class is still missing.

    Raises:
        Conflict: pod and class disagree.
    """
    name = pod["spec"].get("runtimeClassName") or ""
    if name not in classes:
        found = find_object("RuntimeClass", "", name)
        classes[name] = None if found is None else decode_object(found)
    its_class = classes[name]
    return pod if its_class is None else runtime_class.resume(pod, its_class)
