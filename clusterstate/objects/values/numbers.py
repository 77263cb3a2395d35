"""Numbers that clients write as texts, in addresses, headers, annotations and parts of names."""

from typing import Final

MOST_ANNOTATED: Final = 1_000_000_000
"""The largest number that an annotation may have."""


def natural(text: str | bytes, *, digits: int = 18) -> int | None:
    """Return the number that a text of 1 to ``digits`` decimal digits writes, else ``None``.

    ``int`` also takes signs, spaces, underscores and the digits of other scripts, and raises
    ``ValueError`` for what is longer than 4300 digits. 18 digits fit PostgreSQL's ``bigint``.
    """
    if not text.isdigit() or not text.isascii() or len(text) > digits:
        return None
    return int(text)


def annotated_number(text: str) -> float | None:
    """Return the number of seconds (``5`` or ``5s``), or the exit code, of an annotation.

    ``None`` where the text is no number from 0 to ``MOST_ANNOTATED``.
    """
    try:
        found = float(text.removesuffix("s"))
    except ValueError:
        return None
    return found if 0 <= found <= MOST_ANNOTATED else None
