"""``GET /apis/stowage.dev/v1/events/stream``: events of the cluster as server-sent events.

    types=bind,unschedulable,evict,preempt,plan,brake,change   only these; default: those of pods
    kinds=Node,Pod          kinds of ``change`` (default: all that the caller may watch completely)
    namespace=, name=, node=, labelSelector=        only matching objects
    latest=true             of several changes of an object since the last message only the last
    since=REVISION          from there on; the header Last-Event-ID has priority over it
    timeoutSeconds=         duration; default: half an hour to an hour

Each message is a CloudEvent in one line; its ``id:`` is the revision from which to continue (of
several messages of one revision only the last has it). The reader needs the right to watch the
kinds in the stream, in the namespace or in all.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from api import routes
from api.access import auth, reach
from api.access.impersonation import claim_of_headers
from api.access.notice_rights import rights_for, to_watch
from api.forms import errors, failures, wire
from api.server import connections, metrics
from api.server.scopes import Receive, Scope, Send, header, parameters
from api.streaming import rights, streams
from api.streaming.hub import Event
from api.streaming.streams import ChangeStream, Message, Outlet
from api.streaming.watch import Client, OnThread
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.change_log import changes, lineage
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values import labels
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.queries.people import notices
from clusterstate.queries.people.notices import CHANGE, OF_EVENTS, OF_PODS, TYPES, Notice

PATH: Final = "/apis/stowage.dev/v1/events/stream"
_SECONDS: Final = (1800.0, 3600.0)
_KNOWN: Final = frozenset(
    {"types", "kinds", "namespace", "name", "node", "labelSelector", "latest", "since",
     "timeoutSeconds"}
)  # fmt: skip
_jitter = random.Random()  # noqa: S311  # spreads reconnects, decides nothing


class StreamFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a stream; an empty text is no filter."""

    types: frozenset[str]
    kinds: frozenset[str] = frozenset()
    namespace: str = ""
    name: str = ""
    node: str = ""
    selector: labels.Selector
    only_latest: bool = False

    def followed(self) -> frozenset[str]:
        """Return the kinds whose changes have to be read."""
        return notices.kinds_for(self.types, sorted(self.kinds))


class Request(msgspec.Struct, frozen=True):
    """A checked request: filters, first revision, duration in seconds, needed rights, source."""

    filters: StreamFilters
    cursor: int
    seconds: float
    needs: tuple[Attributes, ...]
    source: str


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def read(query: dict[str, str]) -> StreamFilters:
    """Return the filters of query parameters.

    Raises:
        BadRequest: a parameter is unknown, or has an invalid value.
    """
    unknown = query.keys() - _KNOWN
    if unknown:
        raise BadRequest(f"unknown parameter {min(unknown)!r}")
    types = _words(query.get("types", "")) or sorted(OF_PODS)
    for one in types:
        if one not in TYPES:
            raise BadRequest(
                f'invalid value "{one}" for types: supported values: {", ".join(TYPES)}'
            )
    kinds = _words(query.get("kinds", ""))
    if kinds and CHANGE not in types:
        raise BadRequest(f"kinds: may only be set together with the type {CHANGE}")
    for one in kinds:
        if one not in KINDS:
            raise BadRequest(f'invalid value "{one}" for kinds: there is no such kind here')
    try:
        selector = labels.parse_selector(query.get("labelSelector", ""))
    except labels.SelectorError as error:
        raise BadRequest(f"unable to parse requirement: {error}") from error
    namespace = query.get("namespace", "")
    every = [one.name for one in ALL_KINDS if one.namespaced or not namespace]
    return StreamFilters(
        types=frozenset(types),
        kinds=frozenset(kinds or (every if CHANGE in types else ())),
        namespace=namespace,
        name=query.get("name", ""),
        node=query.get("node", ""),
        selector=selector,
        only_latest=wire.boolean(query.get("latest"), "latest"),
    )


def _may(user: User, wants: Attributes) -> bool:
    return authorizer.decide(user, wants).allowed


@connections.used()
def _open(scope: Scope) -> Request:
    """Authenticate, authorise and read the request; runs on a thread. May query."""
    if scope["method"] != "GET":
        raise errors.MethodNotAllowed(errors.WRONG_METHOD)
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    query = parameters(scope)
    filters = read(query)
    if CHANGE in filters.types and not query.get("kinds"):
        may = [one for one in filters.kinds if _may(user, to_watch(one, filters.namespace))]
        filters = msgspec.structs.replace(filters, kinds=frozenset(may))
    needs = rights_for(filters.types, sorted(filters.kinds), filters.namespace)
    if not needs:
        raise BadRequest("kinds: Required value: there is no kind that you may watch")
    for one in needs:
        auth.require(user, one)
    since = header(scope, b"last-event-id") or query.get("since", "")
    cursor = wire.integer(since, "since") or 0
    if cursor:
        for one in needs:
            reach.require_from(user, one, cursor)
    identity = lineage.identity()
    if cursor:
        lineage.require(cursor)
        kept_after = lineage.kept_after()
        if cursor < kept_after:
            raise Expired(f"too old resource version: {cursor} ({kept_after})")
    else:
        cursor = changes.settled().mark
    seconds = wire.integer(query.get("timeoutSeconds"), "timeoutSeconds")
    length = float(seconds) if seconds else _jitter.uniform(*_SECONDS)
    return Request(filters, cursor, length, tuple(needs), notices.source_of(identity["uid"]))


class Teller:
    """Turns events into the messages of one stream."""

    def __init__(self, filters: StreamFilters, source: str) -> None:
        self._filters = filters
        self._source = source

    def messages(self, events: Sequence[Event]) -> list[Message]:
        """Return the messages for the client about these events."""
        chosen = [event for event in events if self._concerns(event)]
        if self._filters.only_latest:
            chosen = streams.latest(chosen)
        return [message for event in chosen for message in self._messages(event)]

    def _concerns(self, event: Event) -> bool:
        if event.change.kind == "Event" and not self._filters.types.isdisjoint(OF_EVENTS):
            return True  # what it tells of is judged when that is known
        return self._selected(event)

    def _is_wanted(self, notice: Notice) -> bool:
        """Return whether a notice about a plan or brake matches; it has no namespace or labels."""
        filters = self._filters
        if filters.namespace or filters.node or not filters.selector.everything:
            return False
        return not filters.name or notice.name == filters.name

    def _selected(self, event: Event) -> bool:
        filters, change = self._filters, event.change
        if filters.namespace and change.namespace != filters.namespace:
            return False
        if filters.name and change.name != filters.name:
            return False
        if filters.node and not change.concerns_node(filters.node):
            return False
        if filters.selector.everything:
            return True
        return filters.selector.matches(event.new["metadata"].get("labels") or {})

    def _messages(self, event: Event) -> list[Message]:
        filters = self._filters
        types = filters.types
        if CHANGE in types and event.change.kind not in filters.kinds:
            types -= {CHANGE}
        change = event.change

        def old_text() -> str | None:
            same = change.previous_document_id == change.document_id
            return change.text if same else change.previous_text

        if change.kind == "Event" and CHANGE in types and not self._selected(event):
            types -= {CHANGE}
        if not event.is_own:  # a client's words, also about what the service recorded before
            types -= OF_EVENTS.keys()
        found = notices.notices_of(change, types, lambda: event.new, old_text)
        found = [one for one in found if one.type not in OF_EVENTS or self._is_wanted(one)]
        return [
            Message(one.revision if one is found[-1] else 0, one.type, one.envelope(self._source))
            for one in found
        ]


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one request for a stream."""
    try:
        request: Request = await on_thread(_open, scope)
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
        return
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    counted = metrics.OpenAnswer(scope["path"], routes.of(scope))
    selecting = {"Pod"} if not OF_PODS.isdisjoint(request.filters.types) else ()
    following = ChangeStream(request.filters.followed(), selecting=selecting)
    outlet = Outlet(scope, send)
    teller = Teller(request.filters, request.source)

    def tell(events: Sequence[Event]) -> list[Message]:
        messages = teller.messages(events)
        counted.sent(len(messages))
        return messages

    try:
        await outlet.begin()
        streaming = streams.run(
            outlet, client, following, request.cursor, tell, on_thread, seconds=request.seconds
        )
        failure = None
        try:
            await rights.run_while_allowed(
                streaming, claim_of_headers(scope["headers"]), *request.needs
            )
        except Exception as error:  # noqa: BLE001  # the headers are sent: a message tells it
            failure = errors.translate(error)
        if not client.gone:
            await outlet.end(failure)
    finally:
        following.close()
        counted.end()
        listener.cancel()
