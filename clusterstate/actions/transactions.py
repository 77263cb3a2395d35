"""Transactions of actions: dry runs, and names that are taken."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from django.db import IntegrityError, connection, transaction

from clusterstate.actions.object_meta import already_exists
from clusterstate.objects.kind import Kind

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


def work(*, dry_run: bool = False) -> AbstractContextManager[None]:
    """Return a transaction, of a dry run if that is wanted."""
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
