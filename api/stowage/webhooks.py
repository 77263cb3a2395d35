"""Webhooks: ``webhooks`` of the group ``stowage.dev``, which deliver events to programs.

``spec.secret`` is never returned: an answer only says whether there is one. A webhook sends events
to somebody else, so its author also needs the right to watch the kinds in them.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from django.conf import settings
from rest_framework.decorators import action
from rest_framework.response import Response

from api import clock
from api.access import auth
from api.access.notice_rights import rights_for
from api.forms import errors, renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds import own
from api.kinds.own import OwnViewSet
from api.requests import Request
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.actions import webhooks
from clusterstate.admission.request import User
from clusterstate.change_log import lineage
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import webhook_targets
from clusterstate.objects.rules.webhook_targets import AllowedTargets
from clusterstate.objects.values import labels
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.people import webhooks as queries
from clusterstate.queries.people.notices import CHANGE, TYPES
from clusterstate.queries.people.webhooks import Delivery, Webhook

KIND: Final = Kind(name="Webhook", group=own.GROUP)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
_OBJECT_NAME: Final = re.compile(r"[a-z0-9.-]{0,253}", re.ASCII)
_LONGEST_SECRET: Final = 1024
_MANY, _MOST = 50, 500
MOST_BATCH: Final = 100


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The spec of a webhook; an empty text is no filter."""

    url: str
    types: list[str]
    kinds: list[str] = []
    namespace: str = ""
    node: str = ""
    label_selector: str = ""
    max_batch: int = 1
    suspended: bool = False
    secret: str | None = None


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of ``metadata`` that are read; others may come from an earlier answer."""

    name: str = ""
    resource_version: str = ""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A webhook as a client sends it."""

    metadata: Metadata = Metadata()
    spec: Spec
    kind: str = KIND.name
    api_version: str = own.API_VERSION


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The revision from which everything is delivered again."""

    since: str
    kind: str = "Replay"
    api_version: str = own.API_VERSION


class WebhooksViewSet(OwnViewSet):
    """Subscriptions to events, the results of their deliveries, and repeated deliveries."""

    kind = KIND.name
    resource = KIND.plural
    renderer_classes = renderers.OF_OBJECTS

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to the webhook; ``rights_for`` has the rights to watch its events."""
        (found,) = super().wants(request)
        if self.action == "destroy":
            found = msgspec.structs.replace(found, verb="delete")
        elif self.action == "deliveries":
            found = msgspec.structs.replace(found, verb="get", subresource="deliveries")
        elif self.action == "replay":
            found = msgspec.structs.replace(found, verb="create", subresource="replay")
        return (found,)

    def list(self, request: Request) -> Response:
        """Return all webhooks by name."""
        items = [_shown(one, self.user) for one in queries.every()]
        return replies.reply(MadeManifests(KIND, items, {}))

    def retrieve(self, request: Request, name: str) -> Response:
        """Return the webhook called ``name``."""
        shown = _shown(webhooks.get(name), self.user)
        return replies.reply(MadeManifests(KIND, [shown], {}, alone=True))

    def create(self, request: Request) -> Response:
        """Create a webhook; if the spec has no secret, one is generated and returned only now."""
        body = _read(request.data)
        name = body.metadata.name
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f'metadata.name: Invalid value: "{name[:100]}": must be of lower case letters,'
                " digits, '-' and '.', and begin and end with a letter or digit"
            )
        self._check(body.spec)
        secret = body.spec.secret or f"whsec_{secrets.token_urlsafe(32)}"
        webhook = webhooks.create(name, _stored(body.spec), secret, now=clock.now())
        shown = _shown(webhook, self.user)
        if not body.spec.secret:
            shown["spec"]["secret"] = secret
        return replies.reply(shown, status=201)

    def update(self, request: Request, name: str) -> Response:
        """Replace a webhook; if the spec has no secret, the stored one stays."""
        body = _read(request.data)
        if body.metadata.name not in ("", name):
            raise BadRequest(f"metadata.name: must be {name}, as the path says")
        self._check(body.spec)
        version = wire.integer(body.metadata.resource_version, "metadata.resourceVersion")
        if version is None:
            version = webhooks.get(name).version
        found = webhooks.update(name, _stored(body.spec), body.spec.secret or None, version=version)
        return replies.reply(_shown(found, self.user))

    def destroy(self, request: Request, name: str) -> Response:
        """Delete a webhook, with its delivery log."""
        gone = webhooks.delete(name)
        details = {"name": name, "group": own.GROUP, "kind": self.resource, "uid": gone.uid}
        return replies.reply(errors.success(details=details))

    @action(detail=True, methods=["get"])
    def deliveries(self, request: Request, name: str) -> Response:
        """Return the tries to deliver, the newest first; ``continue`` leads to older ones."""
        query = request.query_params
        limit = min(wire.integer(query.get("limit"), "limit") or _MANY, _MOST)
        before = wire.integer(query.get("continue"), "continue") or 0
        found, more = queries.deliveries(webhooks.get(name).id, limit=limit, before=before)
        return replies.reply(
            {
                "kind": "DeliveryList",
                "apiVersion": own.API_VERSION,
                "metadata": {"continue": str(more)} if more else {},
                "items": [_tried(one) for one in found],
            }
        )

    @action(detail=True, methods=["post"])
    def replay(self, request: Request, name: str) -> Response:
        """Deliver everything after a revision again."""
        webhooks.get(name)  # that there is none is said first, whatever the revision
        try:
            replay = msgspec.convert(request.data, Replay)
        except msgspec.ValidationError as error:
            raise BadRequest(f"Replay cannot be handled: {error}") from None
        revision = wire.integer(replay.since, "since") or 0
        lineage.require(revision)
        kept_after = lineage.kept_after()
        if revision < kept_after:
            raise Expired(f"too old resource version: {revision} ({kept_after})")
        return replies.reply(_shown(webhooks.replay(name, revision), self.user), status=201)

    def _check(self, spec: Spec) -> None:
        """Check a spec, and that its author may watch the kinds in its events.

        Raises:
            BadRequest: a field has an invalid value, or names a receiver that is not allowed.
            AccessDenied: the author may not watch them.
        """
        _check_receiver(spec.url)
        if not spec.types:
            raise BadRequest(f"spec.types: Required value: one or more of {', '.join(TYPES)}")
        for place, one in enumerate(spec.types):
            if one not in TYPES:
                supported = ", ".join(TYPES)
                raise BadRequest(
                    f'spec.types[{place}]: Unsupported value: "{one}":'
                    f" supported values: {supported}"
                )
            if one in spec.types[:place]:
                raise BadRequest(f'spec.types[{place}]: Duplicate value: "{one}"')
        if bool(spec.kinds) is not (CHANGE in spec.types):
            raise BadRequest(
                f"spec.kinds: must be set if spec.types has {CHANGE}, and may not be set otherwise"
            )
        for place, one in enumerate(spec.kinds):
            if one not in KINDS or KINDS[one].is_composed:
                raise BadRequest(f'spec.kinds[{place}]: Invalid value: "{one}": no such kind')
            if one in spec.kinds[:place]:
                raise BadRequest(f'spec.kinds[{place}]: Duplicate value: "{one}"')
        for field, text in (("namespace", spec.namespace), ("node", spec.node)):
            if not _OBJECT_NAME.fullmatch(text):
                raise BadRequest(
                    f'spec.{field}: Invalid value: "{text[:100]}": must be a valid name'
                )
        if len(spec.secret or "") > _LONGEST_SECRET:
            raise BadRequest(f"spec.secret: Too long: may not be more than {_LONGEST_SECRET}")
        if not 1 <= spec.max_batch <= MOST_BATCH:
            raise BadRequest(f"spec.maxBatch: Invalid value: must be from 1 to {MOST_BATCH}")
        try:
            labels.parse_selector(spec.label_selector)
        except labels.SelectorError as error:
            raise BadRequest(f"spec.labelSelector: Invalid value: {error}") from None
        for needed in rights_for(frozenset(spec.types), spec.kinds, spec.namespace):
            auth.require(self.user, needed)


def _check_receiver(url: str) -> None:
    try:
        target = webhook_targets.parse(url)
    except ValueError as error:
        raise BadRequest(f"spec.url: Invalid value: {error}") from None
    allowed = AllowedTargets(settings.WEBHOOK_TARGETS)
    if allowed.nothing():
        raise BadRequest(
            "spec.url: Forbidden: nothing may be sent anywhere: an administrator says where to with"
            " STOWAGE_WEBHOOK_TARGETS"
        )
    if not allowed.may_be(target.host):
        raise BadRequest(
            f"spec.url: Forbidden: STOWAGE_WEBHOOK_TARGETS does not allow {target.host}"
        )


def _read(data: Any) -> Body:
    try:
        return msgspec.convert(data, Body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{KIND.name} cannot be handled: {error}") from None


def _stored(spec: Spec) -> Manifest:
    """Return a spec for the database: without the secret, and without empty fields."""
    found: Manifest = msgspec.to_builtins(spec)
    del found["secret"]
    return {name: value for name, value in found.items() if value not in ("", [], False)}


def _shown(one: Webhook, user: User) -> Manifest:
    """Return a webhook for a user; the path of its URL is hidden, since it may be a secret."""
    spec = dict(one.spec)
    changes = Attributes("update", own.GROUP, "webhooks", name=one.name)
    if not authorizer.decide(user, changes).allowed:
        target = webhook_targets.parse(spec["url"])
        spec["url"] = f"{target.scheme}://{target.host}:{target.port}/..."
    status: Manifest = {
        "cursor": str(one.cursor),
        "delivered": one.delivered,
        "refused": one.refused,
        "gaps": one.lost,
        "failures": one.failures,
    }
    if one.next_at is not None:
        status["nextTry"] = format_time(one.next_at)
    return {
        "apiVersion": own.API_VERSION,
        "kind": KIND.name,
        "metadata": {
            "name": one.name,
            "uid": one.uid,
            "resourceVersion": str(one.version),
            "creationTimestamp": format_time(one.created_at),
        },
        "spec": spec,
        "status": status,
    }


def _tried(one: Delivery) -> Manifest:
    shown: Manifest = {
        "time": format_time(one.at),
        "outcome": one.outcome,
        "attempt": one.attempt,
        "events": one.events,
        "first": one.first_event,
        "last": one.last_event,
        "milliseconds": one.milliseconds,
    }
    if one.code:
        shown["code"] = one.code
    if one.error:
        shown["error"] = one.error
    return shown
