"""Groups waiting pods by what rejects them: thousands of pods make a few groups.

Pods whose filters reject nodes for the same reasons are one group, whatever the numbers of nodes
are; so are pods with the same scheduling gates. If a reason is about a pod's fields, such as its
node selector, or about taints, these are part of it: a change that helps one pod helps the whole
group. Every class of pods is filtered once; classes with equal aspects for a filter share its
answer (``verdicts.judge``).
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from clusterstate.objects.rules.stated_terms import terms_for
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.pod_groups import GANG_SCHEDULING
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo
from scheduling.plugins import taint_toleration
from scheduling.simulation.needs import taints_in_the_way
from scheduling.simulation.verdicts import Shared, Verdicts, judge

GATED, FITS, BLOCKED, FAILED = "Gated", "Fits", "Blocked", "Failed"
NO_PROFILE = "NoProfile"
MOST_CLASSES: Final = 2_000
"""The most classes that are filtered for one answer, those with the most pods first."""

Cause = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A plugin, its reasons, and the terms or taints of these."""
Signature = tuple[str, str, tuple[Cause, ...]]
"""State, profile, and the causes."""
_Counted = tuple[Status, int, int]
"""A status, how many nodes it rejects, and how many it alone rejects."""


class Blocker(msgspec.Struct, frozen=True):
    """A reason, and the fewest and the most nodes that it closes for a class of the group.

    ``taints``: the untolerated taints, if they are the reason, each with its number of nodes.
    ``terms``: the part of the pods' spec that the reason is about, such as ``disktype=ssd``.
    """

    plugin: str
    code: str
    reasons: tuple[str, ...]
    fewest: int
    most: int
    alone: int
    taints: dict[str, int] = {}
    terms: tuple[str, ...] = ()


class Members(msgspec.Struct):
    """The pods of one class in a group; ``pods``: indexes in the given sequence."""

    info: PodInfo
    pods: list[int]
    verdicts: Verdicts | None = None


class Group(msgspec.Struct):
    """Pods that are rejected for the same reasons.

    ``state``: Blocked, Gated, Fits (there is room: they are about to be tried), Failed (a plugin
    failed) or NoProfile (no profile has the name of their scheduler). ``members``: by class, the
    largest first. ``feasible``: nodes that would take a pod of the largest class.
    """

    name: str
    state: str
    scheduler_name: str
    blockers: list[Blocker]
    members: list[Members]
    feasible: int = 0

    @property
    def count(self) -> int:
        """Number of pods in the group."""
        return sum(len(one.pods) for one in self.members)


def grouped(
    snapshot: Snapshot,
    framework_of: Callable[[str], Framework | None],
    pods: Sequence[PodToPlace],
    *,
    lacking: Mapping[int, str] = MappingProxyType({}),
    go_on: Callable[[], None] = lambda: None,
) -> tuple[list[Group], int]:
    """Return the groups, the largest first, and how many pods were left out.

    Args:
        snapshot: the cluster.
        framework_of: returns the profile with a name.
        pods: the waiting ones, also those with gates.
        lacking: what the PodGroup of a class lacks, by ``PodInfo.index``.
        go_on: raises if the run takes too long.
    """
    classes: dict[int, Members] = {}
    for number, pod in enumerate(pods):
        found = classes.get(pod.info.index)
        if found is None:
            found = classes[pod.info.index] = Members(pod.info, [])
        found.pods.append(number)
    ordered = sorted(classes.values(), key=lambda one: (-len(one.pods), one.pods[0]))
    by_signature: dict[Signature, list[tuple[Members, list[_Counted]]]] = {}
    shared: dict[str, Shared] = {}
    left_out = 0
    for number, members in enumerate(ordered):
        go_on()
        if number >= MOST_CLASSES:
            left_out += len(members.pods)
            continue
        name = members.info.scheduler_name
        framework = framework_of(name)
        if framework is None:
            reason = Status(Code.UNSCHEDULABLE, (f'no scheduler profile is called "{name}"',))
            state, counts = NO_PROFILE, [(reason, 0, 0)]
        else:
            state, counts = _judged(
                snapshot, framework, members, pods[members.pods[0]], shared.setdefault(name, {})
            )
        if (lacks := lacking.get(members.info.index)) and state in (FITS, BLOCKED):
            status = Status(Code.UNSCHEDULABLE, (lacks,), GANG_SCHEDULING)
            state, counts = (GATED if state == FITS else state), [*counts, (status, 0, 0)]
        taints = _taints(snapshot, members)
        causes = {_cause(members.info, status, taints) for status, _, _ in counts}
        signature: Signature = (state, name, tuple(sorted(causes)))
        by_signature.setdefault(signature, []).append((members, counts))
    groups = [_group(snapshot, signature, found) for signature, found in by_signature.items()]
    groups.sort(key=lambda one: (-one.count, one.name))
    return groups, left_out


def _judged(
    snapshot: Snapshot, framework: Framework, members: Members, pod: PodToPlace, shared: Shared
) -> tuple[str, list[_Counted]]:
    """Return a class's state, and per status how many nodes it rejects, and how many alone."""
    try:
        gate = framework.pre_enqueue(members.info)
        if not gate.ok:
            return GATED, [(gate, 0, 0)]
        verdicts = judge(snapshot, framework, pod, shared=shared)
    except PluginFailed as failure:
        return FAILED, [(failure.status, 0, 0)]
    members.verdicts = verdicts
    if len(verdicts.feasible):
        return FITS, []
    return BLOCKED, list(verdicts.counts())


def _taints(snapshot: Snapshot, members: Members) -> dict[str, int]:
    """Return the untolerated taints that close nodes for a class, with their numbers of nodes."""
    verdicts = members.verdicts
    return {} if verdicts is None else taints_in_the_way(snapshot, members.info, verdicts)


def _cause(info: PodInfo, status: Status, taints: Mapping[str, int]) -> Cause:
    if status.plugin == taint_toleration.NAME:
        return status.plugin, status.reasons, tuple(sorted(taints))
    terms = {term for reason in status.reasons for term in terms_for(info.pod.spec, reason)}
    return status.plugin, status.reasons, tuple(sorted(terms))


def _group(
    snapshot: Snapshot, signature: Signature, found: Sequence[tuple[Members, list[_Counted]]]
) -> Group:
    state, name, causes = signature
    members = [one for one, _ in found]
    first = members[0].verdicts
    taints = _taints(snapshot, members[0])
    terms = {(plugin, reasons): about for plugin, reasons, about in causes}
    counts: dict[tuple[str, str, tuple[str, ...]], list[tuple[int, int]]] = {}
    for _, rejections in found:
        for status, nodes, alone in rejections:
            key = (status.plugin, status.code.wire, status.reasons)
            counts.setdefault(key, []).append((nodes, alone))
    blockers = [
        Blocker(
            plugin,
            code,
            reasons,
            fewest=min(nodes for nodes, _ in numbers),
            most=max(nodes for nodes, _ in numbers),
            alone=max(alone for _, alone in numbers),
            taints=taints if plugin == taint_toleration.NAME else {},
            terms=() if plugin == taint_toleration.NAME else terms[plugin, reasons],
        )
        for (plugin, code, reasons), numbers in counts.items()
    ]
    blockers.sort(key=lambda one: (-one.most, one.plugin, one.reasons))
    text = repr(signature).encode()
    return Group(
        name=hashlib.sha256(text).hexdigest()[:10],
        state=state,
        scheduler_name=name,
        blockers=blockers,
        members=members,
        feasible=0 if first is None else len(first.feasible),
    )


def most_common(values: Iterable[str], most: int) -> dict[str, int]:
    """Return how often the most frequent values occur, the most frequent first, then by name."""
    counts = Counter(values)
    chosen = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:most]
    return dict(chosen)
