"""The solver in a child process, so that the product's processes neither block nor grow.

Each process has at most one child. It starts on first use, lowers its priority once it has loaded
(niceness 19), has the memory limit of ``child_process``, and ends when it gets no request for a
minute or its parent ends. Requests and answers go through its standard input and output, each a
length and MessagePack. It sends each better placement while it searches; if it dies or is too late,
the last one is the answer, with the bound that needs no search.
"""

import atexit
import importlib.util
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

import msgspec
import numpy as np

from clusterstate.objects.values.errors import ServiceUnavailable
from scheduling.framework.arrays import Int64
from scheduling.packing import child_process
from scheduling.packing.problem import MOST_CELLS, Bought, Needs, PackingAnswer, Problem

NOT_INSTALLED: Final = (
    "this question needs OR-tools, which is not installed: install Stowage with the extra"
    " `solver` (pip install 'stowage[solver]'), or run make up, which does"
)
_IDLE_SECONDS: Final = 60.0
_START_SECONDS: Final = 300.0
"""On a busy machine a child may take this long to load; the asker may stop earlier (``go_on``)."""
_GRACE_SECONDS: Final = 6.0
_LENGTH: Final = struct.Struct(">Q")
_LOOK_SECONDS: Final = 0.1
_LOWEST: Final = 19
"""The niceness: a busy process of the usual one gets 68 times as much."""


def is_installed() -> bool:
    """Return whether the solver is installed here."""
    return importlib.util.find_spec("ortools") is not None


def ask(
    problem: Problem,
    *,
    work: float,
    seconds: float,
    seed: int = 0,
    go_on: Callable[[], None] = lambda: None,
) -> PackingAnswer:
    """Return the best placement that the solver's process finds.

    Args:
        problem: the pods and nodes of the packing problem.
        work: see ``search.pack``.
        seconds: when the search ends at the latest.
        seed: for the random choice of nodes.
        go_on: called about once a second; if it raises, because the time is over, the child is
            killed.

    Raises:
        ServiceUnavailable: the solver is not installed, the problem is too large for it, or its
            process ended before it had any answer.
    """
    if not is_installed():
        raise ServiceUnavailable(NOT_INSTALLED)
    if problem.limits.size > MOST_CELLS:
        raise ServiceUnavailable(
            f"{problem.limits.shape[0]} classes of pods on {problem.limits.shape[1]} nodes are"
            f" more than the packer takes ({MOST_CELLS} pairs)"
        )
    asked = {"problem": problem, "work": work, "seconds": seconds, "seed": seed}
    found = _solver.ask(asked, seconds, go_on)
    if isinstance(found, np.ndarray):
        return _of(problem, found)
    assert isinstance(found, PackingAnswer)
    return found


def buy(
    needs: Needs,
    *,
    work: float,
    seconds: float,
    seed: int = 0,
    go_on: Callable[[], None] = lambda: None,
) -> Bought:
    """Return the cheapest set of nodes that the solver's process finds (``purchase.buy``).

    Raises:
        ServiceUnavailable: the solver is not installed, or its process ended.
    """
    if not is_installed():
        raise ServiceUnavailable(NOT_INSTALLED)
    asked = {"needs": needs, "work": work, "seconds": seconds, "seed": seed}
    found = _solver.ask(asked, seconds, go_on)
    if not isinstance(found, Bought):
        raise ServiceUnavailable("the solver's process ended without an answer")
    return found


class _Solver:
    """The child of this process; requests wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._used_at = 0.0

    def ask(
        self,
        asked: object,
        seconds: float,
        go_on: Callable[[], None],
    ) -> "PackingAnswer | Bought | Int64":
        """Return the answer, or the last placement if the child ended without an answer."""
        while not self._lock.acquire(timeout=_LOOK_SECONDS):
            go_on()
        try:
            child = self._started()
            return self._answer(child, asked, seconds, go_on)
        finally:
            self._lock.release()

    def _started(self) -> "subprocess.Popen[bytes]":
        """Return a child that waits for a request; a new one if the old may have ended."""
        child = self._child
        if (
            child is not None
            and child.poll() is None
            and time.monotonic() - self._used_at < _IDLE_SECONDS / 2
        ):
            return child
        self.end()
        self._child = child_process.start("scheduling.packing.process")
        return self._child

    def end(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        child_process.end(child)

    def _answer(
        self,
        child: "subprocess.Popen[bytes]",
        asked: object,
        seconds: float,
        go_on: Callable[[], None],
    ) -> "PackingAnswer | Bought | Int64":
        last: Int64 | None = None
        until = time.monotonic() + _START_SECONDS + seconds + _GRACE_SECONDS
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it died: reading reports that
                _send(child.stdin, asked)
            frames = _Frames(child.stdout)
            while time.monotonic() < until:
                go_on()
                texts = frames.read(_LOOK_SECONDS)
                if texts is None:
                    break
                for text in texts:
                    found = msgspec.msgpack.decode(text, type=_Frame, dec_hook=_decoded)
                    answer = found.packed or found.bought
                    if answer is not None:
                        self._used_at = time.monotonic()
                        return answer
                    if last is None:  # from now on only its own deadline counts
                        until = time.monotonic() + seconds + _GRACE_SECONDS
                    last = found.better
        except BaseException:
            self.end()
            raise
        self.end()
        if last is None:
            raise ServiceUnavailable("the solver's process ended without an answer")
        return last


_solver = _Solver()
atexit.register(_solver.end)


class _Frame(msgspec.Struct):
    """A message of the child: a better placement, or finally the answer."""

    better: Int64 | None = None
    packed: PackingAnswer | None = None
    bought: Bought | None = None


def _of(problem: Problem, x: Int64) -> PackingAnswer:
    """Return an answer with a placement only, and a bound that needs no search."""
    value = problem.placed_value(x)
    most = int(problem.weights @ np.minimum(problem.most_of_each().sum(1), problem.counts))
    return PackingAnswer(
        x=x, value=value, most=most, cost=problem.cost(x), least=0, greedy=value, steps=0, work=0.0
    )  # fmt: skip


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.shape, value.dtype.char, np.ascontiguousarray(value).tobytes()]
    raise TypeError(f"{type(value)} is not sent")


def _decoded(kind: Any, value: Any) -> Any:
    shape, char, raw = value
    return np.frombuffer(raw, char).reshape(shape).copy()


def _send(stream: IO[bytes], value: object) -> None:
    text = msgspec.msgpack.encode(value, enc_hook=_encoded)
    stream.write(_LENGTH.pack(len(text)) + text)
    stream.flush()


class _Frames:
    """Reads whole frames from a pipe without blocking."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._descriptor = stream.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._descriptor, selectors.EVENT_READ)
        self._buffer = bytearray()

    def read(self, seconds: float) -> list[bytes] | None:
        """Return the frames that arrive within ``seconds``, ``None`` at the end of the pipe."""
        if not self._selector.select(seconds):
            return []
        text = os.read(self._descriptor, 1 << 20)
        if not text:
            return None
        self._buffer += text
        found = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            found.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return found


class _PackingQuestion(msgspec.Struct):
    """A request to the child."""

    work: float
    seconds: float
    seed: int
    problem: Problem | None = None
    needs: Needs | None = None


def main() -> None:
    """Answer requests on standard input until it ends, or until none comes for a minute."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from scheduling.packing import search

    child_process.give_way(_LOWEST)  # after the imports, which would take a minute at low priority
    frames = _Frames(sys.stdin.buffer)
    answers = sys.stdout.buffer
    waiting: list[bytes] = []
    idle_since = time.monotonic()
    while True:
        came = frames.read(_LOOK_SECONDS * 10)
        if came is None:
            return
        waiting += came
        if not waiting and time.monotonic() - idle_since > _IDLE_SECONDS:
            return
        while waiting:
            asked = msgspec.msgpack.decode(waiting.pop(0), type=_PackingQuestion, dec_hook=_decoded)
            limits = {"work": asked.work, "seconds": asked.seconds}
            if asked.needs is not None:
                from scheduling.packing import purchase

                bought = purchase.buy(asked.needs, **limits, seed=asked.seed)
                _send(answers, _Frame(bought=bought))
            if asked.problem is not None:
                packed = search.pack(
                    asked.problem, **limits, seed=asked.seed,
                    told=lambda x: _send(answers, _Frame(better=x)),
                )  # fmt: skip
                _send(answers, _Frame(packed=packed))
            idle_since = time.monotonic()


if __name__ == "__main__":
    main()
