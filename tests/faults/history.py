"""What the clients did and what they were told, kept outside the service.

An operation is written down before it is sent and again when it was answered, so that a killed run
leaves its history. Outcomes are Jepsen's: ``ok``, ``failed`` (refused, so it must not have
happened), ``unknown`` (no answer, or a server's error: it may have happened, also later).
"""

import json
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass
class Operation:
    """One request. ``saw`` is the highest revision that any client knew when it was sent.

    ``revision`` is the resourceVersion in the answer, ``uid`` the object's; ``detail`` is what the
    checkers need besides: the label's value that a patch wrote, or the pods of a list.
    """

    number: int
    client: str
    verb: str
    name: str
    sent_at: float
    saw: int = 0
    outcome: str = UNKNOWN
    answered_at: float | None = None
    status: int = 0
    revision: int = 0
    uid: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


class History:
    """Every operation of a run, in memory and in a file of JSON lines; threads may share it."""

    def __init__(self, file: Path | None = None) -> None:
        self.operations: list[Operation] = []
        self._file = file.open("w") if file else None
        self._lock = threading.Lock()
        self._highest = 0

    def begin(self, client: str, verb: str, name: str, **detail: Any) -> Operation:
        """Write down that an operation is about to be sent."""
        with self._lock:
            number = len(self.operations)
            now = time.time()
            one = Operation(number, client, verb, name, now, self._highest, detail=detail)
            self.operations.append(one)
            self._write("invoke", one)
            return one

    def end(
        self, one: Operation, outcome: str, *, status: int = 0, revision: int = 0, uid: str = ""
    ) -> None:
        """Write down how it was answered."""
        with self._lock:
            one.outcome, one.status, one.answered_at = outcome, status, time.time()
            one.revision, one.uid = revision, uid
            self._highest = max(self._highest, revision)
            self._write(outcome, one)

    def saw(self, revision: int) -> None:
        """Note a revision that a client was told, by a watch or a list."""
        with self._lock:
            self._highest = max(self._highest, revision)

    @property
    def highest(self) -> int:
        """The highest revision that anybody was told."""
        return self._highest

    def note(self, **fields: Any) -> None:
        """Write a line that is no operation: a fault, a heal, a violation."""
        with self._lock:
            if self._file:
                self._file.write(json.dumps({"at": time.time(), **fields}, default=str) + "\n")
                self._file.flush()

    def _write(self, what: str, one: Operation) -> None:
        if self._file:
            self._file.write(json.dumps({"what": what, **asdict(one)}) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
