"""Deletes every object of a collection that selectors match.

A transaction deletes ``CHUNK`` objects: one statement for each step instead of one for each object,
yet short, because followers of the log wait for every transaction that holds numbers of it.
"""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions import objects
from clusterstate.actions.writing import transactions
from clusterstate.actions.writing.deletion import DeleteOptions
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import Conflict, NotFound, StatusError, Timeout
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import kind_of
from clusterstate.queries.objects.lists import matching_keys

CHUNK: Final = 250


def delete_collection(
    kind: Kind | str,
    namespace: str,
    options: DeleteOptions | Manifest | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    now: datetime,
    user: User = NOBODY,
    enough: Callable[[], bool] | None = None,
    most: int | None = None,
) -> int:
    """Delete what the selectors match; return how many objects were deleted or became terminating.

    Each object is deleted as if alone. Objects created meanwhile stay, and vanished ones are
    ignored. ``enough`` is called between transactions; if it returns true, the rest stays. In a dry
    run each transaction is rolled back. ``most``: delete at most this many, the first of the list.

    Raises:
        StatusError: an object may not be deleted; some others are gone.
        Timeout: ``enough`` ended it; another call deletes the rest.
    """
    kind = kind_of(kind)
    chosen = DeleteOptions.of(options)
    keys = matching_keys(
        kind, namespace, label_selector=label_selector, field_selector=field_selector
    )[:most]
    done = 0
    for first in range(0, len(keys), CHUNK):
        if enough is not None and enough():
            raise Timeout(
                "Timeout: request did not complete within requested timeout -"
                f" {done} of {len(keys)} {kind.plural} were deleted",
                {"retryAfterSeconds": 1},
            )
        deletions = [
            # Not an object of that name that was created since.
            msgspec.structs.replace(chosen, uid=chosen.uid or uid).about(space, name, user)
            for space, name, uid in keys[first : first + CHUNK]
        ]
        with transactions.work(dry_run=True) if chosen.dry_run else nullcontext():
            results = objects.delete_each(kind, deletions, now=now)
        for result in results:
            if not isinstance(result, StatusError):
                done += 1
            elif not _has_vanished(result, chosen):
                raise result
    return done


def _has_vanished(error: StatusError, chosen: DeleteOptions) -> bool:
    """Return whether an object is gone, or another one has its name now."""
    if isinstance(error, NotFound):
        return True
    return isinstance(error, Conflict) and not (chosen.uid or chosen.resource_version)
