"""Services get a cluster IP, and node ports where their type has them, which no other Service has.

What is taken is read from the Services there are, under a lock that only writers of Services take:
a stored Service is the one record of what it got.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from secrets import randbelow
from typing import Final

from django.db import transaction

from clusterstate import locks, sql
from clusterstate.actions.stored import Stored
from clusterstate.actions.writing import Writer
from clusterstate.admission.request import User
from clusterstate.objects import addresses
from clusterstate.objects.errors import StatusError
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest

_TAKEN: Final = """
SELECT substring(d.text FROM '"clusterIP":"([^"]*)"'),
       CASE WHEN d.text LIKE '%%"nodePort":%%' THEN d.text END
FROM service t JOIN document d ON d.id = t.document_id
"""
_PORT: Final = re.compile(r'"nodePort":([0-9]+)')


def _pool() -> addresses.Pool:
    """Return what is free, until the transaction ends. Queries."""
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.SERVICES,))
    rows = sql.fetch(_TAKEN)
    ports = (int(port) for _, text in rows if text for port in _PORT.findall(text))
    return addresses.Pool((address for address, _ in rows if address), ports, randbelow)


class ServiceWriter(Writer):
    """Gives new Services, and those whose type changes, what they lack."""

    is_batched = False

    def create_each(
        self,
        kind: Kind,
        wanted: Sequence[tuple[str, Manifest, User]],
        now: datetime,
        *,
        all_or_nothing: bool = False,
    ) -> list[Stored | StatusError]:
        """See ``Writer.create_each``; what cannot get what it asks for is refused."""
        with transaction.atomic():
            pool = _pool()
            results: list[Stored | StatusError | None] = [None] * len(wanted)
            filled: dict[int, tuple[str, Manifest, User]] = {}
            for place, (namespace, manifest, user) in enumerate(wanted):
                try:
                    filled[place] = (namespace, pool.filled(manifest, namespace=namespace), user)
                except StatusError as error:
                    if all_or_nothing:
                        raise
                    results[place] = error
            stored = super().create_each(
                kind, list(filled.values()), now, all_or_nothing=all_or_nothing
            )
            for place, one in zip(filled, stored, strict=True):
                results[place] = one
        return [one for one in results if one is not None]

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Return a changed Service with what its type has now."""
        if old is None:
            return new
        before, after = old.get("spec") or {}, new.get("spec") or {}
        asks = {"clusterIP", "ports", "type"}
        if not addresses.needs_anything(after) and all(
            before.get(name) == after.get(name) for name in asks
        ):
            return new
        return _pool().filled(new, old)
