"""Bodies: from bytes to values, by the Content-Type.

JSON, YAML and Kubernetes' protobuf hold objects; nulls in them mean absent, and are dropped. In
patches nulls mean removal, and stay. `api.forms.wire` checks the values.
"""

from collections.abc import Sequence
from typing import Any, Final

from rest_framework.parsers import BaseParser

from api.forms import protobuf
from api.forms.errors import UnsupportedMediaType
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.wire import patching, reading

JSON: Final = "application/json"
YAML: Final = "application/yaml"
APPLY: Final = "application/apply-patch+yaml"


class Parser(BaseParser):
    """Base of all parsers here."""

    media_type: str

    def takes(self, media_type: str) -> bool:
        """Return whether bodies of that type are read; the type has no parameters."""
        return media_type == self.media_type

    def read(self, raw: bytes) -> Any:
        """Return the value in a body.

        Raises:
            BadRequest: it does not decode.
        """
        raise AssertionError("each parser says how it reads")

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the value in a stream."""
        return self.read(stream.read())


class JSONParser(Parser):
    """``application/json``, and other types written in JSON."""

    media_type = JSON

    def takes(self, media_type: str) -> bool:
        """Return whether a media type is JSON by its name."""
        return media_type == JSON or media_type.endswith("+json")

    def read(self, raw: bytes) -> Any:
        """Return the value without nulls."""
        value = reading.read_json(raw)
        # Most bodies have no null, and a search costs a hundredth of a walk.
        return strip_nulls(value) if b"null" in raw else value


class YAMLParser(Parser):
    """``application/yaml`` under its many names; the YAML that is also JSON, read as JSON."""

    media_type = YAML
    _names = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})

    def takes(self, media_type: str) -> bool:
        """Return whether a media type is YAML by its name."""
        return media_type in self._names or media_type.endswith("+yaml")

    def read(self, raw: bytes) -> Any:
        """Return the value without nulls."""
        return strip_nulls(reading.read_yaml(raw))


class ProtobufParser(Parser):
    """``application/vnd.kubernetes.protobuf``."""

    media_type = protobuf.MEDIA_TYPE

    def read(self, raw: bytes) -> Any:
        """Return the object, with ``kind`` and ``apiVersion``."""
        return strip_nulls(protobuf.decode(raw))


class _PatchParser(Parser):
    """A patch in JSON, with its nulls."""

    def read(self, raw: bytes) -> Any:
        """Return the patch."""
        return reading.read_json(raw)


class JSONPatchParser(_PatchParser):
    """A list of operations (RFC 6902)."""

    media_type = patching.JSON_PATCH


class MergePatchParser(_PatchParser):
    """Parses JSON merge patches (RFC 7386)."""

    media_type = patching.MERGE_PATCH


class StrategicMergePatchParser(_PatchParser):
    """Parses strategic merge patches, in which lists are merged by Kubernetes' rules."""

    media_type = patching.STRATEGIC_MERGE_PATCH


class ApplyPatchParser(YAMLParser):
    """Parses apply patches (server-side apply)."""

    media_type = APPLY

    def takes(self, media_type: str) -> bool:
        """Return whether a media type is the one that this parser reads."""
        return media_type == APPLY


OF_OBJECTS: Final = (JSONParser, YAMLParser, ProtobufParser)
OF_PATCHES: Final = (
    JSONPatchParser,
    MergePatchParser,
    StrategicMergePatchParser,
    ApplyPatchParser,
)
_of_objects: Final = tuple(one() for one in OF_OBJECTS)


def media_type(content_type: str | None) -> str:
    """Return a Content-Type without parameters, in lower case; a missing one means JSON."""
    return (content_type or JSON).partition(";")[0].strip().lower() or JSON


def select(content_type: str | None, parsers: Sequence[Parser]) -> Parser:
    """Return the parser for a body.

    Raises:
        UnsupportedMediaType: none of them reads it.
    """
    named = media_type(content_type)
    for parser in parsers:
        if parser.takes(named):
            return parser
    raise UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(parser.media_type for parser in parsers)
    )


def decode(raw: bytes, content_type: str | None) -> Any:
    """Return the value in the body of an object, without nulls.

    Raises:
        UnsupportedMediaType: another format.
        BadRequest: the body does not decode.
    """
    return select(content_type, _of_objects).read(raw)
