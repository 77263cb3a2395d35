"""What the agent of a node may do, without any role: its own node, its pods and its lease.

It reads the Secrets, ConfigMaps and claims to which its pods refer, each by its name; what they
refer to is asked of the database (``authorizer``).

Which object of a kind it may write is decided by the NodeRestriction admission plugin, and whether
a pod that it asks for by name is its own is judged by the code that reads the pod
(``authorizer.reads_own_pods_only``). It reads no subresource. Rules: plugin/pkg/auth/authorizer/
node/node_authorizer.go, with AuthorizeNodeWithSelectors, v1.36.
"""

from typing import Final

from clusterstate.access.rules import Attributes
from clusterstate.objects import fields, pod_references
from clusterstate.objects.errors import BadRequest

GROUP: Final = "system:nodes"
USER_PREFIX: Final = "system:node:"

READ_VERBS: Final = frozenset({"get", "list", "watch"})
_GOT: Final = frozenset({"get"})
_LEASES: Final = "kube-node-lease"
_READS: Final = frozenset(
    {
        ("", "services"),
        ("", "namespaces"),
        ("node.k8s.io", "runtimeclasses"),
    }
)
# A kubelet reports its node and its pods, renews its lease and writes events.
_WRITES: Final = frozenset(
    {
        ("", "nodes", "", "create"),
        ("", "nodes", "", "update"),
        ("", "nodes", "", "patch"),
        ("", "nodes", "status", "update"),
        ("", "nodes", "status", "patch"),
        ("", "pods", "", "create"),
        ("", "pods", "", "delete"),
        ("", "pods", "status", "update"),
        ("", "pods", "status", "patch"),
        ("", "pods", "eviction", "create"),
        ("", "events", "", "create"),
        ("", "events", "", "update"),
        ("", "events", "", "patch"),
        ("coordination.k8s.io", "leases", "", "create"),
        ("coordination.k8s.io", "leases", "", "update"),
        ("coordination.k8s.io", "leases", "", "patch"),
        ("coordination.k8s.io", "leases", "", "delete"),
    }
)


def name_of(user: str, groups: tuple[str, ...]) -> str:
    """Return the name of the node that a user is the agent of, empty for everybody else."""
    if GROUP not in groups or not user.startswith(USER_PREFIX):
        return ""
    return user.removeprefix(USER_PREFIX)


def allows(node: str, wants: Attributes) -> bool:
    """Return whether the agent of a node may do that. Lists and watches must select its own."""
    if wants.path:
        return False
    kind = (wants.group, wants.resource)
    if kind == ("stowage.dev", "nodes") and wants.subresource == "usage":
        return wants.name == node and wants.verb in ("get", "update")
    if wants.verb not in READ_VERBS:
        return (wants.group, wants.resource, wants.subresource, wants.verb) in _WRITES
    if wants.subresource:
        return False
    if kind in _READS:
        return True
    if kind == ("", "nodes"):
        if wants.verb == "get":
            return wants.name == node
        return _selects(wants, "Node", "metadata.name", node)
    if kind == ("coordination.k8s.io", "leases"):
        return wants.verb == "get" and (wants.namespace, wants.name) == (_LEASES, node)
    if kind == ("", "pods"):
        return wants.verb == "get" or _selects(wants, "Pod", "spec.nodeName", node)
    return False


def reads_for_pods(wants: Attributes) -> bool:
    """Return whether an object is wanted that an agent may read if a pod of its own refers to it.

    A list or a watch of one object is judged as that object; claims are got alone.
    """
    verbs = _GOT if wants.resource == "persistentvolumeclaims" else READ_VERBS
    return (
        wants.verb in verbs
        and not wants.group
        and wants.resource in pod_references.RESOURCES
        and not wants.subresource
        and bool(wants.namespace and wants.name)
    )


def _selects(wants: Attributes, kind: str, path: str, value: str) -> bool:
    """Whether a field selector lets through only what has this value there."""
    try:
        requirements = fields.parse_field_selector(kind, wants.fields)
    except BadRequest:
        return False
    return any((one.path, one.value, one.negated) == (path, value, False) for one in requirements)
