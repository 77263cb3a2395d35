"""What processes count is added up, and no number that was told runs backwards."""

import subprocess
import sys
import threading

import pytest
from django.db import DatabaseError, connection, transaction
from prometheus_client.parser import text_string_to_metric_families

from api.server import metrics
from clusterstate.actions.loops import metrics as actions
from clusterstate.actions.past import archives, housekeeping
from clusterstate.database import sql
from clusterstate.queries.loops import metrics as queries
from clusterstate.telemetry.metrics import apiserver, families
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = "apiserver_watch_events_total"


@pytest.fixture(autouse=True)
def _nothing_counted_yet() -> None:
    families.take_all()
    for family in families.FAMILIES.values():
        if family.kind == "gauge":
            for series in family.series():
                series.set(0.0)


def events() -> float:
    return sum(total.figures[0] for total in queries.totals() if total.name == EVENTS)


def sample(text: str, name: str, **labels: str) -> float:
    found = [
        one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    ]
    return sum(found)


def test_what_is_counted_is_added_once() -> None:
    series = apiserver.watch_events.of("", "v1", "pods")
    series.add(3)
    actions.add()
    actions.add()
    series.add()
    assert events() == 3, "not stored yet, so nobody is told"
    actions.add()
    assert events() == 4


def test_histograms_keep_each_bucket_and_the_sum() -> None:
    series = apiserver.sizes.of("GET", "", "v1", "pods", "", "resource", "apiserver")
    for turn in range(2):
        series.observe(1000)
        series.observe(1001, times=2)
        series.observe(5e9)
        series.observe(10.0 * turn)
        actions.add()
    (total,) = [one for one in queries.totals() if one.name == "apiserver_response_sizes"]
    assert total.figures == [4.0, 4.0, 0, 0, 0, 0, 0, 2.0, 1e10 + 6004 + 10]
    text = metrics.text()
    labels = {"verb": "GET", "resource": "pods"}
    assert sample(text, "apiserver_response_sizes_bucket", le="10000", **labels) == 8
    assert sample(text, "apiserver_response_sizes_count", **labels) == 10


def test_what_could_not_be_added_is_added_later() -> None:
    apiserver.watch_events.of("", "v1", "pods").add(2)
    with transaction.atomic():
        sql.run("DROP TABLE metric_total")
        with pytest.raises(DatabaseError):
            actions.add()
        transaction.set_rollback(True)
    assert events() == 0
    actions.add()
    assert events() == 2


def test_other_bounds_begin_anew() -> None:
    sql.run(
        "INSERT INTO metric_total VALUES ('apiserver_response_sizes', 'verb=\"GET\"', '{1,2,3}')"
    )
    assert 'apiserver_response_sizes_count{verb="GET"}' not in metrics.text(), "not our buckets"


def test_many_processes_add_at_once_and_each_scrape_tells_at_least_what_the_one_before_did() -> (
    None
):
    """Threads here; each adds the same rows by a connection of its own, as processes do."""
    rows = [apiserver.watch_events.of("", "v1", f"kind{number}") for number in range(5)]
    done = threading.Event()
    failures: list[Exception] = []

    def work(order: int) -> None:
        try:
            for turn in range(40):
                for row in rows if order % 2 else reversed(rows):
                    row.add()
                actions.add(gauges=turn % 5 == 0)
        except Exception as error:  # noqa: BLE001  # told below
            failures.append(error)
        finally:
            connection.close()

    def scrape() -> None:
        last = 0.0
        try:
            while not done.is_set():
                told = sample(metrics.text(), EVENTS)
                if told < last:
                    raise AssertionError((told, last))
                last = told
        except Exception as error:  # noqa: BLE001  # told below
            failures.append(error)
        finally:
            connection.close()

    workers = [threading.Thread(target=work, args=(order,)) for order in range(3)]
    scrapers = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in (*workers, *scrapers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    for thread in scrapers:
        thread.join()
    assert failures == []
    actions.add()
    assert events() == 3 * 40 * 5


_OTHER_PROCESS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "clusterstate.settings"
import django
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
from clusterstate.actions.loops import metrics
from clusterstate.telemetry.metrics import apiserver
apiserver.watch_events.of("", "v1", "pods").add(5)
apiserver.long_running.of("WATCH", "", "v1", "pods", "", "cluster", "apiserver").up()
metrics.add()
apiserver.watch_events.of("", "v1", "pods").add(1000)  # never added: it is killed before
os._exit(9)
"""


def test_a_process_that_is_killed_takes_nothing_with_it_that_was_told() -> None:
    apiserver.watch_events.of("", "v1", "pods").add(2)
    apiserver.long_running.of("WATCH", "", "v1", "pods", "", "cluster", "apiserver").up()
    told = []
    for _ in range(2):
        name = str(connection.settings_dict["NAME"])
        ended = subprocess.run([sys.executable, "-c", _OTHER_PROCESS, name], timeout=120)
        assert ended.returncode == 9
        text = metrics.text()
        told.append(sample(text, EVENTS))
    assert told == [7.0, 12.0]
    assert sample(text, "apiserver_longrunning_requests") == 3, "all three told it lately"
    assert sample(text, "process_resident_memory_bytes") > 3e6
    sql.run("UPDATE process_metric SET at = at - interval '31 seconds'")
    text = metrics.text()
    assert sample(text, "apiserver_longrunning_requests") == 1, "who is silent is gone"
    assert sample(text, EVENTS) == 12
    sql.run("UPDATE process_metric SET at = at - interval '2 hours'")
    housekeeping.drop_leftovers(now=NOW)
    assert sql.fetch("SELECT count(*) FROM process_metric") == [(0,)]


def test_a_restored_backup_leaves_the_counters() -> None:
    assert not {"metric_total", "process_metric"} & archives.shape().keys()


def test_the_last_figures_are_added_when_a_process_ends() -> None:
    adder = actions.Adder()
    for turn in (1, 2):  # a server may start again in the same process
        adder.start()
        apiserver.watch_events.of("", "v1", "pods").add(4)
        adder.close()
        assert events() == 4 * turn
