"""Rows of objects: Django's methods save and delete them through the actions.

An object is its document. Its row has the columns that queries need, and is written with the
document, a revision and an entry in the change log. No reader would see a row that Django wrote by
itself. So ``save``, ``delete``, ``create``, ``update`` and their like call the actions, which admit
the object as if it had come over HTTP, or raise `NotByRow` with a sentence that says how to make
the change. `clusterstate.actions.model_rows` does so; the models do not import the actions.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from django.db import models, transaction


class NotByRow(TypeError):
    """A change that cannot be made by saving a row; the message says how to make it."""


class Writes(Protocol):
    """The protocol by which rows are written as objects."""

    def save(self, row: "ObjectRow") -> None:
        """Create or change the object of a row, and update the row from the object."""

    def delete(self, row: "ObjectRow") -> None:
        """Delete the object of a row, or start its deletion."""

    def manifest(self, row: "ObjectRow") -> dict[str, Any]:
        """Return the stored object of a row."""


_writes: list[Writes] = []


def written_by(writes: Writes) -> None:
    """Set the implementation of ``Writes``; called once, when Django is set up."""
    _writes[:] = [writes]


class ObjectRows(models.QuerySet[Any]):
    """Rows of objects; every change of several rows writes their objects one by one."""

    def update(self, **values: Any) -> int:
        """Set columns of all these rows, in one transaction; return the number of rows.

        Raises:
            NotByRow: a value is an expression, or the column is not one that may be changed.
        """
        if self.model.composed_columns and values.keys() <= self.model.composed_columns:
            return super().update(**values)  # the database composes these into the documents
        if any(hasattr(value, "resolve_expression") for value in values.values()):
            raise NotByRow(
                f"{self.model.__name__}: an object is changed to values, not by expressions of SQL"
            )
        with transaction.atomic():
            rows = list(self)
            for row in rows:
                for name, value in values.items():
                    setattr(row, name, value)
                row.save()
        return len(rows)

    update.alters_data = True  # type: ignore[attr-defined]  # as Django marks it

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the objects of all rows, or start to, in one transaction; return their number."""
        with transaction.atomic():
            rows = list(self)
            for row in rows:
                row.delete()
        return len(rows), {self.model._meta.label: len(rows)}

    delete.alters_data = True  # type: ignore[attr-defined]  # as above
    delete.queryset_only = True  # type: ignore[attr-defined]  # as above

    def bulk_create(self, objs: Iterable[Any], *args: Any, **options: Any) -> list[Any]:
        """Create the objects of all rows, or none.

        Raises:
            NotByRow: with an option for conflicts.
        """
        if args or any(options.get(name) for name in ("ignore_conflicts", "update_conflicts")):
            raise NotByRow(f"{self.model.__name__}: objects are created all or none, at once")
        rows = list(objs)
        with transaction.atomic():
            for row in rows:
                row.save(force_insert=True)
        return rows

    def bulk_update(self, objs: Iterable[Any], fields: Iterable[str], *_: Any, **__: Any) -> int:
        """Change the objects of all rows, in one transaction; return their number."""
        rows = list(objs)
        with transaction.atomic():
            for row in rows:
                row.save(update_fields=fields)
        return len(rows)


class ObjectRow(models.Model):
    """A row that stands for an object.

    ``manifest`` is the stored object; if it is assigned, ``save`` writes the assigned manifest.
    """

    objects = ObjectRows.as_manager()

    composed_columns: ClassVar[frozenset[str]] = frozenset()
    """Columns that may be written by themselves: the database composes them into the document."""
    edit: dict[str, Any] | None = None

    class Meta:
        abstract = True

    def save(self, *_: Any, **__: Any) -> None:
        """Create the object, or change it as the row says, as a request over HTTP would.

        Raises:
            NotByRow: a changed column cannot be written by a row alone.
            StatusError: admission refused the object.
        """
        self._writer().save(self)

    save.alters_data = True  # type: ignore[attr-defined]  # as Django marks it

    def delete(self, *_: Any, **__: Any) -> tuple[int, dict[str, int]]:
        """Delete the object, or start its deletion, as a request over HTTP would."""
        self._writer().delete(self)
        return 1, {self._meta.label: 1}

    delete.alters_data = True  # type: ignore[attr-defined]  # as above

    @property
    def manifest(self) -> dict[str, Any]:
        """The stored manifest of the object, or the one that was assigned. May query."""
        if self.edit is not None:
            return self.edit
        return self._writer().manifest(self)

    @manifest.setter
    def manifest(self, value: dict[str, Any]) -> None:
        self.edit = value

    def _writer(self) -> Writes:
        if not _writes:
            raise NotByRow(_ALONE.format(type(self).__name__))
        return _writes[0]


_ALONE = (
    "the row of a {} is not written alone: create or change the object over the API, or by"
    " clusterstate.actions.objects"
)


class _NoRows(models.QuerySet[Any]):
    """Read-only rows: to update, delete or create them raises ``NotByRow``."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotByRow(_ALONE.format(self.model.__name__))

    update = delete = bulk_create = bulk_update = _refuse


class ReadRow(models.Model):
    """A read-only row: part of an object, and written only when the object is."""

    objects = _NoRows.as_manager()

    class Meta:
        abstract = True

    def delete(self, *_: Any, **__: Any) -> tuple[int, dict[str, int]]:
        """Refuse to delete the row.

        Raises:
            NotByRow: always.
        """
        raise NotByRow(_ALONE.format(type(self).__name__))


def refuse_alone(sender: type[models.Model], **_: Any) -> None:
    """Refuse to write a row by itself, as ``loaddata`` would: a receiver of ``pre_save``.

    Raises:
        NotByRow: the row stands for an object, or is part of one.
    """
    if issubclass(sender, ObjectRow | ReadRow):
        raise NotByRow(_ALONE.format(sender.__name__))


__all__ = ["NotByRow", "ObjectRow", "ObjectRows", "ReadRow", "Writes", "refuse_alone", "written_by"]
