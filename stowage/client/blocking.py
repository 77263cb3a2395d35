"""The client for programs without an event loop: an ``AsyncClient`` in a thread of its own."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from stowage.client.connections import Connection
from stowage.client.exchange import Event, Manifest
from stowage.client.placing import Placement
from stowage.client.questions import AsyncClient

T = TypeVar("T")


class Client:
    """Has the methods of ``AsyncClient``; those that yield there are iterators here."""

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
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stowage-client", daemon=True
        )
        self._thread.start()

        async def made() -> AsyncClient:
            return AsyncClient(found, patience=patience, rng=rng)

        try:
            self._client = self._run(made())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while it waits
            raise

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(found)

        async def ended() -> None:
            if close := getattr(found, "aclose", None):
                await close()

        try:
            while True:
                try:
                    yield self._run(following())
                except StopAsyncIteration:
                    return
        finally:
            self._run(ended())

    def place(
        self, pods: Iterable[Manifest], *, timeout: float | None = None, namespace: str = ""
    ) -> Iterator[Placement]:
        """Submit pods; yield the place of each as soon as it has one."""
        return self._each(self._client.place(pods, timeout=timeout, namespace=namespace))

    def watch(self, path: str, *, resource_version: str = "", **params: Any) -> Iterator[Event]:
        """Yield changes without an end and without a gap."""
        return self._each(self._client.watch(path, resource_version=resource_version, **params))

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Return what the server answers."""
        return self._run(self._client.request(method, path, **options))

    def get(self, path: str, **params: Any) -> Any:
        """Return what is at a path."""
        return self._run(self._client.get(path, **params))

    def ask(self, path: str, question: object, **params: Any) -> Any:
        """Return the answer to a question that changes nothing."""
        return self._run(self._client.ask(path, question, **params))

    def list_all(self, path: str, **params: Any) -> tuple[list[Manifest], str]:
        """Return all objects and the list's resourceVersion."""
        return self._run(self._client.list_all(path, **params))

    def create(self, path: str, manifest: Manifest, **params: Any) -> Manifest:
        """Create an object at its collection's path; return it as it is stored."""
        return self._run(self._client.create(path, manifest, **params))

    def change(
        self, path: str, edit: Callable[[Manifest], Manifest | None], **params: Any
    ) -> Manifest:
        """Read an object, have ``edit`` change it, write it; again if it was changed meanwhile."""
        return self._run(self._client.change(path, edit, **params))

    def patch(self, path: str, patch: object, **params: Any) -> Any:
        """Send a merge patch."""
        return self._run(self._client.patch(path, patch, **params))

    def delete(self, path: str, *, uid: str = "", **params: Any) -> None:
        """Delete an object; one that is gone already is no error."""
        self._run(self._client.delete(path, uid=uid, **params))

    def why(self, name: str, namespace: str = "", **params: Any) -> Manifest:
        """Return the Explanation of where a pod is, or why it waits, with remedies."""
        return self._run(self._client.why(name, namespace, **params))

    def decisions(self, name: str = "", namespace: str = "", **params: Any) -> Manifest:
        """Return the decisions about a pod, without a name those of all pods, newest first."""
        return self._run(self._client.decisions(name, namespace, **params))

    def waiting(self, namespace: str = "", **params: Any) -> list[Manifest]:
        """Return the pods that wait by what stands in their way."""
        return self._run(self._client.waiting(namespace, **params))

    def simulate(self, spec: Manifest) -> Manifest:
        """Return where pods would go in the live cluster, or what else ``spec.base`` says."""
        return self._run(self._client.simulate(spec))

    def headroom(self, pod: Manifest) -> Manifest:
        """Return how many more of a pod fit, and what stops the next one."""
        return self._run(self._client.headroom(pod))

    def plan(self, *changes: Manifest, **spec: object) -> Manifest:
        """Return what changes would do; nothing is kept."""
        return self._run(self._client.plan(*changes, **spec))

    def configuration(self) -> Manifest:
        """Return the KubeSchedulerConfiguration in force."""
        return self._run(self._client.configuration())
