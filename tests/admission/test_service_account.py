"""A pod runs as ``default`` of its namespace unless it names another account."""

import pytest

from clusterstate.admission import admit
from clusterstate.admission.request import NOBODY, UPDATE
from tests.admission.context import Known, create, pod


def accounts(manifest):
    spec = manifest["spec"]
    return spec.get("serviceAccountName"), spec.get("serviceAccount")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "default"),
        ({"serviceAccountName": ""}, "default"),
        ({"serviceAccountName": "builder"}, "builder"),
        ({"serviceAccount": "builder"}, "builder"),
        ({"serviceAccountName": "builder", "serviceAccount": "other"}, "builder"),
    ],
)
def test_both_fields_name_the_account(given, wanted):
    assert accounts(create(pod(given)).manifest) == (wanted, wanted)


def test_a_mirror_pod_gets_none():
    mirror = pod({"nodeName": "n"}, annotations={"kubernetes.io/config.mirror": "x"})
    assert accounts(create(mirror).manifest) == (None, None)


def test_no_volume_with_a_token_is_added():
    assert "volumes" not in create(pod()).manifest["spec"]


def test_a_changed_pod_keeps_its_account_where_the_client_leaves_it_out():
    old = create(pod({"serviceAccountName": "builder"})).manifest
    old["metadata"]["resourceVersion"] = "1"
    new = {**old, "spec": {**old["spec"]}}
    del new["spec"]["serviceAccountName"], new["spec"]["serviceAccount"]
    changed = admit("Pod", UPDATE, new, old, "", Known(), NOBODY)
    assert accounts(changed.manifest) == ("builder", "builder")


def test_it_can_be_switched_off():
    assert accounts(create(pod(), Known(service_account=False)).manifest) == (None, None)
