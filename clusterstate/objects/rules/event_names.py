"""Events as the group ``events.k8s.io`` names their fields; pure.

Both groups show the same objects. The newer one calls some fields otherwise, and knows the times
and the count of the older one as deprecated. Rules:
pkg/apis/events/v1/conversion.go and the JSON names of k8s.io/api/events/v1/types.go, v1.36.
"""

from typing import Any, Final

from clusterstate.objects.values.meta import Manifest

GROUP: Final = "events.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
_STORED: Final = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
"""What a field of ``events.k8s.io`` is called in the core group."""
_SHOWN: Final = {stored: shown for shown, stored in _STORED.items()}
_LISTS: Final = ("EventList", "List")


def stored(value: Any) -> Any:
    """Return an Event, a list of Events, or a patch of one, with the core group's field names."""
    if isinstance(value, list):  # the steps of a JSON patch
        return [_step(one) for one in value]
    if not isinstance(value, dict):
        return value
    result = {_STORED.get(name, name): item for name, item in value.items()}
    if result.get("apiVersion") == API_VERSION:
        result["apiVersion"] = "v1"
    if result.get("kind") in _LISTS and isinstance(result.get("items"), list):
        result["items"] = [stored(item) for item in result["items"]]
    return result


def _step(step: Any) -> Any:
    if not isinstance(step, dict):
        return step
    return {
        name: _path(value) if name in ("path", "from") and isinstance(value, str) else value
        for name, value in step.items()
    }


def _path(pointer: str) -> str:
    empty, *parts = pointer.split("/")
    if not parts:
        return pointer
    return "/".join([empty, _STORED.get(parts[0], parts[0]), *parts[1:]])


def shown(event: Manifest) -> Manifest:
    """Return a stored Event, or a list of them, by the names of ``events.k8s.io``."""
    if event.get("kind") in _LISTS:
        items = [shown(item) for item in event.get("items") or ()]
        return {**event, "apiVersion": API_VERSION, "items": items}
    result = {_SHOWN.get(name, name): item for name, item in event.items()}
    result["apiVersion"] = API_VERSION
    result.setdefault("eventTime", None)
    return result


def stored_selector(text: str) -> str:
    """Translate a field selector of events.k8s.io to the core group's names."""
    return ",".join(_stored_term(term) for term in text.split(","))


def _stored_term(term: str) -> str:
    for name in ("regarding", "reportingController"):
        if term.startswith(name):
            return _STORED[name] + term.removeprefix(name)
    return term
