"""Dry runs of a pod's creation: adds the node where the pod would be placed, and the victims."""

from typing import Any

import msgspec
from django.conf import settings

from api.access import naming
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.answers import advisor

_SECONDS = 2.0
"""Seconds after which a dry run is answered without the prediction."""


def placed(text: bytes, warnings: list[str], *, may_read: naming.MayRead) -> bytes:
    """Return an unplaced pod, as JSON, with the node that the scheduler would choose now.

    ``may_read`` returns whether the user may see the pods of a namespace; others are only counted.
    If the pod fits nowhere or only by preemption, or if no advisor answers, it is returned
    unchanged, with a warning that says so.
    """
    pod: Manifest = msgspec.json.decode(text)
    spec = pod.get("spec") or {}
    if spec.get("nodeName") or spec.get("schedulingGates"):
        return text
    if settings.SERVES and (problem := advisor.problem()):  # no dry run waits for one to come
        warnings.append(f"dry run: it is not known where the pod would go: advisor: {problem}")
        return text
    question = {"base": "live", "pods": [pod], "admission": False, "explain": "none"}
    try:
        answer: Any = advisor.ask("placement", {"spec": question}, deadline=_SECONDS)
    except StatusError as error:
        warnings.append(f"dry run: it is not known where the pod would go: {error.message}")
        return text
    (result,) = answer["status"]["results"]
    if result["status"] == "scheduled":
        return msgspec.json.encode({**pod, "spec": {**spec, "nodeName": result["nodeName"]}})
    room = result.get("preemption") or {}
    if room.get("victims"):
        victims = naming.as_text(room["victims"], may_read)
        node = room["nominatedNode"]
        warnings.append(f"dry run: the pod would make room on node {node}: {victims} would leave")
    elif result.get("message"):
        warnings.append(f"dry run: the pod would wait: {result['message']}")
    return text
