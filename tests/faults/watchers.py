"""Clients that list once and then watch, take up where they were cut off, and list again on 410."""

import random
import threading
import time

from tests.faults import replay
from tests.faults.checkers import REVISIONS, Violation
from tests.faults.history import History
from tests.faults.replay import Event, State
from tests.faults.wire import NoAnswer, Refused, Wire

PATHS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
_GONE = 410


def shared_by(kind: str) -> replay.Object:
    """Return what items of a list leave out, since all share it; watches do not."""
    version = PATHS[kind].removeprefix("/api/").removeprefix("/apis/").rpartition("/")[0]
    return {"apiVersion": version, "kind": kind}


class Follower(threading.Thread):
    """Follows one kind. ``restless``: hangs up by itself every few seconds."""

    def __init__(
        self, name: str, kind: str, wire: Wire, history: History, *, restless: random.Random | None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.kind = kind
        self.relists = 0
        self.resumed = 0
        self.events = 0
        self.violations: list[Violation] = []
        self._wire = wire
        self._history = history
        self._restless = restless
        self._state = State()
        self._journal: list[Event] = []
        self._gap = True
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def run(self) -> None:
        cursor: int | None = None
        while not self._stopping.is_set():
            try:
                if cursor is None:
                    cursor = self._list()
                    self.relists += 1
                cursor = self._watch(cursor)
            except NoAnswer:
                pass
            except Refused as refused:
                if refused.status == _GONE:
                    cursor = None
            if cursor is not None:
                with self._lock:
                    cursor = max(cursor, self._state.revision)
            self.resumed += 1
            self._stopping.wait(0.2)

    def _list(self) -> int:
        status, answer = self._wire.call("GET", PATHS[self.kind])
        if status != 200:
            raise NoAnswer(f"list: {status}")
        state = State(revision=int(answer["metadata"]["resourceVersion"]))
        for item in answer["items"]:
            item |= shared_by(self.kind)
            key = item["metadata"]["name"] if self.kind == "Node" else replay.uid_of(item)
            state.table(self.kind)[key] = item
        with self._lock:
            self._state, self._gap = state, True
        self._history.saw(state.revision)
        return state.revision

    def _watch(self, cursor: int) -> int | None:
        """Follow from a revision until the end of the stream; return where to go on."""
        path = f"{PATHS[self.kind]}?watch=1&allowWatchBookmarks=true&resourceVersion={cursor}"
        ends = None if self._restless is None else time.monotonic() + self._restless.uniform(1, 8)
        for line in self._wire.stream(path):
            verb, item = line["type"], line["object"]
            if verb == "ERROR":
                return None if item.get("code") == _GONE else cursor
            revision = replay.revision_of(item)
            if verb != "BOOKMARK":
                if revision <= cursor:
                    told = f"{self.name} was told {revision} after {cursor}"
                    self.violations.append(Violation(REVISIONS, told))
                self._take(Event(revision, self.kind, verb, item, time.time()))
            cursor = max(cursor, revision)
            if ends is not None and time.monotonic() > ends:
                break
            if self._stopping.is_set():
                break
        return cursor

    def _take(self, event: Event) -> None:
        with self._lock:
            self._state.apply(event)
            self._state.forget(20_000)
            self._journal.append(event)
            self.events += 1
        self._history.saw(event.revision)

    def at(self, revision: int) -> State:
        """Return what it knows as of a revision, or as of its last event if that is earlier."""
        with self._lock:
            state = self._state.copy()
        for _ in state.back_to(revision):
            pass
        return state

    def now(self) -> dict[str, replay.Object]:
        """Return the objects that it knows now."""
        with self._lock:
            return dict(self._state.table(self.kind))

    def drain(self, revision: int) -> tuple[bool, list[Event]]:
        """Return the events up to a revision since the last call, and whether it had to list."""
        with self._lock:
            gap, self._gap = self._gap, False
            taken = [event for event in self._journal if event.revision <= revision]
            self._journal = self._journal[len(taken) :]
            return gap, taken

    def stop(self) -> None:
        self._stopping.set()
        self._wire.cut()
