"""Bodies in Kubernetes' protobuf form, in both directions (``objects.wire.protobuf``).

From 1.32 on kubectl's commands built on typed clients send protobuf and give up on a 415, as do Go
programs. Answers are composed as JSON, and converted to protobuf at the very end for a client that
accepts nothing else (`api.forms.renderers`), without the views. A kind without a protobuf message
(those of ``stowage.dev``) is 406 then; sent in protobuf it is 415.
"""

from typing import Final

from api.forms.errors import UnsupportedMediaType
from clusterstate.objects.values.errors import BadRequest, TooLarge
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire import protobuf, protobuf_values

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
WATCH_TYPE = f"{MEDIA_TYPE};stream=watch"
MAX_BYTES = 3 << 20
"""kube-apiserver's limit for a body; it is read in Python, field by field."""


def decode(raw: bytes) -> Manifest:
    """Return the object in a protobuf body, with ``kind`` and ``apiVersion``.

    Raises:
        UnsupportedMediaType: an object that has no protobuf message.
        BadRequest: the bytes are not such a body.
        TooLarge: the body is larger than Kubernetes accepts, or holds too many values.
    """
    if len(raw) > MAX_BYTES:
        raise TooLarge(f"the body is larger than the limit of {MAX_BYTES} bytes")
    try:
        return protobuf.decode(raw)
    except protobuf.UnknownKind as error:
        raise UnsupportedMediaType(
            f"{error} is not read in protobuf: send JSON or YAML instead"
        ) from error
    except protobuf.TooManyValues as error:
        raise TooLarge(f"the body holds more than {protobuf.MOST_VALUES} values") from error
    except protobuf_values.Malformed as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from error


def event(verb: bytes, item: Manifest) -> bytes:
    """Return one frame of a watch."""
    return protobuf.watch_event(verb.decode(), protobuf.encode(item))


def is_known(api_version: str, kind: str) -> bool:
    """Return whether objects of a kind can be written in protobuf."""
    return protobuf.message_of(api_version, kind) is not None
