"""Causes of changes that are rows of the service: a plan that is carried out, an approval.

The change log stores a uid as the cause of a change: the id of a request, or the uid of a
preempting pod. The uid of a plan or an approval contains its number, so that readers of the log
know what it is; no other uid has its first half (``Audit-ID`` headers with it are not accepted).
"""

import uuid
from typing import Final

PLAN, APPROVAL = 1, 2
_PREFIX: Final = 0x73746F77_6167_8000
"""``stowag``, version 8 (RFC 9562), and the kind in the lowest bits."""
_VARIANT: Final = 0b10 << 62
_NUMBER: Final = (1 << 62) - 1
_TEXT: Final = "73746f77-6167-80"


def uid_of(kind: int, number: int) -> uuid.UUID:
    """Return the uid of a plan or of an approval, by its row's number."""
    return uuid.UUID(int=(_PREFIX | kind) << 64 | _VARIANT | number)


def number_of(uid: uuid.UUID, kind: int) -> int | None:
    """Return the number in a uid, ``None`` where it is not one of that kind."""
    return uid.int & _NUMBER if uid.int >> 64 == _PREFIX | kind else None


def is_own(text: str) -> bool:
    """Return whether the text of a uid is that of a plan or of an approval."""
    return text.startswith(_TEXT)


def is_reserved(uid: uuid.UUID) -> bool:
    """Return whether a uid is one that ``uid_of`` may make."""
    return uid.int >> 68 == _PREFIX >> 4
