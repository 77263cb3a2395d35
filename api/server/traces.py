"""The span of a request that creates a pod; the server begins and ends it.

Called only if this process traces (``clusterstate.telemetry.tracing``).
"""

from collections.abc import MutableMapping
from typing import Any

from api import routes
from clusterstate.telemetry import tracing


def begin(scope: MutableMapping[str, Any]) -> None:
    """Begin the span of an ASGI request, if it creates pods."""
    target = routes.of(scope).target
    if scope["method"] != "POST" or target is None or target.kind.name != "Pod" or target.name:
        return
    parent: bytes = next((v for key, v in scope["headers"] if key == b"traceparent"), b"")
    span = tracing.request(scope["path"], parent.decode("latin-1"))
    if span is not None:
        scope[tracing.KEY] = span


def end(scope: MutableMapping[str, Any], code: int) -> None:
    """End the span of a request, if the request has one."""
    if (span := scope.get(tracing.KEY)) is not None:
        tracing.answered(span, code)
