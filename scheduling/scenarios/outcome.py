"""The outcome of a script with one configuration: each pod's result, and the cluster over time."""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from clusterstate.objects.values.meta import Manifest


class PodEnd(StrEnum):
    """Why a pod ended, or that it did not."""

    STAYS = ""
    FINISHED = "finished"
    DELETED = "deleted"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    LOST = "lost"


MOVED = frozenset({PodEnd.PREEMPTED, PodEnd.EVICTED, PodEnd.LOST})
"""Ends that neither the pod nor its script caused."""


class PodTimeline(msgspec.Struct, gc=False):
    """A pod's times, in seconds from the beginning, ``None`` for never; its node and its end.

    ``status``: why it was not placed, if it was not. ``by``: the preemptor, the taint or the node
    that caused its end. ``has_fixed_node``: the simulation did not choose its node, because the pod
    had it at the beginning or in its spec.
    """

    pod: str
    came_at: float
    bound_at: float | None = None
    node: str = ""
    left_at: float | None = None
    end: PodEnd = PodEnd.STAYS
    by: str = ""
    attempts: int = 0
    status: str = "pending"
    message: str = ""
    has_fixed_node: bool = False

    @property
    def waited(self) -> float | None:
        """Seconds until the pod was bound, ``None`` if it was not."""
        return None if self.bound_at is None else self.bound_at - self.came_at


class Sample(msgspec.Struct, frozen=True):
    """The cluster at one moment; ``used`` and ``fragmented`` are shares of allocatable amounts."""

    at: float
    pending: int
    running: int
    nodes: int
    nodes_used: int
    used: dict[str, float]
    fragmented: float


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one configuration; ``pods_on``: how many pods each node has at the end."""

    title: str
    fates: Sequence[PodTimeline]
    samples: Sequence[Sample]
    seconds: float
    pods_on: dict[str, int]
    measure: str
    cycles: int
    wall_seconds: float
    warnings: tuple[str, ...] = ()

    def summary(self) -> Manifest:
        """Return the figures by which configurations are compared.

        Waiting times are in seconds, of bound pods; means of ``used`` and ``fragmented`` are over
        time. ``moved``: pods that were preempted, evicted or lost. Pods with a fixed node are not
        among ``pods`` and have no waiting time; they count in ``used`` and ``moved``.
        """
        came = [fate for fate in self.fates if not fate.has_fixed_node]
        bound = [fate for fate in came if fate.bound_at is not None]
        waits = sorted(fate.waited or 0.0 for fate in bound)
        ends = {end: sum(fate.end is end for fate in self.fates) for end in PodEnd}
        found: Manifest = {
            "pods": len(came),
            "bound": len(bound),
            "neverBound": len(came) - len(bound),
            "waitMean": sum(waits) / len(waits) if waits else 0.0,
            "waitP50": quantile(waits, 0.5),
            "waitP90": quantile(waits, 0.9),
            "waitP99": quantile(waits, 0.99),
            "waitMost": waits[-1] if waits else 0.0,
            "preempted": ends[PodEnd.PREEMPTED],
            "evicted": ends[PodEnd.EVICTED],
            "lost": ends[PodEnd.LOST],
            "moved": sum(ends[end] for end in MOVED),
        }
        names = sorted({name for sample in self.samples for name in sample.used})
        for name in names:
            used = [sample.used.get(name, 0.0) for sample in self.samples]
            found[f"used:{name}"] = over_time(self.samples, used, self.seconds)
            found[f"peak:{name}"] = max(used, default=0.0)
        torn = [sample.fragmented for sample in self.samples]
        found["fragmented"] = over_time(self.samples, torn, self.seconds)
        found["fragmentedPeak"] = max(torn, default=0.0)
        found["nodesUsedPeak"] = max((s.nodes_used for s in self.samples), default=0)
        found["nodesUsed"] = over_time(
            self.samples, [float(s.nodes_used) for s in self.samples], self.seconds
        )
        return found


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile at ``share`` by nearest rank; 0 for an empty sequence."""
    if not ordered:
        return 0.0
    return ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1 if share else 0]


def over_time(samples: Sequence[Sample], values: Iterable[float], end: float) -> float:
    """Return the mean over time; each value lasts until the next sample, the last until ``end``."""
    total = covered = 0.0
    all_values = list(values)
    for number, sample in enumerate(samples):
        until = samples[number + 1].at if number + 1 < len(samples) else end
        total += all_values[number] * max(until - sample.at, 0.0)
        covered += max(until - sample.at, 0.0)
    if covered:
        return total / covered
    return all_values[-1] if all_values else 0.0
