"""PodGroups and Workloads of scheduling.k8s.io.

Rules: pkg/apis/scheduling/validation/validation.go and the tags ``+k8s:`` of
staging/src/k8s.io/api/scheduling/v1beta1/types.go, v1.37. ``Rules.of_1_36`` are those of 1.36,
where the whole policy is immutable; a field of a feature that is off is forbidden.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.conditions import validate_conditions
from clusterstate.admission.validation.core.field import (
    Errors,
    at_most,
    check_form,
    each,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    require_form,
    required,
)
from clusterstate.admission.validation.core.metadata import IMMUTABLE, validate_immutable
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import MOST_ANNOTATED, annotated_number
from clusterstate.objects.values.pod_group import (
    LOST_WORK,
    PREFERRED_TOPOLOGY,
    levels_of,
)

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
MOST_TEMPLATES: Final = 8
MOST_CLAIMS: Final = 4
MOST_CONSTRAINTS: Final = 1
MOST_LEVELS: Final = 8
_POLICIES: Final = ("basic", "gang")
_MODES: Final = ("single", "all")
_CLAIMS: Final = ("resourceClaimName", "resourceClaimTemplateName")
_OF_PREEMPTION: Final = ("disruptionMode", "priorityClassName", "priority")
_OFF: Final = ("parentCompositePodGroupName", "compositePodGroupTemplates")
"""Fields of CompositePodGroup, a feature that is off, as it is by default in Kubernetes."""


class Rules(msgspec.Struct, frozen=True):
    """The features that are on, and whether the policy of a group may change.

    ``topology`` is TopologyAwareWorkloadScheduling, ``preemption`` WorkloadAwarePreemption of 1.36,
    which 1.37 always has. ``of_1_36``: a policy and a list of templates never change.
    """

    topology: bool = True
    preemption: bool = True
    of_1_36: bool = False


CURRENT: Final = Rules()


def validate_workload(new: Manifest, old: Manifest | None, rules: Rules = CURRENT) -> Errors:
    """Return the errors in a new Workload, or in a change of ``old``."""
    spec = new.get("spec") or {}
    before = None if old is None else old.get("spec") or {}
    errors: Errors = []
    controller = spec.get("controllerRef")
    if before is not None:
        errors += validate_immutable(controller, before.get("controllerRef"), "spec.controllerRef")
    elif controller is not None:
        errors += _controller(controller, "spec.controllerRef")
    errors += _off(spec, "spec")
    templates, path = spec.get("podGroupTemplates") or [], "spec.podGroupTemplates"
    if before is None:
        return errors + (_templates(templates, path, rules) if templates else [required(path)])
    former = before.get("podGroupTemplates") or []
    if templates == former:
        return errors
    errors += _sizes(templates, path)
    if rules.of_1_36:
        return [*errors, invalid(path, templates, IMMUTABLE)]
    old_templates = {one.get("name"): one for one in former}
    for index, one in enumerate(templates):
        if one.get("name") not in old_templates:
            errors.append(forbidden(f"{path}[{index}]", "item may not be added"))
        else:
            errors += _group_update(one, old_templates[one.get("name")], f"{path}[{index}]", rules)
    names = {one.get("name") for one in templates}
    gone = [name for name in old_templates if name not in names]
    return errors + [forbidden(path, "item may not be removed") for _ in gone]


def validate_pod_group(new: Manifest, old: Manifest | None, rules: Rules = CURRENT) -> Errors:
    """Return the errors in a new PodGroup, or in a change of ``old``."""
    spec = new.get("spec") or {}
    errors = _off(spec, "spec") + _preferred(new) + _lost_work(new)
    if old is None:
        if (reference := spec.get("workloadRef")) is not None:
            at = "spec.workloadRef"
            if rules.of_1_36 and not reference:  # its one member is not given
                detail = "must specify one of: `workload`"
                return [*errors, invalid(at, reference, detail), *_group(spec, "spec", rules)]
            errors += _name(reference.get("workloadName"), f"{at}.workloadName", long=True)
            errors += _name(reference.get("templateName"), f"{at}.templateName", long=False)
        return errors + _group(spec, "spec", rules)
    before = old.get("spec") or {}
    errors += validate_immutable(
        spec.get("workloadRef"), before.get("workloadRef"), "spec.workloadRef"
    )
    return errors + _group_update(spec, before, "spec", rules)


def _preferred(group: Manifest) -> Errors:
    """Return the errors in the annotation with a group's preferred topology levels."""
    text = ((group.get("metadata") or {}).get("annotations") or {}).get(PREFERRED_TOPOLOGY)
    if text is None:
        return []
    path = f"metadata.annotations[{PREFERRED_TOPOLOGY}]"
    levels = levels_of(text)
    if not 1 <= len(levels) <= MOST_LEVELS or len(set(levels)) < len(levels):
        detail = f"must name 1 to {MOST_LEVELS} labels of nodes, each once, separated by commas"
        return [invalid(path, text, detail)]
    return [error for one in levels for error in check_form(one, path, formats.qualified_name)]


def _lost_work(group: Manifest) -> Errors:
    text = ((group.get("metadata") or {}).get("annotations") or {}).get(LOST_WORK)
    if text is None or annotated_number(text) is not None:
        return []
    detail = f"must be a number of seconds from 0 to {MOST_ANNOTATED}"
    return [invalid(f"metadata.annotations[{LOST_WORK}]", text, detail)]


def validate_pod_group_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the conditions and the claims of a group."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    errors = validate_conditions(status.get("conditions") or (), "status.conditions", missing="")
    claims, path = status.get("resourceClaimStatuses") or [], "status.resourceClaimStatuses"
    if claims == (before.get("resourceClaimStatuses") or []):
        return errors
    named = {one.get("name") for one in (new.get("spec") or {}).get("resourceClaims") or ()}

    def claim(one: Manifest, where: str) -> Errors:
        found: Errors = []
        if one.get("name") not in named:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(f"{where}.name", one.get("name") or "", detail))
        at = f"{where}.resourceClaimName"
        return found + check_form(one.get("resourceClaimName"), at, formats.dns_subdomain)

    return errors + each(claims, path, claim, most=MOST_CLAIMS, key=_own_name)


def _sizes(templates: list[Manifest], path: str) -> Errors:
    return at_most(templates, path, MOST_TEMPLATES) if templates else [required(path)]


def _templates(templates: list[Manifest], path: str, rules: Rules) -> Errors:
    def template(one: Manifest, where: str) -> Errors:
        return _name(one.get("name"), f"{where}.name", long=False) + _group(one, where, rules)

    return each(templates, path, template, most=MOST_TEMPLATES, key=_own_name)


def _own_name(item: Manifest) -> str:
    return item.get("name") or ""


def _name(name: str | None, path: str, *, long: bool) -> Errors:
    return require_form(name, path, formats.dns_subdomain if long else formats.dns_label)


def _controller(reference: Manifest, path: str) -> Errors:
    errors: Errors = []
    errors += check_form(reference.get("apiGroup"), f"{path}.apiGroup", formats.dns_subdomain)
    for field in ("kind", "name"):
        value = reference.get(field)
        errors += require_form(value, f"{path}.{field}", formats.path_segment)
    return errors


def _off(spec: Manifest, path: str) -> Errors:
    return [forbidden(f"{path}.{field}", "") for field in _OFF if spec.get(field)]


def _union(value: Manifest, path: str, members: Iterable[str]) -> Errors:
    """Return the error of a union that has no member, or several."""
    present = [one for one in members if value.get(one) is not None]
    if len(present) == 1:
        return []
    exactly = "exactly one of" if present else "one of"
    names = ", ".join(f"`{one}`" for one in members)
    return [invalid(path, value, f"must specify {exactly}: {names}")]


def _policy(policy: Manifest, path: str) -> Errors:
    errors = _union(policy, path, _POLICIES)
    if (gang := policy.get("gang")) is None:
        return errors
    count, at = gang.get("minCount") or 0, f"{path}.gang.minCount"
    if count == 0:
        errors.append(required(at))
    elif count < 0:
        errors.append(invalid(at, count, "must be greater than or equal to 1"))
    return errors


def _group(spec: Manifest, path: str, rules: Rules) -> Errors:
    """Return the errors in the fields that a new PodGroup and a Workload's template share."""
    errors = _policy(spec.get("schedulingPolicy") or {}, f"{path}.schedulingPolicy")
    constraints = spec.get("schedulingConstraints")
    if constraints is not None and not rules.topology:
        errors.append(forbidden(f"{path}.schedulingConstraints", ""))
    elif constraints is not None:
        at = f"{path}.schedulingConstraints.topology"
        errors += each(constraints.get("topology"), at, _constraint, most=MOST_CONSTRAINTS)
    errors += each(
        spec.get("resourceClaims"), f"{path}.resourceClaims", _claim,
        most=MOST_CLAIMS, key=_own_name,
    )  # fmt: skip
    if not rules.preemption:
        present = [one for one in _OF_PREEMPTION if spec.get(one) is not None]
        return errors + [forbidden(f"{path}.{field}", "") for field in present]
    if (mode := spec.get("disruptionMode")) is not None:
        at = f"{path}.disruptionMode"
        if isinstance(mode, str):
            errors.append(not_supported(at, mode, ("Pod", "PodGroup")))
        else:
            errors += _union(mode, at, _MODES)
    errors += check_form(
        spec.get("priorityClassName"), f"{path}.priorityClassName", formats.dns_subdomain
    )
    if (spec.get("priority") or 0) > HIGHEST_USER_PRIORITY:
        detail = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        errors.append(invalid(f"{path}.priority", spec["priority"], detail))
    supported = ("Never", "PreemptLowerPriority")
    return errors + one_of(spec.get("preemptionPolicy"), f"{path}.preemptionPolicy", supported)


def validate_job_scheduling(spec: Manifest, path: str) -> Errors:
    """Return the errors in ``spec.scheduling`` of a Job, in which a gang's size is optional."""
    policy = dict(spec.get("schedulingPolicy") or {"basic": {}})
    if policy.get("gang") is not None:
        policy["gang"] = {"minCount": 1, **policy["gang"]}
    return _group({**spec, "schedulingPolicy": policy}, path, CURRENT)


def _constraint(one: Manifest, path: str) -> Errors:
    return require_form(one.get("key"), f"{path}.key", formats.qualified_name)


def _claim(claim: Manifest, path: str) -> Errors:
    errors = _name(claim.get("name"), f"{path}.name", long=False)
    errors += _union(claim, path, _CLAIMS)
    for field in _CLAIMS:
        if (name := claim.get(field)) is not None:
            errors += invalid_each(f"{path}.{field}", name, formats.dns_subdomain(name))
    return errors


def _group_update(spec: Manifest, before: Manifest, path: str, rules: Rules) -> Errors:
    """Return the errors in a change of a PodGroup, or of a Workload's template."""
    errors = _policy_update(
        spec.get("schedulingPolicy") or {}, before.get("schedulingPolicy") or {},
        f"{path}.schedulingPolicy", rules,
    )  # fmt: skip
    for field, is_on in (
        ("schedulingConstraints", rules.topology),
        ("resourceClaims", True),
        *((one, rules.preemption) for one in _OF_PREEMPTION),
        ("preemptionPolicy", True),
    ):
        new, old, at = spec.get(field) or None, before.get(field) or None, f"{path}.{field}"
        if field == "schedulingConstraints":
            new, old = spec.get(field), before.get(field)
        if new == old:
            continue
        errors.append(invalid(at, new, IMMUTABLE) if is_on or new is None else forbidden(at, ""))
    return errors


def _policy_update(new: Manifest, old: Manifest, path: str, rules: Rules) -> Errors:
    if new == old:
        return []
    if rules.of_1_36:
        return [invalid(path, new, IMMUTABLE)]
    errors = _policy(new, path)
    errors += validate_immutable(new.get("basic"), old.get("basic"), f"{path}.basic")
    before, after = old.get("gang") is not None, new.get("gang") is not None
    if after and not before:
        errors.append(invalid(f"{path}.gang", None, "field cannot be set once created"))
    elif before and not after:
        errors.append(invalid(f"{path}.gang", None, "field cannot be cleared once set"))
    return errors


RULES: Final = {
    "PodGroup": validate_pod_group,
    "Workload": validate_workload,
}
