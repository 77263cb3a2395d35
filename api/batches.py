"""Requests that wait together are answered together.

Creating a pod and reading one are what clients do thousands of times a second, and most of what
one costs is the same for all: a thread woken, a round trip to the database, a commit. While a batch
is at work the next requests wait, and the next batch takes them all: one statement inserts all
their pods, one reads all the pods they ask for. A request that comes alone is a batch of one and
waits for nobody.

A view that runs in a batch finds it in its request (``of``) and returns what the batch hands out
in place of an answer: a ``Deferred``, which is completed when the batch is executed. Views work the
same without one.
"""

from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from api import clock, errors
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.storing import Stored
from clusterstate.admission.request import User
from clusterstate.objects.errors import StatusError
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import not_found
from clusterstate.queries.pods import find_pods

KEY = "stowage.batch"
"""Where a request's WSGI environment holds its batch."""


class Deferred(HttpResponseBase):
    """The place of an answer that the batch will give; ``answer`` holds it then.

    It goes through a view like any response and is never sent, so it has no content and no headers.
    ``accept`` is the request's header, which says in which form the answer is sent.
    """

    def __init__(self) -> None:
        self.answer: HttpResponse | None = None
        self.accept = ""


class Batch:
    """What the views of one batch want done."""

    def __init__(self) -> None:
        self._creations: dict[
            User, list[tuple[Deferred, Manifest, Callable[[Stored], HttpResponse]]]
        ] = {}
        self._reads: list[tuple[Deferred, str, str, Callable[[bytes], HttpResponse]]] = []

    def create_pod(
        self, manifest: Manifest, user: User, finish: Callable[[Stored], HttpResponse]
    ) -> Deferred:
        """Create a pod (its namespace is in the manifest) and answer what ``finish`` returns."""
        deferred = Deferred()
        self._creations.setdefault(user, []).append((deferred, manifest, finish))
        return deferred

    def read_pod(
        self, namespace: str, name: str, finish: Callable[[bytes], HttpResponse]
    ) -> Deferred:
        """Read a pod and answer what ``finish`` returns."""
        deferred = Deferred()
        self._reads.append((deferred, namespace, name, finish))
        return deferred

    def execute(self) -> None:
        """Do all of it; every ``Deferred`` has its answer afterwards. One statement for each."""
        for user, wanted in self._creations.items():
            self._create(user, wanted)
        if self._reads:
            self._read()

    def _create(
        self,
        user: User,
        wanted: list[tuple[Deferred, Manifest, Callable[[Stored], HttpResponse]]],
    ) -> None:
        try:
            results = create_pods(
                [manifest for _, manifest, _ in wanted],
                now=clock.now(),
                user=user,
                all_or_nothing=False,
            )
        except (OperationalError, InterfaceError) as error:  # no fault of one of them
            for deferred, _, _ in wanted:
                deferred.answer = errors.respond(error)
            return
        except Exception as error:  # noqa: BLE001  # it becomes an answer
            if len(wanted) == 1:
                wanted[0][0].answer = errors.respond(error)
                return
            # One pod that nothing foresaw must not fail the others; nothing was stored.
            for one in wanted:
                self._create(user, [one])
            return
        for (deferred, _, finish), result in zip(wanted, results, strict=True):
            if isinstance(result, StatusError):
                deferred.answer = errors.respond(result)
            else:
                deferred.answer = _finished(finish, result)

    def _read(self) -> None:
        try:
            found = find_pods([(space, name) for _, space, name, _ in self._reads])
        except Exception as error:  # noqa: BLE001  # each request gets it as its answer
            for deferred, _, _, _ in self._reads:
                deferred.answer = errors.respond(error)
            return
        for (deferred, _, name, finish), body in zip(self._reads, found, strict=True):
            if body is None:
                deferred.answer = errors.respond(not_found("Pod", name))
            else:
                deferred.answer = _finished(finish, body)


def _finished(finish: Callable[[Any], HttpResponse], result: Any) -> HttpResponse:
    try:
        return finish(result)
    except Exception as error:  # noqa: BLE001  # what was done is done; the answer says what failed
        return errors.respond(error)


def of(request: HttpRequest) -> Batch | None:
    """Return the batch that a request runs in, if any."""
    batch: Batch | None = request.META.get(KEY)
    return batch
