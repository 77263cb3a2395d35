"""``GET .../pods/NAME?waitFor=CONDITION``: answer when the condition holds.

``PodScheduled``: the pod has been decided on. It has a node, or its PodScheduled condition says
that it fits nowhere or is gated. If no profile of this service has its scheduler's name, the pod is
not decided on: another scheduler may bind it. ``Bound``: it has a node, or has ended without one.

The answer is the pod, as of a plain GET, at the latest after ``timeoutSeconds`` (30). Meanwhile
there is only an open connection: the loop waits for the pod's next change in the log. A POST of
pods may wait as well, if the user may read them; it answers with the pods as they are then.
"""

import asyncio
from typing import Final

import msgspec

from api import routes
from api.access import auth
from api.access.impersonation import claim_of_headers
from api.forms import errors, failures, negotiation, options, parsers, renderers, replies, wire
from api.routes import Target
from api.server import connections
from api.server.scopes import Receive, Scope, Send, header, parameters
from api.server.sending import Answer, Headers
from api.streaming import rights
from api.streaming.hub import Event, digested, hub
from api.streaming.watch import Client, OnThread, wait
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.change_log.changes import DELETED
from clusterstate.objects.values.errors import BadRequest, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import NO_SUCH_PROFILE
from clusterstate.queries.objects import get_object

DECIDED: Final = "PodScheduled"
BOUND: Final = "Bound"
DEFAULT_SECONDS = 30
MAX_SECONDS = 600


def waits_for_objects(scope: Scope) -> bool:
    """Return whether a GET with ``waitFor=`` in its query reads objects of a kind."""
    return routes.of(scope).target is not None


def waits_for_created(scope: Scope) -> bool:
    """Return whether a request with ``waitFor=`` in its query creates objects."""
    target = routes.of(scope).target
    return scope["method"] == "POST" and target is not None and not target.name


def _condition(scope: Scope, target: Target) -> tuple[str, float]:
    """Return the condition to wait for, and the time-out in seconds.

    Raises:
        BadRequest: a parameter is wrong.
    """
    query = parameters(scope)
    options.require_present(query, "waiting")
    condition = query.get("waitFor", "")
    if target.kind.name != "Pod" or condition not in (DECIDED, BOUND):
        raise BadRequest(
            f'invalid value "{condition}" for waitFor: only pods can be waited for, '
            f"and only for {DECIDED} and {BOUND}"
        )
    seconds = wire.integer(query.get("timeoutSeconds"), "timeoutSeconds")
    requested = DEFAULT_SECONDS if seconds is None else seconds
    return condition, float(min(requested, MAX_SECONDS))


def _reading(target: Target) -> Attributes:
    kind = target.kind
    return Attributes(
        verb="get",
        group=kind.group,
        resource=kind.plural,
        namespace=target.namespace,
        name=target.name,
    )


@connections.used()
def _open(scope: Scope) -> tuple[Target, str, float, Attributes]:
    """Authenticate, authorise and check the parameters; runs on a thread. May query."""
    user = auth.authenticate(claim_of_headers(scope["headers"]))
    target = routes.of(scope).target
    if target is None:
        raise NotFound(errors.UNKNOWN_PATH)
    if not target.name or target.subresource:
        raise BadRequest("waitFor: one pod can be waited for, by its name, and not a list of them")
    wants = _reading(target)
    auth.require(user, wants)
    condition, seconds = _condition(scope, target)
    auth.require_own_pod(user, target.namespace, target.name)
    negotiation.form(header(scope, b"accept"), has_message=True)
    return target, condition, seconds, wants


@connections.used()
def _read(target: Target, condition: str) -> tuple[bytes, int, bool]:
    """Return the pod, its revision, and whether the wait is over. Queries; runs on a thread."""
    body = get_object(target.kind, target.namespace, target.name)
    pod: Manifest = replies.decode(body)
    return body, int(pod["metadata"]["resourceVersion"]), _is_over(pod, condition)


def _is_over(pod: Manifest, condition: str) -> bool:
    status = pod.get("status") or {}
    if (pod.get("spec") or {}).get("nodeName"):
        return True
    if condition == BOUND:
        return status.get("phase") in ("Succeeded", "Failed")
    return any(
        one.get("type") == DECIDED and one.get("reason") != NO_SUCH_PROFILE
        for one in status.get("conditions") or ()
    )


@connections.used()
def _catch_up(target: Target, cursor: int) -> tuple[list[Event], int]:
    name = target.kind.name
    found = changes.read_since(cursor, kinds={name}, documents={name})
    return digested(found.items), found.cursor


async def _until(
    target: Target, condition: str, seconds: float, client: Client, on_thread: OnThread
) -> bytes:
    """Return the pod when the condition holds, or as it is when the time is over.

    Raises:
        NotFound: there is no such pod, or it was deleted meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    body, cursor, is_over = await on_thread(_read, target, condition)
    if is_over:
        return body
    kind = target.kind.name
    subscription = hub.subscribe(kind, key=(target.namespace, target.name))
    client.on_gone(subscription.wake)
    try:
        while not client.gone:
            subscription.wake.clear()
            ring = hub.ring(kind)
            news = [] if ring.floor is None else ring.after(cursor)
            if news is not None:
                events = news
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
                if _is_over(event.new, condition):
                    return body
            remaining = deadline - loop.time()
            if remaining <= 0:
                return body
            await wait(subscription.wake, remaining)
    finally:
        hub.unsubscribe(subscription)
    return body


async def serve(scope: Scope, receive: Receive, send: Send, on_thread: OnThread) -> None:
    """Answer one GET that waits."""
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    try:
        target, condition, seconds, wants = await on_thread(_open, scope)
        waiting = _until(target, condition, seconds, client, on_thread)
        found = await rights.run_while_allowed(waiting, claim_of_headers(scope["headers"]), wants)
        if client.gone:
            return
        media_type, body = _written(scope, replies.StoredAnswer(target.kind, found))
        headers = [
            (b"content-type", media_type),
            (b"cache-control", b"no-cache, private"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        await failures.reply(scope, send, error)
    finally:
        listener.cancel()


_RENDERERS: Final = (renderers.PLAIN, renderers.YAMLRenderer(), renderers.ProtobufRenderer())


def _written(scope: Scope, content: replies.Content) -> tuple[bytes, bytes]:
    """Return the media type and the body of an answer, in the client's preferred form."""
    accept = header(scope, b"accept")
    chosen = next(negotiation.fitting(accept, _RENDERERS), renderers.PLAIN)
    return chosen.media_type.encode(), chosen.write(content)


@connections.used()
def check(scope: Scope, user: User) -> tuple[str, float]:
    """Return the condition that a POST of pods waits for, and the time-out in seconds.

    Runs on a thread; may query.

    Raises:
        BadRequest: a parameter is wrong. Forbidden: the user may not read such pods.
    """
    target = routes.of(scope).target
    assert target is not None
    auth.require(user, _reading(target))
    return _condition(scope, target)


async def created(
    scope: Scope,
    receive: Receive,
    answer: Answer,
    wait_for: tuple[str, float],
    on_thread: OnThread,
) -> Answer:
    """Return the answer to a POST of pods once the condition holds for all, or at the time-out.

    A pod that was not stored stays as the POST answered it. An answer in a form without pods, such
    as a Table, is returned at once.
    """
    target = routes.of(scope).target
    status, headers, body = answer
    posted = _value_in(headers, body)
    pods = posted.get("items", []) if posted.get("kind") != "Pod" else [posted]
    if target is None or status != 201 or not posted.get("kind", "").startswith("Pod") or not pods:
        return answer
    condition, seconds = wait_for
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    client = Client()
    listener = asyncio.ensure_future(client.listen(receive))
    found: list[bytes] = []
    try:
        for pod in pods:
            metadata = pod["metadata"]
            one = msgspec.structs.replace(
                target, namespace=metadata["namespace"], name=metadata["name"]
            )
            remaining = max(deadline - loop.time(), 0.0)
            waiting = _until(one, condition, remaining, client, on_thread)
            claim = claim_of_headers(scope["headers"])
            try:
                found.append(await rights.run_while_allowed(waiting, claim, _reading(one)))
            except StatusError:  # it is gone by now, or was never stored; it was made all the same
                found.append(replies.encode(pod))
    finally:
        listener.cancel()
    content: replies.Content = replies.StoredAnswer(target.kind, found[0])
    if posted["kind"] != "Pod":
        content = replies.StoredList(target.kind, found, posted.get("metadata") or {})
    media_type, new = _written(scope, content)
    own = (b"content-type", b"content-length")
    others = [pair for pair in headers if pair[0].lower() not in own]
    length = str(len(new)).encode()
    return status, [*others, (b"content-type", media_type), (b"content-length", length)], new


def _value_in(headers: Headers, body: bytes) -> Manifest:
    """Return the object or list in an answer; empty if it is not JSON, YAML or protobuf."""
    media_type = dict(headers).get(b"content-type", b"").decode()
    parser = next((one for one in _PARSERS if one.takes(media_type)), None)
    value = parser.read(body) if parser is not None else None
    return value if isinstance(value, dict) else {}


_PARSERS: Final = (parsers.JSONParser(), parsers.YAMLParser(), parsers.ProtobufParser())
