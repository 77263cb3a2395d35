"""Decisions about a pod, their explanations, and the scheduler's configuration."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from django.conf import settings
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from api import clock
from api.access import reach
from api.forms import errors, replies, wire
from api.kinds import own
from api.kinds.own import OwnViewSet
from api.requests import Request
from api.stowage.trail import may_see_pod
from clusterstate.access.rules import Attributes
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.past import provenance
from scheduling.answers import advisor

MOST = 500
_MANY = 50


class DecisionsViewSet(OwnViewSet):
    """The decisions about a pod, the latest first, or one of them.

    As JSON or, with ``format=table``, as text for people; in full with ``explain=full``.
    """

    asks = True
    group = ""
    resource, subresource, owner = "pods", "decisions", "name"
    is_namespaced = True
    lookup_url_kwarg = "decision"
    dated = ("list", "retrieve")

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to get decisions, also for a list, since they belong to one pod."""
        return (msgspec.structs.replace(*super().wants(request), verb="get"),)

    def _since(self, request: Request) -> datetime | None:
        """Return since when the user's right covers decisions, ``None``: all."""
        (wants,) = self.wants(request)
        began = reach.beginning(self.user, wants)
        return None if began is None else began.at

    def list(self, request: Request, namespace: str, name: str) -> HttpResponseBase:
        """Return the latest decisions; with ``explain=full`` only the very latest has details."""
        from scheduling.answers import questions

        form, full = _form(request)
        limit = min(wire.integer(request.query_params.get("limit"), "limit") or _MANY, MOST)
        self.require_kept(settings.DECISION_SECONDS)
        since = self._since(request)
        items = questions.decisions_of(namespace, name, limit=limit, since=since, until=self.moment)
        if full:
            items = [_explained(namespace, name, int(item["id"])) for item in items[:1]]
        if form == "table":
            return _text("\n".join(map(questions.decision_table, items)))
        return replies.reply(
            {"apiVersion": own.API_VERSION, "kind": "DecisionList", "metadata": {}, "items": items}
        )

    def retrieve(
        self, request: Request, namespace: str, name: str, decision: str
    ) -> HttpResponseBase:
        """Return one decision by its number."""
        from scheduling.answers import questions

        form, full = _form(request)
        number = natural(decision)
        if number is None:
            raise BadRequest(f'invalid decision "{decision}": must be a number')
        self.require_kept(settings.DECISION_SECONDS)
        since = self._since(request)
        if self.moment is not None or since is not None:
            questions.require_decided(number, since=since, until=self.moment)
        if full:
            found = _explained(namespace, name, number)
        else:
            found = questions.decision(namespace, name, number, full=False)
        if found["preemption"]["victims"]:
            found["preemption"]["pods"] = [
                {
                    "namespace": one.namespace,
                    "name": one.name,
                    "time": format_time(one.at),
                    "resourceVersion": str(one.revision),
                }
                for one in provenance.victims_of_decision(number)
                if may_see_pod(self.user, one.namespace, one.name, one.revision)
            ]
        if form == "table":
            return _text(questions.decision_table(found))
        return replies.reply(found)


class ConfigurationViewSet(OwnViewSet):
    """The scheduler's configuration; a change takes effect without a restart."""

    kind = "SchedulerConfiguration"
    resource = "schedulerconfiguration"
    is_single = True
    dated = ("retrieve",)

    def retrieve(self, request: Request) -> Response:
        """Return the configuration in force, or that of a past moment, with its status."""
        from scheduling.answers import questions

        found = questions.stored_configuration(self.moment)
        if self.moment is None:
            found["status"] = questions.configuration_status()
        return replies.reply(found)

    def update(self, request: Request) -> Response:
        """Check and store a configuration; advice is returned as warnings."""
        from scheduling.answers import questions

        replaces = questions.replaced_version(request.data)
        text, warnings = scheduler_configuration.check(request.data)
        scheduler_configuration.store(
            document=text, by=self.user.name, now=clock.now(), replaces=replaces
        )
        return replies.reply(questions.stored_configuration(), warnings=warnings)


def _explained(namespace: str, name: str, decision: int) -> Manifest:
    found: Manifest = advisor.ask(
        "decision", {"namespace": namespace, "name": name, "id": decision}
    )
    return found


def _form(request: Request) -> tuple[str, bool]:
    """Return the format, json or table, and whether ``explain=full``."""
    query = request.query_params
    form = _choice(query.get("format"), "format", ("json", "table"))
    full = _choice(query.get("explain"), "explain", ("summary", "full")) == "full"
    return form, full


def _choice(value: str | None, name: str, words: tuple[str, ...]) -> str:
    if not value:
        return words[0]
    if value not in words:
        listed = ", ".join(words)
        raise BadRequest(f'invalid value "{value}" for {name}: supported values: {listed}')
    return value


def _text(text: str) -> HttpResponse:
    response = HttpResponse(text, content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = errors.NO_CACHE
    return response
