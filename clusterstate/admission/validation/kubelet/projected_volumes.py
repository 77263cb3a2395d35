"""Projected volumes: keys, downward API, tokens, trust bundles, pod certificates.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    invalid_each,
    one_of,
    required,
    too_long,
)
from clusterstate.admission.validation.core.metadata import (
    TOTAL_ANNOTATION_BYTES,
    validate_label_selector,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.signers import validate_signer_name
from clusterstate.admission.validation.kubelet.volume_files import (
    validate_downward_file,
    validate_key_to_path,
    validate_mode,
    validate_non_reserved_path,
)
from clusterstate.objects.values.meta import Manifest

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
    """The file paths that the sources of one projected volume use so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.paths: set[str] = set()

    def take(self, file: str, shown: Any) -> Errors:
        if file in self.paths:
            return [invalid(self.path, shown, _CONFLICT)]
        self.paths.add(file)
        return []


def validate_projected(source: Manifest, path: str, options: PodOptions) -> Errors:
    """Return the errors in a projected volume."""
    errors = validate_mode(source, "defaultMode", path)
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
        errors += validate_key_to_path(item, f"{path}.items[{index}]")
        if item.get("path"):
            errors += projection.take(item["path"], source.get("name"))
    return errors


def _projected_downward(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors: Errors = []
    for item in source.get("items") or ():
        errors += validate_downward_file(item, path)
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
        errors += validate_non_reserved_path(file, f"{volume_path}.path")
    return errors


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
        errors += validate_signer_name(signer, f"{path}.signerName")
        errors += validate_label_selector(source.get("labelSelector"), f"{path}.labelSelector")
    else:
        errors.append(required(path, "either name or signerName must be specified"))
    file = source.get("path") or ""
    if not file:
        errors.append(required(f"{path}.path"))
    errors += validate_non_reserved_path(file, f"{path}.path")
    return errors + projection.take(file, file)


def _trust_bundle_name(name: str) -> tuple[str, ...]:
    """Return the problems of a trust bundle's name; ``:`` separates a signer's prefix."""
    if name.startswith(":") and name.count(":") == 1:
        return ('ClusterTrustBundle without signer name must not have ":" in its name',)
    return formats.dns_subdomain(name.rpartition(":")[2])


def _pod_certificate(source: Manifest, path: str, projection: _Projection) -> Errors:
    errors = validate_signer_name(source.get("signerName") or "", f"{path}.signerName")
    key_type = source.get("keyType") or ""
    errors += one_of(key_type, f"{path}.keyType", _KEY_TYPES)
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
            errors += validate_non_reserved_path(file, f"{path}.{field}")
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
