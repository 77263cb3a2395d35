"""`manage.py up`, the whole service under one supervisor; `make up` runs it.

Starts PostgreSQL and a Redis-protocol server (unless DATABASE_URL and REDIS_URL name some), brings
the tables up to date, makes the first secrets, and then runs the web servers, the workers and beat
until Ctrl-C. The same processes run in containers with the same settings; this is one machine.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from clusterstate import environment
from clusterstate.actions.people import tokens, users
from clusterstate.health import heartbeats
from clusterstate.local import (
    account,
    capacity,
    credentials,
    embedded,
    family,
    first_token,
    parts,
    places,
    preparation,
    renewal,
)
from clusterstate.local.supervisor import Child, Stopped, Supervisor
from clusterstate.management.commands import prepare
from clusterstate.processes import private_files

_START_SECONDS = 240.0
_PATIENCE_SECONDS = 10.0
"""Seconds after which the start prints which parts it waits for."""
_HOPELESS_FAILURES = 4
_CERTIFICATE_EVERY_SECONDS = 10.0
"""Seconds between checks whether the certificate of https expires soon."""


class Command(BaseCommand):
    """Runs everything in the foreground."""

    help = "Start the whole service on this machine; Ctrl-C stops it."
    requires_system_checks: list[str] = []  # the database they ask is not there yet

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, wait, stop. Ends the process with 0 after Ctrl-C and 1 when the start failed."""
        state: Path = settings.STATE_DIR
        try:
            lock = embedded.StateLock(state)
        except embedded.AlreadyRunningError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(
                f"The state directory {state} cannot be written ({error.strerror}):"
                " set STOWAGE_STATE to a directory of yours."
            ) from error
        _require_free_port("127.0.0.1", settings.HTTP_PORT, "STOWAGE_HTTP_PORT")
        _require_free_port(settings.HOST, settings.HTTPS_PORT, "STOWAGE_HTTPS_PORT")
        supervisor = Supervisor(state / "stowage.log", state=state)
        for sentence in environment.unknown():
            supervisor.say(f"warning: {sentence}")
        try:
            _Start(supervisor, state, lock.fileno()).run()
            supervisor.run()
        except Stopped:
            pass
        except (places.MissingServerError, account.ServerStartError) as error:
            raise CommandError(str(error)) from error
        finally:
            began = time.monotonic()
            supervisor.say("stopping")
            supervisor.stop()
            supervisor.say(
                f"stopped in {time.monotonic() - began:.1f} s; the data stays in {state}"
            )
            lock.release()


class _Start:
    """One start, step by step."""

    def __init__(self, supervisor: Supervisor, state: Path, lock: int) -> None:
        self._supervisor = supervisor
        self._state = state
        self._lock = lock
        self._began = time.monotonic()
        self._certificate_at = self._began + _CERTIFICATE_EVERY_SECONDS
        self._advertised = settings.ADVERTISE_ADDRESS or credentials.advertised(settings.HOST)
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
            "STOWAGE_STATE": str(state),
            "STOWAGE_ADVERTISE_ADDRESS": self._advertised,
            "DATABASE_URL": os.environ.get("DATABASE_URL") or places.postgres_url(state),
            "REDIS_URL": settings.REDIS_URL,
            "PYTHONUNBUFFERED": "1",
            "MALLOC_ARENA_MAX": "2",  # threads otherwise take 64 MB of address space each
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._console = places.console_socket(state)
        if not settings.CONSOLE:
            self._environment["STOWAGE_CONSOLE"] = f"unix:{self._console}"

    def run(self) -> None:
        """Start everything and return when it is ready.

        Raises:
            Stopped: Ctrl-C came first.
            CommandError: a part cannot start.
        """
        say = self._supervisor.say
        now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
        fresh = not (self._state / "token").exists()
        if fresh:
            say("first start: all files that it creates are in " + str(self._state))
        with self._step("keys and certificate"):
            private_files.read_or_create(self._state / "secret-key", tokens.new_secret())
            certificate, key = self._ensure_certificate(now)
        processes = self._parts(certificate, key)
        say(f"size: {settings.SIZE}, {sum(part.workers for part in processes)} processes")
        if not os.environ.get("DATABASE_URL"):
            sessions = {"max_connections": str(capacity.of_embedded(processes))}
            if settings.SIZE == "small":
                sessions |= embedded.SMALL
            server = embedded.Postgres(self._state, settings=sessions)
            self._serve(server, parts.DATABASE, "PostgreSQL")
        if not os.environ.get("REDIS_URL"):
            self._serve(embedded.Redis(self._state), parts.QUEUE, "Redis")
        else:
            _require_redis(settings.REDIS_URL)
        with self._step("tables"):
            family.aside(self._prepare_database)
            self._look_at_room_for_sessions(processes)
        with self._step("administrator, token and kubeconfig"):
            family.aside(lambda: self._access(now))
        with self._step("modules"):
            family.share(parts.SHARED, parts.SHARED_CALLS)
        self._certificate = certificate
        with self._step("web servers, workers and beat"):
            for part in processes:
                if not part.late:
                    self._start_part(part)
            self._wait_until_ready("/readyz?exclude=console")
        if not settings.CONSOLE:
            embedded.make_private(self._console.parent, account.Account())
        for part in processes:
            if part.late:
                self._start_part(part)
        if not settings.CONSOLE:
            with self._step("console"):
                self._wait_until_ready("/readyz")
        self._supervisor.on_renew = self._renew
        self._supervisor.on_look = self._look_after_certificate
        self._summary()

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        if self._supervisor.stopping:
            raise Stopped
        self._supervisor.say(f"{what}: ready ({time.monotonic() - began:.1f} s)")

    def _serve(self, server: embedded.Server, stage: int, title: str) -> None:
        with self._step(title):
            child = Child(
                name=server.name,
                stage=stage,
                spawn=lambda output: server.spawn(output, [self._lock]),
                stop_signal=server.stop_signal,
                stop_seconds=server.stop_seconds,
                resumes=True,
            )
            try:
                process = self._supervisor.start(child)
            except embedded.AlreadyRunningError as error:
                raise CommandError(str(error)) from error
            embedded.wait_ready(server, process, pump=self._pump)

    def _pump(self) -> None:
        self._supervisor.pump()
        if self._supervisor.stopping:
            raise Stopped

    def _prepare_database(self) -> None:
        preparation.require_server()
        call_command(prepare.Command(), verbosity=0)

    def _look_at_room_for_sessions(self, processes: list[parts.Part]) -> None:
        """Warn if the database allows fewer sessions than the processes may open."""
        allowed = family.aside(preparation.sessions_allowed)
        needed = capacity.of_parts(processes)
        if allowed < needed:
            self._supervisor.say(
                f"the database takes {allowed} sessions, and these processes may hold {needed} at"
                " a time: raise its max_connections, or requests and controllers fail when most"
                " of them are busy"
            )

    def _access(self, now: datetime) -> None:
        """Create the administrator and the token if they are missing."""
        password = private_files.read_or_create(
            self._state / "admin-password", tokens.new_secret()[:20]
        )
        with preparation.alone():
            users.ensure_administrator(name=first_token.ADMINISTRATOR, password=password)
            first_token.ensure(self._state, now=now)

    def _parts(self, certificate: Path, key: Path) -> list[parts.Part]:
        return list(
            parts.parts(
                parts.PartOptions(
                    http_port=settings.HTTP_PORT,
                    https_port=settings.HTTPS_PORT,
                    host=settings.HOST,
                    certificate=certificate,
                    key=key,
                    console=None if settings.CONSOLE else self._console,
                    web_workers=settings.WEB_WORKERS,
                    advisors=settings.ADVISORS,
                    schedulers=max(settings.SCHEDULERS, settings.ACTIVE_SCHEDULERS),
                )
            )
        )

    def _start_part(self, part: parts.Part) -> None:
        """Start a Python process, which is restarted when it ends."""
        environment = self._environment | {"STOWAGE_PROCESS": part.process}
        # A web server's main process must end its own workers; the others have none, so that when
        # the supervisor is killed they go at once. Nothing is lost by it: the rows are the truth.
        with_parent = signal.SIGTERM if part.stage == parts.WEB else signal.SIGKILL

        def spawn(output: int) -> family.Process:
            prepare = embedded.die_with_parent(with_parent)
            if part.workers == 1 and family.can_fork():
                return family.fork(
                    part.arguments,
                    environment=environment,
                    output=output,
                    forget=self._supervisor.forget,
                    prepare=prepare,
                )
            return subprocess.Popen(  # noqa: S603  # our own arguments
                [sys.executable, *part.arguments],
                cwd=settings.BASE_DIR,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lock],
                preexec_fn=prepare,  # noqa: PLW1509  # one thread
            )

        self._supervisor.start(Child(name=part.name, stage=part.stage, spawn=spawn, beats=True))

    def _ensure_certificate(self, now: datetime) -> tuple[Path, Path]:
        return credentials.ensure_certificate(
            self._state, host=settings.HOST, advertised=self._advertised, now=now
        )

    def _look_after_certificate(self) -> None:
        """Renew the certificate before it expires, and restart the server that uses it."""
        if time.monotonic() < self._certificate_at:
            return
        self._certificate_at = time.monotonic() + _CERTIFICATE_EVERY_SECONDS
        before = self._certificate.read_bytes() if self._certificate.exists() else b""
        now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
        self._ensure_certificate(now)
        if self._certificate.read_bytes() != before:
            self._supervisor.say("the certificate was renewed: https restarts with the new one")
            self._supervisor.restart("https")

    def _renew(self) -> None:
        """Replace the processes that run plugins; schedulers last, the working one at the end.

        A scheduler's successor is warm when it stands by.
        """
        kinds = {"advisor": "advisor", "worker": "controllers", "timers": "timers"}
        kinds["timers-standby"] = "timers"
        ranks = ("advisor", "worker", "timers-standby", "timers", "standby", "scheduler")

        def rank(child: Child) -> int:
            return ranks.index(child.name.rstrip("0123456789"))

        def is_warm(child: Child) -> bool:
            assert child.process is not None
            name = child.name.rstrip("0123456789")
            return child.process.pid in heartbeats.beating(self._state, kinds.get(name, "standby"))

        chosen = [
            one for one in self._supervisor.children if one.name.rstrip("0123456789") in ranks
        ]
        done = renewal.renew(self._supervisor, sorted(chosen, key=rank), is_warm)
        self._supervisor.say("all replaced" if done else "not all were replaced")

    def _wait_until_ready(self, path: str) -> None:
        """Wait until ``path`` reports that every part works, or give up and print which does not.

        Prints which parts it waits for, again when these change.
        """
        began = time.monotonic()
        ask_at, say_at = 0.0, began + _PATIENCE_SECONDS
        reported = lacking = ""
        while time.monotonic() < began + _START_SECONDS:
            self._supervisor.watch(0.1)  # less when a child says something
            if time.monotonic() < ask_at:
                continue
            ask_at = time.monotonic() + 0.1
            for child in self._supervisor.children:
                if child.failures >= _HOPELESS_FAILURES:
                    raise CommandError(
                        f"{child.name} does not start; its last lines above say why."
                        f" They are also in {self._state / 'stowage.log'}."
                    )
            status, problem = _ask_ready(settings.HTTP_PORT, path)
            if status == http.HTTPStatus.OK:
                return
            lacking = problem.splitlines()[-1]
            if time.monotonic() >= say_at and lacking != reported:
                say_at = time.monotonic() + _PATIENCE_SECONDS
                reported = lacking
                self._supervisor.say(
                    f"{lacking}; this takes seconds on a free machine, and longer on a busy one:"
                    f" waiting, at most {_START_SECONDS:.0f} s"
                )
        self._supervisor.say(
            f"{lacking}, after {_START_SECONDS:.0f} s; not waiting any longer: /readyz shows what"
            " works"
        )

    def _summary(self) -> None:
        say = self._supervisor.say
        state = _shown(self._state)
        host = credentials.reachable_host(settings.HOST)
        secure = f"https://{host}:{settings.HTTPS_PORT}"
        say(f"Stowage is ready ({time.monotonic() - self._began:.1f} s). Ctrl-C stops it.")
        rows = (
            ("API", f"{secure}   (certificate authority: {state}/ca.crt)"),
            ("API, this machine", f"http://127.0.0.1:{settings.HTTP_PORT}"),
            ("console", f"{secure}/console/   (user admin, password in {state}/admin-password)"),
            ("admin", f"{secure}/admin/"),
            ("API token", f"{state}/token"),
            ("kubeconfig", f"{state}/kubeconfig"),
            ("log", f"{state}/stowage.log"),
        )
        for title, value in rows:
            say(f"  {title:<18} {value}")
        say("Try next, in another terminal:")
        say(
            f'  curl -H "Authorization: Bearer $(cat {state}/token)"'
            f" http://127.0.0.1:{settings.HTTP_PORT}/api/v1/nodes"
        )
        say(f"  kubectl --kubeconfig {state}/kubeconfig get nodes")


def _shown(path: Path) -> str:
    """Return the path relative to the working directory if it is below that."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _require_free_port(host: str, port: int, variable: str) -> None:
    """Raise CommandError if another process listens there; the message says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            raise CommandError(
                f"Port {port} needs root: choose one above 1023, such as {variable}={port + 8000}."
            ) from None
        except OSError as error:
            raise CommandError(
                f"Port {port} on {host} is taken ({error.strerror}): stop the program that uses it,"
                f" or choose another with {variable}={port + 1000}."
            ) from None


def _require_redis(url: str) -> None:
    """Raise CommandError if the configured Redis-protocol server does not answer."""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
    except redis.RedisError as error:
        raise CommandError(f"REDIS_URL: cannot connect: {error}") from error


def _ask_ready(port: int, path: str) -> tuple[int, str]:
    """Return the status and text of /readyz at its path, or (0, the reason of the failure)."""
    http_connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        http_connection.request("GET", path)
        answer = http_connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    except OSError as error:
        return 0, f"the web server does not answer ({error.strerror or error})"
    except http.client.HTTPException as error:
        return 0, f"the web server's answer is not HTTP ({error})"
    finally:
        http_connection.close()
