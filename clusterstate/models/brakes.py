"""Eviction brakes: limits on evictions, approvals of people, and the rows for counts and rates."""

from django.db import models

from clusterstate.models.base import name_field


class Brake(models.Model):
    """A zone, namespace or owner whose pods are not evicted until a person approves.

    ``leaving`` of its ``total`` pods are being evicted or due, more than ``limit_percent``. After
    an approval, its pods are evicted until the time ``until``.
    """

    scope = models.TextField()
    name = models.TextField(db_collation="C")
    state = models.TextField(default="Held")
    leaving = models.BigIntegerField()
    total = models.BigIntegerField()
    limit_percent = models.FloatField()
    created_at = models.DateTimeField()
    approved_by = models.TextField(default="")
    approved_at = models.DateTimeField(null=True)
    until = models.DateTimeField(null=True)

    class Meta:
        db_table = "brake"
        constraints = [
            models.UniqueConstraint(fields=("scope", "name"), name="brake_unique"),
            models.CheckConstraint(
                condition=models.Q(state__in=["Held", "Approved"]), name="brake_state_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}: {self.state}"


class BrakeApproval(models.Model):
    """A person's approval that pods of a zone, namespace or owner are evicted.

    The evictions name it as their cause in the change log, so the row outlives its brake.
    """

    scope = models.TextField()
    name = models.TextField(db_collation="C")
    leaving = models.BigIntegerField()
    total = models.BigIntegerField()
    limit_percent = models.FloatField()
    approved_by = models.TextField(default="")
    approved_at = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        db_table = "brake_approval"
        indexes = [models.Index(fields=["until"], name="brake_approval_until")]

    def __str__(self) -> str:
        return f"{self.scope} {self.name} until {self.until}"


class AskedEviction(models.Model):
    """A pod that a timer evicted, or for which an eviction was requested, granted or not.

    The brake counts it for a minute after that, also when the pod is gone. ``owner`` is the name
    that the brake of its controller would have, empty if it has none.
    """

    pod_uid = models.UUIDField(primary_key=True)
    at = models.DateTimeField()
    zone = models.TextField(default="", db_collation="C")
    namespace = name_field()
    owner = models.TextField(default="", db_collation="C")

    class Meta:
        db_table = "asked_eviction"
        indexes = [models.Index(fields=["at"], name="asked_eviction_at")]

    def __str__(self) -> str:
        return f"pod {self.pod_uid} at {self.at}"


class ZonePace(models.Model):
    """When a zone's token bucket of evictions was empty, if it has filled at its rate since."""

    zone = models.TextField(primary_key=True, db_collation="C")
    empty_at = models.DateTimeField()

    class Meta:
        db_table = "zone_pace"

    def __str__(self) -> str:
        return f"zone {self.zone} from {self.empty_at}"
