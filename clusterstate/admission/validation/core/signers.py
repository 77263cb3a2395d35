"""Names of certificate signers, in requests and volumes."""

from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import Errors, invalid, required, too_long

_SIGNER_FORM: Final = (
    "must be a fully qualified domain and path of the form 'example.com/signer-name'"
)


def validate_signer_name(name: str, path: str) -> Errors:
    """Return the errors in a signer's name.

    Rule: pkg/apis/certificates/validation/validation.go ``ValidateSignerName``.
    """
    if not name:
        return [required(path)]
    parts = name.split("/")
    if len(parts) != 2:
        return [invalid(path, name, _SIGNER_FORM)]
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
    """Return the errors of the first invalid DNS label; further ones would repeat them."""
    for label in text.split("."):
        if problems := check(label):
            return [invalid(path, text, f'validating label "{label}": {p}') for p in problems]
    return []
