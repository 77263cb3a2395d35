"""Decisions across pods: listed in pages, and exported as one stream of lines or columns.

    /apis/stowage.dev/v1/decisions           a page, the newest first; ``continue`` leads on
    /apis/stowage.dev/v1/decisions/export    all matches, as JSON lines or as an Arrow stream

Both take the filters of ``read``, and need the right to get decisions of pods, in a namespace or in
all. If the client loses that right, an export stops: JSON lines end with a Status that says so, and
the HTTP answer is not completed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from django.conf import settings
from rest_framework.response import Response

from api import routes
from api.access import auth, reach
from api.access.impersonation import claim_of_headers
from api.forms import errors, failures, renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds import own
from api.kinds.own import OwnViewSet
from api.requests import Request
from api.server import connections, metrics
from api.server.scopes import Receive, Scope, Send, parameters
from api.stowage import audit_view
from api.streaming import rights
from api.streaming.watch import Client, OnThread
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.database import arrow
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.queries.scheduler import decision_search
from clusterstate.queries.scheduler.decision_search import Chosen, DecisionSummary, Page, Search

EXPORT: Final = "/apis/stowage.dev/v1/decisions/export"
KIND: Final = Kind(name="Decision", group=own.GROUP)
_MANY: Final = 100
MOST: Final = 1000
_AT_ONCE: Final = 5000
OUTCOMES: Final = ("scheduled", "unschedulable", "error", "stale")
_FILTERS: Final = frozenset(
    {"namespace", "name", "node", "reason", "outcome", "profile", "owner", "actor", "since",
     "until"}
)  # fmt: skip
_encode = msgspec.json.Encoder().encode


def read(query: Mapping[str, str], *, at: datetime | None = None) -> Search:
    """Return the filters of query parameters; ``at``: only decisions made until then.

    Raises:
        BadRequest: a parameter is unknown, or has an invalid value.
    """
    outcome, owner = query.get("outcome", ""), query.get("owner", "")
    if outcome and outcome not in OUTCOMES:
        raise BadRequest(
            f'outcome: Invalid value: "{outcome}": must be one of {", ".join(OUTCOMES)}'
        )
    if owner and not all(owner.partition("/")):
        raise BadRequest(f'owner: Invalid value: "{owner}": must be KIND/NAME')
    if owner and not query.get("namespace"):
        raise BadRequest("namespace: Required value: an owner needs its namespace")
    return Search(
        namespace=query.get("namespace", ""),
        name=query.get("name", ""),
        node=query.get("node", ""),
        reason=query.get("reason", ""),
        outcome=outcome,
        profile=query.get("profile", ""),
        owner=owner,
        actor=query.get("actor", ""),
        since=audit_view.moment(query.get("since", ""), "since"),
        until=audit_view.earlier(audit_view.moment(query.get("until", ""), "until"), at),
    )


def _needs(namespace: str) -> Attributes:
    return Attributes("get", "", "pods", "decisions", namespace=namespace)


def bounded(user: User, filters: Search) -> Search:
    """Return the filters, limited to the time since which the user may read. May query."""
    began = reach.beginning(user, _needs(filters.namespace))
    if began is None or (filters.since is not None and filters.since >= began.at):
        return filters
    return msgspec.structs.replace(filters, since=began.at)


class DecisionSearchViewSet(OwnViewSet):
    """Decisions about any pods, the newest first."""

    resource = KIND.plural
    kind = KIND.name
    renderer_classes = renderers.OF_OBJECTS
    dated = ("list",)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to get decisions of pods, in the namespace of the request."""
        return (_needs(request.query_params.get("namespace", "")),)

    def list(self, request: Request) -> Response:
        """Return a DecisionList; ``continue`` leads to older ones.

        A page may have fewer than ``limit`` items, or none, although more follow.
        """
        query = request.query_params
        self.require_kept(settings.DECISION_SECONDS)
        limit = min(wire.integer(query.get("limit"), "limit") or _MANY, MOST)
        before = wire.integer(query.get("continue"), "continue") or 0
        filters = bounded(self.user, read(query, at=self.moment))
        found = decision_search.search(filters, limit=limit, before=before)
        metadata = {"continue": str(found.more)} if found.more else {}
        items = [{"metadata": {"name": str(one.id)}, **one.manifest()} for one in found.items]
        return replies.reply(MadeManifests(KIND, items, metadata))


# Export ------------------------------------------------------------------------------------------


class Lines:
    """Decisions as JSON lines."""

    media_type = "application/jsonl"

    def page(self, items: Sequence[DecisionSummary]) -> bytes:
        """Return a line for each decision."""
        return b"".join(_encode(one.manifest()) + b"\n" for one in items)

    def end(self) -> bytes:
        """Return empty bytes: lines need no end."""
        return b""

    def failure(self, error: StatusError) -> bytes:
        """Return a last line with the error."""
        return wire.encode(errors.as_status(error)) + b"\n"


class Columns:
    """Decisions as an Arrow stream.

    Raises:
        NotInstalled: the library nanoarrow is not installed.
    """

    media_type = arrow.MEDIA_TYPE

    def __init__(self) -> None:
        self._writer = arrow.Writer(arrow.columns_of(DecisionSummary))

    def page(self, items: Sequence[DecisionSummary]) -> bytes:
        """Return the decisions as an Arrow record batch."""
        return self._writer.batch([msgspec.structs.astuple(one) for one in items])

    def end(self) -> bytes:
        """Return the end of the stream."""
        return self._writer.end()

    def failure(self, error: StatusError) -> bytes:
        """Return empty bytes: without its end the stream is visibly incomplete."""
        return b""


FORMS: Final[dict[str, Callable[[], Lines | Columns]]] = {"jsonl": Lines, "arrow": Columns}
"""Formats of an export, by the parameter ``format``."""


class _Export(msgspec.Struct, frozen=True):
    chosen: Chosen
    form: Any


@connections.used()
def _open(scope: Scope) -> _Export:
    """Authenticate, authorise and check the parameters; runs on a thread. May query."""
    if scope["method"] != "GET":
        raise errors.MethodNotAllowed(errors.WRONG_METHOD)
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    query = parameters(scope)
    auth.require(user, _needs(query.get("namespace", "")))
    unknown = query.keys() - _FILTERS - {"format"}
    if unknown:
        raise BadRequest(f"unknown parameter {min(unknown)!r}")
    form = query.get("format", "jsonl")
    if form not in FORMS:
        raise BadRequest(f'format: Invalid value: "{form}": must be one of {", ".join(FORMS)}')
    return _Export(decision_search.choose(bounded(user, read(query))), FORMS[form]())


@connections.used()
def _page(export: _Export, before: int) -> tuple[bytes, int]:
    """Return a part of the export, and the start of the next. Queries; runs on a thread."""
    found: Page = decision_search.search(export.chosen, limit=_AT_ONCE, before=before)
    body = export.form.page(found.items) if found.items else b""
    return body if found.more else body + export.form.end(), found.more


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one export, as fast as its client reads it."""
    try:
        export = await on_thread(_open, scope)
        body, before = await on_thread(_page, export, 0)
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
        return
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    counted = metrics.OpenAnswer(scope["path"], routes.of(scope), "LIST")
    headers = [
        (b"content-type", export.form.media_type.encode()),
        (b"cache-control", errors.NO_CACHE.encode()),
    ]

    async def sending(body: bytes, before: int) -> None:
        while before and not client.gone:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            body, before = await on_thread(_page, export, before)
        if not client.gone:
            await send({"type": "http.response.body", "body": body, "more_body": False})

    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await rights.run_while_allowed(
            sending(body, before),
            claim_of_headers(scope["headers"]),
            _needs(export.chosen.filters.namespace),
        )
    except StatusError as error:
        # The answer stays without an end, which every client takes for a failure.
        if not client.gone:
            last = export.form.failure(error)
            await send({"type": "http.response.body", "body": last, "more_body": True})
    finally:
        counted.end()
        listener.cancel()
