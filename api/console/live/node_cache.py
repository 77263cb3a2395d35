"""In-memory nodes with the total requests of their pods, updated from the change log.

Maps, lists and the palette read all nodes at once. Adding up 100,000 pods for each page would take
the database a third of a second; here only the nodes that a change names are read again, or all of
them after so many changes that this is quicker. The cache can be dropped at any moment; the next
page loads it again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from clusterstate.change_log import changes, replica
from clusterstate.change_log.changes import Change
from clusterstate.objects.values.errors import Expired
from clusterstate.processes import memory
from clusterstate.queries.nodes.fleet import FleetNode, fleet

KINDS: Final = ("Node", "Pod")
IsEnough = Callable[[int, float], bool]
_AT_ONCE: Final = 5000
_REPLICA_SECONDS: Final = 0.2
"""How long a page waits until a replica has what the primary has written."""
_FEW: Final = 1000
"""If more nodes than this changed, all are read again."""
_GONE_KEPT: Final = 5000


class Nodes(msgspec.Struct, frozen=True):
    """All nodes by name as of ``revision``; ``touched``: the revision at which each was read.

    ``gone``: names of deleted nodes, with the revision. ``began``: the revision of the first load;
    readers with an earlier one need all nodes.
    """

    items: list[FleetNode]
    revision: int
    touched: dict[str, int]
    gone: list[tuple[int, str]]
    began: int

    def since(self, revision: int) -> tuple[list[FleetNode], list[str]] | None:
        """Return nodes read and names deleted after a revision; ``None``: reload all nodes."""
        if revision < self.began:
            return None
        if len(self.gone) >= _GONE_KEPT and revision < self.gone[0][0]:
            return None  # nodes deleted then may be missing from ``gone``
        changed = [one for one in self.items if self.touched[one.name] > revision]
        return changed, [name for at, name in self.gone if at > revision]


class _Keeper:
    """Keeps the fleet's nodes in this process's memory, updated from the change log."""

    def __init__(self) -> None:
        # A reader may notice that the history of the rows was replaced, and call ``forget`` on its
        # thread.
        self._lock = threading.RLock()
        self._by_name: dict[str, FleetNode] = {}
        self._touched: dict[str, int] = {}
        self._gone: deque[tuple[int, str]] = deque(maxlen=_GONE_KEPT)
        self._cursor = -1
        self._began = 0
        self._current: Nodes | None = None
        self._read_at = 0.0

    def forget(self) -> None:
        """Have everything loaded again by the next reader."""
        with self._lock:
            self._cursor = -1

    def now(self, is_enough: IsEnough | None) -> Nodes:
        """Return the present nodes. Queries twice, or more after many changes.

        Returns the cached nodes if ``is_enough`` accepts their revision and age.
        """
        with self._lock:
            found, age = self._current, time.monotonic() - self._read_at
            if is_enough and found and self._cursor >= 0 and is_enough(found.revision, age):
                return found
            began = time.monotonic()
            mark = changes.settled(KINDS).mark

            def read() -> None:
                if self._cursor < 0 or not self._follow(mark):
                    self._load(mark)

            replica.read(read, least=mark, patience=_REPLICA_SECONDS)
            self._read_at = began
            found = self._current
            assert found is not None
            return found

    def _load(self, mark: int) -> None:
        self._cursor = -1
        nodes = fleet()
        self._by_name = {one.name: one for one in nodes}
        self._touched = dict.fromkeys(self._by_name, mark)
        self._gone.clear()
        self._cursor = self._began = mark
        self._show()

    def _follow(self, mark: int) -> bool:
        """Read the changes; return False if everything must be read again."""
        names: set[str] = set()
        cursor = self._cursor
        try:
            while cursor < mark:
                read = changes.read_since(cursor, mark=mark, kinds=KINDS, limit=_AT_ONCE)
                names.update(_nodes_of(read.items))
                if len(names) > _FEW:
                    return False
                cursor = read.cursor
                if not read.more:
                    break
        except Expired:
            return False
        if names:
            found = {one.name: one for one in fleet(sorted(names))}
            for name in names - found.keys():
                if self._by_name.pop(name, None) is not None:
                    self._gone.append((mark, name))
                    self._touched.pop(name, None)
            self._by_name.update(found)
            self._touched.update(dict.fromkeys(found, mark))
        changed = bool(names) or self._current is None
        self._cursor = mark
        if changed:
            self._show()
        elif self._current is not None:
            self._current = msgspec.structs.replace(self._current, revision=mark)
        return True

    def _show(self) -> None:
        self._current = Nodes(
            items=[self._by_name[name] for name in sorted(self._by_name)],
            revision=self._cursor,
            touched=dict(self._touched),
            gone=list(self._gone),
            began=self._began,
        )


def _nodes_of(items: Iterable[Change]) -> Iterable[str]:
    """Yield the names of the nodes that the changes affect."""
    for one in items:
        if one.kind == "Node":
            yield one.name
        else:
            if one.node_name:
                yield one.node_name
            if one.previous_node_name:
                yield one.previous_node_name


_keeper = _Keeper()
memory.when_replaced(_keeper.forget)


def nodes(is_enough: IsEnough | None = None) -> Nodes:
    """Return all nodes as of now, with every acknowledged change.

    ``is_enough``: given revision and age in seconds of the cached nodes, may they be used?
    """
    return _keeper.now(is_enough)
