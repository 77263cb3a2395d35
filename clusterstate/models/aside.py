"""Changes that a follower of the change log could not process."""

from django.db import models

from clusterstate.models.base import name_field


class SetAside(models.Model):
    """An object that a follower could not process and skips until the object changes.

    ``revision`` is the object's at the failure. When the object has another revision, or is
    deleted, the row has no effect; it is deleted later.
    """

    pk = models.CompositePrimaryKey("follower", "kind", "object_id")
    follower = models.TextField(db_collation="C")
    kind = models.TextField(db_collation="C")
    object_id = models.BigIntegerField()
    revision = models.BigIntegerField()
    namespace = name_field(default="")
    name = name_field()
    error = models.TextField()
    since = models.DateTimeField()

    class Meta:
        db_table = "set_aside"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} by {self.follower}"
