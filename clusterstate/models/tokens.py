"""Bearer tokens of the REST API."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


class ApiToken(models.Model):
    """A token; only its SHA-256 is stored, so it is shown once, when it is made.

    ``groups`` are those the request is authorised with, beside ``system:authenticated``.
    ``expires_at`` null: does not expire.
    """

    digest = models.BinaryField(unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.TextField(default="")
    groups = ArrayField(models.TextField(), default=list)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "api_token"

    def __str__(self) -> str:
        return self.name
