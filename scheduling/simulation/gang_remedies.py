"""Finds what would let a waiting group fit, and tries each remedy on a copy of the cluster.

One node alone rarely helps a gang, so a remedy is about a set of nodes of one topology domain:
closed nodes are opened, or nodes like those of the domain are added, no more than the group needs.
Or ``minCount`` is lowered.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME, Node
from clusterstate.objects.values.pod_group import (
    GangSchedulingPolicy,
    GroupKey,
    PodGroup,
    PodGroupSchedulingPolicy,
)
from scheduling.engine.deciding import Decider
from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.simulation import plan_document
from scheduling.simulation.edits import NodeEdit
from scheduling.simulation.gangs import Shortfall, domains_of, room_on_empty
from scheduling.simulation.needs import groups
from scheduling.simulation.remedies import MOST_GROUPS, MOST_TRIED, Remedy, changed, in_json
from scheduling.simulation.verdicts import judge

_OPTIONS: Final = Options(preempt=False, tie_break="first")
_OPENING: Final = ("Uncordon", "Untaint")
_MOST_DOMAINS: Final = 4
_MOST_NAMED: Final = 10


def gang_remedies(
    snapshot: Snapshot,
    framework: Framework,
    key: GroupKey,
    pods: Sequence[PodToPlace],
    lacks: Shortfall,
    go_on: Callable[[], None] = lambda: None,
) -> list[Remedy]:
    """Return the remedies that let a group fit, the best first.

    Args:
        snapshot: a private copy; it is changed and restored.
        framework: the profile of the pods.
        key: the group.
        pods: its waiting pods.
        lacks: what the group lacks.
        go_on: raises if the search takes too long.
    """
    group = snapshot.groups.find(key)
    if group is None or not pods:
        return []
    trial = _Trial(snapshot, framework, group, pods, go_on)
    found = [*trial.smaller(lacks)]
    if not lacks.missing:
        found += [*trial.opened(), *trial.added(lacks)]
    return sorted(found, key=Remedy.order)


class _Trial:
    """Changes a snapshot, checks whether the group is placed, and restores the snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        framework: Framework,
        group: PodGroup,
        pods: Sequence[PodToPlace],
        go_on: Callable[[], None],
    ) -> None:
        self._snapshot, self._framework = snapshot, framework
        self._group, self._pods, self._go_on = group, pods, go_on
        self._decider = Decider(snapshot, framework)

    def smaller(self, lacks: Shortfall) -> Iterator[Remedy]:
        """Yield the largest ``minCount`` with which the gang is placed."""
        group = self._group
        here = len(self._pods) if lacks.missing else max(lacks.domains.values(), default=0)
        count = lacks.placed + here
        if not group.is_gang or not here or count >= group.min_count:
            return
        gang: Manifest = {"minCount": count}
        changes: Manifest = {"spec": {"schedulingPolicy": {"gang": gang}}}
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
        spec = msgspec.structs.replace(group.spec, scheduling_policy=policy)
        self._snapshot.groups.set(msgspec.structs.replace(group, spec=spec))
        try:
            placed = self._placed()
        finally:
            self._snapshot.groups.set(group)
        if placed:
            text = f"lower minCount from {group.min_count} to {count}"
            edits = ({"action": "LowerMinCount", **gang},)
            yield self._remedy("PodGroup", text, edits, (), placed, patch=changes)

    def opened(self) -> Iterator[Remedy]:
        """Yield a remedy that opens closed nodes of one domain, as few as the group needs."""
        snapshot = self._snapshot
        verdicts = judge(snapshot, self._framework, self._pods[0])
        for alike in groups(snapshot, self._framework, self._pods[0].info, verdicts)[:MOST_GROUPS]:
            if not all(need.node for need in alike.needs):
                continue
            steps = [step for need in alike.needs for step in need.node[0]]
            if any(step.action not in _OPENING for step in steps):
                continue
            for rows in domains_of(snapshot, self._group, alike.rows)[:_MOST_DOMAINS]:
                found = self._fewest(rows[:MOST_TRIED], steps)
                if found is not None:
                    yield found
                    break

    def _fewest(self, rows: Rows, steps: Sequence[NodeEdit]) -> Remedy | None:
        before = [self._snapshot.node(row) for row in rows.tolist()]
        after = [changed(node, steps) for node in before]

        def placed_with(count: int) -> int:
            self._set(after[:count])
            try:
                return self._placed()
            finally:
                self._set(before[:count])

        low, high = 1, len(rows)
        placed = placed_with(high)
        if not placed:
            return None
        while low < high:
            middle = (low + high) // 2
            if now := placed_with(middle):
                high, placed = middle, now
            else:
                low = middle + 1
        names = [node.metadata.name for node in before[:high]]
        changes: list[Manifest] = []
        for step in steps:
            body: Manifest = {"nodes": names}
            if step.action == "Untaint":
                body["taints"] = [step.about["taint"]]
            changes.append({step.action.lower(): body})
        text = f"{' and '.join(step.text for step in steps)} {self._nodes(high, names[0])}"
        edits = tuple(map(in_json, steps))
        return self._remedy("Plan", text, edits, names, placed, plan=plan_document.of(changes))

    def added(self, lacks: Shortfall) -> Iterator[Remedy]:
        """Yield a remedy that adds nodes to a domain, copies of its best one, as few as needed."""
        snapshot, keys = self._snapshot, self._group.topology_keys
        rows = snapshot.rows()
        best = next(iter(lacks.domains), "")
        if keys:
            column = snapshot.label_column(keys[0])
            rows = rows[[column.ids[row] >= 0 and column.values[column.ids[row]] == best
                         for row in rows.tolist()]]  # fmt: skip
        room = room_on_empty(snapshot, rows, self._pods, most=len(self._pods))
        if not lacks.nodes or not room.max(initial=0):
            return
        like = snapshot.node(int(rows[int(room.argmax())]))
        for count in (lacks.nodes, lacks.nodes + 1, 2 * lacks.nodes):
            if count > MOST_TRIED:
                return
            made = [_like(like, name) for name in itertools.islice(self._free_names(like), count)]
            self._set([msgspec.convert(one, Node) for one in made])
            try:
                placed = self._placed()
            finally:
                for one in made:
                    snapshot.remove_node(one["metadata"]["name"])
            if placed:
                names = [one["metadata"]["name"] for one in made]
                text = f"add {self._nodes(count, '')} like {like.metadata.name}"
                plan = plan_document.of([{plan_document.ADD: {"objects": made}}])
                edits = tuple({"action": "AddNode", "manifest": one} for one in made[:1])
                yield self._remedy("Plan", text, edits, names, placed, plan=plan)
                return

    def _free_names(self, like: Node) -> Iterator[str]:
        names = (f"{like.metadata.name}-new-{number}" for number in itertools.count(1))
        return (name for name in names if self._snapshot.row_of(name) is None)

    def _nodes(self, count: int, name: str) -> str:
        if count == 1:
            return f"the node {name}" if name else "a node"
        keys = self._group.topology_keys
        return f"{count} nodes" + (f" of one {keys[0]}" if keys else "")

    def _set(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._snapshot.set_node(node)

    def _placed(self) -> int:
        """Return how many pods the group can place now, 0 if refused; restore the snapshot."""
        self._go_on()
        snapshot, key = self._snapshot, self._group.key
        found = schedule_group(
            snapshot, self._framework, key, self._pods, _OPTIONS, decider=self._decider
        )
        placed = [one.key for one in found.decisions if one.scheduled] if found.placed else []
        for pod in placed:
            snapshot.forget(pod)
        return len(placed)

    def _remedy(
        self,
        target: str,
        text: str,
        edits: tuple[Manifest, ...],
        names: Sequence[str],
        placed: int,
        *,
        patch: Manifest | None = None,
        plan: Manifest | None = None,
    ) -> Remedy:
        return Remedy(
            target, text, edits, opens=len(names), tried=len(names), nodes=len(names),
            names=tuple(names[:_MOST_NAMED]), frees=placed, of=len(self._pods),
            patch=patch or {}, plan=plan,
        )  # fmt: skip


def _like(node: Node, name: str) -> Manifest:
    """Return a new node with the labels and amounts of another one."""
    labels = {**node.metadata.labels, HOSTNAME: name}
    amounts = dict(node.status.allocatable)
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {}, "status": {"allocatable": amounts, "capacity": amounts},
    }  # fmt: skip
