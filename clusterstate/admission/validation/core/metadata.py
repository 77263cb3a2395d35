"""``metadata``: names, namespaces, labels, annotations, owners.

Rule: apimachinery ``pkg/api/validation/objectmeta.go``, v1.36.
"""

from collections.abc import Callable
from typing import Any

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    NEGATIVE,
    Errors,
    forbidden,
    invalid,
    invalid_each,
    required,
    too_long,
)
from clusterstate.objects.values import labels
from clusterstate.objects.values.meta import Manifest

IMMUTABLE = "field is immutable"
TOTAL_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

NameCheck = Callable[[str], formats.Problems]


def validate_object_meta(meta: Manifest, *, namespaced: bool, name: NameCheck) -> Errors:
    """Return the errors in the metadata of a new object."""
    errors: Errors = []
    own_name = meta.get("name") or ""
    generate_name = meta.get("generateName") or ""
    if generate_name:
        prefix = labels.mask_trailing_dash(generate_name)
        errors += invalid_each("metadata.generateName", generate_name, name(prefix))
    if own_name:
        problems = name(own_name)
        if problems:
            errors += invalid_each("metadata.name", own_name, problems)
    else:
        errors.append(required("metadata.name", "name or generateName is required"))
    namespace = meta.get("namespace") or ""
    if namespaced:
        if not namespace:
            errors.append(required("metadata.namespace"))
        elif problems := formats.dns_label(namespace):
            errors += invalid_each("metadata.namespace", namespace, problems)
    elif namespace:
        errors.append(forbidden("metadata.namespace", "not allowed on this type"))
    return errors + _new_accessor_meta(meta)


def _new_accessor_meta(meta: Manifest) -> Errors:
    """Return the errors in a new object's generation, finalizers, labels, annotations, owners."""
    errors: Errors = []
    if (generation := meta.get("generation") or 0) < 0:
        errors.append(invalid("metadata.generation", generation, NEGATIVE))
    errors += _labels_annotations_owners(meta)
    if finalizers := meta.get("finalizers"):
        where = "metadata.finalizers"
        for finalizer in finalizers:
            errors += invalid_each(where, finalizer, formats.qualified_name(finalizer))
        if "orphan" in finalizers and "foregroundDeletion" in finalizers:
            detail = "finalizer orphan and foregroundDeletion cannot be both set"
            errors.append(invalid(where, finalizers, detail))
        errors += _unqualified_finalizers(finalizers, where)
    return errors


def _labels_annotations_owners(meta: Manifest) -> Errors:
    errors: Errors = []
    if labels := meta.get("labels"):
        errors += validate_labels(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        errors += validate_annotations(annotations, "metadata.annotations")
    if owners := meta.get("ownerReferences"):
        errors += _owner_references(owners, "metadata.ownerReferences")
    return errors


def validate_label_key(key: str, path: str) -> Errors:
    """Return all errors in a label key."""
    return invalid_each(path, key, formats.qualified_name(key))


def validate_labels(labels: dict[str, str], path: str) -> Errors:
    """Return the errors in a map of labels (also a pod's ``nodeSelector``)."""
    errors: Errors = []
    for key, value in labels.items():
        if problems := formats.qualified_name(key):
            errors += invalid_each(path, key, problems)
        if problems := formats.label_value(value):
            errors += invalid_each(path, value, problems)
    return errors


def validate_annotations(annotations: dict[str, str], path: str) -> Errors:
    """Return the errors in a map of annotations; keys are compared in lower case."""
    errors: Errors = []
    total = 0
    for key, value in annotations.items():
        if problems := formats.qualified_name(key.lower()):
            errors += invalid_each(path, key, problems)
        total += len(key.encode()) + len(value.encode())
    if total > TOTAL_ANNOTATION_BYTES:
        errors.append(too_long(path, "", TOTAL_ANNOTATION_BYTES))
    return errors


def _owner_references(owners: list[Manifest], path: str) -> Errors:
    errors: Errors = []
    controller = ""
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        kind = owner.get("kind") or ""
        group, _, version = api_version.rpartition("/")
        if not version or "/" in group:
            errors.append(invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
        if not kind:
            errors.append(invalid(f"{path}.kind", kind, "must not be empty"))
        if not owner.get("name"):
            errors.append(invalid(f"{path}.name", "", "must not be empty"))
        if not owner.get("uid"):
            errors.append(invalid(f"{path}.uid", "", "must not be empty"))
        if (group, version, kind) == ("", "v1", "Event"):
            detail = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(invalid(path, owner, detail))
        if owner.get("controller"):
            own = f"{kind}/{owner.get('name') or ''}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in '
                    f"references for {controller} and {own}"
                )
                errors.append(invalid(path, owners, detail))
            else:
                controller = own
    return errors


def _unqualified_finalizers(finalizers: list[str], path: str) -> Errors:
    """Return the errors of finalizers that are neither Kubernetes' own nor ``domain/name``."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"{path}[{index}]", name, detail)
        for index, name in enumerate(finalizers)
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def validate_object_meta_update(new: Manifest, old: Manifest) -> Errors:
    """Return the errors in changed metadata, and in changes of immutable fields.

    As upstream, the parts of a finalizer around its ``/`` are not checked, unlike in a new object.
    """
    errors: Errors = []
    deletion = new.get("deletionTimestamp")
    old_finalizers = set(old.get("finalizers") or ())
    if old.get("deletionTimestamp") is not None:
        # Once an object is going away, finalizers can only be removed.
        extra = [name for name in new.get("finalizers") or () if name not in old_finalizers]
        if extra:
            listed = " ".join(f'"{name}"' for name in sorted(extra))
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.append(forbidden("metadata.finalizers", detail))
    if not new.get("resourceVersion"):
        errors.append(
            invalid(
                "metadata.resourceVersion",
                new.get("resourceVersion") or "",
                "must be specified for an update",
            )
        )
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        errors.append(
            invalid("metadata.generation", new.get("generation") or 0, "must not be decremented")
        )
    for name, empty in (
        ("name", ""),
        ("namespace", ""),
        ("uid", ""),
        ("creationTimestamp", None),
        ("deletionTimestamp", None),
        ("deletionGracePeriodSeconds", None),
    ):
        value = new.get(name)
        if (value or empty) != (old.get(name) or empty):
            shown = deletion if name == "deletionTimestamp" else value
            errors.append(invalid(f"metadata.{name}", shown, IMMUTABLE))
    errors += _labels_annotations_owners(new)
    return errors + _unqualified_finalizers(new.get("finalizers") or [], "metadata.finalizers")


def validate_immutable(new: Any, old: Any, path: str) -> Errors:
    """Return the error of a field that must not change, if it did."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def validate_label_selector(
    selector: Manifest | None, path: str, *, allow_invalid_values: bool = False
) -> Errors:
    """Return the errors in a label selector; ``Gt`` and ``Lt`` are refused here (R35, R36).

    Rule: apimachinery ``pkg/apis/meta/v1/validation/validation.go``.
    """
    if not selector:
        return []
    errors: Errors = []
    if match_labels := selector.get("matchLabels"):
        errors += validate_labels(match_labels, f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        operator = expression.get("operator") or ""
        values = expression.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(required(f"{where}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden(f"{where}.values", detail))
        else:
            errors.append(invalid(f"{where}.operator", operator, "not a valid selector operator"))
        errors += validate_label_key(expression.get("key") or "", f"{where}.key")
        if not allow_invalid_values:
            for position, value in enumerate(values):
                problems = formats.label_value(value)
                errors += invalid_each(f"{where}.values[{position}]", value, problems)
    return errors
