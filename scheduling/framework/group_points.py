"""Runs the plugins of a profile that take part in the placement of groups.

The engine's own placements, its count of pods and its preemption of groups are not plugins: they
apply where no plugin of a profile acts. Source: KEP-5732 and pkg/scheduler/framework/interface.go,
v1.37. Difference: PlacementFeasible runs once, after all pods were tried.
"""

from collections.abc import Sequence

from clusterstate.objects.values.pod_group import PodGroup
from scheduling.framework.answers import pair_of, rejected, status_of, wrong
from scheduling.framework.binding_points import BindingPoints
from scheduling.framework.interface import (
    PlacementFeasible,
    PlacementGenerate,
    PlacementScore,
    PodGroupPostFilter,
)
from scheduling.framework.node_table import NodeTable
from scheduling.framework.pod_groups import Placement, normalize_placement_scores
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import Nomination, PodInfo

Placed = Sequence[tuple[PodInfo, str]]
"""Pods of a group with the names of their nodes."""


class GroupPoints(BindingPoints):
    """The extension points of a group's cycle; the lists hold the plugins in their order."""

    placement_generate_plugins: list[PlacementGenerate]
    placement_feasible_plugins: list[PlacementFeasible]
    placement_score_plugins: list[PlacementScore]
    pod_group_post_filter_plugins: list[PodGroupPostFilter]
    placement_weights: dict[str, int]

    def generate_placements(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable
    ) -> list[Placement] | None:
        """Return the placements of the first plugin that gives any, ``None`` where none does.

        Raises:
            PluginFailed: a plugin failed, or a placement is not for as many pods as the group has.
        """
        for plugin in self.placement_generate_plugins:
            found: object = self._call(
                plugin, "PlacementGenerate", plugin.generate_placements, group, pods, snapshot
            )
            if found is None:
                continue
            if not isinstance(found, Sequence) or not all(
                isinstance(one, Placement)
                and (not one.parts or sum(count for _, count in one.parts) == len(pods))
                for one in found
            ):
                text = f"wanted placements of {len(pods)} pods each"
                raise wrong(plugin, "PlacementGenerate", text)
            return list(found)
        return None

    def placement_feasible(self, group: PodGroup, placed: Placed, snapshot: NodeTable) -> Status:
        """Return the first answer that rejects the placement, or Success.

        Raises:
            PluginFailed: a plugin failed.
        """
        for plugin in self.placement_feasible_plugins:
            status = self._ask(
                plugin, "PlacementFeasible", plugin.placement_feasible, group, placed, snapshot
            )
            if not status.ok:
                return rejected(plugin, "PlacementFeasible", status)
        return SUCCESS

    def score_placements(
        self, group: PodGroup, placements: Sequence[Placed], snapshot: NodeTable
    ) -> list[int]:
        """Return each placement's total score: 0-100 by number of pods, plus weighted plugins.

        Raises:
            PluginFailed: a plugin failed, or its score is no number from 0 on.
        """
        total = normalize_placement_scores([len(placed) for placed in placements])
        for plugin in self.placement_score_plugins:
            scores = []
            for placed in placements:
                score: object = self._call(
                    plugin, "PlacementScore", plugin.score_placement, group, placed, snapshot
                )
                if not isinstance(score, int) or score < 0:
                    raise wrong(plugin, "PlacementScore", f"returned {score!r}, wanted 0 or more")
                scores.append(score)
            weight = self.placement_weights[plugin.name]
            scores = normalize_placement_scores(scores)
            total = [one + weight * score for one, score in zip(total, scores, strict=True)]
        return total

    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable, status: Status
    ) -> list[Nomination | None] | None:
        """Return the nominations of the first plugin that succeeds, ``None`` where none does.

        Raises:
            PluginFailed: a plugin failed, or it does not answer for each pod.
        """
        point = "PodGroupPostFilter"
        for plugin in self.pod_group_post_filter_plugins:
            answer = self._call(
                plugin, point, plugin.pod_group_post_filter, group, pods, snapshot, status
            )
            found, verdict = pair_of(plugin, point, answer)
            told = status_of(plugin, point, verdict)
            if not told.ok:
                rejected(plugin, point, told)
                continue
            if (
                not isinstance(found, Sequence)
                or len(found) != len(pods)
                or not all(one is None or isinstance(one, Nomination) for one in found)
            ):
                raise wrong(
                    plugin, point, f"wanted a nomination or None for each of {len(pods)} pods"
                )
            return list(found)
        return None
