"""Caches of functions of one text; results of long texts are not cached.

A cache of ``functools`` counts its entries, not their bytes, and keeps the text of each. Texts of
clients may be as long as a body, so a few thousand of them would fill the memory of a process.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_LONGEST: Final = 320
"""A label's key, the longest of the usual names, has at most 317 characters."""


def remembered(
    most: int, *, longest: int = _LONGEST
) -> Callable[[Callable[[Argument], Result]], Callable[[Argument], Result]]:
    """Cache the last ``most`` results of a function, for texts up to ``longest`` characters.

    Arguments that are no text, and calls that raise, are not cached.
    """

    def decorate(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
        cached = lru_cache(maxsize=most)(function)

        @wraps(function)
        def asked(text: Argument) -> Result:
            if isinstance(text, str | bytes) and len(text) <= longest:
                return cached(text)
            return function(text)

        return asked

    return decorate
