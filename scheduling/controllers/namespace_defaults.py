"""Creates what every cluster and every namespace has, and creates it again when it was deleted.

A cluster has the namespaces of ``bootstrap.NAMESPACES``; ``kube-node-lease``, in which agents of
nodes renew their leases, can be deleted. Each namespace has the ServiceAccount ``default`` and the
ConfigMap ``kube-root-ca.crt`` with the certificate authority of this service; ``default`` has the
Service ``kubernetes``, by which programs find the API, and its Endpoints and EndpointSlice with the
address of the https server. Clients wait for these before they do anything. Rules:
pkg/controlplane/controller/systemnamespaces/system_namespaces_controller.go,
pkg/controller/serviceaccount/serviceaccounts_controller.go,
pkg/controller/certificates/rootcacertpublisher/publisher.go,
pkg/controlplane/controller/kubernetesservice/controller.go and
pkg/controlplane/reconcilers/endpointsadapter.go, v1.36.

A follower of the log creates them, so that creating a namespace, or a pod, does not wait for them.
Where this service has no certificate authority of its own, because a proxy terminates TLS, there is
no ConfigMap; without ``STOWAGE_ADVERTISE_ADDRESS`` no Endpoints are created, and existing ones are
not changed.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes
from clusterstate.objects.values.addresses import FIRST
from clusterstate.objects.values.errors import AlreadyExists, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import PendingWork
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.namespaces import Belongings, belongings, namespaces_with_changes

logger = structlog.get_logger(__name__)

NAME: Final = "namespace-defaults"
ACCOUNT: Final = "default"
AUTHORITY: Final = "kube-root-ca.crt"
SERVICE: Final = "kubernetes"
_NOTE: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal"
    " endpoints such as the internal service IP or kubernetes.default.svc. No other usage is"
    " guaranteed across distributions of Kubernetes clusters."
)
_ENDPOINTS: Final = "Endpoints"
_SLICE: Final = "EndpointSlice"
_published: list[tuple[str, str]] = []
"""The certificate authority and the address with which this process last looked everywhere."""
memory.when_replaced(_published.clear)


def has_work(pending: PendingWork) -> bool:
    """Return whether the log has changes, or this process has not run a pass yet."""
    return not _published or pending.is_behind(NAME)


def follow(now: datetime) -> int:
    """Create what namespaces lack; return how many objects were created or changed."""
    cursor, mark = controller_state.cursor(NAME), changes.watermark()
    authority = _authority()
    published = (authority, settings.ADVERTISE_ADDRESS)
    everywhere = cursor is None or _published != [published]
    if not everywhere and cursor is not None and mark <= cursor:
        return 0
    names = None
    if not everywhere and cursor is not None:
        names = namespaces_with_changes(cursor, mark, (ACCOUNT, AUTHORITY, SERVICE))
    writes = 0
    if names is None or not {*bootstrap.NAMESPACES}.isdisjoint(names):
        again = bootstrap.ensure_namespaces(now=now)
        writes += len(again)
        if names is not None:
            names = [*{*names, *again}]
    if names != []:
        found = _belongings(names, authority)

        def complete(several: Sequence[Belongings]) -> int:
            return sum(_complete(one, authority, now) for one in several)

        parts = aside.each(
            NAME,
            found,
            complete,
            which=lambda one: ObjectRef("Namespace", name=one.namespace),
            now=now,
        )
        writes += sum(parts)
        if writes:
            logger.info("namespaces_completed", objects=writes)
    controller_state.set_cursor(NAME, mark)
    _published[:] = [published]
    return writes


def _authority() -> str:
    """Return the certificate authority of this service, empty where it has none."""
    try:
        return (settings.STATE_DIR / "ca.crt").read_text()
    except OSError:
        return ""


def _belongings(names: Sequence[str] | None, authority: str) -> list[Belongings]:
    return belongings(names, account=ACCOUNT, authority=(AUTHORITY, authority), service=SERVICE)


def _complete(one: Belongings, authority: str, now: datetime) -> int:
    """Create the default objects that a namespace lacks; return how many were written."""
    writes = 0
    if not one.has_account:
        account: Manifest = {"metadata": {"name": ACCOUNT}}
        writes += _create("ServiceAccount", one.namespace, account, now)
    if authority and not one.has_authority:
        config_map: Manifest = {
            "metadata": {
                "name": AUTHORITY,
                "annotations": {"kubernetes.io/description": _NOTE},
            },
            "data": {"ca.crt": authority},
        }
        writes += _create("ConfigMap", one.namespace, config_map, now)
    elif authority and not one.is_current:
        writes += _publish(one.namespace, authority, now)
    if one.namespace == "default" and not one.has_service:
        writes += _create("Service", one.namespace, _service(), now)
    if one.namespace == "default" and settings.ADVERTISE_ADDRESS:
        writes += _keep(_ENDPOINTS, _endpoints(settings.ADVERTISE_ADDRESS), now)
        writes += _keep(_SLICE, _slice(settings.ADVERTISE_ADDRESS), now)
    return writes


def _publish(namespace: str, authority: str, now: datetime) -> int:
    """Restore the certificate authority in a namespace's ConfigMap if it differs."""
    data = {"ca.crt": authority}

    def change(old: Manifest) -> Manifest:
        return old if old.get("data") == data else {**old, "data": data}

    try:
        return int(objects.update("ConfigMap", namespace, AUTHORITY, change, now=now).changed)
    except NotFound:
        return 0


def _service() -> Manifest:
    port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": settings.HTTPS_PORT}
    return {
        "metadata": {
            "name": SERVICE,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {"type": "ClusterIP", "clusterIP": FIRST, "ports": [port]},
    }


def _endpoints(address: str) -> Manifest:
    """Return the Endpoints of the API; they are not mirrored, since their slice is written here."""
    return {
        "metadata": {
            "name": SERVICE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address}], "ports": [_port()]}],
    }


def _slice(address: str) -> Manifest:
    """Return the EndpointSlice of the API."""
    return {
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": f"IPv{ipaddress.ip_address(address).version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [_port()],
    }


def _port() -> Manifest:
    return {"name": "https", "port": settings.HTTPS_PORT, "protocol": "TCP"}


def _keep(kind: str, desired: Manifest, now: datetime) -> int:
    """Create or correct an object of namespace ``default``; return how many writes it took.

    Labels and annotations of others stay. Queries once if nothing is to be done.
    """
    item = find_object(kind, "default", SERVICE)
    if item is None:
        return _create(kind, "default", desired, now)

    def change(old: Manifest) -> Manifest:
        metadata = old["metadata"]
        labels = {**metadata.get("labels", {}), **desired["metadata"]["labels"]}
        return {**old, **desired, "metadata": {**metadata, "labels": labels}}

    present = decode_object(item)
    if change(present) == present:
        return 0
    try:
        if present.get("addressType") != desired.get("addressType"):  # it is immutable
            objects.delete(kind, "default", SERVICE, now=now)
            return _create(kind, "default", desired, now)
        return int(objects.update(kind, "default", SERVICE, change, now=now).changed)
    except NotFound:
        return 0


def _create(kind: str, namespace: str, manifest: Manifest, now: datetime) -> int:
    try:
        objects.create(kind, namespace, manifest, now=now)
    except AlreadyExists:
        return 0
    except StatusError:
        if not _belongings([namespace], ""):
            return 0  # the namespace is being deleted, with all its objects
        raise
    return 1
