"""Nodes and their taints."""

from typing import Final

from django.db import models

from clusterstate.models.base import ClusterObject


class Node(ClusterObject):
    """A node.

    ``placement_revision`` is the last revision at which something other than the scheduler changed
    what fits here: the node's labels, taints or resources, or a pod on it. A bind that was decided
    on an older snapshot is refused (`actions.pods.bind`). The columns from ``cpu_milli`` on are
    ``status.allocatable``: milli-CPU, bytes, pods, and whole units of extended resources by name.
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


_PART: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class Taint(models.Model):
    """One taint of a node; a taint's identity is its key and effect (R112).

    These rows are authoritative. A transaction that writes some in any way (SQL, this model)
    changes the node: at its commit the database composes the node's taints, in the order of
    ``position``, into a new version of its document, with a revision and an entry in the change
    log. So reads, watches, the scheduler and the eviction timers see the same taints, and earlier
    versions keep those of their time. An action that writes a node's document writes the rows with
    it; then there is nothing to compose.

    Rows written by hand may leave out ``position`` (the taint comes last) and ``added_at``, which
    is in whole seconds and set for NoExecute, whose countdowns begin there (R123).
    """

    node = models.ForeignKey(Node, models.CASCADE, db_index=False, related_name="taints")
    position = models.SmallIntegerField()
    key = models.TextField()
    value = models.TextField(default="", db_default="")
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
            models.CheckConstraint(
                condition=models.Q(key__regex=f"^({_PREFIX}/)?{_PART}$"), name="taint_key_valid"
            ),
            models.CheckConstraint(
                condition=models.Q(value__regex=f"^({_PART})?$"), name="taint_value_valid"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"
