"""Finds the changes with which each node could take a pod, and groups nodes by them.

Each rejected node gets *needs*: for each filter that rejects it, the edits that might change that.
Nodes with equal needs form a group, so thousands of nodes make a few groups. The needs are derived
from the columns that the filters read; they are guesses, which ``remedies`` tries on a copy of the
cluster.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from clusterstate.objects.rules.matching import HARD_EFFECTS, find_untolerated
from clusterstate.objects.values.labels import Requirement
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64, Mask, first_places, numbered_together
from scheduling.framework.formulas import short
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Status
from scheduling.framework.terms import RequestFilter
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import requirement_mask
from scheduling.plugins import (
    inter_pod_affinity,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from scheduling.simulation import edits
from scheduling.simulation.edits import NodeEdit, PodEdit
from scheduling.simulation.verdicts import Verdicts

UNKNOWN: Final = -1
"""The code of a rejection for which no edit is known."""
_PODS: Final = "pods"


class Choice(msgspec.Struct, frozen=True):
    """The alternatives for one need, each a sequence of edits.

    ``pod``: edits of the pod; ``node``: edits of nodes. The first one helps the most nodes.
    """

    plugin: str
    pod: tuple[tuple[PodEdit, ...], ...] = ()
    node: tuple[tuple[NodeEdit, ...], ...] = ()


class Group(msgspec.Struct, frozen=True):
    """Nodes with equal needs, and one ``Choice`` for each need."""

    rows: Rows
    needs: tuple[Choice, ...]


Explain = Callable[[int, Rows], Choice]
"""Returns the alternatives for a code and the rows that have it."""


class _Aspect(msgspec.Struct, frozen=True):
    """The needs of nodes for one kind of filter; ``codes`` int64 (nodes,): 0 none, -1 unknown."""

    codes: Int64
    explain: Explain


def groups(
    snapshot: Snapshot, framework: Framework, info: PodInfo, verdicts: Verdicts
) -> list[Group]:
    """Return groups of nodes that need the same edits: fewest edits first, then most nodes."""
    rows = verdicts.rows
    if not len(rows) or not len(verdicts.plugins):
        return []
    aspects = [
        _cordons_and_taints(snapshot, info, verdicts),
        _node_labels(snapshot, info, verdicts),
        _resources(snapshot, framework, info, verdicts),
        _host_ports(verdicts),
        _by_status(verdicts, inter_pod_affinity.NAME, _affinity_choice(info)),
        _by_status(verdicts, pod_topology_spread.NAME, _spread_choice(info)),
        _others(verdicts),
    ]
    codes = np.stack([aspect.codes for aspect in aspects])
    number, count = numbered_together(codes, len(rows))
    kinds = codes[:, first_places(number, count)]
    found = []
    for at in range(kinds.shape[1]):
        column = kinds[:, at].tolist()
        if UNKNOWN in column or not any(column):
            continue
        members: Rows = rows[number == at]
        needs = tuple(
            aspect.explain(code, members)
            for aspect, code in zip(aspects, column, strict=True)
            if code
        )
        found.append(Group(members, needs))
    found.sort(key=lambda one: (len(one.needs), -len(one.rows)))
    return found


def _host_ports(verdicts: Verdicts) -> _Aspect:
    choice = Choice(node_ports.NAME, ((edits.drop_host_ports(),),))
    return _Aspect(verdicts.by(node_ports.NAME).astype(np.int64), lambda code, rows: choice)


def _by_status(
    verdicts: Verdicts, plugin: str, choose: Callable[[Status], Choice | None]
) -> _Aspect:
    """Return an aspect whose needs follow from a plugin's statuses."""
    codes = np.zeros(len(verdicts.rows), np.int64)
    choices: dict[int, Choice] = {}
    if plugin in verdicts.plugins:
        line = verdicts.verdict[verdicts.plugins.index(plugin)]
        for number in np.unique(line[line != 0]).tolist():
            choice = choose(verdicts.statuses[number])
            if choice is not None:
                choices[number] = choice
            codes[line == number] = UNKNOWN if choice is None else number
    return _Aspect(codes, lambda code, rows: choices[code])


_KNOWN: Final = frozenset(
    (
        node_unschedulable.NAME,
        taint_toleration.NAME,
        node_affinity.NAME,
        node_resources_fit.NAME,
        node_ports.NAME,
        inter_pod_affinity.NAME,
        pod_topology_spread.NAME,
    )
)


def _others(verdicts: Verdicts) -> _Aspect:
    """Return the aspect of rejections by filters for which no edit is known."""
    rejected = np.zeros(len(verdicts.rows), np.bool_)
    for plugin, line in zip(verdicts.plugins, verdicts.verdict, strict=True):
        if plugin not in _KNOWN:
            rejected |= line != 0
    return _Aspect(np.where(rejected, UNKNOWN, 0), lambda code, rows: Choice(""))


# --- taints --------------------------------------------------------------------------------------


def _cordons_and_taints(snapshot: Snapshot, info: PodInfo, verdicts: Verdicts) -> _Aspect:
    """Return the aspect of cordons and untolerated taints of nodes."""
    rows = verdicts.rows
    cordoned = verdicts.by(node_unschedulable.NAME)
    concerned = cordoned | verdicts.by(taint_toleration.NAME)
    codes = np.zeros(len(rows), np.int64)
    numbers: dict[tuple[bool, tuple[Taint, ...]], int] = {}
    choices: dict[int, Choice] = {}
    pairs = snapshot.taint_set[rows].astype(np.int64) * 2 + cordoned
    for pair in np.unique(pairs[concerned]).tolist():
        taint_set, is_cordoned = divmod(pair, 2)
        taints = _untolerated(snapshot.taint_sets[taint_set], info.tolerations)
        if is_cordoned:
            taints = tuple(taint for taint in taints if not edits.is_cordon(taint))
        number = numbers.setdefault((bool(is_cordoned), taints), len(numbers) + 1)
        is_cause = bool(is_cordoned) or bool(taints)
        codes[concerned & (pairs == pair)] = number if is_cause else UNKNOWN
        choices[number] = _taint_choice(cordoned=bool(is_cordoned), taints=taints)
    return _Aspect(codes, lambda code, rows: choices[code])


def taints_in_the_way(snapshot: Snapshot, info: PodInfo, verdicts: Verdicts) -> dict[str, int]:
    """Return the untolerated taints as kubectl writes them, with their numbers of nodes.

    The most frequent comes first. The scheduler's own reason names no taint. The taint of a cordon
    is left out, since another reason covers it.
    """
    found: Counter[str] = Counter()
    rows = verdicts.rows[verdicts.by(taint_toleration.NAME)]
    for number, nodes in zip(*np.unique(snapshot.taint_set[rows], return_counts=True), strict=True):
        for taint in _untolerated(snapshot.taint_sets[number], info.tolerations):
            if not edits.is_cordon(taint):
                found[edits.taint_text(taint)] += int(nodes)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _untolerated(taints: Sequence[Taint], tolerations: tuple[Toleration, ...]) -> tuple[Taint, ...]:
    """Return all hard taints that no toleration matches, without ``timeAdded``."""
    found = [one for one in taints if find_untolerated((one,), tolerations, HARD_EFFECTS)]
    return tuple(msgspec.structs.replace(one, time_added=None) for one in found)


def _taint_choice(*, cordoned: bool, taints: tuple[Taint, ...]) -> Choice:
    node = [edits.untaint(taint) for taint in taints]
    if cordoned:
        return Choice(node_unschedulable.NAME, (), ((edits.uncordon(), *node),))
    return Choice(taint_toleration.NAME, (tuple(map(edits.tolerate, taints)),), (tuple(node),))


# --- labels --------------------------------------------------------------------------------------


def _node_labels(snapshot: Snapshot, info: PodInfo, verdicts: Verdicts) -> _Aspect:
    """Return the aspect of unmet label requirements; of several terms the nearest one's."""
    rows = verdicts.rows
    name = node_affinity.NAME
    concerned = verdicts.by(name)
    codes = np.zeros(len(rows), np.int64)
    if not concerned.any():
        return _Aspect(codes, lambda code, rows: Choice(name))
    required = info.required_affinity("all")
    unmet: dict[tuple[str, Requirement], Mask] = {}

    def note(where: str, requirement: Requirement, missed: Mask) -> None:
        key = (where, requirement)
        unmet[key] = missed | unmet.get(key, np.zeros(len(rows), np.bool_))

    for requirement in required.node_selector.requirements:
        note("selector", requirement, ~requirement_mask(snapshot, requirement, rows))
    hopeless = np.zeros(len(rows), np.bool_)
    for matcher in required.selectors:
        lines: list[dict[Requirement, Mask]] = []
        misses: list[Int64] = []
        for term in matcher.terms:
            requirements = term.labels.requirements if term.labels is not None else ()
            line = {one: ~requirement_mask(snapshot, one, rows) for one in requirements}
            count: Int64 = sum(
                (missed.astype(np.int64) for missed in line.values()), np.zeros(len(rows), np.int64)
            )
            if term.fields or term.errors:
                count = count + len(rows)  # nodes do not change their names
            lines.append(line)
            misses.append(count)
        if not misses:
            hopeless[:] = True
            continue
        table = np.stack(misses)
        nearest = table.argmin(axis=0)
        lowest = table.min(axis=0)
        hopeless |= lowest >= len(rows)
        for at, line in enumerate(lines):
            for requirement, missed in line.items():
                note("affinity", requirement, missed & (nearest == at) & (lowest > 0))
    keys = list(unmet)
    bits = np.stack([unmet[key] for key in keys]) if keys else np.zeros((1, len(rows)), np.bool_)
    missing = bits[:, concerned].astype(np.int64)
    number, different = numbered_together(missing, missing.shape[1])
    kinds = missing[:, first_places(number, different)]
    some: Mask = np.atleast_1d(kinds.any(axis=0))
    is_fixable = ~hopeless[concerned] & some[number]
    codes[concerned] = np.where(is_fixable, number + 1, UNKNOWN)

    def explain(code: int, members: Rows) -> Choice:
        missed = [key for key, is_missed in zip(keys, kinds[:, code - 1], strict=True) if is_missed]
        by_label = edits.label(tuple(requirement for _, requirement in missed))
        selected = frozenset(one.key for where, one in missed if where == "selector")
        others = frozenset(one for where, one in missed if where == "affinity")
        drop = (
            edits.drop_node_requirements(others, selected)
            if others
            else edits.drop_selector(selected)
        )
        return Choice(name, ((drop,),), () if by_label is None else ((by_label,),))

    return _Aspect(codes, explain)


# --- resources -----------------------------------------------------------------------------------


def _resources(
    snapshot: Snapshot, framework: Framework, info: PodInfo, verdicts: Verdicts
) -> _Aspect:
    """Return the aspect of resources of which nodes have too little free."""
    rows = verdicts.rows
    name = node_resources_fit.NAME
    concerned = verdicts.by(name)
    codes = np.zeros(len(rows), np.int64)
    comparing = [one for one in framework.filter_plugins if isinstance(one, RequestFilter)]
    plugin = next((one for one in comparing if one.name == name), None)
    if plugin is None or not concerned.any():
        return _Aspect(np.where(concerned, UNKNOWN, codes), lambda code, rows: Choice(name))
    checks = plugin.request_checks(info, snapshot)
    names = [_PODS, *(snapshot.resources.values[column] for _, column in checks)]
    free = [
        snapshot.allowed_pods[rows] - snapshot.pod_count[rows],
        *(snapshot.allocatable[rows, at] - snapshot.requested[rows, at] for _, at in checks),
    ]
    amounts = [1, *(amount for amount, _ in checks)]
    for bit, (amount, here) in enumerate(zip(amounts, free, strict=True)):
        codes |= np.where(concerned & short(amount, here, 0), 1 << bit, 0)
    codes[concerned & (codes == 0)] = UNKNOWN
    place = {int(row): at for at, row in enumerate(rows.tolist())}

    def explain(code: int, members: Rows) -> Choice:
        at = np.array([place[row] for row in members.tolist()], np.intp)
        lacks = {
            names[bit]: amounts[bit] - free[bit][at] for bit in range(len(names)) if code >> bit & 1
        }
        share = np.max([lack / amounts[names.index(of)] for of, lack in lacks.items()], axis=0)
        nearest = int(share.argmin())
        least = {of: int(lack[nearest]) for of, lack in lacks.items()}
        most = {of: int(lack.max()) for of, lack in lacks.items()}
        reductions = [least] if least == most else [most, least]
        requests = dict(zip(names, amounts, strict=True))
        pod = [edits.ask_less(one, requests) for one in reductions]
        return Choice(
            name,
            tuple((one,) for one in pod if one is not None),
            tuple((edits.add_capacity(one),) for one in reductions),
        )

    return _Aspect(codes, explain)


# --- other pods ----------------------------------------------------------------------------------


def _affinity_choice(info: PodInfo) -> Callable[[Status], Choice | None]:
    def choose(status: Status) -> Choice | None:
        anti = inter_pod_affinity.REASON_ANTI_AFFINITY in status.reasons
        if not anti and inter_pod_affinity.REASON_AFFINITY not in status.reasons:
            return None
        terms = info.anti_affinity if anti else info.affinity
        every = [None] if len(terms) > 1 else []
        return Choice(
            inter_pod_affinity.NAME,
            tuple(
                (edits.drop_affinity_term(at, anti=anti),) for at in (*every, *range(len(terms)))
            ),
        )

    return choose


def _spread_choice(info: PodInfo) -> Callable[[Status], Choice | None]:
    def choose(status: Status) -> Choice | None:
        constraints = info.pod.spec.topology_spread_constraints
        hard = sum(one.when_unsatisfiable == edits.HARD for one in constraints)
        which = [None, *range(hard)] if hard > 1 else [*range(hard)]
        ways = tuple((edits.relax_spread(number),) for number in which)
        return Choice(pod_topology_spread.NAME, ways) if ways else None

    return choose
