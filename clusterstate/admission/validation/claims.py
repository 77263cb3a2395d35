"""What is asked of others: devices (ResourceClaims and slices) and certificates.

A part of Kubernetes' rules: what keeps an object from being misunderstood. Rules:
pkg/apis/resource/validation/validation.go, pkg/apis/certificates/validation/validation.go, v1.36.
"""

import base64
from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation import formats
from clusterstate.admission.validation.field import (
    Errors,
    duplicate,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from clusterstate.admission.validation.metadata import validate_immutable
from clusterstate.admission.validation.scheduling import validate_node_selector
from clusterstate.objects.meta import Manifest

_ALLOCATION: Final = ("All", "ExactCount")
_PLACES: Final = ("allNodes", "nodeName", "nodeSelector", "perDeviceNodeSelection")
_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection",
    "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_SHORTEST_LIFE: Final = 600
_REQUEST: Final = b"-----BEGIN CERTIFICATE REQUEST-----"


def _claim_spec(spec: Manifest, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        where, name = f"{path}.devices.requests[{index}]", request.get("name") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        else:
            errors += invalid_each(f"{where}.name", name, formats.dns_label(name))
            if name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        exact, choices = request.get("exactly"), request.get("firstAvailable") or ()
        if (exact is None) is (not choices):
            detail = "exactly one of `exactly` or `firstAvailable` is required"
            errors.append(required(where, detail) if exact is None else invalid(where, "", detail))
        if exact is not None:
            errors += _device_request(exact, f"{where}.exactly")
        for position, one in enumerate(choices):
            errors += _device_request(one, f"{where}.firstAvailable[{position}]")
    return errors


def _device_request(request: Manifest, path: str) -> Errors:
    errors: Errors = []
    if not (name := request.get("deviceClassName") or ""):
        errors.append(required(f"{path}.deviceClassName"))
    else:
        errors += invalid_each(f"{path}.deviceClassName", name, formats.dns_subdomain(name))
    mode, count = request.get("allocationMode") or "", request.get("count")
    if mode not in _ALLOCATION:
        errors.append(not_supported(f"{path}.allocationMode", mode, _ALLOCATION))
    elif mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(invalid(f"{path}.count", count, detail))
    elif mode == "ExactCount" and (count or 0) <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    return errors


def _resource_claim(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    return _claim_spec(spec, "spec")


def _resource_claim_template(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    return _claim_spec(spec.get("spec") or {}, "spec.spec")


def _resource_slice(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors: Errors = []
    if not (driver := spec.get("driver") or ""):
        errors.append(required("spec.driver"))
    else:
        errors += invalid_each("spec.driver", driver, formats.dns_subdomain(driver))
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        errors.append(required("spec.pool.name"))
    if (pool.get("resourceSliceCount") or 0) <= 0:
        count = pool.get("resourceSliceCount") or 0
        errors.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    places = [name for name in _PLACES if spec.get(name)]
    detail = f"exactly one of {', '.join(_PLACES)} is required"
    if not places:
        errors.append(required("spec", detail))
    elif len(places) > 1:
        errors.append(invalid("spec", places, detail))
    if (selector := spec.get("nodeSelector")) is not None:
        errors += validate_node_selector(selector, "spec.nodeSelector")
    seen: set[str] = set()
    for index, device in enumerate(spec.get("devices") or ()):
        path, name = f"spec.devices[{index}].name", device.get("name") or ""
        errors += invalid_each(path, name, formats.dns_label(name)) if name else [required(path)]
        if name in seen:
            errors.append(duplicate(path, name))
        seen.add(name)
    if old is not None:
        before = old.get("spec") or {}
        errors += validate_immutable(driver, before.get("driver"), "spec.driver")
        name, former = spec.get("nodeName"), before.get("nodeName")
        errors += validate_immutable(name, former, "spec.nodeName")
    return errors


# Certificates ---------------------------------------------------------------------------------


def _certificate_request(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    errors: Errors = []
    request = spec.get("request") or ""
    if not request:
        errors.append(required("spec.request"))
    elif not _is_request(request):
        detail = "PEM block type must be CERTIFICATE REQUEST"
        errors.append(invalid("spec.request", "", detail))
    usages = spec.get("usages") or ()
    if not usages:
        errors.append(required("spec.usages"))
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            errors.append(not_supported(f"spec.usages[{index}]", usage, _USAGES))
        if usage in usages[:index]:
            errors.append(duplicate(f"spec.usages[{index}]", usage))
    if not (signer := spec.get("signerName") or ""):
        errors.append(required("spec.signerName"))
    elif signer == "kubernetes.io/legacy-unknown":
        errors.append(invalid("spec.signerName", signer, "the legacy signerName is not allowed"))
    else:
        domain, slash, rest = signer.partition("/")
        if not slash or not rest or "." not in domain:
            detail = (
                "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            )
            errors.append(invalid("spec.signerName", signer, detail))
        else:
            errors += invalid_each("spec.signerName", signer, formats.dns_subdomain(domain))
    life = spec.get("expirationSeconds")
    if life is not None and life < _SHORTEST_LIFE:
        detail = f"may not specify a duration less than {_SHORTEST_LIFE} seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", life, detail))
    return errors


def _is_request(text: str) -> bool:
    try:
        return _REQUEST in base64.b64decode(text)
    except ValueError:
        return False


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "CertificateSigningRequest": _certificate_request,
    "ResourceClaim": _resource_claim,
    "ResourceClaimTemplate": _resource_claim_template,
    "ResourceSlice": _resource_slice,
}
