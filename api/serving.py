"""Requests between server and Django: watches on the event loop, everything else on a few threads.

A watch is an open answer that waits; thousands of them cost the loop a buffer each. All other
requests are short and block on the database; Django serves those far cheaper through its WSGI
handler than through its ASGI one, so each is read completely on the loop and then run on a thread.
The threads are few and live for ever: each keeps one database connection.

::

    headers --> health? answered here
            --> who is it, may they do that, how much may they send   (nothing of the body read yet)
            --> body, counted against the budget --> lane, in turn with other users' --> answer

What this module guarantees for every request, before Django sees it: its user is known and may do
what the path and method say; the body is complete, also when it came in chunks without a length;
it is not larger than its user may send; no text in the URL holds a NUL; and no header name with an
underscore passes, since WSGI's spelling could not tell it from the one with a hyphen.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse

from api import resources, routes
from api.access import auth
from api.access.impersonation import Claim, claim_of_headers
from api.console import proxy
from api.console.live import stream
from api.console.page import layout
from api.forms import failures
from api.kinds.viewsets import MAX_OBJECT_BYTES
from api.routes import Route, Target
from api.running import Runner, Work, hang_up, make_ready
from api.server import (
    audit,
    compression,
    connections,
    health,
    health_texts,
    metrics,
    protocol,
    pulse,
    traces,
)
from api.server.audit_events import AuditedRequest
from api.server.budget import SMALL_BYTES, Budget
from api.server.lanes import Calls, Lane
from api.server.protocol import CONNECTION
from api.server.scopes import (
    COMPLETE,
    Receive,
    Scope,
    Send,
    announced,
    check_url,
    parameters,
    raw_header,
)
from api.server.sending import (
    PLAIN_TEXT,
    Answer,
    answer_of,
    refuse,
    reply,
    reply_in_parts,
    reply_with,
)
from api.server.sessions import Sessions
from api.server.shares import Shares
from api.stowage import decision_search
from api.streaming import events_stream, state_metrics, waiting, watch
from api.streaming.hub import hub
from clusterstate.access import authorizer
from clusterstate.access.policy import Policy
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.actions.loops.metrics import Adder
from clusterstate.admission.request import User
from clusterstate.objects.values.errors import (
    BadRequest,
    ServiceUnavailable,
    StatusError,
    TooLarge,
    TooManyRequests,
)
from clusterstate.telemetry import tracing

GoOn = Callable[[protocol.Asgi], None]
"""Has an ASGI application go on with a request, in a task."""

Known = tuple[User, Policy | None]
"""Who sent a request, and the roles to judge it by; ``None`` where they are not looked at."""

BATCH = 64
"""Requests that are answered together at most; more would make the first of them wait."""


AWAY_SECONDS = 0.25
"""How often a page that takes long looks whether the database is away."""


MAX_LOGINS = 64
"""Tokens that may wait to be looked up for one address, or for one user known before."""


ENDING = "the server is ending: whether the request was carried out is not known"
"""What a request is told that the server still works on when it has to end."""


SIMULATIONS = "/apis/stowage.dev/v1/simulations"

MAX_SINGLE_BYTES = 64 << 10
"""A body above this is a list or an odd pod, and would hold up a batch."""


_HEALTH: dict[str, Callable[[], Sequence[health_texts.Part]]] = {
    path + slash: parts
    for path, parts in (
        ("/livez", lambda: health_texts.alive(health.latest())),
        ("/healthz", lambda: health_texts.alive(health.latest())),
        ("/readyz", health.latest),
    )
    for slash in ("", "/")
}
"""What is answered on the event loop, at once, also while every thread waits."""


_LONG: dict[str, Callable[[Scope, Receive, Send, watch.OnThread], Awaitable[None]]] = {
    state_metrics.PATH: state_metrics.serve,
    decision_search.EXPORT: decision_search.serve,
    events_stream.PATH: events_stream.serve,
}
"""Answers that stay open for as long as it takes to write them."""


class _Disconnected(Exception):
    """The client went away while it was sending."""


def _address(scope: Scope) -> str:
    """Return the flow that all unauthenticated clients of one IP address share."""
    client = scope.get("client")
    return f"@{client[0] if client else ''}"


class Caller(msgspec.Struct, frozen=True, gc=False):
    """The sender of a request, as far as known before its body is read."""

    user: User | None
    flow: str
    may_send: int


def _may_send(user: User, scope: Scope, target: Target | None, policy: Policy | None) -> int:
    """Return how large a body a user may send there.

    Raises:
        AccessDenied: none, since they may not do what the method and the path say.
    """
    if auth.MASTERS in user.groups:
        return settings.MAX_BODY_BYTES
    method = scope["method"]
    if method in ("GET", "HEAD", "OPTIONS"):
        return SMALL_BYTES
    if target is None:
        # What else there is asks by itself; only nodes and questions send it more than a few lines.
        simulates = Attributes("create", "stowage.dev", "simulations")
        if scope["path"].rstrip("/") == SIMULATIONS:
            auth.require(user, simulates, policy)
            return MAX_OBJECT_BYTES
        return MAX_OBJECT_BYTES if auth.NODES in user.groups else SMALL_BYTES
    query = scope["query_string"]
    selector = parameters(scope).get("fieldSelector", "") if b"fieldSelector" in query else ""
    wants = auth.attributes_of(method, target, selector)
    if authorizer.depends_on_references(user, wants):
        return MAX_OBJECT_BYTES  # the view judges it: on the event loop nothing is queried
    auth.require(user, wants, policy)
    return settings.MAX_BODY_BYTES if method == "POST" else MAX_OBJECT_BYTES


def _is_known(sender: User, claim: Claim) -> bool:
    """Return whether a sender has all rights, so that no role has to be read."""
    return auth.MASTERS in sender.groups and claim.acts_for is None


def _remembered(claim: Claim) -> tuple[Known | None, str]:
    """Return the cached sender and policy, or ``None``; and the name that the sender last had.

    Raises:
        Unauthorized: no bearer token.
    """
    sender, name = auth.remembered(claim.authorization)
    policy = authorizer.fresh()
    if sender is None or (policy is None and not _is_known(sender, claim)):
        return None, name
    return (sender, policy), name


def _caller_of(
    scope: Scope, route: Route, entry: AuditedRequest, claim: Claim, known: Known
) -> Caller:
    """Return the sender of a request, and set the sender in the audit log's entry.

    Raises:
        AccessDenied: they may not do that. ServiceUnavailable: the audit log is full.
    """
    entry.sender, policy = sender, _ = known
    user = auth.acting(sender, claim, policy)
    if scope["method"] not in ("GET", "HEAD"):
        user = auth.identified(user, UUID(entry.id))
    audit.record_user(entry, user, policy)
    # Whoever acts for others takes turns as themselves.
    return Caller(user, sender.name, _may_send(user, scope, route.target, policy))


def _observe(scope: Scope, route: Route, code: int, started: float, size: int = 0) -> None:
    """Count the answer to a request."""
    method = scope["method"]
    if tracing.is_on():
        traces.end(scope, code)
    metrics.observe(
        method,
        scope["path"],
        route,
        code,
        started,
        dry_run=b"dryRun=All" in scope["query_string"],
        applies=method == "PATCH" and b"apply" in raw_header(scope, b"content-type"),
        size=size,
    )


def _note(scope: Scope, entry: AuditedRequest, body: bytes, started: float, answer: Answer) -> None:
    """Count an answer, have it audited, and give it the header with the audit id."""
    code, headers, text = answer
    _observe(scope, routes.of(scope), code, started, len(text))
    audit.answered(entry, code, request=body, response=text)
    headers.append((b"audit-id", audit.id_of(entry)))


def _note_failure(
    scope: Scope, entry: AuditedRequest, body: bytes, started: float, error: Exception
) -> HttpResponse:
    """Return the answer to a request that failed, counted and audited."""
    response = failures.of_scope(scope, error)
    _observe(scope, routes.of(scope), response.status_code, started)
    audit.answered(entry, response.status_code, request=body, response=response.content)
    return response


def _log_in(authorizations: Sequence[str]) -> list[Known | Exception]:
    """Authenticate Authorization headers; return users or errors. Queries; runs on a thread."""
    found: list[Known | Exception] = []
    with connections.used():
        for authorization in authorizations:
            try:
                found.append((auth.log_in(authorization), authorizer.current()))
            except Exception as error:  # noqa: BLE001  # each request gets it as its answer
                found.append(error)
    return found


class _Plain:
    """A request that is answered without an asyncio task; its lane delivers the answer to it."""

    __slots__ = ("_body", "_entry", "_flow", "_go_on", "_lane", "_light", "_of", "_scope", "_since")

    def __init__(
        self, of: "Application", scope: Scope, body: bytes, go_on: GoOn, lane: "Lane[Work, Answer]"
    ) -> None:
        self._of, self._scope, self._body, self._go_on, self._lane = of, scope, body, go_on, lane
        self._since = time.perf_counter()
        self._entry = audit.opened(scope)
        self._flow = ""
        self._light: bool | None = None  # None: it is in no lane

    def begin(self, claim: Claim, known: Known) -> None:
        """Put the request into its lane, or refuse it."""
        scope, entry = self._scope, self._entry
        metrics.begin(scope["method"])
        self._of.plain.add(self)
        scope[COMPLETE] = True
        try:
            check_url(scope)
            caller = _caller_of(scope, routes.of(scope), entry, claim, known)
            self._flow = caller.flow
            self._of.budget.require(caller.flow, 0)
            work = Work(scope, self._body, entry, caller.user)
            self._light = self._lane.enter(work, self, caller.flow)
        except Exception as error:  # noqa: BLE001  # every failure becomes a Status
            self.set_exception(error)

    def done(self) -> bool:
        """Return whether it was answered already, since the server ends."""
        return self not in self._of.plain

    def set_result(self, answer: Answer) -> None:
        """Send the answer."""
        self._end()
        scope, of, flow = self._scope, self._of, self._flow
        _note(scope, self._entry, self._body, self._since, answer)
        if len(answer[2]) > SMALL_BYTES or not scope[CONNECTION].answer(scope, *answer):
            self._go_on(lambda _, __, send: of.send(scope, send, answer, flow))

    def set_exception(self, error: Exception) -> None:
        """Send the error as a ``Status``."""
        self._end()
        response = _note_failure(self._scope, self._entry, self._body, self._since, error)
        entry = self._entry
        self._go_on(
            lambda scope, receive, send: refuse(
                scope, receive, audit.telling(entry, send), response
            )
        )

    def _end(self) -> None:
        self._of.plain.discard(self)
        metrics.end(self._scope["method"])
        if self._light is not None:
            self._lane.leave(self._light)


class Application:
    """The ASGI application around Django's WSGI handler."""

    def __init__(self, django: WSGIHandler, *, threads: int) -> None:
        self._sessions = Sessions()
        run = Runner(django, self._sessions)
        shares = Shares()
        self._calls = Calls("watch", threads=threads, finish=hang_up, shares=shares)
        of_console = settings.PROCESS == "console"
        ready: dict[str, Any] = {
            "prepare": None if of_console else make_ready,
            "finish": hang_up,
            "shares": shares,
        }
        self._general = Lane("request", run.one_by_one, threads=threads, limit=1, **ready)
        self._creations = Lane("create", run.together, threads=2, limit=BATCH, **ready)
        # Apart from creations, since a row may be locked by somebody whom only time ends.
        self._deletions = Lane("delete", run.together, threads=2, limit=BATCH, **ready)
        self._reads = Lane("read", run.together, threads=2, limit=BATCH, **ready)
        # Renewals do not wait behind other requests: a node whose heartbeat is late is given up.
        # Each node is a flow. No single renewal is in a hurry, and large batches are cheap. A node
        # status that says something new may wait for a lock, and so has a second thread beside it.
        self._renewals = Lane(
            "renew", run.together, threads=2, limit=BATCH, shared=BATCH, finish=hang_up,
            shares=shares,
        )  # fmt: skip
        # These requests wait up to a minute for another process, so they have threads of their own.
        self._questions = Lane(
            "question",
            run.one_by_one,
            threads=threads,
            limit=1,
            finish=hang_up,
            shares=shares,
            keeps_room=True,
        )
        # Pages are long to make: they shall not take the threads of the API. Those of the console
        # may wait for an advisor: nobody's shall take all threads.
        self._pages = Lane(
            "page",
            run.one_by_one,
            threads=4 if of_console else 2,
            limit=1,
            prepare=make_ready if of_console else None,
            finish=hang_up,
            shares=shares,
            keeps_room=of_console,
        )
        self._logins = Lane(
            "login",
            _log_in,
            threads=1,
            limit=BATCH,
            finish=hang_up,
            most=MAX_LOGINS,
            shares=shares,
        )
        self._lanes = (
            self._general,
            self._creations,
            self._deletions,
            self._reads,
            self._renewals,
            self._questions,
            self._pages,
            self._logins,
        )
        self._batched = frozenset({self._creations, self._deletions, self._reads, self._renewals})
        self.plain: set[_Plain] = set()
        self._open: Counter[str] = Counter()
        self.budget = Budget(settings.MAX_HELD_BYTES)
        self._adder = Adder()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        routes.bring_up_to_date(scope)
        health_of = _HEALTH.get(scope["path"])
        if health_of is not None:
            query = scope["query_string"].decode(errors="replace")
            code, text = health_texts.of(scope["path"].strip("/"), health_of(), query)
            body = text.encode()
            length = (b"content-length", str(len(body)).encode())
            await reply(scope, send, code, [*PLAIN_TEXT, length], body)
            return
        long = _LONG.get(scope["path"].rstrip("/"))
        if long is not None:
            await self._long(long, scope, receive, send)
            return
        if proxy.leads_to_console(scope):
            await proxy.forward(scope, receive, send)
            return
        if scope["path"] == stream.PATH:
            await self._stream(scope, receive, send)
            return
        query = scope["query_string"]
        if query and scope["method"] == "GET" and not routes.of(scope).is_page:
            if b"watch=" in query and watch.is_watch(scope):
                await self._long(watch.serve, scope, receive, send)
                return
            if b"waitFor=" in query and waiting.waits_for_objects(scope):
                await self._long(waiting.serve, scope, receive, send)
                return
        metrics.begin(scope["method"])
        try:
            await self._on_thread(scope, receive, send)
        finally:
            metrics.end(scope["method"])

    def begin(self, scope: Scope, body: bytes, go_on: GoOn) -> None:
        """Begin to answer a request with its whole body; a plain one needs no asyncio task.

        Plain is what is answered in batches, from a sender who is known. It costs the event loop
        two thirds of what it costs with ASGI's calls, and a task that waits.
        """
        routes.bring_up_to_date(scope)
        route, query = routes.of(scope), scope["query_string"]
        asks_more = query and (scope["method"] == "GET" or b"waitFor=" in query)
        if scope["method"] == "GET":
            body = b""  # what a client sends with it means nothing, and is not recorded either
        may_be = route.target is not None and not (route.is_page or asks_more or tracing.is_on())
        if may_be and len(body) <= SMALL_BYTES:
            lane = self._lane(scope, route, body)
            if lane in self._batched:
                known = None
                with suppress(StatusError):  # the other way raises it again
                    claim = claim_of_headers(scope["headers"])
                    known, _ = _remembered(claim)
                if known is not None:
                    _Plain(self, scope, body, go_on, lane).begin(claim, known)
                    return
        go_on(self)

    def _lane(self, scope: Scope, route: Route, body: bytes) -> "Lane[Work, Answer]":
        """Return the lane of a request; frequent sorts of requests have lanes with batches."""
        if route.is_page:
            return self._pages
        target, method = route.target, scope["method"]
        if target is None:
            return self._questions if resources.asks(scope["path"]) else self._general
        if method in ("PUT", "PATCH") and objects.are_renewed(
            target.kind, target.namespace, target.subresource
        ):
            return self._renewals if len(body) < MAX_SINGLE_BYTES else self._general
        if target.subresource:
            return self._general
        if method == "GET" and target.name and target.kind.plural == "pods":
            return self._reads
        if len(body) < MAX_SINGLE_BYTES and objects.is_batched(target.kind):
            if method == "POST" and not target.name:
                if b"dryRun" in scope["query_string"]:  # of a pod: an advisor says where it goes
                    return self._questions
                return self._creations
            if method == "DELETE" and target.name:
                return self._deletions
        return self._general

    async def _caller(self, scope: Scope, route: Route, entry: AuditedRequest) -> Caller:
        """Return the sender of a request by its headers, and write the user into ``entry``.

        Queries if the credentials are not cached, on a thread.

        Raises:
            Unauthorized, AccessDenied: unknown, or not allowed.
            TooManyRequests: too many unknown credentials wait to be looked up.
        """
        if route.is_page:
            address = _address(scope)
            flow = self._sessions.flow(scope) or address
            # A stranger logs in; that takes a few words.
            return Caller(None, flow, SMALL_BYTES if flow == address else MAX_OBJECT_BYTES)
        if not route.is_api:
            return Caller(None, _address(scope), SMALL_BYTES)
        claim = claim_of_headers(scope["headers"])
        known, name = _remembered(claim)
        if known is None:
            found = await self._logins.run(claim.authorization, name or _address(scope))
            if isinstance(found, Exception):
                raise found
            known = found
        return _caller_of(scope, route, entry, claim, known)

    async def _read_body(
        self, scope: Scope, receive: Receive, caller: Caller, held: ExitStack
    ) -> bytes:
        """Return the whole body of a request that may have one.

        ``held`` gives the budget back what it takes.

        Raises:
            TooLarge: it exceeds the caller's limit; the rest stays unread.
            TooManyRequests: the process holds too much already.
        """
        limit, budget = caller.may_send, self.budget
        counted = announced(scope)
        if counted > limit:
            raise TooLarge(f"the request body is larger than the limit of {limit} bytes")
        if counted > SMALL_BYTES:
            budget.require(caller.flow, counted)
            held.enter_context(budget.reserved(caller.flow, counted))
        else:
            counted = SMALL_BYTES
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size > limit:
                raise TooLarge(f"the request body is larger than the limit of {limit} bytes")
            if size > counted:  # in chunks, of which nobody knew how many
                budget.require(caller.flow, size)
                held.enter_context(budget.reserved(caller.flow, size))
                counted = 2 * size
            parts.append(part)
        scope[COMPLETE] = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _long(
        self,
        serve: Callable[[Scope, Receive, Send, watch.OnThread], Awaitable[None]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve a request that stays open, such as a watch."""
        entry = audit.opened(scope)
        send = audit.telling(entry, send)
        try:
            check_url(scope)
            caller = await self._caller(scope, routes.of(scope), entry)
            self.budget.require(caller.flow, 0)
            if self._open[caller.flow] >= protocol.max_connections() // 2:
                raise TooManyRequests("too many watches are open", {"retryAfterSeconds": 5})
        except Exception as error:  # noqa: BLE001  # every failure becomes a Status
            response = failures.of_scope(scope, error)
            await refuse(scope, receive, send, response)
            audit.answered(entry, response.status_code, response=response.content)
            return
        self._open[caller.flow] += 1
        try:
            await serve(scope, receive, send, partial(self._calls.run, caller.flow))
        finally:
            audit.answered(entry, entry.code)
            self._open[caller.flow] -= 1
            if not self._open[caller.flow]:
                del self._open[caller.flow]

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a console page the changes of its objects, until the page is closed."""
        entry = audit.opened(scope)
        code = 200
        try:
            code = await stream.serve(scope, receive, send)
        finally:
            audit.answered(entry, code)

    async def _on_thread(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by its Django view, on a thread of its lane."""
        started = time.perf_counter()
        entry = audit.opened(scope)
        route = routes.of(scope)
        body = b""
        with ExitStack() as held:
            try:
                check_url(scope)
                caller = await self._caller(scope, route, entry)
                self.budget.require(caller.flow, 0)
                if scope["method"] not in ("GET", "HEAD"):
                    body = await self._read_body(scope, receive, caller, held)
                if route.is_page and (b"%00" in body or b"\0" in body):
                    raise BadRequest("the form holds a NUL character")
                started = time.perf_counter()
                lane = self._lane(scope, route, body)
                if tracing.is_on():
                    traces.begin(scope)
                on_thread = partial(self._calls.run, caller.flow)
                condition = None
                if b"waitFor=" in scope["query_string"] and waiting.waits_for_created(scope):
                    condition = await on_thread(waiting.check, scope, caller.user)
                work = Work(scope, body, entry, caller.user)
                run = self._page if lane is self._pages else lane.run
                answer = await run(work, caller.flow)
                if condition is not None:
                    answer = await waiting.created(scope, receive, answer, condition, on_thread)
            except _Disconnected:
                return
            except asyncio.CancelledError:
                # The server is told to end, and has waited for its requests as long as it does.
                # What a thread was given may still be done; nobody waits for it any more.
                await reply_with(send, failures.of_scope(scope, ServiceUnavailable(ENDING)))
                return
            except Exception as error:  # noqa: BLE001  # every failure becomes a Status
                response = _note_failure(scope, entry, body, started, error)
                await refuse(scope, receive, audit.telling(entry, send), response)
                return
        _note(scope, entry, body, started, answer)
        await self.send(scope, send, answer, caller.flow)

    async def send(self, scope: Scope, send: Send, answer: Answer, flow: str) -> None:
        """Send an answer, in gzip if it is large and the client wants that."""
        if compression.is_wanted(scope, answer):
            answer = await self._compressed(answer, flow)
        if len(answer[2]) <= SMALL_BYTES:
            await reply(scope, send, *answer)
        else:
            with self.budget.reserved(flow, len(answer[2])):
                await reply_in_parts(send, *answer)

    async def _page(self, work: Work, flow: str) -> Answer:
        """Return a page, or without waiting that the database is away, as soon as that is known.

        The outcome of a form that was begun is waited for: it may have changed something.
        """
        if work.scope["path"].startswith(settings.STATIC_URL):
            return await self._pages.run(work, flow)
        health.latest()  # from now on it looks once a second
        if health.away_since():
            return answer_of(layout.database_away(work.scope))
        if work.scope["method"] not in ("GET", "HEAD"):
            return await self._pages.run(work, flow)
        page = asyncio.ensure_future(self._pages.run(work, flow))
        try:
            while not (await asyncio.wait({page}, timeout=AWAY_SECONDS))[0]:
                if health.away_since():
                    return answer_of(layout.database_away(work.scope))
            return page.result()
        finally:
            page.cancel()

    async def _compressed(self, answer: Answer, flow: str) -> Answer:
        """Return an answer in gzip, as it is while too much waits for threads already."""
        with self.budget.reserved(flow, len(answer[2])):
            try:
                return await self._calls.run(flow, compression.compressed, answer)
            except TooManyRequests:
                return answer

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop the threads and tasks that run as long as the process."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                audit.log.start()
                for lane in self._lanes:
                    lane.start(asyncio.get_running_loop())
                health.watch()
                pulse.start(self._lanes)
                tracing.start()
                self._adder.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                for one in [*self.plain]:
                    one.set_exception(ServiceUnavailable(ENDING))
                hub.close()
                health.end()
                self._calls.close()
                for lane in self._lanes:
                    lane.close()
                self._adder.close()
                tracing.stop()
                audit.log.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
