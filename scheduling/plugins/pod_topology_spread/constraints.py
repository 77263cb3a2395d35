"""Parses the constraints of a class, its own or the profile's defaults, once.

Rule: plugins/podtopologyspread/common.go, v1.36. ``SYSTEM_DEFAULTS`` are the constraints of pods
that state none, where defaulting is ``System``.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator
from typing import cast

import msgspec

from clusterstate.objects.rules.matching import EmptyTerm
from clusterstate.objects.values.labels import (
    EQUALS,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    selector_from_label_selector,
)
from clusterstate.objects.values.node import HOSTNAME
from clusterstate.objects.values.pod import TopologySpreadConstraint
from scheduling.framework.configuration.plugin_args import PodTopologySpreadArgs
from scheduling.framework.node_table import NodeTable
from scheduling.framework.types import PodInfo

NAME = "PodTopologySpread"
HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(
        topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT, max_skew=5
    ),
)
_MOST_DEFAULTS = 1024
_instances = itertools.count()


class Constraint(msgspec.Struct, frozen=True):
    """A constraint without its selector, so that classes with default constraints share it.

    ``matches_self``: whether a hard constraint counts the pod itself. ``eligible_key`` identifies
    the nodes whose pods count.
    """

    max_skew: int
    topology_key: str
    min_domains: int
    matches_self: bool
    eligible_key: Hashable
    honor_affinity: bool
    honor_taints: bool


class Constraints(msgspec.Struct, frozen=True):
    """The constraints of a class: ``hard`` ones filter, ``soft`` ones score.

    ``selectors``: those of the constraints, hard ones first, with ``matchLabelKeys`` added.
    ``all_keys``: nodes that lack one of the soft topology keys are not scored (false for the
    system's defaults, so that nodes without a zone are still spread by hostname). ``alike``: a
    number that classes with the same default constraints share, ``None`` for others.
    """

    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    all_keys: bool
    selectors: tuple[Selector, ...] = ()
    hard_problem: str = ""
    soft_problem: str = ""
    alike: int | None = None

    def hard_counted(self) -> Iterator[tuple[Constraint, Selector]]:
        """Return each hard constraint with its selector."""
        return zip(self.hard, self.selectors, strict=False)

    def soft_counted(self) -> Iterator[tuple[Constraint, Selector]]:
        """Return each soft constraint with its selector."""
        return zip(self.soft, self.selectors[len(self.hard) :], strict=True)


class ConstraintsByClass:
    """Returns the constraints of classes for one plugin's arguments; cached in each class's memo.

    Args:
        args: the plugin's arguments.
        empty_term: what a node selector term without requirements means.
        match_label_keys: whether ``matchLabelKeys`` have an effect.
        node_inclusion_policy: whether constraints may leave nodes out by affinity and taints.
        comparison_operators: whether tolerations may compare numbers.
    """

    def __init__(
        self,
        args: PodTopologySpreadArgs,
        *,
        empty_term: EmptyTerm,
        match_label_keys: bool,
        node_inclusion_policy: bool,
        comparison_operators: bool,
    ) -> None:
        self._system = args.defaulting_type == "System"
        self.defaults = SYSTEM_DEFAULTS if self._system else args.default_constraints
        # One object for all classes without constraints.
        self._nothing = Constraints((), (), not self._system)
        self._hard_defaults = any(c.when_unsatisfiable == HARD for c in self.defaults)
        # Hard and soft ones and a number, by placement and whether hard ones count the pod itself.
        self._of_default: dict[
            tuple[bytes, bool], tuple[tuple[Constraint, ...], tuple[Constraint, ...], int]
        ] = {}
        self._empty_term = empty_term
        self._match_label_keys = match_label_keys
        self._policies = node_inclusion_policy
        self._comparison_operators = comparison_operators
        # By plugin instance: two profiles may differ.
        self._memo_key = (NAME, next(_instances))

    def of(self, pod: PodInfo, snapshot: NodeTable) -> Constraints:
        """Return the constraints of a class: its own, or the defaults if it has none."""
        found = pod.memo.get(self._memo_key)
        stamp = snapshot.peer_stamp(pod)
        if isinstance(found, tuple) and found[0] == stamp:
            return cast("Constraints", found[1])
        own = pod.pod.spec.topology_spread_constraints
        if own:
            hard, of_hard, hard_problem = self._parsed(pod, own, HARD)
            soft, of_soft, soft_problem = self._parsed(pod, own, SOFT)
            selectors = (*of_hard, *of_soft)
            constraints = Constraints(hard, soft, True, selectors, hard_problem, soft_problem)
        else:
            constraints = self._by_default(pod, snapshot)
        pod.memo[self._memo_key] = stamp, constraints
        return constraints

    def _by_default(self, pod: PodInfo, snapshot: NodeTable) -> Constraints:
        """Return the default constraints of a pod without constraints of its own."""
        selector = snapshot.default_selector(pod) if self.defaults else None
        if selector is None:
            return self._nothing
        key = pod.placement_key, self._hard_defaults and selector.matches(pod.labels)
        cached = self._of_default.get(key)
        if cached is None:
            if len(self._of_default) >= _MOST_DEFAULTS:
                self._of_default.clear()
            placement, matches_self = key
            cached = self._of_default[key] = (
                self._compile(placement, self.defaults, HARD, itertools.repeat(matches_self)),
                self._compile(
                    placement, self.defaults, SOFT, itertools.repeat(False), by_default=True
                ),
                next(_instances),
            )
        hard, soft, alike = cached
        selectors = (selector,) * (len(hard) + len(soft))
        return Constraints(hard, soft, not self._system, selectors, alike=alike)

    def _parsed(
        self, pod: PodInfo, constraints: tuple[TopologySpreadConstraint, ...], action: str
    ) -> tuple[tuple[Constraint, ...], tuple[Selector, ...], str]:
        """Return the pod's own constraints, their selectors, and an error if one is invalid."""
        chosen = [c for c in constraints if c.when_unsatisfiable == action]
        try:
            selectors = tuple([self._selector(c, pod.labels) for c in chosen])
        except SelectorError as problem:
            kind = "hard" if action == HARD else "soft"
            return (), (), f"obtaining pod's {kind} topology spread constraints: {problem}"
        matching = [selector.matches(pod.labels) for selector in selectors]
        return self._compile(pod.placement_key, tuple(chosen), action, matching), selectors, ""

    def _compile(
        self,
        placement_key: bytes,
        constraints: tuple[TopologySpreadConstraint, ...],
        action: str,
        matching: Iterable[bool],
        *,
        by_default: bool = False,
    ) -> tuple[Constraint, ...]:
        """Return constraints with this action; ``matching``: whether each counts the pod itself.

        ``by_default``: the constraints are not the pod's own.
        """
        chosen = [c for c in constraints if c.when_unsatisfiable == action]
        keys = tuple(sorted({c.topology_key for c in chosen}))
        # Soft system defaults count on nodes that lack a key, too.
        need_all = action == HARD or not by_default or not self._system
        compiled = []
        for c, matches_self in zip(chosen, matching, strict=False):
            honor_affinity = not self._policies or c.node_affinity_policy in (None, "", "Honor")
            honor_taints = self._policies and c.node_taints_policy == "Honor"
            compiled.append(
                Constraint(
                    max_skew=c.max_skew,
                    topology_key=c.topology_key,
                    min_domains=1 if c.min_domains is None else c.min_domains,
                    matches_self=matches_self,
                    eligible_key=(
                        NAME,
                        keys if need_all else (),
                        placement_key if honor_affinity or honor_taints else b"",
                        honor_affinity,
                        honor_taints,
                        self._empty_term,
                        self._comparison_operators,
                    ),
                    honor_affinity=honor_affinity,
                    honor_taints=honor_taints,
                )
            )
        return tuple(compiled)

    def _selector(self, constraint: TopologySpreadConstraint, labels: dict[str, str]) -> Selector:
        selector = selector_from_label_selector(constraint.label_selector)
        if not self._match_label_keys:
            return selector
        keys = sorted({key for key in constraint.match_label_keys if key in labels})
        extra = [Requirement(key, EQUALS, (labels[key],)) for key in keys]
        if not extra:
            return selector
        # A selector of nothing has no requirements to keep: the keys alone remain, as upstream.
        base = Selector() if selector == NOTHING else selector
        return base.add(extra)
