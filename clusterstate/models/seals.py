"""The chain of digests over decisions."""

from django.db import models


class DecisionSeal(models.Model):
    """A sequence of decisions and its digest (`clusterstate.actions.scheduler.seals`).

    It covers the ``decisions`` rows with ids after the previous seal, up to ``last_id``, made
    between ``first_at`` and ``last_at``. ``rows_digest`` is the digest of these rows, ``digest``
    that of the previous digest and this seal. ``id`` counts without gaps.

    A seal with ``dropped`` covers no decision: it lists decisions that were deleted for their age
    (`clusterstate.queries.scheduler.seals.DroppedDecisions`), and ``rows_digest`` is the digest of
    that text.
    """

    id = models.BigIntegerField(primary_key=True)
    last_id = models.BigIntegerField()
    decisions = models.IntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    rows_digest = models.BinaryField()
    digest = models.BinaryField()
    dropped = models.TextField(null=True)  # noqa: DJ001 - absent is not the empty text

    class Meta:
        db_table = "decision_seal"

    def __str__(self) -> str:
        return f"{self.decisions} decisions up to {self.last_id}"


class SealHead(models.Model):
    """One row: both ends of the chain of seals.

    Seals up to ``trimmed_id`` are deleted. ``trimmed_digest`` is the digest of the last of them,
    ``trimmed_decision`` the last decision under it; decisions since ``trimmed_at`` are stored.
    """

    last_id = models.BigIntegerField(default=0)
    sealed_decision = models.BigIntegerField(default=0)
    digest = models.BinaryField(default=b"")
    trimmed_id = models.BigIntegerField(default=0)
    trimmed_digest = models.BinaryField(default=b"")
    trimmed_decision = models.BigIntegerField(default=0)
    trimmed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "seal_head"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="seal_head_one_row")]

    def __str__(self) -> str:
        return f"up to {self.sealed_decision}"
