"""Keeps Events about pods in memory until the queue is empty, then writes them, the oldest first.

No decision reads Events, so a scheduler writes them last. A crash may lose some; the pods'
conditions and decision records state the same.
"""

from collections import deque
from datetime import UTC, datetime

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.change_log import wake
from clusterstate.queries.pods import pods_by_id

NORMAL, WARNING = "Normal", "Warning"
SCHEDULED = "Scheduled"
_AT_ONCE = 2000
_LONGEST_NOTE = 1024


class PodEvents:
    """Events about pods that this scheduler has not written yet."""

    def __init__(self) -> None:
        self._unwritten: deque[tuple[int, str, str, str]] = deque()

    def __len__(self) -> int:
        return len(self._unwritten)

    def note(self, pod_id: int, type_: str, reason: str, text: str) -> None:
        """Keep an event; for ``SCHEDULED`` the text is the name of the node."""
        self._unwritten.append((pod_id, type_, reason, text))

    def write(self, now: float, most: int | None = None) -> None:
        """Write the ``most`` oldest events, by default all; skip those of deleted pods.

        Queries once for each ``_AT_ONCE`` events, and writes as often.
        """
        count = len(self._unwritten) if most is None else min(most, len(self._unwritten))
        oldest = [self._unwritten.popleft() for _ in range(count)]
        moment = datetime.fromtimestamp(now, UTC)
        for first in range(0, len(oldest), _AT_ONCE):
            part = oldest[first : first + _AT_ONCE]
            rows = pods_by_id([pod_id for pod_id, *_ in part])
            with wake.without_scheduler():
                events.record_many(
                    [
                        Occurrence(
                            kind="Pod",
                            namespace=row.namespace,
                            name=row.name,
                            uid=row.uid,
                            type=type_,
                            reason=reason,
                            message=(
                                f"Successfully assigned {row.namespace}/{row.name} to {text}"
                                if reason == SCHEDULED
                                else _note(text)
                            ),
                        )
                        for pod_id, type_, reason, text in part
                        if (row := rows.get(pod_id)) is not None
                    ],
                    now=moment,
                )


def _note(message: str) -> str:
    """Return an Event's message; a longer one is cut and ends with " ...".

    The pod's condition has the full text. Rule: ``truncateMessage``, schedule_one.go, v1.36.
    """
    whole = message.encode()
    if len(whole) <= _LONGEST_NOTE:
        return message
    suffix = " ..."
    return whole[: _LONGEST_NOTE - len(suffix)].decode(errors="ignore") + suffix
