"""Requests that wait together are answered together.

Creating, deleting and reading single objects is what clients do thousands of times a second, and
most of what one such request costs is the same for all: a thread woken, a few round trips to the
database, a commit. While a batch is at work the next requests wait, and the next batch takes them
all: one statement inserts all their nodes, one reads all the pods they ask for. A request that
comes alone is a batch of one and does not wait for others.

A view that runs in a batch finds it in its request (``of``) and returns what the batch hands out
in place of an answer: a ``Deferred``, which is completed when the batch is executed. Views work the
same without one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from api import clock, errors
from clusterstate.actions import objects
from clusterstate.actions.deletion import Deletion
from clusterstate.actions.stored import Deleted, Stored
from clusterstate.admission.request import User
from clusterstate.objects.errors import StatusError
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import not_found
from clusterstate.queries.pods import find_pods

KEY = "stowage.batch"
"""Where a request's WSGI environment holds its batch."""

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")


class Deferred(HttpResponseBase):
    """The place of an answer that the batch will give; ``answer`` holds it then.

    It goes through a view like any response and is never sent, so it has no content and no headers.
    ``accept`` is the request's header, which says in which form the answer is sent.
    """

    def __init__(self) -> None:
        self.answer: HttpResponse | None = None
        self.accept = ""


class _Group(Generic[Wanted, Result]):
    """What requests of a batch want done by one action, and how each is answered."""

    def __init__(self, do: Callable[[Sequence[Wanted]], Sequence[Result | StatusError]]) -> None:
        self._do = do
        self._wanted: list[tuple[Deferred, Wanted, Callable[[Result], HttpResponse]]] = []

    def add(self, wanted: Wanted, finish: Callable[[Result], HttpResponse]) -> Deferred:
        """Take one request's wish; the answer is what ``finish`` makes of the result."""
        deferred = Deferred()
        self._wanted.append((deferred, wanted, finish))
        return deferred

    def execute(self) -> None:
        """Do all of it; every ``Deferred`` has its answer afterwards."""
        self._execute(self._wanted)

    def _execute(
        self, wanted: list[tuple[Deferred, Wanted, Callable[[Result], HttpResponse]]]
    ) -> None:
        try:
            results = self._do([one for _, one, _ in wanted])
        except Exception as error:  # noqa: BLE001  # it becomes an answer
            if len(wanted) == 1 or isinstance(error, OperationalError | InterfaceError):
                for deferred, _, _ in wanted:  # the database failed, none of the requests
                    deferred.answer = errors.respond(error)
                return
            # One request that nothing foresaw must not fail the others; nothing was stored.
            for one in wanted:
                self._execute([one])
            return
        for (deferred, _, finish), result in zip(wanted, results, strict=True):
            if isinstance(result, StatusError):
                deferred.answer = errors.respond(result)
            else:
                deferred.answer = _finished(finish, result)


class Batch:
    """What the views of one batch want done, by action and kind."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group[Any, Any]] = {}

    def create(
        self,
        kind: Kind,
        namespace: str,
        manifest: Manifest,
        user: User,
        finish: Callable[[Stored], HttpResponse],
    ) -> Deferred:
        """Create an object and answer what ``finish`` returns."""

        def do(wanted: Sequence[tuple[str, Manifest, User]]) -> Sequence[Stored | StatusError]:
            return objects.create_each(kind, wanted, now=clock.now())

        return self._group(f"create {kind.name}", do).add((namespace, manifest, user), finish)

    def delete(
        self, kind: Kind, wanted: Deletion, finish: Callable[[Deleted], HttpResponse]
    ) -> Deferred:
        """Delete an object, or begin to, and answer what ``finish`` returns."""

        def do(wanted: Sequence[Deletion]) -> Sequence[Deleted | StatusError]:
            return objects.delete_each(kind, wanted, now=clock.now())

        return self._group(f"delete {kind.name}", do).add(wanted, finish)

    def read_pod(
        self, namespace: str, name: str, finish: Callable[[bytes], HttpResponse]
    ) -> Deferred:
        """Read a pod and answer what ``finish`` returns."""
        return self._group("read Pod", _read_pods).add((namespace, name), finish)

    def execute(self) -> None:
        """Do all of it; every ``Deferred`` has its answer afterwards."""
        for group in self._groups.values():
            group.execute()

    def _group(self, what: str, do: Callable[[Sequence[Any]], Sequence[Any]]) -> _Group[Any, Any]:
        group = self._groups.get(what)
        if group is None:
            group = self._groups[what] = _Group(do)
        return group


def _read_pods(wanted: Sequence[tuple[str, str]]) -> list[bytes | StatusError]:
    found = find_pods(wanted)
    return [
        not_found("Pod", name) if body is None else body
        for (_, name), body in zip(wanted, found, strict=True)
    ]


def _finished(finish: Callable[[Any], HttpResponse], result: Any) -> HttpResponse:
    try:
        return finish(result)
    except Exception as error:  # noqa: BLE001  # what was done is done; the answer says what failed
        return errors.respond(error)


def of(request: HttpRequest) -> Batch | None:
    """Return the batch that a request runs in, if any."""
    batch: Batch | None = request.META.get(KEY)
    return batch
