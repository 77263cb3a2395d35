"""Lists of containers and their fields: name, image, ports, resources, restart rules.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from collections.abc import Iterable
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    one_of,
    required,
    required_one_of,
    too_long,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.pod_context import PULL_POLICIES, PodContext
from clusterstate.admission.validation.core.ports import (
    host_port_conflicts,
    validate_container_ports,
)
from clusterstate.admission.validation.core.resources import (
    validate_resource_requirements,
)
from clusterstate.admission.validation.kubelet import security
from clusterstate.admission.validation.kubelet.environment import validate_env, validate_env_from
from clusterstate.admission.validation.kubelet.mounts import (
    validate_volume_devices,
    validate_volume_mounts,
)
from clusterstate.admission.validation.kubelet.probes import (
    PROBES,
    validate_lifecycle,
    validate_probes,
)
from clusterstate.objects.values.meta import Manifest

_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_INIT_ONLY_ALWAYS: Final = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_EPHEMERAL_FIELDS: Final = frozenset(
    {
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "envFrom",
        "env",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
        "targetContainerName",
    }
)


# Lists of containers --------------------------------------------------------------------------


def validate_containers(containers: list[Manifest], path: str, pod: PodContext) -> Errors:
    """Return the errors in ``spec.containers``."""
    if not containers:
        return [required(path)]
    errors: Errors = []
    names: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        errors += _common(container, where, pod)
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        if lifecycle := container.get("lifecycle"):
            errors += validate_lifecycle(lifecycle, f"{where}.lifecycle", pod)
        errors += validate_probes(container, where, pod)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            errors += _restart_policy(container, where, pod)
    errors += host_port_conflicts(containers, path)
    return errors


def validate_init_containers(
    containers: list[Manifest], regular: list[Manifest], path: str, pod: PodContext
) -> Errors:
    """Return the errors in ``spec.initContainers``."""
    errors: Errors = []
    names = {container.get("name") or "" for container in regular}
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        errors += _common(container, where, pod)
        restart_policy = container.get("restartPolicy")
        sidecar = restart_policy == "Always"
        if restart_policy is not None or "restartPolicyRules" in container:
            errors += _init_restart_policy(container, where, pod)
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        elif name:
            names.add(name)
        errors += host_port_conflicts([container], path)
        lifecycle = container.get("lifecycle")
        if sidecar:
            if lifecycle:
                errors += validate_lifecycle(lifecycle, f"{where}.lifecycle", pod)
            errors += validate_probes(container, where, pod)
        else:
            for field in ("lifecycle", *PROBES):
                if container.get(field) is not None:
                    errors.append(forbidden(f"{where}.{field}", _INIT_ONLY_ALWAYS))
        errors += _init_resize_policy(container, where, pod, sidecar=sidecar)
    return errors


def _init_resize_policy(
    container: Manifest, where: str, pod: PodContext, *, sidecar: bool
) -> Errors:
    policies = container.get("resizePolicy")
    if not policies:
        return []
    if not pod.options.allow_sidecar_resize_policy:
        path = f"{where}.resizePolicy"
        return [invalid(path, policies, "must not be set for init containers")]
    if sidecar:
        return []
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        invalid(f"{where}.resizePolicy[{index}].restartPolicy", "RestartContainer", detail)
        for index, policy in enumerate(policies)
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def validate_ephemeral_containers(
    ephemeral: list[Manifest],
    containers: list[Manifest],
    init_containers: list[Manifest],
    path: str,
    pod: PodContext,
) -> Errors:
    """Return the errors in ``spec.ephemeralContainers``."""
    errors: Errors = []
    others = {c.get("name") or "" for c in (*containers, *init_containers)}
    names = set(others)
    for index, container in enumerate(ephemeral):
        where = f"{path}[{index}]"
        errors += _common(container, where, pod)
        errors += validate_for_pod_only([container], path, first=index)
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        target = container.get("targetContainerName") or ""
        if target and target not in others:
            errors.append(not_found(f"{where}.targetContainerName", target))
        for field, value in container.items():
            empty = value in ([], 0, "", False) or (
                field == "resources" and not any(value.values())
            )
            if field not in _EPHEMERAL_FIELDS and not empty:
                errors.append(forbidden(f"{where}.{field}", _NOT_EPHEMERAL))
        for position, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    at = f"{where}.volumeMounts[{position}].{field}"
                    errors.append(forbidden(at, _NOT_EPHEMERAL))
    return errors


def validate_for_pod_only(containers: Iterable[Manifest], path: str, *, first: int = 0) -> Errors:
    """Return errors that only pods get, not templates: blanks around the image."""
    errors: Errors = []
    for index, container in enumerate(containers, start=first):
        image = container.get("image") or ""
        if image and (image[0].isspace() or image[-1].isspace()):
            detail = "must not have leading or trailing whitespace"
            errors.append(invalid(f"{path}[{index}].image", image, detail))
    return errors


# One container --------------------------------------------------------------------------------


def _common(container: Manifest, path: str, pod: PodContext) -> Errors:
    errors: Errors = []
    get = container.get
    name = get("name") or ""
    if not name:
        errors.append(required(f"{path}.name"))
    elif problems := formats.dns_label(name):
        errors += invalid_each(f"{path}.name", name, problems)
    if not get("image"):
        errors.append(required(f"{path}.image"))
    message_policy = get("terminationMessagePolicy") or ""
    if message_policy not in _MESSAGE_POLICIES:
        at = f"{path}.terminationMessagePolicy"
        errors.append(
            not_supported(at, message_policy, _MESSAGE_POLICIES) if message_policy else required(at)
        )
    pull_policy = get("imagePullPolicy") or ""
    if pull_policy not in PULL_POLICIES:
        at = f"{path}.imagePullPolicy"
        errors.append(
            not_supported(at, pull_policy, PULL_POLICIES) if pull_policy else required(at)
        )
    if ports := get("ports"):
        errors += validate_container_ports(ports, f"{path}.ports")
    if env := get("env"):
        errors += validate_env(env, f"{path}.env", pod.options)
    if env_from := get("envFrom"):
        errors += validate_env_from(env_from, f"{path}.envFrom", pod.options)
    mounts, devices = get("volumeMounts"), get("volumeDevices")
    if mounts:
        errors += validate_volume_mounts(
            mounts, devices or [], container, f"{path}.volumeMounts", pod
        )
    if devices:
        errors += validate_volume_devices(
            devices, mounts or [], f"{path}.volumeDevices", pod.volumes
        )
        if not (pod.host_users or pod.options.allow_user_namespaces_with_volume_devices):
            errors.append(forbidden(f"{path}.volumeDevices", security.WITHOUT_HOST_USERS))
    if resources := get("resources"):
        errors += validate_resource_requirements(
            resources,
            f"{path}.resources",
            claim_names=pod.claim_names,
            allow_indivisible_huge_pages=pod.options.allow_indivisible_huge_pages_values,
        )
    if resize_policy := get("resizePolicy"):
        errors += _resize_policy(resize_policy, f"{path}.resizePolicy", pod.restart_policy)
    security_context = get("securityContext")
    if security_context:
        errors += security.validate_security_context(
            security_context, f"{path}.securityContext", host_users=pod.host_users
        )
    return errors


def _resize_policy(policies: list[Manifest], path: str, pod_restart_policy: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource = policy.get("resourceName") or ""
        restart = policy.get("restartPolicy") or ""
        if resource in seen:
            errors.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        errors += required_one_of(resource, path, ("cpu", "memory"))
        errors += required_one_of(restart, path, ("NotRequired", "RestartContainer"))
        if pod_restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            errors.append(invalid(path, restart, detail))
    return errors


def _init_restart_policy(container: Manifest, path: str, pod: PodContext) -> Errors:
    policy = container.get("restartPolicy")
    if pod.options.allow_container_restart_policy_rules:
        return _restart_policy(container, path, pod)
    if policy is not None and policy != "Always":
        return [not_supported(f"{path}.restartPolicy", policy, ("Always",))]
    return []


def _restart_policy(container: Manifest, path: str, pod: PodContext) -> Errors:
    """Return the errors in a container's own restart policy and rules (KEP-5307)."""
    policy = container.get("restartPolicy")
    rules = container.get("restartPolicyRules") or []
    if not pod.options.allow_container_restart_policy_rules:
        if policy is None:
            return []
        return [forbidden(f"{path}.restartPolicy", "may not be set for non-init containers")]
    errors: Errors = []
    supported = ("Always", "OnFailure", "Never")
    if policy is not None:
        errors += one_of(policy, f"{path}.restartPolicy", supported)
    if rules and policy is None:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", detail))
    where = f"{path}.restartPolicyRules"
    if len(rules) > 20:
        errors.append(too_long(where, rules, 20))
    for index, rule in enumerate(rules):
        errors += _restart_rule(rule, f"{where}[{index}]", pod.options)
    return errors


def _restart_rule(rule: Manifest, path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    actions = ("Restart", "RestartAllContainers")
    action = rule.get("action") or ""
    if action not in (actions if options.allow_restart_all_containers else actions[:1]):
        errors.append(not_supported(f"{path}.action", action, actions))
    exit_codes = rule.get("exitCodes")
    if exit_codes is None:
        return [*errors, required(f"{path}.exitCodes", "must be specified")]
    operator = exit_codes.get("operator") or ""
    errors += one_of(operator, f"{path}.exitCodes.operator", ("In", "NotIn"))
    values = exit_codes.get("values") or []
    if len(values) > 255:
        errors.append(too_long(f"{path}.exitCodes.values", values, 255))
    return errors
