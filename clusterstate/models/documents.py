"""Immutable versions of manifests, and the list of those that are no longer current."""

from django.db import models

from clusterstate.models.rows import ReadRow


class Document(ReadRow):
    """One version of one object: canonical JSON with slots (`objects.values.document`)."""

    text = models.TextField()

    class Meta:
        db_table = "document"

    def __str__(self) -> str:
        return f"document {self.pk}"


class SupersededDocument(models.Model):
    """A version that the change with this ``revision`` replaced or deleted.

    Once the change log is trimmed beyond that revision, nothing refers to the document any more.
    """

    document = models.OneToOneField(
        Document, models.DO_NOTHING, primary_key=True, db_constraint=False
    )
    revision = models.BigIntegerField(db_index=True)

    class Meta:
        db_table = "superseded_document"

    def __str__(self) -> str:
        return f"document {self.document_id} until {self.revision}"
