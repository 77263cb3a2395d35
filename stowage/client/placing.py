"""Many pods submitted, and the place of each as soon as it has one, by one watch."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Final
from urllib.parse import quote

import msgspec

from stowage.client.exchange import SUBMISSION, APIError, Exchange, Manifest, named, place_of

_AT_ONCE: Final = 500
"""The most pods in one request; all of them are created, or none."""
_REQUESTS: Final = 4
"""The most requests in flight at a time."""
_OF_ONE_POD: Final = frozenset({400, 409, 413, 422})
"""Refusals for which a single pod of many may be the reason."""
_OF_ALL: Final = frozenset({403, 404})


class State(StrEnum):
    """The outcome for a submitted pod."""

    PLACED = "Placed"
    WAITING = "Waiting"
    REFUSED = "Refused"
    GONE = "Gone"


class Placement(msgspec.Struct, frozen=True):
    """A submitted pod: its ``node``, or the ``message`` that says why it has none.

    WAITING: it had no node when the time was over, and may get one later. REFUSED: it was not
    created. GONE: it was deleted before it had a node.
    """

    namespace: str
    name: str
    state: State
    node: str = ""
    message: str = ""


class _Submission:
    """The pods of one call, from their names to their places."""

    def __init__(self, exchange: Exchange, pods: Iterable[Manifest], namespace: str) -> None:
        self._exchange = exchange
        self._sign = f"{exchange.rng.getrandbits(64):016x}"
        self._selector = f"{SUBMISSION}={self._sign}"
        self._pods = [self._signed(one, namespace) for one in pods]
        self.open: dict[tuple[str, str], str] = {place_of(one): "" for one in self._pods}
        """Pods without an outcome, each with the last message why it waits."""
        if len(self.open) < len(self._pods):
            raise ValueError("two of the pods have the same name in one namespace")
        spaces = {place[0] for place in self.open}
        self._path = _pods_in(*spaces) if len(spaces) == 1 else "/api/v1/pods"
        self._known: dict[tuple[str, str], str] = {}
        self.news: asyncio.Queue[Placement | BaseException | None] = asyncio.Queue()
        """What became of pods, ``None`` once all are created or refused, or what went wrong."""

    def _signed(self, pod: Manifest, namespace: str) -> Manifest:
        meta = named(pod, self._exchange.rng)
        meta["namespace"] = meta.get("namespace") or namespace
        meta["labels"] = {**(meta.get("labels") or {}), SUBMISSION: self._sign}
        return {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": meta}

    async def run(self) -> None:
        """Follow the pods and create them; what becomes of them is in ``news``."""
        try:
            start = await self._exchange.get(self._path, limit=1, labelSelector=self._selector)
            follows = asyncio.create_task(self._follow(start["metadata"]["resourceVersion"]))
            try:
                limit = asyncio.Semaphore(_REQUESTS)
                creates = asyncio.create_task(self._create_all(limit))
                await asyncio.gather(creates, follows)
            finally:
                follows.cancel()
        except Exception as error:  # noqa: BLE001  # the one who waits raises it
            self.news.put_nowait(error)

    def _chunks(self) -> Iterator[list[Manifest]]:
        """Yield the pods of one namespace after the other, in their order."""
        by_namespace: dict[str, list[Manifest]] = {}
        for one in self._pods:
            by_namespace.setdefault(one["metadata"]["namespace"], []).append(one)
        for pods in by_namespace.values():
            rest = iter(pods)
            while chunk := list(islice(rest, _AT_ONCE)):
                yield chunk

    async def _create_all(self, limit: asyncio.Semaphore) -> None:
        async with asyncio.TaskGroup() as tasks:
            for pods in self._chunks():
                tasks.create_task(self._within(limit, pods))
        self.news.put_nowait(None)

    async def _within(self, limit: asyncio.Semaphore, pods: list[Manifest]) -> None:
        async with limit:
            await self._create(pods)

    async def _create(self, pods: list[Manifest]) -> None:
        """Create pods of one namespace, all but those that are refused."""
        try:
            await self._exchange.request(
                "POST",
                _pods_in(pods[0]["metadata"]["namespace"]),
                body={"apiVersion": "v1", "kind": "PodList", "items": pods},
                repeats=True,
            )
        except APIError as error:
            if error.code == 409 and await self._is_done(pods):
                pass  # the answer to an earlier attempt was lost
            elif error.code in _OF_ALL or (error.code in _OF_ONE_POD and len(pods) == 1):
                for one in pods:
                    space, name = place_of(one)
                    self.news.put_nowait(
                        Placement(space, name, State.REFUSED, message=error.message)
                    )
                return
            elif error.code in _OF_ONE_POD:
                middle = len(pods) // 2
                await self._create(pods[:middle])
                await self._create(pods[middle:])
                return
            else:
                raise
        for one in pods:
            self._known.setdefault(place_of(one), "")

    async def _is_done(self, pods: list[Manifest]) -> bool:
        """Return whether pods, which are created all or none, were created by this submission."""
        path = _pods_in(pods[0]["metadata"]["namespace"])
        wanted = {place_of(one) for one in pods}
        found, _ = await self._exchange.list_all(path, labelSelector=self._selector)
        return any(place_of(one) in wanted for one in found)

    async def _follow(self, version: str) -> None:
        async for event in self._exchange.watch(
            self._path,
            resource_version=version,
            known=self._known,
            labelSelector=self._selector,
        ):
            space, name = place_of(event.object)
            if event.type == "DELETED":
                self.news.put_nowait(Placement(space, name, State.GONE))
            elif node := event.object["spec"].get("nodeName"):
                self.news.put_nowait(Placement(space, name, State.PLACED, node=node))
            elif (space, name) in self.open:
                self.open[space, name] = _reason(event.object)


def _pods_in(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def _reason(pod: Manifest) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


async def place(
    exchange: Exchange,
    pods: Iterable[Manifest],
    *,
    timeout: float | None = None,  # noqa: ASYNC109  # ends the generator, raises nothing
    namespace: str = "",
) -> AsyncIterator[Placement]:
    """Submit pods and yield each once: when it has a node, is refused or gone, or time is over.

    Each pod gets a name, if it has only ``generateName``, and the label ``SUBMISSION``, by which
    it is followed, and found again when the answer to its creation was lost. So no pod is lost
    and none is created twice, whatever is restarted meanwhile.

    Args:
        exchange: whom to ask.
        pods: manifests.
        timeout: seconds from when all are created, ``None`` without a limit. Pods that wait then
            stay in the cluster.
        namespace: of pods that name none.

    Raises:
        APIError: who asks is not known, or may not watch pods.
        Unreachable: nobody answered.
        ValueError: two pods have one name, or the type of a field of ``metadata`` is wrong.
    """
    submission = _Submission(exchange, pods, namespace or exchange.connection.namespace)
    until: float | None = None
    runs = asyncio.create_task(submission.run())
    try:
        while submission.open:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                news = await asyncio.wait_for(submission.news.get(), left)
            except TimeoutError:
                break
            if news is None:
                until = None if timeout is None else time.monotonic() + timeout
                continue
            if isinstance(news, BaseExceptionGroup):
                raise news.exceptions[0]
            if isinstance(news, BaseException):
                raise news
            if submission.open.pop((news.namespace, news.name), None) is not None:
                yield news
        for (space, name), message in submission.open.items():
            yield Placement(space, name, State.WAITING, message=message)
    finally:
        runs.cancel()
        with suppress(asyncio.CancelledError):
            await runs
