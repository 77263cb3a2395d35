"""Which pods of a plan have a replacement whose place can be held before any pod leaves.

A placeholder holds amounts and host ports; the scheduler judges the other rules when the
replacement comes. So a place counts as held only if the node takes the replacement whichever of the
plan's pods have left by then, and whichever replacements have come. The filters of the pod's
profile say so in the states in which they are strictest:

* with all pods that leave, and all replacements: no other state has more pods that exclude it, or
  less room;
* for each topology key of a spreading constraint: as many pods as possible in the node's domain,
  as few as possible elsewhere;
* for each topology key of a required affinity: as few as possible in the node's domain, as many as
  possible elsewhere, so that the rule for the first pod of a group does not apply.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from clusterstate.objects.values.labels import selector_from_label_selector
from scheduling.controllers import held_places
from scheduling.engine.reference.cycle import Options, PodToPlace, new_state
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.framework.interface import Locality
from scheduling.framework.terms import Kind, SpreadTerms
from scheduling.framework.types import NamespaceLabels, PodInfo, PodRecord, group_key
from scheduling.simulation import claims
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.foresight import NEVER, WHEN_GONE, Foresight, Leaver
from scheduling.simulation.moves import group_of, put_on

_NO_PLACE = "no room can be reserved for its replacement"
DEPENDS: Final = f"{_NO_PLACE}: the room is free only once other pods have left"
_LATE: Final = "it is created after the time that the plan covers"
_DEVICES: Final = "nothing holds its devices"
_TOPOLOGY: Final = "its PodGroup may come to another domain of its topology constraint"
_WAITS: Final = "a pod that waits may come to where its rules about other pods keep it away"
_UNKNOWN: Final = "filters decide about it of which nobody knows what else they read"
_RULES: Final = "its rules about other pods may refuse it while others of the plan leave and come"


class _Move(msgspec.Struct, frozen=True):
    """A pod that leaves and its replacement; either may be missing.

    ``row``: of the replacement's node, -1 without one; ``info``: its class. ``record``: the pod
    that leaves. ``gone_first``: it is gone before the replacement comes.
    """

    title: str
    record: PodRecord | None
    row: int
    info: PodInfo | None
    gone_first: bool


def needs_place(leaver: Leaver) -> bool:
    """Return whether a pod leaves by a step of the plan and is replaced."""
    return leaver.by_step and leaver.comes_again != NEVER


def moves_alone(info: PodInfo) -> bool:
    """Return whether other operations must not move pods at the same time.

    The states that show that a place takes the pod have the moves of one plan only.
    """
    return bool(_reach(info) or info.anti_affinity or info.claims)


class HeldPlaces:
    """The places of a plan's replacements, judged after its simulation.

    ``future`` must not have run yet: the nodes are seen after the plan's changes of them, and with
    all pods that leave. ``pods_per_hour``: the most that leave in an hour, 0 for no limit.
    """

    def __init__(
        self, future: Foresight, leavers: Sequence[Leaver], pods_per_hour: int = 0
    ) -> None:
        self._most = min(held_places.MOST, pods_per_hour or held_places.MOST)
        self._future = future
        self._leavers = leavers
        self._full_now: set[str] = set()
        future.at(0.0, self._look)

    def _look(self, cluster: VirtualCluster) -> None:
        self._snapshot: Snapshot = copy_snapshot(cluster.snapshot)
        numbers = {cluster.queue.pod(one.pod_id).class_id for one in cluster.queue.places()}
        self._waiting = [self._snapshot.classes[number] for number in sorted(numbers)]
        self._movers = [
            (one.title, self._snapshot.node_of(one.key))
            for one in self._leavers
            if needs_place(one)
        ]

    def without_place(self) -> dict[str, str]:
        """Return, by title, why no place can be held for the replacement of a pod that leaves.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, future = self._snapshot, self._future
        landings = {one.waiter.replaces: one for one in future.landed.values()}
        found: dict[str, str] = {}
        moves: list[_Move] = []
        asked: list[_Move] = []
        records = (snapshot.pod(one.leaver.key) for one in future.departures)
        self._leaving = Counter(group_key(one.info.pod) for one in records if one is not None)
        for departure in future.departures:
            leaver = departure.leaver
            landed = landings.get(leaver.title)
            node = "" if landed is None else landed.node_name
            row = snapshot.row_of(node) if node else None
            record = snapshot.pod(leaver.key)
            info = None if landed is None else snapshot.known_class(landed.waiter.info.digest)
            if record is not None:
                info = claims.another(snapshot, record.info, f"instead-{len(moves)}")
            move = _Move(
                leaver.title, record, -1 if row is None else row, info,
                gone_first=leaver.comes_again == WHEN_GONE or not leaver.grace,
            )  # fmt: skip
            moves.append(move)
            if departure.by or not needs_place(leaver):
                continue
            if departure.blocked_by or landed is None or not node:
                why = departure.blocked_by or (landed.message if landed else _LATE)
            elif leaver.target not in ("", node):
                why = f"node {leaver.target} does not take it"
            elif row is None or info is None:
                why = ""  # the plan adds the node
            elif not (why := self._unheld(move)) and not self._takes(move):
                self._full_now.add(node)
                why = f"node {node} takes it only once other pods have left"
            elif not why:
                asked.append(move)
            if why:
                found[leaver.title] = f"{_NO_PLACE}: {why}"
            elif move.row >= 0 and move.info is not None:
                snapshot.assume(_instead(move), move.info, move.row)
        if not found:
            waiting = [
                _Move(
                    one.waiter.title, None, row, snapshot.known_class(one.waiter.info.digest),
                    gone_first=True,
                )
                for one in future.landed.values()
                if not one.waiter.replaces and (row := snapshot.row_of(one.node_name)) is not None
            ]  # fmt: skip
            found = self._refused_between(asked, [*moves, *waiting])
        return found

    def movers(self) -> list[str]:
        """Return the pods that need a place, first those that leave a node which is full now."""
        ordered = sorted(self._movers, key=lambda one: one[1] not in self._full_now)
        return [title for title, _ in ordered]

    def _unheld(self, move: _Move) -> str:
        """Return what of a pod's rules the states of ``_refused_between`` cannot show to hold."""
        info, snapshot = move.info, self._snapshot
        assert info is not None
        framework = self._future.cluster.frameworks[info.scheduler_name]
        if info.may_claim:
            return _DEVICES
        if any(_excludes(info, other, snapshot.namespace_labels) for other in self._waiting):
            return _WAITS
        group = group_of(snapshot, info)
        if group is not None and group.topology_keys:
            return _TOPOLOGY
        if group is not None and self._leaving[group.key] > self._most:
            return f"its PodGroup leaves as a whole, and more than {self._most} pods may not"
        for plugin in framework.filter_plugins:
            if plugin.name in framework.third_party:
                unknown = getattr(plugin, "filter_locality", None) != Locality.NODE
            else:
                by_default = not info.pod.spec.topology_spread_constraints
                unknown = by_default and isinstance(plugin, SpreadTerms) and any(
                    term.kind is Kind.HARD for term in plugin.spread_terms(info, snapshot)
                )  # fmt: skip
            if unknown:
                return _UNKNOWN
        return _UNKNOWN if framework.extenders else ""

    def _takes(self, move: _Move) -> bool:
        """Return whether a replacement's node takes it in the present state of the snapshot."""
        info, snapshot = move.info, self._snapshot
        assert info is not None
        # On the node of the pod itself the placeholder needs room beside it.
        own = move.record
        if own is not None and move.gone_first and own.row != move.row and snapshot.knows(own.key):
            snapshot.remove_pod(own.key)
        else:
            own = None
        framework = self._future.cluster.frameworks[info.scheduler_name]
        state = new_state(PodToPlace(_instead(move), info), Options(), 0)
        begun = framework.pre_filter(state, info, snapshot)
        takes = begun.status.ok and move.row in begun.rows
        if takes:
            rows = np.array([move.row], np.intp)
            takes = bool(len(framework.filter(state, info, snapshot, rows).feasible))
        if own is not None:
            put_on(snapshot, own, snapshot.node_name(own.row))
        return takes

    def _refused_between(self, asked: Iterable[_Move], moves: Sequence[_Move]) -> dict[str, str]:
        """Return the replacements that a state between the first and the last move may refuse."""
        snapshot = self._snapshot
        by_domain: dict[tuple[bool, str, int], list[_Move]] = {}
        for move in asked:
            for inside, key in _reach(move.info) if move.info is not None else ():
                domain = int(snapshot.label_column(key).ids[move.row])
                by_domain.setdefault((inside, key, domain), []).append(move)
        if not by_domain:
            return {}
        for move in moves:
            _take_off(snapshot, move)
        going = {move.title: move for move in moves}
        found = {}
        for (inside, key, domain), judged in by_domain.items():
            ids = snapshot.label_column(key).ids
            there = set(np.flatnonzero((ids == domain) == inside).tolist())
            for move in going.values():
                _put_on(snapshot, move, there, both=not inside)
            for move in judged:
                if move.title not in going:
                    continue
                # In this domain a pod and its replacement never count at once.
                if inside:
                    _take_off(snapshot, move)
                if not self._takes(move):  # so the pod stays
                    found[move.title] = f"{_NO_PLACE}: {_RULES}"
                    del going[move.title]
                    _take_off(snapshot, move)
                    if move.record is not None:
                        put_on(snapshot, move.record, snapshot.node_name(move.record.row))
                elif inside:
                    _put_on(snapshot, move, there, both=False)
            for move in going.values():
                _take_off(snapshot, move)
        return found


def _reach(info: PodInfo) -> Collection[tuple[bool, str]]:
    """Return the topology keys of a class's rules about other pods.

    ``True`` with those of spreading constraints, where pods in the domain keep it away; ``False``
    with those of required affinity.
    """
    return {
        *((False, term.topology_key) for term in info.affinity),
        *(
            (True, one.topology_key)
            for one in info.pod.spec.topology_spread_constraints
            if one.when_unsatisfiable == "DoNotSchedule"
        ),
    }


def _excludes(info: PodInfo, other: PodInfo, labels: NamespaceLabels) -> bool:
    """Return whether a rule of one of the pods may keep it away from where the other one is."""
    return (
        any(term.means(other, labels) for term in info.anti_affinity)
        or any(term.means(info, labels) for term in other.anti_affinity)
        or any(
            one.when_unsatisfiable == "DoNotSchedule"
            and other.namespace == info.namespace
            and selector_from_label_selector(one.label_selector).matches(other.labels)
            for one in info.pod.spec.topology_spread_constraints
        )
    )


def _instead(move: _Move) -> tuple[str, str]:
    return "instead of", move.title


def _take_off(snapshot: Snapshot, move: _Move) -> None:
    """Remove a pod and its replacement."""
    snapshot.forget(_instead(move))
    if move.record is not None:
        snapshot.remove_pod(move.record.key)


def _put_on(snapshot: Snapshot, move: _Move, rows: Collection[int], *, both: bool) -> None:
    """Add the replacement if it is on one of these rows, and the pod itself.

    ``both``: add both, else the pod only if the replacement is on none of the rows.
    """
    comes = move.info is not None and move.row in rows
    if comes:
        assert move.info is not None
        snapshot.assume(_instead(move), move.info, move.row)
    if move.record is not None and move.record.row in rows and (both or not comes):
        put_on(snapshot, move.record, snapshot.node_name(move.record.row))
