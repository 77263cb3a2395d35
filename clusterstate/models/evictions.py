"""Eviction timers, the controllers' cursors in the log, and the last heartbeats of agents."""

from django.db import models

from clusterstate.models.base import name_field
from clusterstate.models.pods import Pod


class EvictionTimer(models.Model):
    """A pod that must leave its node at ``due_at``; at most one row for each pod and cause.

    ``cause`` is ``taint`` (a NoExecute taint, named by key and effect, that the pod tolerates for
    ``seconds`` from ``started_at``) or ``requiredDuringExecution`` (node labels no longer match).
    ``grace_seconds`` is how long the pod may take to end, as its spec has it; NULL: look there.
    ``blocked_by`` says why it did not leave when it should have: a budget, or the rate limit.
    ``landing`` is where the pod would go (``status``, ``nodeName``, ``message``), worked out before
    a pod leaves for node labels; NULL if not yet.
    A timer is a consequence of other rows and may be computed again at any time; the start and the
    postponements of ``requiredDuringExecution`` are its only own facts.
    """

    pk = models.CompositePrimaryKey("pod_id", "cause")
    pod_id = models.BigIntegerField()
    cause = models.TextField()
    node_name = name_field()
    taint_key = models.TextField(default="")
    taint_effect = models.TextField(default="")
    seconds = models.BigIntegerField(default=0)
    grace_seconds = models.BigIntegerField(null=True)
    started_at = models.DateTimeField()
    due_at = models.DateTimeField()
    blocked_by = models.TextField(default="")
    landing = models.JSONField(null=True)

    class Meta:
        db_table = "eviction_timer"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(cause__in=["taint", "requiredDuringExecution"]),
                name="eviction_timer_cause_known",
            ),
            models.CheckConstraint(
                condition=models.Q(due_at__gte=models.F("started_at")),
                name="eviction_timer_due_after_start",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at", "pod_id"], name="eviction_timer_due"),
            models.Index(fields=["node_name"], name="eviction_timer_node"),
            models.Index(
                fields=["due_at", "pod_id"],
                condition=models.Q(cause="requiredDuringExecution"),
                name="eviction_timer_execution",
            ),
        ]

    def __str__(self) -> str:
        return f"pod {self.pod_id} leaves {self.node_name} at {self.due_at:%Y-%m-%dT%H:%M:%SZ}"


class Eviction(Pod):
    """A pod as the list of evictions shows it; one without a timer is not shown."""

    class Meta:
        proxy = True
        default_permissions = ()


class ControllerCursor(models.Model):
    """Up to which revision a controller has acted on the log, and what it keeps between passes.

    Written after what the controller wrote, in a transaction of its own: after a crash between the
    two the controller does the same work again, which must do no harm.
    """

    name = models.TextField(primary_key=True)
    revision = models.BigIntegerField(default=0)
    state = models.JSONField(default=dict)

    class Meta:
        db_table = "controller_cursor"

    def __str__(self) -> str:
        return f"{self.name} at {self.revision}"


class NodeHeartbeat(models.Model):
    """When a node's agent was last heard of, on this service's clock; NULL if never.

    ``sign`` is what it said last (its lease's renewal and its status' heartbeats); only a sign
    that differs counts, so that an agent with a wrong clock lives, and a node that was described
    with a heartbeat by hand has none.
    """

    node_name = models.TextField(primary_key=True, db_collation="C")
    sign = models.TextField()
    heard_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "node_heartbeat"

    def __str__(self) -> str:
        return f"{self.node_name} heard of at {self.heard_at}"


class NodeUsage(models.Model):
    """The last usage report of a node's agent, and the pressure concluded from it (R135).

    ``usage`` is as reported; ``outcome`` lists pressures, since when, and who would go next.
    ``judged_at`` before ``reported_at`` means: not looked at yet.
    """

    node_name = models.TextField(primary_key=True, db_collation="C")
    usage = models.JSONField(default=dict)
    reported_at = models.DateTimeField()
    outcome = models.JSONField(default=dict)
    judged_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "node_usage"

    def __str__(self) -> str:
        return f"use of {self.node_name} at {self.reported_at:%Y-%m-%dT%H:%M:%SZ}"
