"""Parses YAML that a person typed, and lists validation's errors."""

from typing import Any

from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.wire import reading


def problems_of(error: StatusError) -> list[tuple[str, str]]:
    """Return (field path, message) of each error; the path of the whole document is empty."""
    causes = error.details.get("causes") or ()
    return [(one.get("field", ""), one["message"]) for one in causes] or [("", error.message)]


def read_yaml(text: str) -> Any:
    """Return the object in a text.

    Raises:
        BadRequest: it is no YAML, or no object, or has a field twice; the message says where.
    """
    raw = text.encode()
    found = reading.read_yaml(raw)
    if not isinstance(found, dict):
        raise BadRequest("not an object: it must begin with apiVersion, kind and metadata")
    reading.refuse_repeated_keys(raw)
    return strip_nulls(found)
