"""Webhooks: receivers of events over HTTP, their progress, and their last answer."""

from django.db import models

from clusterstate.models.base import name_field


class Webhook(models.Model):
    """A subscription (`clusterstate.actions.webhooks`).

    ``spec`` is the manifest's, without ``secret``, which signs deliveries. Everything up to the
    revision ``cursor`` was delivered. After ``failures`` failed tries in a row, the next one is at
    ``next_at``. ``delivered`` and ``refused`` count events: accepted, and refused for good by the
    receiver. ``lost`` counts how often the log was trimmed before delivery; the number of events
    lost is not known.
    """

    name = name_field()
    uid = models.UUIDField()
    created_at = models.DateTimeField()
    version = models.BigIntegerField(default=1)
    spec = models.JSONField()
    secret = models.TextField()
    cursor = models.BigIntegerField()
    failures = models.IntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    moved_at = models.DateTimeField()
    delivered = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)

    class Meta:
        db_table = "webhook"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["name"], name="webhook_name_unique")]

    def __str__(self) -> str:
        return self.name


class WebhookDelivery(models.Model):
    """One try to deliver events: the first and the last event, and the receiver's answer.

    ``outcome`` is ``delivered``, ``failed`` (it is tried again) or ``refused`` (it is not).
    ``code`` is the HTTP status, 0 if there was no answer; then ``error`` says why.
    """

    webhook_id = models.BigIntegerField()
    at = models.DateTimeField()
    first_event = models.TextField()
    last_event = models.TextField()
    events = models.IntegerField()
    attempt = models.IntegerField()
    outcome = models.TextField()
    code = models.IntegerField()
    error = models.TextField()
    milliseconds = models.IntegerField()

    class Meta:
        db_table = "webhook_delivery"
        default_permissions = ()
        indexes = [models.Index(fields=["webhook_id", "-id"], name="webhook_delivery_webhook")]

    def __str__(self) -> str:
        return f"{self.first_event}: {self.outcome}"
