"""How many bytes of bodies and answers a process holds for each client.

A body counts from when its length is known until its request is answered, a large answer until its
client has read it. When all of them reach the limit, or those of one flow half of it, further
requests are answered 429. All methods run on the event loop.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from clusterstate.objects.values.errors import TooManyRequests

SMALL_BYTES = 64 << 10
"""Bodies and answers up to this size do not count: the number of waiting requests bounds them."""


class Budget:
    """Counts the bytes of request and answer bodies in memory, by flow, against a limit."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._of_one = total // 2
        self._used = 0
        self._flows: dict[str, int] = {}

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._used

    def require(self, flow: str, size: int) -> None:
        """Raise TooManyRequests if ``size`` more bytes of ``flow`` would exceed a limit now."""
        if self._used + size > self._total or self._flows.get(flow, 0) + size > self._of_one:
            raise TooManyRequests(
                "the server holds too many bytes of requests and responses; try again later",
                {"retryAfterSeconds": 1},
            )

    def take(self, flow: str, size: int) -> None:
        """Count bytes of a flow that are already in memory, whatever the limit."""
        self._used += size
        self._flows[flow] = self._flows.get(flow, 0) + size

    def give_back(self, flow: str, size: int) -> None:
        """Stop counting bytes of a flow that ``take`` counted."""
        self._used -= size
        remaining = self._flows[flow] - size
        if remaining:
            self._flows[flow] = remaining
        else:
            del self._flows[flow]

    @contextmanager
    def reserved(self, flow: str, size: int) -> Iterator[None]:
        """Count bytes of a flow while the context is open, whatever the limit."""
        self.take(flow, size)
        try:
            yield
        finally:
            self.give_back(flow, size)
