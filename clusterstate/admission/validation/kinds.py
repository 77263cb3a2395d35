"""All kinds but pods, nodes and namespaces: classes, budgets, leases, events, workloads.

A part of Kubernetes' rules: what keeps an object from being misunderstood. Rules:
pkg/apis/{apps,coordination,core,node,policy,scheduling}/validation/validation.go, v1.36.
"""

import re
from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core import devices, formats, storage
from clusterstate.admission.validation.core.conditions import validate_conditions
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    none_negative,
    not_negative,
    not_supported,
    one_of,
    require_form,
    required,
)
from clusterstate.admission.validation.core.metadata import (
    IMMUTABLE,
    NameCheck,
    validate_immutable,
    validate_label_selector,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from clusterstate.admission.validation.core.options import CURRENT_TEMPLATE
from clusterstate.admission.validation.core.quotas import (
    validate_limit_range,
    validate_resource_quota,
    validate_resource_quota_status,
)
from clusterstate.admission.validation.core.resources import validate_resource_requirements
from clusterstate.admission.validation.core.scheduling import validate_tolerations
from clusterstate.admission.validation.pods import validate_pod_template
from clusterstate.admission.validation.policy import access, certificates, flow_control
from clusterstate.admission.validation.workloads import (
    configuration,
    jobs,
    networking,
    pod_groups,
    statuses,
)
from clusterstate.admission.validation.workloads.job_status import validate_job_status
from clusterstate.admission.validation.workloads.services import (
    validate_balancer,
    validate_service,
    validate_service_status,
)
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import disruption
from clusterstate.objects.values import int_or_percent
from clusterstate.objects.values.errors import FieldError
from clusterstate.objects.values.int_or_percent import is_zero
from clusterstate.objects.values.meta import Manifest

SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

_Rule = Callable[[Manifest, Manifest | None], Errors]


def _newly(rule: _Rule) -> _Rule:
    """Return a rule without the errors that the stored object has too, at whatever index.

    For rules that came after objects were stored: their labels, finalizers and other fields must
    still be writable, also by the controllers.
    """

    def sign(error: FieldError) -> tuple[str, str, str]:
        return error.type, _INDEX.sub("[]", error.field), repr(error.bad_value)

    def checked(new: Manifest, old: Manifest | None) -> Errors:
        errors = rule(new, old)
        if not errors or old is None:
            return errors
        known = {sign(one) for one in rule(old, old)}
        return [one for one in errors if sign(one) not in known]

    return checked


_INDEX: Final = re.compile(r"\[\d+\]")


def validate(kind: str, new: Manifest, old: Manifest | None, subresource: str) -> Errors:
    """Return the errors in a new object, or with a change of ``old``."""
    meta = new.get("metadata") or {}
    if old is not None:
        errors = validate_object_meta_update(meta, old.get("metadata") or {})
        if subresource == "status":
            if kind in statuses.KINDS:
                errors += statuses.validate_counts(kind, new, old)
            status_rule = _STATUS_RULES.get(kind)
            return errors + (status_rule(new, old) if status_rule else [])
    else:
        name: NameCheck = _NAMES.get(kind, formats.dns_subdomain)
        errors = validate_object_meta(meta, namespaced=KINDS[kind].namespaced, name=name)
    rule = _RULES.get(kind)
    found = rule(new, old) if rule else []
    if rule and old is not None and any(map(_is_of_image_volume, found)):
        before = {error.field for error in rule(old, None)}
        found = [e for e in found if not (_is_of_image_volume(e) and e.field in before)]
    return errors + found


def _is_of_image_volume(error: FieldError) -> bool:
    """Return whether an image volume of a template lacks its reference, allowed until v1.37."""
    return error.field.endswith(".image.reference")


_NAMES: Final[dict[str, NameCheck]] = {
    "CertificateSigningRequest": formats.path_segment,
    "ClusterRole": formats.path_segment,
    "ClusterRoleBinding": formats.path_segment,
    "Event": formats.path_segment,
    "IPAddress": formats.canonical_ip_address,
    "Role": formats.path_segment,
    "RoleBinding": formats.path_segment,
    "Service": formats.dns_label,
}
"""How names are checked, where they need not be DNS subdomains."""


# Classes --------------------------------------------------------------------------------------


def _priority_class(new: Manifest, old: Manifest | None) -> Errors:
    name = (new.get("metadata") or {}).get("name") or ""
    value = new.get("value", 0)
    policy = new.get("preemptionPolicy")
    if old is not None:
        errors: Errors = []
        if value != old.get("value", 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        if policy != old.get("preemptionPolicy"):
            errors.append(invalid("preemptionPolicy", policy, IMMUTABLE))
        return errors
    errors = []
    if name.startswith("system-"):
        system_value = SYSTEM_PRIORITIES.get(name)
        problem = ""
        if system_value is None:
            problem = f"{name} is not a known system priority class"
        elif system_value != value:
            problem = f"value of {name} PriorityClass must be {system_value}"
        elif new.get("globalDefault"):
            problem = f"globalDefault of {name} PriorityClass must be false"
        if problem:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {problem}"
            )
            errors.append(forbidden("metadata.name", detail))
    elif value > pod_groups.HIGHEST_USER_PRIORITY:
        highest = pod_groups.HIGHEST_USER_PRIORITY
        detail = f"maximum allowed value of a user defined priority is {highest}"
        errors.append(forbidden("value", detail))
    errors += one_of(policy, "preemptionPolicy", ("PreemptLowerPriority", "Never"))
    return errors


def _runtime_class(new: Manifest, old: Manifest | None) -> Errors:
    handler = new.get("handler") or ""
    if old is not None and handler != (old.get("handler") or ""):
        return [invalid("handler", handler, IMMUTABLE)]
    errors: Errors = []
    errors += require_form(handler, "handler", formats.dns_label)
    if (overhead := new.get("overhead")) is not None:
        fixed = {"limits": overhead.get("podFixed") or {}}
        errors += validate_resource_requirements(fixed, "overhead.podFixed")
    scheduling = new.get("scheduling") or {}
    if selector := scheduling.get("nodeSelector"):
        errors += validate_labels(selector, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    errors += validate_tolerations(tolerations, "scheduling.tolerations")
    for index, toleration in enumerate(tolerations):
        if toleration in tolerations[:index]:
            errors.append(duplicate(f"scheduling.tolerations[{index}]", toleration))
    return errors


# Budgets --------------------------------------------------------------------------------------


def _pod_disruption_budget(new: Manifest, old: Manifest | None) -> Errors:
    del old
    spec = new.get("spec") or {}
    errors: Errors = []
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        detail = "minAvailable and maxUnavailable cannot be both set"
        errors.append(invalid("spec", spec, detail))
    errors += _bounds(spec, "spec", "minAvailable", "maxUnavailable")
    errors += validate_label_selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    errors += one_of(policy, "spec.unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"))
    unit = (new["metadata"].get("annotations") or {}).get(disruption.UNIT)
    return errors + one_of(unit, f"metadata.annotations[{disruption.UNIT}]", disruption.UNITS)


def _budget_status(new: Manifest, old: Manifest | None) -> Errors:
    del old
    conditions = (new.get("status") or {}).get("conditions") or ()
    return validate_conditions(conditions, "status.conditions")


def _bounds(holder: Manifest, path: str, *names: str) -> Errors:
    """Return the errors in bounds that are a number or at most 100%."""
    errors: Errors = []
    for name in names:
        if (value := holder.get(name)) is not None:
            errors += _bound(value, f"{path}.{name}", most=100)
    return errors


def _bound(value: int_or_percent.IntOrPercent, path: str, *, most: int | None = None) -> Errors:
    """Return the errors in a number or percentage; ``most``: the highest percentage."""
    if isinstance(value, int):
        return not_negative(value, path)
    try:
        percent = int_or_percent.percent_of(value)
    except ValueError as error:
        return [invalid(path, value, str(error))]
    if percent is None:
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        return [invalid(path, value, detail)]
    if most is not None and percent > most:
        return [invalid(path, value, f"must not be greater than {most}%")]
    return []


# Leases and events ----------------------------------------------------------------------------


def _lease(new: Manifest, old: Manifest | None) -> Errors:
    del old
    spec = new.get("spec") or {}
    errors: Errors = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    errors += not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
    return errors


_EVENT_TEXTS: Final = ("reportingInstance", "action", "reason")
_LONGEST_EVENT_TEXT: Final = 128
_LONGEST_EVENT_MESSAGE: Final = 1024


def _event(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in an Event; one with an ``eventTime`` says who reports what.

    Rule: ``legacyValidateEvent``, pkg/apis/core/validation/events.go, v1.36.
    """
    del old
    involved = new.get("involvedObject") or {}
    namespace = (new.get("metadata") or {}).get("namespace") or ""
    own = involved.get("namespace") or ""
    is_new = bool(new.get("eventTime"))
    fits = own == namespace or (is_new and bool(own))
    if not own:
        fits = namespace in ("default", "kube-system" if is_new else "")
    errors: Errors = []
    if not fits:
        detail = "does not match event.namespace"
        errors.append(invalid("involvedObject.namespace", own, detail))
    if not is_new:
        return errors
    reporter = new.get("reportingComponent") or ""
    if not reporter:
        errors.append(required("reportingComponent"))
    errors += invalid_each("reportingComponent", reporter, formats.qualified_name(reporter))
    for field in _EVENT_TEXTS:
        text = new.get(field) or ""
        if not text:
            errors.append(required(field))
        elif len(text.encode()) > _LONGEST_EVENT_TEXT:
            errors.append(invalid(field, "", f"can have at most {_LONGEST_EVENT_TEXT} characters"))
    if len((new.get("message") or "").encode()) > _LONGEST_EVENT_MESSAGE:
        detail = f"can have at most {_LONGEST_EVENT_MESSAGE} characters"
        errors.append(invalid("message", "", detail))
    return errors


# Workloads ------------------------------------------------------------------------------------


def _selects_all(selector: Manifest) -> bool:
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def _selected_template(spec: Manifest, old_spec: Manifest | None) -> Errors:
    """Return the errors in ``selector`` and ``template`` of an apps workload."""
    errors: Errors = []
    selector = spec.get("selector")
    template = spec.get("template")
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        errors += validate_label_selector(selector, "spec.selector")
        if _selects_all(selector):
            detail = "empty selector is invalid for deployment"
            errors.append(invalid("spec.selector", selector, detail))
        if old_spec is not None:
            errors += validate_immutable(selector, old_spec.get("selector"), "spec.selector")
    if template is None:
        return [*errors, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is not None and not _matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, detail))
    errors += validate_pod_template(template, "spec.template", CURRENT_TEMPLATE)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart not in (None, "Always"):
        errors.append(not_supported("spec.template.spec.restartPolicy", restart, ("Always",)))
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        errors.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def _matches(selector: Manifest, labels: dict[str, str]) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        found = labels.get(expression.get("key", ""))
        values = expression.get("values") or ()
        operator = expression.get("operator")
        if operator == "In":
            holds = found in values
        elif operator == "NotIn":
            holds = found not in values
        elif operator == "Exists":
            holds = found is not None
        else:
            holds = operator != "DoesNotExist" or found is None
        if not holds:
            return False
    return True


def _replica_set(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = none_negative(spec, "spec", "replicas", "minReadySeconds")
    return errors + _selected_template(spec, _spec(old))


def _spec(old: Manifest | None) -> Manifest | None:
    return None if old is None else old.get("spec") or {}


def _deployment(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = none_negative(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit")
    errors += _selected_template(spec, _spec(old))
    strategy = spec.get("strategy") or {}
    type_ = strategy.get("type")
    if type_ not in ("Recreate", "RollingUpdate"):
        supported = ("Recreate", "RollingUpdate")
        errors.append(not_supported("spec.strategy", strategy, supported))
    rolling = strategy.get("rollingUpdate")
    if type_ == "Recreate" and rolling is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        errors.append(forbidden("spec.strategy.rollingUpdate", detail))
    if type_ == "RollingUpdate" and rolling:
        errors += _rolling_update(rolling, "spec.strategy.rollingUpdate")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        errors += not_negative(deadline, "spec.progressDeadlineSeconds")
        if deadline <= (spec.get("minReadySeconds") or 0):
            detail = "must be greater than minReadySeconds"
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, detail))
    return errors


def _rolling_update(rolling: Manifest, path: str) -> Errors:
    errors = _bounds(rolling, path, "maxUnavailable")
    if (surge := rolling.get("maxSurge")) is not None:
        errors += _bound(surge, f"{path}.maxSurge")
    if is_zero(rolling.get("maxUnavailable")) and is_zero(surge):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable"), detail))
    return errors


def _daemon_set(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = none_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    errors += _selected_template(spec, _spec(old))
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        supported = ("RollingUpdate", "OnDelete")
        errors.append(not_supported("spec.updateStrategy.type", strategy.get("type"), supported))
    elif strategy["type"] == "RollingUpdate":
        errors += _daemons_update(strategy.get("rollingUpdate") or {})
    return errors


def _daemons_update(rolling: Manifest) -> Errors:
    """Return the errors in ``rollingUpdate``: exactly one of the two bounds must be above zero."""
    path = "spec.updateStrategy.rollingUpdate"
    errors = _bounds(rolling, path, "maxUnavailable", "maxSurge")
    surge = rolling.get("maxSurge")
    without = is_zero(rolling.get("maxUnavailable")), is_zero(surge)
    if without == (False, False):
        detail = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid(f"{path}.maxSurge", surge, detail))
    elif without == (True, True):
        errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


_STATEFUL_SET_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful_set(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = none_negative(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit")
    policy = spec.get("podManagementPolicy") or ""
    if policy not in ("OrderedReady", "Parallel"):
        detail = "must be 'OrderedReady' or 'Parallel'"
        errors.append(invalid("spec.podManagementPolicy", policy, detail))
    strategy = spec.get("updateStrategy") or {}
    type_ = strategy.get("type") or ""
    if type_ not in ("RollingUpdate", "OnDelete"):
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        errors.append(invalid("spec.updateStrategy", type_, detail))
    elif type_ == "RollingUpdate" and (rolling := strategy.get("rollingUpdate")):
        path = "spec.updateStrategy.rollingUpdate"
        errors += not_negative(rolling.get("partition"), f"{path}.partition")
        errors += _bounds(rolling, path, "maxUnavailable")
        unavailable = rolling.get("maxUnavailable")
        if unavailable is not None and is_zero(unavailable):
            errors.append(invalid(f"{path}.maxUnavailable", unavailable, "cannot be 0"))
    errors += _selected_template(_with_claims_as_volumes(spec), None)
    if old is not None:
        before = old.get("spec") or {}
        fixed = {k: v for k, v in spec.items() if k not in _STATEFUL_SET_MUTABLE}
        if fixed != {k: v for k, v in before.items() if k not in _STATEFUL_SET_MUTABLE}:
            detail = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', "
                "'template', 'updateStrategy', 'revisionHistoryLimit', "
                "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
            )
            errors.append(forbidden("spec", detail))
    return errors


def _with_claims_as_volumes(spec: Manifest) -> Manifest:
    """Return a StatefulSet's spec with the volumes that its pods will have for its claims.

    They take the place of the template's volumes of the same names.
    """
    template = spec.get("template")
    names = [
        (one.get("metadata") or {}).get("name") for one in spec.get("volumeClaimTemplates") or ()
    ]
    if not template or not any(names):
        return spec
    pod_spec = template.get("spec") or {}
    others = [one for one in pod_spec.get("volumes") or () if one.get("name") not in names]
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names if name
    ]
    return {
        **spec,
        "template": {**template, "spec": {**pod_spec, "volumes": [*others, *claims]}},
    }


def _replication_controller(new: Manifest, old: Manifest | None) -> Errors:
    del old
    spec = new.get("spec") or {}
    errors = none_negative(spec, "spec", "replicas", "minReadySeconds")
    selector = spec.get("selector") or {}
    if not selector:
        errors.append(required("spec.selector"))
    template = spec.get("template")
    if template is None:
        return [*errors, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not _matches({"matchLabels": selector}, labels):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, detail))
    errors += validate_pod_template(template, "spec.template", CURRENT_TEMPLATE)
    restart = (template.get("spec") or {}).get("restartPolicy")
    if restart not in (None, "Always"):
        errors.append(not_supported("spec.template.spec.restartPolicy", restart, ("Always",)))
    return errors


_RULES: Final[dict[str, _Rule]] = {
    **devices.RULES,
    **configuration.RULES,
    **flow_control.RULES,
    **jobs.RULES,
    **networking.RULES,
    **{
        kind: _newly(networking.RULES[kind])
        for kind in ("EndpointSlice", "Ingress", "NetworkPolicy")
    },
    **pod_groups.RULES,
    **storage.RULES,
    "CertificateSigningRequest": certificates.validate_request,
    "ClusterRole": lambda new, old: access.validate_cluster_role(new),
    "ClusterRoleBinding": access.validate_cluster_role_binding,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Event": _event,
    "Lease": _lease,
    "LimitRange": lambda new, old: validate_limit_range(new),
    "PodDisruptionBudget": _pod_disruption_budget,
    "PriorityClass": _priority_class,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replication_controller,
    "ResourceQuota": validate_resource_quota,
    "Role": lambda new, old: access.validate_role(new),
    "RoleBinding": access.validate_role_binding,
    "RuntimeClass": _runtime_class,
    "Service": validate_service,
    "StatefulSet": _stateful_set,
}
_STATUS_RULES: Final[dict[str, _Rule]] = {
    "CertificateSigningRequest": certificates.validate_status,
    "DeviceTaintRule": devices.validate_taint_rule_status,
    "Ingress": _newly(validate_balancer),
    "Job": validate_job_status,
    "PersistentVolumeClaim": storage.validate_claim_status,
    "PodDisruptionBudget": _newly(_budget_status),
    "PodGroup": pod_groups.validate_pod_group_status,
    "ResourceClaim": devices.validate_claim_status,
    "ResourceQuota": validate_resource_quota_status,
    "Service": validate_service_status,
}
"""What is asked of a status that is written by itself."""
