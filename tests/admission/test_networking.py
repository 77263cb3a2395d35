"""What is refused of IngressClasses' parameters, and of addresses of networks and endpoints."""

import pytest

from clusterstate.admission.validation.workloads.networking import RULES
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
