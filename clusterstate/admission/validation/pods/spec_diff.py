"""What differs between two pod specs, as Kubernetes shows it in the error of a forbidden update.

The API server prints both specs in its internal form (Go field names, every field, one blank of
indent) and shows a unified diff; clients and people know the form. Rule: apimachinery
``pkg/util/diff/diff.go``; field order: pkg/apis/core/types.go, v1.36.
"""

import difflib
import json
from typing import Any, Final

from clusterstate.admission.validation.core.resources import parse
from clusterstate.objects.values.meta import Manifest

# type -> its fields in order, each ``GoName[=jsonName]:type``. The JSON name is the Go name with a
# lower first letter unless stated. Scalar types: s text, b bool, i number, p pointer to a scalar,
# j number or text; q quantity, *q pointer to one, r resource list, m map; ``[]X`` list of X, ``*X``
# pointer to struct X, ``X`` struct by value, ``X&`` the fields of X inline, ``member>X`` those of
# the member's X inline; ``?`` before a type: left out where empty.
# The types of ``meta/v1`` have no internal form: their fields are written as on the wire.
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
        "LabelSelector:*LabelSelector Namespaces:[]s TopologyKey:s "
        "NamespaceSelector:*LabelSelector MatchLabelKeys:[]s MismatchLabelKeys:[]s"
    ),
    "WeightedPodAffinityTerm": "Weight:i PodAffinityTerm:PodAffinityTerm",
    "Toleration": "Key:s Operator:s Value:s Effect:s TolerationSeconds:p",
    "HostAlias": "IP=ip:s Hostnames:[]s",
    "PodDNSConfig": "Nameservers:[]s Searches:[]s Options:[]PodDNSConfigOption",
    "PodDNSConfigOption": "Name:s Value:p",
    "PodReadinessGate": "ConditionType:s",
    "TopologySpreadConstraint": (
        "MaxSkew:i TopologyKey:s WhenUnsatisfiable:s LabelSelector:*LabelSelector MinDomains:p "
        "NodeAffinityPolicy:p NodeTaintsPolicy:p MatchLabelKeys:[]s"
    ),
    "PodOS": "Name:s",
    "PodSchedulingGate": "Name:s",
    "PodResourceClaim": "Name:s ResourceClaimName:p ResourceClaimTemplateName:p",
    "PodSchedulingGroup": "PodGroupName:p",
    "Volume": (
        "Name:s HostPath:*HostPath EmptyDir:*EmptyDir GCEPersistentDisk=gcePersistentDisk:*GCEDisk "
        "AWSElasticBlockStore=awsElasticBlockStore:*AWSDisk GitRepo:*GitRepo "
        "Secret:*SecretVolume NFS=nfs:*NFS ISCSI=iscsi:*ISCSI Glusterfs:*Glusterfs "
        "PersistentVolumeClaim:*ClaimVolume RBD=rbd:*RBD Quobyte:*Quobyte "
        "FlexVolume:*FlexVolume Cinder:*Cinder CephFS=cephfs:*CephFS Flocker:*Flocker "
        "DownwardAPI:*DownwardAPIVolume FC=fc:*FC AzureFile:*AzureFile "
        "ConfigMap:*ConfigMapVolume VsphereVolume:*VsphereVolume AzureDisk:*AzureDisk "
        "PhotonPersistentDisk:*PhotonDisk Projected:*Projected PortworxVolume:*PortworxVolume "
        "ScaleIO:*ScaleIO StorageOS=storageos:*StorageOS CSI=csi:*CSI Ephemeral:*Ephemeral "
        "Image:*ImageVolume"
    ),
    "HostPath": "Path:s Type:p",
    "GCEDisk": "PDName=pdName:s FSType=fsType:s Partition:i ReadOnly:b",
    "AWSDisk": "VolumeID:s FSType=fsType:s Partition:i ReadOnly:b",
    "GitRepo": "Repository:s Revision:s Directory:s",
    "SecretVolume": "SecretName:s Items:[]KeyToPath DefaultMode:p Optional:p",
    "KeyToPath": "Key:s Path:s Mode:p",
    "NFS": "Server:s Path:s ReadOnly:b",
    "ISCSI": (
        "TargetPortal:s IQN=iqn:s Lun:i ISCSIInterface=iscsiInterface:s FSType=fsType:s ReadOnly:b "
        "Portals:[]s DiscoveryCHAPAuth=chapAuthDiscovery:b SessionCHAPAuth=chapAuthSession:b "
        "SecretRef:*LocalObjectReference InitiatorName:p"
    ),
    "Glusterfs": "EndpointsName=endpoints:s Path:s ReadOnly:b",
    "ClaimVolume": "ClaimName:s ReadOnly:b",
    "RBD": (
        "CephMonitors=monitors:[]s RBDImage=image:s FSType=fsType:s RBDPool=pool:s "
        "RadosUser=user:s Keyring:s SecretRef:*LocalObjectReference ReadOnly:b"
    ),
    "Quobyte": "Registry:s Volume:s ReadOnly:b User:s Group:s Tenant:s",
    "FlexVolume": ("Driver:s FSType=fsType:s SecretRef:*LocalObjectReference ReadOnly:b Options:m"),
    "Cinder": "VolumeID:s FSType=fsType:s ReadOnly:b SecretRef:*LocalObjectReference",
    "CephFS": (
        "Monitors:[]s Path:s User:s SecretFile:s SecretRef:*LocalObjectReference ReadOnly:b"
    ),
    "Flocker": "DatasetName:s DatasetUUID:s",
    "DownwardAPIVolume": "Items:[]DownwardAPIFile DefaultMode:p",
    "DownwardAPIFile": (
        "Path:s FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector Mode:p"
    ),
    "FC": "TargetWWNs:[]s Lun:p FSType=fsType:s ReadOnly:b WWIDs=wwids:[]s",
    "AzureFile": "SecretName:s ShareName:s ReadOnly:b",
    "ConfigMapVolume": "Name:s Items:[]KeyToPath DefaultMode:p Optional:p",
    "VsphereVolume": "VolumePath:s FSType=fsType:s StoragePolicyName:s StoragePolicyID:s",
    "AzureDisk": (
        "DiskName:s DataDiskURI=diskURI:s CachingMode:p FSType=fsType:p ReadOnly:p Kind:p"
    ),
    "PhotonDisk": "PdID:s FSType=fsType:s",
    "Projected": "Sources:[]VolumeProjection DefaultMode:p",
    "VolumeProjection": (
        "Secret:*KeysProjection DownwardAPI:*DownwardAPIProjection ConfigMap:*KeysProjection "
        "ServiceAccountToken:*TokenProjection ClusterTrustBundle:*TrustBundleProjection "
        "PodCertificate:*CertificateProjection"
    ),
    "KeysProjection": "Name:s Items:[]KeyToPath Optional:p",
    "DownwardAPIProjection": "Items:[]DownwardAPIFile",
    "TokenProjection": "Audience:s ExpirationSeconds:i Path:s",
    "TrustBundleProjection": ("Name:p SignerName:p LabelSelector:*LabelSelector Optional:p Path:s"),
    "CertificateProjection": (
        "SignerName:s KeyType:s MaxExpirationSeconds:p CredentialBundlePath:s KeyPath:s "
        "CertificateChainPath:s UserAnnotations:m"
    ),
    "PortworxVolume": "VolumeID:s FSType=fsType:s ReadOnly:b",
    "ScaleIO": (
        "Gateway:s System:s SecretRef:*LocalObjectReference SSLEnabled=sslEnabled:b "
        "ProtectionDomain:s StoragePool:s StorageMode:s VolumeName:s FSType=fsType:s ReadOnly:b"
    ),
    "StorageOS": (
        "VolumeName:s VolumeNamespace:s FSType=fsType:s ReadOnly:b SecretRef:*LocalObjectReference"
    ),
    "CSI": (
        "Driver:s ReadOnly:p FSType=fsType:p VolumeAttributes:m "
        "NodePublishSecretRef:*LocalObjectReference"
    ),
    "Ephemeral": "VolumeClaimTemplate:*ClaimTemplate",
    "ClaimTemplate": "metadata>ClaimMetadata Spec:ClaimSpec",
    "ClaimMetadata": "labels:?m annotations:?m",
    "ClaimSpec": (
        "AccessModes:[]s Selector:*LabelSelector Resources:ClaimResources VolumeName:s "
        "StorageClassName:p VolumeMode:p DataSource:*DataSource DataSourceRef:*DataSourceRef "
        "VolumeAttributesClassName:p"
    ),
    "ClaimResources": "Limits:r Requests:r",
    "DataSource": "APIGroup=apiGroup:p Kind:s Name:s",
    "DataSourceRef": "DataSource& Namespace:p",
    "ImageVolume": "Reference:s PullPolicy:s",
    "LabelSelector": "matchLabels:?m matchExpressions:?[]SelectorRequirement",
    "SelectorRequirement": "key:s operator:s values:?[]s",
    "EmptyDir": "Medium:s SizeLimit:*q",
}
# The internal form keeps the pod's host namespaces in its security context.
_IN_SECURITY_CONTEXT: Final = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
)
_EMPTY: Final[dict[str, Any]] = {"s": "", "b": False, "i": 0, "j": 0, "q": "0"}


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


def fields(name: str) -> dict[str, str]:
    """Return JSON name -> type of the members of a type of the table, without ``[]``, ``*``, ``?``.

    Raises:
        KeyError: there is no such type.
    """
    known: dict[str, str] = {}
    for entry in _TYPES[name].split():
        if entry.endswith("&"):
            known |= fields(entry[:-1])
        elif ">" in entry:
            known |= fields(entry.partition(">")[2])
        else:
            names, _, type_ = entry.partition(":")
            known[_json_name(names)] = type_.lstrip("?[]*")
    return known


def _json_name(names: str) -> str:
    go_name, _, json_name = names.partition("=")
    return json_name or go_name[0].lower() + go_name[1:]


def _struct(name: str, value: Manifest) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for entry in _TYPES[name].split():
        if entry.endswith("&"):
            shown.update(_struct(entry[:-1], value))
            continue
        member, inline, of_member = entry.partition(">")
        if inline:
            shown.update(_struct(of_member, value.get(member) or {}))
            continue
        names, _, type_ = entry.partition(":")
        go_name, key = names.partition("=")[0], _json_name(names)
        if type_.startswith("?") and not value.get(key):
            continue
        shown[go_name] = _value(type_.removeprefix("?"), value.get(key))
    return shown


def _value(type_: str, value: Any) -> Any:
    if type_.startswith("[]"):
        return None if value is None else [_value(type_[2:], item) for item in value]
    if type_ == "*q":
        return None if value is None else _quantity(value)
    if type_.startswith("*"):
        return None if value is None else _struct(type_[1:], value)
    if type_ in _TYPES:
        return _struct(type_, value or {})
    if type_ == "r":
        return None if value is None else {k: _quantity(value[k]) for k in sorted(value)}
    if type_ == "m":
        return None if value is None else {k: value[k] for k in sorted(value)}
    if type_ == "q":
        return "0" if value is None else _quantity(value)
    if value is None:
        return _EMPTY.get(type_)
    return value


def _quantity(value: Any) -> str:
    quantity = parse(value)
    return str(value) if quantity is None else str(quantity)
