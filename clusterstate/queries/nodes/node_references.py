"""Which objects belong to a node because its pods refer to them, or because they name the node.

Rule: plugin/pkg/auth/authorizer/node/graph.go, v1.36. Each check costs a few statements; only
agents of nodes cause them.
"""

from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import pod_references
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.pods import node_of_pod

_CLAIMS = "persistentvolumeclaims"


def belongs(node: str, resource: str, namespace: str, name: str) -> bool:
    """Return whether an object, which need not exist, belongs to a node. Queries."""
    if resource == "pods":
        return bool(node) and node_of_pod(namespace, name) == node
    if resource == "persistentvolumes":
        volume = _find("PersistentVolume", name)
        return volume is not None and _is_of_pods(node, volume)
    if resource == "volumeattachments":
        return _names_node(node, _find("VolumeAttachment", name))
    if resource == "resourceslices":
        return _names_node(node, _find("ResourceSlice", name))
    if _pods_refer(node, namespace, resource, name):
        return True
    return resource == "secrets" and any(
        (namespace, name) in pod_references.secrets_of_volume(volume) and _is_of_pods(node, volume)
        for volume in _volumes_with(name)
    )


def _find(kind: str, name: str) -> Manifest | None:
    found = find_object(kind, "", name)
    return None if found is None else decode_object(found)


def _names_node(node: str, manifest: Manifest | None) -> bool:
    return manifest is not None and (manifest.get("spec") or {}).get("nodeName") == node


def _is_of_pods(node: str, volume: Manifest) -> bool:
    """Return whether a volume is bound to a claim to which a pod of the node refers."""
    claim = (volume.get("spec") or {}).get("claimRef") or {}
    return bool(claim.get("name")) and _pods_refer(
        node, claim.get("namespace") or "", _CLAIMS, claim["name"]
    )


def _pods_refer(node: str, namespace: str, resource: str, name: str) -> bool:
    # A claim's name may contain its pod's; all other names are in the document as a whole.
    searched_text = "" if resource == _CLAIMS else name
    rows = sql.fetch(
        "SELECT d.text FROM pod t JOIN document d ON d.id = t.document_id"
        " WHERE t.node_name = %s AND t.node_name <> '' AND t.namespace = %s"
        " AND position(%s in d.text) > 0",
        (node, namespace, searched_text),
    )
    return any(name in pod_references.names(document.decode(text, 0), resource) for (text,) in rows)


def _volumes_with(word: str) -> list[Manifest]:
    rows = sql.fetch(
        "SELECT d.text FROM generic_object t JOIN document d ON d.id = t.document_id"
        " WHERE t.kind = %s AND position(%s in d.text) > 0",
        (KINDS["PersistentVolume"].code, word),
    )
    return [document.decode(text, 0) for (text,) in rows]
