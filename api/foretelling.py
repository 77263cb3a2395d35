"""What a dry run of a pod's creation says more: where the pod would go, and who would leave."""

from typing import Any

import msgspec

from clusterstate.objects.errors import StatusError
from clusterstate.objects.meta import Manifest
from scheduling.answers import advisor

_SECONDS = 2.0
"""The dry run's transaction is open meanwhile."""


def placed(text: bytes, warnings: list[str]) -> bytes:
    """Return an unplaced pod, as JSON, with ``spec.nodeName`` as the scheduler would choose it now.

    Where it fits nowhere, where others would have to leave for it, and where no advisor answers,
    the pod is as it was and a warning says so.
    """
    pod: Manifest = msgspec.json.decode(text)
    spec = pod.get("spec") or {}
    if spec.get("nodeName") or spec.get("schedulingGates"):
        return text
    asked = {"base": "live", "pods": [pod], "admission": False, "explain": "none"}
    try:
        answer: Any = advisor.ask("simulation", {"spec": asked}, deadline=_SECONDS)
    except StatusError as error:
        warnings.append(f"dry run: it is not known where the pod would go: {error.message}")
        return text
    (result,) = answer["status"]["results"]
    if result["status"] == "scheduled":
        return msgspec.json.encode({**pod, "spec": {**spec, "nodeName": result["nodeName"]}})
    room = result.get("preemption") or {}
    if room.get("victims"):
        victims = ", ".join(room["victims"])
        node = room["nominatedNode"]
        warnings.append(f"dry run: the pod would make room on node {node}: {victims} would leave")
    elif result.get("message"):
        warnings.append(f"dry run: the pod would wait: {result['message']}")
    return text
