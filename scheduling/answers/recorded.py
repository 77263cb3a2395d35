"""Turns the live service's recent history into a script, to replay it under other configurations.

The script begins with the cluster at the first revision; every later change of a node, namespace,
budget, service or controller is a step. A pod is added at its creation, or when its last scheduling
gate was removed. It is removed after its recorded running time, counted from its binding: so a
configuration that binds it earlier frees its node earlier. A pod that was deleted before it was
bound is removed at the time of its deletion.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.change_log.changes import Change
from clusterstate.objects.values.document import SLOT, format_time
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.queries.objects.lists import list_at
from clusterstate.queries.past import revision_before
from scheduling.framework.events import diff_node
from scheduling.scenarios.outcome import Outcome
from scheduling.scenarios.playing import Progress, play
from scheduling.scenarios.script import Arrival, Gone, Script, Step
from scheduling.worker import profiles
from scheduling.worker.mirror import FOLLOWED

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_AT_ONCE: Final = 5000
_GPUS: Final = ("stowage.dev/gpu-milli", "nvidia.com/gpu")


class _PodLife(msgspec.Struct):
    """A recorded pod: the times of its creation, its binding and its end, in seconds."""

    came_at: float
    manifest: Manifest
    node: str = ""
    bound_at: float | None = None
    left_at: float | None = None


def script(
    *, since: datetime, until: datetime, seed: int = 0, go_on: Callable[[], None] = lambda: None
) -> Script:
    """Return the history between two moments as a script, as far as it reaches back.

    Queries a dozen times, and once for every 5,000 changes.

    Args:
        since: where the script begins.
        until: where it ends, at most now.
        seed: for the choice among equal nodes.
        go_on: called in loops; raises if the answer takes too long.

    Raises:
        Expired: the history was trimmed while it was read, or there was no node.
    """
    revision, began_at = revision_before(since)
    objects = [
        {"kind": kind, **msgspec.json.decode(item)}
        for kind in FOLLOWED
        for item in list_at(kind, revision)
    ]
    reader = _Reader(objects, began_at)
    mark = changes.settled(FOLLOWED).mark
    cursor, more = revision, True
    while more:
        go_on()
        news = changes.read_since(
            cursor, mark=mark, kinds=FOLLOWED, limit=_AT_ONCE, documents=FOLLOWED
        )
        for change in news.items:
            if change.at <= until:
                reader.note(change)
        cursor, more = news.cursor, news.more
    if not reader.knows_nodes:
        raise Expired("there was no node in this period, so there is nothing to replay")
    return reader.script(until, seed)


def ended(found: Script) -> str:
    """Return the end of a recorded script as RFC 3339 text."""
    return format_time(datetime.fromtimestamp(found.began_at + (found.until or 0.0), UTC))


def outcome(found: Script, *, progress: Progress | None = None) -> Outcome:
    """Return the outcome of a script with its recorded bindings, in the form of simulated ones."""
    configuration = profiles.in_force()[1]
    return play(found, configuration, title="recorded", follows=True, progress=progress)


class _Reader:
    """Turns changes of the log into steps of a script."""

    def __init__(self, objects: list[Manifest], began_at: datetime) -> None:
        self._began_at = began_at
        # Pods that wait at the beginning are added at second 0, with their records.
        self._waiting = {_place(one): _PodLife(0.0, one) for one in objects if _waits(one)}
        self._objects = [one for one in objects if not _is_over(one) and not _waits(one)]
        self._steps: dict[float, list[Step]] = defaultdict(list)
        self._pods: dict[int, _PodLife] = {}
        self._nodes = {
            one["metadata"]["name"]: msgspec.convert(one, Node)
            for one in objects
            if one["kind"] == "Node"
        }
        self._there = {_place(one) for one in self._objects if one["kind"] == "Pod"}
        self.knows_nodes = bool(self._nodes)

    def _seconds(self, moment: datetime) -> float:
        return max((moment - self._began_at).total_seconds(), 0.0)

    def note(self, change: Change) -> None:
        """Add the steps for one change."""
        at = self._seconds(change.at)
        if change.kind == "Pod":
            self._note_pod(change, at)
            return
        gone = change.verb == changes.DELETED
        if change.kind == "Node" and gone:
            self._nodes.pop(change.name, None)
        if gone:
            step = Step(at, gone=(Gone(change.kind, change.namespace, change.name),))
            self._steps[at].append(step)
        elif change.text is not None:
            manifest = _decoded(change)
            if change.kind == "Node":
                self.knows_nodes = True
                node = msgspec.convert(manifest, Node)
                before = self._nodes.get(change.name)
                self._nodes[change.name] = node
                if before is not None and not diff_node(before, node):
                    return
            self._steps[at].append(Step(at, objects=(manifest,)))

    def _note_pod(self, change: Change, at: float) -> None:
        life = self._pods.get(change.object_id)
        over = change.verb == changes.DELETED or change.phase in _FINISHED
        if life is None:
            place = (change.namespace, change.name)
            life = None if change.verb == changes.ADDED else self._waiting.get(place)
        if life is None:
            place = (change.namespace, change.name)
            if place in self._there and change.verb != changes.ADDED:
                if over:
                    self._there.discard(place)
                    self._steps[at].append(Step(at, gone=(Gone("Pod", *place),)))
                return
            if change.verb != changes.ADDED or change.text is None:
                return
            life = _PodLife(at, _decoded(change))
            if change.node_name:  # set at its creation: the text has no nodeName
                life.manifest["spec"]["nodeName"] = change.node_name
        self._pods[change.object_id] = life
        if life.bound_at is None and change.text is not None and _is_gated(life.manifest):
            manifest = _decoded(change)
            if not _is_gated(manifest):
                life.manifest, life.came_at = manifest, at
        if change.node_name and life.bound_at is None:
            bound = at if change.scheduled_at is None else self._seconds(change.scheduled_at)
            life.node, life.bound_at = change.node_name, max(bound, life.came_at)
        if over and life.left_at is None:
            life.left_at = at

    def script(self, until: datetime, seed: int) -> Script:
        """Return the steps up to ``until`` as a script."""
        steps = [step for together in self._steps.values() for step in together]
        came = (*self._waiting.values(), *self._pods.values())
        for life in {id(one): one for one in came}.values():
            wait = None if life.bound_at is None else life.bound_at - life.came_at
            runs = None
            if life.left_at is not None and life.bound_at is not None:
                runs = max(life.left_at - life.bound_at, 0.0)
            elif life.left_at is not None:
                meta = life.manifest["metadata"]
                gone = Gone("Pod", meta["namespace"], meta["name"])
                steps.append(Step(life.left_at, gone=(gone,)))
            arrival = Arrival(life.manifest, runs, recorded_node=life.node, recorded_wait=wait)
            steps.append(Step(life.came_at, arrivals=(arrival,)))
        steps.sort(key=lambda step: step.at)
        offered = {
            name for node in self._nodes.values() for name in (node.status.allocatable or {})
        }
        return Script(
            title="the recent past",
            objects=self._objects,
            steps=steps,
            until=self._seconds(until),
            began_at=self._began_at.timestamp(),
            seed=seed,
            admission=False,
            scored=(*(name for name in _GPUS if name in offered), "cpu", "memory"),
        )


def _decoded(change: Change) -> Manifest:
    assert change.text is not None
    found: Manifest = msgspec.json.decode(change.text.replace(SLOT, ""))
    return {"kind": change.kind, **found}


def _place(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _waits(manifest: Manifest) -> bool:
    """Return whether an object is a pod that is on no node yet."""
    on_a_node = manifest["kind"] != "Pod" or manifest["spec"].get("nodeName")
    return not on_a_node and not _is_over(manifest)


def _is_gated(pod: Manifest) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _is_over(manifest: Manifest) -> bool:
    if manifest["kind"] != "Pod":
        return False
    return (manifest.get("status") or {}).get("phase") in _FINISHED
