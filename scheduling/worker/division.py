"""Divides pods among several schedulers (``STOWAGE_ACTIVE_SCHEDULERS``).

Hard rules about other pods are required affinity, required anti-affinity and hard spread. Each rule
has a number, made of the pods that it means: its *counter*. A pod has the counters of its own rules
and of all rules that mean it. If a decision about one pod may depend on where another one is, the
two pods have a counter in common. A bind states its pod's counters, and the database refuses it if
another scheduler bound a pod with one of them and this one does not know of it
(``clusterstate.actions.pods.bind``).

So that this seldom happens, pods are divided by *components*: counters belong to one component if
a class with rules has both. Each component has one of 256 *slots*, and each slot one scheduler, by
the numbers of the schedulers at work: if one of them ends or its lease does, its slots alone change
hands. Pods without counters depend on their node alone; they have slots by their classes. The first
of at least two schedulers has none of those, and of at least three no components either, until it
takes slots: one that has nothing to do takes slots from one whose pods wait (``to_take``).

Some pods have the counter ``ALONE``, whatever their rules: those of groups, with claims or volumes,
and of a profile that has plugins of other packages or that reserves each pod. The first scheduler
decides these, also while its lease has ended, because it is responsible for their reservations.
If a profile has hard default spread constraints, all pods have this counter, because these
constraints are in no class.

The schedulers need not agree on the division. If two decide the same pods, one of them does so in
vain. That one of them does decide a pod follows from equal knowledge: each reads every
``DIVIDE_EVERY`` seconds which others are at work, which slots were taken, and which classes with
rules are stored. Components follow from those classes alone.

Rules are read too widely here, never too narrowly: a selector of namespaces counts as all
namespaces, and ``matchLabelKeys`` of a spread constraint are ignored.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from clusterstate.actions.scheduler import leases
from clusterstate.objects.rules.footprint import counter_id
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.labels import (
    DOUBLE_EQUALS,
    EQUALS,
    IN,
    Selector,
    SelectorError,
    selector_from_label_selector,
)
from clusterstate.processes import shards
from clusterstate.queries.scheduler.reaching import reach, reaching_classes
from scheduling.engine.reference.cycle import mix
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework.configuration.plugin_args import PodTopologySpreadArgs
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, group_key

_SPREAD: Final = "PodTopologySpread"
_HARD: Final = "DoNotSchedule"
_MOST_REMEMBERED: Final = 200_000
ALONE: Final = 0
"""The counter of pods that are the first scheduler's for another reason than rules."""
SLOTS: Final = 256
_FIRSTS: Final = -1
"""Stands for the slot of pods that are the first scheduler's in any case."""


class _Rule(msgspec.Struct, frozen=True):
    """The pods that a term or constraint selects; ``namespaces`` is ``None`` for all of them."""

    selector: Selector
    namespaces: tuple[str, ...] | None

    def means(self, info: PodInfo) -> bool:
        if self.namespaces is not None and info.namespace not in self.namespaces:
            return False
        return self.selector.matches(info.labels)

    def counter(self) -> int:
        """Return a number from 1 to 65,535 for the counted pods, the same in every process."""
        name = counter_id(self.selector, ("*",) if self.namespaces is None else self.namespaces)
        return 1 + int.from_bytes(name[:4]) % 0xFFFF


class Rules:
    """The hard rules about other pods (affinity, anti-affinity, spread) of known classes."""

    def __init__(self, classes: Iterable[PodInfo] = ()) -> None:
        self._by_label: dict[tuple[str, str], list[_Rule]] = {}
        self._others: list[_Rule] = []
        self._counters: dict[_Rule, int] = {}
        self.add(classes)

    def add(self, classes: Iterable[PodInfo]) -> None:
        """Add the rules of more classes."""
        for info in classes:
            for rule in _rules_of(info):
                if rule not in self._counters:
                    self._counters[rule] = rule.counter()
                    self._keep(rule)

    def _keep(self, rule: _Rule) -> None:
        for one in rule.selector.requirements:
            if one.operator in (IN, EQUALS, DOUBLE_EQUALS):
                for value in set(one.values):
                    self._by_label.setdefault((one.key, value), []).append(rule)
                return
        self._others.append(rule)

    def about(self, info: PodInfo) -> set[int]:
        """Return the counters of the rules that select pods of a class."""
        return {
            self._counters[rule]
            for rules in (self._others, *map(self._with_label, info.labels.items()))
            for rule in rules
            if rule.means(info)
        }

    def _with_label(self, label: tuple[str, str]) -> list[_Rule]:
        return self._by_label.get(label, [])


class _Components:
    """Sets of counters that belong together; a component's name is its lowest counter."""

    def __init__(self, together: Iterable[Collection[int]] = ()) -> None:
        self._above: dict[int, int] = {}
        for counters in together:
            names = {self.of(counter) for counter in counters}
            lowest = min(names, default=0)
            self._above.update({name: lowest for name in names if name != lowest})

    def of(self, counter: int) -> int:
        while (above := self._above.get(counter)) is not None:
            counter = above
        return counter


def _rules_of(info: PodInfo) -> Iterable[_Rule]:
    for term in (*info.affinity, *info.anti_affinity):
        yield _Rule(term.selector, term.namespaces if term.namespace_selector.nothing else None)
    for one in info.pod.spec.topology_spread_constraints:
        if one.when_unsatisfiable == _HARD:
            with suppress(SelectorError):  # a pod with an invalid selector is never placed
                yield _Rule(selector_from_label_selector(one.label_selector), (info.namespace,))


class Division:
    """Which pods scheduler number ``shard`` decides, derived from the leases of all schedulers."""

    def __init__(self, shard: int = shards.FIRST) -> None:
        self.shard = shard
        self.at_work: frozenset[int] = frozenset()
        self.silent: frozenset[int] = frozenset()
        """Schedulers at work whose leases have ended (``actions.scheduler.leases``)."""
        self.moved: Mapping[int, int] = {}
        """Slots that schedulers took, and by whom."""
        self.reach = -1
        """Which classes with rules this scheduler has read (``OtherSchedulers``)."""
        self._frameworks: Mapping[str, Framework] = {}
        self._all_alone = False
        self._rules = Rules()
        self._bearers: dict[int, PodInfo | None] = {}
        """The classes with rules; ``None`` for one that does not parse, whose pods wait."""
        self._components: _Components | None = None
        self._has_learned = False
        self._remembered: dict[bytes, tuple[PodInfo, tuple[int, ...]]] = {}
        self.share = 0, 1
        """This scheduler's index among the schedulers with a lease, and their number."""
        self._owners: dict[tuple[int, bool], int] = {}

    def begin(self, shard: int) -> None:
        """Start as the scheduler with number ``shard``; ``look`` then finds the others."""
        self.shard, self.at_work, self.silent = shard, frozenset(), frozenset()
        self._owners.clear()

    def use(self, frameworks: Mapping[str, Framework]) -> None:
        """Set the profiles by which pods are divided from now on."""
        self._frameworks = frameworks
        self._all_alone = any(map(_spreads_hard, frameworks.values()))
        self._forget()

    def _forget(self) -> None:
        self._remembered.clear()
        self._components = None

    def forget_classes(self) -> None:
        """Forget which classes have rules: their ids may be other rows' now."""
        self.reach, self._rules = -1, Rules()
        self._bearers.clear()
        self._forget()

    def look(self, compatibility: Compatibility) -> bool:
        """Read the live schedulers, moved slots and classes with rules; return whether any changed.

        Queries three times, and more if there are new classes with rules.
        """
        before = self.at_work, self.silent, self.moved
        at_work, silent = leases.at_work()
        self.at_work, self.silent = at_work | {self.shard}, silent - {self.shard}
        self.moved = leases.moved_slots()
        if before != (self.at_work, self.silent, self.moved):
            self._owners.clear()
            awake = sorted(self.at_work - self.silent)
            self.share = awake.index(self.shard), len(awake)
        self.learn(compatibility)
        has_learned, self._has_learned = self._has_learned, False
        return has_learned or before != (self.at_work, self.silent, self.moved)

    def learn(self, compatibility: Compatibility) -> None:
        """Read which classes have rules about other pods.

        Queries once, and up to twice more if such classes came or went.
        """
        if reach() == self.reach:
            return
        self.reach, classes, gone = reaching_classes(self._bearers, self.reach)
        new = dict(_readable(classes, compatibility))
        infos = [info for info in new.values() if info is not None]
        self._bearers.update(new)
        self._components = None
        if gone:
            for class_id in gone:
                del self._bearers[class_id]
            self._rules = Rules(info for info in self._bearers.values() if info is not None)
            self._remembered.clear()
        else:
            self._rules.add(infos)
            about = Rules(infos).about
            for digest in [one for one, (info, _) in self._remembered.items() if about(info)]:
                del self._remembered[digest]
        self._has_learned = True

    def counters(self, info: PodInfo, snapshot: Snapshot) -> tuple[int, ...]:
        """Return the counters of pods of a class, none if they depend on their node alone."""
        found = self._known(info)
        # The resources that a device class provides may change.
        if ALONE not in found and self._claims(info, snapshot):
            return ALONE, *found
        return found

    def _known(self, info: PodInfo) -> tuple[int, ...]:
        known = self._remembered.get(info.digest)
        if known is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            found = self._rules.about(info) | {rule.counter() for rule in _rules_of(info)}
            if self._all_alone or self._needs_first(info):
                found.add(ALONE)
            known = self._remembered[info.digest] = info, tuple(sorted(found))
        return known[1]

    def _claims(self, info: PodInfo, snapshot: Snapshot) -> bool:
        return (
            info.may_claim
            and (framework := self._frameworks.get(info.scheduler_name)) is not None
            and framework.concerns(info, snapshot)
        )

    def _needs_first(self, info: PodInfo) -> bool:
        framework = self._frameworks.get(info.scheduler_name)
        return bool(
            framework is None
            or framework.decides_alone
            or framework.chooses_by_itself
            or info.problem
            or info.volumes
            or info.pod.spec.resource_claims
            or group_key(info.pod) is not None
        )

    def component(self, counters: Sequence[int]) -> int:
        """Return the component of a class by its counters, of which there is at least one."""
        if self._components is None:
            bearers = (info for info in self._bearers.values() if info is not None)
            self._components = _Components(map(self._known, bearers))
        return min(map(self._components.of, counters))

    def largest_share(self, snapshot: Snapshot) -> float:
        """Return the largest component's share of all placed pods, 0 if there is none."""
        of: Counter[int] = Counter()
        for info, count in snapshot.placed_by_class():
            if counters := self.counters(info, snapshot):
                of[self.component(counters)] += count
        return max(of.values(), default=0) / max(snapshot.placed_count, 1)

    def is_mine(self, info: PodInfo, class_id: int, snapshot: Snapshot) -> bool:
        """Return whether this scheduler decides pods of a class."""
        if len(self.at_work) <= 1:
            return True
        return self.shard == self.owner(class_id, self.counters(info, snapshot))

    def owner(self, class_id: int, counters: Sequence[int]) -> int:
        """Return the number of the scheduler that decides pods of a class."""
        if ALONE in counters:
            return min(self.at_work)
        if not counters:
            return self._owner_of(class_id % SLOTS, is_common=False)
        name = self.component(counters)
        if name == ALONE:
            return min(self.at_work - self.silent)
        return self._owner_of(name % SLOTS, is_common=True)

    def to_take(self, waiting: Iterable[tuple[int, PodInfo]], snapshot: Snapshot) -> list[int]:
        """Return the slots that this scheduler, which has nothing to do, takes from another one.

        ``waiting``: the class id and class of each pod that others have not tried for a while. Of
        the scheduler with most of them it takes slots with half of these pods, but never all it
        is busy with, so that no work goes back and forth.
        """
        of: dict[int, Counter[int]] = {}
        for class_id, info in waiting:
            counters = self.counters(info, snapshot)
            name = self.component(counters) if counters else class_id
            slot = _FIRSTS if counters and name == ALONE else name % SLOTS
            of.setdefault(self.owner(class_id, counters), Counter())[slot] += 1
        of.pop(self.shard, None)
        if not of:
            return []
        most = max(of.values(), key=Counter.total)
        kept = _FIRSTS if _FIRSTS in most else most.most_common(1)[0][0]
        found: list[int] = []
        rest = most.total() / 2
        for slot, count in most.most_common():
            if slot != kept and rest > 0:
                found.append(slot)
                rest -= count
        return found

    def _owner_of(self, slot: int, *, is_common: bool) -> int:
        found = self._owners.get((slot, is_common))
        if found is None:
            awake = self.at_work - self.silent
            found = self.moved.get(slot, -1)
            if found not in awake:
                others = awake - {min(awake)}
                some = others if len(others) > is_common else awake
                found = max(some, key=lambda one: mix(slot, one))
            self._owners[slot, is_common] = found
        return found


def _spreads_hard(framework: Framework) -> bool:
    args = framework.profile.args.get(_SPREAD)
    return isinstance(args, PodTopologySpreadArgs) and any(
        one.when_unsatisfiable == _HARD for one in args.default_constraints
    )


def _readable(
    classes: Iterable[tuple[int, str]], compatibility: Compatibility
) -> Iterator[tuple[int, PodInfo | None]]:
    for class_id, spec in classes:
        try:
            yield class_id, from_stored_class(class_id, spec, compatibility)
        except (msgspec.ValidationError, ValueError):
            yield class_id, None
