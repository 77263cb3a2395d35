"""Canaries: another scheduler configuration on trial (``/apis/stowage.dev/v1/canaries``).

POST stores one, without effect on pods. ``GET canaries/NAME/report`` returns how it would have
placed all pods since then. ``POST canaries/NAME/switch`` puts it in force, on probation: if plugins
fail or are slow, the service restores the former configuration. ``return`` restores it at once.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from rest_framework.decorators import action
from rest_framework.response import Response

from api import clock
from api.access import outgoing
from api.forms import renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds import own
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.actions.scheduler import canaries as actions
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.admission.request import User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.canaries import (
    PLURAL,
    StoredCanary,
    find_canary,
    latest_canaries,
)
from scheduling.answers import advisor

KIND: Final = Kind(name="Canary", group=GROUP, plural=PLURAL)
_HOUR: Final = 3600
_LONGEST: Final = 7 * 86400 - _HOUR - 60
"""Seconds before the end at which a report begins at the earliest, as in a comparison."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The metadata of a canary that a client may set."""

    name: str = ""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A configuration, and the limits of its probation once it is in force."""

    configuration: dict[str, Any]
    guard_seconds: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 600
    most_failures: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 3
    slow_seconds: Annotated[float, msgspec.Meta(gt=0, le=60)] = 1.0


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A canary as a client sends it."""

    spec: Spec
    metadata: Metadata = Metadata()
    kind: str = KIND.name
    api_version: str = own.API_VERSION


class CanariesViewSet(OwnViewSet):
    """Configurations on trial."""

    kind = KIND.name
    resource = PLURAL
    asks = True
    renderer_classes = renderers.OF_OBJECTS

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the rights for an action.

        They are to canaries; to put a configuration in force, also to change the configuration.
        """
        what = {"give_back": "return"}.get(self.action or "", self.action)
        if what in ("cancel", "report", "return", "switch"):
            yield Attributes(
                verb="get" if what == "report" else "create",
                group=GROUP,
                resource=PLURAL,
                subresource=what,
                name=self.kwargs[self.lookup_url_kwarg],
            )
        else:
            yield from super().wants(request)
        if what in ("switch", "return"):
            yield Attributes(verb="update", group=GROUP, resource="schedulerconfiguration")
        if what == "report":
            yield from (Attributes(verb="list", resource=one) for one in ("nodes", "pods"))

    def list(self, request: Request) -> Response:
        """Return the latest hundred canaries, the newest first."""
        items = [manifest(one) for one in latest_canaries()]
        return replies.reply(MadeManifests(KIND, items, {}))

    def retrieve(self, request: Request, name: str) -> Response:
        """Return the canary called ``name``."""
        return replies.reply(MadeManifests(KIND, [manifest(find_canary(name))], {}, alone=True))

    def create(self, request: Request) -> Response:
        """Check a configuration and store it as a canary; advice is returned as warnings."""
        made_now, warnings = create_canary(request.data, by=self.user)
        return replies.reply(manifest(made_now), status=201, warnings=warnings)

    @action(detail=True, methods=["get"])
    def report(self, request: Request, name: str) -> Response:
        """Return a Comparison of actual decisions with the canary's (``?html=true``)."""
        html = wire.boolean(request.query_params.get("html"), "html")
        return replies.reply(reported(find_canary(name), report=html))

    @action(detail=True, methods=["post"])
    def switch(self, request: Request, name: str) -> Response:
        """Put the canary's configuration in force, on probation."""
        found = actions.switch(name, by=self.user.name, now=clock.now())
        return replies.reply(manifest(found), status=201)

    @action(detail=True, methods=["post"], url_path="return")
    def give_back(self, request: Request, name: str) -> Response:
        """Put the former configuration in force again."""
        why = f"{self.user.name} asked for it"
        found = actions.give_back(name, why=why, now=clock.now(), by=self.user.name)
        return replies.reply(manifest(found), status=201)

    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, name: str) -> Response:
        """End the trial."""
        return replies.reply(manifest(actions.cancel(name, now=clock.now())), status=201)


def create_canary(document: object, *, by: User) -> tuple[StoredCanary, list[str]]:
    """Check and store a ``Canary`` as a client sends it; return the stored one and advice.

    Raises:
        BadRequest: it is no Canary, or its name is invalid.
        Invalid: its configuration is wrong; with every field.
        AlreadyExists: there is one of this name.
        Forbidden: it names extenders that ``by`` may not use.
    """
    try:
        body = msgspec.convert(document, Body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"Canary cannot be handled: {error}") from None
    if body.kind != KIND.name or body.api_version != own.API_VERSION:
        raise BadRequest(f"the body must be a {KIND.name} of {own.API_VERSION}")
    outgoing.require_extenders(by, document)
    spec = body.spec
    text, warnings = scheduler_configuration.check(spec.configuration)
    canary = actions.create(
        name=body.metadata.name,
        document=text,
        guard_seconds=spec.guard_seconds,
        most_failures=spec.most_failures,
        slow_seconds=spec.slow_seconds,
        by=by.name,
        now=clock.now(),
    )
    return canary, warnings


def question(canary: StoredCanary, *, report: bool = False, pictures: bool = False) -> Manifest:
    """Return the ``Comparison`` with which an advisor replays a trial.

    It is the same within an hour, so that a later request for the progress is recognised as the
    same question.
    """
    until = canary.switched_at or canary.ended_at or clock.now()
    earliest = datetime.fromtimestamp(until.timestamp() // _HOUR * _HOUR - _LONGEST, UTC)
    spec = {
        "since": format_time(max(canary.created_at, earliest)),
        "until": format_time(until) if canary.switched_at or canary.ended_at else "",
        "policies": [{"name": canary.name, "configuration": canary.configuration()}],
        "report": report,
        "pictures": pictures,
    }
    return {"spec": spec}


def reported(canary: StoredCanary, *, report: bool = False, pictures: bool = False) -> Manifest:
    """Return an advisor's ``Comparison`` of the actual decisions in a trial with the canary's."""
    found: Manifest = advisor.ask("comparison", question(canary, report=report, pictures=pictures))
    return found


def manifest(canary: StoredCanary) -> Manifest:
    """Return a canary as in the API."""
    status: Manifest = {"state": canary.state}
    if canary.message:
        status["message"] = canary.message
    if canary.former is not None:
        status["formerRevision"] = str(canary.former)
        status["revision"] = str(canary.revision)
        status["switchedBy"] = canary.switched_by
    for name, moment in (
        ("switchedAt", canary.switched_at),
        ("guardedUntil", canary.guard_until),
        ("endedAt", canary.ended_at),
    ):
        if moment is not None:
            status[name] = format_time(moment)
    metadata: Manifest = {
        "name": canary.name,
        "creationTimestamp": format_time(canary.created_at),
    }
    if canary.created_by:
        metadata["annotations"] = {f"{GROUP}/created-by": canary.created_by}
    return {
        "apiVersion": own.API_VERSION,
        "kind": KIND.name,
        "metadata": metadata,
        "spec": {
            "configuration": canary.configuration(),
            "guardSeconds": canary.guard_seconds,
            "mostFailures": canary.most_failures,
            "slowSeconds": canary.slow_seconds,
        },
        "status": status,
    }
