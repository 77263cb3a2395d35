"""The pass over all controllers: one that fails does not keep the others from their work."""

import pytest
from django.db import DatabaseError, connection

from clusterstate import queries, sql
from clusterstate.actions import objects, pods
from scheduling.controllers import evictions, manager
from tests.controllers.support import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh():
    evictions.forget()
    pods.forget_classes()


def namespace_left(name):
    return sql.fetch_one("SELECT 1 FROM namespace WHERE name = %s", (name,)) is not None


@pytest.mark.parametrize("failing", [None, *manager.CONTROLLERS])
def test_one_that_fails_is_passed_over(failing, monkeypatch):
    def fail(now):
        raise DatabaseError("gone")

    assert connection.in_atomic_block
    if failing:
        monkeypatch.setitem(manager.CONTROLLERS, failing, fail)
    objects.create("Namespace", "", {"metadata": {"name": "old"}}, now=NOW)
    objects.delete("Namespace", "", "old", now=NOW)
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    }
    wanted = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    objects.create("ReplicaSet", "default", wanted, now=NOW)
    manager.run(NOW)
    assert namespace_left("old") == (failing == "namespaces")
    made = len(list(queries.list_page("Pod", "default").items))
    assert made == (0 if failing == "replicas" else 2)
