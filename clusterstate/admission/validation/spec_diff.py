"""What differs between two pod specs, as Kubernetes shows it in the error of a forbidden update.

The API server prints both specs in its internal form (Go field names, every field, one blank of
indent) and shows a unified diff; clients and people know the form. Rule: apimachinery
``pkg/util/diff/diff.go``; field order: pkg/apis/core/types.go, v1.36.
"""

import difflib
import json
from typing import Any, Final

from clusterstate.admission.validation.resources import parse
from clusterstate.objects.meta import Manifest

# type -> its fields in order, each ``GoName[=jsonName]:type``. The JSON name is the Go name with a
# lower first letter unless stated. Scalar types: s text, b bool, i number, p pointer to a scalar,
# j as it stands; q quantity, r resource list, m map; ``[]X`` list of X, ``*X`` pointer to struct X,
# ``X`` struct by value, ``X&`` the fields of X inline.
_TYPES: Final[dict[str, str]] = {
    "PodSpec": (
        "Volumes:[]Volume InitContainers:[]Container Containers:[]Container "
        "EphemeralContainers:[]EphemeralContainer RestartPolicy:s "
        "TerminationGracePeriodSeconds:p ActiveDeadlineSeconds:p DNSPolicy=dnsPolicy:s "
        "NodeSelector:m ServiceAccountName:s AutomountServiceAccountToken:p NodeName:s "
        "SecurityContext:*PodSecurityContext ImagePullSecrets:[]LocalObjectReference Hostname:s "
        "Subdomain:s SetHostnameAsFQDN=setHostnameAsFQDN:p Affinity:*Affinity SchedulerName:s "
        "Tolerations:[]Toleration HostAliases:[]HostAlias PriorityClassName:s Priority:p "
        "PreemptionPolicy:p DNSConfig=dnsConfig:*PodDNSConfig ReadinessGates:[]PodReadinessGate "
        "RuntimeClassName:p Overhead:r EnableServiceLinks:p "
        "TopologySpreadConstraints:[]TopologySpreadConstraint OS=os:*PodOS "
        "SchedulingGates:[]PodSchedulingGate ResourceClaims:[]PodResourceClaim "
        "Resources:*ResourceRequirements HostnameOverride:p SchedulingGroup:*PodSchedulingGroup"
    ),
    "Container": (
        "Name:s Image:s Command:[]s Args:[]s WorkingDir:s Ports:[]ContainerPort "
        "EnvFrom:[]EnvFromSource Env:[]EnvVar Resources:ResourceRequirements "
        "ResizePolicy:[]ContainerResizePolicy RestartPolicy:p "
        "RestartPolicyRules:[]ContainerRestartRule VolumeMounts:[]VolumeMount "
        "VolumeDevices:[]VolumeDevice LivenessProbe:*Probe ReadinessProbe:*Probe "
        "StartupProbe:*Probe Lifecycle:*Lifecycle TerminationMessagePath:s "
        "TerminationMessagePolicy:s ImagePullPolicy:s SecurityContext:*SecurityContext Stdin:b "
        "StdinOnce:b TTY=tty:b"
    ),
    "EphemeralContainer": "Container& TargetContainerName:s",
    "ContainerPort": "Name:s HostPort:i ContainerPort:i Protocol:s HostIP=hostIP:s",
    "EnvFromSource": "Prefix:s ConfigMapRef:*NamedRef SecretRef:*NamedRef",
    "NamedRef": "Name:s Optional:p",
    "EnvVar": "Name:s Value:s ValueFrom:*EnvVarSource",
    "EnvVarSource": (
        "FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector "
        "ConfigMapKeyRef:*KeyRef SecretKeyRef:*KeyRef FileKeyRef:*FileKeyRef"
    ),
    "ObjectFieldSelector": "APIVersion=apiVersion:s FieldPath:s",
    "ResourceFieldSelector": "ContainerName:s Resource:s Divisor:q",
    "KeyRef": "Name:s Key:s Optional:p",
    "FileKeyRef": "VolumeName:s Path:s Key:s Optional:p",
    "ResourceRequirements": "Limits:r Requests:r Claims:[]ResourceClaim",
    "ResourceClaim": "Name:s Request:s",
    "ContainerResizePolicy": "ResourceName:s RestartPolicy:s",
    "ContainerRestartRule": "Action:s ExitCodes:*ExitCodes",
    "ExitCodes": "Operator:s Values:[]i",
    "VolumeMount": (
        "Name:s ReadOnly:b RecursiveReadOnly:p MountPath:s SubPath:s MountPropagation:p "
        "SubPathExpr:s"
    ),
    "VolumeDevice": "Name:s DevicePath:s",
    "Probe": (
        "Exec:*ExecAction HTTPGet=httpGet:*HTTPGetAction TCPSocket=tcpSocket:*TCPSocketAction "
        "GRPC=grpc:*GRPCAction InitialDelaySeconds:i TimeoutSeconds:i PeriodSeconds:i "
        "SuccessThreshold:i FailureThreshold:i TerminationGracePeriodSeconds:p"
    ),
    "Lifecycle": "PostStart:*LifecycleHandler PreStop:*LifecycleHandler StopSignal:p",
    "LifecycleHandler": (
        "Exec:*ExecAction HTTPGet=httpGet:*HTTPGetAction TCPSocket=tcpSocket:*TCPSocketAction "
        "Sleep:*SleepAction"
    ),
    "ExecAction": "Command:[]s",
    "HTTPGetAction": "Path:s Port:j Host:s Scheme:s HTTPHeaders=httpHeaders:[]NameValue",
    "NameValue": "Name:s Value:s",
    "TCPSocketAction": "Port:j Host:s",
    "GRPCAction": "Port:i Service:p",
    "SleepAction": "Seconds:i",
    "SecurityContext": (
        "Capabilities:*Capabilities Privileged:p SELinuxOptions=seLinuxOptions:*SELinuxOptions "
        "WindowsOptions:*WindowsOptions RunAsUser:p RunAsGroup:p RunAsNonRoot:p "
        "ReadOnlyRootFilesystem:p AllowPrivilegeEscalation:p ProcMount:p "
        "SeccompProfile:*Profile AppArmorProfile:*Profile"
    ),
    "Capabilities": "Add:[]s Drop:[]s",
    "SELinuxOptions": "User:s Role:s Type:s Level:s",
    "WindowsOptions": (
        "GMSACredentialSpecName=gmsaCredentialSpecName:p GMSACredentialSpec=gmsaCredentialSpec:p "
        "RunAsUserName:p HostProcess:p"
    ),
    "Profile": "Type:s LocalhostProfile:p",
    "PodSecurityContext": (
        "HostNetwork:b HostPID=hostPID:b HostIPC=hostIPC:b ShareProcessNamespace:p HostUsers:p "
        "SELinuxOptions=seLinuxOptions:*SELinuxOptions WindowsOptions:*WindowsOptions RunAsUser:p "
        "RunAsGroup:p RunAsNonRoot:p SupplementalGroups:[]i SupplementalGroupsPolicy:p "
        "FSGroup=fsGroup:p FSGroupChangePolicy=fsGroupChangePolicy:p Sysctls:[]NameValue "
        "SeccompProfile:*Profile AppArmorProfile:*Profile "
        "SELinuxChangePolicy=seLinuxChangePolicy:p"
    ),
    "LocalObjectReference": "Name:s",
    "Affinity": (
        "NodeAffinity:*NodeAffinity PodAffinity:*PodAffinity PodAntiAffinity:*PodAffinity"
    ),
    "NodeAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution:*NodeSelector "
        "PreferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm"
    ),
    "NodeSelector": "NodeSelectorTerms:[]NodeSelectorTerm",
    "NodeSelectorTerm": "MatchExpressions:[]Requirement MatchFields:[]Requirement",
    "Requirement": "Key:s Operator:s Values:[]s",
    "PreferredSchedulingTerm": "Weight:i Preference:NodeSelectorTerm",
    "PodAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm "
        "PreferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm"
    ),
    "PodAffinityTerm": (
        "LabelSelector:p Namespaces:[]s TopologyKey:s NamespaceSelector:p MatchLabelKeys:[]s "
        "MismatchLabelKeys:[]s"
    ),
    "WeightedPodAffinityTerm": "Weight:i PodAffinityTerm:PodAffinityTerm",
    "Toleration": "Key:s Operator:s Value:s Effect:s TolerationSeconds:p",
    "HostAlias": "IP=ip:s Hostnames:[]s",
    "PodDNSConfig": "Nameservers:[]s Searches:[]s Options:[]PodDNSConfigOption",
    "PodDNSConfigOption": "Name:s Value:p",
    "PodReadinessGate": "ConditionType:s",
    "TopologySpreadConstraint": (
        "MaxSkew:i TopologyKey:s WhenUnsatisfiable:s LabelSelector:p MinDomains:p "
        "NodeAffinityPolicy:p NodeTaintsPolicy:p MatchLabelKeys:[]s"
    ),
    "PodOS": "Name:s",
    "PodSchedulingGate": "Name:s",
    "PodResourceClaim": "Name:s ResourceClaimName:p ResourceClaimTemplateName:p",
    "PodSchedulingGroup": "PodGroupName:p",
    "Volume": (
        "Name:s HostPath:p EmptyDir:*EmptyDir GCEPersistentDisk=gcePersistentDisk:p "
        "AWSElasticBlockStore=awsElasticBlockStore:p GitRepo:p Secret:p NFS=nfs:p ISCSI=iscsi:p "
        "Glusterfs:p PersistentVolumeClaim:p RBD=rbd:p Quobyte:p FlexVolume:p Cinder:p "
        "CephFS=cephfs:p Flocker:p DownwardAPI:p FC=fc:p AzureFile:p ConfigMap:p VsphereVolume:p "
        "AzureDisk:p PhotonPersistentDisk:p Projected:p PortworxVolume:p ScaleIO:p "
        "StorageOS=storageos:p CSI=csi:p Ephemeral:p Image:p"
    ),
    "EmptyDir": "Medium:s SizeLimit:p",
}
# The internal form keeps the pod's host namespaces in its security context.
_IN_SECURITY_CONTEXT: Final = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
)
_EMPTY: Final[dict[str, Any]] = {"s": "", "b": False, "i": 0, "q": "0"}


def spec_diff(old: Manifest, new: Manifest) -> str:
    """Return the unified diff of two pod specs in Kubernetes' internal form."""
    before, after = _lines(old), _lines(new)
    # Two header lines name the files; upstream leaves them out.
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])


# What Go's encoder writes as escapes inside strings; all other letters stand as they are.
_ESCAPED: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def _lines(spec: Manifest) -> list[str]:
    text = json.dumps(_internal(spec), indent=1, ensure_ascii=False).translate(_ESCAPED)
    return [f"{line}\n" for line in text.split("\n")]


def _internal(spec: Manifest) -> dict[str, Any]:
    moved = {field: spec[field] for field in _IN_SECURITY_CONTEXT if field in spec}
    if moved:
        spec = {**spec, "securityContext": {**(spec.get("securityContext") or {}), **moved}}
    return _struct("PodSpec", spec)


def _struct(name: str, value: Manifest) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for entry in _TYPES[name].split():
        if entry.endswith("&"):
            shown.update(_struct(entry[:-1], value))
            continue
        names, _, type_ = entry.partition(":")
        go_name, _, json_name = names.partition("=")
        key = json_name or go_name[0].lower() + go_name[1:]
        shown[go_name] = _value(type_, value.get(key))
    return shown


def _value(type_: str, value: Any) -> Any:
    if type_.startswith("[]"):
        return [_value(type_[2:], item) for item in value] if value else None
    if type_.startswith("*"):
        return None if value is None else _struct(type_[1:], value)
    if type_ in _TYPES:
        return _struct(type_, value or {})
    if type_ == "r":
        return {k: _quantity(value[k]) for k in sorted(value)} if value else None
    if type_ == "m":
        return {k: value[k] for k in sorted(value)} if value else None
    if type_ == "q":
        return "0" if value is None else _quantity(value)
    if value is None:
        return _EMPTY.get(type_)
    return value


def _quantity(value: Any) -> str:
    quantity = parse(value)
    return str(value) if quantity is None else str(quantity)
