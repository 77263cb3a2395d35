"""Which tokens of service accounts a node's agent may request: those that its pods mount.

Rule: plugin/pkg/admission/noderestriction/admission.go, ``admitServiceAccount`` and
``validateNodeServiceAccountAudience``, v1.36.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from clusterstate import catalogue
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.plugins import node_restriction
from clusterstate.admission.request import CREATE, Request, User
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object

_VERB: Final = "request-serviceaccounts-token-audience"


def require(user: User, namespace: str, name: str, spec: Manifest) -> None:
    """Check that a node's agent may request a token; other users pass. ``spec``: a TokenRequest's.

    Queries only for agents of nodes.

    Raises:
        Forbidden: the token is not bound to a pod of the node, or has audiences that the pod's
            tokens
            lack.
        NotFound: there is no such pod.
    """
    context = catalogue.current()
    if node_restriction.node_of(user) is None or not context.settings.node_restriction:
        return
    request = Request(
        kind="ServiceAccount",
        operation=CREATE,
        manifest={"spec": spec},
        old=None,
        subresource="token",
        namespace=namespace,
        name=name,
        user=user,
        context=context,
    )
    node_restriction.admit_token(request)
    audiences: Sequence[str] = spec.get("audiences") or ("",)
    if len(audiences) > 1:
        raise request.forbidden("node may only request 0 or 1 audiences")
    pod = context.pod(namespace, spec["boundObjectRef"]["name"])
    if pod is not None and audiences[0] in _audiences(pod):
        return
    wants = Attributes(_VERB, resource=audiences[0], namespace=namespace, name=name)
    if not authorizer.decide(user, wants).allowed:
        raise request.forbidden(
            f'audience "{audiences[0]}" not found in pod spec volume, {user.name} is not'
            " authorized to request tokens for this audience"
        )


def _audiences(pod: Manifest) -> Iterator[Any]:
    """Yield the audiences of the tokens that a pod mounts. Queries for CSI volumes."""
    meta = pod["metadata"]
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if token := source.get("serviceAccountToken"):
                yield token.get("audience") or ""
        driver = (volume.get("csi") or {}).get("driver")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if volume.get("ephemeral"):
            claim = f"{meta['name']}-{volume.get('name')}"
        if claim:
            driver = _driver_of_claim(meta["namespace"], claim)
        if driver:
            spec = _spec("CSIDriver", "", driver)
            yield from (one.get("audience") or "" for one in spec.get("tokenRequests") or ())


def _driver_of_claim(namespace: str, name: str) -> str:
    volume = _spec("PersistentVolumeClaim", namespace, name).get("volumeName")
    if not volume:
        return ""
    return (_spec("PersistentVolume", "", volume).get("csi") or {}).get("driver") or ""


def _spec(kind: str, namespace: str, name: str) -> Manifest:
    found = find_object(kind, namespace, name)
    return {} if found is None else decode_object(found).get("spec") or {}
