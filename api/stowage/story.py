"""A trail as text for people: one line for each change, and below it its causes."""

from collections.abc import Sequence
from typing import Any, Final

from clusterstate.objects.values.text_table import columns

_CONTROLLER: Final = "system:serviceaccount:kube-system:"
_DONE: Final = {"ADDED": "created", "MODIFIED": "changed", "DELETED": "deleted"}


def story(items: Sequence[dict[str, Any]], *, more: bool) -> str:
    """Return the items of a ChangeList as a table, the newest first; ``more``: older ones exist."""
    rows = [("TIME", "REVISION", "BY", "WHAT")]
    for item in items:
        rows.append((item["time"], item["resourceVersion"], _who(item), _what(item)))
        rows += [("", "", "", f"  {line}") for line in _reasons(item)]
    if more:
        rows.append(("...", "", "", "older changes: continue"))
    return "\n".join(columns(rows)) + "\n"


def _who(item: dict[str, Any]) -> str:
    user = item.get("user") or {}
    name = user.get("username", "").removeprefix(_CONTROLLER) or "-"
    other = user.get("impersonatedBy")
    return f"{name} (sent by {other})" if other else name


def _what(item: dict[str, Any]) -> str:
    done = _DONE[item["type"]]
    if node := item.get("nodeName"):
        bound = f"bound to {node}" + (f", decision {found}" if (found := _decision(item)) else "")
        return bound if item["type"] == "MODIFIED" else f"{done}, {bound}"
    fields = item.get("fields") or ()
    if "metadata.deletionTimestamp" in fields:
        return "termination requested"
    return f"{done}: {', '.join(fields)}" if fields else done


def _decision(item: dict[str, Any]) -> str:
    found: str = item.get("decision", "")
    return found


def _reasons(item: dict[str, Any]) -> list[str]:
    """Return a line for each cause of a change."""
    lines = []
    if room := item.get("preemptedFor"):
        pod = "/".join(room[key] for key in ("namespace", "name") if key in room) or room["uid"]
        by = f", decision {room['decision']}" if "decision" in room else ""
        lines.append(f"to make room for the pod {pod}{by}")
    if taint := item.get("evictedFor"):
        about = taint["taint"]
        what = f"{about['key']}={about.get('value', '')}".rstrip("=") + f":{about['effect']}"
        lines.append(f"for the taint {what} of the node {taint['nodeName']}{_by(taint)}")
    for cause in item.get("because") or ():
        if "type" not in cause:  # a plan, or a brake
            done = "applied" if cause["kind"] == "Plan" else "approved"
            title = cause.get("name", cause["uid"])
            lines.append(f"because {cause['kind']} {title} was {done}{_by(cause)}")
            continue
        what = _DONE[cause["type"]]
        fields = f" ({', '.join(cause['fields'])})" if cause.get("fields") else ""
        lines.append(f"because {cause['kind']} {cause['name']} was {what}{fields}{_by(cause)}")
    return lines


def _by(cause: dict[str, Any]) -> str:
    if not cause.get("user"):
        return ""
    request = f", request {cause['auditID']}" if "auditID" in cause else ""
    return f" by {_who(cause)} at {cause['time']}{request}"
