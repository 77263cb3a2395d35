"""The audit log: author, request, time and source of each request, and the answer."""

from django.db import models


class AuditLine(models.Model):
    """One line of the audit log (`clusterstate.actions.past.audit_log`).

    ``line`` is an Event of audit.k8s.io/v1 as JSON; the other columns repeat fields for searches.
    ``digest`` is the SHA-256 of the previous digest and the line, so that a changed or missing line
    is found. ``id`` counts without gaps.
    """

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    audit_id = models.UUIDField()
    username = models.TextField(db_collation="C")
    verb = models.TextField(db_collation="C")
    resource = models.TextField(db_collation="C")
    namespace = models.TextField(db_collation="C")
    name = models.TextField(db_collation="C")
    code = models.SmallIntegerField()
    line = models.TextField()
    digest = models.BinaryField()

    class Meta:
        db_table = "audit_line"
        verbose_name = "audit line"
        default_permissions = ("view",)
        indexes = [
            models.Index(fields=["username", "id"], name="audit_line_username"),
            models.Index(fields=["audit_id"], name="audit_line_audit_id"),
        ]

    def __str__(self) -> str:
        return f"{self.id}: {self.username} {self.verb} {self.resource}"


class AuditHead(models.Model):
    """One row: both ends of the audit log's chain.

    ``last_id`` and ``digest`` are those of the newest line. Lines up to ``trimmed_id`` are deleted;
    ``trimmed_digest`` is the digest of the last of them.
    """

    last_id = models.BigIntegerField(default=0)
    digest = models.BinaryField(default=b"")
    trimmed_id = models.BigIntegerField(default=0)
    trimmed_digest = models.BinaryField(default=b"")

    class Meta:
        db_table = "audit_head"
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="audit_head_one_row")]

    def __str__(self) -> str:
        return f"up to {self.last_id}"
