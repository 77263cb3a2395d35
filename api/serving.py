"""Requests between server and Django: watches on the event loop, everything else on a few threads.

A watch is an open answer that waits; thousands of them cost the loop a buffer each. All other
requests are short and block on the database; Django serves those far cheaper through its WSGI
handler than through its ASGI one, so each is read completely on the loop and then run on a thread.
The threads are few and live for ever: each keeps one database connection.

What this module guarantees for every request, before Django sees it: the body is complete, also
when it came in chunks without a length; it is not larger than the limit; and no header name with
an underscore passes, since WSGI's spelling could not tell it from the one with a hyphen.
"""

import asyncio
import io
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import structlog
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import DatabaseError
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from api import connections, errors, health, metrics, pulse, waiting, watch
from api.batches import KEY, Batch, Deferred
from api.hub import hub
from api.lanes import Lane
from api.viewsets import ResourceView
from clusterstate import catalogue
from clusterstate.objects.errors import TooLarge, TooManyRequests

logger = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Answer = tuple[int, Headers, bytes]
_BROWSER = tuple(settings.BROWSER_PATHS)

_resources = ResourceView.as_view()

MAX_WAITING = 1024
"""Requests that may wait for a thread; more are answered 429, which clients repeat."""

BATCH = 64
"""Requests that are answered together at most; more would make the first of them wait."""

MAX_SINGLE_BYTES = 64 << 10
"""A body above this is a list or an odd pod, and would hold up a batch."""


class _Disconnected(Exception):
    """The client went away while it was sending."""


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole request body.

    Raises:
        TooLarge: it exceeds the limit; the rest stays unread.
    """
    limit = settings.MAX_BODY_BYTES
    parts: list[bytes] = []
    size = 0
    more = scope["method"] not in ("GET", "HEAD")
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        part = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise TooLarge(f"the request body is larger than the limit of {limit} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _environ(scope: Scope, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request."""
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
    }
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1")
        if "_" in name:
            continue
        key = name.upper().replace("-", "_")
        if key == "CONTENT_LENGTH":
            continue
        if key != "CONTENT_TYPE":
            key = "HTTP_" + key
        value = raw_value.decode("latin-1")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


async def _reply(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _reply_with(send: Send, response: HttpResponse) -> None:
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await _reply(send, response.status_code, headers, response.content)


def _answer(response: HttpResponseBase) -> Answer:
    """Return a Django response as status, headers and body."""
    if isinstance(response, Deferred):
        assert response.answer is not None
        response = response.answer
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in response.items()]
    body: bytes = response.content  # type: ignore[attr-defined]  # no API view streams here
    headers.append((b"content-length", str(len(body)).encode()))
    return response.status_code, headers, body


def _make_ready() -> None:
    """Connect this thread and read what admission looks up, so that no request waits for it."""
    try:
        with connections.used():
            catalogue.current()
    except DatabaseError:
        logger.warning("not_ready_yet", thread=threading.current_thread().name)


class Work(msgspec.Struct, frozen=True, gc=False):
    """One request, read completely."""

    scope: Scope
    body: bytes


class Application:
    """The ASGI application around Django's WSGI handler."""

    def __init__(self, django: WSGIHandler, *, threads: int) -> None:
        self._django = django
        self._watchers = ThreadPoolExecutor(threads, thread_name_prefix="watch")
        self._general = Lane(
            "request", self._one_by_one, threads=threads, limit=1, prepare=_make_ready
        )
        self._creations = Lane(
            "create", self._together, threads=2, limit=BATCH, prepare=_make_ready
        )
        self._reads = Lane("read", self._together, threads=2, limit=BATCH, prepare=_make_ready)
        self._lanes = (self._general, self._creations, self._reads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        query = scope["query_string"]
        if query and scope["method"] == "GET":
            if b"watch=" in query and watch.asked_for(scope):
                await watch.serve(scope, receive, send, self._watchers)
                return
            if b"waitFor=" in query and waiting.asked_for(scope):
                await waiting.serve(scope, receive, send, self._watchers)
                return
        await self._on_thread(scope, receive, send)

    def _lane(self, scope: Scope, body: bytes) -> "Lane[Work, Answer]":
        """Return the lane of a request: single pods, which come in thousands, have their own."""
        path: str = scope["path"]
        if path.startswith("/api/v1/namespaces/"):
            method = scope["method"]
            if method == "GET":
                # Only the pod itself: what lies below one may be another view's.
                name = path.partition("/pods/")[2]
                if name and "/" not in name:
                    return self._reads
            elif method == "POST" and path.endswith("/pods") and len(body) < MAX_SINGLE_BYTES:
                return self._creations
        return self._general

    async def _on_thread(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request through Django on one of the threads."""
        try:
            body = await _body(scope, receive)
            if sum(lane.waiting for lane in self._lanes) >= MAX_WAITING:
                raise TooManyRequests("too many requests are waiting", {"retryAfterSeconds": 1})
        except _Disconnected:
            return
        except (TooLarge, TooManyRequests) as error:
            response = errors.respond(error)
            response["Connection"] = "close"
            await _reply_with(send, response)
            return
        started = time.perf_counter()
        answer = await self._lane(scope, body).run(Work(scope, body))
        metrics.observe(scope["method"], scope["path"], answer[0], started)
        await _reply(send, *answer)

    def _one_by_one(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread, a browser's as any WSGI server would."""
        connections.check()
        answers: list[Answer] = []
        for work in works:
            try:
                environ = _environ(work.scope, work.body)
                if environ["PATH_INFO"].startswith(_BROWSER):
                    answers.append(self._run_signalled(environ))
                else:
                    answers.append(_answer(self._respond(environ)))
            except Exception as error:  # noqa: BLE001  # the thread lives on
                answers.append(_answer(errors.respond(error)))
        connections.release()
        return answers

    def _together(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread as a batch."""
        connections.check()
        batch = Batch()
        responses: list[HttpResponseBase] = []
        for work in works:
            try:
                environ = _environ(work.scope, work.body)
                environ[KEY] = batch
                # Only this view's paths come here, so Django need not look for it.
                responses.append(_resources(WSGIRequest(environ)))
            except Exception as error:  # noqa: BLE001  # the others are answered all the same
                responses.append(errors.respond(error))
        batch.execute()
        connections.release()
        return [_answer(response) for response in responses]

    def _respond(self, environ: dict[str, Any]) -> HttpResponseBase:
        """Return Django's response, without the signals around a request.

        What those do (closing or checking connections, clearing caches) is either done here
        already or not used by the API, and costs more than reading an object.
        """
        return self._django.get_response(WSGIRequest(environ))

    def _run_signalled(self, environ: dict[str, Any]) -> Answer:
        """Run a request as any WSGI server would."""
        head: list[tuple[int, Headers]] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: object = None, /
        ) -> Callable[[bytes], object]:
            pairs = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers]
            head.append((int(status[:3]), pairs))
            return lambda _: None  # the old way to write a body, which Django does not use

        result = self._django(environ, start_response)
        try:
            body = b"".join(result)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()
        return *head[0], body

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop what lives as long as the process."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                for lane in self._lanes:
                    lane.start(asyncio.get_running_loop())
                health.watch()
                pulse.start(self._lanes)
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                hub.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
