"""Requests that wait together are served together.

Clients create, delete and read single objects, and renew leases, thousands of times a second. Most
of the cost of one such request is the same for all: a thread woken, a few round trips to the
database, a commit. While a batch is at work the next requests wait, and the next batch takes them
all: one statement inserts all their nodes, one reads all their pods. A single request is a batch of
one and does not wait for others.

A view that runs in a batch finds it in its request (``of``) and returns a ``DeferredAnswer`` from
the batch, which the view itself completes when the batch has been executed
(``StatusView.complete``). Views work the same without one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from django.http.response import HttpResponseBase

from api import clock
from api.forms import failures
from api.requests import Request
from clusterstate.actions import objects
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.actions.writing.stored import DeletedObject, NewObject, StoredObject
from clusterstate.admission.request import User
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import not_found
from clusterstate.queries.pods import find_pods

KEY = "stowage.batch"
"""Where a request's WSGI environment holds its batch."""

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")


class Place(Protocol):
    """Where a batch stores the answer to one request."""

    def finish(self, make: Callable[[Any], Any], result: Any) -> None:
        """Store ``make(result)`` as the answer; if ``make`` fails, the write stays committed."""

    def fail(self, error: Exception) -> None:
        """Store a failure as the answer."""


AnyPlace = TypeVar("AnyPlace", bound=Place)


class _Completes(Protocol):
    """A view."""

    def complete(self, request: Request, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Return the complete answer that ``make`` returns, or the failure that it raises."""


class DeferredAnswer(HttpResponseBase):
    """A placeholder returned by a view; the batch stores the real answer in ``answer``.

    It passes through a view like any response and is never sent, so it has no content and no
    headers. ``view`` and ``request``: its origin, which completes it.
    """

    view: _Completes
    request: Request

    def __init__(self) -> None:
        self.answer: HttpResponseBase | None = None

    def finish(self, make: Callable[[Any], HttpResponseBase], result: Any) -> None:
        """Store the answer that the view completes from ``make(result)``."""
        self.answer = self.view.complete(self.request, lambda: make(result))

    def fail(self, error: Exception) -> None:
        """Store the answer that the view completes from an error."""

        def failed() -> HttpResponseBase:
            raise error

        self.answer = self.view.complete(self.request, failed)


class _Group(Generic[Wanted, Result]):
    """Requests of a batch that one action serves, and the functions that answer them."""

    def __init__(self, do: Callable[[Sequence[Wanted]], Sequence[Result | Exception]]) -> None:
        self._do = do
        self._requests: list[tuple[Place, Wanted, Callable[[Result], Any]]] = []

    def add(self, request: Wanted, finish: Callable[[Result], Any], place: AnyPlace) -> AnyPlace:
        """Add a request to the batch; ``place`` will store ``finish`` of its result."""
        self._requests.append((place, request, finish))
        return place

    def execute(self) -> None:
        """Execute all of it; every place has its answer afterwards."""
        self._execute(self._requests)

    def _execute(self, requests: list[tuple[Place, Wanted, Callable[[Result], Any]]]) -> None:
        try:
            results = self._do([one for _, one, _ in requests])
        except Exception as error:  # noqa: BLE001  # it becomes an answer
            if len(requests) == 1 or sql.is_away(error):
                for place, _, _ in requests:  # the database failed, none of the requests
                    place.fail(error)
                return
            # An unexpected failure of one request must not fail the others; nothing was stored.
            for one in requests:
                self._execute([one])
            return
        for (place, _, finish), result in zip(requests, results, strict=True):
            if isinstance(result, Exception):
                failures.forget_frames(result)
                place.fail(result)
            else:
                place.finish(finish, result)


class Batch:
    """The work of a batch's views, by action and kind."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group[Any, Any]] = {}

    def create(
        self,
        kind: Kind,
        namespace: str,
        manifest: Manifest,
        user: User,
        finish: Callable[[StoredObject], Any],
        place: AnyPlace,
    ) -> AnyPlace:
        """Create an object; return the place that gets what ``finish`` returns."""

        def do(items: Sequence[NewObject]) -> Sequence[StoredObject | StatusError]:
            return objects.create_each(kind, items, now=clock.now())

        group = self._group(f"create {kind.name}", do)
        return group.add((namespace, manifest, user), finish, place)

    def delete(
        self,
        kind: Kind,
        deletion: Deletion,
        finish: Callable[[DeletedObject], Any],
        place: AnyPlace,
    ) -> AnyPlace:
        """Delete an object, or mark it; return the place that gets what ``finish`` returns."""

        def do(deletions: Sequence[Deletion]) -> Sequence[DeletedObject | StatusError]:
            return objects.delete_each(kind, deletions, now=clock.now())

        return self._group(f"delete {kind.name}", do).add(deletion, finish, place)

    def renew(
        self,
        kind: Kind,
        update: objects.Update,
        finish: Callable[[StoredObject], Any],
        place: AnyPlace,
    ) -> AnyPlace:
        """Renew an object's heartbeat; return the place that gets what ``finish`` returns."""

        def do(updates: Sequence[objects.Update]) -> Sequence[StoredObject | Exception]:
            return objects.renew_each(kind, updates, now=clock.now())

        return self._group(f"renew {kind.name}", do).add(update, finish, place)

    def read_pod(
        self, namespace: str, name: str, finish: Callable[[bytes], Any], place: AnyPlace
    ) -> AnyPlace:
        """Read a pod; return the place that gets what ``finish`` returns."""
        return self._group("read Pod", _read_pods).add((namespace, name), finish, place)

    def execute(self) -> None:
        """Execute all of it; every place has its answer afterwards.

        The batch drops its requests. Each request's environment refers to the batch, so a reference
        back would leave them all, with bodies and answers, to the garbage collector.
        """
        groups, self._groups = self._groups, {}
        for group in groups.values():
            group.execute()

    def _group(self, what: str, do: Callable[[Sequence[Any]], Sequence[Any]]) -> _Group[Any, Any]:
        group = self._groups.get(what)
        if group is None:
            group = self._groups[what] = _Group(do)
        return group


def _read_pods(keys: Sequence[tuple[str, str]]) -> list[bytes | StatusError]:
    found = find_pods(keys)
    return [
        not_found("Pod", name) if body is None else body
        for (_, name), body in zip(keys, found, strict=True)
    ]


def of(request: Request) -> Batch | None:
    """Return the batch that a request runs in, if any."""
    batch: Batch | None = request.META.get(KEY)
    return batch
