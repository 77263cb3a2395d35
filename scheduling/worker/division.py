"""Divides pods among several schedulers (``STOWAGE_ACTIVE_SCHEDULERS``).

A pod is *common* if a decision about it may depend on pods of other nodes, or the other way round:
it has a hard rule about other pods (required affinity or anti-affinity, a hard spread), such a rule
of any class selects it, it belongs to a group, has claims or volumes, or its profile has plugins of
other packages, or plugins that reserve each pod. All common pods go to one scheduler, the one with
the lowest number at work. All other pods depend on their node alone; they are divided among the
other schedulers by their classes. While the lease of a scheduler has ended, the others take its
pods, except pods that are common for another reason than rules about other pods: the scheduler that
has the lock of the lowest number is responsible for their claims, reservations and groups.

The schedulers need not agree on the division. If one decides a pod that is another's, it does so in
vain: a bind states which state of the node and how many classes with rules the scheduler has read,
and the database refuses it if these are outdated (``clusterstate.actions.pods.bind``). So each
scheduler reads every ``DIVIDE_EVERY`` seconds which others are at work and which classes have
rules, and divides again.

Rules are read too widely here, never too narrowly: a selector of namespaces counts as all
namespaces, and ``matchLabelKeys`` of a spread constraint are ignored. If a profile has hard default
spread constraints, these are in no class, so all pods are common.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from clusterstate.actions.scheduler import leases
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
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework.configuration.plugin_args import PodTopologySpreadArgs
from scheduling.framework.footprints import footprint_of
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, group_key

_SPREAD: Final = "PodTopologySpread"
_HARD: Final = "DoNotSchedule"
_MOST_REMEMBERED: Final = 200_000


class _Rule(msgspec.Struct, frozen=True):
    """The pods that a term or constraint selects; ``namespaces`` is ``None`` for all of them."""

    selector: Selector
    namespaces: tuple[str, ...] | None

    def means(self, info: PodInfo) -> bool:
        if self.namespaces is not None and info.namespace not in self.namespaces:
            return False
        return self.selector.matches(info.labels)


class Rules:
    """The hard rules about other pods (affinity, anti-affinity, spread) of known classes."""

    def __init__(self, classes: Iterable[PodInfo] = ()) -> None:
        self._by_label: dict[tuple[str, str], list[_Rule]] = {}
        self._others: list[_Rule] = []
        self._all: set[_Rule] = set()
        self.add(classes)

    def add(self, classes: Iterable[PodInfo]) -> None:
        """Add the rules of more classes."""
        for rule in {rule for info in classes for rule in _rules_of(info)} - self._all:
            self._keep(rule)

    def _keep(self, rule: _Rule) -> None:
        self._all.add(rule)
        for one in rule.selector.requirements:
            if one.operator in (IN, EQUALS, DOUBLE_EQUALS):
                for value in set(one.values):
                    self._by_label.setdefault((one.key, value), []).append(rule)
                return
        self._others.append(rule)

    def mean(self, info: PodInfo) -> bool:
        """Return whether at least one of the rules selects pods of a class."""
        return any(
            rule.means(info)
            for rules in (self._others, *map(self._with_label, info.labels.items()))
            for rule in rules
        )

    def _with_label(self, label: tuple[str, str]) -> list[_Rule]:
        return self._by_label.get(label, [])


def _rules_of(info: PodInfo) -> Iterable[_Rule]:
    for term in (*info.affinity, *info.anti_affinity):
        yield _Rule(term.selector, term.namespaces if term.namespace_selector.nothing else None)
    for one in info.pod.spec.topology_spread_constraints:
        if one.when_unsatisfiable == _HARD:
            with suppress(SelectorError):  # a pod with an invalid selector is never placed
                yield _Rule(selector_from_label_selector(one.label_selector), (info.namespace,))


class Division:
    """Which pods the scheduler number ``shard`` decides, by what it knows of the others."""

    def __init__(self, shard: int = shards.FIRST) -> None:
        self.shard = shard
        self.at_work: frozenset[int] = frozenset()
        self.silent: frozenset[int] = frozenset()
        """Schedulers at work whose leases have ended (``actions.scheduler.leases``)."""
        self.reach = -1
        """The number of classes with rules that this scheduler has read (``OtherSchedulers``)."""
        self._frameworks: Mapping[str, Framework] = {}
        self._all_common = False
        self._rules = Rules()
        self._reaching: set[int] = set()
        self._has_learned = False
        self._remembered: dict[bytes, bool] = {}
        self._apart: dict[bytes, PodInfo] = {}
        """Of the classes in ``_remembered`` those that are not common."""
        self._bound_to_first: set[bytes] = set()
        """Digests of classes that are common for another reason than rules about other pods."""

    def begin(self, shard: int) -> None:
        """Begin to work under a scheduler number; ``look`` then finds the others at work."""
        self.shard, self.at_work, self.silent = shard, frozenset(), frozenset()

    def use(self, frameworks: Mapping[str, Framework]) -> None:
        """Set the profiles by which pods are divided from now on."""
        self._frameworks = frameworks
        self._all_common = any(map(_spreads_hard, frameworks.values()))
        self._forget()

    def _forget(self) -> None:
        self._remembered.clear()
        self._apart.clear()
        self._bound_to_first.clear()

    def look(self, compatibility: Compatibility) -> bool:
        """Read which schedulers work and which classes have rules; return whether either changed.

        Queries twice, and twice more if there are new classes with rules.
        """
        before = self.at_work, self.silent
        self.at_work, self.silent = leases.at_work()
        self.at_work, self.silent = self.at_work | {self.shard}, self.silent - {self.shard}
        self.learn(compatibility)
        has_learned, self._has_learned = self._has_learned, False
        return has_learned or before != (self.at_work, self.silent)

    def learn(self, compatibility: Compatibility) -> None:
        """Read which classes have rules about other pods.

        Rules of deleted classes stay, so more pods may count as common than are. Queries once, and
        twice more if there are new classes with rules.
        """
        if reach() == self.reach:
            return
        self.reach, classes = reaching_classes(self._reaching)
        self._reaching.update(class_id for class_id, _ in classes)
        infos = list(_readable(classes, compatibility))
        self._rules.add(infos)
        new = Rules(infos)
        for digest in [digest for digest, info in self._apart.items() if new.mean(info)]:
            self._remembered[digest] = True
            del self._apart[digest]
        self._has_learned = True

    def is_common(self, info: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether pods of a class are common: decisions involve pods of other nodes."""
        found = self._remembered.get(info.digest)
        if found is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._forget()
            needs_first = self._needs_first(info)
            if needs_first:
                self._bound_to_first.add(info.digest)
            found = self._all_common or needs_first or self._reaches(info, snapshot)
            self._remembered[info.digest] = found
            if not found:
                self._apart[info.digest] = info
        # The resources that a device class provides may change.
        return found or self._claims(info, snapshot)

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

    def _reaches(self, info: PodInfo, snapshot: Snapshot) -> bool:
        framework = self._frameworks[info.scheduler_name]
        footprint = footprint_of(info, framework, snapshot)
        return bool(
            footprint.reads
            or footprint.bears
            or not footprint.complete
            or next(iter(_rules_of(info)), None) is not None
            or self._rules.mean(info)
        )

    @property
    def share(self) -> tuple[int, int]:
        """Return this scheduler's index among the schedulers with a lease, and their number."""
        awake = sorted((self.at_work - self.silent) | {self.shard})
        return awake.index(self.shard), len(awake)

    def is_mine(self, info: PodInfo, class_id: int, snapshot: Snapshot) -> bool:
        """Return whether this scheduler decides pods of a class."""
        at_work = self.at_work | {self.shard}
        if len(at_work) == 1:
            return True
        first, *others = sorted(at_work - self.silent)
        if self.is_common(info, snapshot):
            if info.digest in self._bound_to_first or self._claims(info, snapshot):
                first = min(at_work)
            return self.shard == first
        return not others or self.shard == others[class_id % len(others)]


def _spreads_hard(framework: Framework) -> bool:
    args = framework.profile.args.get(_SPREAD)
    return isinstance(args, PodTopologySpreadArgs) and any(
        one.when_unsatisfiable == _HARD for one in args.default_constraints
    )


def _readable(
    classes: Iterable[tuple[int, str]], compatibility: Compatibility
) -> Iterator[PodInfo]:
    """Yield the parsed classes; skip those that do not parse, whose pods are never placed."""
    for class_id, spec in classes:
        try:
            info = from_stored_class(class_id, spec, compatibility)
        except (msgspec.ValidationError, ValueError):
            continue
        yield info
