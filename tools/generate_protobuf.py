"""Write ``clusterstate/objects/protobuf_fields.py``: ``python -m tools.generate_protobuf TABLE``.

TABLE is a JSON file with the field numbers of Kubernetes 1.36: for each message (package without
the leading ``k8s.io.``) its fields as ``name: [number, type]``. The table lacks four things, which
stand here:

* the messages of flowcontrol.apiserver.k8s.io;
* which fields are pointers. Go writes a field that is no pointer even when it is zero, so zero says
  "absent" there; a pointer to zero means zero (``replicas: 0``).
* which messages JSON shows inline (a Volume's ``volumeSource``);
* our own field (R2), under a number that Kubernetes does not use, since protobuf skips it there.

The generator holds the result against the OpenAPI definitions of the development dependency
``kubernetes-validate``: a message whose JSON fields differ from its definition stops it.
"""

import json
import sys
from pathlib import Path
from typing import Final

from tools import generate_wire_types

TARGET: Final = generate_wire_types.TARGET.with_name("protobuf_fields.py")

_SCALARS: Final = {"string", "bool", "int32", "int64", "bytes"}
_SPECIAL: Final = {
    "apimachinery.pkg.api.resource.Quantity": "quantity",
    "apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "apimachinery.pkg.apis.meta.v1.Time": "time",
    "apimachinery.pkg.apis.meta.v1.MicroTime": "micro-time",
    "apimachinery.pkg.apis.meta.v1.Duration": "duration",
    "apimachinery.pkg.apis.meta.v1.FieldsV1": "json",
    "apimachinery.pkg.runtime.RawExtension": "json",
}
"""Messages that JSON writes as one value."""
_LISTS: Final = {
    "authentication.v1.ExtraValue",
    "authorization.v1.ExtraValue",
    "certificates.v1.ExtraValue",
    "meta.v1.Verbs",
}
"""Messages that JSON writes as a list of texts."""

_POINTERS: Final = {
    "apps.v1.DaemonSetSpec": "revisionHistoryLimit",
    "apps.v1.DaemonSetStatus": "collisionCount",
    "apps.v1.DeploymentSpec": "replicas revisionHistoryLimit progressDeadlineSeconds",
    "apps.v1.DeploymentStatus": "terminatingReplicas collisionCount",
    "apps.v1.ReplicaSetSpec": "replicas",
    "apps.v1.ReplicaSetStatus": "terminatingReplicas",
    "apps.v1.RollingUpdateStatefulSetStrategy": "partition",
    "apps.v1.StatefulSetSpec": "replicas revisionHistoryLimit",
    "apps.v1.StatefulSetStatus": "collisionCount",
    "authentication.v1.TokenRequestSpec": "expirationSeconds",
    "autoscaling.v1.ContainerResourceMetricSource": "targetAverageUtilization",
    "autoscaling.v1.ContainerResourceMetricStatus": "currentAverageUtilization",
    "autoscaling.v1.HorizontalPodAutoscalerSpec": "minReplicas targetCPUUtilizationPercentage",
    "autoscaling.v1.HorizontalPodAutoscalerStatus": (
        "observedGeneration currentCPUUtilizationPercentage"
    ),
    "autoscaling.v1.ResourceMetricSource": "targetAverageUtilization",
    "autoscaling.v1.ResourceMetricStatus": "currentAverageUtilization",
    "autoscaling.v2.HPAScalingRules": "stabilizationWindowSeconds selectPolicy",
    "autoscaling.v2.HorizontalPodAutoscalerSpec": "minReplicas",
    "autoscaling.v2.HorizontalPodAutoscalerStatus": "observedGeneration",
    "autoscaling.v2.MetricTarget": "averageUtilization",
    "autoscaling.v2.MetricValueStatus": "averageUtilization",
    "batch.v1.CronJobSpec": (
        "startingDeadlineSeconds suspend successfulJobsHistoryLimit failedJobsHistoryLimit timeZone"
    ),
    "batch.v1.JobSpec": (
        "parallelism completions activeDeadlineSeconds backoffLimit backoffLimitPerIndex"
        " maxFailedIndexes manualSelector ttlSecondsAfterFinished suspend completionMode"
        " podReplacementPolicy managedBy"
    ),
    "batch.v1.JobStatus": "terminating ready failedIndexes",
    "batch.v1.PodFailurePolicyOnExitCodesRequirement": "containerName",
    "batch.v1.SuccessPolicyRule": "succeededCount succeededIndexes",
    "certificates.v1.CertificateSigningRequestSpec": "expirationSeconds",
    "coordination.v1.LeaseSpec": (
        "holderIdentity leaseDurationSeconds leaseTransitions strategy preferredHolder"
    ),
    "core.v1.AppArmorProfile": "localhostProfile",
    "core.v1.AzureDiskVolumeSource": "readOnly cachingMode fsType kind",
    "core.v1.AzureFilePersistentVolumeSource": "secretNamespace",
    "core.v1.CSIVolumeSource": "readOnly fsType",
    "core.v1.ClientIPConfig": "timeoutSeconds",
    "core.v1.ClusterTrustBundleProjection": "optional name signerName",
    "core.v1.ConfigMap": "immutable",
    "core.v1.ConfigMapEnvSource": "optional",
    "core.v1.ConfigMapKeySelector": "optional",
    "core.v1.ConfigMapProjection": "optional",
    "core.v1.ConfigMapVolumeSource": "defaultMode optional",
    "core.v1.Container": "restartPolicy",
    "core.v1.ContainerStatus": "started stopSignal",
    "core.v1.DownwardAPIVolumeFile": "mode",
    "core.v1.DownwardAPIVolumeSource": "defaultMode",
    "core.v1.EndpointAddress": "nodeName",
    "core.v1.EndpointPort": "appProtocol",
    "core.v1.EphemeralContainerCommon": "restartPolicy",
    "core.v1.FCVolumeSource": "lun",
    "core.v1.FileKeySelector": "optional",
    "core.v1.GRPCAction": "service",
    "core.v1.GlusterfsPersistentVolumeSource": "endpointsNamespace",
    "core.v1.HostPathVolumeSource": "type",
    "core.v1.ISCSIPersistentVolumeSource": "initiatorName",
    "core.v1.ISCSIVolumeSource": "initiatorName",
    "core.v1.KeyToPath": "mode",
    "core.v1.Lifecycle": "stopSignal",
    "core.v1.LoadBalancerIngress": "ipMode",
    "core.v1.LocalVolumeSource": "fsType",
    "core.v1.NodeFeatures": "supplementalGroupsPolicy",
    "core.v1.NodeRuntimeHandlerFeatures": "recursiveReadOnlyMounts userNamespaces",
    "core.v1.NodeSwapStatus": "capacity",
    "core.v1.PersistentVolumeClaimSpec": "volumeMode storageClassName volumeAttributesClassName",
    "core.v1.PersistentVolumeClaimStatus": "currentVolumeAttributesClassName",
    "core.v1.PersistentVolumeSpec": "volumeMode volumeAttributesClassName",
    "core.v1.PodCertificateProjection": "maxExpirationSeconds",
    "core.v1.PodDNSConfigOption": "value",
    "core.v1.PodLogOptions": "sinceSeconds tailLines limitBytes stream",
    "core.v1.PodResourceClaim": "resourceClaimName resourceClaimTemplateName",
    "core.v1.PodResourceClaimStatus": "resourceClaimName",
    "core.v1.PodSecurityContext": (
        "runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy supplementalGroupsPolicy"
        " seLinuxChangePolicy"
    ),
    "core.v1.PodSpec": (
        "terminationGracePeriodSeconds activeDeadlineSeconds automountServiceAccountToken"
        " shareProcessNamespace priority enableServiceLinks setHostnameAsFQDN hostUsers"
        " runtimeClassName preemptionPolicy hostnameOverride"
    ),
    "core.v1.PortStatus": "error",
    "core.v1.Probe": "terminationGracePeriodSeconds",
    "core.v1.ProjectedVolumeSource": "defaultMode",
    "core.v1.ReplicationControllerSpec": "replicas",
    "core.v1.SeccompProfile": "localhostProfile",
    "core.v1.Secret": "immutable",
    "core.v1.SecretEnvSource": "optional",
    "core.v1.SecretKeySelector": "optional",
    "core.v1.SecretProjection": "optional",
    "core.v1.SecretVolumeSource": "defaultMode optional",
    "core.v1.SecurityContext": (
        "privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem"
        " allowPrivilegeEscalation procMount"
    ),
    "core.v1.ServiceAccount": "automountServiceAccountToken",
    "core.v1.ServiceAccountTokenProjection": "expirationSeconds",
    "core.v1.ServicePort": "appProtocol",
    "core.v1.ServiceSpec": (
        "allocateLoadBalancerNodePorts internalTrafficPolicy ipFamilyPolicy loadBalancerClass"
        " trafficDistribution"
    ),
    "core.v1.Toleration": "tolerationSeconds",
    "core.v1.TopologySpreadConstraint": "minDomains nodeAffinityPolicy nodeTaintsPolicy",
    "core.v1.TypedLocalObjectReference": "apiGroup",
    "core.v1.TypedObjectReference": "apiGroup namespace",
    "core.v1.VolumeMount": "recursiveReadOnly mountPropagation",
    "core.v1.VolumeMountStatus": "recursiveReadOnly",
    "core.v1.WindowsSecurityContextOptions": (
        "hostProcess gmsaCredentialSpecName gmsaCredentialSpec runAsUserName"
    ),
    "discovery.v1.Endpoint": "hostname nodeName zone",
    "discovery.v1.EndpointConditions": "ready serving terminating",
    "discovery.v1.EndpointPort": "name protocol port appProtocol",
    "flowcontrol.v1.ExemptPriorityLevelConfiguration": "nominalConcurrencyShares lendablePercent",
    "flowcontrol.v1.LimitedPriorityLevelConfiguration": (
        "nominalConcurrencyShares lendablePercent borrowingLimitPercent"
    ),
    "meta.v1.DeleteOptions": (
        "gracePeriodSeconds orphanDependents propagationPolicy"
        " ignoreStoreReadErrorWithClusterBreakingPotential"
    ),
    "meta.v1.ListMeta": "remainingItemCount",
    "meta.v1.ListOptions": "timeoutSeconds sendInitialEvents",
    "meta.v1.ObjectMeta": "deletionGracePeriodSeconds",
    "meta.v1.OwnerReference": "controller blockOwnerDeletion",
    "meta.v1.PatchOptions": "force",
    "meta.v1.Preconditions": "uid resourceVersion",
    "networking.v1.HTTPIngressPath": "pathType",
    "networking.v1.IngressClassParametersReference": "apiGroup scope namespace",
    "networking.v1.IngressPortStatus": "error",
    "networking.v1.IngressSpec": "ingressClassName",
    "networking.v1.NetworkPolicyPort": "protocol endPort",
    "policy.v1.PodDisruptionBudgetSpec": "unhealthyPodEvictionPolicy",
    "resource.v1.AllocatedDeviceStatus": "shareID",
    "resource.v1.Device": "nodeName allNodes bindsToNode allowMultipleAllocations",
    "resource.v1.DeviceAttribute": "int bool string version",
    "resource.v1.DeviceClassSpec": "extendedResourceName",
    "resource.v1.DeviceConstraint": "matchAttribute distinctAttribute",
    "resource.v1.DeviceRequestAllocationResult": "adminAccess shareID",
    "resource.v1.DeviceToleration": "tolerationSeconds",
    "resource.v1.ExactDeviceRequest": "adminAccess",
    "resource.v1.ResourceSliceSpec": "nodeName allNodes perDeviceNodeSelection",
    # Not a pointer in Go, but JSON always shows the value.
    "scheduling.v1.PriorityClass": "preemptionPolicy value",
    "storage.v1.CSIDriverSpec": (
        "attachRequired podInfoOnMount storageCapacity fsGroupPolicy requiresRepublish seLinuxMount"
        " nodeAllocatableUpdatePeriodSeconds serviceAccountTokenInSecrets"
        " preventPodSchedulingIfMissing"
    ),
    "storage.v1.StorageClass": "reclaimPolicy allowVolumeExpansion volumeBindingMode",
    "storage.v1.TokenRequest": "expirationSeconds",
    "storage.v1.VolumeAttachmentSource": "persistentVolumeName",
    "storage.v1.VolumeError": "errorCode",
    "storage.v1.VolumeNodeResources": "count",
}
"""Message -> the fields of one scalar that Go's type has as pointers."""

_VALUE_NAMES: Final = {"metadata", "spec", "status"}
_VALUES: Final = {
    "apps.v1.DaemonSetSpec": "template updateStrategy",
    "apps.v1.DeploymentSpec": "template strategy",
    "apps.v1.ReplicaSetSpec": "template",
    "apps.v1.StatefulSetSpec": "template updateStrategy",
    "authentication.v1.SelfSubjectReviewStatus": "userInfo",
    "authentication.v1.TokenReviewStatus": "user",
    "autoscaling.v1.HorizontalPodAutoscalerSpec": "scaleTargetRef",
    "autoscaling.v2.ContainerResourceMetricSource": "target",
    "autoscaling.v2.ContainerResourceMetricStatus": "current",
    "autoscaling.v2.ExternalMetricSource": "metric target",
    "autoscaling.v2.ExternalMetricStatus": "metric current",
    "autoscaling.v2.HorizontalPodAutoscalerSpec": "scaleTargetRef",
    "autoscaling.v2.ObjectMetricSource": "describedObject target metric",
    "autoscaling.v2.ObjectMetricStatus": "describedObject current metric",
    "autoscaling.v2.PodsMetricSource": "metric target",
    "autoscaling.v2.PodsMetricStatus": "metric current",
    "autoscaling.v2.ResourceMetricSource": "target",
    "autoscaling.v2.ResourceMetricStatus": "current",
    "batch.v1.CronJobSpec": "jobTemplate",
    "batch.v1.JobSpec": "template",
    "core.v1.Binding": "target",
    "core.v1.Container": "resources",
    "core.v1.ContainerStatus": "state lastState",
    "core.v1.EphemeralContainerCommon": "resources",
    "core.v1.Event": "involvedObject source",
    "core.v1.NodeDaemonEndpoints": "kubeletEndpoint",
    "core.v1.NodeStatus": "daemonEndpoints nodeInfo",
    "core.v1.PersistentVolumeClaimSpec": "resources",
    "core.v1.PodTemplate": "template",
    "core.v1.PreferredSchedulingTerm": "preference",
    "core.v1.ServiceStatus": "loadBalancer",
    "core.v1.WeightedPodAffinityTerm": "podAffinityTerm",
    "discovery.v1.Endpoint": "conditions",
    "events.v1.Event": "regarding deprecatedSource",
    "flowcontrol.v1.FlowSchemaSpec": "priorityLevelConfiguration",
    "flowcontrol.v1.LimitedPriorityLevelConfiguration": "limitResponse",
    "networking.v1.HTTPIngressPath": "backend",
    "networking.v1.IngressServiceBackend": "port",
    "networking.v1.IngressStatus": "loadBalancer",
    "networking.v1.NetworkPolicySpec": "podSelector",
    "rbac.v1.ClusterRoleBinding": "roleRef",
    "rbac.v1.RoleBinding": "roleRef",
    "resource.v1.AllocationResult": "devices",
    "resource.v1.ResourceClaimSpec": "devices",
    "resource.v1.ResourceSliceSpec": "pool",
    "storage.v1.VolumeAttachmentSpec": "source",
}
"""Message -> the fields of one message that are no pointers: empty says the same as absent."""

_INLINE: Final = {
    "core.v1.ConfigMapEnvSource": "localObjectReference",
    "core.v1.ConfigMapKeySelector": "localObjectReference",
    "core.v1.ConfigMapProjection": "localObjectReference",
    "core.v1.ConfigMapVolumeSource": "localObjectReference",
    "core.v1.EphemeralContainer": "ephemeralContainerCommon",
    "core.v1.PersistentVolumeSpec": "persistentVolumeSource",
    "core.v1.Probe": "handler",
    "core.v1.SecretEnvSource": "localObjectReference",
    "core.v1.SecretKeySelector": "localObjectReference",
    "core.v1.SecretProjection": "localObjectReference",
    "core.v1.Volume": "volumeSource",
    "networking.v1.IngressRule": "ingressRuleValue",
    "resource.v1.DeviceAllocationConfiguration": "deviceConfiguration",
    "resource.v1.DeviceClaimConfiguration": "deviceConfiguration",
    "resource.v1.DeviceClassConfiguration": "deviceConfiguration",
}
"""Message -> the field whose own fields JSON shows in its place."""

_JSON_NAMES: Final = {"aPIGroup": "apiGroup", "uID": "uid"}
"""Names that the protobuf compiler spelt in its own way."""

_ADDED: Final = {
    "core.v1.NodeAffinity": "requiredDuringSchedulingRequiredDuringExecution 10001 NodeSelector",
    "core.v1.PreferredSchedulingTerm": (
        "matchExpressions 10001 NodeSelectorRequirement[],"
        " matchFields 10002 NodeSelectorRequirement[]"
    ),
}
"""Our own fields (R2, R19), under numbers that Kubernetes does not use."""

Table = dict[str, dict[str, list[object]]]

_CONDITION: Final = (
    "type 1 string, status 2 string, lastTransitionTime 3 apimachinery.pkg.apis.meta.v1.Time,"
    " reason 4 string, message 5 string"
)
_OBJECT: Final = "metadata 1 apimachinery.pkg.apis.meta.v1.ObjectMeta, spec 2 {0}Spec,"
_LIST: Final = "metadata 1 apimachinery.pkg.apis.meta.v1.ListMeta, items 2 repeated {0}"
_MORE_MESSAGES: Final = {
    "ExemptPriorityLevelConfiguration": "nominalConcurrencyShares 1 int32, lendablePercent 2 int32",
    "FlowDistinguisherMethod": "type 1 string",
    "FlowSchema": f"{_OBJECT} status 3 {{0}}Status".format("FlowSchema"),
    "FlowSchemaCondition": _CONDITION,
    "FlowSchemaList": _LIST.format("FlowSchema"),
    "FlowSchemaSpec": (
        "priorityLevelConfiguration 1 PriorityLevelConfigurationReference,"
        " matchingPrecedence 2 int32, distinguisherMethod 3 FlowDistinguisherMethod,"
        " rules 4 repeated PolicyRulesWithSubjects"
    ),
    "FlowSchemaStatus": "conditions 1 repeated FlowSchemaCondition",
    "GroupSubject": "name 1 string",
    "LimitResponse": "type 1 string, queuing 2 QueuingConfiguration",
    "LimitedPriorityLevelConfiguration": (
        "nominalConcurrencyShares 1 int32, limitResponse 2 LimitResponse,"
        " lendablePercent 3 int32, borrowingLimitPercent 4 int32"
    ),
    "NonResourcePolicyRule": "verbs 1 repeated string, nonResourceURLs 6 repeated string",
    "PolicyRulesWithSubjects": (
        "subjects 1 repeated Subject, resourceRules 2 repeated ResourcePolicyRule,"
        " nonResourceRules 3 repeated NonResourcePolicyRule"
    ),
    "PriorityLevelConfiguration": (
        f"{_OBJECT} status 3 {{0}}Status".format("PriorityLevelConfiguration")
    ),
    "PriorityLevelConfigurationCondition": _CONDITION,
    "PriorityLevelConfigurationList": _LIST.format("PriorityLevelConfiguration"),
    "PriorityLevelConfigurationReference": "name 1 string",
    "PriorityLevelConfigurationSpec": (
        "type 1 string, limited 2 LimitedPriorityLevelConfiguration,"
        " exempt 3 ExemptPriorityLevelConfiguration"
    ),
    "PriorityLevelConfigurationStatus": (
        "conditions 1 repeated PriorityLevelConfigurationCondition"
    ),
    "QueuingConfiguration": "queues 1 int32, handSize 2 int32, queueLengthLimit 3 int32",
    "ResourcePolicyRule": (
        "verbs 1 repeated string, apiGroups 2 repeated string, resources 3 repeated string,"
        " clusterScope 4 bool, namespaces 5 repeated string"
    ),
    "ServiceAccountSubject": "namespace 1 string, name 2 string",
    "Subject": (
        "kind 1 string, user 2 UserSubject, group 3 GroupSubject,"
        " serviceAccount 4 ServiceAccountSubject"
    ),
    "UserSubject": "name 1 string",
}
"""Messages of flowcontrol.v1, which the table does not have: ``name number type`` of each field."""


def _more_messages() -> Table:
    return {
        f"api.flowcontrol.v1.{name}": {
            field: [int(number), kind]
            for field, number, kind in (one.split(maxsplit=2) for one in text.split(", "))
        }
        for name, text in _MORE_MESSAGES.items()
    }


def _short(name: str) -> str:
    """Return a message's name without what all packages begin with."""
    for before, after in (
        ("apimachinery.pkg.apis.", ""),
        ("apimachinery.pkg.", ""),
        ("api.", ""),
    ):
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def _type(package: str, text: str) -> str:
    """Return a field's type in the written form: ``T``, ``T[]`` or ``T{}`` (a map from text)."""
    if text.startswith("repeated "):
        return _type(package, text.removeprefix("repeated ")) + "[]"
    if text.startswith("map<string,"):
        return _type(package, text.removeprefix("map<string,").removesuffix(">").lstrip(".")) + "{}"
    if text in _SCALARS:
        return text
    full = text if "." in text else f"{package}.{text}"
    if full in _SPECIAL:
        return _SPECIAL[full]
    short = _short(full)
    if short in _LISTS:
        return "strings"
    return short.removeprefix(f"{_short(package)}.")


def _fields(name: str, fields: dict[str, list[object]]) -> list[str]:
    package, _, _ = name.rpartition(".")
    short = _short(name)
    pointers = set(_POINTERS.get(short, "").split())
    values = set(_VALUES.get(short, "").split())
    inline = _INLINE.get(short, "")
    missing = (pointers | values | ({inline} if inline else set())) - {
        _JSON_NAMES.get(field, field) for field in fields
    }
    if missing:
        raise ValueError(f"{short} has no field {', '.join(sorted(missing))}")
    lines = []
    for original, (number, text) in fields.items():
        field = _JSON_NAMES.get(original, original)
        kind = _type(package, str(text))
        scalar = kind in _SCALARS or kind in {"time", "micro-time", "duration", "json", "strings"}
        if field == inline:
            mark = "+"
        elif kind.endswith(("[]", "{}")) or kind in {"quantity", "int-or-string"}:
            mark = ""
        elif scalar:
            mark = "?" if field in pointers else ""
        else:
            mark = "" if field in values or field in _VALUE_NAMES else "?"
        lines.append(f"{field} {number} {kind}{mark}")
    lines += [
        f"{added}?".replace("[]?", "[]") for added in _ADDED.get(short, "").split(", ") if added
    ]
    return lines


def generate(table: Table) -> str:
    """Return the text of ``protobuf_fields.py``.

    Raises:
        ValueError: this module names a field that the table lacks, or JSON has other fields.
    """
    table = {**table, **_more_messages()}
    skipped = set(_SPECIAL) | {name for name in table if _short(name) in _LISTS}
    messages = {
        _short(name): _fields(name, fields)
        for name, fields in sorted(table.items(), key=lambda item: _short(item[0]))
        if name not in skipped
    }
    _compare(messages)
    lines = [HEADER]
    for name, fields in messages.items():
        text = ", ".join(fields)
        lines.append(f'    "{name}": "{text}",')
    return "\n".join([*lines, "}", ""])


def _compare(messages: dict[str, list[str]]) -> None:
    """Look that JSON knows each field of a message, where OpenAPI has a definition of it.

    The definitions are of 1.37 and have fields that the table of 1.36 lacks: those are left out.

    Raises:
        ValueError: a message has a field that JSON does not.
    """
    problems = []
    for full_name, definition in generate_wire_types.definitions().items():
        name = _short(full_name.removeprefix("io.k8s."))
        if name not in messages or "properties" not in definition:
            continue
        strange = _shown(messages, name) - set(definition["properties"])
        if strange - set(_OLDER.get(name, "").split()):
            problems.append(f"{name}: JSON has no {', '.join(sorted(strange))}")
    if problems:
        raise ValueError("\n".join(problems))


_OLDER: Final = {
    "core.v1.NodeAllocatableResourceClaimStatus": "resources",
    "resource.v1.Device": "nodeAllocatableResourceMappings",
}
"""Fields of features in alpha that 1.37 replaced."""


def _shown(messages: dict[str, list[str]], name: str) -> set[str]:
    shown = set()
    for entry in messages[name]:
        field, _, kind = entry.split(" ")
        if kind.endswith("+"):
            inner = kind.removesuffix("+")
            package, _, _ = name.rpartition(".")
            shown |= _shown(messages, inner if "." in inner else f"{package}.{inner}")
        else:
            shown.add(field)
    return shown


HEADER: Final = '''"""The fields of Kubernetes' protobuf messages: numbers, types, pointers.

Generated by tools/generate_protobuf.py for Kubernetes 1.36; do not edit. Numbers and types are
facts of k8s.io/api and k8s.io/apimachinery (``generated.proto``).

A message's text lists its fields as ``name number type``. Types: string, bool, int32, int64, bytes
(base64 in JSON), time, micro-time, duration, quantity, int-or-string, json (any JSON value),
strings (a message that holds a list of texts), or a message, of the same package where no other is
said. ``[]`` is a list, ``{}`` a map from text, ``?`` a pointer (zero and empty are kept), ``+`` a
message whose fields JSON shows in place of the field.
"""

# ruff: noqa: E501  # a message a line
# fmt: off
MESSAGES: dict[str, str] = {'''


def main() -> None:
    """Write the file from the table that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.generate_protobuf TABLE.json")
    TARGET.write_text(generate(json.loads(Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
