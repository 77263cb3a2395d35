"""Questions about placing that store nothing: simulations, headroom, nodes of a RuntimeClass.

The answers come from ``scheduling.answers.questions``, which is imported with the first question:
it imports NumPy and the engine, which the other requests of a web process do without.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, negotiation, replies, wire
from api.views import StatusView
from clusterstate.access.rules import Attributes
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.meta import Manifest

GROUP = "stowage.dev"


class QuestionView(StatusView):
    """A POST whose body is a question and whose answer is a document."""

    http_method_names = ["post"]
    resource = ""

    def ask(self, document: Any) -> Manifest:
        """Return the answer."""
        raise AssertionError("each question says how it is answered")

    def post(self, request: Request) -> HttpResponse:
        """Answer with 201, as Kubernetes' reviews do."""
        auth.require(self.user, Attributes(verb="create", group=GROUP, resource=self.resource))
        document = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
        answer = wire.encode(self.ask(document))
        if wire.boolean(request.query_params.get("pretty"), "pretty"):
            answer = replies.pretty(answer)
        return replies.reply(answer, status=201)


class SimulationsView(QuestionView):
    """Where would these pods go?"""

    resource = "simulations"

    def ask(self, document: Any) -> Manifest:
        """Return the document with ``status.results``."""
        return _whatif("simulate")(document)


class HeadroomView(QuestionView):
    """How many more of this pod fit, and what blocks the next one?"""

    resource = "headroom"

    def ask(self, document: Any) -> Manifest:
        """Return the document with ``status.fits`` and ``status.blockers``."""
        return _whatif("headroom")(document)


class RuntimeClassNodesView(StatusView):
    """The nodes that match a RuntimeClass's scheduling rules (R60), as a list of Nodes."""

    http_method_names = ["get"]

    def get(self, request: Request, name: str) -> HttpResponse:
        """Return a NodeList or, where asked for, a Table."""
        auth.require(
            self.user,
            Attributes(
                verb="get",
                group="node.k8s.io",
                resource="runtimeclasses",
                subresource="nodes",
                name=name,
            ),
        )
        auth.require(self.user, Attributes(verb="list", resource="nodes"))
        from scheduling.answers import questions

        items, revision = questions.runtime_class_nodes(name)
        metadata = replies.list_metadata(revision)
        kind = KINDS["Node"]
        form = negotiation.form(request.META.get("HTTP_ACCEPT", ""))
        if form == negotiation.TABLE:
            include = replies.include_object(request.query_params.get("includeObject"))
            return replies.reply(replies.list_table(kind, items, metadata, include))
        body = replies.join_list(kind, items, metadata)
        if wire.boolean(request.query_params.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body)


def _whatif(question: str) -> Callable[[Any], Manifest]:
    from scheduling.answers import questions

    return {"simulate": questions.simulate, "headroom": questions.headroom}[question]
