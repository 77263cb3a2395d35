"""Kinds that decide how pods are treated: namespaces, classes, budgets, limits."""

from django.db import models

from clusterstate.models.base import ClusterObject, NamespacedObject, name_field


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
    """A RuntimeClass; the columns are the fields of its manifest, ``None`` for a missing one.

    At commit the database fills them from a new document. If only the columns were written, it
    composes a new version of the document, with a revision and an entry in the change log.
    """

    handler = models.TextField()
    scheduling = models.JSONField(null=True)
    overhead = models.JSONField(null=True)

    composed_columns = frozenset({"handler", "scheduling", "overhead"})

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


class UsageChange(models.Model):
    """A change of a namespace's usage that the status of its quotas does not show yet.

    In a namespace with quotas the database writes a row when a pod ends, gets another scheduling
    class or is removed, and when any other object is removed. The next creation that charges these
    quotas, or the quota controller, counts it and deletes the row. So ending a pod never waits for
    a quota. The object counted as ``before`` and counts as ``after``: documents and, of pods, the
    class and whether they have ended; NULL if the object did not exist, or is gone. ``kind`` is the
    kind's code; 0: everything in the namespace has to be counted again.
    """

    namespace = name_field()
    kind = models.SmallIntegerField()
    before_document_id = models.BigIntegerField(null=True)
    before_class_id = models.BigIntegerField(null=True)
    before_finished = models.BooleanField(default=False, db_default=False)
    after_document_id = models.BigIntegerField(null=True)
    after_class_id = models.BigIntegerField(null=True)
    after_finished = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "usage_change"
        indexes = [models.Index(fields=["namespace"], name="usage_change_namespace")]

    def __str__(self) -> str:
        return f"{self.namespace}: kind {self.kind}"
