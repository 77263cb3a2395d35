"""Plans: the document, the prediction, and the progress of the operation."""

from django.db import models


class Plan(models.Model):
    """A plan, and the operation that carries it out once it is applied.

    ``document`` is the ``Plan`` as posted and ``outcome`` the prediction, both JSON text. ``steps``
    is a JSON list of the steps, in order, and ``progress`` has one character for each: ``.`` to do,
    ``d`` done, ``h`` held back for now, ``f`` failed, ``-`` dropped. A step and its character are
    written in one transaction, so after a crash it is known which steps are done. ``failures`` says
    by number why steps failed. ``retry_at``: when the steps held back are tried again.
    ``applied_by`` is the actor of every change that is made.
    """

    name = models.TextField(unique=True, db_collation="C")
    document = models.TextField()
    outcome = models.TextField()
    state = models.TextField(default="Planned")
    steps = models.TextField(default="[]")
    progress = models.TextField(default="")
    failures = models.JSONField(default=dict)
    message = models.TextField(default="")
    created_at = models.DateTimeField()
    created_by = models.TextField(default="")
    applied_at = models.DateTimeField(null=True)
    applied_by = models.TextField(default="")
    impersonator = models.TextField(default="")
    retry_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "plan"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    state__in=["Planned", "Running", "Paused", "Cancelled", "Done", "Failed"]
                ),
                name="plan_state_known",
            ),
        ]
        indexes = [
            models.Index(fields=["id"], condition=models.Q(state="Running"), name="plan_running"),
            models.Index(fields=["created_at"], name="plan_created_at"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"


class PlanUndo(models.Model):
    """The undo of one step of an operation, recorded when the step was done.

    ``changes``: a JSON list of entries of ``spec.changes``, the last first. Written in the step's
    transaction, and deleted with its plan.
    """

    plan_id = models.BigIntegerField()
    number = models.BigIntegerField()
    changes = models.TextField()

    class Meta:
        db_table = "plan_undo"
        constraints = [
            models.UniqueConstraint(fields=("plan_id", "number"), name="plan_undo_unique"),
        ]

    def __str__(self) -> str:
        return f"step {self.number}"
