"""A group that found no placement, as a ``GangProblem``: the rules for any placement of it.

Each is a necessary condition, so that "impossible" is a proof. ``gang_problem`` returns ``None``
for groups with claims, host ports, hard spread or plugins of other packages, and where only some
nodes are searched.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo
from scheduling.packing.gangs import MOST_CELLS, Apart, GangAffinity, GangAnswer, GangProblem

_HARD: Final = "DoNotSchedule"


def is_worth_it(pods: Iterable[PodInfo]) -> bool:
    """Return whether a search may place more of the pods than placing them one by one.

    ``pods``: the class of each. True if the pods differ, or have rules about other pods.
    """
    infos = {id(info): info for info in pods}.values()
    return len(infos) > 1 or any(one.affinity or one.anti_affinity for one in infos)


def gang_problem(
    snapshot: Snapshot,
    framework: Framework,
    group: PodGroup,
    pods: Sequence[PodToPlace],
    placed: int,
) -> GangProblem | None:
    """Return the rules for a placement of a group, ``None`` if numbers cannot express them.

    ``placed``: how many pods of the group are placed already. Nodes are in the order of
    ``snapshot.rows()``, classes in the order of their first pods.
    """
    infos = list({id(pod.info): pod.info for pod in pods}.values())
    rows = snapshot.rows()
    if (
        framework.third_party
        or not framework.looks_at_all
        or len(infos) * len(rows) > MOST_CELLS
        or (placed and group.topology_keys)
        or any(map(_is_unstated, infos))
    ):
        return None
    names = sorted({at for info in infos for at, _ in info.amounts})
    free = snapshot.allocatable[rows][:, names] - snapshot.requested[rows][:, names]
    room = (snapshot.allowed_pods[rows] - snapshot.pod_count[rows])[:, None]
    free = np.hstack([free, room])
    asks = [[*(dict(info.amounts).get(at, 0) for at in names), 1] for info in infos]
    number = {id(info): place for place, info in enumerate(infos)}
    counts = np.bincount([number[id(pod.info)] for pod in pods], minlength=len(infos))
    place_of = {row: place for place, row in enumerate(rows.tolist())}

    def domains(key: str) -> list[int]:
        ids: list[int] = snapshot.label_column(key).ids[rows].tolist()
        return ids

    apart, beside = [], []
    for cls, info in enumerate(infos):
        for term in info.anti_affinity:
            apart += [
                Apart(cls, other, domains(term.topology_key))
                for other, two in enumerate(infos)
                if term.means(two, snapshot.labels_of_namespace)
            ]
        for term in info.affinity:
            others = [
                other for other, two in enumerate(infos)
                if term.means(two, snapshot.labels_of_namespace)
            ]  # fmt: skip
            known = [
                one for one, two in enumerate(snapshot.classes)
                if term.means(two, snapshot.labels_of_namespace)
            ]  # fmt: skip
            at = domains(term.topology_key)
            served = {at[place_of[one.row]] for one in snapshot.pods_of(known)} - {-1}
            beside.append(
                GangAffinity(
                    cls, others, at, sorted(served), first_may=cls in others and not served
                )
            )
    return GangProblem(
        counts=counts.tolist(),
        needed=max(group.min_count - placed, 1),
        asks=asks,
        free=free.tolist(),
        allowed=[_allowed(snapshot, framework, info, place_of) for info in infos],
        one_of=domains(group.topology_keys[0]) if group.topology_keys else [],
        apart=apart,
        beside=beside,
    )


def assignment(
    names: Sequence[str], pods: Sequence[PodToPlace], answer: GangAnswer
) -> dict[object, str]:
    """Return each placed pod's node by its key; ``names``: of the problem's nodes, in order."""
    by_class: dict[int, list[PodToPlace]] = {}
    for pod in pods:
        by_class.setdefault(id(pod.info), []).append(pod)
    found: dict[object, str] = {}
    for alike, places in zip(by_class.values(), answer.placed, strict=True):
        nodes = [names[node] for node, count in places for _ in range(count)]
        found.update((pod.key, node) for pod, node in zip(alike, nodes, strict=False))
    return found


def _is_unstated(info: PodInfo) -> bool:
    spread = info.pod.spec.topology_spread_constraints
    return bool(
        info.claims or info.may_claim or info.host_ports
        or any(one.when_unsatisfiable == _HARD for one in spread)
    )  # fmt: skip


def _allowed(
    snapshot: Snapshot, framework: Framework, info: PodInfo, place_of: dict[int, int]
) -> list[int]:
    """Return the nodes that take a pod of a class if its required pod affinity is ignored."""
    if info.affinity and info.pod.spec.affinity is not None:
        affinity = msgspec.structs.replace(info.pod.spec.affinity, pod_affinity=None)
        spec = msgspec.structs.replace(info.pod.spec, affinity=affinity)
        pod = msgspec.structs.replace(info.pod, spec=spec)
        info = snapshot.intern(from_pod(pod, compatibility=snapshot.compatibility))
    state = CycleState(pod_key=None)
    begun = framework.pre_filter(state, info, snapshot)
    if not begun.status.ok:
        return []
    filtered = framework.filter_inside(state, info, snapshot, begun.rows)
    return [place_of[row] for row in filtered.feasible.tolist()]
