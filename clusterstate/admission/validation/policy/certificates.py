"""Certificate requests: their spec, conditions and signed certificate.

Rules: pkg/apis/certificates/validation/validation.go, v1.36.
"""

import base64
import binascii
from typing import Final

from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
    required_one_of,
)
from clusterstate.admission.validation.core.signers import validate_signer_name
from clusterstate.objects.values.meta import Manifest

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
_LASTING: Final = (APPROVED, DENIED, FAILED)
"""Conditions that hold for ever once they were set."""
_STATUSES: Final = ("False", "True", "Unknown")
_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection",
    "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth",
    "signing", "timestamping",
)  # fmt: skip
_SHORTEST: Final = 600
_LEGACY: Final = "kubernetes.io/legacy-unknown"
_REQUEST: Final = "CERTIFICATE REQUEST"
_CERTIFICATE: Final = "CERTIFICATE"


def validate_request(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a new request, or in a change of ``old``.

    The spec of a stored request is immutable and not validated again.
    """
    errors = [] if old is not None else _spec(new.get("spec") or {})
    return errors + validate_status(new, old)


def validate_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the status of a request, or with its change."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    errors = _conditions(status, before)
    for kind in _LASTING:
        if _count(status, kind) < _count(before, kind):
            detail = f'updates may not remove a condition of type "{kind}"'
            errors.append(forbidden("status.conditions", detail))
    signed, old_certificate = status.get("certificate"), before.get("certificate")
    if old_certificate and signed != old_certificate:
        detail = "updates may not modify existing certificate content"
        errors.append(forbidden("status.certificate", detail))
    elif signed and not old_certificate and (why := _no_pem(signed, _CERTIFICATE)):
        errors.append(invalid("status.certificate", "<certificate data>", why))
    return errors


def _count(status: Manifest, kind: str) -> int:
    return sum(one.get("type") == kind for one in status.get("conditions") or ())


def _spec(spec: Manifest) -> Errors:
    errors: Errors = []
    if why := _no_pem(spec.get("request") or "", _REQUEST):
        errors.append(invalid("spec.request", spec.get("request") or "", why))
    usages = spec.get("usages") or []
    if not usages:
        errors.append(required("spec.usages"))
    for index, usage in enumerate(usages):
        path = f"spec.usages[{index}]"
        errors += one_of(usage, path, _USAGES)
        if usage in usages[:index]:
            errors.append(duplicate(path, usage))
    signer = spec.get("signerName") or ""
    if signer == _LEGACY:
        detail = "the legacy signerName is not allowed via this API version"
        errors.append(invalid("spec.signerName", signer, detail))
    else:
        errors += validate_signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", seconds, detail))
    return errors


def _no_pem(text: str, block_type: str) -> str:
    """Return why a text is not PEM of this type in base64; empty if it is."""
    try:
        decoded = base64.b64decode(text).decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        decoded = ""
    first, _, rest = decoded.partition("\n")
    if not (first.startswith("-----BEGIN ") and first.rstrip().endswith("-----")):
        return f"PEM block type must be {block_type}"
    kind = first.rstrip()[len("-----BEGIN ") : -len("-----")]
    if kind != block_type:
        return f"PEM block type must be {block_type}"
    if f"-----END {block_type}-----" not in rest:
        return f"the PEM block of type {block_type} does not end"
    return ""


def _conditions(status: Manifest, before: Manifest) -> Errors:
    """Judge conditions; what an older version stored may stay as it is."""
    conditions = status.get("conditions") or []
    if conditions == (before.get("conditions") or []):
        return []
    errors: Errors = []
    seen: set[str] = set()
    for index, one in enumerate(conditions):
        path = f"status.conditions[{index}]"
        kind, state = one.get("type") or "", one.get("status") or ""
        if not kind:
            errors.append(required(f"{path}.type"))
        allowed = ("True",) if kind in _LASTING else _STATUSES
        errors += required_one_of(state, f"{path}.status", allowed)
        if {APPROVED, DENIED} == {kind, *(seen & {APPROVED, DENIED})}:
            detail = "Approved and Denied conditions are mutually exclusive"
            errors.append(invalid(f"{path}.type", kind, detail))
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
    return errors
