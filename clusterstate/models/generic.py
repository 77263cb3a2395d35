"""The table of all kinds whose objects are stored as documents, without columns of their own."""

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from clusterstate.models.base import StoredObject


class GenericObject(StoredObject):
    """An object of a kind without a table of its own; ``kind`` is its code in the registry.

    ``namespace`` is empty for kinds without.
    """

    kind = models.SmallIntegerField()
    namespace = models.TextField(default="", db_default="", db_collation="C")

    class Meta:
        db_table = "generic_object"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "namespace", "name"], name="generic_object_name_unique"
            ),
            models.CheckConstraint(
                condition=models.Q(revision__gt=0), name="generic_object_revision_positive"
            ),
        ]
        indexes = [GinIndex(fields=["labels"], name="generic_object_labels")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
