"""Kinds that say how pods are treated: namespaces, classes, budgets, limits."""

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
    """A RuntimeClass; the columns are the members of its manifest, ``None`` for one it lacks.

    At commit the database fills them from a new document, and composes a new version of the
    document when they were written by themselves, with a revision and an entry in the change log.
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
    """A change of what a namespace uses that the status of its quotas does not show yet.

    The database writes it when a pod ends, gets another scheduling class or is removed, and when
    any other object is, in a namespace with quotas; the next creation that charges these quotas, or
    the quota controller, counts it and deletes the row. So ending a pod never waits for a quota.
    The object counted for what ``before`` says and counts for what ``after`` says: documents, and
    of pods the class and whether they have ended; NULL where it was not there, or is not any more.
    ``kind`` is the kind's code; with 0, everything in the namespace has to be counted again.
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
