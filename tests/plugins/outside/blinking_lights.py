"""Plugins of another package: everything that it knows of the service is the contract."""

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from scheduling.framework.events import ANYTHING, EVERY_EVENT, Registration, Resource
from scheduling.framework.handles import WaitingPods
from scheduling.framework.interface import CycleState, Scores
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, unschedulable
from scheduling.framework.types import PodInfo

LIGHTS = "example.com/blinking-lights"
GANG = "example.com/gang"


class BlinkingLightScorer:
    """Ranks nodes by how many blinking lights they have: one node at a time."""

    name = "BlinkingLightScorer"

    def score_node(self, pod: Any, node: Any) -> int:
        return int(node.metadata.labels.get(LIGHTS, "0"))

    def normalize_scores(self, scores: dict[str, int]) -> None:
        highest = max(scores.values(), default=0)
        for name, score in scores.items():
            scores[name] = score * 100 // highest if highest else 0


class QuietRack:
    """Prefers nodes with few pods in their rack: arrays in, arrays out."""

    name = "QuietRack"

    class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
        rack_label: str = "example.com/rack"

    def __init__(self, args: Args) -> None:
        self._label = args.rack_label

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        everywhere = snapshot.rows()
        racks = snapshot.label_column(self._label).ids
        counts = np.zeros(int(racks.max(initial=-1)) + 2, np.int64)
        np.add.at(counts, racks[everywhere], snapshot.pod_count[everywhere])
        return counts[racks[rows]]

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        highest = max(int(scores.max(initial=0)), 1)
        return 100 - 100 * scores // highest


class Gang:
    """Lets the pods of a gang go together."""

    name = "Gang"

    class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
        size: Annotated[int, msgspec.Meta(ge=1)] = 2
        timeout_seconds: Annotated[float, msgspec.Meta(ge=0)] = 600.0
        deaf: bool = False

    def __init__(self, args: Args) -> None:
        self._args = args

    def events_to_register(self) -> tuple[Registration, ...]:
        return () if self._args.deaf else EVERY_EVENT

    def use_waiting_pods(self, waiting_pods: WaitingPods) -> None:
        self._waiting = waiting_pods

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]:
        gang = pod.labels.get(GANG)
        if gang is None:
            return SUCCESS, 0
        others = [one for one in self._waiting.all() if one.pod.labels.get(GANG) == gang]
        if "example.com/cancel" in pod.labels:
            for one in others:
                one.reject(self.name, f"cancelled by {state.pod_name}")
            return SUCCESS, 0
        if len(others) + 1 < self._args.size:
            return Status(Code.WAIT), self._args.timeout_seconds
        for one in others:
            one.allow(self.name)
        return SUCCESS, 0


class Journal:
    """Writes into a file what it is asked, and refuses where a pod's label tells it to."""

    name = "Journal"

    class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        file: str
        hold: str = ""

    def __init__(self, args: Args) -> None:
        self._args = args

    def _note(self, point: str, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        with Path(self._args.file).open("a") as journal:
            journal.write(f"{point} {state.pod_name} {node_name}\n")
        if pod.labels.get("example.com/refuse") == point:
            return unschedulable(f"{point} does not like it")
        if pod.labels.get("example.com/raise") == point:
            raise RuntimeError("out of ink")
        return SUCCESS

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        state.write("journal", {"node": node_name})
        return self._note("reserve", state, pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._note("unreserve", state, pod, node_name)

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        assert state.read("journal", dict) == {"node": node_name}
        status = self._note("pre_bind", state, pod, node_name)
        while self._args.hold and Path(self._args.hold).exists():
            time.sleep(0.02)
        return status

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._note("post_bind", state, pod, node_name)


class Door:
    """Lets pods into the queue that nobody holds back; those of high rank go first."""

    name = "Door"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("held") if "example.com/held" in pod.labels else SUCCESS

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        if "example.com/raise" in pod.labels:
            raise RuntimeError("no key")
        return (-float(pod.labels.get("example.com/rank", "0")),)


class Courier:
    """Binds pods that are labelled for it, and declines all others."""

    name = "Courier"

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if "example.com/courier" in pod.labels else SKIP


class Leader:
    """Refuses those who follow until one who leads says that they may come, and where it is said.

    No event helps them: only the leader has them tried again.
    """

    name = "Leader"

    class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        file: str

    def __init__(self, args: Args) -> None:
        self._said = Path(args.file)

    def events_to_register(self) -> list[Any]:
        return []

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: NodeTable) -> Any:
        if "example.com/follows" in pod.labels and not self._said.exists():
            return None, unschedulable("nobody leads")
        return None, SUCCESS

    def _lead(self, point: str, state: CycleState, pod: PodInfo) -> None:
        if pod.labels.get("example.com/leads") == point:
            self._said.touch()
            state.pods_to_activate.extend(["ns/one", "ns/two", "ns/unknown", "no name"])

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]:
        self._lead("permit", state, pod)
        if "example.com/denied" in pod.labels:
            return unschedulable("denied"), 0
        return SUCCESS, 0

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self._lead("pre_bind", state, pod)
        return SUCCESS

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._lead("post_bind", state, pod)


class Faulty:
    """Misbehaves as its argument says."""

    name = "Faulty"

    class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        how: str = "raise"

    def __init__(self, args: Args) -> None:
        if args.how == "make":
            raise RuntimeError("no plugin today")
        self._how = args.how

    def events_to_register(self) -> Any:
        if self._how == "events":
            raise RuntimeError("no events today")
        if self._how == "event":
            return ["NodeAdd"]
        return [Registration(resource=Resource.ANY, actions=ANYTHING, hint=self._hint)]

    def _hint(self, pod: Any, event: Any) -> bool:
        raise RuntimeError("no hint today")

    def use_waiting_pods(self, waiting_pods: Any) -> None:
        if self._how == "handle":
            raise RuntimeError("no handle today")

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Any:
        if self._how == "hint" and snapshot.row_of("late") is None:
            return None, unschedulable("too early")
        return None, SUCCESS

    def score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        if self._how == "raise":
            raise ValueError("no lights")
        if self._how == "shape":
            return np.zeros(len(rows) + 1, np.int64)
        if self._how == "range":
            return np.full(len(rows), 101, np.int64)
        if self._how == "hint":
            return np.zeros(len(rows), np.int64)
        return [0] * len(rows)
