"""A pod runs as ``default`` of its namespace unless it names another account."""

import pytest

from clusterstate.admission import admit
from clusterstate.admission.plugins.service_account import TOKENS_AT
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


@pytest.mark.parametrize(
    ("of_account", "of_pod", "is_mounted"),
    [
        (None, None, True), (None, True, True), (None, False, False),
        (True, None, True), (True, False, False),
        (False, None, False), (False, True, True), (False, False, False),
    ],
)  # fmt: skip
def test_a_switch_mounts_a_token_unless_the_pod_or_its_account_says_no(
    of_account, of_pod, is_mounted
):
    """The table of Kubernetes' conformance test of automounting."""
    account = {"metadata": {"name": "builder"}}
    if of_account is not None:
        account["automountServiceAccountToken"] = of_account
    spec = {"serviceAccountName": "builder"}
    if of_pod is not None:
        spec["automountServiceAccountToken"] = of_pod
    known = Known(service_account_tokens=True, service_accounts=(account,))
    admitted = create(pod(spec), known)
    assert not [one for one in admitted.warnings if "automount" in one]
    made = admitted.manifest["spec"]
    mounts = [one["mountPath"] for one in made["containers"][0].get("volumeMounts", ())]
    assert (TOKENS_AT in mounts) is bool(made.get("volumes")) is is_mounted


def test_a_token_is_mounted_where_there_is_nothing_else():
    own = {"name": "mine", "mountPath": TOKENS_AT}
    spec = {
        "initContainers": [{"name": "before", "image": "i"}],
        "containers": [{"name": "main", "image": "i", "volumeMounts": [own]}],
        "volumes": [{"name": "mine", "emptyDir": {}}],
    }
    made = create(pod(spec), Known(service_account_tokens=True)).manifest["spec"]
    assert made["containers"][0]["volumeMounts"] == [own]
    (mount,) = made["initContainers"][0]["volumeMounts"]
    first, second = made["volumes"]
    assert (first["name"], second["name"]) == ("mine", mount["name"])
    assert [next(iter(one)) for one in second["projected"]["sources"]] == [
        "serviceAccountToken", "configMap", "downwardAPI",
    ]  # fmt: skip
    again = create(pod(spec), Known(service_account_tokens=True)).manifest["spec"]
    assert again["volumes"] == made["volumes"], "pods that are alike stay so"
    mirror = pod({"nodeName": "n"}, annotations={"kubernetes.io/config.mirror": "x"})
    bare = create(mirror, Known(service_account_tokens=True)).manifest["spec"]
    assert "volumes" not in bare


def test_a_changed_pod_keeps_its_account_where_the_client_leaves_it_out():
    old = create(pod({"serviceAccountName": "builder"})).manifest
    old["metadata"]["resourceVersion"] = "1"
    new = {**old, "spec": {**old["spec"]}}
    del new["spec"]["serviceAccountName"], new["spec"]["serviceAccount"]
    changed = admit("Pod", UPDATE, new, old, "", Known(), NOBODY)
    assert accounts(changed.manifest) == ("builder", "builder")


def test_it_can_be_switched_off():
    assert accounts(create(pod(), Known(service_account=False)).manifest) == (None, None)
