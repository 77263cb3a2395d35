"""A Service gets an address of its own and keeps it."""

import threading

import pytest

from clusterstate.actions import objects
from clusterstate.objects.values import addresses
from clusterstate.objects.values.errors import Invalid
from clusterstate.processes import memory
from tests.clusterstate.support import NOW, Worker, manifest

pytestmark = pytest.mark.django_db(transaction=True)
PORTS = [{"port": 80}]


def create(name, **spec):
    body = {"metadata": {"name": name}, "spec": {"ports": PORTS, **spec}}
    objects.create("Service", "default", body, now=NOW)
    return manifest("Service", "default", name)["spec"]


def update(name, change):
    def changed(old):
        return {**old, "spec": change(dict(old["spec"]))}

    objects.update("Service", "default", name, changed, now=NOW)
    return manifest("Service", "default", name)["spec"]


def test_addresses_are_of_the_network_and_nobody_has_the_same():
    specs = [create(f"s{number}") for number in range(5)]
    found = [spec["clusterIP"] for spec in specs]
    assert len(set(found)) == 5
    for spec in specs:
        assert spec["clusterIPs"] == [spec["clusterIP"]]
        assert addresses.ipaddress.ip_address(spec["clusterIP"]) in addresses.NETWORK
        assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert addresses.FIRST not in found


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_label_of_that_name_hides_no_address(where):
    """What a Service got stands in its spec, and nowhere else."""
    memory.forget()
    metadata = {"name": "odd", where: {"clusterIP": "10.96.0.99", "nodePort": "31000"}}
    body = {"metadata": metadata, "spec": {"ports": PORTS, "clusterIP": "10.96.7.7"}}
    objects.create("Service", "default", body, now=NOW)
    with pytest.raises(Invalid, match="already allocated"):
        create("other", clusterIP="10.96.7.7")
    assert create("free", clusterIP="10.96.0.99")["clusterIP"] == "10.96.0.99"


def test_services_that_are_created_at_once_get_different_addresses():
    barrier = threading.Barrier(4)

    def make(number):
        barrier.wait()
        wanted = [
            (
                "Service",
                "default",
                {"metadata": {"name": f"w{number}-{i}"}, "spec": {"ports": PORTS}},
            )
            for i in range(5)
        ]
        objects.create_all(wanted, now=NOW)

    for worker in [Worker(lambda n=n: make(n)) for n in range(4)]:
        worker.result(60)
    names = [f"w{number}-{i}" for number in range(4) for i in range(5)]
    found = {manifest("Service", "default", name)["spec"]["clusterIP"] for name in names}
    assert len(found) == 20


def test_an_address_stays_whatever_else_changes():
    address = create("s")["clusterIP"]

    def without(spec):
        del spec["clusterIP"], spec["clusterIPs"]
        return {**spec, "selector": {"a": "b"}}

    assert update("s", without)["clusterIP"] == address
    with pytest.raises(Invalid, match="may not change once set"):
        update("s", lambda spec: {**spec, "clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"]})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("10.96.0.9", "provided IP is already allocated"),
        ("10.96.0.1", "provided IP is already allocated"),
        ("192.168.0.1", "not in the valid range. The range of valid IPs is 10.96.0.0/12"),
        ("pear", "must be empty, 'None', or a valid IP address"),
    ],
)
def test_an_address_that_cannot_be_had_is_refused_and_named(wanted, why):
    create("first", clusterIP="10.96.0.9")
    with pytest.raises(Invalid, match=why) as caught:
        create("second", clusterIP=wanted)
    assert wanted in str(caught.value)
    assert create("third", clusterIP="10.96.0.10")["clusterIP"] == "10.96.0.10"


def test_headless_and_external_services_have_none():
    assert create("headless", clusterIP="None")["clusterIPs"] == ["None"]
    external = create("external", type="ExternalName", externalName="example.org")
    assert "clusterIP" not in external
    address = create("turned")["clusterIP"]
    turned = update(
        "turned", lambda spec: {**spec, "type": "ExternalName", "externalName": "example.org"}
    )
    assert "clusterIP" not in turned
    back = update("turned", lambda spec: {**spec, "type": "ClusterIP"})
    assert back["clusterIP"] not in ("", address, "None")


def test_node_ports_are_given_kept_and_taken_away():
    first = create("a", type="NodePort", ports=[{"port": 80}, {"name": "b", "port": 81}][:1])
    (port,) = first["ports"]
    assert port["nodePort"] in addresses.NODE_PORTS
    kept = update("a", lambda spec: {**spec, "ports": [{"port": 80, "targetPort": 8080}]})
    assert kept["ports"][0]["nodePort"] == port["nodePort"]
    with pytest.raises(Invalid, match="provided port is already allocated"):
        create("b", type="NodePort", ports=[{"port": 80, "nodePort": port["nodePort"]}])
    with pytest.raises(Invalid, match="The range of valid ports is 30000-32767"):
        create("b", type="NodePort", ports=[{"port": 80, "nodePort": 80}])
    plain = update("a", lambda spec: {**spec, "type": "ClusterIP"})
    assert "nodePort" not in plain["ports"][0]


def ports_of(spec):
    return [one.get("nodePort") for one in spec["ports"]]


DNS = [
    {"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "tcp", "port": 53, "protocol": "TCP"},
]  # fmt: skip


def test_a_headless_service_stays_so_where_a_client_leaves_the_address_out():
    create("s", clusterIP="None")

    def without(spec):
        del spec["clusterIP"], spec["clusterIPs"]
        return {**spec, "selector": {"a": "b"}}

    found = update("s", without)
    assert (found["clusterIP"], found["clusterIPs"]) == ("None", ["None"])


def status(name, ingress):
    wanted = {"loadBalancer": {"ingress": [ingress]}}
    objects.update(
        "Service", "default", name, lambda old: {**old, "status": wanted}, now=NOW,
        subresource="status",
    )  # fmt: skip
    return manifest("Service", "default", name)["status"]["loadBalancer"]


def test_what_a_balancer_told_goes_with_the_type():
    create("s", type="LoadBalancer")
    given = {"ip": "203.0.113.1", "ipMode": "VIP"}
    assert status("s", {"ip": "203.0.113.1"}) == {"ingress": [given]}
    update("s", lambda spec: {**spec, "selector": {"a": "b"}})
    assert manifest("Service", "default", "s")["status"]["loadBalancer"] == {"ingress": [given]}
    update("s", lambda spec: {**spec, "type": "ClusterIP"})
    assert manifest("Service", "default", "s")["status"]["loadBalancer"] == {}
    with pytest.raises(Invalid, match=r"may only be used when `spec.type` is 'LoadBalancer'"):
        status("s", {"ip": "203.0.113.1"})


@pytest.mark.parametrize(
    ("ingress", "why"),
    [
        ({"ip": "pear"}, "must be a valid IP address"),
        ({"ip": "203.0.113.1", "ipMode": "Magic"}, "Unsupported value"),
        ({"hostname": "a.example", "ipMode": "VIP"}, "may not be specified when `ip` is not set"),
        ({"hostname": "203.0.113.1"}, "must be a DNS name, not an IP address"),
    ],
)
def test_what_a_balancer_may_not_tell(ingress, why):
    create("s", type="LoadBalancer")
    with pytest.raises(Invalid, match=why):
        status("s", ingress)


def test_ports_that_differ_by_protocol_alone_have_one_node_port():
    first, second = ports_of(create("a", type="NodePort", ports=DNS))
    assert first == second
    # The first number is drawn: the others are asked for beside it.
    given = [number for number in range(30123, 30128) if number != first][:4]
    asked = [DNS[0], {**DNS[1], "nodePort": given[0]}]
    assert ports_of(create("b", type="NodePort", ports=asked)) == [given[0], given[0]]
    twice = [{**one, "nodePort": given[1]} for one in DNS]
    assert ports_of(create("c", type="NodePort", ports=twice)) == [given[1], given[1]]
    apart = [{**DNS[0], "nodePort": given[2]}, {**DNS[1], "nodePort": given[3]}]
    assert ports_of(create("d", type="NodePort", ports=apart)) == given[2:]
    for number in (first, *given):
        with pytest.raises(Invalid, match=r"spec.ports\[1\].nodePort.*already allocated"):
            create("e", type="NodePort", ports=[DNS[0], {**DNS[1], "port": 54, "nodePort": number}])


def test_one_number_twice_for_a_protocol_is_refused():
    twice = [{**one, "protocol": "TCP", "port": 53 + i} for i, one in enumerate(DNS)]
    with pytest.raises(Invalid, match="Duplicate value"):
        create("a", type="NodePort", ports=[{**one, "nodePort": 30130} for one in twice])


def test_a_port_keeps_its_node_port_by_its_name():
    first, second = ports_of(
        create("a", type="NodePort", ports=[{"name": "x", "port": 1}, {"name": "y", "port": 2}])
    )
    moved = [{"name": "y", "port": 3}, {"name": "z", "port": 1}, {"name": "x", "port": 4}]
    found = update("a", lambda spec: {**spec, "ports": moved})
    assert ports_of(found)[::2] == [second, first]
    swapped = [{"name": "y", "port": 3, "nodePort": first}, {"name": "x", "port": 4}]
    found = update("a", lambda spec: {**spec, "ports": swapped})
    assert ports_of(found)[0] == first
    assert ports_of(found)[1] not in (None, first)


def test_a_balancer_without_node_ports_may_name_one_that_is_then_its_own():
    off = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    assert ports_of(create("a", **off, ports=[{"port": 80}])) == [None]
    assert ports_of(create("b", **off, ports=[{"port": 80, "nodePort": 30140}])) == [30140]
    with pytest.raises(Invalid, match="already allocated"):
        create("c", type="NodePort", ports=[{"port": 80, "nodePort": 30140}])
    kept = update("b", lambda spec: {**spec, "selector": {"a": "b"}})
    assert ports_of(kept) == [30140]


def test_balancers_that_keep_to_a_node_have_a_port_to_ask_for_its_health():
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    health = create("a", **local)["healthCheckNodePort"]
    assert health in addresses.NODE_PORTS
    with pytest.raises(Invalid, match="already allocated"):
        create("b", type="NodePort", ports=[{"port": 80, "nodePort": health}])
    with pytest.raises(Invalid, match=r"spec.healthCheckNodePort.*already allocated"):
        create("b", **local, healthCheckNodePort=health)

    def without(spec):
        del spec["healthCheckNodePort"]
        return {**spec, "selector": {"a": "b"}}

    assert update("a", without)["healthCheckNodePort"] == health
    turned = update("a", lambda spec: {**spec, "externalTrafficPolicy": "Cluster"})
    assert "healthCheckNodePort" not in turned
    assert update("a", lambda spec: {**spec, **local})["healthCheckNodePort"]
    with pytest.raises(Invalid, match="may only be set when `type` is 'LoadBalancer'"):
        create("c", type="NodePort", healthCheckNodePort=30150)


def test_how_traffic_from_outside_goes_is_said_where_there_is_some():
    with pytest.raises(Invalid, match="may only be set for externally-accessible services"):
        create("a", externalTrafficPolicy="Local")
    found = create("b", externalIPs=["203.0.113.9"])
    assert found["externalTrafficPolicy"] == "Cluster"
    left = update("b", lambda spec: {**spec, "externalIPs": []})
    assert "externalTrafficPolicy" not in left
    with pytest.raises(Invalid, match="may not be used when `type` is 'ClusterIP'"):
        create("c", ports=[{"port": 80, "nodePort": 30160}])
