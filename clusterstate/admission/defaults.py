"""API defaults: what the v1 API promises to fill in.

``set_defaults`` edits a manifest in place and adds only; it never changes a value that is there.
Sources: pkg/apis/core/v1/defaults.go, pkg/apis/apps/v1/defaults.go,
pkg/apis/scheduling/v1/defaults.go and the generated ``zz_generated.defaults.go``, v1.36.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from clusterstate.admission import stored_defaults
from clusterstate.admission.rounding import round_up, round_up_requirements
from clusterstate.admission.stored_defaults import fill
from clusterstate.objects.rules.resources import (
    aggregate_container_limits,
    aggregate_container_requests,
    is_supported_pod_level_resource,
)
from clusterstate.objects.rules.templates import name_account
from clusterstate.objects.values.addresses import is_reached_from_outside
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import DEFAULT_SCHEDULER, Pod
from clusterstate.objects.values.quantity import QuantityError
from clusterstate.objects.values.remembered import remembered

_FILE_MODE: Final = 0o644
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


def set_defaults(kind: str, manifest: Manifest) -> None:
    """Fill in the defaults of the kind; kinds that have none are left alone."""
    of_kind = _BY_KIND.get(kind)
    if of_kind is not None:
        of_kind(manifest)


# Pods -----------------------------------------------------------------------------------------


def default_pod(pod: Manifest) -> None:
    """Fill in a pod: the defaults of pods alone, then those that pod templates share."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    # Conversions of pods that templates do not get: pkg/apis/core/v1/conversion.go.
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    default_pod_only(pod)
    default_pod_spec(spec)


def default_pod_only(pod: Manifest) -> None:
    """Fill in the defaults of pods that templates do not get (``SetDefaults_Pod``).

    Requests default to limits (R143, C15), pod-level requests to the sum of the containers', and
    host ports of a pod in the host's network to the container ports.
    """
    spec = pod.setdefault("spec", {})
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            resources = container.get("resources")
            if resources and (limits := resources.get("limits")):
                requests = resources.get("requests")
                if requests is None:
                    resources["requests"] = dict(limits)
                else:
                    for name, value in limits.items():
                        requests.setdefault(name, value)
    if resources := spec.get("resources"):
        _pod_level_resources(spec, resources)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]


def _pod_level_resources(spec: Manifest, resources: Manifest) -> None:
    """Fill in the pod's own limits of huge pages, and its own requests where it has limits.

    Huge pages that the pod itself requests get no limit here: validation names what is missing.
    Rules: ``defaultHugePagePodLimits`` and ``defaultPodRequests``.
    """
    if not resources.get("limits") and not resources.get("requests"):
        return
    try:
        pod = msgspec.convert({"spec": spec}, Pod)
        aggregate = aggregate_container_requests(pod)
        allowed = aggregate_container_limits(pod)
    except (msgspec.ValidationError, QuantityError):
        return  # validation names the field
    limits = dict(resources.get("limits") or ())
    requests = dict(resources.get("requests") or ())
    for name, amount in allowed.items():
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, str(amount))
    if not limits:
        return
    resources["limits"] = limits
    for name, amount in aggregate.items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, str(amount))
    for name, value in limits.items():
        if is_supported_pod_level_resource(name):
            requests.setdefault(name, value)
    if requests:
        resources["requests"] = requests


def default_pod_spec(spec: Manifest) -> None:
    """Fill in a pod spec, of a pod or of a template."""
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = DEFAULT_SCHEDULER
    name_account(spec)
    for field in _CONTAINER_LISTS:
        containers = spec.get(field)
        if containers:
            for container in containers:
                _container(container)
    if volumes := spec.get("volumes"):
        for volume in volumes:
            _volume(volume)
    if overhead := spec.get("overhead"):
        round_up(overhead)
    if resources := spec.get("resources"):
        round_up_requirements(resources)
    _preferred_terms(spec)


def _preferred_terms(spec: Manifest) -> None:
    """Rewrite preferred terms of an early design, with requirements and weight (C2)."""
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if not node_affinity:
        return
    for term in node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        if "preference" not in term:
            fields = ("matchExpressions", "matchFields")
            term["preference"] = {field: term.pop(field) for field in fields if field in term}


def _container(container: Manifest) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if ports := container.get("ports"):
        for port in ports:
            if not port.get("protocol"):
                port["protocol"] = "TCP"
    if env := container.get("env"):
        for variable in env:
            if source := variable.get("valueFrom"):
                _field_ref(source)
    if resources := container.get("resources"):
        round_up_requirements(resources)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(field)) is not None:
            _probe(probe)
    if lifecycle := container.get("lifecycle"):
        for field in ("postStart", "preStop"):
            if handler := lifecycle.get(field):
                _http_get(handler)


_REFERENCE: Final = re.compile(
    r"(?P<name>(?:[A-Za-z0-9.\-]+(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.\-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)


@remembered(4096)
def pull_policy(image: str) -> str:
    """Return ``Always`` for the tag ``latest``, named or implied; else ``IfNotPresent``."""
    match = _REFERENCE.fullmatch(image)
    if match is None:
        return "IfNotPresent"
    tag, digest = match["tag"], match["digest"]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _field_ref(source: Manifest) -> None:
    ref = source.get("fieldRef")
    if ref is not None and not ref.get("apiVersion"):
        ref["apiVersion"] = "v1"
    ref = source.get("fileKeyRef")
    if ref is not None and ref.get("optional") is None:
        ref["optional"] = False


def _probe(probe: Manifest) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(field):
            probe[field] = value
    _http_get(probe)
    grpc = probe.get("grpc")
    if grpc is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _http_get(handler: Manifest) -> None:
    action = handler.get("httpGet")
    if action is not None:
        if not action.get("path"):
            action["path"] = "/"
        if not action.get("scheme"):
            action["scheme"] = "HTTP"


_SOURCES: Final[dict[str, dict[str, Any]]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "azureDisk": {
        "cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False,
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}  # fmt: skip
"""What sources of volumes have where they say nothing."""


def _volume(volume: Manifest) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
        return
    for field in ("secret", "configMap", "downwardAPI", "projected"):
        source = volume.get(field)
        if source is None:
            continue
        if source.get("defaultMode") is None:
            source["defaultMode"] = _FILE_MODE
        if field == "downwardAPI":
            _downward_items(source.get("items") or ())
        elif field == "projected":
            for part in source.get("sources") or ():
                if (token := part.get("serviceAccountToken")) is not None:
                    token.setdefault("expirationSeconds", 3600)
                if (downward := part.get("downwardAPI")) is not None:
                    _downward_items(downward.get("items") or ())
                if (certificate := part.get("podCertificate")) is not None:
                    certificate.setdefault("maxExpirationSeconds", 86400)
    for field, usual in _SOURCES.items():
        if (source := volume.get(field)) is not None:
            for name, value in usual.items():
                source.setdefault(name, value)
    if (rbd := volume.get("rbd")) is not None:
        fill(rbd, pool="rbd", user="admin", keyring="/etc/ceph/keyring")
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference") or "")
    if (ephemeral := volume.get("ephemeral")) is not None:
        claim = (ephemeral.get("volumeClaimTemplate") or {}).get("spec")
        if claim is not None:
            stored_defaults.claim_spec(claim)


def _downward_items(items: Iterable[Manifest]) -> None:
    for item in items:
        _field_ref(item)


# Nodes and namespaces -------------------------------------------------------------------------


def default_node(node: Manifest) -> None:
    """Fill in a node: ``allocatable`` is ``capacity`` unless it is given.

    ``podCIDR`` is the first of ``podCIDRs``, and counts where the two differ
    (pkg/apis/core/v1/conversion.go).
    """
    spec = node.get("spec")
    if spec and (spec.get("podCIDR") or spec.get("podCIDRs")):
        first, several = spec.get("podCIDR"), spec.get("podCIDRs") or []
        if first and several[:1] != [first]:
            several = [first]
        spec["podCIDR"], spec["podCIDRs"] = several[0], several
    status = node.get("status")
    if not status:
        return
    capacity = status.get("capacity")
    if capacity:
        round_up(capacity)
        if status.get("allocatable") is None:
            status["allocatable"] = dict(capacity)
    if allocatable := status.get("allocatable"):
        round_up(allocatable)


def default_namespace(namespace: Manifest) -> None:
    """Fill in a namespace: it is active, and labelled with its name for selectors."""
    fill(namespace.setdefault("status", {}), phase="Active")
    meta = namespace.get("metadata") or {}
    if name := meta.get("name"):
        labels = meta.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = name


# Services and workloads -----------------------------------------------------------------------


def default_service(service: Manifest) -> None:
    """Fill in a service."""
    spec = service.setdefault("spec", {})
    fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client_ip = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client_ip.setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports") or ():
        fill(port, protocol="TCP")
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    if is_reached_from_outside(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec["type"] in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        balancer = (service.get("status") or {}).get("loadBalancer") or {}
        for ingress in balancer.get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _template(holder: Manifest) -> None:
    stored_defaults.pod_template(holder, default_pod_spec)


def _rolled(strategy: Manifest, **usual: Any) -> None:
    """Fill in an update strategy: RollingUpdate, with these default amounts."""
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for name, value in usual.items():
            rolling.setdefault(name, value)


def default_replication_controller(controller: Manifest) -> None:
    """Fill in a replication controller: selector and labels come from its template."""
    spec = controller.setdefault("spec", {})
    template = spec.get("template")
    labels = ((template or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = controller.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)
    fill(spec, replicas=1)
    _template(spec)


def default_replica_set(replica_set: Manifest) -> None:
    """Fill in a replica set."""
    spec = replica_set.setdefault("spec", {})
    fill(spec, replicas=1)
    _template(spec)


def default_deployment(deployment: Manifest) -> None:
    """Fill in a deployment: one replica; a rolling update of a quarter at a time."""
    spec = deployment.setdefault("spec", {})
    fill(spec, replicas=1)
    _rolled(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    fill(spec, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    _template(spec)


def default_daemon_set(daemon_set: Manifest) -> None:
    """Fill in a daemon set: rolled one node at a time."""
    spec = daemon_set.setdefault("spec", {})
    _rolled(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)


def default_stateful_set(stateful_set: Manifest) -> None:
    """Fill in a stateful set: in order, volumes kept."""
    spec = stateful_set.setdefault("spec", {})
    fill(spec, podManagementPolicy="OrderedReady", replicas=1, revisionHistoryLimit=10)
    _rolled(spec.setdefault("updateStrategy", {}), partition=0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    _template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        # The kind and version that a template of a claim states are ignored:
        # pkg/apis/apps/v1/conversion.go.
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        stored_defaults.persistent_volume_claim(claim)


def default_priority_class(priority_class: Manifest) -> None:
    """Fill in a priority class: its pods preempt."""
    if priority_class.get("preemptionPolicy") is None:
        priority_class["preemptionPolicy"] = "PreemptLowerPriority"


def default_limit_range(limit_range: Manifest) -> None:
    """Fill in a limit range: limits default to maxima, requests to limits, then to minima."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            if default:
                item["default"] = default
            if request:
                item["defaultRequest"] = request
        for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_up(item.get(field) or {})


def default_resource_quota(quota: Manifest) -> None:
    """Fill in a resource quota: its amounts are in whole thousandths."""
    status = quota.get("status") or {}
    for amounts in ((quota.get("spec") or {}).get("hard"), status.get("hard"), status.get("used")):
        round_up(amounts or {})


def default_runtime_class(runtime_class: Manifest) -> None:
    """Fill in a runtime class: its overhead is in whole thousandths."""
    if fixed := (runtime_class.get("overhead") or {}).get("podFixed"):
        round_up(fixed)


def default_binding(binding: Manifest) -> None:
    """Fill in a binding of a role: the API group of the role, of users and of groups.

    Rule: pkg/apis/rbac/v1/defaults.go, v1.36.
    """
    role = binding.get("roleRef")
    for part in (role, *(binding.get("subjects") or ())):
        named = part is role or (part or {}).get("kind") in ("User", "Group")
        if part and named and not part.get("apiGroup"):
            part["apiGroup"] = "rbac.authorization.k8s.io"


_BY_KIND: Final[dict[str, Callable[[Manifest], None]]] = {
    "ClusterRoleBinding": default_binding,
    "DaemonSet": default_daemon_set,
    "Deployment": default_deployment,
    "LimitRange": default_limit_range,
    "Namespace": default_namespace,
    "Node": default_node,
    "Pod": default_pod,
    "PriorityClass": default_priority_class,
    "ReplicaSet": default_replica_set,
    "ReplicationController": default_replication_controller,
    "ResourceQuota": default_resource_quota,
    "RoleBinding": default_binding,
    "RuntimeClass": default_runtime_class,
    "Service": default_service,
    "StatefulSet": default_stateful_set,
    **stored_defaults.by_kind(default_pod_spec),
}
