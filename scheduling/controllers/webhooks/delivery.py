"""Delivers the events that a webhook requests, in order of revision, from its cursor on."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Final

import msgspec
import structlog

from clusterstate.actions import webhooks as actions
from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.actions.webhooks import Try
from clusterstate.change_log import changes, lineage
from clusterstate.change_log.changes import Change
from clusterstate.database import locks
from clusterstate.objects.rules.webhook_targets import parse
from clusterstate.objects.values import labels
from clusterstate.objects.values.document import compose
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import steady_clock
from clusterstate.queries.objects.events import event_manifests
from clusterstate.queries.people import notices, webhooks
from clusterstate.queries.people.notices import CHANGE, OF_EVENTS, Notice
from clusterstate.queries.people.webhooks import Webhook
from clusterstate.queries.pods import pod_overlay
from scheduling.controllers.webhooks import client

logger = structlog.get_logger(__name__)

NAME: Final = "webhooks"
"""The follower under whose name an object is set aside of which no event can be made."""
LONGEST: Final = 10.0
"""Seconds after which ``deliver`` returns, so that other webhooks have a turn."""
_READ: Final = 500
_ONE: Final = "application/cloudevents+json"
_MANY: Final = "application/cloudevents-batch+json"
_REFUSED: Final = (400, 409, 413, 422)
"""Statuses that speak of the events: these are not sent again. Every other status but success is of
the receiver, its address or its secret (a redirect, 401, 404, 500), which may be put right."""
_GONE: Final = 410
"""The receiver wants no events any more (CloudEvents, HTTP 1.1 Web Hooks, section 2.2)."""


class WebhookFilter(msgspec.Struct, frozen=True):
    """The changes that a webhook requests."""

    types: frozenset[str]
    kinds: frozenset[str]
    namespace: str
    node: str
    selector: labels.Selector

    @classmethod
    def of(cls, spec: Manifest) -> "WebhookFilter":
        """Return the filter in the ``spec`` of a webhook."""
        return cls(
            frozenset(spec["types"]),
            frozenset(spec.get("kinds") or ()),
            spec.get("namespace") or "",
            spec.get("node") or "",
            labels.parse_selector(spec.get("labelSelector") or ""),
        )

    def notices_of(self, change: Change, events: Mapping[int, bytes]) -> list[Notice]:
        """Return the requested notices of a change; ``events``: the service's own Events, by id."""
        own = events.get(change.object_id) if change.kind == "Event" else None
        if own is not None and change.text is None:
            return self._notices_of_own(change, msgspec.json.decode(own))
        if self.namespace and change.namespace != self.namespace:
            return []
        if self.node and not change.concerns_node(self.node):
            return []
        types = self.types
        if CHANGE in types and change.kind not in self.kinds:
            types -= {CHANGE}
        if change.text is None:
            return []
        if not self.selector.everything:
            labels = _new(change)["metadata"].get("labels") or {}
            if not self.selector.matches(labels):
                return []
        return notices.notices_of(change, types, lambda: _new(change), lambda: _old_text(change))

    def _notices_of_own(self, change: Change, event: Manifest) -> list[Notice]:
        """Return the notices of one of the service's own Events, and of its change if requested.

        Plans and brakes have no namespace, node or labels.
        """
        types = self.types
        if self.node or not self.selector.everything:
            return []
        if CHANGE in types and change.kind not in self.kinds:
            types -= {CHANGE}
        if self.namespace:
            types -= OF_EVENTS.keys()
            if change.namespace != self.namespace:
                return []
        return notices.notices_of(change, types, lambda: event, lambda: None)


def _new(change: Change) -> Manifest:
    assert change.text is not None
    overlay = pod_overlay(
        change.node_name, change.scheduled_at, change.unschedulable, change.eviction
    )
    manifest: Manifest = msgspec.json.decode(compose(change.text, change.revision, overlay))
    return manifest


def _old_text(change: Change) -> str | None:
    same = change.previous_document_id == change.document_id
    return change.text if same else change.previous_text


def due(now: datetime) -> list[int]:
    """Return the webhooks that may have work. Queries twice; once if there is none.

    Each change of the cluster makes all webhooks due.
    """
    return webhooks.due(now=now, mark=changes.watermark()) if webhooks.are_there() else []


def deliver_due(now: datetime, *, stopping: Callable[[], bool] = lambda: False) -> int:
    """Deliver for every webhook that is due; return how many events were accepted."""
    done = 0
    for number in due(now):
        if stopping():
            break
        done += deliver(number, stopping=stopping)
    return done


def deliver(number: int, *, stopping: Callable[[], bool] = lambda: False) -> int:
    """Deliver for one webhook until nothing is left, an attempt fails or time is over.

    Return how many events were accepted. Does nothing while another session delivers for it.
    """
    with locks.alone(locks.webhook(number)) as mine:
        if not mine:
            return 0
        done = 0
        end = time.monotonic() + LONGEST
        while time.monotonic() < end and not stopping():
            one = webhooks.by_id(number)
            now = steady_clock.now()
            if one is None or one.spec.get("suspended") or (one.next_at or now) > now:
                break
            accepted = _some(one, now)
            if accepted is None:
                break
            done += accepted
        return done


def _some(one: Webhook, now: datetime) -> int | None:
    """Deliver the notices of one read of the log; return their number, ``None``: stop for now."""
    filter_ = WebhookFilter.of(one.spec)
    kinds = notices.kinds_for(filter_.types, sorted(filter_.kinds))
    try:
        read = changes.read_since(
            one.cursor, kinds=kinds, documents=kinds, previous=kinds & {"Pod"}, limit=_READ
        )
    except Expired:
        return _gap(one, now)
    own = [item.object_id for item in read.items if item.kind == "Event" and item.text is None]
    own_events = event_manifests(own) if own else {}
    # An Event that a client changed later is reported as the client's change.
    events = {number: body for number, (body, is_own) in own_events.items() if is_own}
    source = notices.source_of(lineage.identity()["uid"])
    parts = aside.each(
        NAME,
        read.items,
        lambda items: [filter_.notices_of(item, events) for item in items],
        which=lambda item: ObjectRef(item.kind, item.object_id),
        now=now,
    )
    sent = 0
    waiting = deque(_batches(chain.from_iterable(parts), int(one.spec.get("maxBatch") or 1)))
    while waiting:
        batch = waiting.popleft()
        answer = _send(one, batch, source)
        refused = answer.code in _REFUSED
        if refused and batch[0].revision != batch[-1].revision:
            # Sending them one by one finds the rejected one.
            waiting.extendleft(reversed(list(_by_change(batch))))
            continue
        done = Try(
            first_event=batch[0].id,
            last_event=batch[-1].id,
            events=len(batch),
            code=answer.code,
            error=answer.error,
            milliseconds=int(answer.seconds * 1000),
        )
        if answer.code == _GONE:
            actions.suspend(one, done, now=steady_clock.now())
            return None
        if not refused and not 200 <= answer.code < 300:
            actions.failed(one, done, now=steady_clock.now(), at_least=answer.retry_after)
            return None
        cursor = batch[-1].revision
        if not actions.accepted(one, done, cursor, now=steady_clock.now(), refused=refused):
            return None
        one = msgspec.structs.replace(one, cursor=cursor, failures=0, next_at=None)
        sent += 0 if refused else len(batch)
    if read.cursor > one.cursor and not actions.passed(one, read.cursor, now=now):
        return None
    return sent if read.more or sent else None


def _by_change(batch: Sequence[Notice]) -> Iterator[list[Notice]]:
    for _, group in groupby(batch, key=lambda one: one.revision):
        yield list(group)


def _batches(of_changes: Iterable[list[Notice]], most: int) -> Iterator[list[Notice]]:
    """Yield batches of events; the events of one change are always in the same batch.

    That holds even for a change with more events than ``most``, since the cursor cannot be inside a
    change.
    """
    waiting: list[Notice] = []
    for of_change in of_changes:
        if waiting and len(waiting) + len(of_change) > most:
            yield waiting
            waiting = []
        waiting += of_change
    if waiting:
        yield waiting


def _send(one: Webhook, batch: Sequence[Notice], source: str) -> client.Answer:
    events = [each.envelope(source) for each in batch]
    is_batch = int(one.spec.get("maxBatch") or 1) > 1 or len(events) > 1
    body = b"[%s]" % b",".join(events) if is_batch else events[0]
    return client.post(
        parse(one.spec["url"]),
        body,
        media_type=_MANY if is_batch else _ONE,
        message_id=f"{one.uid}-{batch[0].id}-{batch[-1].id}",
        secret=one.secret,
        timestamp=int(steady_clock.now().timestamp()),
    )


def _gap(one: Webhook, now: datetime) -> int | None:
    """Move the cursor to the beginning of the log; count the loss, and report it in the status."""
    begins = lineage.kept_after()
    logger.warning("webhook_lost_events", webhook=one.name, after=one.cursor, until=begins)
    if begins <= one.cursor:
        # A restored database: nothing before it can be delivered.
        begins = changes.watermark()
    return 0 if actions.passed(one, begins, now=now, lost=1) else None
