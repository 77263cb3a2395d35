"""Allocates cluster IPs, and node ports for types that have them, unique among Services.

What is taken is read from the stored Services, under a lock that only writers of Services take: the
stored Service is the only record of its allocation. Each process caches what it has read, so that
creating many Services reads each one once.
"""

from collections.abc import Sequence
from datetime import datetime
from secrets import randbelow
from typing import Final

import msgspec
from django.db import transaction

from clusterstate.actions.writing import Writer
from clusterstate.actions.writing.stored import NewObject, StoredObject
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import addresses, document
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory

_PRESENT: Final = "SELECT document_id FROM service"
_READ: Final = "SELECT d.id, d.text FROM document d WHERE d.id = ANY(%s)"


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    node_port: int | None = None


class _Spec(msgspec.Struct, frozen=True):
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    ports: tuple[_Port, ...] | None = None
    health_check: int | None = msgspec.field(name="healthCheckNodePort", default=None)


class _Service(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


# A label or an annotation may be named clusterIP, too: texts are decoded, not searched.
_decode: Final = msgspec.json.Decoder(_Service).decode


class _Allocations(msgspec.Struct, frozen=True):
    """The addresses and ports allocated to a version of a Service."""

    address: str
    ports: tuple[int, ...]


_known: dict[int, _Allocations] = {}
"""By document id. Documents never change, so that only those of new versions have to be read."""
memory.when_replaced(_known.clear)


def _pool() -> addresses.Pool:
    """Return the free addresses and ports, locked until the transaction ends. Queries 2-3 times."""
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.SERVICES,))
    present = [row[0] for row in sql.fetch(_PRESENT)]
    before = dict(_known)
    found = {id_: before[id_] for id_ in present if id_ in before}
    fresh = [id_ for id_ in present if id_ not in found]
    if fresh:
        for id_, text in sql.fetch(_READ, (sql.Int8s(fresh),)):
            spec = _decode(text.replace(document.SLOT, "")).spec
            node_ports = (*(one.node_port for one in spec.ports or ()), spec.health_check)
            ports = tuple(port for port in node_ports if port)
            found[id_] = _Allocations(spec.cluster_ip or "", ports)
    _known.clear()  # deleted Services must be dropped
    _known.update(found)
    return addresses.Pool(
        (one.address for one in found.values() if one.address),
        (port for one in found.values() for port in one.ports),
        randbelow,
    )


class ServiceWriter(Writer):
    """Allocates addresses and ports for new Services and those whose type changes."""

    is_batched = False

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """See ``Writer.create_each``; a Service is refused if its address or port is not free."""
        with transaction.atomic():
            pool = _pool()
            results: list[StoredObject | StatusError | None] = [None] * len(items)
            filled: dict[int, NewObject] = {}
            for place, (namespace, manifest, user) in enumerate(items):
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
        """Return a changed Service with the addresses and ports that its type needs."""
        if old is None:
            return new
        before, after = old.get("spec") or {}, new.get("spec") or {}
        asks = {"clusterIP", "healthCheckNodePort", "ports", "type"}
        if not addresses.needs_anything(after) and all(
            before.get(name) == after.get(name) for name in asks
        ):
            return new
        return _pool().filled(new, old)
