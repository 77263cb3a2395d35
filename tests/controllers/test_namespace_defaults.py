"""What every namespace has comes by itself, and comes back."""

import pytest

from clusterstate import sql
from clusterstate.actions import namespaces, objects
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers import manager, namespace_defaults
from scheduling.controllers.namespace_defaults import ACCOUNT, AUTHORITY, SERVICE
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII/+=\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def state(settings, tmp_path):
    settings.STATE_DIR = tmp_path
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    return tmp_path


def found(kind, namespace, name):
    item = find_object(kind, namespace, name)
    return None if item is None else decode_object(item)


def make(name):
    objects.create("Namespace", "", {"metadata": {"name": name}}, now=NOW)


def test_each_namespace_gets_an_account_and_the_certificate_authority():
    make("team")
    namespace_defaults.follow(NOW)
    for name in ("default", "kube-system", "kube-public", "kube-node-lease", "team"):
        assert found("ServiceAccount", name, ACCOUNT)["metadata"]["namespace"] == name
        assert found("ConfigMap", name, AUTHORITY)["data"] == {"ca.crt": CERTIFICATE}
    service = found("Service", "default", SERVICE)
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert [port["port"] for port in service["spec"]["ports"]] == [443]
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert found("Service", "team", SERVICE) is None
    assert namespace_defaults.follow(NOW) == 0


def test_what_is_deleted_or_changed_comes_back_and_nothing_else_is_touched():
    namespace_defaults.follow(NOW)
    before = found("ConfigMap", "kube-public", AUTHORITY)
    objects.delete("ServiceAccount", "default", ACCOUNT, now=NOW)
    objects.delete("Service", "default", SERVICE, now=NOW)
    objects.delete("ConfigMap", "default", AUTHORITY, now=NOW)
    objects.update(
        "ConfigMap", "kube-system", AUTHORITY,
        lambda old: {**old, "data": {"ca.crt": "other", "once": CERTIFICATE}}, now=NOW,
    )  # fmt: skip
    assert namespace_defaults.follow(NOW) == 4
    assert found("ServiceAccount", "default", ACCOUNT)
    assert found("Service", "default", SERVICE)["spec"]["clusterIP"] == "10.96.0.1"
    for name in ("default", "kube-system"):
        assert found("ConfigMap", name, AUTHORITY)["data"] == {"ca.crt": CERTIFICATE}
    assert found("ConfigMap", "kube-public", AUTHORITY) == before


def test_another_certificate_authority_is_published_everywhere(state):
    namespace_defaults.follow(NOW)
    (state / "ca.crt").write_text("another")
    make("later")
    namespace_defaults.follow(NOW)
    for name in ("default", "kube-system", "later"):
        assert found("ConfigMap", name, AUTHORITY)["data"] == {"ca.crt": "another"}


def test_without_a_certificate_authority_there_is_no_config_map(state):
    (state / "ca.crt").unlink()
    namespace_defaults.follow(NOW)
    assert found("ServiceAccount", "default", ACCOUNT)
    assert found("ConfigMap", "default", AUTHORITY) is None


def test_a_namespace_that_goes_away_gets_nothing_any_more():
    make("team")
    namespace_defaults.follow(NOW)
    objects.delete("Namespace", "", "team", now=NOW)
    objects.delete("ServiceAccount", "team", ACCOUNT, now=NOW)
    namespace_defaults.follow(NOW)
    assert found("ServiceAccount", "team", ACCOUNT) is None
    assert namespaces.finish_deletion("team", now=NOW)
    assert sql.fetch("SELECT count(*) FROM generic_object WHERE namespace = 'team'") == [(0,)]


def test_the_manager_runs_it_when_something_was_written():
    assert namespace_defaults.NAME in manager.run(NOW)
    manager.run(NOW)
    assert namespace_defaults.NAME not in manager.run(NOW)
    make("team")
    assert namespace_defaults.NAME in manager.run(NOW)
    assert found("ServiceAccount", "team", ACCOUNT)
