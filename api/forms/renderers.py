"""Writes answers: JSON, YAML, protobuf, and Kubernetes' short forms of objects.

A renderer gets a view's result (`api.forms.replies`) and returns bytes. A Table and a
``PartialObjectMetadata`` are JSON with other contents; a value that is no object stays as it is.
"""

from typing import Any, Final

from rest_framework.renderers import BaseRenderer

from api.forms import negotiation, pages, protobuf, replies, wire
from api.forms.replies import Content, StoredList
from clusterstate.objects.wire import protobuf as encoding
from clusterstate.objects.wire import protobuf_values


class Renderer(BaseRenderer):
    """Base of all renderers here."""

    charset: str | None = None
    format: str

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return the text; ``request`` is None if no view was called."""
        raise AssertionError("each renderer says how it writes")

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """Return the text of an answer."""
        return self.write(data, None if renderer_context is None else renderer_context["request"])

    def meta_version(self, request: Any) -> str:
        """Return the version of meta.k8s.io that the client accepts for this form."""
        accept = "" if request is None else request.META.get("HTTP_ACCEPT", "")
        return negotiation.meta_version(accept, self.format)


class JSONRenderer(Renderer):
    """As it is stored; indented with ``pretty=true``."""

    media_type = "application/json"
    format = negotiation.PLAIN

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return JSON."""
        body = replies.text_of(data)
        if request is None:
            return body
        query = request.query_params
        if query and query.get("pretty") in wire.TRUE:  # failures are indented only on request too
            return replies.pretty(body)
        return body


class DiscoveryRenderer(JSONRenderer):
    """Renders aggregated discovery; the media type says its version."""

    format = negotiation.DISCOVERY_FORM


class TableRenderer(Renderer):
    """A ``Table``: what ``kubectl get`` prints."""

    media_type = "application/json"
    format = negotiation.TABLE

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return JSON."""
        if not isinstance(data, Content):
            return replies.text_of(data)
        include = replies.include_object(request.query_params.get("includeObject"))
        return replies.encode(data.table(include, self.meta_version(request)))


class PartialRenderer(Renderer):
    """Objects with their metadata alone."""

    media_type = "application/json"
    format = negotiation.PARTIAL

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return JSON."""
        if not isinstance(data, Content):
            return replies.text_of(data)
        return data.partial(self.meta_version(request))


class YAMLRenderer(Renderer):
    """YAML, as people write it."""

    media_type = "application/yaml"
    format = negotiation.YAML

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return YAML."""
        return pages.as_yaml(replies.value_of(data)).encode()


class ProtobufRenderer(Renderer):
    """Kubernetes' protobuf, for clients that name it first."""

    media_type = protobuf.MEDIA_TYPE
    format = negotiation.PROTOBUF

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return protobuf.

        Raises:
            NotAcceptable: a kind without a protobuf message.
        """
        try:
            if isinstance(data, StoredList):
                kind = data.kind
                return encoding.encode_list(
                    kind.api_version, kind.list_kind, data.metadata, data.items
                )
            if isinstance(data, Content | bytes):
                return encoding.encode_text(replies.text_of(data))
            return encoding.encode(data)
        except (encoding.UnknownKind, protobuf_values.Malformed) as error:
            raise negotiation.not_acceptable() from error


class PartialProtobufRenderer(ProtobufRenderer):
    """Objects with their metadata alone, in protobuf."""

    format = negotiation.PARTIAL_PROTOBUF

    def write(self, data: Any, request: Any = None) -> bytes:
        """Return protobuf."""
        if isinstance(data, Content):
            data = data.partial(self.meta_version(request))
        return super().write(data, request)


class PageRenderer(Renderer):
    """A page in HTML, for people who are signed in."""

    media_type = "text/html"
    charset = "utf-8"
    format = negotiation.PAGE

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """Return the page; its policy allows only the service's own style sheet."""
        response = renderer_context["response"]
        response["Content-Security-Policy"] = pages.POLICY
        return pages.write(data, renderer_context["request"], response.status_code)


OF_OBJECTS: Final = (
    JSONRenderer,
    TableRenderer,
    PartialRenderer,
    YAMLRenderer,
    ProtobufRenderer,
    PartialProtobufRenderer,
    PageRenderer,
)
OF_DOCUMENTS: Final = (JSONRenderer, YAMLRenderer, ProtobufRenderer, PageRenderer)


PLAIN: Final = JSONRenderer()
"""Writes what no other can."""
PAGE: Final = PageRenderer()
