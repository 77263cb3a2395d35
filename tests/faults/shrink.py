"""The shortest schedule that still fails, by delta debugging (Zeller's ddmin)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shrink(
    items: Sequence[Item], fails: Callable[[list[Item]], bool], *, tries: int = 40
) -> list[Item]:
    """Return items that fail still, of which no part that was tried fails alone.

    ``fails`` is asked at most so many times; what fails by chance may stay longer than it must.
    """
    left = list(items)
    pieces = 2
    while len(left) > 1 and tries > 0:
        size = -(-len(left) // pieces)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        for number, chunk in enumerate(chunks):
            rest = [one for k, other in enumerate(chunks) for one in other if k != number]
            found = None
            for candidate, next_pieces in ((chunk, 2), (rest, max(pieces - 1, 2))):
                if not candidate or len(candidate) == len(left) or tries <= 0:
                    continue
                tries -= 1
                if fails(candidate):
                    found = candidate, next_pieces
                    break
            if found is not None:
                left, pieces = found
                break
        else:
            if pieces >= len(left):
                break
            pieces = min(len(left), pieces * 2)
    return left
