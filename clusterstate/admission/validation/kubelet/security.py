"""Security contexts of pods and containers, the OS of a pod, seccomp and AppArmor.

Stowage runs no containers, but checks these fields as an API server does, so that Kubernetes
accepts every manifest that is accepted here. Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

import re
from collections.abc import Iterator
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    required,
    too_long,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.objects.values.meta import Manifest

WINDOWS_UNSET: Final = "cannot be set for a windows pod"
WITHOUT_HOST_USERS: Final = "when `hostUsers` is false"
_PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_FORMAT: Final = rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}"
_SYSCTL: Final = re.compile(_SYSCTL_FORMAT)
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


def visit_containers(spec: Manifest, path: str) -> Iterator[tuple[Manifest, str]]:
    """Yield every container with its path: init, regular, ephemeral."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield container, f"{path}.{field}[{index}]"


# Security contexts ----------------------------------------------------------------------------


def validate_pod_security_context(
    context: Manifest, spec: Manifest, path: str, options: PodOptions
) -> Errors:
    """Return the errors in ``spec.securityContext``."""
    errors: Errors = []
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        if (number := context.get(field)) is not None:
            errors += invalid_each(f"{path}.{field}", number, formats.user_or_group_id(number))
    for index, number in enumerate(context.get("supplementalGroups") or ()):
        at = f"{path}.supplementalGroups[{index}]"
        errors += invalid_each(at, number, formats.user_or_group_id(number))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{path}.shareProcessNamespace", True, detail))
    if sysctls := context.get("sysctls"):
        errors += _sysctls(sysctls, spec, f"{path}.sysctls", options)
    errors += _seccomp_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    errors += _windows_options(context.get("windowsOptions"), f"{path}.windowsOptions")
    errors += _app_armor_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    only_recursive = options.allow_only_recursive_se_linux_change_policy
    for field, allowed in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
        (
            "seLinuxChangePolicy",
            ("Recursive",) if only_recursive else ("MountOption", "Recursive"),
        ),
    ):
        policy = context.get(field)
        if policy is not None:
            errors += one_of(policy, f"{path}.{field}", allowed)
    return errors


def _sysctls(sysctls: list[Manifest], spec: Manifest, path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        at = f"{path}[{index}].name"
        name = sysctl.get("name") or ""
        if not name:
            errors.append(required(at))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            detail = f"must have at most 253 characters and match regex ^{_SYSCTL_FORMAT}$"
            errors.append(invalid(at, name, detail))
        elif name in names:
            errors.append(duplicate(at, name))
        if not options.allow_namespaced_sysctls_for_host_net_and_host_ipc:
            errors += _host_sysctl(name, spec, at)
        names.add(name)
    return errors


def _host_sysctl(name: str, spec: Manifest, path: str) -> Errors:
    dotted = name.replace("/", ".")
    if spec.get("hostNetwork") and dotted.startswith("net."):
        return [invalid(path, name, "may not be specified when 'hostNetwork' is true")]
    ipc = ("kernel.shm", "kernel.msg", "fs.mqueue.")
    if spec.get("hostIPC") and (dotted == "kernel.sem" or dotted.startswith(ipc)):
        return [invalid(path, name, "may not be specified when 'hostIPC' is true")]
    return []


def validate_security_context(context: Manifest, path: str, *, host_users: bool) -> Errors:
    """Return the errors in the ``securityContext`` of a container."""
    errors: Errors = []
    for field in ("runAsUser", "runAsGroup"):
        if (number := context.get(field)) is not None:
            errors += invalid_each(f"{path}.{field}", number, formats.user_or_group_id(number))
    if (mount := context.get("procMount")) is not None:
        at = f"{path}.procMount"
        errors += one_of(mount, at, ("Default", "Unmasked"))
        if host_users and mount == "Unmasked":
            errors.append(invalid(at, mount, "`hostUsers` must be false to use `Unmasked`"))
    errors += _seccomp_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        prefix = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            errors.append(invalid(path, context, f"{prefix} `privileged` to true"))
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                errors.append(invalid(path, context, f"{prefix} `capabilities.Add` CAP_SYS_ADMIN"))
    errors += _windows_options(context.get("windowsOptions"), f"{path}.windowsOptions")
    errors += _app_armor_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    return errors


def _seccomp_profile(profile: Manifest | None, path: str) -> Errors:
    if profile is None:
        return []
    errors: Errors = []
    type_ = profile.get("type") or ""
    if not type_:
        detail = "type is required when seccompProfile is set"
        errors.append(required(f"{path}.type", detail))
    elif type_ not in _PROFILE_TYPES:
        errors.append(not_supported(f"{path}.type", type_, _PROFILE_TYPES))
    local = profile.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if type_ == "Localhost":
        if local is None:
            errors.append(required(at, "must be set when seccomp type is Localhost"))
        else:
            errors += _local_descending_path(local, at)
    elif local is not None:
        errors.append(invalid(at, profile, "can only be set when seccomp type is Localhost"))
    return errors


def _local_descending_path(text: str, path: str) -> Errors:
    errors: Errors = []
    if text.startswith("/"):
        errors.append(invalid(path, text, "must be a relative path"))
    if ".." in text.split("/"):
        errors.append(invalid(path, text, "must not contain '..'"))
    return errors


def _app_armor_profile(profile: Manifest | None, path: str) -> Errors:
    if profile is None:
        return []
    type_ = profile.get("type") or ""
    local = profile.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if type_ == "Localhost":
        if local is None:
            return [required(at, "must be set when AppArmor type is Localhost")]
        errors: Errors = []
        if local.strip() != local:
            errors.append(invalid(at, local, "must not be padded with whitespace"))
        elif not local:
            errors.append(required(at, "must be set when AppArmor type is Localhost"))
        if len(local) > 4095:
            errors.append(too_long(at, "", 4095))
        return errors
    if type_ in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            return [invalid(at, local, "can only be set when AppArmor type is Localhost")]
        return []
    if not type_:
        return [required(f"{path}.type", "type is required when appArmorProfile is set")]
    return [not_supported(f"{path}.type", type_, _PROFILE_TYPES)]


# Windows --------------------------------------------------------------------------------------

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS: Final = re.compile(r"""[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}""")
_DNS_PART: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_DOMAIN: Final = re.compile(rf"{_DNS_PART}(?:\.{_DNS_PART})*")
_BAD_USER: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_DOTS_AND_SPACES: Final = re.compile(r"[. ]+")


def _windows_options(options: Manifest | None, path: str) -> Errors:
    if options is None:
        return []
    errors: Errors = []
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        errors += invalid_each(f"{path}.gmsaCredentialSpecName", name, formats.dns_subdomain(name))
    if (credential := options.get("gmsaCredentialSpec")) is not None:
        at = f"{path}.gmsaCredentialSpec"
        if not credential:
            errors.append(invalid(at, credential, "gmsaCredentialSpec cannot be an empty string"))
        elif len(credential) > 64 * 1024:
            detail = "gmsaCredentialSpec size must be under 64 KiB"
            errors.append(invalid(at, credential, detail))
    if (user := options.get("runAsUserName")) is not None:
        errors += [
            invalid(f"{path}.runAsUserName", user, problem) for problem in _run_as_user_name(user)
        ]
    return errors


def _run_as_user_name(name: str) -> list[str]:
    if not name:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(name):
        return ["runAsUserName cannot contain control characters"]
    parts = name.split("\\")
    if len(parts) > 2:
        return ["runAsUserName cannot contain more than one backslash"]
    problems = []
    domain, user = ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    if len(domain) >= 256:
        problems.append("runAsUserName's Domain length must be under 256 characters")
    if len(parts) == 2 and not (_NET_BIOS.fullmatch(domain) or _DNS_DOMAIN.fullmatch(domain)):
        problems.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        problems.append("runAsUserName's User cannot be empty")
    elif len(user) > 104:
        problems.append("runAsUserName's User length must not be longer than 104 characters")
    if _DOTS_AND_SPACES.fullmatch(user):
        problems.append("runAsUserName's User cannot contain only periods or spaces")
    if _BAD_USER.search(user):
        problems.append(
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"
        )
    return problems


def validate_windows_host_process(spec: Manifest, path: str) -> Errors:
    """Return the errors in HostProcess containers: all or none, in the host's network."""
    errors: Errors = []
    options = (spec.get("securityContext") or {}).get("windowsOptions") or {}
    of_pod = options.get("hostProcess")
    containers = host_process = 0
    for container, where in visit_containers(spec, path):
        containers += 1
        context = container.get("securityContext") or {}
        own = (context.get("windowsOptions") or {}).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            detail = (
                "pod hostProcess value must be identical if both are specified, "
                f"was {str(of_pod).lower()}"
            )
            at = f"{where}.securityContext.windowsOptions.hostProcess"
            errors.append(invalid(at, own, detail))
        if own or (own is None and of_pod):
            host_process += 1
    if host_process:
        if host_process != containers:
            detail = (
                "If pod contains any hostProcess containers then all containers must be "
                "HostProcess containers"
            )
            errors.append(invalid(path, "", detail))
        if not spec.get("hostNetwork"):
            detail = "hostNetwork must be true if pod contains any hostProcess containers"
            errors.append(invalid(f"{path}.hostNetwork", False, detail))
    return errors


def validate_os(spec: Manifest, path: str) -> Errors:
    """Return the errors in ``spec.os``, and in fields that this OS does not support."""
    name = (spec.get("os") or {}).get("name") or ""
    if not name:
        return [required(f"{path}.os.name", "cannot be empty")]
    if name not in ("linux", "windows"):
        return [not_supported(f"{path}.os", name, ("linux", "windows"))]
    if name == "linux":
        return _linux(spec, path)
    return _windows(spec, path)


def _linux(spec: Manifest, path: str) -> Errors:
    detail = "windows options cannot be set for a linux pod"
    errors: Errors = []
    if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
        errors.append(forbidden(f"{path}.securityContext.windowsOptions", detail))
    for container, where in visit_containers(spec, path):
        if (container.get("securityContext") or {}).get("windowsOptions") is not None:
            errors.append(forbidden(f"{where}.securityContext.windowsOptions", detail))
    return errors


_LINUX_POD_CONTEXT: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_LINUX_CONTAINER_CONTEXT: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def _windows(spec: Manifest, path: str) -> Errors:
    errors: Errors = []
    context = spec.get("securityContext") or {}
    for field in _LINUX_POD_CONTEXT:
        if context.get(field) not in (None, []):
            errors.append(forbidden(f"{path}.securityContext.{field}", WINDOWS_UNSET))
    for field in ("hostUsers", "shareProcessNamespace"):
        if spec.get(field) is not None:
            errors.append(forbidden(f"{path}.{field}", WINDOWS_UNSET))
    for field in ("hostPID", "hostIPC"):
        if spec.get(field):
            errors.append(forbidden(f"{path}.{field}", WINDOWS_UNSET))
    for container, where in visit_containers(spec, path):
        own = container.get("securityContext") or {}
        for field in _LINUX_CONTAINER_CONTEXT:
            if own.get(field) is not None:
                errors.append(forbidden(f"{where}.securityContext.{field}", WINDOWS_UNSET))
    return errors


def validate_host_users(spec: Manifest, path: str) -> Errors:
    """Return the errors of host namespaces in a pod with its own user namespace."""
    if spec.get("hostUsers") is not False:
        return []
    errors: Errors = []
    for field, shown in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(field):
            errors.append(forbidden(f"{path}.{shown}", WITHOUT_HOST_USERS))
    return errors


# Annotations of old ---------------------------------------------------------------------------


def validate_security_annotations(annotations: dict[str, str], spec: Manifest, path: str) -> Errors:
    """Return the errors in the seccomp and AppArmor annotations."""
    errors: Errors = []
    if (profile := annotations.get(SECCOMP_POD)) is not None:
        errors += _seccomp_annotation(profile, f"{path}.{SECCOMP_POD}")
    for key, value in annotations.items():
        if key.startswith(SECCOMP_CONTAINER):
            errors += _seccomp_annotation(value, f"{path}.{key}")
        elif key.startswith(APP_ARMOR):
            errors += _app_armor_annotation(key, value, spec, path)
    return errors


def _seccomp_annotation(profile: str, path: str) -> Errors:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith("localhost/"):
        return _local_descending_path(profile.removeprefix("localhost/"), path)
    return [invalid(path, profile, "must be a valid seccomp profile")]


def _app_armor_annotation(key: str, profile: str, spec: Manifest, path: str) -> Errors:
    errors: Errors = []
    name = key.removeprefix(APP_ARMOR)
    if not any(c.get("name") == name for c, _ in visit_containers(spec, "spec")):
        errors.append(invalid(f"{path}[{key}]", name, "container not found"))
    is_valid = profile in ("", "runtime/default", "unconfined") or profile.startswith("localhost/")
    if not is_valid:
        detail = f'invalid AppArmor profile name: "{profile}"'
        errors.append(invalid(f"{path}[{key}]", profile, detail))
    return errors


def validate_annotations_match_fields(
    annotations: dict[str, str], spec: Manifest, path: str
) -> Errors:
    """Return the errors of seccomp and AppArmor annotations that contradict the fields."""
    errors: Errors = []
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in annotations and context.get("seccompProfile") is not None:
        at = f"{path}.securityContext.seccompProfile"
        errors += _match(annotations[SECCOMP_POD], context["seccompProfile"], at, "seccomp")
    pod_profile = context.get("appArmorProfile")
    windows = (spec.get("os") or {}).get("name") == "windows"
    for container, where in visit_containers(spec, path):
        own = container.get("securityContext") or {}
        name = container.get("name") or ""
        seccomp = annotations.get(SECCOMP_CONTAINER + name)
        if seccomp is not None and own.get("seccompProfile") is not None:
            at = f"{where}.securityContext.seccompProfile"
            errors += _match(seccomp, own["seccompProfile"], at, "seccomp")
        profile = own.get("appArmorProfile") or pod_profile
        app_armor = annotations.get(APP_ARMOR + name)
        if app_armor is not None and profile is not None and not windows:
            at = f"{where}.securityContext.appArmorProfile"
            errors += _match(app_armor, profile, at, "apparmor")
    return errors


def _match(annotation: str, profile: Manifest, path: str, what: str) -> Errors:
    type_ = profile.get("type")
    wrong = f"{what} type in annotation and field must match"
    if type_ == "Unconfined":
        matches = annotation == "unconfined"
    elif type_ == "RuntimeDefault":
        also = what == "seccomp" and annotation == "docker/default"
        matches = annotation == "runtime/default" or also
    elif type_ == "Localhost":
        matches = annotation.startswith("localhost/")
        if matches and annotation.removeprefix("localhost/") != profile.get("localhostProfile"):
            detail = f"{what} profile in annotation and field must match"
            return [forbidden(f"{path}.localhostProfile", detail)]
    else:
        return []
    return [] if matches else [forbidden(f"{path}.type", wrong)]
