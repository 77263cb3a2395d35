"""Owned pods as the workload controllers see them, and the rules that all of them share.

Pure. Rules: pkg/controller/controller_utils.go (``ActivePodsWithRanks``, ``FilterActivePods``) and
pkg/api/v1/pod/util.go (``IsPodAvailable``), v1.36.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import Final

import msgspec

from clusterstate.objects.values import moments

FINISHED: Final = ("Succeeded", "Failed")
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class OwnedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that controllers read.

    ``owner``: the uid of the managing owner, empty without one. ``ready_at``: since when it is
    ready, ``None`` while it is not. ``is_assumed``: its node has no agent that reports on it, so it
    counts as ready since it was bound. ``is_tracked``: no Job has counted its end yet. ``target``:
    the node that its affinity names. ``exit_codes``: ended containers with their codes;
    ``conditions``: types and statuses. Only a Job's pods have both.
    """

    id: int
    uid: str
    name: str
    owner: str
    owner_kind: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    phase: str = "Pending"
    node_name: str = ""
    target: str = ""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    is_leaving: bool = False
    ready_at: datetime | None = None
    is_assumed: bool = False
    is_tracked: bool = False
    restarts: int = 0
    exit_codes: tuple[tuple[str, int], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether the pod has neither ended nor been deleted."""
        return not self.is_leaving and self.phase not in FINISHED

    @property
    def phase_is_final(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in FINISHED

    @property
    def is_ready(self) -> bool:
        """Whether the pod is ready."""
        return self.ready_at is not None

    def available_at(self, min_ready_seconds: int) -> datetime | None:
        """Return when the pod becomes available, ``None`` while it is not ready."""
        if self.ready_at is None:
            return None
        return moments.after(self.ready_at, min_ready_seconds)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Return whether the pod has been ready for ``min_ready_seconds``."""
        at = self.available_at(min_ready_seconds)
        return at is not None and (min_ready_seconds == 0 or at <= now)


def next_available(
    pods: Iterable[OwnedPod], min_ready_seconds: int, now: datetime
) -> datetime | None:
    """Return when the next of these pods becomes available without a change."""
    upcoming = (one.available_at(min_ready_seconds) for one in pods)
    return min((at for at in upcoming if at is not None and at > now), default=None)


def surplus(
    pods: Sequence[OwnedPod], count: int, *, related: Iterable[OwnedPod], now: datetime
) -> list[OwnedPod]:
    """Return the pods that their owner should delete first.

    In this order: without a node, not running, not ready, cheaper to delete
    (``pod-deletion-cost``), sharing their node with more ``related`` pods, ready for less time (by
    powers of two), restarted more often, newer.
    """
    if count >= len(pods):
        return list(pods)
    crowd = Counter(one.node_name for one in related if one.is_active)

    def compare(one: OwnedPod, other: OwnedPod) -> int:
        for mine, others in zip(_rank(one, crowd), _rank(other, crowd), strict=True):
            if mine != others:
                return -1 if mine < others else 1
        if one.ready_at and other.ready_at and one.ready_at != other.ready_at:
            return _younger(one, other, one.ready_at, other.ready_at, now)
        if one.restarts != other.restarts:
            return -1 if one.restarts > other.restarts else 1
        if one.created_at != other.created_at:
            return _younger(one, other, one.created_at, other.created_at, now)
        return -1 if one.uid < other.uid else 1

    return sorted(pods, key=cmp_to_key(compare))[:count]


_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def _rank(one: OwnedPod, crowd: Mapping[str, int]) -> tuple[int, ...]:
    return (
        one.node_name != "",
        _PHASES.get(one.phase, 0),
        one.is_ready,
        _cost(one),
        -crowd[one.node_name] if one.node_name else 0,
    )


def _cost(one: OwnedPod) -> int:
    try:
        return int(one.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _younger(
    one: OwnedPod, other: OwnedPod, mine: datetime, others: datetime, now: datetime
) -> int:
    ages = _magnitude(now - mine), _magnitude(now - others)
    if ages[0] == ages[1]:
        return -1 if one.uid < other.uid else 1
    return -1 if ages[0] < ages[1] else 1


def _magnitude(age: timedelta) -> int:
    """Return the power of two of an age in nanoseconds, -1 for none."""
    nanoseconds = age.total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def explanation(pods: Iterable[OwnedPod]) -> str:
    """Return what keeps pods from being ready, or why they count as ready; empty if nothing."""
    active = [one for one in pods if one.is_active]
    unbound = sum(not one.node_name for one in active)
    unready = sum(bool(one.node_name) and not one.is_ready for one in active)
    assumed = sum(one.is_assumed for one in active)
    parts = []
    if unbound:
        parts.append(f"{unbound} without a node")
    if unready:
        parts.append(f"{unready} not reported ready by the agent of their node")
    if assumed:
        parts.append(f"{assumed} counted as ready once bound, since their nodes have no agent")
    return f"Pods: {', '.join(parts)}." if parts else ""
