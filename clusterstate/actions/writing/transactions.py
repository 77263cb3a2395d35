"""Transactions of actions: dry runs, names that are taken, tables that one wants for oneself."""

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
    """A dry run: whatever is written inside is done, answered, and rolled back at the end.

    Every action and statement on this connection is inside, however it opens transactions of its
    own; what they would do after their commit is never done. No other session sees anything of it.
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

    ``before`` is the version that it had, 0 for a new one. A dry run leaves an object at that
    version and gives a new one none, since nobody will ever read the one that was written.
    Rule: ``DryRunnableStorage``, apiserver ``registry/generic/registry/dryrun.go``, v1.36.
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
    """Turn a violated name constraint into AlreadyExists; in a transaction, keep it usable.

    Without a ``savepoint`` the transaction is lost when that happens.
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
    comes meanwhile waits behind that statement. A backup, or somebody's report, may read for
    minutes. So what needs such a lock and can be done later gives up soon.

    Raises:
        TablesInUse: a lock was not to be had. Try again later.
    """
    try:
        with transaction.atomic():
            sql.fetch("SELECT set_config('lock_timeout', '300ms', true)")
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, errors.LockNotAvailable):
            raise TablesInUse from error
        raise
