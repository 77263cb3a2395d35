"""Bodies in Kubernetes' protobuf form, which Go clients send; ``objects.protobuf`` reads them.

From 1.32 on kubectl's commands built on typed clients send protobuf and give up on a 415. A body of
a kind without a protobuf message (those of ``stowage.dev``) is 415, and the client sends JSON.
"""

from api.errors import UnsupportedMediaType
from clusterstate.objects import protobuf
from clusterstate.objects.errors import BadRequest, TooLarge
from clusterstate.objects.meta import Manifest

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAX_BYTES = 3 << 20
"""kube-apiserver's limit for a body; it is read in Python, field by field."""


def decode(raw: bytes) -> Manifest:
    """Return the object in a protobuf body, with ``kind`` and ``apiVersion``.

    Raises:
        UnsupportedMediaType: an object that has no protobuf message.
        BadRequest: the bytes are not such a body.
        TooLarge: the body is larger than Kubernetes takes, or holds too many values.
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
    except protobuf.Malformed as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from error
