"""What pods the agent of a node may make, and what it may say of them (NodeRestriction)."""

import pytest

from clusterstate.admission import CREATE, UPDATE, User
from clusterstate.admission.plugins import node_restriction
from clusterstate.admission.plugins.node_restriction import api_object_reference
from clusterstate.admission.request import Request
from clusterstate.objects.values.errors import Forbidden
from tests.admission.context import Known, pod

AGENT = User(name="system:node:n1", groups=("system:nodes", "system:authenticated"))


def _request(operation, manifest, old=None):
    return Request(
        kind="Pod",
        operation=operation,
        manifest=manifest,
        old=old,
        subresource="" if old is None else "status",
        namespace="default",
        name="p",
        user=AGENT,
        context=Known(nodes=({"metadata": {"name": "n1", "uid": "u1"}},)),
    )


def _mirror_pod(**spec):
    manifest = pod({"nodeName": "n1", "containers": [], **spec})
    manifest["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "1"}
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
    ]
    return manifest


def _volume(**source):
    return {"volumes": [{"name": "v", **source}]}


def _projected(**source):
    return _volume(projected={"sources": [{"downwardAPI": {}}, source]})


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"serviceAccountName": "s"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        (_volume(secret={"secretName": "s"}), "secrets"),
        (_volume(azureFile={"shareName": "s"}), "secrets (via azureFile volumes)"),
        (_volume(iscsi={"secretRef": {"name": "s"}}), "secrets"),
        (_volume(configMap={"name": "c"}), "configmaps"),
        ({**_volume(csi={"driver": "d"}), "resourceClaims": [{"name": "c"}]}, "resourceclaims"),
        (_volume(csi={"driver": "d"}), "csidrivers (via CSI volumes)"),
        (_volume(glusterfs={"endpoints": "e"}), "endpoints (via glusterFS volumes)"),
        (_volume(persistentVolumeClaim={"claimName": "c"}), "persistentvolumeclaims"),
        (_volume(ephemeral={}), "persistentvolumeclaims (via ephemeral volumes)"),
        (_projected(serviceAccountToken={"path": "p"}), "serviceaccounts (via projected volumes)"),
        (_projected(clusterTrustBundle={"path": "p"}), "clustertrustbundles"),
        (_projected(podCertificate={}), "podcertificates"),
        (_volume(hostPath={"path": "/"}), None),
        (_volume(image={"reference": "i"}), None),
        (_projected(downwardAPI={}), None),
    ],
)  # fmt: skip
def test_a_node_makes_no_pod_that_needs_an_object_of_the_api(spec, told):
    """C10: the node could read, through such a pod, what it may not read itself."""
    assert api_object_reference(spec) == told
    request = _request(CREATE, _mirror_pod(**spec))
    if told is None:
        node_restriction.admit(request)
    else:
        with pytest.raises(Forbidden) as refused:
            node_restriction.admit(request)
        text = f'node "n1" can not create pods that reference {told}'
        assert str(refused.value).endswith(text)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (_volume(newDisk={}), 'unknown volume type for volume  "v"'),
        (_projected(newSource={}), 'unknown source for projected volume "v"'),
    ],
)
def test_a_node_makes_no_pod_with_a_volume_of_an_unknown_kind(spec, told):
    request = _request(CREATE, _mirror_pod(**spec))
    with pytest.raises(Forbidden) as refused:
        node_restriction.admit(request)
    assert str(refused.value).endswith(f"error checking mirror pod for API references: {told}")


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
    ],
)
def test_a_node_may_not_say_which_claims_a_pod_uses(field, told):
    old = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n1"}}
    new = {**old, "status": {field: [{"name": "c"}]}}
    request = _request(UPDATE, new, old)
    with pytest.raises(Forbidden) as refused:
        node_restriction.admit(request)
    assert str(refused.value).endswith(f'node "n1" cannot update {told}')


@pytest.mark.parametrize(
    "labels", [{"app": "b"}, {}, {"app": "a", "more": ""}], ids=["changed", "removed", "added"]
)
def test_a_node_changes_no_labels_of_its_pods_by_their_status(labels):
    """Whoever selects them would take them for others: a Service, a spread, an anti-affinity."""
    metadata = {"name": "p", "namespace": "default", "labels": {"app": "a"}}
    old = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {}}
    new = {**old, "metadata": {**metadata, "labels": labels}, "status": {"phase": "Running"}}
    with pytest.raises(Forbidden) as refused:
        node_restriction.admit(_request(UPDATE, new, old))
    assert str(refused.value).endswith('node "n1" cannot update labels through pod status')
    node_restriction.admit(_request(UPDATE, {**new, "metadata": metadata}, old))
