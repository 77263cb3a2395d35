"""Lenses over volumes, claims, classes and drivers: the fields that scheduling reads.

Types of k8s.io/api ``core/v1`` and ``storage/v1``, v1.36. Sizes are quantities as text.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from clusterstate.objects.values.meta import ObjectMeta, prepare
from clusterstate.objects.values.node import QuantityText
from clusterstate.objects.values.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    LabelSelector,
    NodeSelector,
    PortworxVolumeSource,
    ResourceRequirements,
    VsphereVolumeSource,
)

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim that was bound to its volume once."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume or claim whose partner the scheduler or a controller chose."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim for which the scheduler wants a volume made, for pods on this node."""
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: in-tree plugins, separated by commas, that CSI drivers replace there."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
FILESYSTEM: Final = "Filesystem"
AVAILABLE: Final = "Available"
BOUND: Final = "Bound"
PENDING: Final = "Pending"
RELEASED: Final = "Released"
FAILED: Final = "Failed"
LOST: Final = "Lost"
STORAGE: Final = "storage"


class PersistentVolumeClaimSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a claim; ``storage_class_name`` ``None``: absent, empty: no class."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PhaseStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``status`` of a claim or volume."""

    phase: str = ""


class PersistentVolumeClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request for a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def class_name(self) -> str:
        """The class, by the old annotation first; empty for none."""
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS)
        return (self.spec.storage_class_name or "") if beta is None else beta

    @property
    def is_fully_bound(self) -> bool:
        """Whether claim and volume name each other and the binding is complete."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class ClaimReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec.claimRef`` of a volume; without ``uid`` it refers to any claim of the name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIPersistentVolumeSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a volume."""

    capacity: dict[str, QuantityText] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None


class PersistentVolume(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()

    @property
    def class_name(self) -> str:
        """The class, by the old annotation first; empty for none."""
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS)
        return self.spec.storage_class_name if beta is None else beta


class TopologySelectorLabelRequirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of ``values`` under the label ``key``."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requirements that are ANDed."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How volumes of a class are made; terms of ``allowed_topologies`` are ORed."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether volumes may be created for a node; terms without requirements match none.

        Rule: pkg/apis/core/v1/helper ``MatchTopologySelectorTerms``, v1.36.
        """
        return not self.allowed_topologies or any(
            term.match_label_expressions
            and all(
                one.key in labels and labels[one.key] in one.values
                for one in term.match_label_expressions
            )
            for term in self.allowed_topologies
        )


class CSINodeAllocatable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many volumes of the driver the node takes; ``None``: no limit."""

    count: int | None = None


class CSINodeDriver(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A driver that is installed on a node."""

    name: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable: CSINodeAllocatable | None = None

    @property
    def limit(self) -> int | None:
        """How many volumes, ``None`` for any number."""
        return self.allocatable.count if self.allocatable else None


class CSINodeSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a CSINode."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The drivers of the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a CSIDriver."""

    attach_required: bool | None = None
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a driver can do."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The free capacity for volumes of a class, on the nodes that ``node_topology`` selects."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None

    @property
    def limit(self) -> QuantityText | None:
        """The size of the largest possible volume: ``maximumVolumeSize``, else ``capacity``."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class VolumeAttachmentSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume that is, or is to be, attached to a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


KINDS: Final[dict[str, type[msgspec.Struct]]] = {
    one.__name__: one
    for one in (
        StorageClass,
        CSIDriver,
        CSINode,
        CSIStorageCapacity,
        PersistentVolume,
        PersistentVolumeClaim,
        VolumeAttachment,
    )
}
"""The lens of each kind that volume plugins look up."""
prepare(*KINDS.values())
