"""``GET .../pods/NAME?waitFor=PodScheduled``: answer when the pod has been decided on.

The answer is the pod, as of a plain GET: as soon as it has a node or is known to fit nowhere (its
PodScheduled condition is there), and at the latest after ``timeoutSeconds`` (30). Nothing is held
meanwhile but an open connection: the loop waits for the pod's next change in the log.
"""

import asyncio

from api import routes
from api.access import auth
from api.access.impersonation import claim_of_headers
from api.forms import errors, failures, negotiation, options, replies, wire
from api.routes import Target
from api.server import connections
from api.server.scopes import Receive, Scope, Send, header, parameters
from api.streaming import rights
from api.streaming.hub import Event, digested, hub
from api.streaming.watch import Client, OnThread, wait
from clusterstate.access.rules import Attributes
from clusterstate.change_log import changes
from clusterstate.change_log.changes import DELETED
from clusterstate.objects.values.errors import BadRequest, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_object

CONDITION = "PodScheduled"
DEFAULT_SECONDS = 30
MAX_SECONDS = 600


def asked_for(scope: Scope) -> bool:
    """Return whether a GET with ``waitFor=`` in its query reads one object."""
    target = routes.of(scope).target
    return target is not None and bool(target.name) and not target.subresource


@connections.used()
def _open(scope: Scope) -> tuple[Target, float, Attributes]:
    """Authenticate, authorise and check the parameters; runs on a thread. May query."""
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    target = routes.of(scope).target
    if target is None:
        raise NotFound(errors.UNKNOWN_PATH)
    wants = Attributes(
        verb="get",
        group=target.kind.group,
        resource=target.kind.plural,
        namespace=target.namespace,
        name=target.name,
    )
    auth.require(user, wants)
    query = parameters(scope)
    options.require_present(query, "waiting")
    if target.kind.name != "Pod" or query["waitFor"] != CONDITION:
        raise BadRequest(
            f'invalid value "{query["waitFor"]}" for waitFor: only pods can be waited for, '
            f"and only for {CONDITION}"
        )
    auth.require_own_pod(user, target.namespace, target.name)
    negotiation.form(header(scope, b"accept"))
    seconds = wire.integer(query.get("timeoutSeconds"), "timeoutSeconds")
    asked = DEFAULT_SECONDS if seconds is None else seconds
    return target, float(min(asked, MAX_SECONDS)), wants


@connections.used()
def _read(target: Target) -> tuple[bytes, int, bool]:
    """Return the pod, its revision, and whether it was decided on. Queries; runs on a thread."""
    body = get_object(target.kind, target.namespace, target.name)
    pod: Manifest = replies.decode(body)
    conditions = (pod.get("status") or {}).get("conditions") or ()
    decided = bool((pod.get("spec") or {}).get("nodeName")) or any(
        condition.get("type") == CONDITION for condition in conditions
    )
    return body, int(pod["metadata"]["resourceVersion"]), decided


@connections.used()
def _catch_up(target: Target, cursor: int) -> tuple[list[Event], int]:
    name = target.kind.name
    found = changes.read_since(cursor, kinds={name}, documents={name})
    return digested(found.items), found.cursor


async def _decided(target: Target, seconds: float, client: Client, on_thread: OnThread) -> bytes:
    """Return the pod when it was decided on, or as it is when the time is over.

    Raises:
        NotFound: there is no such pod, or it was deleted meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    body, cursor, decided = await on_thread(_read, target)
    if decided:
        return body
    kind = target.kind.name
    subscription = hub.subscribe(kind, key=(target.namespace, target.name))
    client.on_gone(subscription.wake)
    try:
        while not client.gone:
            subscription.wake.clear()
            ring = hub.ring(kind)
            known = [] if ring.floor is None else ring.after(cursor)
            if known is not None:
                events = known
            else:
                events, cursor = await on_thread(_catch_up, target, cursor)
                subscription.wake.set()
            for event in events:
                change = event.change
                cursor = max(cursor, change.revision)
                if (change.namespace, change.name) != (target.namespace, target.name):
                    continue
                if change.verb == DELETED:
                    raise NotFound(
                        f'{target.kind.resource} "{target.name}" not found',
                        {"name": target.name, "kind": target.kind.plural},
                    )
                body = event.object
                if change.node_name or change.scheduled_at or change.unschedulable:
                    return body
            left = deadline - loop.time()
            if left <= 0:
                return body
            await wait(subscription.wake, left)
    finally:
        hub.unsubscribe(subscription)
    return body


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one GET that waits."""
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    try:
        target, seconds, wants = await on_thread(_open, scope)
        waiting = _decided(target, seconds, client, on_thread)
        body = await rights.kept(waiting, claim_of_headers(scope["headers"]), wants)
        if client.gone:
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-cache, private"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
    finally:
        listener.cancel()
