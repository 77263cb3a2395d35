"""Changed pods: which fields of spec and annotations may change; bindings.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Final

from clusterstate.admission.validation.core import formats, scheduling
from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    not_supported,
    required,
)
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta_update,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.kubelet import security
from clusterstate.admission.validation.pods import (
    MAX_INT32,
    validate_pod,
    validate_pod_annotations,
)
from clusterstate.admission.validation.pods.containers import validate_for_pod_only
from clusterstate.admission.validation.pods.spec_diff import spec_diff
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD
from clusterstate.objects.wire import protobuf

_UPDATABLE: Final = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        (
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)"
        ),
    )
)


def validate_pod_update(new: Manifest, old: Manifest, options: PodOptions) -> Errors:
    """Return the errors in a changed pod, and what may not change.

    Images, the active deadline (downwards), tolerations (additions) and scheduling gates
    (deletions) may change; while gated, also nodeSelector and node affinity (additions).
    """
    errors = validate_object_meta_update(new.get("metadata") or {}, old.get("metadata") or {})
    errors += validate_pod(new, options)
    errors += validate_annotations_update(new, old, options)
    new_spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    for field in ("containers", "initContainers"):
        containers = new_spec.get(field) or []
        if len(containers) != len(old_spec.get(field) or []):
            detail = "pod updates may not add or remove containers"
            return [*errors, forbidden(f"spec.{field}", detail)]
        for index, container in enumerate(containers):
            if not container.get("image"):
                errors.append(required(f"spec.{field}[{index}].image"))
        errors += validate_for_pod_only(containers, f"spec.{field}")
    deadline_errors, stop = _deadline_update(
        new_spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds")
    )
    errors += deadline_errors
    if stop:
        return errors
    errors += scheduling.validate_only_added_tolerations(
        new_spec.get("tolerations") or [],
        old_spec.get("tolerations") or [],
        "spec.tolerations",
        comparison_operators=options.allow_taint_toleration_comparison_operators,
    )
    errors += scheduling.validate_only_deleted_scheduling_gates(
        new_spec.get("schedulingGates") or [],
        old_spec.get("schedulingGates") or [],
        "spec.schedulingGates",
    )
    if new_spec == old_spec:
        return errors
    return errors + _rest_of_spec(new_spec, old_spec)


def _deadline_update(new: int | None, old: int | None) -> tuple[Errors, bool]:
    path = "spec.activeDeadlineSeconds"
    if new is not None:
        if not 0 <= new <= MAX_INT32:
            return [invalid(path, new, formats.range_problem(0, MAX_INT32))], True
        if old is not None and old < new:
            return [invalid(path, new, "must be less than or equal to previous value")], True
    elif old is not None:
        detail = "must not update from a positive integer to nil value"
        return [invalid(path, None, detail)], False
    return [], False


def _rest_of_spec(new: Manifest, old: Manifest) -> Errors:
    """Return the error if fields of the spec changed that may not."""
    errors: Errors = []
    munged = dict(new)
    for field in ("containers", "initContainers"):
        if new.get(field):
            munged[field] = [
                {**container, "image": before.get("image", "")}
                for container, before in zip(new[field], old[field], strict=True)
            ]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _take(munged, old, field)
    grace = "terminationGracePeriodSeconds"
    if (old.get(grace) or 0) < 0 and munged.get(grace) == 1:
        munged[grace] = old[grace]
    if old.get("schedulingGates"):
        if (new.get("nodeSelector") or {}) != (old.get("nodeSelector") or {}):
            errors += _node_selector_mutation(
                new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
            )
            _take(munged, old, "nodeSelector")
        errors += _affinity_mutation(munged, old)
    if not same_spec(munged, old):
        detail = f"pod updates may not change fields other than {_UPDATABLE}\n"
        errors.append(forbidden("spec", detail + spec_diff(old, munged)))
    return errors


def _take(munged: Manifest, old: Manifest, field: str) -> None:
    if field in old:
        munged[field] = old[field]
    else:
        munged.pop(field, None)


def _node_selector_mutation(new: dict[str, str], old: dict[str, str]) -> Errors:
    if all(new.get(key) == value for key, value in old.items()):
        return []
    detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid("spec.nodeSelector", new, detail)]


def _affinity_mutation(munged: Manifest, old: Manifest) -> Errors:
    new_affinity: Manifest | None = munged.get("affinity")
    old_affinity: Manifest | None = old.get("affinity")
    new_node = (new_affinity or {}).get("nodeAffinity")
    old_node = (old_affinity or {}).get("nodeAffinity")
    if same_spec(_with_node_affinity(new_node), _with_node_affinity(old_node)):
        return []
    errors = _node_affinity_mutation(new_node, old_node)
    if new_affinity is None:
        if old_node is not None:
            munged["affinity"] = {"nodeAffinity": old_node}
    elif old_affinity is None and all(
        new_affinity.get(field) is None for field in ("podAffinity", "podAntiAffinity")
    ):
        munged.pop("affinity")
    else:
        rest = {k: v for k, v in new_affinity.items() if k != "nodeAffinity"}
        munged["affinity"] = rest if old_node is None else {**rest, "nodeAffinity": old_node}
    return errors


def _node_affinity_mutation(new: Manifest | None, old: Manifest | None) -> Errors:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    old_terms = ((old or {}).get(field) or {}).get("nodeSelectorTerms") or []
    new_terms = ((new or {}).get(field) or {}).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{field}.nodeSelectorTerms"
    if not old_terms:
        return []
    if len(old_terms) != len(new_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid(path, new_terms, detail)]
    return [
        invalid(f"{path}[{i}]", term, "only additions are allowed (no mutations or deletions)")
        for i, (term, before) in enumerate(zip(new_terms, old_terms, strict=True))
        if not _only_additions(term, before)
    ]


def _only_additions(new: Manifest, old: Manifest) -> bool:
    fields = ("matchExpressions", "matchFields")
    if not any(old.get(field) for field in fields) and any(new.get(field) for field in fields):
        return False
    for field in fields:
        before = old.get(field) or []
        after = (new.get(field) or [])[: len(before)]
        if list(map(_requirement, after)) != list(map(_requirement, before)):
            return False
    return True


def _with_node_affinity(node_affinity: Manifest | None) -> Manifest:
    return {"affinity": {"nodeAffinity": node_affinity}}


def _requirement(term: Manifest) -> tuple[str, str, list[str]]:
    return term.get("key") or "", term.get("operator") or "", term.get("values") or []


def same_spec(one: Manifest, other: Manifest) -> bool:
    """Return whether two pod specs are equal in Go: an absent field that is no pointer is zero.

    So ``hostPort: 0`` equals no port, and ``affinity: {}`` differs from no affinity, as in
    protobuf. Rule: apimachinery ``equality.Semantic``, v1.36.
    """
    return _told_apart(one) == _told_apart(other)


def _told_apart(spec: Manifest) -> Manifest:
    return protobuf.decode(protobuf.encode({"apiVersion": "v1", "kind": "Pod", "spec": spec}))


def validate_annotations_update(new: Manifest, old: Manifest, options: PodOptions) -> Errors:
    """Return the annotations that may not be added, changed or removed."""
    path = "metadata.annotations"
    after = (new.get("metadata") or {}).get("annotations") or {}
    before = (old.get("metadata") or {}).get("annotations") or {}
    errors: Errors = []
    for key, value in before.items():
        if after.get(key) == value:
            continue
        if key.startswith(security.APP_ARMOR):
            detail = "may not remove or update AppArmor annotations"
            errors.append(forbidden(f"{path}[{key}]", detail))
        if key == MIRROR_POD:
            detail = "may not remove or update mirror pod annotation"
            errors.append(forbidden(f"{path}[{key}]", detail))
    for key in after.keys() - before.keys():
        if key.startswith(security.APP_ARMOR):
            errors.append(forbidden(f"{path}[{key}]", "may not add AppArmor annotations"))
        if key == MIRROR_POD:
            errors.append(forbidden(f"{path}[{key}]", "may not add mirror pod annotation"))
    return errors + validate_pod_annotations(after, new.get("spec") or {}, path, options)


# Subresources ---------------------------------------------------------------------------------


def validate_binding(binding: Manifest) -> Errors:
    """Return the errors in a Binding: it must name a node."""
    target = binding.get("target") or {}
    errors: Errors = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        errors.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors
