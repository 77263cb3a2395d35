"""Columns that all stored objects have."""

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from clusterstate.models.documents import Document
from clusterstate.models.rows import ObjectRow


def name_field(*, default: str | None = None) -> "models.TextField[str, str]":
    """Return a text field ordered by code point, as Python and etcd do, whatever the locale."""
    if default is None:
        return models.TextField(db_collation="C")
    return models.TextField(default=default, db_collation="C")


class StoredObject(ObjectRow):
    """Identity, order and current version of an object of any kind.

    ``revision`` is the resourceVersion: the revision of the change that made this version.
    ``labels`` are the manifest's, for selectors. ``deletion_at`` is ``deletionTimestamp``.
    """

    uid = models.UUIDField()
    name = name_field()
    document = models.ForeignKey(Document, models.DO_NOTHING, db_constraint=False, db_index=False)
    revision = models.BigIntegerField()
    labels = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    deletion_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class ClusterObject(StoredObject):
    """An object without a namespace."""

    class Meta(StoredObject.Meta):
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["name"], name="%(class)s_name_unique"),
            models.CheckConstraint(
                condition=models.Q(revision__gt=0), name="%(class)s_revision_positive"
            ),
        ]
        indexes = [GinIndex(fields=["labels"], name="%(class)s_labels")]


class NamespacedObject(StoredObject):
    """An object in a namespace, whose name has no foreign key: its content is deleted first."""

    namespace = name_field()

    class Meta(StoredObject.Meta):
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="%(class)s_name_unique"),
            models.CheckConstraint(
                condition=models.Q(revision__gt=0), name="%(class)s_revision_positive"
            ),
        ]
        indexes = [GinIndex(fields=["labels"], name="%(class)s_labels")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
