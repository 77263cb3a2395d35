"""The change log, and its small tables: spans of atomic changes, actors, the history, bindings."""

from django.contrib.postgres.fields import ArrayField, BigIntegerRangeField, DateTimeRangeField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import GistIndex
from django.db import models

from clusterstate.models.base import name_field


class Change(models.Model):
    """One change of one object, numbered by ``revision`` (see `clusterstate.change_log.changes`).

    ``kind`` and ``verb`` are the codes of `clusterstate.change_log.changes`. The columns without
    prefix are the object after the change (the last state, for a deletion), those with
    ``previous_`` before it: enough to send a watch event, to find whether a selector began or
    ceased to match, and to list objects as of an earlier revision. ``previous_revision`` is null
    for an addition. The columns from ``class_id`` to ``nominated_node_name`` are set for pods only,
    the last one while the scheduler makes room for the pod there, so that every follower can keep
    that room for it. ``actor_id``: the author (`Actor`). ``cause``: the id of the request that led
    to the change, or the uid of the pod for which the scheduler made room (`objects.values.actor`),
    null without either. Both are null in changes of versions that did not store them.
    """

    revision = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    kind = models.SmallIntegerField()
    verb = models.SmallIntegerField()
    object_id = models.BigIntegerField()
    namespace = name_field(default="")
    name = name_field()
    document_id = models.BigIntegerField(null=True)
    previous_document_id = models.BigIntegerField(null=True)
    previous_revision = models.BigIntegerField(null=True)
    class_id = models.BigIntegerField(null=True)
    previous_class_id = models.BigIntegerField(null=True)
    node_name = models.TextField(null=True, db_collation="C")  # noqa: DJ001
    previous_node_name = models.TextField(null=True, db_collation="C")  # noqa: DJ001
    scheduled_at = models.DateTimeField(null=True)
    previous_scheduled_at = models.DateTimeField(null=True)
    unschedulable = models.TextField(null=True)  # noqa: DJ001 - absent is not the empty text
    previous_unschedulable = models.TextField(null=True)  # noqa: DJ001
    phase = models.TextField(null=True)  # noqa: DJ001
    previous_phase = models.TextField(null=True)  # noqa: DJ001
    deletion_at = models.DateTimeField(null=True)
    eviction = DateTimeRangeField(null=True)
    previous_eviction = DateTimeRangeField(null=True)
    nominated_node_name = models.TextField(null=True, db_collation="C")  # noqa: DJ001
    actor_id = models.IntegerField(null=True)
    cause = models.UUIDField(null=True)

    class Meta:
        db_table = "change"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(verb__in=[1, 2, 3]), name="change_verb_known"
            ),
        ]
        indexes = [
            # Partial: what comes and is bound, the most of all changes, pays for neither.
            models.Index(
                fields=["cause"],
                condition=models.Q(cause__isnull=False)
                & (models.Q(verb=3) | models.Q(deletion_at__isnull=False)),
                name="change_gone_for",
            ),
            models.Index(
                fields=["kind", "namespace", "name", "revision"],
                condition=models.Q(verb=3),
                name="change_gone",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.revision}: {self.namespace}/{self.name}"


class AtomicSpan(models.Model):
    """A range of revisions at which only a part of a transaction's changes is visible.

    For a group of pods that is bound or evicted: from its first revision to just before its last.
    Clients never get the state at a revision in the range (`clusterstate.change_log.changes`).
    """

    id = models.BigAutoField(primary_key=True)
    revisions = BigIntegerRangeField()

    class Meta:
        db_table = "atomic_span"
        indexes = [GistIndex(fields=["revisions"], name="atomic_span_revisions")]

    def __str__(self) -> str:
        return str(self.revisions)


class Actor(models.Model):
    """An author of changes: a user, a controller, a person (`clusterstate.change_log.actors`).

    ``used_at``: when a process last looked up the number.
    """

    id = models.AutoField(primary_key=True)
    name = models.TextField(db_collation="C")
    impersonator = models.TextField(db_collation="C", default="")
    used_at = models.DateTimeField()

    class Meta:
        db_table = "actor"
        constraints = [
            models.UniqueConstraint(fields=("name", "impersonator"), name="actor_name_unique"),
        ]

    def __str__(self) -> str:
        return self.name


class History(models.Model):
    """One row: the identity of this history, and the limit up to which revisions may be given out.

    Changes up to ``trimmed_revision`` are deleted. `clusterstate.change_log.lineage` explains
    ``uid``, ``ceiling``, ``first_revision`` and ``place``. ``mark`` is a recent watermark. Replicas
    read it, since they cannot see the locks from which a watermark is computed
    (`clusterstate.change_log.changes`).
    """

    trimmed_revision = models.BigIntegerField(default=0)
    uid = models.UUIDField(db_default=RandomUUID())
    ceiling = models.BigIntegerField(db_default=0)
    first_revision = models.BigIntegerField(db_default=0)
    place = models.TextField(db_default="")
    mark = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "history"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="history_one_row")]

    def __str__(self) -> str:
        return f"trimmed to {self.trimmed_revision}"


class Binder(models.Model):
    """The last scheduler that bound pods, and its batch's last revision (`actions.pods.bind`).

    Row 1 is for all pods. While several schedulers work, row 3 has the last bind by a scheduler
    that worked alone.
    """

    holder = models.TextField(default="")
    revision = models.BigIntegerField(default=0)

    class Meta:
        db_table = "binder"
        constraints = [
            models.CheckConstraint(condition=models.Q(pk__in=[1, 3]), name="binder_two_rows")
        ]

    def __str__(self) -> str:
        return self.holder


class NodeBinder(models.Model):
    """The last scheduler that bound pods to a node, written by schedulers of version 0.2 alone.

    A trigger removes it with its node.
    """

    node_id = models.BigIntegerField(primary_key=True)
    holder = models.TextField()
    revision = models.BigIntegerField()

    class Meta:
        db_table = "node_binder"

    def __str__(self) -> str:
        return f"node {self.node_id}: {self.holder}"


class BindBatch(models.Model):
    """A batch of bindings by one of several schedulers (`actions.pods.bind`).

    ``revision`` is its last one; ``nodes`` are the ids of its nodes, and ``counters`` the numbers
    of the rules that count its pods.
    """

    revision = models.BigIntegerField(primary_key=True)
    holder = models.TextField()
    nodes = ArrayField(models.BigIntegerField())
    counters = ArrayField(models.IntegerField())

    class Meta:
        db_table = "bind_batch"

    def __str__(self) -> str:
        return f"{self.holder} at {self.revision}"


class MovedSlot(models.Model):
    """A slot of pods that one of several schedulers took from another (`actions.scheduler.leases`).

    While that scheduler is not at work, the slot is whose it would be without the row.
    """

    slot = models.SmallIntegerField(primary_key=True)
    scheduler = models.SmallIntegerField()

    class Meta:
        db_table = "moved_slot"

    def __str__(self) -> str:
        return f"slot {self.slot}: {self.scheduler}"
