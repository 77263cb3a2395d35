"""The rights that a node's agent has without a role: on its own node, its pods and its lease.

An agent reads the objects to which its pods refer, each by its name: Secrets, ConfigMaps, claims,
the volumes of those claims, and the Secrets that these volumes name. It makes tokens for the
service accounts of its pods. ``authorizer`` queries these objects
(``queries.nodes.node_references``). The role ``system:node`` allows the rest.

The NodeRestriction admission plugin decides which objects of a kind an agent may write. A read of a
pod checks that the pod is on the agent's node (``authorizer.reads_own_pods_only``). Rules:
plugin/pkg/auth/authorizer/node/node_authorizer.go, with AuthorizeNodeWithSelectors, v1.36.
"""

from typing import Final

from clusterstate.access.default_roles import NODE_RULES
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry import fields
from clusterstate.objects.values.errors import BadRequest

GROUP: Final = "system:nodes"
USER_PREFIX: Final = "system:node:"

READ_VERBS: Final = frozenset({"get", "list", "watch"})
_GOT: Final = frozenset({"get"})
_CHANGES: Final = frozenset({"update", "patch"})
_KEPT_BY_ITSELF: Final = frozenset({"get", "create", "update", "patch", "delete"})
_LEASES: Final = "kube-node-lease"
_NODES: Final = ("", "nodes")
_PODS: Final = ("", "pods")
_SLICES: Final = ("resource.k8s.io", "resourceslices")
_CLAIMS: Final = ("", "persistentvolumeclaims")
_BY_REFERENCE: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("", "secrets"): READ_VERBS,
    ("", "configmaps"): READ_VERBS,
    _CLAIMS: _GOT,
    ("", "persistentvolumes"): _GOT,
    ("resource.k8s.io", "resourceclaims"): _GOT,
    ("storage.k8s.io", "volumeattachments"): _GOT,
    _SLICES: frozenset({"get", "update", "patch", "delete"}),
    _PODS: frozenset({"list", "watch"}),
}
"""The verbs on objects to which a pod of the node refers, or which name the node themselves."""
_OF_SUBRESOURCES: Final[dict[tuple[str, str, str], frozenset[str]]] = {
    (*_CLAIMS, "status"): _CHANGES,
    ("", "serviceaccounts", "token"): frozenset({"create"}),
}
"""The same for subresources."""
_WITHOUT_NAMESPACE: Final = frozenset({"persistentvolumes", "volumeattachments", "resourceslices"})
# A kubelet reports its node and its pods; NodeRestriction checks which objects.
_WRITES: Final = frozenset(
    {
        (*_NODES, "", "create"),
        (*_NODES, "", "update"),
        (*_NODES, "", "patch"),
        (*_NODES, "status", "update"),
        (*_NODES, "status", "patch"),
        (*_PODS, "", "create"),
        (*_PODS, "", "delete"),
        (*_PODS, "status", "update"),
        (*_PODS, "status", "patch"),
        (*_PODS, "eviction", "create"),
    }
)


def name_of(user: str, groups: tuple[str, ...]) -> str:
    """Return the name of the node whose agent a user is, empty for other users."""
    if GROUP not in groups or not user.startswith(USER_PREFIX):
        return ""
    return user.removeprefix(USER_PREFIX)


def allows(node: str, wants: Attributes) -> bool:
    """Return whether a node's agent has a right without regard to its pods' references.

    Lists and watches must select its own objects. ``asks_references`` judges the rest.
    """
    if wants.path:
        return False
    kind = (wants.group, wants.resource)
    if kind == ("stowage.dev", "nodes") and wants.subresource == "usage":
        return wants.name == node and wants.verb in ("get", "update")
    if kind == ("", "namespaces"):
        return wants.verb in READ_VERBS and not wants.subresource
    if kind in (_NODES, _PODS):
        return _allows_nodes_and_pods(node, kind, wants)
    if kind == ("coordination.k8s.io", "leases"):
        return wants.namespace == _LEASES and _keeps_itself(node, wants)
    if kind == ("storage.k8s.io", "csinodes"):
        return _keeps_itself(node, wants)
    if kind == _SLICES and not wants.subresource:
        if wants.verb in ("list", "watch", "deletecollection"):
            return _selects(wants, "ResourceSlice", "spec.nodeName", node)
        return wants.verb == "create"
    if kind in _BY_REFERENCE or kind == ("", "serviceaccounts"):
        return False
    return any(rule.reaches(wants) for rule in NODE_RULES)


def _allows_nodes_and_pods(node: str, kind: tuple[str, str], wants: Attributes) -> bool:
    if wants.verb not in READ_VERBS:
        return (*kind, wants.subresource, wants.verb) in _WRITES
    if wants.subresource:
        return False
    if kind == _NODES:
        if wants.verb == "get":
            return wants.name == node
        return _selects(wants, "Node", "metadata.name", node)
    return wants.verb == "get" or _selects(wants, "Pod", "spec.nodeName", node)


def _keeps_itself(node: str, wants: Attributes) -> bool:
    """Return whether an agent writes an object named as its node, or creates any object."""
    if wants.subresource or wants.verb not in _KEPT_BY_ITSELF:
        return False
    return wants.verb == "create" or wants.name == node


def asks_references(wants: Attributes) -> bool:
    """Return whether an agent has a right if one of its pods refers to the object.

    A list or a watch of one object is judged as a get of that object.
    """
    if not wants.name or not (wants.namespace or wants.resource in _WITHOUT_NAMESPACE):
        return False
    kind = (wants.group, wants.resource)
    if wants.subresource:
        return wants.verb in _OF_SUBRESOURCES.get((*kind, wants.subresource), ())
    return wants.verb in _BY_REFERENCE.get(kind, ())


def _selects(wants: Attributes, kind: str, path: str, value: str) -> bool:
    """Return whether a field selector requires that the field at ``path`` equals ``value``."""
    try:
        requirements = fields.parse_field_selector(kind, wants.fields)
    except BadRequest:
        return False
    return any((one.path, one.value, one.negated) == (path, value, False) for one in requirements)
