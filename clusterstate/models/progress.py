"""Progress of the loops without which the service does not work."""

from django.db import models


class LoopProgress(models.Model):
    """A loop's last sign of progress, by the database's clock; one row for each loop's name.

    ``at`` is updated while the loop works, so if it is seconds old, no process on any host does
    this work now. ``revision`` is up to where the loop has followed the log, if it does.
    ``backend_pid`` and ``backend_start`` identify the session that wrote the row: the session ends
    with its process, which shows that no process works sooner than the row's age does.
    """

    name = models.TextField(primary_key=True, db_collation="C")
    at = models.DateTimeField()
    revision = models.BigIntegerField(default=0)
    holder = models.TextField(default="")
    backend_pid = models.IntegerField(null=True)
    backend_start = models.DateTimeField(null=True)

    class Meta:
        db_table = "loop_progress"

    def __str__(self) -> str:
        return f"{self.name} at {self.revision}"


class LoopPatience(models.Model):
    """The factor by which a loop's time-out is extended, by the loop's name.

    A process that was ended while it worked writes it, and the next one reads it. The factor halves
    every minute from ``at`` on, by the database's clock.
    """

    name = models.TextField(primary_key=True, db_collation="C")
    factor = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        db_table = "loop_patience"

    def __str__(self) -> str:
        return f"{self.name}: {self.factor:g}"
