"""Containers: names, images, ports, environment, probes, lifecycle, restart rules.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from clusterstate.admission.validation import formats, security
from clusterstate.admission.validation.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    required,
    too_long,
)
from clusterstate.admission.validation.options import PodOptions
from clusterstate.admission.validation.resources import (
    parse,
    validate_resource_requirements,
)
from clusterstate.objects.meta import Manifest

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_ONE_HANDLER: Final = "may not specify more than 1 handler type"
_INIT_ONLY_ALWAYS: Final = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
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
_SIGNALS: Final = tuple(
    sorted(
        {
            *(  # noqa: SIM905 - a table of words reads better as text
                "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO "
                "SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP "
                "SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM "
                "SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX"
            ).split(),
            *(f"SIGRTMIN+{n}" for n in range(1, 16)),
            *(f"SIGRTMAX-{n}" for n in range(1, 15)),
        }
    )
)
_WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")

Volumes = dict[str, Manifest]
"""Volume name -> the volume, for those volumes that are valid."""


class Surroundings:
    """What the validation of one container needs to know of its pod."""

    __slots__ = (
        "claim_names",
        "grace_period",
        "host_users",
        "options",
        "os",
        "restart_policy",
        "volumes",
    )

    def __init__(
        self, spec: Manifest, volumes: Volumes, claim_names: Collection[str], options: PodOptions
    ) -> None:
        self.volumes = volumes
        self.claim_names = claim_names
        self.options = options
        self.grace_period: int | None = spec.get("terminationGracePeriodSeconds")
        self.restart_policy: str = spec.get("restartPolicy") or ""
        self.os: str = (spec.get("os") or {}).get("name") or ""
        self.host_users: bool = spec.get("hostUsers") is not False


# Lists of containers --------------------------------------------------------------------------


def validate_containers(containers: list[Manifest], path: str, pod: Surroundings) -> Errors:
    """Return what is wrong with ``spec.containers``."""
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
            errors += _lifecycle(lifecycle, f"{where}.lifecycle", pod)
        errors += _probes(container, where, pod)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            errors += _restart_policy(container, where, pod)
    errors += host_port_conflicts(containers, path)
    return errors


def validate_init_containers(
    containers: list[Manifest], regular: list[Manifest], path: str, pod: Surroundings
) -> Errors:
    """Return what is wrong with ``spec.initContainers``."""
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
                errors += _lifecycle(lifecycle, f"{where}.lifecycle", pod)
            errors += _probes(container, where, pod)
        else:
            for field in ("lifecycle", *_PROBES):
                if container.get(field) is not None:
                    errors.append(forbidden(f"{where}.{field}", _INIT_ONLY_ALWAYS))
        errors += _init_resize_policy(container, where, pod, sidecar=sidecar)
    return errors


def _init_resize_policy(
    container: Manifest, where: str, pod: Surroundings, *, sidecar: bool
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
    pod: Surroundings,
) -> Errors:
    """Return what is wrong with ``spec.ephemeralContainers``."""
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
    """Return what is wrong in a pod but tolerated in a template: blanks around the image."""
    errors: Errors = []
    for index, container in enumerate(containers, start=first):
        image = container.get("image") or ""
        if image and (image[0].isspace() or image[-1].isspace()):
            detail = "must not have leading or trailing whitespace"
            errors.append(invalid(f"{path}[{index}].image", image, detail))
    return errors


def host_port_conflicts(containers: list[Manifest], path: str) -> Errors:
    """Return the host ports that two of the containers claim."""
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort") or 0
            if not host_port:
                continue
            claim = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host_port}"
            if claim in seen:
                at = f"{path}[{index}].ports[{position}].hostPort"
                errors.append(duplicate(at, claim))
            seen.add(claim)
    return errors


# One container --------------------------------------------------------------------------------


def _common(container: Manifest, path: str, pod: Surroundings) -> Errors:
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
    if pull_policy not in _PULL_POLICIES:
        at = f"{path}.imagePullPolicy"
        errors.append(
            not_supported(at, pull_policy, _PULL_POLICIES) if pull_policy else required(at)
        )
    if ports := get("ports"):
        errors += validate_container_ports(ports, f"{path}.ports")
    if env := get("env"):
        errors += validate_env(env, f"{path}.env", pod.options)
    if env_from := get("envFrom"):
        errors += _env_from(env_from, f"{path}.envFrom", pod.options)
    mounts, devices = get("volumeMounts"), get("volumeDevices")
    if mounts:
        errors += _volume_mounts(mounts, devices or [], container, f"{path}.volumeMounts", pod)
    if devices:
        errors += _volume_devices(devices, mounts or [], f"{path}.volumeDevices", pod.volumes)
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
        if not resource:
            errors.append(required(path))
        elif resource not in ("cpu", "memory"):
            errors.append(not_supported(path, resource, ("cpu", "memory")))
        if not restart:
            errors.append(required(path))
        elif restart not in ("NotRequired", "RestartContainer"):
            errors.append(not_supported(path, restart, ("NotRequired", "RestartContainer")))
        if pod_restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            errors.append(invalid(path, restart, detail))
    return errors


def _init_restart_policy(container: Manifest, path: str, pod: Surroundings) -> Errors:
    policy = container.get("restartPolicy")
    if pod.options.allow_container_restart_policy_rules:
        return _restart_policy(container, path, pod)
    if policy is not None and policy != "Always":
        return [not_supported(f"{path}.restartPolicy", policy, ("Always",))]
    return []


def _restart_policy(container: Manifest, path: str, pod: Surroundings) -> Errors:
    """Return what is wrong with a container's own restart policy and rules (KEP-5307)."""
    policy = container.get("restartPolicy")
    rules = container.get("restartPolicyRules") or []
    if not pod.options.allow_container_restart_policy_rules:
        if policy is None:
            return []
        return [forbidden(f"{path}.restartPolicy", "may not be set for non-init containers")]
    errors: Errors = []
    supported = ("Always", "OnFailure", "Never")
    if policy is not None and policy not in supported:
        errors.append(not_supported(f"{path}.restartPolicy", policy, supported))
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
    if operator not in ("In", "NotIn"):
        errors.append(not_supported(f"{path}.exitCodes.operator", operator, ("In", "NotIn")))
    values = exit_codes.get("values") or []
    if len(values) > 255:
        errors.append(too_long(f"{path}.exitCodes.values", values, 255))
    return errors


# Ports ----------------------------------------------------------------------------------------


def validate_container_ports(ports: list[Manifest], path: str) -> Errors:
    """Return what is wrong with the ports of a container."""
    errors: Errors = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = port.get("name") or ""
        if name:
            if problems := formats.port_name(name):
                errors += invalid_each(f"{where}.name", name, problems)
            elif name in names:
                errors.append(duplicate(f"{where}.name", name))
            else:
                names.add(name)
        container_port = port.get("containerPort") or 0
        if not container_port:
            errors.append(required(f"{where}.containerPort"))
        elif problems := formats.port_number(container_port):
            errors += invalid_each(f"{where}.containerPort", container_port, problems)
        host_port = port.get("hostPort") or 0
        if host_port and (problems := formats.port_number(host_port)):
            errors += invalid_each(f"{where}.hostPort", host_port, problems)
        protocol = port.get("protocol") or ""
        if not protocol:
            errors.append(required(f"{where}.protocol"))
        elif protocol not in PROTOCOLS:
            errors.append(not_supported(f"{where}.protocol", protocol, PROTOCOLS))
    return errors


# Environment ----------------------------------------------------------------------------------

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_CONVERTIBLE_FIELDS: Final = {
    *ENV_FIELDS,
    *VOLUME_FIELDS,
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "status.nominatedNodeName",
}
_RESOURCE_FIELDS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGE_FIELDS: Final = ("requests.hugepages-", "limits.hugepages-")
_BYTE_DIVISORS: Final = frozenset(
    ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
)
_BYTE_DIVISORS_LISTED: Final = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"


def _env_name(options: PodOptions) -> Callable[[str], formats.Problems]:
    if options.allow_relaxed_environment_variable_validation:
        return formats.relaxed_env_var_name
    return formats.env_var_name


def validate_env(variables: list[Manifest], path: str, options: PodOptions) -> Errors:
    """Return what is wrong with ``env``."""
    errors: Errors = []
    check = _env_name(options)
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        elif problems := check(name):
            errors += invalid_each(f"{path}[{index}].name", name, problems)
        if variable.get("valueFrom") is not None:
            errors += _value_from(variable, f"{path}[{index}].valueFrom")
    return errors


def _value_from(variable: Manifest, path: str) -> Errors:
    source = variable["valueFrom"]
    errors: Errors = []
    count = 0
    if (ref := source.get("fieldRef")) is not None:
        count += 1
        errors += validate_field_ref(ref, ENV_FIELDS, f"{path}.fieldRef")
    if (ref := source.get("resourceFieldRef")) is not None:
        count += 1
        errors += validate_resource_field_ref(ref, f"{path}.resourceFieldRef", volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if (ref := source.get(name)) is not None:
            count += 1
            errors += _key_ref(ref, f"{path}.{name}")
    if (ref := source.get("fileKeyRef")) is not None:
        count += 1
        errors += _file_key_ref(ref, f"{path}.fileKeyRef")
    if not count:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or "
            "`secretKeyRef`"
        )
        errors.append(invalid(path, "", detail))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _key_ref(ref: Manifest, path: str) -> Errors:
    name = ref.get("name") or ""
    errors = invalid_each(f"{path}.name", name, formats.dns_subdomain(name))
    key = ref.get("key") or ""
    if not key:
        errors.append(required(f"{path}.key"))
    else:
        errors += invalid_each(f"{path}.key", key, formats.config_map_key(key))
    return errors


def _file_key_ref(ref: Manifest, path: str) -> Errors:
    errors: Errors = []
    for name in ("volumeName", "path", "key"):
        if not ref.get(name):
            errors.append(required(f"{path}.{name}"))
    if file := ref.get("path"):
        errors += validate_local_descending_path(file, f"{path}.path")
    if key := ref.get("key"):
        errors += invalid_each(f"{path}.key", key, formats.relaxed_env_var_name(key))
    return errors


def validate_field_ref(ref: Manifest, allowed: tuple[str, ...], path: str) -> Errors:
    """Return what is wrong with a downward API reference to a field of the pod."""
    version = ref.get("apiVersion") or ""
    if not version:
        return [required(f"{path}.apiVersion")]
    field = ref.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    bare, bracket, rest = field.partition("[")
    subscripted = bool(bracket) and rest.startswith("'") and rest.endswith("']") and bool(bare)
    name = bare if subscripted else field
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    if name == "spec.host":
        name = "spec.nodeName"
    if name not in _CONVERTIBLE_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {name}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    if subscripted:
        subscript = rest[1:-2]
        if name == "metadata.annotations":
            subscript_errors = formats.qualified_name(subscript.lower())
        elif name == "metadata.labels":
            subscript_errors = formats.qualified_name(subscript)
        else:
            return [invalid(path, name, "does not support subscript")]
        return invalid_each(path, subscript, subscript_errors)
    if name not in allowed:
        return [not_supported(f"{path}.fieldPath", name, sorted(allowed))]
    return []


def validate_resource_field_ref(ref: Manifest, path: str, *, volume: bool) -> Errors:
    """Return what is wrong with a downward API reference to requests or limits."""
    errors: Errors = []
    resource = ref.get("resource") or ""
    if volume and not ref.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        errors.append(not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    divisor = parse(ref["divisor"]) if ref.get("divisor") is not None else None
    if divisor is None or not divisor:
        return errors
    at = f"{path}.divisor"
    text = str(divisor)
    if resource in ("limits.cpu", "requests.cpu"):
        if text not in ("1m", "1"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            errors.append(invalid(at, resource, detail))
        return errors
    if text in _BYTE_DIVISORS:
        return errors
    if resource in ("limits.memory", "requests.memory"):
        what = "memory"
    elif resource in ("limits.ephemeral-storage", "requests.ephemeral-storage"):
        what = "local ephemeral storage"
    elif resource.startswith(_HUGE_PAGE_FIELDS):
        what = "hugepages"
    else:
        return errors
    detail = f"only divisor's values {_BYTE_DIVISORS_LISTED} are supported with the {what} resource"
    return [*errors, invalid(at, resource, detail)]


def _env_from(sources: list[Manifest], path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    check = _env_name(options)
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix") or ""
        if prefix:
            errors += invalid_each(f"{where}.prefix", prefix, check(prefix))
        count = 0
        for field in ("configMapRef", "secretRef"):
            ref = source.get(field)
            if ref is None:
                continue
            count += 1
            name = ref.get("name") or ""
            if not name:
                errors.append(required(f"{where}.{field}.name"))
            else:
                problems = formats.dns_subdomain(formats.mask_trailing_dash(name))
                errors += invalid_each(f"{where}.{field}.name", name, problems)
        if not count:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(path, "", detail))
        elif count > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


# Mounts and devices ---------------------------------------------------------------------------


def validate_local_descending_path(text: str, path: str) -> Errors:
    """Return what keeps ``text`` from being a relative path without ``..``."""
    errors: Errors = []
    if text.startswith("/"):
        errors.append(invalid(path, text, "must be a relative path"))
    return errors + validate_no_backsteps(text, path)


def validate_no_backsteps(text: str, path: str) -> Errors:
    """Return the error of a path with a ``..`` element."""
    if ".." in text.replace("\\", "/").split("/"):
        return [invalid(path, text, "must not contain '..'")]
    return []


def _volume_mounts(
    mounts: list[Manifest],
    devices: list[Manifest],
    container: Manifest,
    path: str,
    pod: Surroundings,
) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    device_names = {device.get("name") or "" for device in devices}
    device_paths = {device.get("devicePath") or "" for device in devices}
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        name = mount.get("name") or ""
        at = mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in pod.volumes:
            errors.append(not_found(f"{where}.name", name))
        if not at:
            errors.append(required(f"{where}.mountPath"))
        if at in seen:
            errors.append(invalid(f"{where}.mountPath", at, "must be unique"))
        seen.add(at)
        if name in device_names:
            detail = "must not already exist in volumeDevices"
            errors.append(invalid(f"{where}.name", name, detail))
        if at in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{where}.mountPath", at, detail))
        sub_path, sub_path_expr = mount.get("subPath") or "", mount.get("subPathExpr") or ""
        if sub_path:
            errors += validate_local_descending_path(sub_path, f"{path}.subPath")
        if sub_path_expr:
            if sub_path:
                detail = "subPathExpr and subPath are mutually exclusive"
                errors.append(invalid(f"{where}.subPathExpr", sub_path_expr, detail))
            errors += validate_local_descending_path(sub_path_expr, f"{path}.subPathExpr")
        if (propagation := mount.get("mountPropagation")) is not None:
            errors += _mount_propagation(propagation, container, f"{path}.mountPropagation")
        errors += _recursive_read_only(mount, f"{path}.recursiveReadOnly")
    return errors


def _mount_propagation(mode: str, container: Manifest, path: str) -> Errors:
    supported = ("Bidirectional", "HostToContainer", "None")
    if mode not in supported:
        return [not_supported(path, mode, supported)]
    privileged = (container.get("securityContext") or {}).get("privileged")
    if mode == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        return [forbidden(path, detail)]
    return []


def _recursive_read_only(mount: Manifest, path: str) -> Errors:
    mode = mount.get("recursiveReadOnly")
    if mode is None or mode == "Disabled":
        return []
    if mode not in ("Enabled", "IfPossible"):
        return [not_supported(path, mode, ("Disabled", "Enabled", "IfPossible"))]
    errors: Errors = []
    if not mount.get("readOnly"):
        errors.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in (None, "None"):
        detail = "may only be specified when mountPropagation is None or not specified"
        errors.append(forbidden(path, detail))
    return errors


def _volume_devices(
    devices: list[Manifest], mounts: list[Manifest], path: str, volumes: Volumes
) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    paths: set[str] = set()
    mount_names = {mount.get("name") or "" for mount in mounts}
    mount_paths = {mount.get("mountPath") or "" for mount in mounts}
    for index, device in enumerate(devices):
        where = f"{path}[{index}]"
        name, at = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        if name in names:
            errors.append(invalid(f"{where}.name", name, "must be unique"))
        volume: dict[str, Any] | None = volumes.get(name)
        if volume is None:
            errors.append(not_found(f"{where}.name", name))
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            detail = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block "
                "mode"
            )
            errors.append(invalid(f"{where}.name", name, detail))
        if not at:
            errors.append(required(f"{where}.devicePath"))
        if at in paths:
            errors.append(invalid(f"{where}.devicePath", at, "must be unique"))
        if at and ".." in at.split("/"):
            detail = "can not contain backsteps ('..')"
            errors.append(invalid(f"{where}.devicePath", at, detail))
        else:
            paths.add(at)
        if name in mount_names:
            detail = "must not already exist in volumeMounts"
            errors.append(invalid(f"{where}.name", name, detail))
        if at in mount_paths:
            detail = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{where}.devicePath", at, detail))
        if name:
            names.add(name)
    return errors


# Probes and lifecycle -------------------------------------------------------------------------


def _probes(container: Manifest, path: str, pod: Surroundings) -> Errors:
    errors: Errors = []
    for field in _PROBES:
        probe = container.get(field)
        if probe is None:
            continue
        where = f"{path}.{field}"
        errors += _handler(probe, ("exec", "httpGet", "tcpSocket", "grpc"), where, pod)
        for name in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            value = probe.get(name) or 0
            if value < 0:
                errors.append(invalid(f"{where}.{name}", value, _NOT_NEGATIVE))
        grace = probe.get("terminationGracePeriodSeconds")
        at = f"{where}.terminationGracePeriodSeconds"
        if grace is not None and grace <= 0:
            errors.append(invalid(at, grace, "must be greater than 0"))
        if field == "readinessProbe":
            if grace is not None:
                errors.append(invalid(at, grace, "must not be set for readinessProbes"))
        elif (threshold := probe.get("successThreshold") or 0) != 1:
            errors.append(invalid(f"{where}.successThreshold", threshold, "must be 1"))
    return errors


def _lifecycle(lifecycle: Manifest, path: str, pod: Surroundings) -> Errors:
    errors: Errors = []
    for field in ("postStart", "preStop"):
        if (handler := lifecycle.get(field)) is not None:
            handlers = ("exec", "httpGet", "tcpSocket", "sleep")
            errors += _handler(handler, handlers, f"{path}.{field}", pod)
    if (signal := lifecycle.get("stopSignal")) is not None:
        at = f"{path}.stopSignal"
        supported = _WINDOWS_SIGNALS if pod.os == "windows" else _SIGNALS
        if not pod.os:
            detail = "may not be set for containers with empty `spec.os.name`"
            errors.append(forbidden(at, detail))
        elif signal not in supported:
            errors.append(not_supported(at, signal, supported))
    return errors


def _handler(handler: Manifest, allowed: tuple[str, ...], path: str, pod: Surroundings) -> Errors:
    errors: Errors = []
    count = 0
    for name in allowed:
        action = handler.get(name)
        if action is None:
            continue
        if count:
            errors.append(forbidden(f"{path}.{name}", _ONE_HANDLER))
            continue
        count += 1
        at = f"{path}.{name}"
        if name == "exec":
            if not action.get("command"):
                errors.append(required(f"{at}.command"))
        elif name == "httpGet":
            errors += _http_get(action, at)
        elif name == "sleep":
            errors += _sleep(action, at, pod)
        else:
            errors += validate_port_number_or_name(action.get("port", 0), f"{at}.port")
    if not count:
        errors.append(required(path, "must specify a handler type"))
    return errors


def _http_get(action: Manifest, path: str) -> Errors:
    errors: Errors = []
    if not action.get("path"):
        errors.append(required(f"{path}.path"))
    errors += validate_port_number_or_name(action.get("port", 0), f"{path}.port")
    scheme = action.get("scheme") or ""
    if scheme not in ("HTTP", "HTTPS"):
        errors.append(not_supported(f"{path}.scheme", scheme, ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        errors += invalid_each(f"{path}.httpHeaders", name, formats.http_header_name(name))
    return errors


def _sleep(action: Manifest, path: str, pod: Surroundings) -> Errors:
    seconds, grace = action.get("seconds") or 0, pod.grace_period
    if grace is None:
        return []
    if pod.options.allow_pod_lifecycle_sleep_action_zero_value:
        if 0 <= seconds <= grace:
            return []
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    else:
        if 0 < seconds <= grace:
            return []
        detail = (
            f"must be greater than 0 and less than terminationGracePeriodSeconds ({grace}). "
            "Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep."
        )
    return [invalid(path, seconds, detail)]


def validate_port_number_or_name(port: Any, path: str) -> Errors:
    """Return what keeps ``port`` from being a port number or the name of a port."""
    problems = formats.port_number(port) if isinstance(port, int) else formats.port_name(str(port))
    return invalid_each(path, port, problems)
