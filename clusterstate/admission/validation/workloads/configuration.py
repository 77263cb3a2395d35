"""ConfigMaps, Secrets, PodTemplates and ControllerRevisions.

No error shows the content of a Secret. Rules: pkg/apis/core/validation/validation.go
(``ValidateConfigMap``, ``ValidateSecret``) and pkg/apis/apps/validation/validation.go, v1.36.
"""

import base64
import json
from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    invalid_each,
    not_negative,
    required,
    too_long,
)
from clusterstate.admission.validation.core.metadata import validate_immutable
from clusterstate.admission.validation.core.options import CURRENT_TEMPLATE
from clusterstate.admission.validation.pods import validate_pod_template
from clusterstate.objects.values.meta import Manifest

MOST_BYTES: Final = 1024 * 1024
"""The largest size of a ConfigMap's or Secret's data."""
REDACTED: Final = "<secret contents redacted>"
_SEALED: Final = "field is immutable when `immutable` is set"


def _decoded_size(text: str) -> int:
    """Return the number of bytes that a base64 text encodes."""
    return len(text) // 4 * 3 - text.count("=")


def _base64(data: dict[str, str], path: str, shown: str | None = None) -> Errors:
    """Return an error for each value whose base64 text is cut off."""
    detail = "illegal base64 data: its length is not a multiple of 4"
    return [
        invalid(f"{path}[{key}]", value if shown is None else shown, detail)
        for key, value in data.items()
        if len(value) % 4
    ]


def _keys(data: dict[str, str], path: str) -> Errors:
    errors: Errors = []
    for key in data:
        errors += invalid_each(f"{path}[{key}]", key, formats.config_map_key(key))
    return errors


def _sealed(new: Manifest, old: Manifest, *fields: str) -> Errors:
    """Return the errors of changed ``fields`` in an object that is ``immutable``."""
    if not old.get("immutable"):
        return []
    errors: Errors = [] if new.get("immutable") else [forbidden("immutable", _SEALED)]
    for name in fields:
        if (new.get(name) or {}) != (old.get(name) or {}):
            errors.append(forbidden(name, _SEALED))
    return errors


def _config_map(new: Manifest, old: Manifest | None) -> Errors:
    texts, raw = new.get("data") or {}, new.get("binaryData") or {}
    errors = [] if old is None else _sealed(new, old, "data", "binaryData")
    errors += _keys(texts, "data")
    errors += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in texts
        if key in raw
    ]
    errors += _keys(raw, "binaryData") + _base64(raw, "binaryData")
    size = sum(len(text.encode()) for text in texts.values())
    size += sum(_decoded_size(text) for text in raw.values())
    return errors + ([too_long("", "", MOST_BYTES)] if size > MOST_BYTES else [])


# Secrets --------------------------------------------------------------------------------------

_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""The required keys of a Secret, by its type."""
_BASIC: Final = ("username", "password")
_ACCOUNT: Final = "kubernetes.io/service-account.name"


def _secret(new: Manifest, old: Manifest | None) -> Errors:
    data, type_ = new.get("data") or {}, new.get("type") or ""
    errors: Errors = []
    if old is not None:
        errors += validate_immutable(type_, old.get("type"), "type")
        errors += _sealed(new, old, "data")
    errors += _keys(data, "data") + _base64(data, "data", REDACTED)
    if sum(_decoded_size(text) for text in data.values()) > MOST_BYTES:
        errors.append(too_long("data", "", MOST_BYTES))
    if type_ == "kubernetes.io/service-account-token":
        annotations = (new.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(_ACCOUNT):
            errors.append(required(f"metadata.annotations[{_ACCOUNT}]"))
    elif type_ == "kubernetes.io/basic-auth" and not any(key in data for key in _BASIC):
        errors += [required(f"data[{key}]") for key in _BASIC]
    for key in _NEEDED.get(type_, ()):
        if key not in data:
            errors.append(required(f"data[{key}]"))
        elif type_.startswith("kubernetes.io/docker") and not _is_json(data[key]):
            errors.append(invalid(f"data[{key}]", REDACTED, "must be a JSON object"))
    return errors


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(base64.b64decode(text)), dict)
    except (ValueError, RecursionError):
        return False


# Templates and revisions ----------------------------------------------------------------------


def _pod_template(new: Manifest, old: Manifest | None) -> Errors:
    del old
    template = new.get("template")
    if template is None:
        return [required("template")]
    return validate_pod_template(template, "template", CURRENT_TEMPLATE)


def _controller_revision(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    errors += not_negative(new.get("revision"), "revision")
    if new.get("data") is None:
        errors.append(required("data", "data is mandatory"))
    if old is not None:
        errors += validate_immutable(new.get("data"), old.get("data"), "data")
    return errors


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "ConfigMap": _config_map,
    "ControllerRevision": _controller_revision,
    "PodTemplate": _pod_template,
    "Secret": _secret,
}
