"""Bearer tokens of the REST API, and the keys that sign those of service accounts."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


class ApiToken(models.Model):
    """A token; only its SHA-256 is stored, so it is shown once, when it is made.

    ``user`` null: ``identity`` is the name of the token's user, such as ``system:node:n1``, for
    whom there is no log-in. ``groups``: the groups of its requests, besides
    ``system:authenticated``. ``expires_at`` null: does not expire.
    """

    digest = models.BinaryField(unique=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens", null=True, blank=True
    )
    identity = models.TextField(default="", db_default="", blank=True)
    name = models.TextField(default="")
    groups = ArrayField(models.TextField(), default=list)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "api_token"
        verbose_name = "API token"

    def __str__(self) -> str:
        return self.name or self.stands_for

    @property
    def stands_for(self) -> str:
        """The user name of requests with the token: the user's, or the identity."""
        return self.identity if self.user is None else self.user.get_username()


class SigningKey(models.Model):
    """A key that signs tokens of service accounts; the one with the highest number is used.

    Each token has the ``id``, so that tokens of earlier keys are recognised. ``private_key`` is
    PEM: with read access to this table one can sign tokens, as one can make some with write access
    to ``api_token``.
    """

    number = models.SmallIntegerField(primary_key=True)
    id = models.TextField(unique=True)
    private_key = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "signing_key"

    def __str__(self) -> str:
        return self.id
