"""Between tests the database is as a flush leaves it, though only what was written is emptied."""

import threading

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection, connections

from clusterstate.actions import objects
from clusterstate.database import sql
from clusterstate.objects.values.actor import APISERVER, acts_as
from tests.clock import NOW
from tests.clusterstate.support import create_node, new_pod
from tests.emptying import empty_database
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

_WAITS = """
SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'auth_group'::regclass
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def contents() -> dict[str, int]:
    """Return how many rows each table has, without the empty ones."""
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    counts = {name: sql.fetch(f'SELECT count(*) FROM "{name}"')[0][0] for name in names}
    return {name: count for name, count in counts.items() if count}


@acts_as(APISERVER)
def write() -> None:
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    objects.create("ConfigMap", "team", {"metadata": {"name": "one"}}, now=NOW)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5", "count/configmaps": "5"}}}
    objects.create("ResourceQuota", "team", quota, now=NOW)
    create_node("n1", taints=[{"key": "a", "effect": "NoSchedule"}])
    new_pod("p", namespace="team")
    sql.run("UPDATE namespace SET phase = 'Terminating' WHERE name = 'default'")
    sql.run("DELETE FROM namespace WHERE name = 'kube-public'")
    sql.run("INSERT INTO auth_group (name) VALUES ('people')")


def test_what_was_written_is_gone_and_the_rest_is_there():
    call_command("flush", verbosity=0, interactive=False)
    flushed = contents()
    for _ in range(2):  # after somebody's flush, and after one of its own
        write()
        assert contents() != flushed
        empty_database()
        assert contents() == flushed
        assert sql.fetch("SELECT name FROM namespace WHERE phase <> 'Active'") == []


def test_a_changed_permission_comes_back():
    empty_database()
    known = set(Permission.objects.values_list("codename", "name"))
    Permission.objects.filter(codename="view_pod").update(name="See them")
    Permission.objects.filter(codename="change_pod").delete()
    empty_database()
    assert set(Permission.objects.values_list("codename", "name")) == known


def test_rows_of_a_transaction_that_is_still_open_are_waited_for():
    def empty() -> None:
        try:
            empty_database()
        finally:
            connection.close()

    empty_database()
    emptying = threading.Thread(target=empty)
    writer = connections.create_connection("default")
    try:
        writer.set_autocommit(False)
        with writer.cursor() as cursor:
            cursor.execute("INSERT INTO auth_group (name) VALUES ('late')")
        emptying.start()
        until(lambda: sql.fetch(_WAITS), what="the locks of whoever empties the tables")
        writer.commit()
    finally:
        writer.close()
    emptying.join(60)
    assert not emptying.is_alive()
    assert "auth_group" not in contents()
