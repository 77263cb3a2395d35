"""Kinds that own or select pods, and leases."""

from django.db import models

from clusterstate.models.base import NamespacedObject


class Service(NamespacedObject):
    """A Service."""

    class Meta(NamespacedObject.Meta):
        db_table = "service"


class ReplicationController(NamespacedObject):
    """A ReplicationController."""

    class Meta(NamespacedObject.Meta):
        db_table = "replication_controller"


class ReplicaSet(NamespacedObject):
    """A ReplicaSet."""

    class Meta(NamespacedObject.Meta):
        db_table = "replica_set"


class StatefulSet(NamespacedObject):
    """A StatefulSet."""

    class Meta(NamespacedObject.Meta):
        db_table = "stateful_set"


class DaemonSet(NamespacedObject):
    """A DaemonSet."""

    class Meta(NamespacedObject.Meta):
        db_table = "daemon_set"


class Deployment(NamespacedObject):
    """A Deployment."""

    class Meta(NamespacedObject.Meta):
        db_table = "deployment"


class Lease(NamespacedObject):
    """A Lease; a node's agent renews its own in kube-node-lease.

    A renewal alone (same holder, later ``renewed_at``) takes a revision but writes no change:
    heartbeats stay out of the change log.
    """

    holder = models.TextField(default="")
    renewed_at = models.DateTimeField(null=True)

    class Meta(NamespacedObject.Meta):
        db_table = "lease"
