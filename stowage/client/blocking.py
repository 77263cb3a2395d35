"""The client for programs without an event loop: an ``AsyncClient`` in a thread of its own."""

import asyncio
import functools
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from stowage.client.connections import Connection
from stowage.client.questions import AsyncClient

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """Return a blocking form of a method of ``AsyncClient``."""

    @functools.wraps(method)
    def call(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.wait_for(method(client.inner, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """Return a blocking form of a method of ``AsyncClient`` that yields: it returns an iterator."""

    @functools.wraps(method)
    def call(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(client.inner, *args, **kwargs)

        async def following() -> T:
            return await anext(found)

        async def ended() -> None:
            if close := getattr(found, "aclose", None):
                await close()

        try:
            while True:
                try:
                    yield client.wait_for(following())
                except StopAsyncIteration:
                    return
        finally:
            client.wait_for(ended())

    return call


class Client:
    """Has the methods of ``AsyncClient``; those that yield there are iterators here."""

    inner: AsyncClient

    def __init__(
        self,
        connection: Connection | None = None,
        *,
        patience: float = 120.0,
        rng: random.Random | None = None,
    ) -> None:
        """Start the thread; arguments and errors are those of ``AsyncClient``."""
        found = connection or Connection.find()
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that does not close its client ends all the same.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stowage-client", daemon=True
        )
        self._thread.start()

        async def made() -> AsyncClient:
            return AsyncClient(found, patience=patience, rng=rng)

        try:
            self.inner = self.wait_for(made())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._thread.is_alive():
            self.wait_for(self.inner.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the client's loop and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while it waits
            raise

    place = _iterating(AsyncClient.place)
    watch = _iterating(AsyncClient.watch)
    request = _blocking(AsyncClient.request)
    get = _blocking(AsyncClient.get)
    ask = _blocking(AsyncClient.ask)
    list_all = _blocking(AsyncClient.list_all)
    create = _blocking(AsyncClient.create)
    change = _blocking(AsyncClient.change)
    patch = _blocking(AsyncClient.patch)
    delete = _blocking(AsyncClient.delete)
    why = _blocking(AsyncClient.why)
    decisions = _blocking(AsyncClient.decisions)
    waiting = _blocking(AsyncClient.waiting)
    simulate = _blocking(AsyncClient.simulate)
    headroom = _blocking(AsyncClient.headroom)
    plan = _blocking(AsyncClient.plan)
    configuration = _blocking(AsyncClient.configuration)
