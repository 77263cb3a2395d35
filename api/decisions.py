"""What the scheduler decided about a pod and why, and the configuration that it decides by."""

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, clock, errors, replies, wire
from api.views import StatusView
from clusterstate.access.rules import Attributes
from clusterstate.objects.errors import BadRequest

MOST = 500
_MANY = 50


class DecisionsView(StatusView):
    """The decisions about a pod, the latest first, or one of them."""

    http_method_names = ["get"]

    def get(self, request: Request, namespace: str, name: str, decision: str = "") -> HttpResponse:
        """Return JSON or, with ``format=table``, text for people."""
        auth.require(
            self.user,
            Attributes(
                verb="get",
                resource="pods",
                subresource="decisions",
                namespace=namespace,
                name=name,
            ),
        )
        from scheduling.answers import questions

        query = request.query_params
        form = _choice(query.get("format"), "format", ("json", "table"))
        full = _choice(query.get("explain"), "explain", ("summary", "full")) == "full"
        if decision:
            if not decision.isascii() or not decision.isdigit() or len(decision) > 18:
                raise BadRequest(f'invalid decision "{decision}": must be a number')
            found = questions.decision(namespace, name, int(decision), full=full)
            if form == "table":
                return _text(questions.decision_table(found))
            return _json(request, found)
        limit = min(wire.integer(query.get("limit"), "limit") or _MANY, MOST)
        items = questions.decisions_of(namespace, name, limit=limit)
        if full:
            items = [
                questions.decision(namespace, name, int(item["id"]), full=True)
                for item in items[:1]
            ]
        if form == "table":
            return _text("\n".join(map(questions.decision_table, items)))
        return _json(
            request,
            {
                "apiVersion": "stowage.dev/v1",
                "kind": "DecisionList",
                "metadata": {},
                "items": items,
            },
        )


class ConfigurationView(StatusView):
    """The scheduler's configuration; a change takes effect without a restart."""

    http_method_names = ["get", "put"]

    def _require(self, verb: str) -> None:
        auth.require(
            self.user,
            Attributes(verb=verb, group="stowage.dev", resource="schedulerconfiguration"),
        )

    def get(self, request: Request) -> HttpResponse:
        """Return the configuration in force."""
        self._require("get")
        from scheduling.answers import questions

        return _json(request, questions.stored_configuration())

    def put(self, request: Request) -> HttpResponse:
        """Check and store a configuration; advice comes as warnings."""
        self._require("update")
        from scheduling.answers import questions

        document = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
        stored, warnings = questions.store_configuration(
            document, by=self.user.name, now=clock.now()
        )
        return _json(request, stored, warnings)


def _choice(given: str | None, name: str, words: tuple[str, ...]) -> str:
    if not given:
        return words[0]
    if given not in words:
        listed = ", ".join(words)
        raise BadRequest(f'invalid value "{given}" for {name}: supported values: {listed}')
    return given


def _json(request: Request, value: Any, warnings: list[str] | None = None) -> HttpResponse:
    body = wire.encode(value)
    if wire.boolean(request.query_params.get("pretty"), "pretty"):
        body = replies.pretty(body)
    return replies.reply(body, warnings=warnings or [])


def _text(text: str) -> HttpResponse:
    response = HttpResponse(text, content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = errors.NO_CACHE
    return response
