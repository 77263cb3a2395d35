"""The first version of what authors of plugins may import; nothing else is promised to stay.

Everything here keeps its name, its fields and its meaning while the module exists. Incompatible
changes go into a new module ``v2``. A test checks the list of names; the examples of
``docs/plugins.md`` and the shipped example plugins import nothing else.
"""

from typing import Final

from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.quantity import milli_value as milli_amount
from clusterstate.objects.values.quantity import value as whole_amount
from scheduling.framework.arrays import Int64, Mask
from scheduling.framework.events import Action, ClusterEvent, Registration, Resource
from scheduling.framework.handles import StoredPods, WaitingPod, WaitingPods
from scheduling.framework.interface import (
    CycleState,
    FilterResult,
    Handle,
    Locality,
    PreFilterResult,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.pod_groups import Placement
from scheduling.framework.status import (
    SUCCESS,
    Code,
    Status,
    unresolvable,
    unschedulable,
)
from scheduling.framework.tables import LabelColumn
from scheduling.framework.types import Diagnosis, Nomination, PodInfo, PodRecord
from scheduling.framework.vectors import default_normalize

VERSION: Final = 1

__all__ = [
    "SUCCESS",
    "VERSION",
    "Action",
    "ClusterEvent",
    "Code",
    "CycleState",
    "Diagnosis",
    "FilterResult",
    "Handle",
    "Int64",
    "LabelColumn",
    "Locality",
    "Mask",
    "NodeTable",
    "Nomination",
    "Placement",
    "PodGroup",
    "PodInfo",
    "PodRecord",
    "PreFilterResult",
    "Registration",
    "Resource",
    "Rows",
    "Status",
    "StoredPods",
    "WaitingPod",
    "WaitingPods",
    "default_normalize",
    "milli_amount",
    "unresolvable",
    "unschedulable",
    "whole_amount",
]
