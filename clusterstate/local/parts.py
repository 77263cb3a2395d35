"""The Python processes that `manage.py up` runs, in the order in which they start.

``up`` starts exactly these processes. The fault machine (``tests.faults``) kills and stops
processes of this list, so that a new one is tested as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterstate.processes import shards

DATABASE, QUEUE, WORKERS, WEB, BEAT = range(5)
"""Start order; parts stop in the reverse order: database, Redis, workers, web, hollow nodes."""

_CELERY_WORKER = ("-m", "scheduling", "worker")
_CELERY_BEAT = ("-m", "scheduling", "beat")
_UVICORN = (
    *("-m", "api", "--interface", "asgi3", "--log-level", "warning", "--no-access-log"),
    *("--no-server-header", "--no-proxy-headers", "--ws", "none"),
    *("--http", "api.server.protocol:Protocol", "--loop", "api.server.protocol:loop"),
    *("--timeout-graceful-shutdown", "3"),
)
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: none with CBC, which is open to padding attacks. TLS 1.3 has its own."""
_APPLICATION = "api.asgi:application"
SHARED = (
    *("uvicorn.main", "uvicorn.protocols.http.httptools_impl", "api.serving", "api.urls"),
    *("api.server.protocol", "scheduling.celery", "scheduling.tasks", "scheduling.processes.loops"),
    *("scheduling.processes.duties", "scheduling.controllers.evictions.timekeeper"),
    *("scheduling.answers.advising", "scheduling.worker.loop", "celery.apps.worker", "celery.beat"),
    *("celery.concurrency.solo", "celery.concurrency.thread", "scheduling.processes.broker"),
    *("celery.worker.consumer", "celery.apps.beat", "celery.app.log", "celery.backends.base"),
    *("celery.app.routes", "celery.app.amqp", "scheduling.processes.nudges", "uvicorn.lifespan.on"),
    *("celery.worker.components", "celery.worker.autoscale", "celery.app.control", "celery.events"),
    *("celery.worker.consumer.delayed_delivery", "billiard.pool", "billiard.dummy"),
)
"""Modules that ``up`` imports before it forks the processes; no plugin's package is among them."""
SHARED_CALLS = (
    "django.core.wsgi:get_wsgi_application",
    "scheduling.worker.warming:share",
    "clusterstate.objects.registry.schema:make_ready",
)
"""Functions that ``up`` calls before it forks, so that the processes share their results."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A process: its name in the log, when it stops, and the arguments of the interpreter.

    ``process`` is its STOWAGE_PROCESS: several parts may do the same work. A part that is ``late``
    starts once the service is ready. ``workers``: the number of processes of that name in it.
    """

    name: str
    stage: int
    arguments: tuple[str, ...]
    process: str
    late: bool = False
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """The numbers of parts of which there may be several, and the web servers' addresses.

    If a scheduler stands by, so does a process for the timers. ``console`` is the socket of the
    console's own process, ``None`` if the web servers serve its pages.
    """

    http_port: int
    https_port: int
    host: str
    certificate: Path
    key: Path
    console: Path | None
    web_workers: int = 1
    advisors: int = 1
    schedulers: int = 2


def parts(options: PartOptions) -> Iterator[Part]:
    """Return every process, in the order in which they start."""
    web = (*_UVICORN, "--workers", str(options.web_workers))
    yield _part(
        "http",
        WEB,
        *(*web, "--host", "127.0.0.1", "--port", str(options.http_port), _APPLICATION),
        workers=options.web_workers,
    )
    secure = (
        *("--ssl-certfile", str(options.certificate), "--ssl-keyfile", str(options.key)),
        *("--ssl-ciphers", _CIPHERS),
    )
    yield _part(
        "https",
        WEB,
        *(*web, *secure, "--host", options.host, "--port", str(options.https_port), _APPLICATION),
        workers=options.web_workers,
    )
    yield _scheduler("scheduler")
    yield _part("timers", WORKERS, *_worker("timers", "timers"))
    yield _part("worker", WORKERS, *_worker("celery", "worker"), "--threads", "16")
    for number in range(options.advisors):
        name = f"advisor{number + 1}" if number else "advisor"
        yield _part(name, WORKERS, *_worker("advisor", name), process="advisor")
    yield _part("beat", BEAT, *_CELERY_BEAT)
    if options.console is not None:
        # The web servers hand its requests over to it.
        arguments = (*_UVICORN, "--uds", str(options.console), _APPLICATION)
        yield _part("console", WEB, *arguments, late=True)
    if options.schedulers > 1:
        yield _part(
            "timers-standby", WORKERS, *_worker("timers", "timers-standby"),
            process="timers", late=True,
        )  # fmt: skip
    for number in range(1, options.schedulers):
        # They follow warm, and take no time from the start.
        yield _scheduler(f"standby{number}" if number > 1 else "standby", late=True)


def _part(
    name: str,
    stage: int,
    *arguments: str,
    process: str = "",
    late: bool = False,
    workers: int = 1,
) -> Part:
    return Part(
        name=name,
        stage=stage,
        arguments=arguments,
        process=process or name,
        late=late,
        workers=workers,
    )


def _worker(queue: str, name: str) -> tuple[str, ...]:
    return (*_CELERY_WORKER, "--queue", queue, "--name", name)


def _scheduler(name: str, *, late: bool = False) -> Part:
    arguments = _worker(shards.queue(shards.FIRST), name)
    return _part(name, WORKERS, *arguments, process="scheduler", late=late)
