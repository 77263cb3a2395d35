"""Requests as the server passes them (ASGI), and as Django's handler takes them (WSGI)."""

import io
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from api import routes
from api.access import auth
from clusterstate.admission.request import User
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.remembered import remembered
from clusterstate.telemetry import tracing

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COMPLETE = "stowage.complete"
"""Set in the scope of a request whose body has been read."""


def parameters(scope: Scope) -> dict[str, str]:
    """Return the query parameters, the last of each name."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def header(scope: Scope, name: bytes) -> str:
    """Return a request header as text, empty when absent."""
    return next((v.decode("latin-1") for k, v in scope["headers"] if k.lower() == name), "")


def raw_header(scope: Scope, name: bytes) -> bytes:
    """Return a request header as it was sent, empty when absent."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return b""


def announced(scope: Scope) -> int:
    """Return the Content-Length of a request, 0 without one."""
    return natural(raw_header(scope, b"content-length")) or 0


def check_url(scope: Scope) -> None:
    """Raise BadRequest for a NUL, which no name, selector or parameter can have."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise BadRequest("the URL holds a NUL character")


def environment_of(scope: Scope, body: bytes, user: User | None) -> dict[str, Any]:
    """Return the WSGI environment of a request; ``user``: the sender, None if unknown.

    A browser's user is unknown here: the view finds its session.
    """
    server = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": str(server[0]),
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": str(client[0]),
        "SERVER_PROTOCOL": "HTTP/" + scope["http_version"],
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        routes.ROUTE: routes.of(scope),
    }
    if user is not None:
        environ[auth.USER] = user
    if (span := scope.get(tracing.KEY)) is not None:
        environ[tracing.KEY] = span
    for raw_name, raw_value in scope["headers"]:
        key = _key(raw_name)
        if key is not None:
            value = raw_value.decode("latin-1")
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


@remembered(256)
def _key(header: bytes) -> str | None:
    """Return a header's key in a WSGI environment, None if it is omitted there."""
    name = header.decode("latin-1")
    key = name.upper().replace("-", "_")
    if "_" in name or key == "CONTENT_LENGTH":
        return None
    return key if key == "CONTENT_TYPE" else f"HTTP_{key}"
