"""How far the loops are that the service cannot do without."""

from django.db import models


class LoopProgress(models.Model):
    """A loop's last sign of progress, by the database's clock; one row for each loop's name.

    ``at`` moves while the loop works, so that a row that is seconds old means: no process, on any
    host, does this work now. ``revision`` is what it has followed the log to, where it follows the
    log. ``backend_pid`` and ``backend_start`` are the database's session that wrote the row: the
    session ends with its process, which shows sooner than the row's age that no process works.
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
    """How many times as long as usual a loop asks the others to wait for it, by the loop's name.

    Written by a process that was ended while it worked, read by the next one. It halves every
    minute from ``at`` on, by the database's clock.
    """

    name = models.TextField(primary_key=True, db_collation="C")
    factor = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        db_table = "loop_patience"

    def __str__(self) -> str:
        return f"{self.name}: {self.factor:g}"
