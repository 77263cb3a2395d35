"""What every namespace has comes by itself, and comes back."""

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap, namespaces
from clusterstate.admission.plugins.namespace_lifecycle import IMMORTAL
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Forbidden
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers import manager, namespace_defaults
from scheduling.controllers.endpoints import follower as endpoints
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


@pytest.mark.parametrize("name", bootstrap.NAMESPACES)
def test_a_namespace_that_every_cluster_has_comes_back_with_all_that_it_has(name):
    """Agents of nodes renew their leases in one that can be deleted."""
    make("team")
    namespace_defaults.follow(NOW)
    if name in IMMORTAL:
        with pytest.raises(Forbidden):
            objects.delete("Namespace", "", name, now=NOW)
        return
    objects.delete("Namespace", "", name, now=NOW)
    objects.delete("Namespace", "", "team", now=NOW)
    namespace_defaults.follow(NOW)
    assert found("Namespace", "", name)["metadata"]["deletionTimestamp"]
    assert namespaces.finish_deletion(name, now=NOW)
    assert namespaces.finish_deletion("team", now=NOW)
    assert namespace_defaults.follow(NOW) == 3
    assert found("Namespace", "", name)["status"] == {"phase": "Active"}
    assert found("ServiceAccount", name, ACCOUNT)
    assert found("ConfigMap", name, AUTHORITY)
    assert found("Namespace", "", "team") is None
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


@pytest.fixture
def advertised(settings):
    def advertise(address):
        settings.ADVERTISE_ADDRESS, settings.HTTPS_PORT = address, 6443
        namespace_defaults.follow(NOW)

    return advertise


def where():
    """Return where Endpoints and the EndpointSlice say that the API is, and the latter's type."""
    endpoints = found("Endpoints", "default", SERVICE)
    one = found("EndpointSlice", "default", SERVICE)
    assert one["metadata"]["labels"]["kubernetes.io/service-name"] == SERVICE
    assert endpoints["subsets"][0]["ports"] == one["ports"]
    (subset,), (endpoint,) = endpoints["subsets"], one["endpoints"]
    assert endpoint["conditions"]["ready"]
    assert [each["ip"] for each in subset["addresses"]] == endpoint["addresses"]
    ports = [(port["name"], port["port"]) for port in one["ports"]]
    return endpoint["addresses"], ports, one["addressType"]


def test_the_service_of_the_api_has_endpoints_that_name_its_address(advertised):
    advertised("10.1.2.3")
    assert where() == (["10.1.2.3"], [("https", 6443)], "IPv4")
    assert namespace_defaults.follow(NOW) == 0
    endpoints.follow(NOW)
    slices = sql.fetch(
        "SELECT name FROM generic_object WHERE namespace = 'default' AND kind = %s",
        (KINDS["EndpointSlice"].code,),
    )
    assert slices == [(SERVICE,)], "no slice shows the Endpoints a second time"
    assert namespace_defaults.follow(NOW) == 0


@pytest.mark.parametrize(
    ("address", "family"), [("10.1.2.4", "IPv4"), ("2001:db8::7", "IPv6")], ids=["IPv4", "IPv6"]
)
def test_another_address_takes_the_place_of_the_one_before(advertised, address, family):
    advertised("10.1.2.3")
    advertised(address)
    assert where() == ([address], [("https", 6443)], family)
    assert namespace_defaults.follow(NOW) == 0


def test_endpoints_of_the_api_that_are_changed_or_deleted_come_back(advertised):
    advertised("10.1.2.3")
    objects.delete("EndpointSlice", "default", SERVICE, now=NOW)
    objects.update(
        "Endpoints", "default", SERVICE,
        lambda old: {
            **old,
            "metadata": {**old["metadata"], "labels": {"mine": "1"}},
            "subsets": [],
        }, now=NOW,
    )  # fmt: skip
    assert namespace_defaults.follow(NOW) == 2
    assert where() == (["10.1.2.3"], [("https", 6443)], "IPv4")
    labels = found("Endpoints", "default", SERVICE)["metadata"]["labels"]
    assert labels == {"mine": "1", "endpointslice.kubernetes.io/skip-mirror": "true"}


def test_without_an_address_there_are_no_endpoints_of_the_api(settings):
    settings.ADVERTISE_ADDRESS = ""
    namespace_defaults.follow(NOW)
    assert found("Endpoints", "default", SERVICE) is None
    assert found("EndpointSlice", "default", SERVICE) is None


def test_the_manager_runs_it_when_something_was_written():
    assert namespace_defaults.NAME in manager.run(NOW)
    manager.run(NOW)
    assert namespace_defaults.NAME not in manager.run(NOW)
    make("team")
    assert namespace_defaults.NAME in manager.run(NOW)
    assert found("ServiceAccount", "team", ACCOUNT)
