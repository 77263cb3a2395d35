"""Canaries: another scheduler configuration beside the one in force."""

from django.db import models


class Canary(models.Model):
    """A configuration on trial, and the state of the trial.

    ``document`` is a ``KubeSchedulerConfiguration`` as JSON text. While it is ``Observing`` no pod
    is scheduled by it. ``Switched``: it is in force as ``revision``, ``former`` was in force before
    (0: the default), and faults bring that back until ``guard_until``. ``Kept``: that time passed
    without one. ``Returned``: ``former`` is in force again, ``message`` says why. ``Superseded``:
    somebody stored another configuration in between.
    """

    name = models.TextField(unique=True, db_collation="C")
    document = models.TextField()
    state = models.TextField(default="Observing")
    guard_seconds = models.IntegerField()
    most_failures = models.IntegerField()
    slow_seconds = models.FloatField()
    former = models.BigIntegerField(null=True)
    revision = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    created_by = models.TextField(default="")
    switched_at = models.DateTimeField(null=True)
    switched_by = models.TextField(default="")
    guard_until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    message = models.TextField(default="")

    class Meta:
        db_table = "canary"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    state__in=[
                        "Observing", "Switched", "Kept", "Returned", "Superseded", "Cancelled",
                    ]
                ),
                name="canary_state_known",
            ),
        ]  # fmt: skip
        indexes = [
            models.Index(
                fields=["id"], condition=models.Q(state="Switched"), name="canary_switched"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"
