"""Pods as lenses over their manifests: the fields that scheduling and eviction read.

``None`` stands for an absent object (a null selector matches nothing), an empty struct for a
present but empty one (an empty label selector matches everything): the difference is meaning.
"""

from typing import Final

import msgspec

from clusterstate.objects.values.meta import ObjectMeta, prepare
from clusterstate.objects.values.node import QuantityText

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The profile of a pod that names none."""
NO_SUCH_PROFILE: Final = "NoSuchProfile"
"""The reason of the condition PodScheduled where no profile has the name of a pod's scheduler."""
MIRROR_POD: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that a node's agent runs by itself and shows here."""

Resources = dict[str, QuantityText]


class SelectorRequirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``key operator values`` of a node selector or a label selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector: ``match_labels`` and ``match_expressions`` are ANDed (R33)."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requirements that are ANDed (R10)."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Terms that are ORed (R8)."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A term that adds ``weight`` (1-100) to the score of each matching node (R6)."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The three node affinity fields (R1)."""

    required_during_scheduling_required_during_execution: NodeSelector | None = None
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods selected by labels and namespaces, in the topology domain of ``topology_key`` (R88)."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A preferred inter-pod term and its weight, 1-100."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Inter-pod affinity or anti-affinity: required terms are ANDed, preferred ones weighed."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``spec.tolerations``. An empty operator means ``Equal`` (R115)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``spec.topologySpreadConstraints``."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ResourceRequirements(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``resources`` of a container or, pod-level, of the whole pod."""

    requests: Resources = {}
    limits: Resources = {}


class ContainerPort(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A port; only ``host_port`` above 0 takes part in scheduling. Empty host IP is 0.0.0.0."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerRestartRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens when a container exits."""

    action: str = ""


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A mount; only ``bind_mount_options`` take part in scheduling."""

    bind_mount_options: tuple[str, ...] = ()


class Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A container or init container; ``restart_policy`` Always makes an init one a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class PodSchedulingGate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A gate that holds the pod back until it is removed."""

    name: str = ""


class ImageVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image that is mounted as a volume."""

    reference: str = ""


class PersistentVolumeClaimVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim of the pod's namespace."""

    claim_name: str = ""


class EphemeralVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that is made for the pod, from a template that scheduling need not know."""


class CSIVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume that a CSI driver makes in place, without a claim."""

    driver: str = ""


class AWSElasticBlockStoreVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An EBS disk."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class GCEPersistentDiskVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A disk of Google's."""

    pd_name: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A disk of Azure's."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class AzureFileVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A share of Azure's."""

    secret_name: str = ""
    share_name: str = ""


class CinderVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A disk of OpenStack's."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class VsphereVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A disk of vSphere's."""

    volume_path: str = ""


class PortworxVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume of Portworx."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class ISCSIVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A disk by iSCSI."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image of Ceph's."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class Volume(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a pod's volume that scheduling reads."""

    name: str = ""
    image: ImageVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None


class PodResourceClaim(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A claim of devices: one that is there, or one to be made from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The PodGroup that a pod is of, in the pod's namespace."""

    pod_group_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a pod."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    overhead: Resources = {}
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None


class PodCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Resources that a running container holds now, for pods that are being resized."""

    name: str = ""
    allocated_resources: Resources = {}
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Which claim was made for an entry of ``spec.resourceClaims``; none where none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``status`` of a pod."""

    phase: str = ""
    reason: str = ""
    conditions: tuple[PodCondition, ...] = ()
    start_time: str | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Resources = {}
    resources: ResourceRequirements | None = None
    resize: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a pod that scheduling rules read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


prepare(Pod)
