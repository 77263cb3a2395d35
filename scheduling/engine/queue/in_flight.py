"""The pods that are being decided, and the events since their decisions began."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from scheduling.engine.queue.pending import Entries, Entry
from scheduling.framework.events import ClusterEvent


class PodsInFlight:
    """Pods that are being decided; events are kept while one of these pods may need them.

    ``entries``: all pods of the queue, shared with it. ``event_count`` counts every event.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        # In the order of popping; finding the oldest key of a plain dict would be slow.
        self._pods: OrderedDict[int, None] = OrderedDict()
        self._events: deque[ClusterEvent] = deque()
        self._first_event = 0
        self.event_count = 0

    def __contains__(self, pod_id: int) -> bool:
        return pod_id in self._pods

    def add(self, entries: Iterable[Entry]) -> None:
        """Note that pods were popped: their decisions see all events so far."""
        first_event = self._first_event + len(self._events)
        pods = self._pods
        for entry in entries:
            entry.first_event = first_event
            pods[entry.pod.pod_id] = None

    def note(self, event: ClusterEvent) -> None:
        """Count an event, and store it if pods are in flight."""
        self.event_count += 1
        if self._pods:
            self._events.append(event)

    def events_since(self, entry: Entry) -> list[ClusterEvent]:
        """Return the events since a pod in flight was popped."""
        start = entry.first_event - self._first_event
        return [self._events[i] for i in range(start, len(self._events))]

    def remove(self, pod_id: int) -> bool:
        """Note that a pod is no longer in flight, and return whether it was.

        Drops the events that no other pod needs. The other pods are all in the queue.
        """
        if pod_id not in self._pods:
            return False
        del self._pods[pod_id]
        if self._events:
            self._forget_events()
        return True

    def _forget_events(self) -> None:
        if not self._pods:
            self._first_event += len(self._events)
            self._events.clear()
            return
        oldest = self._entries[next(iter(self._pods))].first_event
        while self._first_event < oldest:
            self._events.popleft()
            self._first_event += 1
