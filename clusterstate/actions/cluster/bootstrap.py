"""Creates what every cluster has: namespaces, classes, roles, a ServiceCIDR, and ``binder``."""

from datetime import datetime
from typing import Any

from clusterstate.actions import objects
from clusterstate.actions.cluster import default_roles
from clusterstate.actions.people import users
from clusterstate.change_log import lineage
from clusterstate.database import sql
from clusterstate.objects.values.actor import APISERVER, acts_as
from clusterstate.objects.values.addresses import NETWORK
from clusterstate.queries.objects import find_object

SERVICE_NETWORK = "kubernetes"
"""The ServiceCIDR with the network that Services get their addresses from."""
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITY_CLASSES: tuple[tuple[str, int, str], ...] = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, but can be moved to"
            " another node if necessary."
        ),
    ),
)


@acts_as(APISERVER)
def ensure(*, now: datetime) -> list[str]:
    """Create the missing initial objects; return their names. Safe to repeat and in parallel.

    Must not be called in a transaction: revisions are reserved in one of their own.
    """
    lineage.establish()
    return add_missing(now=now)


@acts_as(APISERVER)
def ensure_access(*, now: datetime) -> list[str]:
    """Create the missing default roles, their bindings and the groups of users.

    Returns the groups, and how many roles and bindings. Safe to call at any time, concurrently.
    """
    created = users.ensure_groups()
    if roles := default_roles.reconcile(now=now):
        created.append(f"{len(roles)} default roles and bindings")
    return created


@acts_as(APISERVER)
def ensure_network(*, now: datetime) -> list[str]:
    """Store the network of Service addresses (a ServiceCIDR), unless it is stored.

    Returns the names of created objects. Safe to call at any time, concurrently.
    """
    if find_object("ServiceCIDR", "", SERVICE_NETWORK) is not None:
        return []
    network = {"metadata": {"name": SERVICE_NETWORK}, "spec": {"cidrs": [str(NETWORK)]}}
    created = objects.create_missing("ServiceCIDR", [("", network)], now=now)
    return [f"ServiceCIDR {name}" for name in created]


def add_missing(*, now: datetime) -> list[str]:
    """Create the rows and objects that are missing; return the names of the objects."""
    sql.run(
        "INSERT INTO binder (id, holder, revision) VALUES (1, '', 0), (3, '', 0)"
        " ON CONFLICT DO NOTHING"
    )
    classes = [_priority_class(*one) for one in PRIORITY_CLASSES]
    return [
        *ensure_namespaces(now=now), *_add("PriorityClass", "priority_class", classes, now),
    ]  # fmt: skip


@acts_as(APISERVER)
def ensure_namespaces(*, now: datetime) -> list[str]:
    """Create what is missing of the namespaces that every cluster has; return their names.

    Queries once where none is missing.
    Rule: pkg/controlplane/controller/systemnamespaces/system_namespaces_controller.go, v1.36.
    """
    return _add("Namespace", "namespace", [_namespace(name) for name in NAMESPACES], now)


def _add(kind: str, table: str, manifests: list[dict[str, Any]], now: datetime) -> list[str]:
    present = {row[0] for row in sql.fetch(f"SELECT name FROM {table}")}
    missing = [("", one) for one in manifests if one["metadata"]["name"] not in present]
    return objects.create_missing(kind, missing, now=now)


def _namespace(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def _priority_class(name: str, value: int, description: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, "description": description}
