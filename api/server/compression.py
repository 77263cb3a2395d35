"""Large answers, compressed for clients that accept gzip.

As in kube-apiserver (``endpoints/handlers/responsewriters/writers.go``, v1.36), answers larger than
``LEAST_BYTES`` are compressed for clients with ``gzip`` in ``Accept-Encoding``, at the fastest
level, which gives a tenth of the size. Watches and other streams are not compressed.
"""

import gzip
from typing import Final

from api.server.scopes import Scope
from api.server.sending import Answer

LEAST_BYTES: Final = 128 << 10
"""Bodies up to this size are sent as they are (``defaultGzipThresholdBytes``)."""

_LEVEL: Final = 1  # ``defaultGzipContentEncodingLevel``


def is_wanted(scope: Scope, answer: Answer) -> bool:
    """Return whether an answer is large and not yet compressed, and its client accepts gzip."""
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
    """Return a compressed copy of an answer; long work, to run on a thread.

    zlib releases the GIL.
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
