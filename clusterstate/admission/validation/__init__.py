"""Validation: every error in an object, as a list of `FieldError`.

``validate`` chooses the rules for a kind, an operation and a subresource. The modules have the
rules by subject; each function takes a part of a manifest and its path and returns errors, an empty
list if there are none. Field paths, error types and texts equal those of Kubernetes v1.36, since
people and programs read them.

``kinds`` maps each kind to the package that checks it::

    pods         pods and pod templates: new, updated, resized, their status
    workloads    Jobs, Services, networking, configuration
    policy       roles, certificates, flow control
    kubelet      parts of a pod that only its node's agent reads
    core         shared rules; nodes, namespaces, quotas, storage, devices
"""

import msgspec
from msgspec.structs import replace

from clusterstate.admission.request import UPDATE, AdmissionSettings
from clusterstate.admission.validation import kinds, pods
from clusterstate.admission.validation.core import namespaces, nodes
from clusterstate.admission.validation.core.field import Errors
from clusterstate.admission.validation.core.options import CURRENT, PodOptions, tolerating
from clusterstate.admission.validation.pods import pod_resize, pod_status, pod_updates
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.remembered import remembered

__all__ = ["validate"]


def pod_options(settings: AdmissionSettings, old: Manifest | None) -> PodOptions:
    """Return which errors to tolerate: none in new pods, in others those of the stored pod."""
    options = CURRENT if old is None else tolerating(old)
    if settings.taint_toleration_comparison_operators:
        options = replace(options, allow_taint_toleration_comparison_operators=True)
    return options


def validate(
    kind: str,
    operation: str,
    manifest: Manifest,
    old: Manifest | None,
    subresource: str,
    settings: AdmissionSettings,
) -> Errors:
    """Return every error; for kinds without rules those of the metadata."""
    if kind == "Pod":
        return _validate_pod(operation, manifest, old, subresource, settings)
    updated = old if operation == UPDATE else None
    if kind == "Node":
        if updated is not None:
            return nodes.validate_node_update(manifest, updated)
        return nodes.validate_node(manifest, strict_ip_cidr=True)
    if kind == "Namespace":
        return namespaces.validate(manifest, updated, subresource)
    return kinds.validate(kind, manifest, updated, subresource)


def _validate_pod(
    operation: str,
    pod: Manifest,
    old: Manifest | None,
    subresource: str,
    settings: AdmissionSettings,
) -> Errors:
    if subresource == "binding":
        return pod_updates.validate_binding(pod)
    if subresource == "eviction":
        return []
    tolerated = pod_options(settings, old)
    if operation != UPDATE or old is None:
        if tolerated is CURRENT and _is_known_to_be_right(msgspec.json.encode(pod.get("spec"))):
            return pods.validate_pod_metadata(pod, CURRENT)
        return pods.validate_pod_create(pod, tolerated)
    if subresource == "status":
        return pod_status.validate_pod_status_update(pod, old, tolerated)
    if subresource == "resize":
        return pod_resize.validate_pod_resize(pod, old, tolerated)
    return pod_updates.validate_pod_update(pod, old, tolerated)


@remembered(4096, longest=16_384)
def _is_known_to_be_right(spec: bytes) -> bool:
    """Return whether the spec of a new pod is valid, whatever the pod's name.

    The pods of a workload have equal specs, so most are found in this cache. A generic ephemeral
    volume names its claim after the pod, so such specs are validated each time.
    """
    if b'"ephemeral"' in spec:
        return False
    return not pods.validate_new_spec(msgspec.json.decode(spec) or {}, "", CURRENT)
