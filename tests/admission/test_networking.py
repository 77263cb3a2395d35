"""What is refused of the parameters of an IngressClass."""

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
