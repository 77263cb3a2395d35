"""Numbers that clients write as texts, in addresses, headers, annotations and parts of names."""


def natural(text: str | bytes, *, digits: int = 18) -> int | None:
    """Return the number that a text of 1 to ``digits`` decimal digits writes, else ``None``.

    ``int`` also takes signs, spaces, underscores and the digits of other scripts, and raises
    ``ValueError`` for what is longer than 4300 digits. 18 digits fit PostgreSQL's ``bigint``.
    """
    if not text.isdigit() or not text.isascii() or len(text) > digits:
        return None
    return int(text)
