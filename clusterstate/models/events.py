"""Events: typed narrow rows, composed to v1 Events when they are read."""

from django.db import models

from clusterstate.models.base import name_field
from clusterstate.models.documents import Document
from clusterstate.models.rows import ObjectRow


class Event(ObjectRow):
    """An event of an object; repetitions are counted in the same row.

    ``fingerprint`` hashes involved object, reason, type and component; an event with the same one
    adds to ``count``. Events that a client created have a ``document`` and no fingerprint; the
    service's own have none and are composed from the columns.
    """

    uid = models.UUIDField()
    namespace = name_field()
    name = name_field()
    revision = models.BigIntegerField()
    first_revision = models.BigIntegerField()
    fingerprint = models.BigIntegerField(null=True)
    document = models.ForeignKey(
        Document, models.DO_NOTHING, null=True, db_constraint=False, db_index=False
    )
    involved_kind = models.TextField()
    involved_api_version = models.TextField(default="v1")
    involved_namespace = name_field(default="")
    involved_name = name_field(default="")
    involved_uid = models.TextField(default="")
    involved_resource_version = models.TextField(default="")
    involved_field_path = models.TextField(default="")
    reason = models.TextField(default="")
    type = models.TextField(default="Normal")
    message = models.TextField(default="")
    component = models.TextField(default="")
    count = models.IntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "event"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="event_name_unique"),
            models.UniqueConstraint(fields=["fingerprint"], name="event_fingerprint_unique"),
        ]
        indexes = [
            models.Index(fields=["involved_name"], name="event_involved_name"),
            models.Index(fields=["last_at"], name="event_last_at"),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.involved_kind} {self.involved_namespace}/{self.involved_name}"
