"""Addresses and networks: of balancers, endpoints, nodes and services."""

import pytest

from clusterstate.actions.cluster import bootstrap
from tests.api.builders import NODES, node
from tests.clock import NOW


def test_the_address_of_a_balancer_has_a_mode(api):
    services = "/api/v1/namespaces/ns/services"
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    api.post(services, {"metadata": {"name": "s"}, "spec": spec}).ok(201)
    status = {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"hostname": "a.example.org"}]}}
    told = api.patch(f"{services}/s/status", {"status": status}).ok()["status"]
    assert told["loadBalancer"]["ingress"] == [
        {"ip": "203.0.113.1", "ipMode": "VIP"}, {"hostname": "a.example.org"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1", "loopback"), ("0.0.0.0", "unspecified"), ("169.254.1.2", "link-local range"),
     ("224.0.0.9", "link-local multicast"), ("::1", "loopback"), ("fe80::1", "link-local range"),
     ("ff02::1", "link-local multicast"), ("10.1.2.3", ""), ("fd00::1", "")],
)  # fmt: skip
def test_an_endpoint_is_where_others_reach_it(api, address, why):
    family = "IPv6" if ":" in address else "IPv4"
    subsets = [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]
    metadata = {"name": "e"}
    for path, body in (
        ("/api/v1/namespaces/ns/endpoints", {"metadata": metadata, "subsets": subsets}),
        ("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices",
         {"metadata": metadata, "addressType": family, "endpoints": [{"addresses": [address]}]}),
    ):  # fmt: skip
        answer = api.post(path, body)
        if why:
            assert why in answer.fails(422, "Invalid")["message"]
        else:
            answer.ok(201)


def test_a_nodes_network_is_one_however_it_is_said(api):
    one = f"{NODES}/n"
    api.post(NODES, node()).ok(201)
    spec = api.patch(one, {"spec": {"podCIDR": "10.0.0.0/24"}}).ok()["spec"]
    assert (spec["podCIDR"], spec["podCIDRs"]) == ("10.0.0.0/24", ["10.0.0.0/24"])
    for change in ({"podCIDR": "10.0.1.0/24"}, {"podCIDRs": ["10.0.1.0/24"]}):
        refused = api.patch(one, {"spec": {"podCIDR": None, **change}}).fails(422, "Invalid")
        (cause,) = refused["details"]["causes"]
        assert cause["field"] == "spec.podCIDRs"
        assert cause["message"].endswith('may not change podCIDR except from "" to valid')
    assert api.patch(one, {"spec": {"podCIDR": "10.0.0.0/24"}}).ok()["spec"]["podCIDRs"]


def test_the_network_of_services_is_told_and_other_networks_are_not_ready(api):
    networks = "/apis/networking.k8s.io/v1/servicecidrs"
    assert bootstrap.ensure_network(now=NOW) == ["ServiceCIDR kubernetes"]
    assert bootstrap.ensure_network(now=NOW) == []
    told = api.get(f"{networks}/kubernetes/status").ok()
    assert told["spec"]["cidrs"] == ["10.96.0.0/12"]
    (ready,) = told["status"]["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    made = api.post(networks, {"metadata": {"name": "o"}, "spec": {"cidrs": ["203.0.113.0/24"]}})
    assert not made.ok(201).get("status")
    assert "10.96.0.0/12 only" in made.headers["Warning"]
    for wrong in ([], ["10.0.0.1/8"], ["10.0.0.0/8", "11.0.0.0/8"]):
        body = {"metadata": {"name": "w"}, "spec": {"cidrs": wrong}}
        api.post(networks, body).fails(422, "Invalid")
    api.patch(f"{networks}/o", {"spec": {"cidrs": ["10.0.0.0/8"]}}).fails(422, "Invalid")
