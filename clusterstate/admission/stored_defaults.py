"""API defaults of the kinds in the shared table: what their v1 APIs promise to fill in.

Each function edits a manifest in place and adds only. Sources: pkg/apis/{batch,core,autoscaling,
networking,discovery,flowcontrol,storage,resource}/*/defaults.go, v1.36.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from clusterstate.admission.rounding import round_up, round_up_requirements
from clusterstate.objects.values.meta import Manifest

Fill = Callable[[Manifest], None]
_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def fill(target: Manifest, **values: Any) -> None:
    """Fill in what is absent or empty."""
    for name, value in values.items():
        if target.get(name) in (None, ""):
            target[name] = value


def _plain_base64(data: Any) -> None:
    """Remove line ends from base64, as Go's decoder does."""
    for key, value in data.items() if isinstance(data, dict) else ():
        if "\n" in value or "\r" in value:
            data[key] = value.translate(_LINE_ENDS)


# Configuration --------------------------------------------------------------------------------


def _config_map(config_map: Manifest) -> None:
    _plain_base64(config_map.get("binaryData"))


def _secret(secret: Manifest) -> None:
    """Move ``stringData``, which is only written, into ``data`` (core/v1 conversion)."""
    fill(secret, type="Opaque")
    _plain_base64(secret.get("data"))
    texts = secret.pop("stringData", None)
    if texts:
        data = secret["data"] = dict(secret.get("data") or {})
        data.update({key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})


def pod_template(holder: Manifest, pod_spec: Fill) -> None:
    """Fill in the pod template that an object may have; ``pod_spec`` fills in the spec of a pod."""
    template = holder.get("template")
    if template is not None:
        pod_spec(template.setdefault("spec", {}))


# Work -----------------------------------------------------------------------------------------


def _job(job: Manifest, pod_spec: Fill) -> None:
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    fill(spec, parallelism=1)
    fill(spec, backoffLimit=6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    metadata = job.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    replacement = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    fill(
        spec, completionMode="NonIndexed", suspend=False, manualSelector=False,
        podReplacementPolicy=replacement,
    )  # fmt: skip
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            fill(pattern, status="True")
    pod_template(spec, pod_spec)


def _cron_job(cron_job: Manifest, pod_spec: Fill) -> None:
    spec = cron_job.setdefault("spec", {})
    fill(
        spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )  # fmt: skip
    pod_template((spec.get("jobTemplate") or {}).get("spec") or {}, pod_spec)


_HALF_OF_ALL: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_PODS: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}


def _autoscaler(autoscaler: Manifest) -> None:
    spec = autoscaler.setdefault("spec", {})
    fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        up = behavior.setdefault("scaleUp", {})
        fill(up, selectPolicy="Max", stabilizationWindowSeconds=0)
        down = behavior.setdefault("scaleDown", {})
        fill(down, selectPolicy="Max")
        if not up.get("policies"):
            up["policies"] = [dict(_FOUR_PODS), dict(_HALF_OF_ALL)]
        if not down.get("policies"):
            down["policies"] = [dict(_HALF_OF_ALL)]


# The network ----------------------------------------------------------------------------------


def _endpoints(endpoints: Manifest) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            fill(port, protocol="TCP")


def _endpoint_slice(endpoint_slice: Manifest) -> None:
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        fill(port, protocol="TCP")


def _ingress_class(ingress_class: Manifest) -> None:
    if (parameters := (ingress_class.get("spec") or {}).get("parameters")) is not None:
        fill(parameters, scope="Cluster")


def _network_policy(policy: Manifest) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            fill(port, protocol="TCP")


# Volumes --------------------------------------------------------------------------------------


def _persistent_volume(volume: Manifest) -> None:
    fill(volume.setdefault("status", {}), phase="Pending")
    spec = volume.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    round_up(spec.get("capacity") or {})
    if (host_path := spec.get("hostPath")) is not None:
        host_path.setdefault("type", "")


def persistent_volume_claim(claim: Manifest) -> None:
    """Fill in a claim, or a StatefulSet's template of one."""
    status = claim.setdefault("status", {})
    fill(status, phase="Pending")
    for field in ("capacity", "allocatedResources"):
        round_up(status.get(field) or {})
    claim_spec(claim.setdefault("spec", {}))


def claim_spec(spec: Manifest) -> None:
    """Fill in the spec of a claim, or of a template of one."""
    fill(spec, volumeMode="Filesystem")
    round_up_requirements(spec.get("resources") or {})


def _storage_class(storage_class: Manifest) -> None:
    fill(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(driver: Manifest) -> None:
    spec = driver.setdefault("spec", {})
    fill(
        spec, attachRequired=True, podInfoOnMount=False, storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType", requiresRepublish=False, seLinuxMount=False,
    )  # fmt: skip
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


# Flow control ---------------------------------------------------------------------------------


def _flow_schema(schema: Manifest) -> None:
    spec = schema.setdefault("spec", {})
    spec["matchingPrecedence"] = spec.get("matchingPrecedence") or 1000


def _priority_level(level: Manifest) -> None:
    spec = level.setdefault("spec", {})
    if spec.get("type") == "Exempt":
        fill(spec.setdefault("exempt", {}), nominalConcurrencyShares=0, lendablePercent=0)
    elif (limited := spec.get("limited")) is not None:
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = (limited.get("limitResponse") or {}).get("queuing")
        for name, usual in ("handSize", 8), ("queues", 64), ("queueLengthLimit", 50):
            if queuing is not None and not queuing.get(name):
                queuing[name] = usual


# Devices --------------------------------------------------------------------------------------


def _devices(spec: Manifest) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is not None:
                fill(one, allocationMode="ExactCount")
                if one["allocationMode"] == "ExactCount" and not one.get("count"):
                    one["count"] = 1
                for toleration in one.get("tolerations") or ():
                    fill(toleration, operator="Equal")


def _resource_claim(claim: Manifest) -> None:
    _devices(claim.get("spec") or {})


def _resource_claim_template(template: Manifest) -> None:
    _devices((template.get("spec") or {}).get("spec") or {})


def _pod_group(group: Manifest) -> None:
    fill(group.setdefault("spec", {}), disruptionMode={"single": {}})


def by_kind(pod_spec: Fill) -> dict[str, Fill]:
    """Return the defaulting function of each kind; ``pod_spec`` fills in a pod's spec."""
    return {
        "ConfigMap": _config_map,
        "CronJob": lambda manifest: _cron_job(manifest, pod_spec),
        "CSIDriver": _csi_driver,
        "Endpoints": _endpoints,
        "EndpointSlice": _endpoint_slice,
        "FlowSchema": _flow_schema,
        "HorizontalPodAutoscaler": _autoscaler,
        "IngressClass": _ingress_class,
        "Job": lambda manifest: _job(manifest, pod_spec),
        "NetworkPolicy": _network_policy,
        "PersistentVolume": _persistent_volume,
        "PersistentVolumeClaim": persistent_volume_claim,
        "PriorityLevelConfiguration": _priority_level,
        "PodGroup": _pod_group,
        "PodTemplate": lambda manifest: pod_template(manifest, pod_spec),
        "ResourceClaim": _resource_claim,
        "ResourceClaimTemplate": _resource_claim_template,
        "Secret": _secret,
        "StorageClass": _storage_class,
    }
