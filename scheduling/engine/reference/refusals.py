"""A cache of refusals: a class is diagnosed once for each state of the cluster.

Diagnosing why a pod fits nowhere takes milliseconds, and often a thousand pods of one class are
refused. A refusal that names no node is a function of the class and the snapshot, so it is cached
with a stamp of what it depends on, and another pod of the class at the same stamp gets it again.

There are two stamps, the second only where it is proved to be enough:

* *strict*: nothing in the snapshot changed: no row was touched, no version rose.
* *loose*: the verdict of no row changed. The diagnosis of the class (``row_program``) judges the
  touched rows again, and counts when a row's first rejection changes. It is enough if filters of
  single rows reject every node, no pod is nominated anywhere, and PostFilter cannot help whatever
  pods there are: preemption is off for the pod, or has no candidate, or no pod of lower priority
  is on a node.

Not cached: decisions that name a node, victims or a claim, errors, the refusal of a pod that is
nominated itself, full tables, and decisions of profiles with a plugin that does not state what it
reads.
"""

from collections import OrderedDict

import msgspec

from scheduling.engine.preemption.filter_program import LastDiagnosis
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.cycle import Options, PodToPlace
from scheduling.engine.reference.decision import UNSCHEDULABLE, Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import Cacheable
from scheduling.framework.runtime import Framework
from scheduling.framework.sampling import next_start
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo

_NEVER = "Never"
_Stamp = tuple[int, ...]


class _CachedRefusal(msgspec.Struct, gc=False):
    """A refusal, and the versions for which it is valid.

    ``judged`` and ``moves`` are ``None`` and 0 if only the strict stamp counts. ``versions``: those
    of the loose stamp. ``needs_no_lower``: the refusal is valid only while no pod of lower priority
    is on a node.
    """

    decision: Decision
    preempt: bool
    strict: _Stamp
    versions: _Stamp = ()
    judged: LastDiagnosis | None = None
    moves: int = 0
    needs_no_lower: bool = False


class Refusals:
    """The refusals of one profile over one snapshot; the least recently used are dropped."""

    def __init__(self, snapshot: Snapshot, framework: Framework, programs: RowPrograms) -> None:
        self._snapshot = snapshot
        self._programs = programs
        self.usable = _usable(framework)
        self._sampling = not framework.looks_at_all
        self._cache: OrderedDict[int, _CachedRefusal] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cache)

    def __contains__(self, info: PodInfo) -> bool:
        return info.index in self._cache

    def find(self, pod: PodToPlace, options: Options, *, draw: int, start: int) -> Decision | None:
        """Return the cached refusal for a pod, ``None`` if its class has none in the present state.

        Raises:
            PluginFailed: a plugin failed.
        """
        cached = self._cache.get(pod.info.index)
        if cached is None:
            return None
        decision = cached.decision
        if (
            pod.nominated_node
            or options.full
            or cached.preempt != options.preempt
            or decision.class_digest != pod.info.digest
        ):
            return None
        strict = self._strict(pod.info, start)
        if cached.strict != strict:
            if not self._holds_loosely(cached, pod.info):
                del self._cache[pod.info.index]
                return None
            cached.strict = strict
        self._cache.move_to_end(pod.info.index)
        snapshot = self._snapshot
        return msgspec.structs.replace(
            decision,
            key=pod.key,
            seed=options.seed,
            draw=draw,
            next_start=next_start(start, decision.evaluated, snapshot.node_count),
            snapshot_revision=snapshot.revision,
        )

    def keep(
        self,
        pod: PodToPlace,
        options: Options,
        decision: Decision,
        *,
        start: int,
        most: int,
    ) -> None:
        """Cache a new decision, before it is applied to the snapshot.

        Args:
            pod: the pod that was decided.
            options: those of the decision.
            decision: of any outcome; only refusals that apply to all pods of the class are cached.
            start: the node index at which the search began.
            most: how many classes to keep.
        """
        nomination = decision.nomination
        if (
            not self.usable
            or decision.outcome != UNSCHEDULABLE
            or decision.full is not None
            or not decision.node_count
            or pod.nominated_node
            or decision.released is not None
            or (nomination is not None and (nomination.node_name or nomination.victims))
        ):
            if decision.scheduled:
                self._cache.pop(pod.info.index, None)
            return
        cached = _CachedRefusal(decision, options.preempt, self._strict(pod.info, start))
        judged = None if self._sampling else self._programs.following(pod.info)
        if judged is not None:
            cached.needs_no_lower = (
                options.preempt
                and nomination is not None
                and pod.info.preemption_policy != _NEVER
                and _has_candidates(decision)
            )
            if not cached.needs_no_lower or not self._snapshot.has_pods_below(pod.info.priority):
                cached.judged, cached.moves = judged, judged.moves
                cached.versions = self._versions(pod.info)
        self._cache[pod.info.index] = cached
        self._cache.move_to_end(pod.info.index)
        while len(self._cache) > most:
            self._cache.popitem(last=False)

    def _holds_loosely(self, cached: _CachedRefusal, info: PodInfo) -> bool:
        snapshot = self._snapshot
        if (
            cached.judged is None
            or cached.versions != self._versions(info)
            or (cached.needs_no_lower and snapshot.has_pods_below(info.priority))
        ):
            return False
        now = self._programs.following(info)
        return now is cached.judged and now.moves == cached.moves

    def _versions(self, info: PodInfo) -> _Stamp:
        snapshot = self._snapshot
        return (
            snapshot.node_version,
            snapshot.peer_stamp(info),
            snapshot.peer_version,
        )

    def _strict(self, info: PodInfo, start: int) -> _Stamp:
        snapshot = self._snapshot
        return (
            snapshot.log_end,
            snapshot.nomination_version,
            snapshot.budget_version,
            *self._versions(info),
            start if self._sampling else 0,
        )


def _usable(framework: Framework) -> bool:
    """Return whether refusals of this profile depend on class and snapshot alone."""
    if any(plugin.name in framework.third_party for plugin in framework.pre_filter_plugins):
        return False
    if any(plugin.name in framework.third_party for plugin in framework.post_filter_plugins):
        return False
    return all(
        isinstance(plugin, Cacheable)
        for plugin in framework.filter_plugins
        if plugin.name in framework.third_party
    )


def _has_candidates(decision: Decision) -> bool:
    """Return whether, by Filter and PreFilter, removing pods may help on some node."""
    judged = () if decision.judged is None else decision.judged.statuses
    return any(status.code is Code.UNSCHEDULABLE for status in (*judged, decision.absent))
