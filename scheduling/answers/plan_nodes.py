"""Applies a plan's changes to the manifests of its nodes, and checks the results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np
from django.conf import settings

from clusterstate.admission.validation.core.nodes import validate_node_update
from clusterstate.objects.rules.matching import NO_EXECUTE
from clusterstate.objects.rules.node_taints import EVICTING, settle_taints
from clusterstate.objects.values.errors import INVALID, NOT_FOUND, FieldError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, Taint
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.scheduler.planning import nodes_by_name
from scheduling.engine.snapshot import Snapshot
from scheduling.simulation import plan_document
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.plan_document import PlanChange


class Nodes:
    """The nodes that the plan names, before and after its changes."""

    def __init__(self, changes: Sequence[PlanChange], now: datetime) -> None:
        self._now = now
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self.chosen: dict[str, tuple[str, ...]] = {}
        """The names of a change's nodes, by the path of the change."""
        for change in changes:
            if change.what in plan_document.OF_NODES:
                self.chosen[change.path] = self._names(change)
        names = list(dict.fromkeys(name for found in self.chosen.values() for name in found))
        self.before = nodes_by_name(names)
        self.after: dict[str, Manifest | None] = dict(self.before)
        for change in changes:
            if change.path in self.chosen:
                self._edit(change, changes)

    def _names(self, change: PlanChange) -> tuple[str, ...]:
        found = list(change.nodes)
        if change.selector is not None:
            page = list_page("Node", label_selector=change.selector)
            chosen = [decode_object(item)["metadata"]["name"] for item in page.items]
            if not chosen:
                self.warnings.append(f"{change.path}.selector: matches no node")
            found += chosen
        return tuple(dict.fromkeys(found))

    def _edit(self, change: PlanChange, changes: Sequence[PlanChange]) -> None:
        for name in self.chosen[change.path]:
            node = self.after.get(name)
            if node is None:
                error = FieldError(NOT_FOUND, f"{change.path}.nodes", name)
                self.errors.append(error)
                continue
            if change.what == plan_document.DELETE:
                self.after[name] = None
                continue
            if change.what == plan_document.DRAIN and self._deleted(name, changes):
                detail = "a plan cannot drain and delete a node: drain it in an earlier plan"
                self.errors.append(FieldError(INVALID, f"{change.path}.nodes", name, detail))
            edited = plan_document.edited(change, node)
            wrong = validate_node_update(edited, node)
            if wrong:  # errors of one node are enough
                self.errors += [
                    FieldError(one.type, change.path, one.bad_value, f"{one.field}: {one.detail}")
                    for one in wrong
                ]
                return
            self.after[name] = settle_taints(
                edited, node, self._now, is_cloud=settings.EXTERNAL_CLOUD_PROVIDER
            )

    def _deleted(self, name: str, changes: Sequence[PlanChange]) -> bool:
        return any(
            one.what == plan_document.DELETE and name in self.chosen[one.path] for one in changes
        )

    def changed(self) -> Iterable[tuple[str, Manifest, Manifest | None]]:
        """Yield name, old and new manifest of each changed or deleted node (``None``)."""
        for name, old in self.before.items():
            new = self.after[name]
            if new != old:
                yield name, old, new


def room(snapshot: Snapshot) -> Manifest:
    """Return how many nodes are neither cordoned nor lost, and their free resources in total."""
    rows = snapshot.rows()
    lost = np.array([any(one.key in EVICTING for one in taints) for taints in snapshot.taint_sets])
    open_ = rows[~(snapshot.unschedulable[rows] | lost[snapshot.taint_set[rows]])]
    free = np.maximum(snapshot.allocatable[open_] - snapshot.requested[open_], 0)
    pods = np.maximum(snapshot.allowed_pods[open_] - snapshot.pod_count[open_], 0)
    found: Manifest = {"nodes": len(rows), "open": len(open_), "pods": int(pods.sum())}
    for column, resource in enumerate(snapshot.resources.values):
        if column < free.shape[1] and snapshot.is_counted(resource):
            total = int(free[:, column].sum())
            found[resource] = f"{total}m" if resource == "cpu" else str(total)
    return found


def evicting(node: Manifest) -> list[Taint]:
    """Return the NoExecute taints of a node."""
    taints = (node.get("spec") or {}).get("taints") or []
    return [msgspec.convert(one, Taint) for one in taints if one.get("effect") == NO_EXECUTE]


def labels_of(node: Manifest) -> Mapping[str, str]:
    """Return the labels of a node."""
    return node["metadata"].get("labels") or {}


def node_change(name: str, new: Manifest | None) -> Callable[[VirtualCluster], object]:
    """Return a function that changes a node of a cluster to ``new``, or removes it."""
    if new is None:
        return lambda cluster: cluster.remove_node(name)
    node = msgspec.convert(new, Node)
    return lambda cluster: cluster.set_node(node)
