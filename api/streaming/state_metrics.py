"""``GET /metrics/state``: metrics of objects by kube-state-metrics' names, streamed.

PostgreSQL produces the lines and this process passes them on, a page of some thousand objects at a
time, as fast as the client reads. A page uses one thread and a few megabytes, however large the
cluster is. A process answers one scrape at a time.

    resources=pods,nodes      only these (as kube-state-metrics' --resources)
    namespaces=a,b            only objects of these namespaces, and those without one
    shard=0&totalShards=4     one part of the objects (--shard, --total-shards)

The scrape needs the right to read ``/metrics``, even with STOWAGE_METRICS_OPEN: the answer names
all objects.
"""

import asyncio
import zlib
from collections.abc import Sequence

import msgspec
import structlog

from api.access import auth
from api.access.impersonation import claim_of_headers
from api.forms import errors, exposition, failures, wire
from api.server import connections
from api.server.protocol import CONNECTION
from api.server.scopes import Receive, Scope, Send, header, parameters
from api.streaming.watch import Client, OnThread
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.errors import BadRequest, TooManyRequests
from clusterstate.queries.loops import state_metrics as queries
from clusterstate.queries.loops.state_families import FAMILIES, RESOURCES, StateFamily
from clusterstate.queries.loops.state_metrics import Selection

logger = structlog.get_logger(__name__)

PATH = "/metrics/state"
MAX_SHARDS = 1024
LONGEST_SECONDS = 120.0
"""A scrape that is read more slowly is cut off: the next one waits for its end."""
_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS

_busy = asyncio.Lock()


class Request(msgspec.Struct, frozen=True):
    """A checked request."""

    families: Sequence[StateFamily]
    selection: Selection
    compressed: bool


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


@connections.used()
def _open(scope: Scope) -> Request:
    """Authenticate, authorise and check the parameters; runs on a thread. May query."""
    if scope["method"] != "GET":
        raise errors.MethodNotAllowed(errors.WRONG_METHOD)
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    auth.require(user, Attributes(verb="get", path="/metrics"))
    query = parameters(scope)
    unknown = query.keys() - {"resources", "namespaces", "shard", "totalShards"}
    if unknown:
        raise BadRequest(f"unknown parameter {min(unknown)!r}")
    resources = _words(query.get("resources", ""))
    for resource in resources:
        if resource not in RESOURCES:
            supported = ", ".join(sorted(RESOURCES))
            raise BadRequest(
                f'invalid value "{resource}" for resources: supported values: {supported}'
            )
    shards = wire.integer(query.get("totalShards"), "totalShards")
    shard = wire.integer(query.get("shard"), "shard") or 0
    shards = 1 if shards is None else shards
    if not 1 <= shards <= MAX_SHARDS:
        raise BadRequest(f"invalid value {shards} for totalShards: must be from 1 to {MAX_SHARDS}")
    if not 0 <= shard < shards:
        raise BadRequest(f"invalid value {shard} for shard: must be from 0 to {shards - 1}")
    return Request(
        [one for one in FAMILIES.values() if not resources or one.resource in resources],
        Selection(namespaces=_words(query.get("namespaces", "")), shard=shard, shards=shards),
        "gzip" in header(scope, b"accept-encoding"),
    )


class _Stream:
    """The answer's text in pieces, compressed or not."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._packer = (
            zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if request.compressed else None
        )

    def packed(self, text: str, *, last: bool = False) -> bytes:
        """Return text as bytes, compressed if the answer is."""
        data = text.encode()
        if self._packer is None:
            return data
        return self._packer.compress(data) + (self._packer.flush() if last else b"")

    @connections.used()
    def page(self, family: StateFamily, after: int) -> tuple[int | None, bytes]:
        """Return a page of a metric, and the start of the next. Queries; runs on a thread."""
        last, text = queries.page(family, self._request.selection, after)
        head = exposition.head(family.name, "gauge", family.text) if not after else ""
        return last, self.packed(head + text)


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one scrape."""
    try:
        request = await on_thread(_open, scope)
        if _busy.locked():
            raise TooManyRequests(
                "another scrape of /metrics/state is running: try again later",
                {"retryAfterSeconds": 5},
            )
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
        return
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    try:
        async with _busy, asyncio.timeout(LONGEST_SECONDS):
            await _send_all(request, scope, send, on_thread, client)
    except TimeoutError:  # Prometheus drops what came
        logger.warning("state_scrape_cut_off", seconds=LONGEST_SECONDS)
        if (connection := scope.get(CONNECTION)) is not None:
            connection.hang_up()
    finally:
        listener.cancel()


async def _send_all(
    request: Request, scope: Scope, send: Send, on_thread: OnThread, client: Client
) -> None:
    stream = _Stream(request)
    headers = [(b"content-type", exposition.CONTENT_TYPE.encode())]
    if request.compressed:
        headers.append((b"content-encoding", b"gzip"))
    began = False
    for family in request.families:
        after: int | None = 0
        while after is not None and not client.gone:
            try:
                after, body = await on_thread(stream.page, family, after)
            except Exception as error:
                if began:
                    raise  # the connection is cut, and Prometheus drops what came
                await failures.reply(scope, send, error)
                return
            if not began:
                began = True
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": True})
    if not client.gone:
        await send({"type": "http.response.body", "body": stream.packed("", last=True)})
