"""Kinds that say how pods are treated: namespaces, classes, budgets, limits."""

from django.db import models

from clusterstate.models.base import ClusterObject, NamespacedObject


class Namespace(ClusterObject):
    """A namespace; ``phase`` Terminating refuses new content."""

    phase = models.TextField(default="Active")

    class Meta(ClusterObject.Meta):
        db_table = "namespace"
        constraints = [
            *ClusterObject.Meta.constraints,
            models.CheckConstraint(
                condition=models.Q(phase__in=["Active", "Terminating"]),
                name="namespace_phase_known",
            ),
        ]


class RuntimeClass(ClusterObject):
    """A RuntimeClass; the columns are the members of its manifest, ``None`` for one it lacks.

    At commit the database fills them from a new document, and composes a new version of the
    document when they were written by themselves, with a revision and an entry in the change log.
    """

    handler = models.TextField()
    scheduling = models.JSONField(null=True)
    overhead = models.JSONField(null=True)

    class Meta(ClusterObject.Meta):
        db_table = "runtime_class"


class PriorityClass(ClusterObject):
    """A PriorityClass; ``value`` never changes."""

    value = models.IntegerField()
    global_default = models.BooleanField(default=False)

    class Meta(ClusterObject.Meta):
        db_table = "priority_class"


class PodDisruptionBudget(NamespacedObject):
    """A PodDisruptionBudget."""

    class Meta(NamespacedObject.Meta):
        db_table = "pod_disruption_budget"


class LimitRange(NamespacedObject):
    """A LimitRange."""

    class Meta(NamespacedObject.Meta):
        db_table = "limit_range"


class ResourceQuota(NamespacedObject):
    """A ResourceQuota."""

    class Meta(NamespacedObject.Meta):
        db_table = "resource_quota"
