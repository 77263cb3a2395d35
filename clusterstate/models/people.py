"""Second factors of people, beside Django's own table of users."""

from django.conf import settings
from django.db import models


class OneTimeCodes(models.Model):
    """A person's second factor: the secret of an app that computes codes, and recovery codes.

    ``secret`` is encrypted by a key made of the signing key (``actions.people.codes``).
    ``last_step`` is the step of 30 seconds whose code was used last; no code works twice.
    ``recovery`` has the SHA-256 of the unused recovery codes. ``failures`` counts wrong codes since
    the last right one, the last of them at ``failed_at``.
    """

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="codes",
        # An older version, which does not know this table, can still delete people.
        db_constraint=False,
    )  # fmt: skip
    secret = models.TextField()
    since = models.DateTimeField()
    last_step = models.BigIntegerField(default=0)
    recovery = models.JSONField(default=list)
    failures = models.IntegerField(default=0)
    failed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "one_time_codes"
        verbose_name = "one-time codes"
        verbose_name_plural = "one-time codes"

    def __str__(self) -> str:
        return str(self.person)
