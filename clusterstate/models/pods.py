"""Pods, their scheduling classes, and the queue of pending pods."""

from django.contrib.postgres.fields import ArrayField, DateTimeRangeField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from clusterstate.models.base import name_field
from clusterstate.models.documents import Document
from clusterstate.models.rows import ObjectRow, ReadRow


class SchedulingClass(ReadRow):
    """Everything in a pod that influences scheduling, once for all pods that share it.

    ``spec`` is a reduced but valid Pod manifest (`clusterstate.objects.rules.scheduling_class`);
    ``digest`` is its hash. The other columns are taken from ``spec`` so that SQL can use them: the
    effective requests in milli-CPU and bytes, the namespace and the labels of the pods. Rows are
    never updated, so a process may cache ids for ever.
    """

    digest = models.BinaryField()
    spec = models.TextField()
    namespace = name_field()
    labels = models.JSONField()
    cpu_milli = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    ephemeral_bytes = models.BigIntegerField()
    extended = models.JSONField(default=dict)

    class Meta:
        db_table = "scheduling_class"
        constraints = [
            models.UniqueConstraint(fields=["digest"], name="scheduling_class_digest_unique"),
        ]
        indexes = [GinIndex(fields=["labels"], name="scheduling_class_labels")]

    def __str__(self) -> str:
        return f"scheduling class {self.pk}"


class Pod(ObjectRow):
    """A pod: a narrow row, since binding it rewrites the row and nothing else.

    Labels are those of the scheduling class. ``node_name`` is empty while unbound; it may name a
    node that does not exist (spec.nodeName by hand, or the node was deleted since).
    ``scheduled_at`` and ``unschedulable`` are the PodScheduled condition: the time since which it
    is True; or the JSON text of a False one, or of a True one with more fields
    (``document.Overlay``). ``bound_at`` is the time of the binding, which no agent reports;
    ``started_at`` is ``status.startTime``, by which preemption compares pods. ``arrival_revision``
    is the revision at which a client, not the scheduler, put the pod on its node, where it is
    admitted once. ``eviction``: since when a NoExecute taint evicts the pod, and by when it has to
    end. These columns and ``node_name`` fill the document's slots.

    No index has ``deletion_at`` or ``phase``: a row whose indexed columns stay needs no new entry
    in any index (measured: evictions cost half). ``TerminatingPod`` finds terminating pods.
    """

    uid = models.UUIDField()
    namespace = name_field()
    name = name_field()
    scheduling_class = models.ForeignKey(
        SchedulingClass, models.DO_NOTHING, db_column="class_id", db_constraint=False,
        db_index=False,
    )  # fmt: skip
    document = models.ForeignKey(Document, models.DO_NOTHING, db_constraint=False, db_index=False)
    revision = models.BigIntegerField()
    node_name = name_field(default="")
    phase = models.TextField(default="Pending")
    priority = models.IntegerField(default=0)
    scheduler_name = models.TextField()
    scheduled_at = models.DateTimeField(null=True)
    bound_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    arrival_revision = models.BigIntegerField(null=True)
    unschedulable = models.TextField(null=True)  # noqa: DJ001 - absent is not the empty text
    nominated_node_name = models.TextField(default="")
    created_at = models.DateTimeField()
    deletion_at = models.DateTimeField(null=True)
    eviction = DateTimeRangeField(null=True)

    class Meta:
        db_table = "pod"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="pod_name_unique"),
            models.CheckConstraint(
                condition=models.Q(revision__gt=0), name="pod_revision_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    phase__in=["Pending", "Running", "Succeeded", "Failed", "Unknown"]
                ),
                name="pod_phase_known",
            ),
        ]
        indexes = [
            models.Index(
                fields=["node_name"], condition=~models.Q(node_name=""), name="pod_node_name"
            ),
            models.Index(fields=["scheduling_class"], name="pod_scheduling_class"),
            models.Index(
                fields=["nominated_node_name"],
                condition=~models.Q(nominated_node_name=""),
                name="pod_nominated_node_name",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PendingPod(models.Model):
    """An entry of the queue; exactly one row for each unbound, unfinished pod.

    ``stage``: ``active`` may be tried now; ``backoff`` from ``not_before`` on; ``unschedulable``
    when an event may help; ``gated`` when its gates are gone; ``inflight`` is reserved and waits
    for Permit or PreBind. ``rejected_by`` names the plugins that rejected it last,
    ``refused_revision`` is the revision up to which that decision had read the log, 0 if unknown,
    and ``refused_under`` its configuration. ``early``: the last so many attempts began before the
    backoff was over. ``since``: when the pod was created, or its last gate removed.
    """

    pod = models.OneToOneField(Pod, models.DO_NOTHING, primary_key=True, db_constraint=False)
    stage = models.TextField(default="active")
    attempts = models.IntegerField(default=0)
    early = models.IntegerField(default=0, db_default=0)
    not_before = models.DateTimeField(null=True)
    since = models.DateTimeField()
    rejected_by = ArrayField(models.TextField(), default=list)
    message = models.TextField(default="")
    refused_revision = models.BigIntegerField(default=0, db_default=0)
    refused_under = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "pending_pod"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    stage__in=["active", "backoff", "unschedulable", "gated", "inflight"]
                ),
                name="pending_pod_stage_known",
            ),
            models.CheckConstraint(
                condition=models.Q(attempts__gte=0), name="pending_pod_attempts_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"pod {self.pod_id}: {self.stage}"


class TerminatingPod(models.Model):
    """A pod with a deletion time; its index finds the pods whose deletion is due."""

    pod = models.OneToOneField(Pod, models.DO_NOTHING, primary_key=True, db_constraint=False)
    deletion_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "terminating_pod"

    def __str__(self) -> str:
        return f"pod {self.pod_id} until {self.deletion_at:%Y-%m-%dT%H:%M:%SZ}"


class DeferredResize(models.Model):
    """A pod that this service resizes once its node, which has no agent, has room for it."""

    pod = models.OneToOneField(Pod, models.DO_NOTHING, primary_key=True, db_constraint=False)
    since = models.DateTimeField()

    class Meta:
        db_table = "deferred_resize"

    def __str__(self) -> str:
        return f"pod {self.pod_id} since {self.since:%Y-%m-%dT%H:%M:%SZ}"
