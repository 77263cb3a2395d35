"""Large answers, compressed for clients that take that.

Which answers, and how, is as in kube-apiserver (``endpoints/handlers/responsewriters/writers.go``,
v1.36): answers larger than ``LEAST_BYTES`` are compressed for clients with ``gzip`` in
``Accept-Encoding``, at the fastest level, since a tenth of the size is what matters. Watches and
other answers that stay open are sent as they come.
"""

import gzip
from typing import Final

from api.server.scopes import Scope
from api.server.sending import Answer

LEAST_BYTES: Final = 128 << 10
"""Bodies up to this size are sent as they are (``defaultGzipThresholdBytes``)."""

_LEVEL: Final = 1  # ``defaultGzipContentEncodingLevel``


def is_wanted(scope: Scope, answer: Answer) -> bool:
    """Return whether an answer is large, is not compressed yet, and its client takes gzip."""
    _, headers, body = answer
    return (
        len(body) > LEAST_BYTES
        and _takes_gzip(scope)
        and not any(name == b"content-encoding" for name, _ in headers)
    )


def _takes_gzip(scope: Scope) -> bool:
    """Return whether a client names gzip, without a quality (``negotiateContentEncoding``)."""
    return any(
        token.strip() == b"gzip"
        for name, value in scope["headers"]
        if name == b"accept-encoding"
        for token in value.split(b",")
    )


def compressed(answer: Answer) -> Answer:
    """Return an answer with its body in gzip; long work, for a thread. The answer stays as it is.

    While zlib works, other threads compute.
    """
    status, headers, body = answer
    packed = gzip.compress(body, _LEVEL, mtime=0)
    others = [one for one in headers if one[0] not in (b"content-length", b"vary")]
    vary = [value for name, value in headers if name == b"vary"]
    return (
        status,
        [
            *others,
            (b"content-encoding", b"gzip"),
            (b"vary", b", ".join([*vary, b"Accept-Encoding"])),
            (b"content-length", str(len(packed)).encode()),
        ],
        packed,
    )
