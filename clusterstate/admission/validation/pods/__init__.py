"""New pods and pod templates: metadata, annotations, spec.

Rules: pkg/apis/core/validation/validation.go, v1.36.


::

    containers       lists of containers, and one container
    pod_resources    resources of the pod as a whole against its containers'
    pod_updates      what may change in a stored pod; ``spec_diff`` shows what did
    pod_resize       what may change in what a pod asks for
    pod_status       what an agent reports
"""

from collections.abc import Collection
from typing import Final

from clusterstate.admission.validation.core import formats, scheduling
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from clusterstate.admission.validation.core.metadata import (
    validate_annotations,
    validate_labels,
    validate_object_meta,
)
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.core.pod_context import PodContext
from clusterstate.admission.validation.core.resources import validate_resource_requirements
from clusterstate.admission.validation.kubelet import security
from clusterstate.admission.validation.kubelet.volumes import validate_volumes
from clusterstate.admission.validation.pods.containers import (
    validate_containers,
    validate_ephemeral_containers,
    validate_for_pod_only,
    validate_init_containers,
)
from clusterstate.admission.validation.pods.pod_resources import validate_pod_resources
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.pod import MIRROR_POD
from clusterstate.objects.wire.reading import read_embedded

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
TOLERATIONS_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/tolerations"
MAX_INT32: Final = 2**31 - 1
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")


# Create ---------------------------------------------------------------------------------------


def validate_pod_create(pod: Manifest, options: PodOptions) -> Errors:
    """Return the errors in a new pod."""
    name = (pod.get("metadata") or {}).get("name") or ""
    spec = pod.get("spec") or {}
    return validate_pod_metadata(pod, options) + validate_new_spec(spec, name, options)


def validate_pod_metadata(pod: Manifest, options: PodOptions) -> Errors:
    """Return the errors in the metadata of a new pod, its annotations against its spec."""
    meta = pod.get("metadata") or {}
    errors = validate_object_meta(meta, namespaced=True, name=formats.dns_subdomain)
    if annotations := meta.get("annotations"):
        spec = pod.get("spec") or {}
        errors += validate_pod_annotations(annotations, spec, "metadata.annotations", options)
        errors += security.validate_annotations_match_fields(annotations, spec, "spec")
    return errors


def validate_new_spec(spec: Manifest, pod_name: str, options: PodOptions) -> Errors:
    """Return the errors in the spec of a new pod."""
    errors = _spec_of_pod(spec, pod_name, options)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden("spec.nodeName", detail))
    return errors


def validate_pod(pod: Manifest, options: PodOptions) -> Errors:
    """Return the errors in metadata and spec of a changed pod."""
    meta = pod.get("metadata") or {}
    spec = pod.get("spec") or {}
    errors = validate_object_meta(meta, namespaced=True, name=formats.dns_subdomain)
    if annotations := meta.get("annotations"):
        errors += validate_pod_annotations(annotations, spec, "metadata.annotations", options)
    return errors + _spec_of_pod(spec, meta.get("name") or "", options)


def _spec_of_pod(spec: Manifest, pod_name: str, options: PodOptions) -> Errors:
    """Return the errors in a pod's spec, also of fields that only templates may have."""
    errors = validate_pod_spec(spec, "spec", options, pod_name=pod_name)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            sources = (volume.get("projected") or {}).get("sources") or ()
            for position, source in enumerate(sources):
                if source.get("serviceAccountToken") is not None:
                    at = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    detail = "must not be specified when serviceAccountName is not set"
                    errors.append(forbidden(at, detail))
    errors += validate_for_pod_only(spec.get("containers") or (), "spec.containers")
    if init_containers := spec.get("initContainers"):
        errors += validate_for_pod_only(init_containers, "spec.initContainers")
    return errors


def validate_pod_annotations(
    annotations: dict[str, str], spec: Manifest, path: str, options: PodOptions
) -> Errors:
    """Return the errors in the annotations that mean something for pods."""
    errors: Errors = []
    if MIRROR_POD in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"{path}[{MIRROR_POD}]", annotations[MIRROR_POD], detail))
    if annotations.get(TOLERATIONS_ANNOTATION):
        errors += _tolerations_annotation(annotations[TOLERATIONS_ANNOTATION], path)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not options.allow_invalid_pod_deletion_cost and not _is_int32(cost):
        errors.append(invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    return errors + security.validate_security_annotations(annotations, spec, path)


def _tolerations_annotation(text: str, path: str) -> Errors:
    try:
        tolerations = read_embedded(text, list[wire_types.Toleration] | None)  # type: ignore[valid-type]
    except ValueError as error:
        return [invalid(path, TOLERATIONS_ANNOTATION, str(error))]
    return scheduling.validate_tolerations(tolerations or [], f"{path}.{TOLERATIONS_ANNOTATION}")


def _is_int32(text: str) -> bool:
    """Return whether the text is a canonical 32-bit integer: no plus sign, no leading zero."""
    if not text or text[0] == "+" or (text[0] == "0" and len(text) > 1):
        return False
    number = natural(text.removeprefix("-"), digits=10)
    return number is not None and number <= (2**31 if text[0] == "-" else MAX_INT32)


# Spec -----------------------------------------------------------------------------------------


def validate_pod_spec(
    spec: Manifest, path: str, options: PodOptions, *, pod_name: str = ""
) -> Errors:
    """Return the errors in a pod spec, of a pod or of a template.

    ``pod_name`` is empty for templates; generic ephemeral volumes are named after it.
    """
    errors: Errors = []
    get = spec.get
    if get("terminationGracePeriodSeconds") is None:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    volumes: dict[str, Manifest] = {}
    if listed := get("volumes"):
        volumes, volume_errors = validate_volumes(listed, f"{path}.volumes", options, pod_name)
        errors += volume_errors
    claim_names: Collection[str] = ()
    if claims := get("resourceClaims"):
        claim_names = {claim["name"] for claim in claims if claim.get("name")}
        errors += _resource_claims(claims, f"{path}.resourceClaims")
    pod_context = PodContext(spec, volumes, claim_names, options)
    containers = get("containers") or []
    init_containers = get("initContainers") or []
    errors += validate_containers(containers, f"{path}.containers", pod_context)
    if init_containers:
        errors += validate_init_containers(
            init_containers, containers, f"{path}.initContainers", pod_context
        )
    if ephemeral := get("ephemeralContainers"):
        errors += validate_ephemeral_containers(
            ephemeral, containers, init_containers, f"{path}.ephemeralContainers", pod_context
        )
    if options.pod_level_resources_enabled and get("resources") is not None:
        errors += validate_pod_resources(spec, f"{path}.resources", claim_names, options)
    if get("hostNetwork"):
        errors += _host_network_ports(containers, f"{path}.containers", options)
    errors += _enum(get("restartPolicy"), _RESTART_POLICIES, f"{path}.restartPolicy")
    errors += _enum(get("dnsPolicy"), _DNS_POLICIES, f"{path}.dnsPolicy")
    if node_selector := get("nodeSelector"):
        errors += validate_labels(node_selector, f"{path}.nodeSelector")
    errors += security.validate_pod_security_context(
        get("securityContext") or {}, spec, f"{path}.securityContext", options
    )
    if affinity := get("affinity"):
        errors += scheduling.validate_affinity(
            affinity,
            f"{path}.affinity",
            allow_invalid_values_in_selector=options.allow_invalid_label_value_in_selector,
            allow_invalid_values_in_required_node_affinity=(
                options.allow_invalid_label_value_in_required_node_affinity
            ),
        )
    errors += _dns_config(get("dnsConfig"), get("dnsPolicy"), f"{path}.dnsConfig", options)
    if gates := get("readinessGates"):
        for index, gate in enumerate(gates):
            type_ = gate.get("conditionType") or ""
            at = f"{path}.readinessGates[{index}].conditionType"
            errors += invalid_each(at, type_, formats.qualified_name(type_))
    if scheduling_gates := get("schedulingGates"):
        at = f"{path}.schedulingGates"
        errors += scheduling.validate_scheduling_gates(scheduling_gates, at)
    if constraints := get("topologySpreadConstraints"):
        errors += spread_errors(constraints, f"{path}.topologySpreadConstraints", options)
    errors += security.validate_windows_host_process(spec, path)
    errors += security.validate_host_users(spec, path)
    if tolerations := get("tolerations"):
        errors += scheduling.validate_tolerations(
            tolerations,
            f"{path}.tolerations",
            comparison_operators=options.allow_taint_toleration_comparison_operators,
        )
    return errors + _names_and_numbers(spec, path, options)


def spread_errors(constraints: list[Manifest], path: str, options: PodOptions) -> Errors:
    """Return the errors in spread constraints under ``options``."""
    return scheduling.validate_topology_spread_constraints(
        constraints,
        path,
        allow_invalid_selector=options.allow_invalid_topology_spread_constraint_label_selector,
        match_label_keys=options.allow_match_label_keys_in_pod_topology_spread,
        merge_match_label_keys=(
            options.allow_match_label_keys_in_pod_topology_spread_selector_merge
        ),
        old_pod_names_keys_twice=options.old_pod_violates_match_label_keys_validation,
        old_pod_names_keys_twice_legacy=options.old_pod_violates_legacy_match_label_keys_validation,
    )


def _names_and_numbers(spec: Manifest, path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    get = spec.get
    for field in ("serviceAccountName", "nodeName", "priorityClassName"):
        if (name := get(field)) and (problems := formats.dns_subdomain(name)):
            errors += invalid_each(f"{path}.{field}", name, problems)
    if (name := get("runtimeClassName")) is not None and (problems := formats.dns_subdomain(name)):
        errors += invalid_each(f"{path}.runtimeClassName", name, problems)
    for field in ("hostname", "subdomain"):
        if name := get(field):
            errors += invalid_each(f"{path}.{field}", name, formats.dns_label(name))
    deadline = get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        detail = formats.range_problem(1, MAX_INT32)
        errors.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    if (override := get("hostnameOverride")) is not None:
        errors += _hostname_override(spec, override, path)
    for index, alias in enumerate(get("hostAliases") or ()):
        errors += _host_alias(alias, f"{path}.hostAliases[{index}]", options)
    if (policy := get("preemptionPolicy")) is not None:
        errors += _enum(policy, _PREEMPTION_POLICIES, f"{path}.preemptionPolicy")
    if overhead := get("overhead"):
        errors += validate_resource_requirements({"limits": overhead}, f"{path}.overhead")
    if get("os") is not None:
        errors += security.validate_os(spec, path)
    if (group := get("schedulingGroup")) is not None:
        errors += _scheduling_group(group, f"{path}.schedulingGroup")
    return errors


def _enum(value: str | None, supported: tuple[str, ...], path: str) -> Errors:
    if value in supported:
        return []
    return [not_supported(path, value, supported)] if value else [required(path)]


def _hostname_override(spec: Manifest, name: str, path: str) -> Errors:
    errors: Errors = []
    at = f"{path}.hostnameOverride"
    if spec.get("hostNetwork"):
        errors.append(invalid(at, name, "hostnameOverride cannot be set when hostNetwork is true"))
    if spec.get("setHostnameAsFQDN"):
        detail = "setHostnameAsFQDN cannot be set to true when hostnameOverride is specified"
        errors.append(invalid(f"{path}.setHostnameAsFQDN", True, detail))
    errors += invalid_each(at, name, formats.dns_subdomain(name))
    if len(name) > 64:
        errors.append(invalid(at, name, "must be no more than 64 bytes"))
    return errors


def _host_alias(alias: Manifest, path: str, options: PodOptions) -> Errors:
    address = alias.get("ip") or ""
    problems = formats.ip_address(address, strict=options.strict_ip_cidr)
    errors = invalid_each(f"{path}.ip", address, problems)
    for index, name in enumerate(alias.get("hostnames") or ()):
        errors += invalid_each(f"{path}.hostnames[{index}]", name, formats.dns_subdomain(name))
    return errors


def _scheduling_group(group: Manifest, path: str) -> Errors:
    name = group.get("podGroupName")
    if name is None:
        return [invalid(path + ".podGroupName", "", "must specify one of: `podGroupName`")]
    return invalid_each(f"{path}.podGroupName", name, formats.dns_subdomain(name))


def _host_network_ports(containers: list[Manifest], path: str, options: PodOptions) -> Errors:
    errors: Errors = []
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort") or 0
            if (options.resource_is_pod or host_port) and host_port != port.get("containerPort"):
                at = f"{path}[{index}].ports[{position}].hostPort"
                detail = "must match `containerPort` when `hostNetwork` is true"
                errors.append(invalid(at, host_port, detail))
    return errors


def _resource_claims(claims: list[Manifest], path: str) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        name = claim.get("name") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        elif name in names:
            errors.append(duplicate(f"{where}.name", name))
        else:
            errors += invalid_each(f"{where}.name", name, formats.dns_label(name))
            names.add(name)
        sources = [f for f in ("resourceClaimName", "resourceClaimTemplateName") if f in claim]
        if len(sources) > 1:
            detail = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            errors.append(invalid(where, claim, detail))
        if not sources:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(where, claim, detail))
        for field in sources:
            value = claim[field]
            errors += invalid_each(f"{where}.{field}", value, formats.dns_subdomain(value))
    return errors


def _dns_config(
    config: Manifest | None, policy: str | None, path: str, options: PodOptions
) -> Errors:
    if policy == "None":
        if config is None:
            detail = "must provide `dnsConfig` when `dnsPolicy` is None"
            return [required(path, detail)]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", detail)]
    if not config:
        return []
    errors: Errors = []
    servers = config.get("nameservers") or []
    if len(servers) > 3:
        detail = "must not have more than 3 nameservers"
        errors.append(invalid(f"{path}.nameservers", servers, detail))
    for index, server in enumerate(servers):
        problems = formats.ip_address(server, strict=options.strict_ip_cidr)
        errors += invalid_each(f"{path}.nameservers[{index}]", server, problems)
    searches = config.get("searches") or []
    if len(searches) > 32:
        detail = "must not have more than 32 search paths"
        errors.append(invalid(f"{path}.searches", searches, detail))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        relaxed = options.allow_relaxed_dns_search_validation
        if relaxed and search == ".":
            continue
        name = search.removesuffix(".")
        check = formats.dns_subdomain_with_underscore if relaxed else formats.dns_subdomain
        errors += invalid_each(f"{path}.searches[{index}]", name, check(name))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{index}]", "must not be empty"))
    return errors


# Templates ------------------------------------------------------------------------------------


def validate_pod_template(template: Manifest, path: str, options: PodOptions) -> Errors:
    """Return the errors in the pod template of a workload."""
    meta = template.get("metadata") or {}
    spec = template.get("spec") or {}
    errors: Errors = []
    if labels := meta.get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := meta.get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
        errors += validate_pod_annotations(annotations, spec, f"{path}.annotations", options)
        errors += security.validate_annotations_match_fields(annotations, spec, f"{path}.spec")
    errors += validate_pod_spec(spec, f"{path}.spec", options)
    if spec.get("ephemeralContainers"):
        at = f"{path}.spec.ephemeralContainers"
        errors.append(forbidden(at, "ephemeral containers not allowed in pod template"))
    return errors
