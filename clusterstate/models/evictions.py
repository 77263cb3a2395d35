"""Eviction timers, the controllers' cursors in the log, and the last heartbeats of agents."""

from django.db import models

from clusterstate.models.base import name_field
from clusterstate.models.pods import Pod


class EvictionTimer(models.Model):
    """A pod that must leave its node at ``due_at``; at most one row for each pod and cause.

    ``cause`` is ``taint`` (a NoExecute taint, named by key and effect, that the pod tolerates for
    ``seconds`` from ``started_at``) or ``requiredDuringExecution`` (node labels no longer match).
    ``grace_seconds`` is the pod's ``terminationGracePeriodSeconds``; NULL: read it from the pod.
    ``blocked_by`` names the budget or rate limit that delays the eviction. ``landing`` is the node
    where the pod would go (``status``, ``nodeName``, ``message``), computed before an eviction for
    node labels; NULL if not yet. A timer follows from other rows and can be computed again at any
    time, except the start and the postponements of ``requiredDuringExecution``.
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
    """A pod as a row of the admin's list of evictions, which shows only pods with a timer."""

    class Meta:
        proxy = True
        default_permissions = ()


class ControllerCursor(models.Model):
    """The revision up to which a controller has processed the log, and its state between passes.

    The controller writes it after its other writes, in a transaction of its own. After a crash
    between the two it does the same work again, which must do no harm.
    """

    name = models.TextField(primary_key=True)
    revision = models.BigIntegerField(default=0)
    state = models.JSONField(default=dict)

    class Meta:
        db_table = "controller_cursor"

    def __str__(self) -> str:
        return f"{self.name} at {self.revision}"


class NodeHeartbeat(models.Model):
    """When a node's agent last sent a heartbeat, on this service's clock; NULL if never.

    ``sign`` is the content of the last one (the lease's renew time and the status' heartbeat
    times). Only a different sign counts as a new heartbeat, so an agent whose clock is wrong counts
    as alive, and a heartbeat time in a manifest written by hand does not.
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

    ``usage`` is as reported; ``outcome`` lists the pressures, their start times, and the pods that
    would be evicted next. If ``judged_at`` is before ``reported_at``, the report is not processed
    yet.
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
