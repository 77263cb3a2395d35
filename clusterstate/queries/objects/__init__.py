"""Single objects by name.

::

    lists         lists, exact as of a revision, with selectors and pages
    kept_lists    a cache of whole lists, updated from the log
    finding       objects by a part of their name
    events        Events, composed from columns or documents
    beginnings    when an existing namespace was created
    namespaces    namespaces with changes or budgets, or terminating
    workloads     workloads of a namespace and their pods
    selections    what Services, controllers and budgets select
    dependents    which objects name an owner, for the garbage collector
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects.events import find_event
from clusterstate.queries.pods import find_pod

_decoder = msgspec.json.Decoder()


def kind_of(kind: Kind | str) -> Kind:
    """Return the registry's entry for a kind or its name."""
    return KINDS[kind] if isinstance(kind, str) else kind


def not_found(kind: Kind | str, name: str) -> NotFound:
    """Return the error ``pods "x" not found``."""
    kind = kind_of(kind)
    details: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        details["group"] = kind.group
    return NotFound(f'{kind.resource} "{name}" not found', details)


@lru_cache(maxsize=64)
def _get_statement(rows: str, *, namespaced: bool) -> str:
    where = "t.namespace = %s AND t.name = %s" if namespaced else "t.name = %s"
    return (
        f"SELECT d.text, t.revision FROM {rows} t JOIN document d ON d.id = t.document_id"
        f" WHERE {where}"
    )


def find_object(kind: Kind | str, namespace: str, name: str) -> bytes | None:
    """Return an object as JSON, or ``None``. Queries once; ``namespace`` is empty where none."""
    kind = kind_of(kind)
    if kind.has_slots:
        return find_pod(namespace, name)
    if kind.is_composed:
        return find_event(namespace, name)
    key = (namespace, name) if kind.namespaced else (name,)
    row = sql.fetch_one(_get_statement(kind.rows, namespaced=kind.namespaced), key)
    return None if row is None else document.compose(row[0], row[1])


def find_objects(kind: Kind | str, keys: Sequence[tuple[str, str]]) -> list[bytes | None]:
    """Return objects by namespace and name as JSON, ``None`` for missing ones. Queries once.

    For kinds with namespaces whose objects are documents, except pods and events.
    """
    found: list[bytes | None] = [None] * len(keys)
    if keys:
        rows = sql.fetch(
            "SELECT k.position, d.text, t.revision"
            " FROM unnest(%s, %s) WITH ORDINALITY AS k(namespace, name, position),"
            f" LATERAL (SELECT * FROM {kind_of(kind).rows} t"
            " WHERE t.namespace = k.namespace AND t.name = k.name OFFSET 0) t"
            " JOIN document d ON d.id = t.document_id",
            tuple(map(sql.Texts, zip(*keys, strict=True))),
        )
        for position, text, revision in rows:
            found[position - 1] = document.compose(text, revision)
    return found


def get_object(kind: Kind | str, namespace: str, name: str) -> bytes:
    """Return an object as JSON. Queries once; ``namespace`` is empty for kinds without.

    Raises:
        NotFound: there is none.
    """
    found = find_object(kind, namespace, name)
    if found is None:
        raise not_found(kind, name)
    return found


def get_manifest(kind: Kind | str, namespace: str, name: str) -> Manifest:
    """Return an object, decoded. Queries once.

    Raises:
        NotFound: there is none.
    """
    return decode_object(get_object(kind, namespace, name))


def decode_object(item: bytes) -> Manifest:
    """Return an object's JSON as a manifest."""
    manifest: Manifest = _decoder.decode(item)
    return manifest
