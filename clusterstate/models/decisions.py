"""Decisions of the scheduler, and the configurations by which it made them."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from clusterstate.models.base import name_field


class Decision(models.Model):
    """One decision about one pod (`clusterstate.actions.scheduler.decisions`).

    The table is partitioned by ``at``; its key there is (id, at). ``body`` has the ten best nodes
    with their scores and the rejections, ``table_digest`` refers to the full table of a pod that
    could not be placed; both are packed by `scheduling.engine.reference.record`. ``seed`` and
    ``draw`` (the decision's number under the seed) determine the random choice among equal nodes.
    ``start``: where in the node order the search began. ``profile_revision``: the stored
    configuration, 0 for the default one. A ``stale`` decision came too late to be bound: the
    scheduler counted its pod on the node until just before the decision with the number
    ``taken_back``. This is the ``number``-th decision of ``scheduler`` since its ``epoch``-th
    start; rows from before there were numbers have 0 in all three, and are ordered by their ids.
    """

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    pod_id = models.BigIntegerField()
    pod_uid = models.UUIDField()
    namespace = name_field()
    name = name_field()
    class_id = models.BigIntegerField()
    snapshot_revision = models.BigIntegerField()
    profile = models.TextField()
    profile_revision = models.BigIntegerField()
    seed = models.BigIntegerField()
    draw = models.BigIntegerField()
    start = models.IntegerField()
    outcome = models.TextField()
    node_name = name_field()
    total = models.BigIntegerField()
    margin = models.BigIntegerField(null=True)
    ties = models.IntegerField()
    node_count = models.IntegerField()
    evaluated = models.IntegerField()
    feasible = models.IntegerField()
    message = models.TextField()
    body = models.BinaryField()
    table_digest = models.BinaryField(null=True)
    scheduler = models.SmallIntegerField(db_default=0)
    epoch = models.BigIntegerField(db_default=0)
    number = models.BigIntegerField(db_default=0)
    taken_back = models.BigIntegerField(null=True)

    class Meta:
        db_table = "decision"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(outcome__in=["scheduled", "unschedulable", "error", "stale"]),
                name="decision_outcome_known",
            ),
        ]
        indexes = [
            models.Index(fields=["namespace", "name", "-id"], name="decision_pod"),
            BrinIndex(fields=["at"], pages_per_range=16, name="decision_at"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}: {self.outcome} {self.node_name}"


class DecisionTable(models.Model):
    """The first rejection of every node, packed; equal tables share one row. ``at``: last used."""

    digest = models.BinaryField(primary_key=True)
    at = models.DateTimeField(db_index=True)
    body = models.BinaryField()

    class Meta:
        db_table = "decision_table"

    def __str__(self) -> str:
        return bytes(self.digest).hex()


class Scheduler(models.Model):
    """A row for each scheduler by its number; ``epoch`` counts its starts.

    ``awake_until``: the end of its lease (`actions.scheduler.leases`), ``None`` if it has none,
    because it works alone or is of the previous version.
    """

    id = models.SmallIntegerField(primary_key=True)
    epoch = models.BigIntegerField(default=0)
    awake_until = models.DateTimeField(null=True)

    class Meta:
        db_table = "scheduler"

    def __str__(self) -> str:
        return f"scheduler {self.pk}, epoch {self.epoch}"


class SchedulerConfiguration(models.Model):
    """A version of the scheduler's configuration; the one with the highest revision is in force."""

    revision = models.BigAutoField(primary_key=True)
    document = models.TextField()
    at = models.DateTimeField()
    by = models.TextField(default="")

    class Meta:
        db_table = "scheduler_configuration"

    def __str__(self) -> str:
        return f"configuration {self.pk}"


class ConfigurationUse(models.Model):
    """One row: the configuration that the scheduler uses (`clusterstate.health.progress`)."""

    id = models.SmallIntegerField(primary_key=True)
    revision = models.BigIntegerField()
    wanted = models.BigIntegerField()
    problems = models.JSONField()
    is_usable = models.BooleanField()
    at = models.DateTimeField()

    class Meta:
        db_table = "configuration_use"

    def __str__(self) -> str:
        return f"configuration {self.revision} in use"


class DecisionCheck(models.Model):
    """A decision that was verified by deciding again (`scheduling.processes.decision_checks`).

    ``result`` is ``same``, ``differs`` or ``impossible``. ``details`` lists the differences, or
    says why the decision could not be made again.
    """

    decision_id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    namespace = name_field()
    name = name_field()
    result = models.TextField()
    details = models.JSONField()

    class Meta:
        db_table = "decision_check"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(result__in=["same", "differs", "impossible"]),
                name="decision_check_result_known",
            ),
        ]
        indexes = [models.Index(fields=["result", "at"], name="decision_check_result")]

    def __str__(self) -> str:
        return f"decision {self.pk}: {self.result}"
