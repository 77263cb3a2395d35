"""The change log, and what belongs to it: small tables, and what is seen as one change."""

from django.contrib.postgres.fields import BigIntegerRangeField, DateTimeRangeField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import GistIndex
from django.db import models

from clusterstate.models.base import name_field


class Change(models.Model):
    """One change of one object, numbered by ``revision`` (see `clusterstate.change_log.changes`).

    ``kind`` and ``verb`` are the codes of `clusterstate.change_log.changes`. The columns without
    prefix are the object after the change (the last state, for a deletion), those with
    ``previous_`` before it: enough to send a watch event and to tell whether a selector began or
    ceased to match, and to list objects as of an earlier revision. ``previous_revision`` is null
    for an addition. The columns from ``class_id`` to ``nominated_node_name`` are set for pods only,
    the last one for pods that the scheduler makes room for, so that every follower knows the pod
    that the room is for. ``actor_id``: who made the change (`Actor`), ``cause`` why: the id of
    the request that asked for it, or the uid of the pod that the scheduler made room for
    (`objects.values.actor`). Where there is none, ``cause`` is null; both are null where a version
    of before wrote the change.
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

    For a group of pods that is bound or leaves: from its first revision to just before its last.
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

    ``used_at``: when a process last asked for the number.
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
    """One row: which history this is, and how far its revisions may be given out.

    Changes up to ``trimmed_revision`` are no longer kept. ``uid``, ``ceiling``, ``first_revision``
    and ``place`` are explained in `clusterstate.change_log.lineage`. ``mark`` is a watermark of a
    moment ago, which replicas read instead of the locks that they cannot see
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
    """Who bound pods last, and the last revision of that batch (`actions.pods.bind`).

    Row 1 is for all pods. While several schedulers work, row 2 is for those that are common, and
    row 3 keeps the last bind by a scheduler that was alone.
    """

    holder = models.TextField(default="")
    revision = models.BigIntegerField(default=0)

    class Meta:
        db_table = "binder"
        constraints = [
            models.CheckConstraint(condition=models.Q(pk__in=[1, 2, 3]), name="binder_three_rows")
        ]

    def __str__(self) -> str:
        return self.holder


class NodeBinder(models.Model):
    """Which scheduler bound pods to a node last, and the last revision (`actions.pods.bind`).

    Written only while several schedulers work; a trigger removes it with its node.
    """

    node_id = models.BigIntegerField(primary_key=True)
    holder = models.TextField()
    revision = models.BigIntegerField()

    class Meta:
        db_table = "node_binder"

    def __str__(self) -> str:
        return f"node {self.node_id}: {self.holder}"
