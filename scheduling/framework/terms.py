"""Statements of plugins for the fast path: their rules about a class as numbers and counts.

A plugin that can state its Filter and Score for a class by one of these protocols need not run for
every pod (``engine.fast.fast_lane``). If it cannot, the reference path runs it. The plugin's own
``filter`` and ``score`` remain the rule; the statements must have equal results.
"""

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Protocol, runtime_checkable

import msgspec

from clusterstate.objects.values.pod import Pod
from scheduling.framework.arrays import Int64
from scheduling.framework.interface import Filter, Plugin
from scheduling.framework.node_table import NodeTable
from scheduling.framework.status import Code
from scheduling.framework.tables import Counter, Table
from scheduling.framework.types import PodInfo

Rejection = tuple[Code, tuple[str, ...]]
"""Code and reasons."""


class Kind(IntEnum):
    """How a term uses the count at a node's topology value."""

    NEAR = 0
    """Required affinity: there must be one; or none anywhere, for a pod that means itself."""
    ANTI = 1
    """Required anti-affinity: there must be none."""
    EXISTING = 2
    """Required anti-affinity of placed pods: there must be none."""
    SCORED = 3
    """Preferences: the sum of the counts is the raw score."""
    HARD = 4
    """DoNotSchedule: with the pod, not more than ``max_skew`` above the lowest count."""
    SOFT = 5
    """ScheduleAnyway: the sum of weighted counts is the raw score."""
    UNTOUCHED = 6
    """As long as nothing is counted anywhere, the plugin skips its score."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A rule about the counts of ``table``.

    ``single``: no two nodes share a topology value, so counts are by node. ``whole``, with it:
    counts are ``table.counter.rows``, also on nodes that are not eligible. ``matches_self``: the
    term selects the pod itself. ``min_domains``: how many domains HARD requires. ``by_size``: SOFT
    weights the term by the number of nodes, not of values. ``all_keys``: nodes that lack the label
    of any such SOFT term are not scored. ``taken``: the weight that a victim removes, where it
    differs from its weight in the counter.
    """

    kind: Kind
    table: Table
    single: bool
    whole: bool = False
    matches_self: bool = False
    max_skew: int = 0
    min_domains: int = 0
    by_size: bool = False
    all_keys: bool = False
    taken: Callable[[PodInfo], int] | None = None

    @property
    def from_zero(self) -> bool:
        """Whether there are fewer domains than required: the lowest count is 0 then."""
        return len(self.table.present) < self.min_domains


@runtime_checkable
class RequestFilter(Protocol):
    """A filter that compares requests with free amounts, and checks the number of pods."""

    def request_checks(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int]]:
        """Return each compared amount with its resource column.

        Each amount is what the pod requests of that column. Built-in plugins are called once for
        all pods that request the same resources (``engine.fast.requests``).
        """
        ...

    def request_rejection(self, pod: PodInfo, snapshot: NodeTable, bits: int) -> Rejection:
        """Return the filter's rejection of a node whose ``bits`` are not 0.

        Bit 0: too many pods; two bits for each amount: too little is free, too little exists.
        """
        ...


@runtime_checkable
class NamingFilter(Protocol):
    """A filter by which a pod may name its only possible node, as a DaemonSet's pods do."""

    def named_node(self, pod: PodInfo) -> tuple[str, Hashable] | None:
        """Return the node's name, and a key of everything else that the filter reads of the pod.

        ``None`` where the pod does not name exactly one node.
        """
        ...

    def without_name(self, pod: PodInfo) -> Pod:
        """Return a copy of the pod that names no node; called if ``named_node`` found one."""
        ...


@runtime_checkable
class CountedFilter(Protocol):
    """A filter that rejects rows on which a counter is above 0."""

    def rejecting_counter(self, pod: PodInfo, snapshot: NodeTable) -> tuple[Counter, Rejection]:
        """Return the counter, and the filter's rejection."""
        ...


class ColumnRequest(msgspec.Struct, frozen=True):
    """Amounts that must be free in columns of the snapshot, beside what the class requests.

    ``amounts``: column and amount. In a run, requested columns must be ``apart``, and ``once`` has
    what only one pod can have: no two pods of a run may share an item, and none may be taken
    already (``Snapshot.is_taken``).
    """

    amounts: tuple[tuple[int, int], ...]
    once: tuple[str, ...]


@runtime_checkable
class ColumnFilter(Plugin, Protocol):
    """A filter after NodeResourcesFit that for some pods only compares a few more amounts."""

    column_rejection: Rejection
    counts_nominated: bool
    """Whether it counts what pods will bring that are nominated to a node."""

    def column_request(self, pod: PodInfo, snapshot: NodeTable) -> ColumnRequest | None:
        """Return the amounts that must be free; ``None`` if the filter reads more, or nothing.

        Not ``None`` for pods whose ``aspect`` is neither empty nor ``None``. The caller must have
        called ``Snapshot.follow_columns`` before.
        """
        ...


class Strategy(msgspec.Struct, frozen=True):
    """How a node is scored by the used fraction of its resources.

    ``kind``: of ``framework.formulas``. ``table`` int64 (101,): for ``RATIO`` the score of each
    utilization in percent.
    """

    kind: int
    table: Int64


@runtime_checkable
class AllocationScore(Protocol):
    """A score by how much of its resources a node has left, such as NodeResourcesFit's."""

    strategy: Strategy
    scored_resources: tuple[str, ...]

    def scored(self, pod: PodInfo, snapshot: NodeTable) -> list[int]:
        """Return column, weight and amount of each scored resource, as a flat list.

        The amounts are those of ``PodInfo.scored_requests``. Called as often as ``request_checks``.
        """
        ...


@runtime_checkable
class BalanceScore(Protocol):
    """A score by how evenly resources are used, such as NodeResourcesBalancedAllocation's."""

    balanced_resources: tuple[str, ...]

    def balanced(self, pod: PodInfo, snapshot: NodeTable) -> list[int]:
        """Return column, weight and amount of each balanced resource, as a flat list.

        The amounts are those of ``PodInfo.requests``. Called as often as ``request_checks``.
        """
        ...


@runtime_checkable
class ScaledScore(Protocol):
    """A score of the node alone that NormalizeScore scales so that the highest is 100."""

    scaled_in_reverse: bool
    """Whether the highest raw score becomes 0 (``vectors.default_normalize``)."""


@runtime_checkable
class AffinityTerms(Protocol):
    """Filter and Score of InterPodAffinity: NEAR, ANTI, EXISTING, then SCORED scaled to 100."""

    affinity_rejections: tuple[Rejection, Rejection, Rejection]

    def affinity_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the terms of kinds NEAR, ANTI, EXISTING and SCORED."""
        ...

    def untouched_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the terms of kind UNTOUCHED."""
        ...


@runtime_checkable
class Relying(Filter, Protocol):
    """A filter that may accept a pod because of another pod.

    ``filter`` must not need any notes of PreFilter.
    """

    def relied_on(self, pod: PodInfo, snapshot: NodeTable) -> list[Counter]:
        """Return the counters whose higher counts may turn a rejection into acceptance.

        Empty where the class has no such rule.
        """
        ...


@runtime_checkable
class SpreadTerms(Protocol):
    """Filter and Score of PodTopologySpread: HARD, then SOFT, fewest first."""

    spread_rejections: tuple[Rejection, Rejection]
    """The rejection for a skew that is too large, and that for a missing label."""

    def spread_terms(self, pod: PodInfo, snapshot: NodeTable) -> list[Term]:
        """Return the terms of kinds HARD and SOFT."""
        ...


@runtime_checkable
class AlikeSpreadTerms(Protocol):
    """SpreadTerms that recognises classes whose terms differ only in the pods that they count."""

    def spread_alike(self, pod: PodInfo, snapshot: NodeTable) -> tuple[Hashable, Counter] | None:
        """Return a key that classes with like terms share, and the one counter of this class.

        For classes with equal keys, Filter and PreFilter pass all nodes, and the terms are equal
        except for their tables' counter, while nodes do not change. ``None``: not known of the
        class, or its terms count by several counters.
        """
        ...
