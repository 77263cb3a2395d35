"""Sets of completion indexes, as a Job's status writes them: ``0,3-5``.

Pure. Stored as intervals, because a status that a client wrote may name a billion indexes. Rules:
pkg/controller/job/indexed_job_utils.go (``parseIndexesFromString``, ``orderedIntervals``), v1.36.
"""

from collections.abc import Iterable, Iterator
from typing import Final

Span = tuple[int, int]
"""The first and the last index of an interval."""
_DIGITS: Final = 19
"""More digits than any index has; such text is no number."""


class Indexes:
    """An immutable set of indexes. ``spans``: first and last of each run, ascending, with gaps."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans: list[Span] = []
        for first, last in sorted(spans):
            if self.spans and first <= self.spans[-1][1] + 1:
                self.spans[-1] = (self.spans[-1][0], max(last, self.spans[-1][1]))
            else:
                self.spans.append((first, last))

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Indexes":
        """Return the set of these indexes."""
        return cls((one, one) for one in indexes)

    @classmethod
    def parse(cls, text: str, completions: int) -> "Indexes":
        """Return the indexes below ``completions`` in a text; malformed parts are ignored.

        A client may have written the text into the status. No error is raised, as in Kubernetes.
        """
        spans = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            last = last if dash else first
            if _is_number(first) and _is_number(last):
                span = int(first), min(int(last), completions - 1)
                if span[0] <= span[1]:
                    spans.append(span)
        return cls(spans)

    @property
    def number(self) -> int:
        """The number of indexes, which may be more than ``len`` can return."""
        return sum(last - first + 1 for first, last in self.spans)

    def __or__(self, other: "Indexes") -> "Indexes":
        """Return the indexes that are in either."""
        return Indexes([*self.spans, *other.spans])

    def __contains__(self, index: int) -> bool:
        """Whether an index is one of them."""
        return any(first <= index <= last for first, last in self.spans)

    def common(self, other: "Indexes") -> int:
        """Return how many are in both."""
        return sum(
            max(0, min(last, end) - max(first, begin) + 1)
            for first, last in self.spans
            for begin, end in other.spans
        )

    def missing(self, completions: int) -> Iterator[int]:
        """Yield the indexes below ``completions`` that are not in the set, ascending."""
        at = 0
        for first, last in self.spans:
            yield from range(at, min(first, completions))
            at = last + 1
        yield from range(at, completions)

    def text(self) -> str:
        """Return the indexes as text: runs of three and more as ``3-5``."""
        return ",".join(
            str(first)
            if first == last
            else f"{first},{last}"
            if last == first + 1
            else f"{first}-{last}"
            for first, last in self.spans
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
