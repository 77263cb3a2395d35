"""A pod's manifest as requirements: the ``PodInfo`` of its scheduling class.

Computes once per class what plugins would otherwise compute for each node and pod. Rules:
``pkg/scheduler/framework/types.go`` (``NewPodInfo``, ``calculateResource``),
``framework/plugins/imagelocality`` (image names), ``pkg/scheduler/util/utils.go`` (host ports),
v1.36.
"""

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Final

import msgspec

from clusterstate.objects.dra.extended import is_extended
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.rules.csi_migration import is_migratable
from clusterstate.objects.rules.matching import PreferredTerms
from clusterstate.objects.rules.resources import (
    CPU,
    DEFAULT_CPU_MILLI,
    DEFAULT_MEMORY_BYTES,
    MEMORY,
    PodResourcesOptions,
    is_resize_infeasible,
    non_zero_requests,
    pod_request_ints,
    pod_requests,
    whole,
)
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.labels import (
    IN,
    NOT_IN,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    selector_from_label_selector,
)
from clusterstate.objects.values.meta import ObjectMeta
from clusterstate.objects.values.pod import (
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    Volume,
    WeightedPodAffinityTerm,
)
from clusterstate.objects.values.quantity import Quantity
from scheduling.framework.types import AffinityTerm, HostPort, PodInfo, digest_of
from scheduling.framework.volume_binder import claim_name

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Pod).decode


def from_stored_class(
    class_id: int, spec: str | bytes, compatibility: Compatibility = NEWEST
) -> PodInfo:
    """Return the requirements of a stored scheduling class, with the digest of its id."""
    return from_class(digest_of(class_id), spec, compatibility)


def from_class(digest: bytes, spec: str | bytes, compatibility: Compatibility = NEWEST) -> PodInfo:
    """Return the requirements of a scheduling class.

    Args:
        digest: the class's digest.
        spec: its reduced manifest as JSON (``scheduling_class.encode``).
        compatibility: the version whose rule gives the requests of a pod that is being resized.

    Raises:
        msgspec.ValidationError: ``spec`` is not a pod.
        QuantityError: a resource amount does not parse.
    """
    text = spec if isinstance(spec, str) else spec.decode()
    shared = scheduling_class.shared(text)
    if (
        shared is not text
        and len(shared) <= _SHORT
        and not (like := _like(shared, compatibility)).volumes
    ):
        own = _decode_own(text)  # volumes may name claims after the pod
        info = copy(like)
        info.pod = msgspec.structs.replace(like.pod, metadata=own.metadata, status=own.status)
        info.digest, info.memo, info._required = digest, {}, {}
        return info
    return from_pod(_decode(text), digest, compatibility)


class _Own(msgspec.Struct):
    """The parts of a class in which pods of one template with claims of their own differ."""

    metadata: ObjectMeta
    status: PodStatus = PodStatus()


_decode_own = msgspec.json.Decoder(_Own).decode


_SHORT: Final = 8192
"""Longer specs are not kept: a client could fill the memory with them."""


@lru_cache(maxsize=256)
def _like(shared: str, compatibility: Compatibility) -> PodInfo:
    return from_pod(_decode(shared), b"", compatibility)


def from_pod(
    pod: Pod, digest: bytes | None = None, compatibility: Compatibility = NEWEST
) -> PodInfo:
    """Return the requirements of a pod.

    Args:
        pod: an admitted pod; an empty ``metadata.namespace`` means ``default``.
        digest: of all content that matters for scheduling; made from the pod when ``None``.
        compatibility: the version whose rule gives the requests of a pod that is being resized.

    Raises:
        QuantityError: a resource amount does not parse.
    """
    meta, spec = pod.metadata, pod.spec
    info = PodInfo()
    info.pod = pod
    info.namespace = meta.namespace or "default"
    info.labels = meta.labels
    info.priority = spec.priority or 0
    info.preemption_policy = spec.preemption_policy or "PreemptLowerPriority"
    info.scheduler_name = spec.scheduler_name
    info.owner = next(
        ((o.api_version, o.kind, o.name) for o in meta.owner_references if o.controller), None
    )
    info.requests = pod_request_ints(pod, compatibility)
    info.scored_requests = _scored_requests(pod)
    info.nonzero_cpu, info.nonzero_memory = non_zero_requests(pod, compatibility)
    info.tolerations = spec.tolerations
    info.host_ports = _host_ports(pod)
    containers = (*spec.init_containers, *spec.containers)
    mounted = (volume.image.reference for volume in spec.volumes if volume.image)
    info.images = tuple(map(normalized_image_name, (*(c.image for c in containers), *mounted)))
    info.volumes = tuple(filter(_matters, spec.volumes))
    info.claims = tuple(name for one in info.volumes if (name := claim_name(meta, one)) is not None)
    info.may_claim = bool(spec.resource_claims) or any(map(is_extended, info.requests))
    info.container_count = len(containers)
    info.gates = tuple(gate.name for gate in spec.scheduling_gates)
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    info.preferred = PreferredTerms(
        node_affinity.preferred_during_scheduling_ignored_during_execution if node_affinity else ()
    )
    near = affinity.pod_affinity if affinity else None
    far = affinity.pod_anti_affinity if affinity else None
    problems: list[str] = []

    def parsed(
        name: str,
        parse: Callable[[Pod, PodAffinity | None], tuple[AffinityTerm, ...]],
        rules: PodAffinity | None,
    ) -> tuple[AffinityTerm, ...]:
        try:
            return parse(pod, rules)
        except SelectorError as error:
            problems.append(f"{name}: {error}")
            return ()

    info.affinity = parsed("requiredAffinityTerms", _required, near)
    info.anti_affinity = parsed("requiredAntiAffinityTerms", _required, far)
    info.preferred_affinity = parsed("preferredAffinityTerms", _preferred, near)
    info.preferred_anti_affinity = parsed("preferredAntiAffinityTerms", _preferred, far)
    info.problem = problems[0] if len(problems) == 1 else ""
    if len(problems) > 1:
        info.problem = f"[{', '.join(problems)}]"
    terms = (
        info.affinity,
        info.anti_affinity,
        info.preferred_affinity,
        info.preferred_anti_affinity,
    )
    visible = (info.namespace, info.labels, terms, info.host_ports)
    info.peer_key = _encode((*visible, info.claims, info.volumes) if info.volumes else visible)
    required_affinity = (
        (
            node_affinity.required_during_scheduling_required_during_execution,
            node_affinity.required_during_scheduling_ignored_during_execution,
        )
        if node_affinity
        else ()
    )
    info.toleration_key = _encode(spec.tolerations) if spec.tolerations else b""
    info.node_affinity_key = (
        _encode((spec.node_selector, node_affinity)) if spec.node_selector or node_affinity else b""
    )
    info.placement_key = _encode((spec.node_selector, required_affinity, spec.tolerations))
    info.digest = digest if digest is not None else digest_of_pod(pod)
    info.amounts = []
    info.index = -1
    info.peer = -1
    info.memo = {}
    info._required = {}
    return info


def _matters(volume: Volume) -> bool:
    """Return whether a volume influences on which nodes its pod fits."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.iscsi is not None
        or volume.rbd is not None
        or is_migratable(volume)
    )


def digest_of_pod(pod: Pod) -> bytes:
    """Return the content that matters for scheduling; unlike a stored digest, not hashed."""
    own = any(volume.ephemeral is not None for volume in pod.spec.volumes) or any(
        claim.resource_claim_template_name is not None for claim in pod.spec.resource_claims
    )
    meta = msgspec.structs.replace(
        pod.metadata,
        name=pod.metadata.name if own else "",
        uid=pod.metadata.uid if own else "",
        annotations={},
        creation_timestamp=None,
        deletion_timestamp=None,
        owner_references=tuple(o for o in pod.metadata.owner_references if o.controller),
    )
    # nodeName stays: the plugin NodeName reads it when a placed pod is judged again.
    status = pod.status
    held = (status.container_statuses, status.init_container_statuses)
    whole = (status.allocated_resources, status.resources, is_resize_infeasible(pod))
    return _encode((meta, pod.spec, held, whole, status.resource_claim_statuses))


def _scored_requests(pod: Pod) -> dict[str, int]:
    """Return the requests that NodeResourcesFit scores.

    Without pod-level resources, unlike the plugin's filter (noderesources/fit.go
    ``nodeResourceStrategyTypeMap``).
    """
    options = PodResourcesOptions(
        skip_pod_level_resources=True,
        non_missing_container_requests={
            CPU: Quantity(DEFAULT_CPU_MILLI * 10**6),
            MEMORY: Quantity.of(DEFAULT_MEMORY_BYTES),
        },
    )
    return {
        name: whole(name, quantity.nano) for name, quantity in pod_requests(pod, options).items()
    }


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars (util ``GetHostPorts``)."""
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


def normalized_image_name(name: str) -> str:
    """Return the image name with ``:latest`` where it has no tag."""
    if name.rfind(":") <= name.rfind("/"):
        return name + ":latest"
    return name


def _required(pod: Pod, rules: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    if rules is None:
        return ()
    terms = rules.required_during_scheduling_ignored_during_execution
    return tuple(_term(pod, term, 0) for term in terms)


def _preferred(pod: Pod, rules: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    if rules is None:
        return ()
    terms: tuple[WeightedPodAffinityTerm, ...] = (
        rules.preferred_during_scheduling_ignored_during_execution
    )
    return tuple(_term(pod, entry.pod_affinity_term, entry.weight) for entry in terms)


def _term(pod: Pod, term: PodAffinityTerm, weight: int) -> AffinityTerm:
    namespaces = tuple(sorted(set(term.namespaces)))
    if not namespaces and term.namespace_selector is None:
        namespaces = (pod.metadata.namespace or "default",)
    selector = selector_from_label_selector(term.label_selector)
    return AffinityTerm(
        namespaces=namespaces,
        selector=_with_label_keys(selector, pod, term),
        namespace_selector=(
            NOTHING
            if term.namespace_selector is None
            else selector_from_label_selector(term.namespace_selector)
        ),
        topology_key=term.topology_key,
        weight=weight,
    )


def _with_label_keys(selector: Selector, pod: Pod, term: PodAffinityTerm) -> Selector:
    """Add ``matchLabelKeys`` and ``mismatchLabelKeys`` to the selector.

    Admission already wrote them into the stored selector; adding them again changes nothing, and
    pods that did not pass admission (simulations) get them here.
    """
    if selector.nothing:
        return selector
    labels = pod.metadata.labels
    extra = [
        Requirement(key, operator, (labels[key],))
        for keys, operator in ((term.match_label_keys, IN), (term.mismatch_label_keys, NOT_IN))
        for key in keys
        if key in labels
    ]
    missing = [requirement for requirement in extra if requirement not in selector.requirements]
    return selector.add(missing) if missing else selector
