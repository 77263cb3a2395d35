"""Adds this process's counts to the totals (``telemetry.metrics``), and writes its gauges."""

import os
import socket
import threading
from typing import Final

import msgspec
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection, transaction
from prometheus_client import ProcessCollector

from clusterstate.database import sql
from clusterstate.telemetry.metrics import families

logger = structlog.get_logger(__name__)

EVERY_SECONDS = 2.0
"""Interval of writes: a scrape of another process may lag this far behind."""
GAUGES_EVERY: Final = 5
"""An idle process writes a heartbeat every this many periods."""
_LAST_SECONDS: Final = 2.0
"""How long a process that ends waits for its last figures to be added."""

# All processes take rows in one order, so that they never deadlock. If a newer version changed the
# bounds of buckets, the counts restart: counts of other buckets cannot be added.
_ADD = """
    INSERT INTO metric_total AS t (name, labels, figures)
    SELECT n, l, f::float8[] FROM unnest(%s::text[], %s::text[], %s::text[]) AS i (n, l, f)
    ORDER BY n COLLATE "C", l COLLATE "C"
    ON CONFLICT (name, labels) DO UPDATE SET figures = CASE
        WHEN cardinality(t.figures) <> cardinality(excluded.figures) THEN excluded.figures
        ELSE (SELECT array_agg(a + b ORDER BY place)
              FROM unnest(t.figures, excluded.figures) WITH ORDINALITY AS u (a, b, place))
    END
"""
_TELL = """
    INSERT INTO process_metric AS p (holder, at, gauges)
    VALUES (%s::text, clock_timestamp(), %s::text)
    ON CONFLICT (holder) DO UPDATE SET at = excluded.at, gauges = excluded.gauges
"""
_process: Final = ProcessCollector(registry=None)


def add(*, gauges: bool = True) -> None:
    """Add this process's counts to the totals, and write its gauges, in one transaction.

    Raises:
        django.db.Error: nothing was added; the counts are added the next time.
    """
    totals = families.take_all()
    try:
        with transaction.atomic():
            if totals:
                sql.run(
                    _ADD,
                    (
                        sql.Texts([one.name for one in totals]),
                        sql.Texts([one.labels for one in totals]),
                        sql.Texts([_array(one.figures) for one in totals]),
                    ),
                )
            if gauges:
                sql.run(_TELL, (_holder(), msgspec.json.encode(_gauges()).decode()))
    except BaseException:
        families.put_back(totals)
        raise


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _array(figures: list[float]) -> str:
    return "{" + ",".join(map(repr, figures)) + "}"


def _gauges() -> list[tuple[str, str, float]]:
    """Return this process's gauges, with its CPU and memory as the kernel counts them."""
    host, _, pid = _holder().rpartition(":")
    own = families.labels_text((("process", settings.PROCESS), ("host", host), ("pid", pid)))
    kernel = [
        (sample.name, own, sample.value)
        for family in _process.collect()
        for sample in family.samples
        if sample.name.startswith("process_")
    ]
    return [*families.gauges(), *kernel]


class Adder:
    """A thread that adds this process's counts every two seconds, until the process ends."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; possible again after ``close``."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the counts not written yet, and stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        turn = 0
        ending = False
        while not ending:
            ending = self._stop.wait(EVERY_SECONDS if turn else 0)
            try:
                sql.drop_dead_connection()
                if turn % GAUGES_EVERY == 0 or families.has_news():
                    add()
            except DatabaseError as error:
                logger.debug("metrics_not_added", error=str(error).strip())
            except Exception:
                logger.exception("metrics_failed")
            turn += 1
        connection.close()
