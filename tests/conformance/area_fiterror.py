"""Area fiterror: the message of a pod that no node can take (ruling C9)."""

from typing import Any

from scheduling.framework.status import Code, Status
from scheduling.framework.types import Diagnosis, FitError

_CODES = {
    "Error": Code.ERROR,
    "Unschedulable": Code.UNSCHEDULABLE,
    "UnschedulableAndUnresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
}


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    diagnosis = Diagnosis(
        node_to_status={node: _status(s) for node, s in (case["nodeToStatus"] or {}).items()},
        absent=_status(case.get("absentNodesStatus") or {"code": "UnschedulableAndUnresolvable"}),
        pre_filter_message=case.get("preFilterMsg", ""),
        post_filter_message=case.get("postFilterMsg", ""),
    )
    found = FitError(node_count=case["numAllNodes"], diagnosis=diagnosis).message()
    return None if found == case["message"] else f"{found!r}, wanted {case['message']!r}"


def _status(value: dict[str, Any]) -> Status:
    return Status(_CODES[value["code"]], tuple(value.get("reasons") or ()))
