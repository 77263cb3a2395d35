"""Requests that update an object, or create it where none is, while others do the same."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rest_framework.response import Response

from clusterstate.objects.values.errors import AlreadyExists, NotFound

_TRIES: Final = 5


def update_or_create(update: Callable[[], Response], create: Callable[[], Response]) -> Response:
    """Return what an update answers, or a creation where there is nothing to update.

    Who loses a race to create an object updates what the winner made, as everybody does who comes
    a moment later. Rule: GuaranteedUpdate, apiserver ``storage/etcd3/store.go``, v1.36.

    Raises:
        StatusError: what ``update`` or ``create`` raise.
    """
    for _ in range(_TRIES):
        with suppress(NotFound):
            return update()
        with suppress(AlreadyExists):
            return create()
    return update()
