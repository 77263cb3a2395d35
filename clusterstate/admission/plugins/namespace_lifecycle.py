"""NamespaceLifecycle: objects are created only in namespaces that exist and are not terminating.

Rule: plugin/namespace/lifecycle/admission.go of the API server, v1.36.
"""

from clusterstate.admission.request import CREATE, DELETE, Request
from clusterstate.objects.values.errors import Forbidden, NotFound

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


def admit(request: Request) -> None:
    """Refuse content for a missing or terminating namespace, and deletion of an immortal one.

    Raises:
        NotFound: ``namespaces "x" not found`` (404).
        Forbidden: the namespace is being terminated, or may not be deleted.
    """
    if request.kind == "Namespace":
        if request.operation == DELETE and request.name in IMMORTAL:
            raise request.forbidden("this namespace may not be deleted")
        return
    if request.operation != CREATE or not request.namespace or request.subresource:
        return
    namespace = request.context.namespace(request.namespace)
    if namespace is None:
        raise NotFound(
            f'namespaces "{request.namespace}" not found',
            {"name": request.namespace, "kind": "namespaces"},
        )
    status = namespace.get("status") or {}
    meta = namespace.get("metadata") or {}
    if status.get("phase") == "Terminating" or meta.get("deletionTimestamp"):
        error: Forbidden = request.forbidden(
            f"unable to create new content in namespace {request.namespace} "
            "because it is being terminated"
        )
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {request.namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error
