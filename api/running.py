"""Requests run through Django on a thread, one by one or as a batch.

Each thread keeps one database connection (``connections``), which it connects before the first
request (``make_ready``) and closes when it ends (``hang_up``).
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from django.core.handlers.wsgi import WSGIHandler
from django.db import DatabaseError, connection
from django.http.response import HttpResponseBase

from api import resources, routes
from api.access import auth
from api.forms import errors, failures, protobuf
from api.requests import WholeRequest
from api.server import audit, connections
from api.server.audit_events import AuditedRequest
from api.server.batches import KEY, Batch
from api.server.scopes import Scope, environment_of
from api.server.sending import Answer, Headers, answer_of
from api.server.sessions import Sessions
from clusterstate import catalogue
from clusterstate.admission.request import User
from clusterstate.middleware import AUDIT_ID, SESSION_USER
from clusterstate.objects.values.actor import APISERVER, acting
from clusterstate.objects.wire.protobuf import encode_text
from clusterstate.queries.pods import find_pods
from clusterstate.telemetry import tracing

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
    entry: AuditedRequest
    user: User | None = None


def _read_plainly(works: Sequence[Work]) -> dict[int, Answer]:
    """Return the responses to plain reads of a pod, by their place in the batch.

    Saves half of the time of such a request. Failures are left to the view. Queries once.
    """
    wanted: dict[int, tuple[str, str]] = {}
    forms: dict[int, str] = {}
    for place, work in enumerate(works):
        scope, user = work.scope, work.user
        if user is None or scope["method"] != "GET" or scope["query_string"]:
            continue
        target = routes.of(scope).target
        accepts = [value for name, value in scope["headers"] if name == b"accept"] or [b""]
        form = _FORMS.get(accepts[0]) if len(accepts) == 1 else None
        if form is None or target is None or not _is_pod(target) or tracing.is_on():
            continue
        with suppress(Exception):  # the view raises it again, and says what it is
            if auth.MASTERS not in user.groups:
                auth.require(user, auth.asked("GET", target, ""))
            auth.require_own_pod(user, target.namespace, target.name)
            wanted[place], forms[place] = (target.namespace, target.name), form
    if not wanted:
        return {}
    try:
        found = find_pods(list(wanted.values()))
    except DatabaseError:
        return {}
    answers: dict[int, Answer] = {}
    for (place, form), body in zip(forms.items(), found, strict=True):
        if body is not None:
            written = encode_text(body) if form == protobuf.MEDIA_TYPE else body
            kind = b"content-type", form.encode()
            length = b"content-length", b"%d" % len(written)
            answers[place] = 200, [_NO_CACHE, kind, length], written
    return answers


def _is_pod(target: routes.Target) -> bool:
    return target.kind.name == "Pod" and bool(target.name) and not target.subresource


_FORMS: Final = {
    **dict.fromkeys(
        (b"", b"*/*", b"application/json", b"application/json, */*"), "application/json"
    ),
    **dict.fromkeys(
        (
            protobuf.MEDIA_TYPE.encode(),
            f"{protobuf.MEDIA_TYPE},application/json".encode(),
            f"{protobuf.MEDIA_TYPE}, application/json".encode(),
        ),
        protobuf.MEDIA_TYPE,
    ),
}
"""What programs accept, and the form in which they get an object."""
_NO_CACHE: Final = b"cache-control", errors.NO_CACHE.encode()


class Runner:
    """Runs requests through Django; its methods are called on threads.

    ``sessions``: learns which user a browser's session turned out to be.
    """

    def __init__(self, django: WSGIHandler, sessions: Sessions) -> None:
        self._django = django
        self._sessions = sessions

    def one_by_one(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread, one after the other."""
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
                    request = WholeRequest(environ, work.scope["path"], work.body)
                    answers.append(answer_of(self._respond(request)))
            except Exception as error:  # noqa: BLE001  # the thread lives on
                answers.append(answer_of(failures.of_scope(work.scope, error)))
        connections.release()
        return answers

    def together(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread as a batch."""
        connections.check()
        read = _read_plainly(works)
        batch = Batch()
        responses: list[HttpResponseBase] = []
        for place, work in enumerate(works):
            if place in read:
                continue
            try:
                environ = environment_of(work.scope, work.body, work.user)
                environ[KEY] = batch
                # Only this view's paths come here, so Django need not look for it.
                view = resources.objects.view(routes.of(work.scope).target)
                responses.append(view(WholeRequest(environ, work.scope["path"], work.body)))
            except Exception as error:  # noqa: BLE001  # the others are answered all the same
                responses.append(failures.of_scope(work.scope, error))
        with acting(APISERVER):  # what each of them creates or deletes is its user's
            batch.execute()
        connections.release()
        others = iter(responses)
        return [read.get(n) or answer_of(next(others)) for n in range(len(works))]

    def _respond(self, request: WholeRequest) -> HttpResponseBase:
        """Return Django's response, without the signals around a request.

        What those do (closing or checking connections, clearing caches) is either done here
        already or not used by the API, and costs more than reading an object.
        """
        return self._django.get_response(request)

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
