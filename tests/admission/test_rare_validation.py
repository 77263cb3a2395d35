"""What a manifest may be where few users go: refused, and told, as in Kubernetes 1.36."""

import types
import typing

import msgspec
import pytest

from clusterstate.admission.validation.core import (
    formats,
    metadata,
    nodes,
    options,
    storage,
)
from clusterstate.admission.validation.core.quotas import validate_resource_quota
from clusterstate.admission.validation.kinds import validate
from clusterstate.admission.validation.pods.spec_diff import fields, spec_diff
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import INTERNAL, INVALID
from tests.admission.context import pod, refusals

RDSRDE = "requiredDuringSchedulingRequiredDuringExecution"


# ------------------------------------------------------------------------------- attachments


@pytest.mark.parametrize(
    ("volume", "refused"),
    [
        ({}, {}),
        (
            {"capacity": {"storage": "1Gi"}, "storageClassName": "fast"},
            {
                ".capacity": "may not be specified in the context of inline volumes",
                ".storageClassName": "may not be specified in the context of inline volumes",
            },
        ),
        (
            {"csi": None, "accessModes": []},
            {
                ".accessModes": "",
                ".csi": "has to be specified in the context of inline volumes",
                "": "must specify a volume type",
            },
        ),
        (
            {"persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Block"},
            {
                ".persistentVolumeReclaimPolicy": "may only be Retain in the context of inline"
                " volumes",
                ".volumeMode": "may not specify volumeMode other than Filesystem in the context of"
                " inline volumes",
            },
        ),
        ({"csi": {"driver": "csi.example.org"}}, {".csi.volumeHandle": ""}),
    ],
)
def test_what_is_attached_without_a_volume_of_the_cluster(volume, refused):
    """pkg/apis/core/validation/validation.go (``ValidatePersistentVolumeSpec``), v1.36."""
    csi = {"driver": "csi.example.org", "volumeHandle": "v"}
    inline = {"csi": csi, "accessModes": ["ReadWriteOnce"], **volume}
    source = {"inlineVolumeSpec": {name: one for name, one in inline.items() if one is not None}}
    spec = {"attacher": "csi.example.org", "nodeName": "n", "source": source}
    found = storage.RULES["VolumeAttachment"]({"spec": spec}, None)
    at = "spec.source.inlineVolumeSpec"
    assert {one.field.removeprefix(at): one.detail for one in found} == refused


# ------------------------------------------------------------------------- names and addresses


def test_the_length_of_a_ports_name_is_told_in_bytes():
    port = {"name": "a" * 16, "containerPort": 80, "protocol": "TCP"}
    container = {"name": "c", "image": "i", "ports": [port]}
    assert refusals(pod({"containers": [container]})) == {
        "spec.containers[0].ports[0].name": "must be no more than 15 bytes"
    }


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("10.0.0.0/8", ""),
        ("010.0.0.1/8", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.1/08", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("::ffff:10.0.0.1/104", "must not have an IPv4-mapped IPv6 address"),
        ("::ffff:10.00.0.1/104", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
    ],
)
def test_of_an_ip_block_the_first_broken_rule_is_told(block, problem):
    assert formats.cidr(block, strict=True) == ((problem,) if problem else ())
    sloppy = () if problem.startswith("must not") else formats.cidr(block, strict=True)
    assert formats.cidr(block, strict=False) == sloppy


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("10.0.0.1", ""),
        ("10.00.0.1", "must not have leading 0s"),
        ("::ffff:10.00.0.1", "must not have leading 0s"),
        ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("10..0.1", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_of_an_ip_address_the_first_broken_rule_is_told(address, problem):
    assert formats.ip_address(address, strict=True) == ((problem,) if problem else ())


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        (["10.0.0.0/8", "2000::/10"], []),
        (["010.0.0.0/8", "2000::/10"], []),
        (["10.0.0.0/8", "010.0.0.0/8"], [INVALID]),
        (["10.0.0.0/8", "none"], [INVALID, INTERNAL, INVALID]),
    ],
)
def test_the_ip_blocks_of_a_node_are_of_both_families(blocks, told):
    node = {"metadata": {"name": "n"}, "spec": {"podCIDRs": blocks}}
    errors = nodes.validate_node(node, strict_ip_cidr=False)
    assert [error.type for error in errors] == told


# ------------------------------------------------------------------------- metadata


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}


@pytest.mark.parametrize(
    ("owners", "told"),
    [
        ([OWNER], []),
        (
            [{**OWNER, "controller": True}, {**OWNER, "kind": "Job", "controller": True}],
            [
                (
                    'Only one reference can have Controller set to true. Found "true" in '
                    "references for ReplicaSet/web and Job/web"
                )
            ],
        ),
        (
            [{**OWNER, "apiVersion": "v1", "kind": "Event"}],
            ["/v1, Kind=Event is disallowed from being an owner"],
        ),
        ([{**OWNER, "apiVersion": "a/b/v1"}], ["version must not be empty"]),
        (
            [{}],
            ["version must not be empty", *["must not be empty"] * 3],
        ),
    ],
)
def test_what_owners_are_refused(owners, told):
    meta = {"name": "n", "namespace": "default", "ownerReferences": owners}
    errors = metadata.validate_object_meta(meta, namespaced=True, name=formats.dns_subdomain)
    assert [error.detail for error in errors] == told


def test_finalizers_of_a_stored_object_are_only_asked_for_their_domain():
    """The API server has never looked closer at an update, so that such objects exist."""
    stored = {"name": "n", "resourceVersion": "1"}

    def told(*finalizers):
        new = {**stored, "finalizers": list(finalizers)}
        errors = metadata.validate_object_meta_update(new, stored)
        return [(error.field, error.detail) for error in errors]

    assert not told("example.com/keep", "orphan", "foregroundDeletion", "example.com/a b")
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    assert told("orphan", "keep") == [("metadata.finalizers[1]", detail)]


# ------------------------------------------------------------------------- volumes


BLOCK_DEVICE = {
    "hostUsers": False,
    "containers": [
        {"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
}


def test_a_pod_with_users_of_its_own_has_no_block_devices():
    refused = {"spec.containers[0].volumeDevices": "when `hostUsers` is false"}
    assert refusals(pod(BLOCK_DEVICE)) == refused
    assert not refusals(pod({**BLOCK_DEVICE, "hostUsers": True}))
    stored = pod({**BLOCK_DEVICE, "terminationGracePeriodSeconds": 30})
    assert options.tolerating(stored).allow_user_namespaces_with_volume_devices
    assert not options.tolerating(
        pod({"hostUsers": False})
    ).allow_user_namespaces_with_volume_devices


@pytest.mark.parametrize(
    "kind", ["Deployment", "Job", "CronJob", "PodTemplate", "ReplicationController"]
)
def test_an_image_volume_of_a_template_names_its_image(kind):
    """kubernetes#135989, v1.37 (validateImageVolumeSource); what is stored already may stay."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            **pod({"volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}]})["spec"],
            "restartPolicy": "Never" if "Job" in kind else "Always",
        },
    }  # fmt: skip
    spec = {"template": template, "selector": {"matchLabels": {"a": "b"}}}
    if kind == "ReplicationController":
        spec["selector"] = {"a": "b"}
    if kind == "Job":
        del spec["selector"]
    whole = {"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}
    if kind == "CronJob":
        job = {"spec": {"template": template}}
        whole["spec"] = {"schedule": "* * * * *", "jobTemplate": job, "concurrencyPolicy": "Allow"}
    if kind == "PodTemplate":
        whole = {"metadata": whole["metadata"], "template": template}
    found = [e.field for e in validate(kind, whole, None, "") if "volumes" in e.field]
    assert [one.removesuffix("volumes[0].image.reference") for one in found] == [
        {"CronJob": "spec.jobTemplate.spec.", "PodTemplate": ""}.get(kind, "spec.")
        + "template.spec."
    ]
    relabelled = {**whole, "metadata": {**whole["metadata"], "labels": {"c": "d"}}}
    assert not [e for e in validate(kind, relabelled, whole, "") if "volumes" in e.field]


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
def test_a_pod_with_users_of_its_own_shares_no_namespace_of_the_host(field):
    found = refusals(pod({"hostUsers": False, field: True}))
    assert list(found.values()) == ["when `hostUsers` is false"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"image": {"reference": "i:1"}}, {}),
        ({"image": {}}, {".image.reference": ""}),
        (
            {"image": {"reference": "i:1", "pullPolicy": "Sometimes"}},
            {".image.pullPolicy": 'supported values: "Always", "IfNotPresent", "Never"'},
        ),
        ({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}, {}),
        (
            {"csi": {"driver": "d", "nodePublishSecretRef": {}}},
            {".csi.nodePublishSecretRef.name": ""},
        ),
        ({"hostPath": {"path": "/a/../b"}}, {".hostPath.path": "must not contain '..'"}),
        ({"hostPath": {"path": "/a\\..\\b"}}, {}),
        ({"hostPath": {"type": "Fil"}}, {".hostPath.path": ""}),
        (
            {"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.x:y", "lun": 255}}, {},
        ),
        (
            {"iscsi": {"iqn": "", "lun": 256, "chapAuthSession": True}},
            {
                ".iscsi.targetPortal": "", ".iscsi.iqn": "", ".iscsi.secretRef": "",
                ".iscsi.lun": "must be between 0 and 255, inclusive",
            },
        ),
        (
            {"gcePersistentDisk": {"pdName": "d", "partition": 256}},
            {".persistentDisk.partition": "must be between 1 and 255, inclusive"},
        ),
        ({"gcePersistentDisk": {"pdName": "d", "partition": 0}}, {}),
        (
            {"azureDisk": {"diskURI": "/subscriptions/x", "kind": "Managed", "cachingMode": "No"}},
            {
                ".azureDisk.diskName": "",
                ".azureDisk.cachingMode": 'supported values: "None", "ReadOnly", "ReadWrite"',
            },
        ),
        (
            {"azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Shared"}},
            {
                ".azureDisk.diskURI": 'supported values: "https://{account-name}.blob.core'
                '.windows.net/{container-name}/{disk-name}.vhd"',
            },
        ),
        ({"cinder": {"secretRef": {}}}, {".cinder.volumeID": "", ".cinder.secretRef.name": ""}),
        ({"storageos": {"volumeName": "v", "secretRef": {}}}, {".storageos.secretRef.name": ""}),
        (
            {"nfs": {"server": "s", "path": "p"}}, {".nfs.path": "must be an absolute path"},
        ),
        (
            {"flexVolume": {"driver": "d", "options": {"kubernetes.io/x": "y"}}},
            {
                ".flexVolume.options[kubernetes.io/x]":
                "kubernetes.io and k8s.io namespaces are reserved",
            },
        ),
        (
            {"gitRepo": {"directory": "/x"}},
            {".gitRepo.repository": "", ".gitRepo.directory": "must be a relative path"},
        ),
    ],
)  # fmt: skip
def test_volumes_are_checked_like_the_api_servers(source, told):
    found = refusals(pod({"volumes": [{"name": "v", **source}]}))
    assert found == {f"spec.volumes[0]{field}": detail for field, detail in told.items()}


@pytest.mark.parametrize("field", ["timeoutSeconds", "failureThreshold"])
def test_the_times_of_a_probe_are_not_below_zero(field):
    def told(value):
        probe = {"exec": {"command": ["true"]}, field: value}
        return refusals(pod({"containers": [{"name": "c", "image": "i", "livenessProbe": probe}]}))

    at = f"spec.containers[0].livenessProbe.{field}"
    assert told(-1) == {at: "must be greater than or equal to 0"}
    assert told(1) == {}


# ------------------------------------------------------------------------- the diff of specs


def test_a_volume_beside_a_change_is_shown_in_its_internal_form():
    def spec(user):
        volume = {"name": "v", "nfs": {"path": "/", "server": user, "readOnly": True}}
        return {"volumes": [volume], "containers": [{"name": "c"}]}

    lines = spec_diff(spec("a"), spec("b")).split("\n")
    assert lines[4:7] == ['-    "Server": "a",', '+    "Server": "b",', '     "Path": "/",']
    assert '     "ReadOnly": true' in lines


def test_a_label_selector_is_shown_in_one_order_however_it_was_written():
    one = {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": []}
    other = {"matchExpressions": None, "matchLabels": {"a": "2", "b": "1"}}
    specs = [{"topologySpreadConstraints": [{"labelSelector": each}]} for each in (one, other)]
    assert not spec_diff(*specs)


def test_an_amount_is_shown_in_its_usual_form_and_an_empty_list_as_one():
    def spec(limit):
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
        volume = {"name": "v", "emptyDir": {"sizeLimit": limit}}
        return {"volumes": [volume], "affinity": {"nodeAffinity": terms}}

    assert not spec_diff(spec("1024Mi"), spec("1Gi"))
    lines = spec_diff(spec("1Gi"), {"volumes": spec("2048Mi")["volumes"]}).split("\n")
    assert '+    "SizeLimit": "2Gi"' in lines
    assert '-    "NodeSelectorTerms": []' in lines


# Members of later versions, and those that the internal form has elsewhere or not at all.
ELSEWHERE = {
    "PodSpec": {"hostIPC", "hostNetwork", "hostPID", "hostUsers", "serviceAccount",
                "shareProcessNamespace", "evictionResponders"},
    "NodeAffinity": {RDSRDE},
    "PreferredSchedulingTerm": {"matchExpressions", "matchFields"},
    "HTTPGetAction": {"protocol"}, "GRPCAction": {"mode"}, "VolumeMount": {"bindMountOptions"},
    "EmptyDirVolumeSource": {"mode"}, "PersistentVolumeClaimTemplate": {"metadata"},
}  # fmt: skip
OF_LATER_VERSIONS = {"defaultUser", "user"}  # of the files of a volume


def _struct(of):
    """Return the struct that a wire type holds, and whether in a list; None if it holds none."""
    if typing.get_origin(of) is list:
        return _struct(typing.get_args(of)[0])
    if isinstance(of, types.UnionType):
        found = [_struct(each) for each in typing.get_args(of)]
        return next((each for each in found if each is not None), None)
    return of if isinstance(of, type) and issubclass(of, msgspec.Struct) else None


def test_the_diff_knows_every_member_of_a_pod_spec():
    waiting, seen = [(wire_types.PodSpec, "PodSpec")], set()
    while waiting:
        wire, shown = waiting.pop()
        if (wire, shown) in seen:
            continue
        seen.add((wire, shown))
        known = fields(shown)
        files = set() if wire.__name__ in ("RBDVolumeSource", "CephFSVolumeSource",
                                           "QuobyteVolumeSource", "SELinuxOptions") \
            else OF_LATER_VERSIONS  # fmt: skip
        for member in msgspec.structs.fields(wire):
            if member.encode_name in ELSEWHERE.get(wire.__name__, set()) | files:
                continue
            assert member.encode_name in known, f"{wire.__name__}.{member.encode_name}"
            inner = _struct(member.type)
            if inner is not None:
                waiting.append((inner, known[member.encode_name]))
    assert len(seen) > 80


def test_a_quota_keeps_an_amount_that_no_new_one_could_have():
    """pkg/apis/core/validation/validation.go ``ValidateResourceQuotaUpdate``, v1.38 (#142190)."""

    def quota(**hard):
        return {"metadata": {"name": "q"}, "spec": {"hard": hard}}

    def told(new, old):
        return [one.field for one in validate_resource_quota(new, old)]

    old = quota(pods="1500m")
    assert told(old, None) == ["spec.hard[pods]"]
    assert told(quota(pods="1500m", services="1"), old) == []
    assert told(quota(pods="2500m"), old) == ["spec.hard[pods]"]
