"""What is refused of IngressClasses, Ingresses, EndpointSlices and NetworkPolicies."""

import pytest

from clusterstate.admission.validation.kinds import validate
from clusterstate.admission.validation.workloads.networking import RULES
from clusterstate.admission.warnings import warnings_for
from tests.admission.context import create

REFERENCE = {"kind": "ConfigMap", "name": "settings"}


def told(parameters):
    manifest = {"spec": {"controller": "example.org/c", "parameters": parameters}}
    return {one.field: one.detail for one in RULES["IngressClass"](manifest, None)}


def test_parameters_are_of_the_cluster_unless_said_otherwise():
    body = {"metadata": {"name": "c"}, "spec": {"controller": "a.b/c", "parameters": REFERENCE}}
    admitted = create(body, kind="IngressClass").manifest
    assert admitted["spec"]["parameters"] == {**REFERENCE, "scope": "Cluster"}
    assert told({**REFERENCE, "scope": "Namespace", "namespace": "ns"}) == {}


@pytest.mark.parametrize(
    ("fields", "field", "detail"),
    [
        ({"scope": "Everywhere"}, "scope", "supported values"),
        ({"scope": "Cluster", "namespace": "ns"}, "namespace", "is set to 'Cluster'"),
        ({"scope": "Namespace"}, "namespace", "is set to 'Namespace'"),
        ({"scope": "Namespace", "namespace": "N"}, "namespace", "RFC 1123 label"),
        ({"scope": "Cluster", "kind": ""}, "kind", "kind is required"),
        ({"scope": "Cluster", "name": "a/b"}, "name", "may not contain"),
        ({"scope": "Cluster", "apiGroup": "A"}, "apiGroup", "RFC 1123 subdomain"),
    ],
)
def test_parameters_that_are_refused(fields, field, detail):
    found = told({**REFERENCE, **fields})
    assert list(found) == [f"spec.parameters.{field}"]
    assert detail in found[f"spec.parameters.{field}"]


def policy(**block):
    return {"spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": block}]}]}}


def subsets(address):
    return {"subsets": [{"addresses": [{"ip": address}]}]}


def a_slice(address):
    return {"addressType": "IPv4", "endpoints": [{"addresses": [address]}]}


AMBIGUOUS = [
    ("Endpoints", subsets("010.0.0.1"), "subsets[0].addresses[0].ip"),
    ("EndpointSlice", a_slice("010.0.0.1"), "endpoints[0].addresses[0]"),
    ("NetworkPolicy", policy(cidr="10.0.0.1/8"), "spec.egress[0].to[0].ipBlock.cidr"),
    (
        "NetworkPolicy",
        policy(cidr="10.0.0.0/8", **{"except": ["10.1.0.0/016"]}),
        "spec.egress[0].to[0].ipBlock.except[0]",
    ),
]


@pytest.mark.parametrize(("kind", "manifest", "path"), AMBIGUOUS)
def test_an_address_in_an_ambiguous_form_is_refused_where_it_is_new(kind, manifest, path):
    """``IsValidIPForLegacyField`` and its callers in pkg/apis, v1.36 (#137053, KEP-4858)."""
    assert [one.field for one in RULES[kind](manifest, None)] == [path]
    assert RULES[kind](manifest, manifest) == []


@pytest.mark.parametrize("part", ["10.0.0.0/8", "11.0.0.0/16", "10.0.0.0/7"])
def test_what_a_block_leaves_out_is_smaller_and_inside(part):
    """pkg/apis/networking/validation/validation.go ``ValidateIPBlock``."""
    found = RULES["NetworkPolicy"](policy(cidr="10.0.0.0/8", **{"except": [part]}), None)
    assert [one.detail for one in found] == ["must be a strict subset of `cidr`"]


def ingress(**spec):
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    return {"spec": {"defaultBackend": backend, **spec}}


def at(path, type_="Prefix"):
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    return {"http": {"paths": [{"path": path, "pathType": type_, "backend": backend}]}}


@pytest.mark.parametrize(
    ("spec", "path", "detail"),
    [
        ({"rules": [at("/a//b")]}, "spec.rules[0].http.paths[0].path", "must not contain '//'"),
        ({"rules": [at("/a/..", "Exact")]}, "spec.rules[0].http.paths[0].path", "cannot end with"),
        ({"rules": [at("/a%2Fb")]}, "spec.rules[0].http.paths[0].path", "must not contain '%2F'"),
        ({"tls": [{"secretName": "A_"}]}, "spec.tls[0].secretName", "RFC 1123 subdomain"),
    ],
)
def test_what_is_refused_of_an_ingress(spec, path, detail):
    """pkg/apis/networking/validation/validation.go, v1.36."""
    (found,) = RULES["Ingress"](ingress(**spec), None)
    assert (found.field, detail in found.detail) == (path, True)


def test_an_ingress_names_one_class_and_hosts_of_certificates_may_be_addresses():
    annotated = {"annotations": {"kubernetes.io/ingress.class": "one"}}
    both = {"metadata": annotated, **ingress(ingressClassName="two")}
    assert [one.field for one in RULES["Ingress"](both, None)] == [
        "annotations.kubernetes.io/ingress.class"
    ]
    assert RULES["Ingress"](both, both) == []
    assert RULES["Ingress"](ingress(tls=[{"hosts": ["192.0.2.1", "*.example.org"]}]), None) == []
    assert RULES["Ingress"](ingress(rules=[at("/a//b", "ImplementationSpecific")]), None) == []
    told = warnings_for("Ingress", {"metadata": annotated, **ingress()}, None)
    assert "deprecated, please use 'spec.ingressClassName'" in told[1]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}, "ports[1].name"),
        ({"ports": [{"protocol": "TCP", "appProtocol": "a b"}]}, "ports[0].appProtocol"),
        ({"endpoints": [{"addresses": ["192.0.2.1"], "hostname": "A"}]}, "endpoints[0].hostname"),
        (
            {
                "endpoints": [
                    {"addresses": ["192.0.2.1"], "hints": {"forZones": [{"name": "a"}] * 2}}
                ]
            },
            "endpoints[0].hints.forZones[1].name",
        ),
        (
            {
                "endpoints": [
                    {"addresses": ["192.0.2.1"], "hints": {"forNodes": [{"name": "a"}] * 9}}
                ]
            },
            "endpoints[0].hints.forNodes",
        ),
        ({"addressType": "FQDN", "endpoints": [{"addresses": ["a"]}]}, "endpoints[0].addresses[0]"),
    ],
)
def test_what_is_refused_of_an_endpoint_slice(fields, path):
    """pkg/apis/discovery/validation/validation.go, v1.36."""
    found = RULES["EndpointSlice"]({"addressType": "IPv4", **fields}, None)
    assert [one.field for one in found] == [path]


def test_a_status_names_addresses_and_conditions_that_are_some():
    """``ValidateIngressStatusUpdate`` and ``ValidatePodDisruptionBudgetStatusUpdate``, v1.36."""

    def told(kind, **status):
        meta = {"metadata": {"name": "x", "namespace": "n", "resourceVersion": "1"}}
        found = validate(kind, {**meta, "status": status}, meta, "status")
        return [one.field for one in found]

    path = "status.loadBalancer.ingress[0]"
    for field, value in (("ip", "x"), ("ip", "010.0.0.1"), ("hostname", "192.0.2.1")):
        ingress = [{field: value}]
        assert told("Ingress", loadBalancer={"ingress": ingress}) == [f"{path}.{field}"]
    condition = {"type": "A", "status": "Maybe", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    found = told("PodDisruptionBudget", conditions=[condition])
    assert found == ["status.conditions[0].status", "status.conditions[0].reason"]


def test_what_was_stored_before_a_rule_can_still_be_changed():
    """Labels, finalizers and a budget's status are written, also by the controllers."""
    meta = {"name": "x", "namespace": "n", "resourceVersion": "1"}
    labelled = {**meta, "labels": {"a": "b"}}
    policy_ = policy(cidr="10.0.0.0/8", **{"except": ["11.0.0.0/16"]})
    doubled = [{"name": "a", "protocol": "TCP"}] * 2
    stored = {
        "Ingress": {"spec": {"rules": [at("/a//b")], "tls": [{"secretName": "A_b"}]}},
        "EndpointSlice": {**a_slice("192.0.2.1"), "ports": doubled},
        "NetworkPolicy": policy_,
    }
    for kind, manifest in stored.items():
        old = {**manifest, "metadata": meta}
        assert validate(kind, {**old, "metadata": labelled}, old, "") == []
        assert validate(kind, old, {"metadata": meta, "addressType": "IPv4"}, "") != []
    bad, good = {"type": "A", "status": "True"}, {"type": "B", "status": "True", "reason": "b"}
    good["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    old = {"metadata": meta, "status": {"conditions": [good, bad]}}
    turned = {"metadata": meta, "status": {"conditions": [bad, good]}}
    assert validate("PodDisruptionBudget", turned, old, "status") == []
    first = {"metadata": meta, "status": {"conditions": [good]}}
    assert validate("PodDisruptionBudget", old, first, "status") != []
