"""Requests run through Django on a thread, one by one or as a batch.

Each thread keeps one database connection (``connections``), which it connects before the first
request (``make_ready``) and closes when it ends (``hang_up``).
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import DatabaseError, connection
from django.http.response import HttpResponseBase

from api import resources, routes
from api.forms import failures
from api.server import audit, connections
from api.server.audit_events import Entry
from api.server.batches import KEY, Batch
from api.server.scopes import Scope, environment_of
from api.server.sending import Answer, Headers, answer_of
from api.server.sessions import Sessions
from clusterstate import catalogue
from clusterstate.admission.request import User
from clusterstate.middleware import AUDIT_ID, SESSION_USER
from clusterstate.objects.values.actor import APISERVER, acting

logger = structlog.get_logger(__name__)

_SESSIONS = ("/admin", "/console")
"""Pages that look for a session; files do not."""


def hang_up() -> None:
    """Close this thread's connection."""
    connection.close()


def make_ready() -> None:
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
    entry: Entry
    user: User | None = None


class Runner:
    """Runs requests through Django; its methods are called on threads.

    ``sessions``: learns which user a browser's session turned out to be.
    """

    def __init__(self, django: WSGIHandler, sessions: Sessions) -> None:
        self._django = django
        self._sessions = sessions

    def one_by_one(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread, a browser's as any WSGI server would."""
        connections.check()
        answers: list[Answer] = []
        for work in works:
            try:
                environ = environment_of(work.scope, work.body, work.user)
                if routes.of(work.scope).is_page:
                    environ[AUDIT_ID] = UUID(work.entry.id)
                    answers.append(self._run_signalled(environ))
                    audit.page(work.entry, environ)
                    if user := environ.get(SESSION_USER):
                        self._sessions.saw(work.scope, user)
                    elif environ["PATH_INFO"].startswith(_SESSIONS):
                        self._sessions.forget(work.scope)
                else:
                    answers.append(answer_of(self._respond(environ)))
            except Exception as error:  # noqa: BLE001  # the thread lives on
                answers.append(answer_of(failures.of_scope(work.scope, error)))
        connections.release()
        return answers

    def together(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread as a batch."""
        connections.check()
        batch = Batch()
        responses: list[HttpResponseBase] = []
        for work in works:
            try:
                environ = environment_of(work.scope, work.body, work.user)
                environ[KEY] = batch
                # Only this view's paths come here, so Django need not look for it.
                view = resources.objects.view(routes.of(work.scope).target)
                responses.append(view(WSGIRequest(environ)))
            except Exception as error:  # noqa: BLE001  # the others are answered all the same
                responses.append(failures.of_scope(work.scope, error))
        with acting(APISERVER):  # what each of them creates or deletes is its user's
            batch.execute()
        connections.release()
        return [answer_of(response) for response in responses]

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
