"""Transactions of actions: dry runs, names that are taken, brief exclusive locks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import msgspec
from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg import errors

from clusterstate.actions.writing.object_meta import already_exists
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Overlay

_rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


@contextmanager
def rehearsal() -> Iterator[None]:
    """A dry run: everything written inside is executed, answered, and rolled back at the end.

    Every action and statement on this connection is included, even with transactions of its own;
    on_commit callbacks never run. No other session sees anything of it.
    """
    token = _rehearsing.set(True)
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        _rehearsing.reset(token)


def is_rehearsal() -> bool:
    """Return whether what is written now will be rolled back."""
    return _rehearsing.get()


def written_json(
    text: str, revision: int, overlay: Overlay = document.EMPTY, *, before: int = 0
) -> bytes:
    """Return the JSON of an object written at ``revision``, for the answer to its writer.

    ``before``: the version that it had, 0 for a new one. A dry run returns an object at that
    version and a new one without any, since no reader will ever see the written one. Rule:
    ``DryRunnableStorage``, apiserver ``registry/generic/registry/dryrun.go``, v1.36.
    """
    if not is_rehearsal():
        return document.compose(text, revision, overlay)
    manifest = document.decode(text, before, overlay)
    if not before:
        del manifest["metadata"]["resourceVersion"]
    return msgspec.json.encode(manifest)


def work(*, dry_run: bool = False) -> AbstractContextManager[None]:
    """Return a transaction; with ``dry_run`` one that is rolled back at the end."""
    return rehearsal() if dry_run else transaction.atomic()


@contextmanager
def unique_names(kind: Kind, name: str, *, savepoint: bool = True) -> Iterator[None]:
    """Turn a violated name constraint into AlreadyExists, in a savepoint within a transaction.

    Without ``savepoint`` the violation aborts the transaction.
    """
    try:
        with transaction.atomic() if savepoint and connection.in_atomic_block else nullcontext():
            yield
    except IntegrityError as error:
        constraint = getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") or ""
        if constraint.endswith("_name_unique"):
            raise already_exists(kind, name) from None
        raise


class TablesInUse(Exception):
    """Another session holds a table that had to be locked exclusively; nothing was changed."""


@contextmanager
def briefly() -> Iterator[None]:
    """A transaction whose statements wait for locks only briefly.

    A statement that locks a table exclusively waits for all readers, and every other session that
    comes meanwhile waits behind that statement. A backup, or a long report, may read for minutes.
    So work that needs such a lock and can be done later gives up soon.

    Raises:
        TablesInUse: a lock was not available. Try again later.
    """
    try:
        with transaction.atomic():
            sql.fetch("SELECT set_config('lock_timeout', '300ms', true)")
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, errors.LockNotAvailable):
            raise TablesInUse from error
        raise
