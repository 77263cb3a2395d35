"""The fields of Kubernetes' protobuf messages: numbers, types, pointers.

``protobuf_fields.txt`` has them, one message a line. Numbers and types are those of k8s.io/api and
k8s.io/apimachinery 1.36 (``generated.proto``); pointers are those of ``types.go``.
``tests/objects/test_protobuf_fields.py`` compares the names with Kubernetes' OpenAPI definitions,
and requires a message for each served type. Our own fields (R2, R19) have numbers that Kubernetes
does not use, since protobuf skips unknown ones.

A message's text lists its fields as ``name number type``. Types: string, bool, int32, int64, bytes
(base64 in JSON), time, micro-time, duration, quantity, int-or-string, json (any JSON value),
strings (a message with a list of texts), or a message, by default of the same package. ``[]`` is a
list, ``{}`` a map from text, ``?`` a pointer (zero and empty are kept), ``+`` a message whose
fields JSON shows in place of the field.
"""

from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_suffix(".txt")
MESSAGES: Final[dict[str, str]] = {
    name: fields.strip()
    for name, _, fields in (line.partition(":") for line in _FILE.read_text().splitlines())
}
"""The text of each message by its name."""
