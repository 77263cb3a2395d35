"""Volumes of a pod. Stowage mounts nothing, but checks them as an API server does.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

import re
from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Check,
    Errors,
    all_of,
    between,
    duplicate,
    each,
    forbidden,
    formed,
    invalid,
    invalid_each,
    needs,
    not_supported,
    one_of,
    optional,
    require_form,
    required,
    required_one_of,
    too_long,
    words,
)
from clusterstate.admission.validation.core.metadata import validate_annotations, validate_labels
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.pod_context import PULL_POLICIES
from clusterstate.admission.validation.core.resources import parse
from clusterstate.admission.validation.core.storage import validate_claim_spec
from clusterstate.admission.validation.kubelet.mounts import (
    validate_local_descending_path,
    validate_no_backsteps,
)
from clusterstate.admission.validation.kubelet.projected_volumes import validate_projected
from clusterstate.admission.validation.kubelet.volume_files import (
    validate_downward_file,
    validate_key_to_path,
    validate_mode,
)
from clusterstate.objects.values.meta import Manifest

_ONE_TYPE: Final = "may not specify more than 1 volume type"
_SOURCES: Final = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
# Upstream spells some paths unlike their fields.
_SHOWN_WHEN_SECOND: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_SHOWN: Final = {"gcePersistentDisk": "persistentDisk"}


def validate_volumes(
    volumes: list[Manifest], path: str, options: PodOptions, pod_name: str
) -> tuple[dict[str, Manifest], Errors]:
    """Return the valid volumes by name, and the errors in the others.

    ``pod_name`` is empty for templates; it begins the names of generic ephemeral volumes' claims.
    """
    errors: Errors = []
    valid: dict[str, Manifest] = {}
    created: set[str] = set()
    if pod_name:
        created = {f"{pod_name}-{v.get('name', '')}" for v in volumes if "ephemeral" in v}
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        name = volume.get("name") or ""
        own = _source(volume, where, options, pod_name)
        if not name:
            own.append(required(f"{where}.name"))
        elif problems := formats.dns_label(name):
            own += invalid_each(f"{where}.name", name, problems)
        if name in valid:
            own.append(duplicate(f"{where}.name", name))
        if own:
            errors += own
        else:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, detail))
    return valid, errors


def _source(volume: Manifest, path: str, options: PodOptions, pod_name: str) -> Errors:
    errors: Errors = []
    count = 0
    name = volume.get("name") or ""
    for kind in _SOURCES:
        source = volume.get(kind)
        if source is None:
            continue
        if count:
            at = f"{path}.{_SHOWN_WHEN_SECOND.get(kind, kind)}"
            errors.append(forbidden(at, _ONE_TYPE))
            continue
        count += 1
        at = f"{path}.{_SHOWN.get(kind, kind)}"
        if kind == "projected":
            errors += validate_projected(source, at, options)
        elif kind == "image":
            errors += _image(source, at, options)
        elif kind == "ephemeral":
            errors += _ephemeral(source, at)
            if pod_name and name:
                claim = f"{pod_name}-{name}"
                errors += [
                    invalid(f"{path}.name", name, f'PVC name "{claim}": {problem}')
                    for problem in formats.dns_subdomain(claim)
                ]
        elif kind in _CHECKS:
            errors += _CHECKS[kind](source, at)
    iscsi = volume.get("iscsi") or {}
    if iscsi.get("initiatorName") and len(f"{name}:{iscsi.get('targetPortal', '')}") > 64:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
            "iscsi.initiatorName is specified."
        )
        errors.append(invalid(f"{path}.name", name, detail))
    if not count:
        errors.append(required(path, "must specify a volume type"))
    return errors


_BYTE: Final = between(0, 255)
_PARTITION: Final = optional("partition", between(0, 255, shown=1))
_NAMED_SECRET: Final = optional("secretRef", needs("name"))


def _size_limit(limit: Any, path: str) -> Errors:
    quantity = parse(limit)
    if quantity is None or quantity.sign < 0:
        return [forbidden(path, "SizeLimit field must be a valid resource quantity")]
    return []


_HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
)  # fmt: skip


def _host_path(source: Manifest, path: str) -> Errors:
    if not source.get("path"):
        return [required(f"{path}.path")]
    errors = validate_no_backsteps(source["path"], f"{path}.path")
    return errors + one_of(source.get("type"), f"{path}.type", _HOST_PATH_TYPES)


def _files(source: Manifest, path: str) -> Errors:
    errors = validate_mode(source, "defaultMode", path)
    return errors + each(source.get("items"), f"{path}.items", validate_key_to_path)


def _absolute(source: Manifest, path: str) -> Errors:
    if (source.get("path") or "").startswith("/"):
        return []
    return [invalid(f"{path}.path", source.get("path"), "must be an absolute path")]


_ISCSI_FORMS: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}$"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}$"),
}


def _iscsi_name(name: str, path: str) -> Errors:
    form = _ISCSI_FORMS.get(name[:3])
    if form is None:
        detail = "must be valid format starting with iqn, eui, or naa"
        return [invalid(path, name, detail)]
    return [] if form.search(name) else [invalid(path, name, "must be valid format")]


def _iscsi_target(source: Manifest, path: str) -> Errors:
    name = source.get("iqn")
    return _iscsi_name(name, f"{path}.iqn") if name else [required(f"{path}.iqn")]


def _iscsi_initiator(source: Manifest, path: str) -> Errors:
    errors: Errors = []
    chap = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if chap and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))
    if (initiator := source.get("initiatorName")) is not None:
        errors += _iscsi_name(initiator, f"{path}.initiatorname")
    return errors


def _fibre_channel(source: Manifest, path: str) -> Errors:
    names, ids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    at = f"{path}.targetWWNs"
    if not names and not ids:
        return [required(at, "must specify either targetWWNs or wwids, but not both")]
    errors: Errors = []
    if names and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid(at, names, detail))
    if names:
        if lun is None:
            errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        else:
            errors += _BYTE(lun, f"{path}.lun")
    return errors


def _flocker(source: Manifest, path: str) -> Errors:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    errors: Errors = []
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid(path, "resource", detail))
    if "/" in name:
        errors.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))
    return errors


def _quobyte(source: Manifest, path: str) -> Errors:
    registry = source.get("registry") or ""
    detail = "must be a host:port pair or multiple pairs separated by commas"
    errors: Errors = []
    if not registry:
        errors.append(required(f"{path}.registry", detail))
    elif len(source.get("tenant") or "") >= 65:
        tenant = "must be a UUID and may not exceed a length of 64 characters"
        errors.append(required(f"{path}.tenant", tenant))
    else:
        for pair in registry.split(","):
            if pair.count(":") != 1:
                errors.append(invalid(f"{path}.registry", registry, detail))
    return errors


def _downward_api(source: Manifest, path: str) -> Errors:
    errors = validate_mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        errors += validate_downward_file(item, path)
    return errors


def _flex_options(options: dict[str, str], path: str) -> Errors:
    errors: Errors = []
    for key in options:
        namespace = "." + key.partition("/")[0].lower()
        if namespace.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid(f"{path}[{key}]", key, detail))
    return errors


_MANAGED_DISK: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}"
    "/providers/microsoft.compute/disks/{disk-id}"
)
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def _disk_uri(source: Manifest, path: str) -> Errors:
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        return [not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,))]
    if kind not in (None, "Managed") and not uri.startswith("https://"):
        return [not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,))]
    return []


def _storage_os_name(source: Manifest, path: str) -> Errors:
    return require_form(source.get("volumeName"), f"{path}.volumeName", formats.dns_label)


def _csi(source: Manifest, path: str) -> Errors:
    driver = source.get("driver") or ""
    errors: Errors = []
    if not driver:
        errors.append(required(f"{path}.driver"))
    if len(driver) > 63:
        errors.append(too_long(f"{path}.driver", driver, 63))
    errors += invalid_each(f"{path}.driver", driver, formats.dns_subdomain(driver.lower()))
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        name = secret.get("name") or ""
        if not name:
            errors.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            # The path is upstream's.
            errors += invalid_each(f"{path}.name", name, formats.dns_subdomain(name))
    return errors


def _image(source: Manifest, path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    if not options.allow_empty_image_reference and not source.get("reference"):
        errors.append(required(f"{path}.reference"))
    policy = source.get("pullPolicy") or ""
    errors += required_one_of(policy, f"{path}.pullPolicy", PULL_POLICIES)
    return errors


def _ephemeral(source: Manifest, path: str) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    path = f"{path}.volumeClaimTemplate"
    metadata = template.get("metadata") or {}
    errors = validate_annotations(metadata.get("annotations") or {}, f"{path}.metadata.annotations")
    errors += validate_labels(metadata.get("labels") or {}, f"{path}.metadata.labels")
    errors += [
        forbidden(f"{path}.metadata.{name}", "cannot be set")
        for name, value in metadata.items()
        if value and name not in ("annotations", "labels")
    ]
    return errors + validate_claim_spec(template.get("spec") or {}, f"{path}.spec")


_CHECKS: Final[dict[str, Check]] = {
    "emptyDir": optional("sizeLimit", _size_limit),
    "hostPath": _host_path,
    "gitRepo": all_of(needs("repository"), optional("directory", validate_local_descending_path)),
    "gcePersistentDisk": all_of(needs("pdName"), _PARTITION),
    "awsElasticBlockStore": all_of(needs("volumeID"), _PARTITION),
    "secret": all_of(needs("secretName"), _files),
    "configMap": all_of(needs("name"), _files),
    "nfs": all_of(needs("server", "path"), _absolute),
    "iscsi": all_of(needs("targetPortal"), _iscsi_target, optional("lun", _BYTE), _iscsi_initiator),
    "glusterfs": needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": needs("claimName"),
    "rbd": needs("monitors", "image"),
    "cinder": all_of(needs("volumeID"), _NAMED_SECRET),
    "cephfs": needs("monitors"),
    "quobyte": all_of(_quobyte, needs("volume")),
    "downwardAPI": _downward_api,
    "fc": _fibre_channel,
    "flexVolume": all_of(needs("driver"), optional("options", _flex_options)),
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": all_of(
        needs("diskName", "diskURI"),
        optional("cachingMode", words("None", "ReadOnly", "ReadWrite")),
        optional("kind", words("Dedicated", "Managed", "Shared")),
        _disk_uri,
    ),
    "storageos": all_of(
        _storage_os_name, optional("volumeNamespace", formed(formats.dns_label)), _NAMED_SECRET
    ),
    "scaleIO": needs("gateway", "system", "volumeName"),
    "csi": _csi,
}
"""The check of each volume source: a function of the source and its path."""
