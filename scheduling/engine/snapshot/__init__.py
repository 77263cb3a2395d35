"""The cluster as columns, updated by small deltas, as the decision core reads it.

One row per node, one slot per pod. ``set_node``, ``remove_node``, ``add_pod``, ``remove_pod`` and
the setters for namespaces, services, controllers and budgets are the only ways in; they may be
called in any order (a pod may arrive before its node and is then remembered), and the result
depends only on the last state of each object: the snapshot is a cache.

``assume`` adds a pod that was decided but is not yet known to be bound; the pod's own ``add_pod``
confirms it, ``forget`` removes it again.

Adding a pod changes most of these arrays, and a further call per pod would be measurable, so all of
them belong to one object. Its class is a chain of subclasses: each extends the next in this list
and has the arrays that it names::

    __init__    Snapshot: everything
    looked_up   LookedUp: volumes, claims and the like, and what assumed pods take of them
    counters    PodCounters: weighted counts of pods by row, for affinity, spreading, ports
    many        ManyPods: thousands of pods at once, in columns
    pods        PodColumns: the pods on nodes, the sums of each row, assumed pods
    nominated   NominatedPods: pending pods that are nominated to nodes
    classes     ClassColumns: classes of pods, their peers, namespaces
    nodes       NodeColumns: rows, amounts, taints, labels, images, zones
    touched     TouchedRows: the log of rows that changed

Other modules::

    workloads       services, controllers and budgets, which are only looked up
    interning       names become small numbers
    requirements    a pod's manifest as the requirements of its class
    peers           which terms count which pods
    device_columns  how many devices of a kind nodes have, and have given away; attached volumes are
                    in ``framework.attached_volumes``
    nominations     which pending pods are nominated to which nodes
    reliance        placed pods, not bound yet, on which a decision depends
    copying         a copy of a snapshot, for what-if

A class that has an array by row or by resource extends ``_grow_rows`` or ``_grow_resources``; one
that remembers things by node name extends ``_node_came`` and ``_node_leaves``.

Version numbers tell caches what changed. The log has the rows whose pods or capacity changed.
``node_version`` counts changes of taints, of labels that a rule looked at (``label_column``) and of
the set of nodes; ``changed_since`` returns their rows. ``peer_version`` counts events that make all
counters obsolete. ``peer_stamp`` changes for a class when a new term of other pods, a service or a
controller selects it. ``nomination_version`` counts changes of nominations, ``budget_version``
changes of disruption budgets. Plugins read the snapshot through ``framework.node_table.NodeTable``.
"""

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from scheduling.engine.snapshot.looked_up import LookedUp
from scheduling.engine.snapshot.workloads import Workloads


class Snapshot(LookedUp, Workloads):
    """All nodes, the pods on them, and the objects that scheduling looks up.

    ``revision``: the revision of the change log that it includes.
    """

    def __init__(self, *, capacity: int = 64) -> None:
        LookedUp.__init__(self, capacity)
        Workloads.__init__(self)
        self.revision = 0
        self.compatibility: Compatibility = NEWEST
        """The version that says what its pods ask for while they are resized."""
