"""Requests run through Django on a thread, one by one or as a batch.

Each thread keeps one database connection (``connections``), which it connects before the first
request (``make_ready``) and closes when it ends (``hang_up``).
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import DatabaseError
from django.db import connections as databases
from django.http import QueryDict
from django.http.response import HttpResponseBase

from api import resources, routes
from api.access import auth
from api.forms import errors, failures, options, parsers, protobuf, replies, wire
from api.forms.bodies import metadata_of, put_namespace
from api.kinds import deletions
from api.kinds.viewsets import MAX_OBJECT_BYTES
from api.requests import WholeRequest
from api.server import audit, connections, health, room
from api.server.audit_events import AuditedRequest
from api.server.batches import KEY, Batch
from api.server.scopes import Scope, environment_of
from api.server.sending import Answer, Headers, answer_of
from api.server.sessions import Sessions
from clusterstate import advice, catalogue
from clusterstate.actions import objects
from clusterstate.actions.writing import renewals
from clusterstate.actions.writing.deletion import DeleteOptions
from clusterstate.actions.writing.stored import DeletedObject, StoredObject
from clusterstate.admission.request import User
from clusterstate.middleware import AUDIT_ID, SESSION_USER
from clusterstate.objects.values.actor import APISERVER, acting
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.remembered import remembered
from clusterstate.objects.wire import managed_fields
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.objects.wire.protobuf import encode_text
from clusterstate.telemetry import tracing

logger = structlog.get_logger(__name__)

_SESSIONS = ("/admin", "/console")
"""Pages that look for a session; files do not."""


def hang_up() -> None:
    """Close this thread's database connections, also one to a replica."""
    databases.close_all()


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


def _form_of(scope: Scope) -> str | None:
    """Return the form of an object that a program accepts, ``None`` if the view shall find it."""
    return _FORMS.get(_only(scope, b"accept"))


def _only(scope: Scope, header: bytes) -> bytes | None:
    """Return the value of a header, empty if there is none, ``None`` if there are several."""
    found = [value for name, value in scope["headers"] if name == header] or [b""]
    return found[0] if len(found) == 1 else None


def _answer(status: int, body: bytes, form: str, warnings: Sequence[str] = ()) -> Answer:
    written = encode_text(body) if form == protobuf.MEDIA_TYPE else body
    headers = [_NO_CACHE, (b"content-type", form.encode())]
    if warnings:
        headers.append((b"warning", replies.warning_header(warnings).encode("latin-1")))
    return status, [*headers, (b"content-length", b"%d" % len(written))], written


class _PlainAnswer:
    """Receives the answer to a plain request (``batches.Place``)."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.answer: Answer | None = None

    def finish(self, make: Callable[[Any], Answer], result: Any) -> None:
        try:
            self.answer = make(result)
        except Exception as error:  # noqa: BLE001  # it becomes an answer
            self.fail(error)

    def fail(self, error: Exception) -> None:
        self.answer = answer_of(failures.of_scope(self._scope, error))


def _begin_plainly(work: Work, batch: Batch) -> _PlainAnswer | None:
    """Add a plain request about a pod or node to the batch; ``None``: the view must serve it.

    Saves a third of the time of such a request. What is wrong with the request the view finds
    again, and says what it is.
    """
    scope, user, method = work.scope, work.user, work.scope["method"]
    begin = _PLAIN.get(method)
    route, form = routes.of(scope), _form_of(scope)
    target = route.target
    if begin is None or user is None or target is None or form is None or tracing.is_on():
        return None
    kind = target.kind
    is_of_many = kind.name in ("Pod", "Node") and not kind.group
    is_of_many = is_of_many or (kind.name == "Lease" and method == "PUT")
    if (
        not is_of_many
        or route.version != "v1"
        or target.subresource
        or kind.namespaced != bool(target.namespace)
    ):
        return None
    with suppress(Exception):  # the view raises it again
        if auth.MASTERS not in user.groups:
            auth.require(user, auth.attributes_of(method, target, ""))
        return begin(work, user, target, form, batch)
    return None


def _read_plainly(
    work: Work, user: User, target: routes.Target, form: str, batch: Batch
) -> _PlainAnswer | None:
    namespace, name = target.namespace, target.name
    if target.kind.name != "Pod" or not name or work.scope["query_string"]:
        return None
    auth.require_own_pod(user, namespace, name)
    place = _PlainAnswer(work.scope)
    return batch.read_pod(namespace, name, lambda body: _answer(200, body, form), place)


def _create_plainly(
    work: Work, user: User, target: routes.Target, form: str, batch: Batch
) -> _PlainAnswer | None:
    scope, body, kind = work.scope, work.body, target.kind
    agent, is_json = _only(scope, b"user-agent"), _only(scope, b"content-type") == _JSON
    is_short = len(body) <= MAX_OBJECT_BYTES
    if target.name or scope["query_string"] or agent is None or not (is_json and is_short):
        return None
    room.require()
    value = _READER.read(body)
    if value["kind"] != kind.name:
        return None
    manifest, warnings = wire.manifest(value, kind)
    put_namespace(metadata_of(manifest), target.namespace)
    warnings += advice.about(kind.name, manifest, time.monotonic())
    if kind.names_creators:
        managed_fields.claim(kind, manifest, options.program(agent.decode("latin-1")))

    def finish(done: StoredObject) -> Answer:
        return _answer(201, done.manifest, form, [*warnings, *done.warnings])

    return batch.create(kind, target.namespace, manifest, user, finish, _PlainAnswer(scope))


def _delete_plainly(
    work: Work, user: User, target: routes.Target, form: str, batch: Batch
) -> _PlainAnswer | None:
    scope, kind, name = work.scope, target.kind, target.name
    if not name or (work.body and _only(scope, b"content-type") != _JSON):
        return None
    wanted, how = _delete_options(b"\0".join((scope["query_string"], work.body)))
    if how.dry_run:
        return None

    def finish(deleted: DeletedObject) -> Answer:
        found, code, warnings = deletions.outcome(kind, name, deleted, wanted)
        return _answer(code, replies.text_of(found), form, warnings)

    one = how.about(target.namespace, name, user)
    return batch.delete(kind, one, finish, _PlainAnswer(scope))


def _renew_plainly(
    work: Work, user: User, target: routes.Target, form: str, batch: Batch
) -> _PlainAnswer | None:
    """Renew a node's lease: as one that is known, or so that its next renewals are known."""
    scope, kind, namespace, name = work.scope, target.kind, target.namespace, target.name
    reader, agent = _READERS.get(_only(scope, b"content-type")), _only(scope, b"user-agent")
    query = scope["query_string"]
    if not objects.are_renewed(kind, namespace, "") or len(work.body) > MAX_OBJECT_BYTES:
        return None
    if not name or agent is None or reader is None or (query and not _TIMEOUT.fullmatch(query)):
        return None
    room.require()
    program = options.program(agent.decode("latin-1"))
    sent = renewals.read(reader.read(work.body), len(work.body), user, program)
    if sent is None:
        return None

    def whole() -> tuple[Manifest, list[str]]:
        manifest, warnings = wire.manifest(reader.read(work.body), kind)
        put_namespace(metadata_of(manifest), namespace)
        return manifest, warnings

    renewal = renewals.of(namespace, name, sent)
    if renewal is None:
        manifest, warnings = whole()
        if warnings or manifest["metadata"].get("name") != name:
            return None
    update = objects.Update(
        namespace=namespace,
        name=name,
        change=lambda _: whole()[0],
        user=user,
        manager=Manager(program, ""),
        subresource="",
        sent=sent,
        renewal=renewal,
    )

    def finish(done: StoredObject) -> Answer:
        return _answer(200, done.manifest, form, done.warnings)

    return batch.renew(kind, update, finish, _PlainAnswer(scope))


@remembered(256)
def _delete_options(query_and_body: bytes) -> tuple[Manifest, DeleteOptions]:
    """Return the options of a deletion, as its view reads them; most requests have the same.

    Raises:
        StatusError: a parameter is for the view, or something is wrong.
    """
    query, _, body = query_and_body.partition(b"\0")
    parameters = QueryDict(query)
    if not _OF_DELETIONS.issuperset(parameters):
        raise BadRequest("parameters that the view reads")
    wanted = options.delete_options(_READER.read(body) if body else {}, parameters)
    return wanted, DeleteOptions.of(wanted)


_OF_DELETIONS: Final = frozenset({"gracePeriodSeconds", "propagationPolicy"})
_PLAIN: Final = {
    "GET": _read_plainly,
    "POST": _create_plainly,
    "DELETE": _delete_plainly,
    "PUT": _renew_plainly,
}
_FORMS: Final[Mapping[bytes | None, str]] = {
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
_JSON: Final = parsers.JSON.encode()
_READER: Final = parsers.JSONParser()
_READERS: Final[Mapping[bytes | None, parsers.Parser]] = {
    _JSON: _READER,
    protobuf.MEDIA_TYPE.encode(): parsers.ProtobufParser(),
}
"""By content type."""
_TIMEOUT: Final = re.compile(rb"timeout=[0-9]{1,6}(?:ms|s|m|h)")
"""The query of agents, whose clients have a time-out."""
_NO_CACHE: Final = b"cache-control", errors.NO_CACHE.encode()


def _answer_of(response: HttpResponseBase | _PlainAnswer) -> Answer:
    if not isinstance(response, _PlainAnswer):
        return answer_of(response)
    assert response.answer is not None
    return response.answer


class Runner:
    """Runs requests through Django; its methods are called on threads.

    ``sessions``: learns which user a browser's session turned out to be.
    """

    def __init__(self, django: WSGIHandler, sessions: Sessions) -> None:
        self._django = django
        self._sessions = sessions

    def one_by_one(self, works: Sequence[Work]) -> list[Answer]:
        """Run requests through Django on this thread, one after the other."""
        if not all(work.scope["path"].startswith(settings.STATIC_URL) for work in works):
            connections.check(away_since=health.away_since())
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
        connections.check(away_since=health.away_since())
        batch = Batch()
        responses: list[HttpResponseBase | _PlainAnswer] = []
        for work in works:
            if (begun := _begin_plainly(work, batch)) is not None:
                responses.append(begun)
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
        return list(map(_answer_of, responses))

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
