"""PodGroups, as far as decisions look at them; and the conditions that scheduling writes.

The wire form is ``scheduling.k8s.io/v1beta1``. Rules of conditions: ``updatePodGroupCondition``,
pkg/scheduler/schedule_one_podgroup.go, v1.36, with the names of v1.37.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.meta import Manifest, ObjectMeta, prepare
from clusterstate.objects.values.numbers import annotated_number

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition's type; once it is True it stays so (v1.37)."""
SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"

PREFERRED_TOPOLOGY: Final = "stowage.dev/preferred-topology"
"""The annotation of a PodGroup with the labels of levels that it prefers, the widest first."""

LOST_WORK: Final = "stowage.dev/lost-work"
"""The annotation of a PodGroup with the seconds of work that its pods lose when they leave now."""

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""


class GangSchedulingPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All or nothing, from this many pods on."""

    min_count: int = 1


class PodGroupSchedulingPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``gang``, or basic where that is absent."""

    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node label: the nodes of all pods of the group must have the same value of it."""

    key: str = ""


class PodGroupSchedulingConstraints(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a group may be."""

    topology: tuple[TopologyConstraint, ...] = ()


class DisruptionMode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``all``: the pods of a group leave together."""

    all: dict[str, str] | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``spec`` of a PodGroup."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group of pods that are scheduled together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def key(self) -> GroupKey:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def min_count(self) -> int:
        """How many pods have to be placed at once; 1 of a basic group."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else max(gang.min_count, 1)

    @property
    def is_gang(self) -> bool:
        """Whether the group waits until ``min_count`` pods are there and fit."""
        return self.spec.scheduling_policy.gang is not None

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The labels of nodes that the pods have in common."""
        constraints = self.spec.scheduling_constraints
        return () if constraints is None else tuple(one.key for one in constraints.topology)

    @property
    def preferred_levels(self) -> tuple[str, ...]:
        """The labels of nodes that the pods have in common where that is possible, widest first."""
        return levels_of(self.metadata.annotations.get(PREFERRED_TOPOLOGY, ""))

    @property
    def lost_work(self) -> float | None:
        """How many seconds of work are lost when pods of the group leave, ``None`` if not said."""
        return annotated_number(self.metadata.annotations.get(LOST_WORK, ""))

    @property
    def leaves_together(self) -> bool:
        """Whether the pods are disrupted together or not at all."""
        mode = self.spec.disruption_mode
        return mode is not None and mode.all is not None

    def outranks(self, priority: int) -> bool:
        """Whether the group has a priority of its own that is not below this one."""
        return self.spec.priority is not None and self.spec.priority >= priority


prepare(PodGroup)


def levels_of(text: str) -> tuple[str, ...]:
    """Return the label keys in the text of the annotation, which commas separate."""
    return tuple(found for part in text.split(",") if (found := part.strip()))


def with_condition(
    conditions: Sequence[Manifest], new: Manifest, *, generation: int, now: datetime
) -> list[Manifest] | None:
    """Return a group's conditions with one more, ``None`` where they stay as they are.

    A group that was scheduled once stays so, whatever becomes of pods that come later. The time
    of the last transition moves with the status alone (``meta.SetStatusCondition``).
    """
    before = next((one for one in conditions if one.get("type") == new["type"]), None)
    if before is not None and before.get("status") == "True" and new["status"] != "True":
        return None
    changed = before is None or before.get("status") != new["status"]
    stamped = {
        **new,
        **({"observedGeneration": generation} if generation else {}),
        "lastTransitionTime": format_time(now) if changed or before is None
        else before.get("lastTransitionTime"),
    }  # fmt: skip
    if before is None:
        return [*conditions, stamped]
    merged = {**before, **stamped}
    if merged == before:
        return None
    return [merged if one is before else one for one in conditions]
