"""Questions about placement, which store nothing: simulations, headroom, nodes of a RuntimeClass.

An advisor answers the first two (``scheduling.answers.advisor``).
"""

from collections.abc import Iterable
from typing import Any, Final

from rest_framework.response import Response

from api.access import auth, naming, naming_objects, outgoing
from api.forms import renderers, replies
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.answers import advisor


class QuestionViewSet(OwnViewSet):
    """A POST whose body is a question and whose answer is a document.

    If the user may see the whole answer, it is passed on unparsed.
    """

    asks = True
    answer: Manifest | bytes

    def ask(self, document: Any) -> Manifest | bytes:
        """Return the answer."""
        raise AssertionError("each question says how it is answered")

    def inquire(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Ask an advisor; nothing is written, so a dry run is the same."""
        naming_objects.require(self.user, request.data)
        outgoing.require_extenders(self.user, request.data)
        self.answer = self.ask(request.data)

    def create(self, request: Request) -> Response:
        """Answer with 201, as Kubernetes' reviews do."""
        return replies.reply(self.answer, status=201)


class SimulationsViewSet(QuestionViewSet):
    """Simulates where pods would be placed."""

    kind = "Simulation"
    resource = "simulations"

    def ask(self, document: Any) -> Manifest | bytes:
        """Return the document with ``status.results``; unreadable pods are only counted."""
        text = advisor.ask_text("simulation", document)
        creates_all = authorizer.decide(self.user, Attributes("create", resource="pods")).allowed
        if naming.reads_all(self.user) and (creates_all or b'"invalid"' not in text):
            return text
        answer = naming_objects.visible_results(self.user, replies.decode(text))
        if naming.reads_all(self.user):
            return answer
        return naming.of_simulation(answer, naming.reader(self.user))


KIND: Final = Kind(name="Headroom", group=GROUP, plural="headroom")


class HeadroomViewSet(QuestionViewSet):
    """How many more of this pod fit, and what blocks the next one; GET: of configured shapes."""

    kind = KIND.name
    resource = KIND.plural
    renderer_classes = renderers.OF_OBJECTS

    def list(self, request: Request) -> Response:
        """Return a HeadroomList of the configured shapes (``STOWAGE_HEADROOM_SHAPES``)."""
        found = advisor.ask("room", {})
        metadata = replies.list_metadata(found["revision"])
        return replies.reply(replies.MadeManifests(KIND, found["items"], metadata))

    def ask(self, document: Any) -> bytes:
        """Return the document with ``status.fits`` and ``status.blockers``."""
        try:
            return advisor.ask_text("headroom", document)
        except StatusError as error:
            raise naming_objects.visible_refusal(self.user, document, error) from None


class NodeAdviceViewSet(QuestionViewSet):
    """Which nodes to add for the pending pods."""

    kind = "NodeAdvice"
    resource = "nodeadvice"

    def ask(self, document: Any) -> Manifest | bytes:
        """Return ``status`` with the cheapest nodes found, and the pending pods that fit there.

        Pods that the user may not list are counted and not named. If the advice may remove nodes,
        it names nodes and pods of all namespaces, and the user needs the right to list these.

        Raises:
            AccessDenied: nodes may be removed, and the user may not list nodes or pods.
        """
        spec = document.get("spec") if isinstance(document, dict) else None
        if isinstance(spec, dict) and "prices" in spec:
            for one in ("nodes", "pods"):
                auth.require(self.user, Attributes("list", resource=one))
        text = advisor.ask_text("node-advice", document)
        if naming.reads_all(self.user):
            return text
        return naming.of_node_advice(replies.decode(text), naming.reader(self.user))


class _OfAllPods(QuestionViewSet):
    """A question that needs the right to list nodes and pods: its answer names them."""

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to the question, and the rights to list all nodes and pods."""
        yield from super().wants(request)
        yield from (Attributes(verb="list", resource=one) for one in ("nodes", "pods"))


class PackingsViewSet(_OfAllPods):
    """Computes a placement of all pods at once, by a search."""

    kind = "Packing"
    resource = "packings"

    def ask(self, document: Any) -> bytes:
        """Return ``status`` with the node of each pod, the unplaced pods, and the bound."""
        return advisor.ask_text("packing", document)


class ComparisonsViewSet(_OfAllPods):
    """How the recent past would have been under other configurations."""

    kind = "Comparison"
    resource = "comparisons"

    def ask(self, document: Any) -> bytes:
        """Return ``status`` with the runs side by side, and their differences."""
        return advisor.ask_text("comparison", document)


class RuntimeClassNodesViewSet(OwnViewSet):
    """The nodes that match a RuntimeClass's scheduling rules (R60), as a list of Nodes."""

    group = "node.k8s.io"
    resource, subresource, owner = "runtimeclasses", "nodes", "runtimeclass"
    renderer_classes = renderers.OF_OBJECTS
    versioned = ("list",)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to the subresource, and the right to list nodes."""
        yield Attributes(
            verb="get",
            group=self.group,
            resource=self.resource,
            subresource=self.subresource,
            name=self.kwargs[self.owner],
        )
        yield Attributes(verb="list", resource="nodes")

    def list(self, request: Request, runtimeclass: str) -> Response:
        """Return a NodeList."""
        from scheduling.answers import questions

        items, revision = questions.runtime_class_nodes(runtimeclass, self.revision)
        metadata = replies.list_metadata(revision)
        return replies.reply(replies.StoredList(KINDS["Node"], items, metadata, self.moment))
