"""In-tree volumes as the volumes of the CSI drivers that replaced them.

Source: k8s.io/csi-translation-lib (``translate.go`` and ``plugins``), v1.36, as far as drivers,
handles and topology go.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from clusterstate.objects.values.pod import (
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    Volume,
)
from clusterstate.objects.values.storage import (
    MIGRATED_PLUGINS,
    CSINode,
    CSIPersistentVolumeSource,
    PersistentVolume,
    VolumeNodeAffinity,
)

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SEVERAL_ZONES: Final = "__"
"""Stands between the zones of a label that names several."""
TOPOLOGY_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
Topologies = tuple[tuple[str, frozenset[str]], ...]
"""Labels and the values of which a node must have one."""


def topologies_of(volume: PersistentVolume) -> Topologies:
    """Return what a volume's labels ask of nodes; a label with an empty zone asks nothing."""
    found = []
    for key in TOPOLOGY_LABELS:
        text = volume.metadata.labels.get(key)
        if text is None:
            continue
        zones = [zone.strip() for zone in text.split(SEVERAL_ZONES)]
        if all(zones):
            found.append((key, frozenset(zones)))
    return tuple(found)


class _Plugin(msgspec.Struct, frozen=True):
    """``field``: of the volume's source; ``topology``: the driver's key of zones, if any.

    ``gated``: behind a gate that is off by default, or needs no mark on nodes to be translated.
    """

    name: str
    driver: str
    field: str
    handle: Callable[[Any], str]
    topology: str = ""


def _ebs(source: Any) -> str:
    return str(source.volume_id).rsplit("/", 1)[-1]


_PLUGINS: Final = (
    _Plugin(
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "aws_elastic_block_store",
        _ebs,
        "topology.ebs.csi.aws.com/zone",
    ),
    _Plugin(
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        "gce_persistent_disk",
        lambda source: str(source.pd_name),
        "topology.gke.io/zone",
    ),
    _Plugin(
        "kubernetes.io/azure-disk",
        "disk.csi.azure.com",
        "azure_disk",
        lambda source: str(source.disk_uri),
        "topology.disk.csi.azure.com/zone",
    ),
    _Plugin(
        "kubernetes.io/azure-file",
        "file.csi.azure.com",
        "azure_file",
        lambda source: f"{source.secret_name}#{source.share_name}",
    ),
    _Plugin(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "cinder",
        lambda source: str(source.volume_id),
        "topology.cinder.csi.openstack.org/zone",
    ),
    _Plugin(
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
        "vsphere_volume",
        lambda source: str(source.volume_path),
        "topology.csi.vmware.com/zone",
    ),
    _Plugin(
        "kubernetes.io/portworx-volume",
        "pxd.portworx.com",
        "portworx_volume",
        lambda source: str(source.volume_id),
    ),
)
_BY_NAME: Final = {plugin.name: plugin for plugin in _PLUGINS}
"""The fields of a volume's source that may be migrated."""


def _of(source: Volume | PersistentVolume) -> tuple[_Plugin, Any] | None:
    holder = source.spec if isinstance(source, PersistentVolume) else source
    if holder.csi is not None:
        return None  # a volume has one source
    for plugin in _PLUGINS:
        found = getattr(holder, plugin.field)
        if found is not None:
            return plugin, found
    return None


def is_migratable(source: Volume | PersistentVolume) -> bool:
    """Return whether a volume is of an in-tree plugin that a CSI driver replaced."""
    return _of(source) is not None


def is_migrated(plugin: str, node: CSINode | None) -> bool:
    """Return whether an in-tree plugin is a CSI driver's on a node, as its CSINode says."""
    if node is None or not plugin:
        return False
    return plugin in node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")


def csi_source(
    source: Volume | PersistentVolume, node: CSINode | None
) -> CSIPersistentVolumeSource | None:
    """Return driver and handle of a volume on a node, ``None`` if no CSI driver serves it there."""
    if isinstance(source, PersistentVolume) and source.spec.csi is not None:
        return source.spec.csi
    found = _of(source)
    if found is None or not is_migrated(found[0].name, node):
        return None
    plugin, disk = found
    return CSIPersistentVolumeSource(driver=plugin.driver, volume_handle=plugin.handle(disk))


HOLLOW_PROVISIONER: Final = "stowage.dev/hollow"
HOLLOW_DRIVER: Final = "hollow.stowage.dev"
"""The driver that a class with the hollow provisioner has: a driver's name has no slash."""


def csi_name(provisioner: str) -> str:
    """Return the name under which a provisioner is known as a CSI driver."""
    return HOLLOW_DRIVER if provisioner == HOLLOW_PROVISIONER else provisioner


def is_in_tree(provisioner: str) -> bool:
    """Return whether a provisioner is an in-tree plugin that a CSI driver replaced."""
    return provisioner in _BY_NAME


def driver_of(provisioner: str, node: CSINode | None) -> str:
    """Return the CSI driver that makes volumes for a node, empty if an in-tree plugin does."""
    plugin = _BY_NAME.get(provisioner)
    if plugin is None:
        return csi_name(provisioner)
    return plugin.driver if is_migrated(provisioner, node) else ""


def inline_driver(volume: Volume) -> str:
    """Return the CSI driver that replaced the plugin of a pod's in-tree volume, empty for none."""
    found = _of(volume)
    return found[0].driver if found is not None else ""


def affinity_on(volume: PersistentVolume, node: CSINode | None) -> VolumeNodeAffinity | None:
    """Return from where a volume can be reached, in terms of the driver that serves it on a node.

    The topology of zones becomes that of the driver: the zones of the affinity, else those of the
    volume's labels. A beta label of regions becomes the present one.
    Rule: ``translateTopologyFromInTreeToCSI``.
    """
    affinity = volume.spec.node_affinity
    found = _of(volume)
    if found is None or volume.spec.csi is not None or not is_migrated(found[0].name, node):
        return affinity
    topology = found[0].topology
    if not topology:
        return affinity
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    labels = volume.metadata.labels
    keys = {one.key for term in terms for one in term.match_expressions}
    present = ZONE in keys or ZONE in labels
    zone, region = (ZONE, REGION) if present else (BETA_ZONE, BETA_REGION)
    if zone in keys:
        terms = tuple(_renamed(term, zone, topology) for term in terms)
    elif zone in labels:
        zones = tuple(sorted(set(labels[zone].split(SEVERAL_ZONES))))
        requirement = SelectorRequirement(key=topology, operator="In", values=zones)
        terms = tuple(
            msgspec.structs.replace(term, match_expressions=(*term.match_expressions, requirement))
            for term in terms or (NodeSelectorTerm(),)
        )
    if region == BETA_REGION:
        terms = tuple(_renamed(term, BETA_REGION, REGION) for term in terms)
    if not terms:
        return affinity
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def _renamed(term: NodeSelectorTerm, key: str, other: str) -> NodeSelectorTerm:
    return msgspec.structs.replace(
        term,
        match_expressions=tuple(
            msgspec.structs.replace(one, key=other) if one.key == key else one
            for one in term.match_expressions
        ),
    )
