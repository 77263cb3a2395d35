"""Writes objects when Django's ``create``, ``save`` or ``delete`` is called for their rows.

A new row describes its object by ``manifest`` or, for the kinds in ``_COMPOSED``, by its columns. A
stored row is changed by ``manifest`` or by the columns in ``_EDITS``; all other columns are derived
from the object or are the service's own.
"""

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clusterstate.actions import objects
from clusterstate.actions.writing.deletion import DeleteOptions
from clusterstate.models.rows import NotByRow
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest

_OF_CODES: Final = {kind.code: kind for kind in ALL_KINDS}
_AMOUNTS: Final = ("cpu_milli", "memory_bytes", "ephemeral_bytes", "pods", "extended")
_STATUS: Final = "status"


class RowWriter:
    """Carries out ``save`` and ``delete`` of Django models as writes of their objects.

    These writes name no user.
    """

    def save(self, row: Any) -> None:
        """Create or change the object of a row, and update the row.

        Raises:
            NotByRow: the row does not describe the object, or sets a column that only follows from
                it.
            StatusError: admission refuses it.
        """
        kind = _kind_of(row)
        if row._state.adding:
            manifest = copy.deepcopy(row.edit) if row.edit is not None else _composed(row, kind)
            namespace = _namespace_of(row, manifest)
            stored = objects.create(kind, namespace, manifest, now=_now())
            uid = msgspec.json.decode(stored.manifest)["metadata"]["uid"]
            row.pk = type(row)._default_manager.values_list("pk", flat=True).get(uid=uid)
        else:
            self._change(row, kind)
        row.edit = None
        row._state.adding = False
        row.refresh_from_db()

    def _change(self, row: Any, kind: Kind) -> None:
        before = type(row)._default_manager.get(pk=row.pk)
        changed = [
            field.attname
            for field in row._meta.concrete_fields
            if getattr(row, field.attname) != getattr(before, field.attname)
        ]
        edits = _EDITS["*"] | _EDITS.get(kind.name, {})
        for name in changed:
            if name not in edits or not hasattr(row, name):
                raise NotByRow(
                    f"{kind.name}.{name} is computed from the object: set"
                    " row.manifest and save, or call clusterstate.actions.objects.update"
                )
        if row.edit is None and not changed:
            return

        def wanted(current: Manifest) -> Manifest:
            new = current if row.edit is None else copy.deepcopy(row.edit)
            for name in changed:
                edits[name](new, getattr(row, name))
            return new

        def again(current: Manifest) -> Manifest:
            version = current["metadata"]["resourceVersion"]
            new = wanted(current)
            new["metadata"]["resourceVersion"] = version  # the version after the first change
            return new

        name, namespace = before.name, getattr(before, "namespace", "")
        objects.update(kind, namespace, name, wanted, now=_now())
        says_status = row.edit is not None and _STATUS in row.edit
        if _STATUS in kind.subresources and (says_status or set(_AMOUNTS) & set(changed)):
            objects.update(kind, namespace, name, again, now=_now(), subresource=_STATUS)

    def delete(self, row: Any) -> None:
        """Delete the object of a row, or mark it; another object of its name is not touched.

        Raises:
            NotFound: it is gone. Forbidden: it may not be deleted.
        """
        kind = _kind_of(row)
        options = DeleteOptions(uid=str(row.uid))
        objects.delete(kind, getattr(row, "namespace", ""), row.name, options, now=_now())

    def manifest(self, row: Any) -> Manifest:
        """Return the stored object of a row. Queries once."""
        return get_manifest(_kind_of(row), getattr(row, "namespace", ""), row.name)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # an edge: somebody calls a method of Django's


def _kind_of(row: Any) -> Kind:
    code = getattr(row, "kind", None)
    if code is None:
        model = row._meta.concrete_model or type(row)
        return KINDS[model.__name__]
    if code not in _OF_CODES:
        raise NotByRow(f"{type(row).__name__}.kind: no kind has the code {code}")
    return _OF_CODES[code]


def _namespace_of(row: Any, manifest: Manifest) -> str:
    namespace = getattr(row, "namespace", "") or ""
    return namespace or (manifest.get("metadata") or {}).get("namespace") or ""


def _composed(row: Any, kind: Kind) -> Manifest:
    """Return the manifest that the columns of a new row describe."""
    compose = _COMPOSED.get(kind.name)
    if compose is None:
        raise NotByRow(
            f"a {kind.name} cannot be made from columns: give the whole object, as in"
            f" {type(row).__name__}.objects.create(manifest={{...}})"
        )
    metadata: Manifest = {"name": row.name}
    if row.labels:
        metadata["labels"] = row.labels
    return {"metadata": metadata, **compose(row)}


def _node(row: Any) -> Manifest:
    manifest: Manifest = {"spec": {"unschedulable": True} if row.unschedulable else {}}
    for name in _AMOUNTS:
        _set_amount(name)(manifest, getattr(row, name))
    return manifest


def _runtime_class(row: Any) -> Manifest:
    fields = {name: getattr(row, name) for name in ("handler", "scheduling", "overhead")}
    return {name: value for name, value in fields.items() if value is not None}


_COMPOSED: Final[dict[str, Callable[[Any], Manifest]]] = {
    "Namespace": lambda row: {},
    "Node": _node,
    "PriorityClass": lambda row: {"value": row.value, "globalDefault": row.global_default},
    "RuntimeClass": _runtime_class,
}
Edit = Callable[[Manifest, Any], None]


def _set(*path: str) -> Edit:
    """Return a function that sets a member of a manifest; ``None`` removes the member."""

    def edit(manifest: Manifest, value: Any) -> None:
        for step in path[:-1]:
            manifest = manifest.setdefault(step, {})
        if value is None:
            manifest.pop(path[-1], None)
        else:
            manifest[path[-1]] = value

    return edit


_WRITTEN: Final[dict[str, Callable[[Any], dict[str, str]]]] = {
    "cpu_milli": lambda milli: {"cpu": f"{milli}m"},
    "memory_bytes": lambda size: {"memory": str(size)},
    "ephemeral_bytes": lambda size: {"ephemeral-storage": str(size)},
    "pods": lambda count: {"pods": str(count)},
    "extended": lambda amounts: {name: str(amount) for name, amount in amounts.items()},
}


def _set_amount(name: str) -> Edit:
    def edit(manifest: Manifest, value: Any) -> None:
        status = manifest.setdefault("status", {})
        for list_ in ("capacity", "allocatable"):
            amounts = status.setdefault(list_, {})
            if name == "extended":  # omitted amounts are removed
                own = {"cpu", "memory", "ephemeral-storage", "pods"}
                status[list_] = amounts = {key: amounts[key] for key in amounts if key in own}
            amounts.update(_WRITTEN[name](value))

    return edit


_EDITS: Final[dict[str, dict[str, Edit]]] = {
    "*": {"labels": _set("metadata", "labels")},
    "Node": {
        "unschedulable": _set("spec", "unschedulable"),
        **{name: _set_amount(name) for name in _AMOUNTS},
    },
    "PriorityClass": {"global_default": _set("globalDefault")},
    "RuntimeClass": {name: _set(name) for name in ("handler", "scheduling", "overhead")},
}
"""Columns by which objects may be changed, of all kinds and of each."""
