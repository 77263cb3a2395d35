"""Groups waiting pods by what rejects them, with remedies for each group."""

from collections.abc import Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import GroupKey
from clusterstate.processes import steady_clock
from clusterstate.queries.pods.waiting import WaitingPod, waiting
from scheduling.answers.live import LiveWorld
from scheduling.answers.present import IN_FLIGHT, Present, priorities
from scheduling.answers.why import described, moving, stored_pod
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import group_key
from scheduling.simulation.document import API_VERSION, GROUP
from scheduling.simulation.gang_remedies import gang_remedies
from scheduling.simulation.gangs import shortfall
from scheduling.simulation.groups import BLOCKED, Group, grouped, most_common
from scheduling.simulation.remedies import Question, remedies
from scheduling.simulation.shortages import shortages

KIND: Final = "WaitingGroup"
PLURAL: Final = "waitinggroups"
_MOST_NAMED: Final = 10
_MOST_PODGROUPS: Final = 200
"""The most PodGroups of which it is found what they lack."""
_MOST_HELPED: Final = 10
"""The most groups of a list that get remedies, the largest first."""


class WaitingGroupsQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The question: which groups, of one namespace or all, and whether with remedies.

    A single group is returned with remedies and the names of all its pods. ``patches``: whether the
    user has the right to get the pods, since a remedy's patch repeats their containers.
    """

    namespace: str = ""
    name: str = ""
    remedies: bool = False
    patches: bool = True


def waiting_groups(world: LiveWorld, document: object) -> Manifest:
    """Return ``items``, the largest group first, the ``revision``, and pods ``notExamined``.

    Reserved pods, which wait on Permit, are left out. Queries four times and more. ``document``: a
    ``WaitingGroupsQuestion``.

    Raises:
        NotFound: no pods wait for the question's reasons any more.
    """
    question = msgspec.convert(document, WaitingGroupsQuestion)
    present = Present(world)
    pods = [
        one
        for one in waiting(question.namespace)
        if one.stage != IN_FLIGHT and not present.snapshot.knows(one.id)
    ]
    to_place = [present.to_place(one) for one in pods]
    groups, left_out = grouped(
        present.snapshot, present.framework, to_place,
        lacking=_lacking(present, to_place), go_on=world.go_on,
    )  # fmt: skip
    if question.name:
        groups = [one for one in groups if one.name == question.name]
        if not groups:
            text = f'{PLURAL}.{GROUP} "{question.name}" not found'
            raise NotFound(text, {"name": question.name, "kind": PLURAL, "group": GROUP})
    most = None if question.name else _MOST_NAMED
    items = [_manifest(group, pods, question.namespace, most=most) for group in groups]
    helped = _MOST_HELPED if question.name or question.remedies else 0
    for group, item in zip(groups[:helped], items, strict=False):
        item["status"]["remedies"] = _remedies(present, pods, group, patches=question.patches)
        if lacks := shortages(present.snapshot, group.members[0].info):
            item["status"]["shortages"] = lacks
    return {"items": items, "revision": world.revision, "notExamined": left_out}


def _lacking(present: Present, pods: Sequence[PodToPlace]) -> dict[int, str]:
    """Return what the largest PodGroups lack, by the indexes of their pods' classes."""
    members: dict[GroupKey, list[PodToPlace]] = {}
    for pod in pods:
        if (key := group_key(pod.info.pod)) is not None:
            members.setdefault(key, []).append(pod)
    found: dict[int, str] = {}
    now = steady_clock.now().timestamp()
    largest = sorted(members.items(), key=lambda one: (-len(one[1]), one[0]))
    for key, mine in largest[:_MOST_PODGROUPS]:
        present.world.go_on()
        framework = present.framework(mine[0].info.scheduler_name)
        if framework is None or not framework.schedules_groups:
            continue
        lacks = shortfall(present.snapshot, framework, key, mine, now)
        if lacks is not None:
            found |= dict.fromkeys((pod.info.index for pod in mine), f"{key[1]}: {lacks.message}")
    return found


def _remedies(
    present: Present, pods: list[WaitingPod], group: Group, *, patches: bool
) -> list[Manifest]:
    """Return the remedies for the largest class of a group."""
    members = group.members[0]
    framework = present.framework(group.scheduler_name)
    if framework is None:
        return []
    key = group_key(members.info.pod) if framework.schedules_groups else None
    if key is not None and (of_group := _of_group(present, framework, key, pods)):
        return of_group
    if group.state != BLOCKED or members.verdicts is None:
        return []
    pod = pods[members.pods[0]]
    stored = stored_pod(pod.namespace, pod.name) if patches else None
    question = Question(
        present.to_place(pod),
        present.queue(group.scheduler_name, pods),
        priorities(),
        present.world.go_on,
        stored,
    )
    try:
        found = remedies(present.snapshot, framework, question, members.verdicts)
        title = f"{pod.namespace}/{pod.name}"
        found += moving(present, question.pod, title, question.waiting)
    except PluginFailed:
        return []  # the group's reason names the failed plugin
    return [described(one, stored) for one in found]


def _of_group(
    present: Present, framework: Framework, key: GroupKey, pods: list[WaitingPod]
) -> list[Manifest]:
    """Return the remedies for a PodGroup."""
    places = [present.to_place(one) for one in pods]
    mine = [one for one in places if group_key(one.info.pod) == key]
    lacks = shortfall(present.snapshot, framework, key, mine)
    if lacks is None:
        return []
    found = gang_remedies(present.snapshot, framework, key, mine, lacks, present.world.go_on)
    return [described(one, None) for one in found]


def _manifest(
    group: Group, pods: list[WaitingPod], namespace: str, *, most: int | None
) -> Manifest:
    mine = [pods[number] for number in sorted(n for one in group.members for n in one.pods)]
    oldest = min(mine, key=lambda one: (one.since, one.id))
    metadata: Manifest = {"name": group.name, "creationTimestamp": format_time(oldest.since)}
    if namespace:
        metadata["namespace"] = namespace
    owners = [members.info.owner for members in group.members for _ in members.pods]
    names = [f"{one.namespace}/{one.name}" for one in mine]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"schedulerName": group.scheduler_name},
        "status": {
            "state": group.state,
            "pods": len(mine),
            "classes": len(group.members),
            "oldest": f"{oldest.namespace}/{oldest.name}",
            "since": format_time(oldest.since),
            "priorities": {
                "lowest": min(one.priority for one in mine),
                "highest": max(one.priority for one in mine),
            },
            "namespaces": most_common((one.namespace for one in mine), _MOST_NAMED),
            "owners": most_common((f"{o[1]}/{o[2]}" for o in owners if o), _MOST_NAMED),
            "nodes": {"feasible": group.feasible},
            "blockers": msgspec.to_builtins(group.blockers),
            "examples": names if most is None else names[:most],
        },
    }
