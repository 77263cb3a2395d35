"""What is refused of a Service, so that nothing of it is accepted and ignored."""

import pytest

from clusterstate.admission.validation.workloads.services import (
    validate_service,
    validate_service_status,
)
from clusterstate.admission.warnings import warnings_for
from clusterstate.objects.values.addresses import keep_allocated
from tests.admission.context import create

PORT = {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}


def _spec(**fields):
    given = {"type": "ClusterIP", "sessionAffinity": "None", "ports": [PORT], **fields}
    return {"spec": {name: value for name, value in given.items() if value is not None}}


def _errors(new, old=None):
    return {one.field: one.detail for one in validate_service(new, old)}


def test_a_service_of_any_type_is_taken():
    assert _errors(_spec()) == {}
    assert _errors(_spec(type="NodePort", externalTrafficPolicy="Local")) == {}
    balanced = {"allocateLoadBalancerNodePorts": True, "loadBalancerClass": "example.com/lb"}
    ranges = ["10.0.0.0/8"]
    assert _errors(_spec(type="LoadBalancer", loadBalancerSourceRanges=ranges, **balanced)) == {}
    assert _errors(_spec(type="ExternalName", externalName="a.example", ports=None)) == {}
    several = [PORT, {**PORT, "name": "b", "protocol": "UDP"}]
    assert _errors(_spec(ports=several)) == {}
    assert _errors(_spec(ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv4"])) == {}
    # Without a selector its endpoints are of whatever family their author says.
    headless = {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"]}
    assert _errors(_spec(ipFamilyPolicy="RequireDualStack", **headless)) == {}


@pytest.mark.parametrize(
    ("fields", "field", "detail"),
    [
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            "spec.ipFamilyPolicy",
            "this cluster is not configured for dual-stack services",
        ),
        ({"ipFamilyPolicy": "Both"}, "spec.ipFamilyPolicy", "supported values"),
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]", "not configured on this cluster"),
        ({"ipFamilies": ["IPv5"]}, "spec.ipFamilies[0]", "supported values"),
        ({"ipFamilies": ["IPv4", "IPv4"]}, "spec.ipFamilies[1]", ""),
        ({"trafficDistribution": "Near"}, "spec.trafficDistribution", "supported values"),
        ({"internalTrafficPolicy": "Near"}, "spec.internalTrafficPolicy", "supported values"),
        (
            {"type": "NodePort", "externalTrafficPolicy": "Near"},
            "spec.externalTrafficPolicy",
            "supported values",
        ),
        ({"loadBalancerClass": "a"}, "spec.loadBalancerClass", "may only be used when"),
        (
            {"allocateLoadBalancerNodePorts": True},
            "spec.allocateLoadBalancerNodePorts",
            "may only be used when",
        ),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0"]},
            "spec.LoadBalancerSourceRanges[0]",
            "must be a valid CIDR value",
        ),
        (
            {"type": "LoadBalancer", "ports": [{**PORT, "port": 10250}]},
            "spec.ports[0].port",
            "used by kubelet",
        ),
        ({"type": "NodePort", "clusterIP": "None"}, "spec.clusterIPs[0]", "may not be set"),
        ({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]}, "spec.clusterIPs", "must match"),
        ({"externalIPs": ["127.0.0.1"]}, "spec.externalIPs[0]", "loopback"),
        ({"ports": [PORT, {**PORT, "name": "b"}]}, "spec.ports[1]", ""),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 90000}},
            },
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "must be greater than 0 and less than 86400",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else None,
)
def test_what_would_be_ignored_is_refused(fields, field, detail):
    found = validate_service(_spec(**fields), None)
    assert [one.field for one in found] == [field]
    assert detail in found[0].message()


def test_the_class_of_a_balancer_stays():
    old = _spec(type="LoadBalancer", loadBalancerClass="example.com/one")
    new = _spec(type="LoadBalancer", loadBalancerClass="example.com/two")
    assert _errors(new, old) == {"spec.loadBalancerClass": "may not change once set"}


def test_a_service_leaves_behind_what_only_its_former_type_has():
    old = _spec(
        type="LoadBalancer",
        clusterIP="10.96.0.9",
        allocateLoadBalancerNodePorts=True,
        loadBalancerClass="example.com/lb",
        externalTrafficPolicy="Cluster",
    )
    new = {"spec": {**old["spec"], "type": "ClusterIP"}}
    kept = {"spec": keep_allocated(new["spec"], old["spec"])}
    assert kept["spec"] == {
        "type": "ClusterIP", "sessionAffinity": "None", "ports": [PORT], "clusterIP": "10.96.0.9",
    }  # fmt: skip
    assert _errors(kept, old) == {}


OLD_FORMS = {
    "externalIPs": (["010.0.0.1"], "spec.externalIPs[0]"),
    "loadBalancerSourceRanges": (["10.0.0.1/8"], "spec.LoadBalancerSourceRanges[0]"),
}


@pytest.mark.parametrize("field", OLD_FORMS)
def test_addresses_in_ambiguous_forms_are_refused_where_they_are_new(field):
    """pkg/apis/core/validation/validation.go ``IsValidIPForLegacyField``, v1.36 (#137053)."""
    values, path = OLD_FORMS[field]
    old = _spec(type="LoadBalancer", **{field: values})
    assert list(_errors(old)) == [path]
    assert _errors(old, old) == {}


def test_a_balancer_tells_of_addresses_in_the_one_form():
    def told(address):
        ingress = [{"ip": address}]
        return {**_spec(type="LoadBalancer"), "status": {"loadBalancer": {"ingress": ingress}}}

    sloppy = told("::ffff:1.2.3.4")
    refused = validate_service_status(sloppy, told("1.2.3.4"))
    assert [one.field for one in refused] == ["status.loadBalancer.ingress[0].ip"]
    assert validate_service_status(sloppy, sloppy) == []


def test_a_name_may_begin_with_a_digit():
    """``ValidateServiceName`` with the gate RelaxedServiceNameValidation, on from v1.36."""
    body = {
        "metadata": {"name": "1-abc", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }
    assert create(body, kind="Service").manifest["spec"]["ports"][0]["port"] == 80


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"externalIPs": ["192.0.2.1"]}, "spec.externalIPs is deprecated and may no longer"),
        ({"externalIPs": ["2001:DB8::1"]}, '("2001:db8::1")'),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["2001:0db8::/32"]},
            'IPv6 CIDR value "2001:0db8::/32" should be in RFC 5952 canonical format',
        ),
        (
            {"clusterIP": "None", "sessionAffinity": "ClientIP"},
            "spec.SessionAffinity is ignored for headless services",
        ),
        (
            {"clusterIP": "None", "externalIPs": ["192.0.2.1"]},
            "spec.externalIPs is ignored for headless services",
        ),
        (
            {"type": "ExternalName", "externalName": "a.example", "externalIPs": ["192.0.2.1"]},
            'spec.externalIPs is ignored when spec.type is "ExternalName"',
        ),
        ({"externalName": "a.example"}, "spec.externalName is ignored when spec.type is not"),
        ({"trafficDistribution": "PreferClose"}, 'deprecated; use "PreferSameZone"'),
    ],
)
def test_of_what_has_no_effect_or_a_better_form_its_author_is_told(fields, warning):
    """pkg/api/service/warnings.go, v1.36; #134054, #137293."""
    found = warnings_for("Service", _spec(**fields), None)
    assert [one for one in found if warning in one] != []
    assert warnings_for("Service", _spec(clusterIP="None", externalName=None), None) == []


def test_a_warned_annotation():
    meta = {"metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}}}
    assert "please use service.kubernetes.io/topology-mode" in str(
        warnings_for("Service", {**meta, **_spec()}, None)
    )
