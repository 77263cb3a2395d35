"""Nodes and their taints."""

from django.db import models

from clusterstate.models.base import ClusterObject


class Node(ClusterObject):
    """A node.

    ``placement_revision`` is the last revision at which something other than the scheduler changed
    what may be placed here: the node's own offer, or a pod placed by somebody else. A bind that was
    decided on an older snapshot is refused (`actions.pods.bind`).
    The columns from ``cpu_milli`` on are ``status.allocatable``: milli-CPU, bytes, pods, and whole
    units of extended resources by name.
    """

    placement_revision = models.BigIntegerField()
    unschedulable = models.BooleanField(default=False)
    cpu_milli = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    ephemeral_bytes = models.BigIntegerField(default=0)
    pods = models.BigIntegerField(default=0)
    extended = models.JSONField(default=dict)

    class Meta(ClusterObject.Meta):
        db_table = "node"


class Taint(models.Model):
    """One taint of a node; a taint's identity is its key and effect (R112)."""

    node = models.ForeignKey(Node, models.CASCADE, db_index=False, related_name="taints")
    position = models.SmallIntegerField()
    key = models.TextField()
    value = models.TextField(default="")
    effect = models.TextField()
    added_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "taint"
        ordering = ["node", "position"]
        constraints = [
            models.UniqueConstraint(fields=["node", "key", "effect"], name="taint_unique"),
            models.CheckConstraint(
                condition=models.Q(effect__in=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                name="taint_effect_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"
