"""The past: changes and the versions they ended, packed, and stored longer than the log."""

from django.db import models


class PastBlock(models.Model):
    """Changes of objects of one kind, packed (`clusterstate.change_log.blocks`).

    The table is partitioned by ``at``, when the block was written; its key there is (id, at).
    ``chunk`` is the last revision of the part of the log that was packed together. ``causes`` has
    four bytes of a hash for each pod for which the scheduler made room; null in rows of earlier
    versions.
    """

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    chunk = models.BigIntegerField()
    kind = models.SmallIntegerField()
    entries = models.IntegerField()
    first_from = models.BigIntegerField(null=True)
    first_revision = models.BigIntegerField()
    last_revision = models.BigIntegerField()
    first_key = models.TextField(db_collation="C")
    last_key = models.TextField(db_collation="C")
    marks = models.BinaryField()
    index = models.BinaryField()
    body = models.BinaryField()
    causes = models.BinaryField(null=True)

    class Meta:
        db_table = "past_block"

    def __str__(self) -> str:
        return f"{self.entries} changes up to {self.last_revision}"


class PastChunk(models.Model):
    """A part of the log that was packed: its last revision, and the times of its changes.

    ``first_at`` is the earliest time of a change in it. ``raw_bytes`` and ``stored_bytes`` are its
    sizes before and after packing.
    """

    revision = models.BigIntegerField(primary_key=True)
    first_at = models.DateTimeField()
    changes = models.IntegerField()
    raw_bytes = models.BigIntegerField()
    stored_bytes = models.BigIntegerField()
    moments = models.BinaryField()

    class Meta:
        db_table = "past_chunk"

    def __str__(self) -> str:
        return f"{self.changes} changes up to {self.revision}"


class PastHead(models.Model):
    """One row: the first revision of which the past is known, and the last that is packed.

    ``since_at`` is the time of ``since_revision``.
    """

    since_revision = models.BigIntegerField()
    since_at = models.DateTimeField()
    packed_revision = models.BigIntegerField()

    class Meta:
        db_table = "past_head"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="past_head_one_row")]

    def __str__(self) -> str:
        return f"from {self.since_revision} to {self.packed_revision}"
