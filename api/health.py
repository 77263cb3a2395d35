"""Whether the service works, and which part does not.

``/livez`` and ``/healthz`` say that this process serves requests; a supervisor restarts it when
they fail. ``/readyz`` looks at every part: the database, Redis, and the background processes, each
of which renews a key in Redis that expires when it stops.
"""

from collections.abc import Callable, Iterator

import redis
from django.conf import settings
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse

from clusterstate.heartbeats import KEY, PARTS

_TEXT = "text/plain; charset=utf-8"


def alive(request: HttpRequest) -> HttpResponse:
    """Answer ok: this process serves requests."""
    response = HttpResponse("ok", content_type=_TEXT)
    response["Cache-Control"] = "no-cache, private"
    return response


def _database() -> str:
    """Return what is wrong with the database, empty when nothing is. Queries."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def _redis() -> dict[str, str]:
    """Return what is wrong with Redis and with each part that reports through it."""
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=2
        ) as client:
            beats = client.mget([KEY + part for part in PARTS])
    except (redis.RedisError, OSError) as error:
        problem = f"does not answer ({type(error).__name__})"
        return {"redis": problem} | dict.fromkeys(PARTS, "unknown: its heartbeat is in redis")
    return {"redis": ""} | {
        part: "" if beat is not None else "no heartbeat"
        for part, beat in zip(PARTS, beats, strict=True)
    }


def problems() -> dict[str, str]:
    """Return every part with what is wrong with it; empty text means that it works."""
    return {"web": "", "database": _database(), **_redis()}


def _lines(parts: dict[str, str]) -> Iterator[str]:
    for part, problem in parts.items():
        yield f"[-] {part}: {problem}" if problem else f"[+] {part} ok"


def ready(request: HttpRequest, look: Callable[[], dict[str, str]] = problems) -> HttpResponse:
    """Answer 200 when all parts work, else 503; the text names every part."""
    parts = look()
    failed = [part for part, problem in parts.items() if problem]
    last = f"not ready: {', '.join(failed)}" if failed else "ready"
    text = "\n".join([*_lines(parts), last, ""])
    response = HttpResponse(text, content_type=_TEXT, status=503 if failed else 200)
    response["Cache-Control"] = "no-cache, private"
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django would call 503 an error
    return response
