"""Warnings: what is accepted but will not do what its author may think.

Sent as ``Warning`` headers; kubectl prints them. Texts that Kubernetes has too are Kubernetes' own
(pkg/api/pod/warnings.go, pkg/api/node/warnings.go, pkg/api/service/warnings.go, v1.36).
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from clusterstate.admission.plugins.resource_quota import uncounted
from clusterstate.objects.registry import silent_fields
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import own_annotations
from clusterstate.objects.rules.job_groups import why_no_group
from clusterstate.objects.rules.matching import parse_term
from clusterstate.objects.values.addresses import HEADLESS
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import DEFAULT_SCHEDULER, NodeSelectorTerm

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_DEPRECATED_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
}
_MOST_ALIKE: Final = 16
"""Ports of one number with which each later one is compared: all pairs would be too many."""
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SYSCTLS: Final = 'non-functional in v1.11+; use the "sysctls" field instead'
_FORMER_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": _SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _SYSCTLS,
    _SECCOMP: 'non-functional in v1.27+; use the "seccompProfile" field instead',
}
_FORMER_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_MOUNTS: Final = "automountServiceAccountToken"
_WARNED_PARTS: Final = ("spec", "type", "imagePullSecrets", _MOUNTS)
"""What an update has to change for its author to be warned again."""


def warnings_for(
    kind: str,
    manifest: Manifest,
    old: Manifest | None,
    *,
    mounts_tokens: bool = False,
    compatibility: Compatibility = NEWEST,
) -> list[str]:
    """Return the warnings for an object to be stored; an update of something else has none.

    ``mounts_tokens``: whether a field that asks for a token is acted upon.
    """
    of_annotations = _of_annotations(kind, manifest, old)
    if old is not None and _is_alike(kind, manifest, old):
        return of_annotations
    warnings = of_annotations + silent_fields.warnings(kind, manifest)
    if mounts_tokens:
        warnings = [one for one in warnings if _MOUNTS not in one.partition(":")[0]]
    spec = manifest.get("spec") or {}
    if kind == "Pod":
        return warnings + pod_warnings(spec, "spec", manifest.get("metadata") or {})
    if kind == "ResourceQuota":
        return warnings + [
            f"spec.hard[{name}]: this service does not count this resource, so it is not limited"
            for name in uncounted(spec)
        ]
    if not_done := KINDS[kind].not_done:
        warnings.insert(0, f"{kind} is stored but has no effect: {not_done}")
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    if kind == "Ingress" and (former := "kubernetes.io/ingress.class") in annotations:
        field = "spec.ingressClassName"
        warnings.append(f"annotation \"{former}\" is deprecated, please use '{field}' instead")
    if kind == "Service":
        warnings += _service_warnings(spec, annotations)
    if kind == "DeviceTaintRule" and spec.get("deviceSelector") == {}:
        warnings.append("spec.deviceSelector: an empty selector taints every device of all drivers")
    if kind == "Job":
        warnings += _without_group(manifest, "spec.scheduling", compatibility)
    path = "spec"
    if kind == "CronJob":
        job = spec.get("jobTemplate") or {}
        marks = (job.get("metadata") or {}).get("annotations") or {}
        warnings += own_annotations.warnings(
            "Job", marks, f"{path}.jobTemplate.metadata.annotations"
        )
        spec, path = job.get("spec") or {}, "spec.jobTemplate.spec"
        warnings += _without_group({"spec": spec}, f"{path}.scheduling", compatibility)
    template = spec.get("template")
    if isinstance(template, dict):
        meta = template.get("metadata") or {}
        warnings += pod_warnings(template.get("spec") or {}, f"{path}.template.spec", meta)
        marks = meta.get("annotations") or {}
        of_pods = f"{path}.template.metadata.annotations"
        warnings += own_annotations.warnings("Pod", marks, of_pods)
    return warnings


def _service_warnings(spec: Manifest, annotations: Manifest) -> list[str]:
    """Return the warnings for a Service, as ``GetWarningsForService`` does."""
    warnings = []
    if (hints := "service.kubernetes.io/topology-aware-hints") in annotations:
        mode = "service.kubernetes.io/topology-mode"
        warnings.append(f"annotation {hints} is deprecated, please use {mode} instead")
    outside, named = spec.get("externalIPs") or (), spec.get("type") == "ExternalName"
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == HEADLESS
    if headless:
        ignored = {
            "loadBalancerIP": spec.get("loadBalancerIP"),
            "externalIPs": outside,
            "SessionAffinity": spec.get("sessionAffinity") not in (None, "None"),
        }
        warnings += [
            f"spec.{field} is ignored for headless services"
            for field, set_ in ignored.items()
            if set_
        ]
    for index, address in enumerate(outside):
        path = f"spec.externalIPs[{index}]"
        warnings += _not_canonical("address", address, path, ipaddress.ip_address)
    if outside and not headless and not named:
        warnings.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        path = f"spec.loadBalancerSourceRanges[{index}]"
        warnings += _not_canonical("CIDR value", block, path, ipaddress.ip_network)
    if outside and named:
        warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and not named:
        warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        warnings.append(
            'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
        )
    return warnings


def _not_canonical(
    noun: str, text: str, path: str, parse: Callable[[str], _Address | _Network]
) -> list[str]:
    """Return the warning for IPv6 text in another form than RFC 5952's (``GetWarningsForIP``)."""
    try:
        parsed = parse(text)
    except ValueError:  # an old Service's: validation refuses it in a new one
        return []
    if parsed.version == 4 or str(parsed) == text:
        return []
    return [f'{path}: IPv6 {noun} "{text}" should be in RFC 5952 canonical format ("{parsed}")']


def _of_annotations(kind: str, manifest: Manifest, old: Manifest | None) -> list[str]:
    marks, before = (
        ((one or {}).get("metadata") or {}).get("annotations") or {} for one in (manifest, old)
    )
    if not marks or marks == before:
        return []
    return list(own_annotations.warnings(kind, marks, "metadata.annotations"))


def _without_group(job: Manifest, path: str, compatibility: Compatibility) -> list[str]:
    if job["spec"].get("scheduling") is None:
        return []
    why = why_no_group(job, compatibility)
    return [f"{path} has no effect: {why}"] if why else []


def unknown_profile(spec: Manifest, profiles: frozenset[str] | None) -> str:
    """Return a warning for a pod whose scheduler has no profile here; empty if it has one.

    ``profiles``: the names of all profiles, ``None`` where they are not known.
    """
    name = spec.get("schedulerName") or DEFAULT_SCHEDULER
    if profiles is None or name in profiles or spec.get("nodeName"):
        return ""
    names = ", ".join(sorted(profiles))
    return (
        f'no scheduler profile is called "{name}" (there is {names}): the pod waits until such a'
        " profile is configured, or another scheduler of that name binds it"
    )


def _is_alike(kind: str, manifest: Manifest, old: Manifest) -> bool:
    """Return whether an update changes nothing about which there are warnings."""
    if any(old.get(part) != manifest.get(part) for part in _WARNED_PARTS):
        return False
    if kind not in silent_fields.SILENT_LABELS:
        return True
    one, other = (each.get("metadata") or {} for each in (manifest, old))
    return (one.get("labels") or {}) == (other.get("labels") or {})


def pod_warnings(spec: Manifest, path: str, meta: Manifest) -> list[str]:
    """Return the warnings for a pod spec, of a pod or of a template."""
    warnings = [
        f"{path}.nodeSelector[{key}]: {_DEPRECATED_LABELS[key]}"
        for key in spec.get("nodeSelector") or ()
        if key in _DEPRECATED_LABELS
    ]
    if affinity := spec.get("affinity"):
        warnings += _affinity_warnings(affinity, f"{path}.affinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        warnings += _spread_warnings(constraint, f"{path}.topologySpreadConstraints[{index}]", meta)
    if "serviceAccount" in spec and "serviceAccountName" not in spec:
        warnings.append(
            f"{path}.serviceAccount: deprecated since v1.10; use serviceAccountName instead"
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        warnings.append(
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid "
            "and will be treated as 1"
        )
    warnings += _volume_warnings(spec.get("volumes") or (), f"{path}.volumes")
    for field, name in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        warnings += _doubles(spec.get(field) or (), f"{path}.{field}", name)
    warnings += _fractions(spec.get("overhead") or {}, f"{path}.overhead")
    ports: dict[tuple[Any, Any], list[tuple[str, Manifest]]] = {}
    profiles = spec.get("securityContext") or {}
    annotations, at = meta.get("annotations") or {}, f"{path.removesuffix('spec')}metadata"
    warnings += [
        f"{at}.annotations[{key}]: {text}"
        for key, text in _FORMER_ANNOTATIONS.items()
        if key in annotations and not (key == _SECCOMP and profiles.get("seccompProfile"))
    ]
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            warnings += _container_warnings(container, where)
            warnings += _port_warnings(container.get("ports") or (), f"{where}.ports", ports)
    if spec.get("nodeName") and spec.get("nodeSelector"):
        warnings.append(
            f"{path}.nodeName: the scheduler is bypassed, so that nodeSelector, affinity and "
            "taints have no say in the placement"
        )
    return warnings


def _container_warnings(container: Manifest, path: str) -> list[str]:
    warnings: list[str] = []
    resources = container.get("resources") or {}
    for field in ("limits", "requests"):
        warnings += _fractions(resources.get(field) or {}, f"{path}.resources.{field}")
    names: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        extends = reference in value and value != reference and not variable.get("valueFrom")
        if name in names and not extends:
            warnings.append(
                f'{path}.env[{index}]: hides previous definition of "{name}", which may be '
                "dropped when using apply"
            )
        names.add(name)
    return warnings


def _fractions(amounts: Manifest, path: str) -> list[str]:
    """Return the warnings for bytes that are none: of 128m, for one, 128M or 128Mi was meant."""
    return [
        f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'
        for name in ("memory", "ephemeral-storage")
        if str(amounts.get(name) or "0")[-1] in "mun"
    ]


def _doubles(items: Sequence[Manifest], path: str, field: str) -> list[str]:
    """Return the warnings for items of one name or address."""
    warnings = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(field) or ""
        if value in seen:
            warnings.append(f'{path}[{index}].{field}: duplicate {field} "{value}"')
        seen.add(value)
        if not value and field == "name":
            warnings.append(f'{path}[{index}].name: invalid empty name ""')
    return warnings


def _volume_warnings(volumes: Sequence[Manifest], path: str) -> list[str]:
    """Return the warnings for volumes that Kubernetes has no driver for any more."""
    return [
        f"{path}[{index}].{source}: {_FORMER_VOLUMES[source]}"
        for index, volume in enumerate(volumes)
        for source in volume
        if source in _FORMER_VOLUMES
    ]


def _port_warnings(
    ports: Sequence[Manifest], path: str, others: dict[tuple[Any, Any], list[tuple[str, Manifest]]]
) -> list[str]:
    """Return the warnings for a container's ports; ``others`` are those of containers before it."""
    warnings = []
    for index, port in enumerate(ports):
        where, number, protocol = (
            f"{path}[{index}]",
            port.get("containerPort"),
            port.get("protocol"),
        )
        host, address = port.get("hostPort") or 0, port.get("hostIP") or ""
        if address and not host:
            shown = f"Name:{port.get('name') or ''} HostPort:0 ContainerPort:{number}"
            shown = f"{{{shown} Protocol:{protocol} HostIP:{address}}}"
            warnings.append(f"{where}: hostIP set without hostPort: {shown}")
        alike = others.setdefault((number, protocol), [])
        for before, other in alike:
            of_host, of_address = other.get("hostPort") or 0, other.get("hostIP") or ""
            if (host, address) == (of_host, of_address):
                how = "duplicate"
            elif not host or not of_host:
                how = "overlapping"
            elif host == of_host and bool(address) is not bool(of_address):
                how = "dangerously ambiguous"
            else:
                continue
            warnings.append(f"{where}: {how} port definition with {before}")
        if len(alike) < _MOST_ALIKE:
            alike.append((where, port))
    return warnings


def _affinity_warnings(affinity: Manifest, path: str) -> list[str]:
    warnings: list[str] = []
    node_affinity = affinity.get("nodeAffinity") or {}
    where = f"{path}.nodeAffinity"
    for field in (
        "requiredDuringSchedulingRequiredDuringExecution",
        "requiredDuringSchedulingIgnoredDuringExecution",
    ):
        terms = (node_affinity.get(field) or {}).get("nodeSelectorTerms") or ()
        for index, term in enumerate(terms):
            at = f"{where}.{field}.nodeSelectorTerms[{index}]"
            warnings += _term_warnings(term, at)
            warnings += _unparsed(term, at, "no node matches this term")
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(node_affinity.get(preferred) or ()):
        at = f"{where}.{preferred}[{index}].preference"
        preference = term.get("preference") or {}
        warnings += _term_warnings(preference, at)
        warnings += _unparsed(preference, at, "scheduling this pod fails at this term")
    for name in ("podAffinity", "podAntiAffinity"):
        pod_affinity = affinity.get(name) or {}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(pod_affinity.get(required) or ()):
            warnings += _null_selector(term, f"{path}.{name}.{required}[{index}]")
        for index, term in enumerate(pod_affinity.get(preferred) or ()):
            at = f"{path}.{name}.{preferred}[{index}].podAffinityTerm"
            warnings += _null_selector(term.get("podAffinityTerm") or {}, at)
    return warnings


def _term_warnings(term: Manifest, path: str) -> list[str]:
    return [
        f"{path}.matchExpressions[{index}].key: {expression['key']} is "
        f"{_DEPRECATED_LABELS[expression['key']]}"
        for index, expression in enumerate(term.get("matchExpressions") or ())
        if expression.get("key") in _DEPRECATED_LABELS
    ]


def _unparsed(term: Manifest, path: str, consequence: str) -> list[str]:
    """Return warnings for a valid term that the scheduler cannot parse, such as Gt with a word."""
    try:
        parsed = parse_term(msgspec.convert(term, NodeSelectorTerm), path)
    except msgspec.ValidationError:
        return []  # a template that was not checked yet
    return [f"{error.field}: {error.message()}; {consequence}" for error in parsed.errors]


def _null_selector(term: Manifest, path: str) -> list[str]:
    if term.get("labelSelector") is None:
        return [f"{path}.labelSelector: a null labelSelector results in matching no pod"]
    return []


def _spread_warnings(constraint: Manifest, path: str, meta: Manifest) -> list[str]:
    selector = constraint.get("labelSelector")
    if selector is None:
        return [f"{path}.labelSelector: a null labelSelector results in matching no pod"]
    own = meta.get("labels") or {}
    unmatched = {k: v for k, v in (selector.get("matchLabels") or {}).items() if own.get(k) != v}
    if unmatched:
        listed = ", ".join(f"{k}={v}" for k, v in sorted(unmatched.items()))
        text = f"its labelSelector does not match the pod's own labels ({listed})"
        return [f"{path}: {text}, so that it spreads other pods"]
    return []
