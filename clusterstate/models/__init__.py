"""Tables and constraints. Rows do not leave `clusterstate`; plain values do.

Every stored object is a narrow row and an immutable document. The row has the columns by which
queries filter and sort, and only the action that writes the document writes it. The document has
the manifest as canonical JSON text; reads pass it on unparsed. ``save``, ``delete`` and their like
on such rows go through the actions (``rows``).

Anybody may write two kinds of rows and columns: taints, and the requests of RuntimeClasses. The
database itself composes these into documents, by triggers that run when a transaction commits. No
other code sees a write that does not come through an action, so without the triggers reads would
miss a taint that was written by SQL. Composing documents on each read would cost a join in every
LIST and, for the history, a copy of the taints in every entry of the log.

Columns named ``document`` and ``scheduling_class`` are references without a foreign key: a checked
reference would lock the referred row for every pod inserted, and every pod of a class refers to the
same one. The statements in ``actions`` write both ends in one transaction.

::

    base          columns that all stored objects have
    documents     immutable versions of manifests
    generic       objects of all kinds that have no table of their own
    nodes         nodes and their taints
    pods          pods, scheduling classes, and the queue
    workloads     kinds that own or select pods, and leases
    policies      kinds that say how pods are treated: namespaces, classes, budgets
    events        Events, composed when they are read
    changes       the change log
    past          changes and versions that were trimmed from the log, packed
    decisions     the scheduler's decisions and its configurations
    seals         the chain of digests over decisions
    canaries      another scheduler configuration beside the one in force
    reservations  pods that have a node and are not bound to it yet
    evictions     eviction timers, controllers' cursors, heartbeats of agents
    brakes        zones, namespaces and owners whose evictions are held back, and approvals
    plans         plans: the document, its prediction, and its progress
    progress      progress of the loops without which the service does not work
    aside         objects that a follower of the change log could not process
    metrics       totals that all processes add to, and gauges of each
    audit         the audit log
    people        second factors of people
    tokens        bearer tokens, and the keys that sign those of service accounts
    webhooks      receivers of events over HTTP
"""

from clusterstate.models.aside import SetAside
from clusterstate.models.audit import AuditHead, AuditLine
from clusterstate.models.brakes import AskedEviction, Brake, BrakeApproval, ZonePace
from clusterstate.models.canaries import Canary
from clusterstate.models.changes import (
    Actor,
    AtomicSpan,
    BindBatch,
    Binder,
    Change,
    History,
    MovedSlot,
    NodeBinder,
)
from clusterstate.models.decisions import (
    ConfigurationUse,
    Decision,
    DecisionCheck,
    DecisionTable,
    Scheduler,
    SchedulerConfiguration,
)
from clusterstate.models.documents import Document, SupersededDocument
from clusterstate.models.events import Event
from clusterstate.models.evictions import (
    ControllerCursor,
    Eviction,
    EvictionTimer,
    NodeHeartbeat,
    NodeUsage,
)
from clusterstate.models.generic import GenericObject
from clusterstate.models.metrics import MetricTotal, ProcessMetric
from clusterstate.models.nodes import Node, Taint
from clusterstate.models.past import PastBlock, PastChunk, PastHead
from clusterstate.models.people import OneTimeCodes
from clusterstate.models.plans import Plan, PlanUndo
from clusterstate.models.pods import (
    DeferredResize,
    PendingPod,
    Pod,
    SchedulingClass,
    TerminatingPod,
)
from clusterstate.models.policies import (
    LimitRange,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    UsageChange,
)
from clusterstate.models.progress import LoopPatience, LoopProgress
from clusterstate.models.reservations import Reservation
from clusterstate.models.seals import DecisionSeal, SealHead
from clusterstate.models.tokens import ApiToken, SigningKey
from clusterstate.models.webhooks import Webhook, WebhookDelivery
from clusterstate.models.workloads import (
    DaemonSet,
    Deployment,
    Lease,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

__all__ = [
    "Actor",
    "ApiToken",
    "AskedEviction",
    "AtomicSpan",
    "AuditHead",
    "AuditLine",
    "BindBatch",
    "Binder",
    "Brake",
    "BrakeApproval",
    "Canary",
    "Change",
    "ConfigurationUse",
    "ControllerCursor",
    "DaemonSet",
    "Decision",
    "DecisionCheck",
    "DecisionSeal",
    "DecisionTable",
    "DeferredResize",
    "Deployment",
    "Document",
    "Event",
    "Eviction",
    "EvictionTimer",
    "GenericObject",
    "History",
    "Lease",
    "LimitRange",
    "LoopPatience",
    "LoopProgress",
    "MetricTotal",
    "MovedSlot",
    "Namespace",
    "Node",
    "NodeBinder",
    "NodeHeartbeat",
    "NodeUsage",
    "OneTimeCodes",
    "PastBlock",
    "PastChunk",
    "PastHead",
    "PendingPod",
    "Plan",
    "PlanUndo",
    "Pod",
    "PodDisruptionBudget",
    "PriorityClass",
    "ProcessMetric",
    "ReplicaSet",
    "ReplicationController",
    "Reservation",
    "ResourceQuota",
    "RuntimeClass",
    "Scheduler",
    "SchedulerConfiguration",
    "SchedulingClass",
    "SealHead",
    "Service",
    "SetAside",
    "SigningKey",
    "StatefulSet",
    "SupersededDocument",
    "Taint",
    "TerminatingPod",
    "UsageChange",
    "Webhook",
    "WebhookDelivery",
    "ZonePace",
]
