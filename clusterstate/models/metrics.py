"""Totals of counters and histograms over all processes, and gauges of each live process."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class MetricTotal(models.Model):
    """One series of a counter or histogram. Processes add to it; it is never reset.

    ``labels`` is as in the exposition format, without braces. ``figures`` is as in
    ``clusterstate.telemetry.metrics.families.SeriesCounts``.
    """

    pk = models.CompositePrimaryKey("name", "labels")
    name = models.TextField(db_collation="C")
    labels = models.TextField(db_collation="C")
    figures = ArrayField(models.FloatField())

    class Meta:
        db_table = "metric_total"

    def __str__(self) -> str:
        return f"{self.name}{{{self.labels}}}"


class ProcessMetric(models.Model):
    """The gauges of one process, as JSON: name, labels and value of each.

    ``holder`` is the host and the pid.
    """

    holder = models.TextField(primary_key=True, db_collation="C")
    at = models.DateTimeField(db_index=True)
    gauges = models.TextField()

    class Meta:
        db_table = "process_metric"

    def __str__(self) -> str:
        return self.holder
