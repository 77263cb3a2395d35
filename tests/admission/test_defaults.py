"""API defaults."""

import pytest

from clusterstate.admission.defaults import pull_policy, set_defaults
from clusterstate.objects.values.errors import Invalid
from tests.admission.context import create, pod


def _container(**fields):
    return {"name": "main", "image": "nginx:1.25", **fields}


def test_requests_default_to_limits():
    """R143, C15: limits alone are requests too."""
    resources = {"limits": {"cpu": "500m", "memory": "100Mi"}, "requests": {"cpu": "100m"}}
    admitted = create(pod({"containers": [_container(resources=resources)]})).manifest
    assert admitted["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "100m",
        "memory": "100Mi",
    }


def test_pod_level_requests_default_to_those_of_the_containers():
    containers = [_container(resources={"requests": {"cpu": "100m", "memory": "64Mi"}})]
    manifest = pod({"containers": containers, "resources": {"limits": {"cpu": "1"}}})
    assert create(manifest).manifest["spec"]["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {"cpu": "100m", "memory": "64Mi"},
    }


@pytest.mark.parametrize(
    ("stated", "stored"),
    [
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
        (
            {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}},
            {
                "requests": {"cpu": "2", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"},
            },
        ),
    ],
    ids=["requests-alone", "limits-too"],
)
def test_a_pods_own_requests_are_filled_in_where_it_has_limits(stated, stored):
    """What it does not state counts as the containers' sum all the same."""
    huge = {"hugepages-2Mi": "4Mi"} if "limits" in stated else {}
    resources = {"requests": {"memory": "64Mi", **huge}, "limits": huge}
    manifest = pod({"containers": [_container(resources=resources)], "resources": stated})
    assert create(manifest).manifest["spec"]["resources"] == stored


def test_a_pods_own_request_of_huge_pages_does_not_become_a_limit():
    """Which limit it means is not guessed: the request is refused without one."""
    containers = [_container(resources={"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}})]
    own = {"requests": {"hugepages-2Mi": "4Mi", "cpu": "1"}}
    with pytest.raises(Invalid) as refused:
        create(pod({"containers": containers, "resources": own}))
    assert [error.field for error in refused.value.errors] == ["spec.resources.limits"]


def test_a_nameless_volume_is_an_empty_directory_too():
    with pytest.raises(Invalid) as refused:
        create(pod({"containers": [_container()], "volumes": [{}]}))
    assert [error.field for error in refused.value.errors] == ["spec.volumes[0].name"]


def test_a_pod_in_the_hosts_network_takes_host_ports():
    containers = [_container(ports=[{"containerPort": 80}])]
    admitted = create(pod({"hostNetwork": True, "containers": containers})).manifest
    assert admitted["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


def test_a_template_does_not_get_what_pods_alone_get():
    deployment = {"spec": {"template": {"spec": {"containers": [_container()]}}}}
    set_defaults("Deployment", deployment)
    spec = deployment["spec"]["template"]["spec"]
    assert spec["restartPolicy"] == "Always"
    assert "enableServiceLinks" not in spec


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("registry.example.com:5000/team/app", "Always"),
        ("registry.example.com:5000/team/app:v1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        ("nginx:latest@sha256:" + "a" * 64, "Always"),
        ("", "IfNotPresent"),
        ("Not An Image", "IfNotPresent"),
    ],
)
def test_the_tag_decides_the_pull_policy(image, policy):
    assert pull_policy(image) == policy


def test_preferred_terms_of_the_first_design_are_read():
    """R19, C2: requirements beside the weight become a preference."""
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {rule: [{"weight": 1, "matchExpressions": [expression]}]}}
    admitted = create(pod({"affinity": affinity})).manifest
    assert admitted["spec"]["affinity"]["nodeAffinity"][rule] == [
        {"weight": 1, "preference": {"matchExpressions": [expression]}}
    ]


def test_only_one_form_of_a_preferred_term_may_be_used():
    """R19, C2: of both, one would be ignored."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    both = {"nodeAffinity": {rule: [{"weight": 1, "preference": term, **term}]}}
    with pytest.raises(Invalid) as refused:
        create(pod({"affinity": both}))
    (error,) = refused.value.errors
    assert error.field == f"spec.affinity.nodeAffinity.{rule}[0].matchExpressions"


def test_node_selector_and_affinity_stay_apart():
    """R22: neither is written into the other."""
    required = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    }
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {rule: required}}
    asked = {"nodeSelector": {"disk": "ssd"}, "affinity": affinity}
    for given in (asked, {"nodeSelector": {"disk": "ssd"}}, {"affinity": affinity}):
        spec = create(pod(given)).manifest["spec"]
        assert {name: spec[name] for name in asked if name in spec} == given


def test_nothing_is_invented_for_affinity():
    """R23."""
    spec = create(pod()).manifest["spec"]
    assert not {"affinity", "nodeSelector", "topologySpreadConstraints", "overhead"} & spec.keys()


def test_a_node_hands_out_what_it_has():
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
    admitted = create(node, kind="Node").manifest
    assert admitted["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize(
    ("kind", "field", "usual"),
    [
        ("Deployment", "strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
        ("DaemonSet", "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
        ("StatefulSet", "updateStrategy", {"partition": 0}),
    ],
)
def test_pods_of_workloads_are_replaced_some_at_a_time(kind, field, usual):
    def filled(strategy):
        manifest = {"spec": {field: strategy}}
        set_defaults(kind, manifest)
        return manifest["spec"][field]

    name, other = next(iter(usual)), {"type": "OnDelete"}
    assert filled({}) == {"type": "RollingUpdate", "rollingUpdate": usual}
    assert filled({"rollingUpdate": {name: 3}})["rollingUpdate"] == usual | {name: 3}
    assert filled(dict(other)) == other


def test_a_volume_has_what_its_source_does_not_say():
    disk = {"diskName": "d", "kind": "Managed"}
    manifest = {"spec": {"volumes": [{"name": "v", "azureDisk": disk}, {"name": "w", "rbd": {}}]}}
    set_defaults("Pod", manifest)
    assert disk == {
        "diskName": "d", "kind": "Managed", "cachingMode": "ReadWrite", "fsType": "ext4",
        "readOnly": False,
    }  # fmt: skip
    rbd = manifest["spec"]["volumes"][1]["rbd"]
    assert rbd == {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}


def test_a_namespace_is_labelled_with_its_name():
    admitted = create({"metadata": {"name": "team"}}, kind="Namespace").manifest
    assert admitted["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert admitted["status"] == {"phase": "Active"}


@pytest.mark.parametrize(
    ("written", "rounded"),
    [("100u", "1m"), ("1n", "1m"), ("1500u", "2m"), ("0.0001", "1m"), ("1.5Gi", "1536Mi"),
     ("1e-4", "1e-3"), ("5E-10", "1e-3"), (1e-05, "1e-3"), ("15e-4", "2e-3"), ("1e3", "1e3"),
     (0.25, "250m"), ("7m", "7m"), (3, "3")],
)  # fmt: skip
def test_amounts_finer_than_a_thousandth_are_rounded_up(written, rounded):
    resources = {"requests": {"cpu": written}}
    admitted = create(pod({"containers": [_container(resources=resources)]})).manifest
    assert admitted["spec"]["containers"][0]["resources"]["requests"] == {"cpu": rounded}


_FINE, _ROUNDED = {"storage": "1.00001", "cpu": "1u"}, {"storage": "1001m", "cpu": "1m"}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("LimitRange", ("spec", "limits", 0, "max")),
        ("LimitRange", ("spec", "limits", 0, "maxLimitRequestRatio")),
        ("PersistentVolume", ("spec", "capacity")),
        ("PersistentVolumeClaim", ("spec", "resources", "requests")),
        ("PersistentVolumeClaim", ("status", "capacity")),
        ("ResourceQuota", ("spec", "hard")),
        ("ResourceQuota", ("status", "used")),
        ("StatefulSet", ("spec", "volumeClaimTemplates", 0, "spec", "resources", "limits")),
        (
            "Pod",
            (
                "spec",
                "volumes",
                0,
                "ephemeral",
                "volumeClaimTemplate",
                "spec",
                "resources",
                "limits",
            ),
        ),
    ],
)
def test_amounts_are_rounded_up_in_every_kind(kind, path):
    """Rule: the generated ``zz_generated.defaults.go`` of core/v1 and apps/v1, v1.36."""
    manifest = dict(_FINE)
    for step in reversed(path):
        manifest = [manifest] if step == 0 else {step: manifest}
    set_defaults(kind, manifest)
    found = manifest
    for step in path:
        found = found[step]
    assert found == _ROUNDED


def test_the_claims_of_a_stateful_set_are_filled_in():
    """Rule: apps/v1 ``zz_generated.defaults.go`` and ``conversion.go``, v1.36."""
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    manifest = {"spec": {"volumeClaimTemplates": [claim]}}
    set_defaults("StatefulSet", manifest)
    assert manifest["spec"]["volumeClaimTemplates"] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
            "status": {"phase": "Pending"},
        }
    ]


def test_a_limit_range_gets_no_empty_defaults():
    """Rule: ``SetDefaults_LimitRangeItem`` makes empty maps, which JSON leaves out, v1.36."""
    item = {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}
    manifest = {"spec": {"limits": [dict(item)]}}
    set_defaults("LimitRange", manifest)
    assert manifest["spec"]["limits"] == [item]
