"""Volumes of a pod. Stowage mounts nothing; it refuses what an API server would refuse.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from clusterstate.admission.validation import formats
from clusterstate.admission.validation.containers import (
    VOLUME_FIELDS,
    validate_field_ref,
    validate_local_descending_path,
    validate_no_backsteps,
    validate_resource_field_ref,
)
from clusterstate.admission.validation.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from clusterstate.admission.validation.metadata import (
    TOTAL_ANNOTATION_BYTES,
    validate_label_selector,
)
from clusterstate.admission.validation.options import PodOptions
from clusterstate.admission.validation.resources import parse
from clusterstate.admission.validation.storage import validate_claim_spec
from clusterstate.objects.meta import Manifest

_FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
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
    """Return the valid volumes by name, and what is wrong with the others.

    ``pod_name`` is empty for templates; claims of generic ephemeral volumes are named after it.
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
            errors += _projected(source, at, options)
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


# Sources --------------------------------------------------------------------------------------


def _needs(*fields: str) -> Callable[[Manifest, str], Errors]:
    """Return a check for the presence of ``fields``."""

    def check(source: Manifest, path: str) -> Errors:
        return [required(f"{path}.{field}") for field in fields if not source.get(field)]

    return check


def _empty_dir(source: Manifest, path: str) -> Errors:
    limit = source.get("sizeLimit")
    quantity = parse(limit) if limit is not None else None
    if limit is not None and (quantity is None or quantity.sign < 0):
        detail = "SizeLimit field must be a valid resource quantity"
        return [forbidden(f"{path}.sizeLimit", detail)]
    return []


_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def _host_path(source: Manifest, path: str) -> Errors:
    if not source.get("path"):
        return [required(f"{path}.path")]
    errors = validate_no_backsteps(source["path"], f"{path}.path")
    type_ = source.get("type")
    if type_ is not None and type_ not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", type_, _HOST_PATH_TYPES))
    return errors


def _git_repo(source: Manifest, path: str) -> Errors:
    errors = _needs("repository")(source, path)
    return errors + validate_local_descending_path(
        source.get("directory") or "", f"{path}.directory"
    )


def _partitioned(name: str) -> Callable[[Manifest, str], Errors]:
    def check(source: Manifest, path: str) -> Errors:
        errors = _needs(name)(source, path)
        partition = source.get("partition") or 0
        if not 0 <= partition <= 255:
            detail = formats.range_problem(1, 255)
            errors.append(invalid(f"{path}.partition", partition, detail))
        return errors

    return check


def _mode(source: Manifest, field: str, path: str) -> Errors:
    mode = source.get(field)
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(f"{path}.{field}", mode, _FILE_MODE)]


def _keyed(name: str) -> Callable[[Manifest, str], Errors]:
    def check(source: Manifest, path: str) -> Errors:
        errors = _needs(name)(source, path) + _mode(source, "defaultMode", path)
        for index, item in enumerate(source.get("items") or ()):
            errors += _key_to_path(item, f"{path}.items[{index}]")
        return errors

    return check


def _key_to_path(item: Manifest, path: str) -> Errors:
    errors = _needs("key", "path")(item, path)
    errors += _non_reserved_path(item.get("path") or "", f"{path}.path")
    return errors + _mode(item, "mode", path)


def _non_reserved_path(text: str, path: str) -> Errors:
    errors = validate_local_descending_path(text, path)
    # A leading '..' is how the kubelet's atomic writer names its own entries.
    if text.startswith("..") and not text.startswith("../"):
        errors.append(invalid(path, text, "must not start with '..'"))
    return errors


def _nfs(source: Manifest, path: str) -> Errors:
    errors = _needs("server", "path")(source, path)
    if not (source.get("path") or "").startswith("/"):
        errors.append(invalid(f"{path}.path", source.get("path"), "must be an absolute path"))
    return errors


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


def _iscsi(source: Manifest, path: str) -> Errors:
    errors = _needs("targetPortal")(source, path)
    if not source.get("iqn"):
        errors.append(required(f"{path}.iqn"))
    else:
        errors += _iscsi_name(source["iqn"], f"{path}.iqn")
    lun = source.get("lun") or 0
    if not 0 <= lun <= 255:
        errors.append(invalid(f"{path}.lun", lun, formats.range_problem(0, 255)))
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
        elif not 0 <= lun <= 255:
            errors.append(invalid(f"{path}.lun", lun, formats.range_problem(0, 255)))
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
    return errors + _needs("volume")(source, path)


def _downward_api(source: Manifest, path: str) -> Errors:
    errors = _mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        errors += _downward_file(item, path)
    return errors


def _downward_file(item: Manifest, path: str) -> Errors:
    errors = _needs("path")(item, path)
    errors += _non_reserved_path(item.get("path") or "", f"{path}.path")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        errors += validate_field_ref(field, VOLUME_FIELDS, f"{path}.fieldRef")
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid(path, "resource", detail))
    elif resource is not None:
        errors += validate_resource_field_ref(resource, f"{path}.resourceFieldRef", volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + _mode(item, "mode", path)


def _cinder(source: Manifest, path: str) -> Errors:
    errors = _needs("volumeID")(source, path)
    if source.get("secretRef") is not None and not source["secretRef"].get("name"):
        errors.append(required(f"{path}.secretRef.name"))
    return errors


def _flex_volume(source: Manifest, path: str) -> Errors:
    errors = _needs("driver")(source, path)
    for key in source.get("options") or ():
        namespace = "." + key.partition("/")[0].lower()
        if namespace.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid(f"{path}.options[{key}]", key, detail))
    return errors


def _azure_file(source: Manifest, path: str) -> Errors:
    return _needs("secretName", "shareName")(source, path)


_MANAGED_DISK: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}"
    "/providers/microsoft.compute/disks/{disk-id}"
)
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def _azure_disk(source: Manifest, path: str) -> Errors:
    errors = _needs("diskName", "diskURI")(source, path)
    caching = source.get("cachingMode")
    if caching is not None and caching not in ("None", "ReadOnly", "ReadWrite"):
        supported = ("None", "ReadOnly", "ReadWrite")
        errors.append(not_supported(f"{path}.cachingMode", caching, supported))
    kind = source.get("kind")
    if kind is None:
        return errors
    if kind not in ("Dedicated", "Managed", "Shared"):
        supported = ("Dedicated", "Managed", "Shared")
        errors.append(not_supported(f"{path}.kind", kind, supported))
    uri = source.get("diskURI") or ""
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,)))
    elif kind != "Managed" and not uri.startswith("https://"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,)))
    return errors


def _storage_os(source: Manifest, path: str) -> Errors:
    name, namespace = source.get("volumeName") or "", source.get("volumeNamespace") or ""
    errors: Errors = []
    if not name:
        errors.append(required(f"{path}.volumeName"))
    else:
        errors += invalid_each(f"{path}.volumeName", name, formats.dns_label(name))
    if namespace:
        errors += invalid_each(f"{path}.volumeNamespace", namespace, formats.dns_label(namespace))
    if source.get("secretRef") is not None and not source["secretRef"].get("name"):
        errors.append(required(f"{path}.secretRef.name"))
    return errors


def _csi(source: Manifest, path: str) -> Errors:
    driver = source.get("driver") or ""
    errors: Errors = []
    if not driver:
        errors.append(required(f"{path}.driver"))
    else:
        if len(driver) > 63:
            errors.append(too_long(f"{path}.driver", driver, 63))
        errors += invalid_each(f"{path}.driver", driver, formats.dns_subdomain(driver.lower()))
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        errors.append(required(f"{path}.nodePublishSecretRef.name"))
    return errors


def _ephemeral(source: Manifest, path: str) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    return validate_claim_spec(template.get("spec") or {}, f"{path}.volumeClaimTemplate.spec")


# Projected volumes ----------------------------------------------------------------------------

_PROJECTIONS: Final = (
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
)
_CONFLICT: Final = "conflicting duplicate paths"
_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")


class _Projection:
    """The paths that the sources of one projected volume have taken so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.taken: set[str] = set()

    def take(self, file: str, shown: Any) -> Errors:
        if file in self.taken:
            return [invalid(self.path, shown, _CONFLICT)]
        self.taken.add(file)
        return []


def _projected(source: Manifest, path: str, options: PodOptions) -> Errors:
    errors = _mode(source, "defaultMode", path)
    projection = _Projection(path)
    for index, part in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if part.get(kind) is not None]
        for kind in kinds:
            at = f"{where}.{kind}"
            if kind in ("secret", "configMap"):
                errors += _projected_keys(part[kind], at, projection)
            elif kind == "downwardAPI":
                errors += _projected_downward(part[kind], at, projection)
            elif kind == "serviceAccountToken":
                errors += _token(part[kind], at, path, options)
            elif kind == "clusterTrustBundle":
                errors += _trust_bundle(part[kind], at, projection)
            else:
                errors += _pod_certificate(part[kind], at, projection)
        if len(kinds) > 1:
            detail = "may not specify more than 1 volume type per source"
            errors.append(forbidden(where, detail))
    return errors


def _projected_keys(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors: Errors = []
    if not source.get("name"):
        errors.append(required(f"{path}.name"))
    for index, item in enumerate(source.get("items") or ()):
        errors += _key_to_path(item, f"{path}.items[{index}]")
        if item.get("path"):
            errors += projection.take(item["path"], source.get("name"))
    return errors


def _projected_downward(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors: Errors = []
    for item in source.get("items") or ():
        errors += _downward_file(item, path)
        if item.get("path"):
            errors += projection.take(item["path"], item["path"])
    return errors


def _token(source: Manifest, path: str, volume_path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    seconds = source.get("expirationSeconds") or 0
    if seconds < 600:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if seconds > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    # Upstream names the volume here, not the source.
    file = source.get("path") or ""
    if not file:
        errors.append(required(f"{volume_path}.path"))
    elif not options.allow_non_local_projected_token_path:
        errors += _non_reserved_path(file, f"{volume_path}.path")
    return errors


_SIGNER: Final = "must be a fully qualified domain and path of the form 'example.com/signer-name'"


def _signer_name(name: str, path: str) -> Errors:
    """Return what keeps ``name`` from being a signer.

    Rule: pkg/apis/certificates/validation/validation.go ``ValidateSignerName``.
    """
    if not name:
        return [required(path)]
    parts = name.split("/")
    if len(parts) != 2:
        return [invalid(path, name, _SIGNER)]
    domain, rest = parts
    errors: Errors = []
    if len(domain) > 253:
        errors.append(too_long(path, domain, 253))
    errors += _labels_of(domain, formats.dns_label, path)
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        errors.append(invalid(path, domain, detail))
    errors += _labels_of(rest, formats.dns_subdomain, path)
    longest = 253 + 1 + 253 + 1 + 63
    if len(name) > longest:
        errors.append(too_long(path, name, longest))
    return errors


def _labels_of(text: str, check: Callable[[str], formats.Problems], path: str) -> Errors:
    """Return what is wrong with the first wrong label; the errors of more would look alike."""
    for label in text.split("."):
        if problems := check(label):
            return [invalid(path, text, f'validating label "{label}": {p}') for p in problems]
    return []


def _trust_bundle(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors: Errors = []
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        errors.append(invalid(path, source, "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errors.append(required(f"{path}.name", "must be a valid object name"))
        errors += [
            invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {problem}")
            for problem in _trust_bundle_name(name)
        ]
        if source.get("labelSelector") is not None:
            detail = "labelSelector must be unset if name is specified"
            errors.append(invalid(f"{path}.labelSelector", source["labelSelector"], detail))
    elif signer is not None:
        if not signer:
            errors.append(required(f"{path}.signerName", "must be a valid signer name"))
        errors += _signer_name(signer, f"{path}.signerName")
        errors += validate_label_selector(source.get("labelSelector"), f"{path}.labelSelector")
    else:
        errors.append(required(path, "either name or signerName must be specified"))
    file = source.get("path") or ""
    if not file:
        errors.append(required(f"{path}.path"))
    errors += _non_reserved_path(file, f"{path}.path")
    return errors + projection.take(file, file)


def _trust_bundle_name(name: str) -> tuple[str, ...]:
    """Return what keeps ``name`` from naming a bundle; ``:`` separates a signer's prefix."""
    return formats.dns_subdomain(name.rpartition(":")[2])


def _pod_certificate(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors = _signer_name(source.get("signerName") or "", f"{path}.signerName")
    key_type = source.get("keyType") or ""
    if key_type not in _KEY_TYPES:
        errors.append(not_supported(f"{path}.keyType", key_type, _KEY_TYPES))
    seconds = source.get("maxExpirationSeconds")
    if seconds is not None:
        at = f"{path}.maxExpirationSeconds"
        if seconds < 3600:
            detail = "if provided, maxExpirationSeconds must be >= 3600"
            errors.append(invalid(at, seconds, detail))
        if seconds > 7862400:
            detail = "if provided, maxExpirationSeconds must be <= 7862400"
            errors.append(invalid(at, seconds, detail))
    files = 0
    for field in ("credentialBundlePath", "keyPath", "certificateChainPath"):
        file = source.get(field) or ""
        if file:
            files += 1
            errors += _non_reserved_path(file, f"{path}.{field}")
            errors += projection.take(file, file)
    if not files:
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errors.append(required(path, detail))
    return errors + _user_annotations(source.get("userAnnotations") or {}, path)


def _user_annotations(annotations: dict[str, str], path: str) -> Errors:
    at = f"{path}.userAnnotations"
    errors: Errors = []
    total = 0
    for key, value in annotations.items():
        errors += invalid_each(at, key, formats.qualified_name(key))
        total += len(key.encode()) + len(value.encode())
    if total > TOTAL_ANNOTATION_BYTES:
        errors.append(too_long(at, "", TOTAL_ANNOTATION_BYTES))
    return errors


_CHECKS: Final[dict[str, Callable[[Manifest, str], Errors]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _partitioned("pdName"),
    "awsElasticBlockStore": _partitioned("volumeID"),
    "secret": _keyed("secretName"),
    "configMap": _keyed("name"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward_api,
    "fc": _fibre_channel,
    "flexVolume": _flex_volume,
    "azureFile": _azure_file,
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
}
