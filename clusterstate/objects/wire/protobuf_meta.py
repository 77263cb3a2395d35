"""What an object in protobuf is called, without reading the rest of it."""

from typing import Final

from clusterstate.objects.wire.protobuf import MAGIC
from clusterstate.objects.wire.protobuf_values import Malformed, pairs

_META_NUMBERS: Final = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}


def metadata_of(data: bytes) -> tuple[str, dict[str, str]]:
    """Return the kind of an object in protobuf, and of its metadata what names it.

    The rest of the body is passed over. The metadata of lists and of what has none is empty.

    Raises:
        Malformed: the bytes are not such a body.
    """
    if not data.startswith(MAGIC):
        raise Malformed("it does not begin as Kubernetes' bodies do")
    envelope = dict(pairs(data, len(MAGIC), len(data)))
    head, raw = envelope.get(1), envelope.get(2)
    if not isinstance(head, bytes) or not isinstance(raw, bytes):
        raise Malformed("it holds no object")
    named = dict(pairs(head, 0, len(head))).get(2, b"")
    kind = named.decode() if isinstance(named, bytes) else ""
    metadata = next((value for number, value in pairs(raw, 0, len(raw)) if number == 1), b"")
    if kind.endswith("List") or kind == "Status" or not isinstance(metadata, bytes):
        return kind, {}
    return kind, {
        _META_NUMBERS[number]: value.decode()
        for number, value in pairs(metadata, 0, len(metadata))
        if number in _META_NUMBERS and isinstance(value, bytes)
    }
