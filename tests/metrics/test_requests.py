"""What is counted of a request."""

import time

import pytest

from api import routes
from api.server import metrics
from clusterstate.telemetry.metrics import families

TABLE = [
    # method, path, apply, verb, group, version, resource, subresource, scope
    ("GET", "/api/v1/namespaces/ns/pods/p", False, "GET", "", "v1", "pods", "", "resource"),
    ("GET", "/api/v1/namespaces/ns/pods", False, "LIST", "", "v1", "pods", "", "namespace"),
    ("GET", "/api/v1/pods", False, "LIST", "", "v1", "pods", "", "cluster"),
    ("POST", "/api/v1/namespaces/ns/pods", False, "POST", "", "v1", "pods", "", "resource"),
    ("PATCH", "/api/v1/nodes/n", False, "PATCH", "", "v1", "nodes", "", "resource"),
    ("PATCH", "/api/v1/nodes/n", True, "APPLY", "", "v1", "nodes", "", "resource"),
    ("PUT", "/api/v1/nodes/n/status", False, "PUT", "", "v1", "nodes", "status", "resource"),
    ("DELETE", "/api/v1/nodes", False, "DELETECOLLECTION", "", "v1", "nodes", "", "cluster"),
    ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", False,
     "DELETE", "apps", "v1", "deployments", "", "resource"),
    ("GET", "/openapi/v3/apis/apps/v1", False, "GET", "", "", "", "/openapi/v3", ""),
    ("GET", "/nothing/here", False, "GET", "", "", "", "", ""),
    ("BREW", "/api/v1/pods", False, "OTHER", "", "v1", "pods", "", "cluster"),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_its_labels_are_those_of_kube_apiserver(row) -> None:
    method, path, applies, *labels = row
    families.take_all()
    for _ in range(2):  # the second time it is known
        metrics.observe(
            method, path, routes.read(path), 201, time.perf_counter() - 0.3, applies=applies, size=9
        )
    taken = {one.name: one for one in families.take_all()}
    verb, group, version, resource, subresource, scope = labels
    place = (
        f'group="{group}",version="{version}",resource="{resource}",'
        f'subresource="{subresource}",scope="{scope}",component="apiserver"'
    )
    count = taken.pop("apiserver_request_total")
    assert count.labels == f'verb="{verb}",dry_run="",{place},code="201"'
    assert count.figures == [2.0]
    duration = taken.pop("apiserver_request_duration_seconds")
    assert duration.labels == f'verb="{verb}",dry_run="",{place}'
    assert sum(duration.figures[:-1]) == 2
    assert duration.figures[-1] >= 0.6
    if verb in ("GET", "LIST"):
        assert taken.pop("apiserver_response_sizes").labels == f'verb="{verb}",{place}'
    assert taken == {}


def test_a_client_can_invent_no_label() -> None:
    families.take_all()
    before = len(families.FAMILIES["apiserver_request_total"].series())
    for number in range(50):
        for path in (f"/x{number}/y", f"/api/v1/things{number}", f"/apis/g{number}/v1/pods"):
            metrics.observe(f"M{number}", path, routes.read(path), 404, time.perf_counter())
    assert len(families.FAMILIES["apiserver_request_total"].series()) - before <= 3
    families.take_all()


def test_the_most_requests_at_a_time_are_told() -> None:
    peak = metrics.apiserver.in_flight.of("readOnly")
    peak.read()
    before = peak.value
    for _ in range(3):
        metrics.begin("GET")
    for _ in range(3):
        metrics.end("GET")
    assert peak.read() == before + 3
    assert peak.read() == before
