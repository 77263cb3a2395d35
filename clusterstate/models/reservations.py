"""Pods that have a node and are not bound to it yet."""

from django.db import models

from clusterstate.models.base import name_field


class Reservation(models.Model):
    """A node reserved for a pod whose binding takes time; at most one row for each pod.

    ``step``: ``waiting`` for the Permit plugins in ``waits`` (name to RFC 3339 deadline, ``due_at``
    is the earliest; none left means allowed); ``binding`` while PreBind and Bind plugins run;
    ``ready`` when the scheduler may write the binding; ``bound`` while PostBind plugins run;
    ``informed`` after these, if they named pods for the scheduler to activate (in ``notes``);
    ``refused`` by ``plugin`` with the status ``code`` and ``message``, until the scheduler has
    taken it back. ``notes`` are the cycle's state, as far as JSON can express it. ``profile`` at
    ``profile_revision`` made the reservation and finishes it.
    """

    pod_id = models.BigIntegerField(primary_key=True)
    node_name = name_field()
    profile = models.TextField()
    profile_revision = models.BigIntegerField()
    step = models.TextField()
    since = models.DateTimeField()
    waits = models.JSONField(default=dict)
    due_at = models.DateTimeField(null=True)
    notes = models.JSONField(default=dict)
    plugin = models.TextField(default="")
    code = models.SmallIntegerField(default=0)
    message = models.TextField(default="")

    class Meta:
        db_table = "reservation"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    step__in=["waiting", "binding", "ready", "bound", "informed", "refused"]
                ),
                name="reservation_step_known",
            ),
        ]

    def __str__(self) -> str:
        return f"pod {self.pod_id} on {self.node_name}: {self.step}"
