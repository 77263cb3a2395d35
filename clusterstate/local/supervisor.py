"""A foreground process that runs others: starts them in order, restarts them, stops them in order.

It has the child processes and reads their output; `manage.py up` gives it the list. A child that
ended is started again. A child without progress is killed and replaced: one whose loop has missed
its deadline (`clusterstate.health.heartbeats`), or that was stopped by a signal and not continued.
A stopped server is continued instead (`Child.resumes`): killing one backend of PostgreSQL would end
all sessions. No error in the loop ends the supervisor.

Python children are forked from this process, which has imported their common modules (``family``),
so it must have a single thread and no open connection. Children run in sessions of their own, so
Ctrl-C in the terminal reaches the supervisor alone, which then stops them from the last stage to
the first. If the supervisor is killed, the kernel signals each child (see
`embedded.die_with_parent`), and the lock on the state directory, which they inherited, is free once
they are gone.
"""

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

from clusterstate.health import heartbeats
from clusterstate.local.family import Process
from clusterstate.telemetry import logs, slowness

_COLOURS = (36, 35, 33, 32, 34, 31)
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_STEADY_SECONDS = 30.0
_LOG_BYTES = 10 << 20
_PIPE_BYTES = 1 << 20
_PROC_BYTES = 1 << 16
"""More than the size of any file of /proc that is read here."""
_KILL_SECONDS = 10.0
_LOOK_EVERY = 1.0
_FAMILIES_EVERY = 5.0
"""Seconds between two searches for processes that the children have started."""
_STOPPED_SECONDS = 3.0
"""A process that is stopped (SIGSTOP) for longer is treated as one that hangs."""
_BEGIN_SECONDS = 300.0
"""Seconds in which a child that sends heartbeats must send the first one."""
_LATER_SECONDS = 60.0
"""Additional seconds for a child killed for missed heartbeats, more each time."""
_FORGET_SECONDS = 1800.0
"""Seconds after which a child's missed heartbeats no longer count."""


@dataclass(kw_only=True)
class Child:
    """A process to run.

    spawn gets the descriptor for standard output and error. Stages stop from the highest to the
    lowest; children of one stage stop together. beats: its processes write heartbeats. resumes: a
    stopped one is continued rather than replaced. silences counts how often it was killed for
    missed heartbeats: it may have been slow, so the next one has more time.
    """

    name: str
    stage: int
    spawn: Callable[[int], Process]
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    beats: bool = False
    resumes: bool = False
    process: Process | None = None
    failures: int = 0
    silences: int = 0
    started_at: float = 0.0
    restart_at: float | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)

    def may_be_late(self, now: float) -> float:
        """Return the extra seconds for this child's start and for its heartbeats."""
        if now - self.started_at > _FORGET_SECONDS:
            self.silences = 0
        return _LATER_SECONDS * ((1 << self.silences) - 1)

    def runs(self) -> bool:
        """Return whether the process exists."""
        return self.process is not None and self.process.poll() is None


class Stopped(Exception):
    """A signal asked the supervisor to stop while it was starting."""


class Supervisor:
    """Runs children until SIGINT, SIGTERM or SIGHUP; SIGUSR1 has them replaced."""

    def __init__(
        self, log_file: Path, output: TextIO | None = None, *, state: Path | None = None
    ) -> None:
        """Handle the process's signals. Output of the children goes to output and to log_file.

        log_file is limited to 10 MiB; the older half of a long run is in NAME.1. state is the
        directory of the children's heartbeat files.
        """
        self._state = state
        self._look_at = self._families_at = 0.0
        self._families: dict[int, set[int]] = {}
        self._stopped: dict[int, tuple[float, int]] = {}
        self._late: set[tuple[int, str]] = set()
        self.children: list[Child] = []
        self.stopping = 0
        self.on_renew: Callable[[], object] = lambda: None
        """Called in the loop after SIGUSR1, to replace processes (``renewal``)."""
        self.on_look: Callable[[], object] = lambda: None
        """Called in the loop, each second at least, for work besides the children."""
        self._renewing = False
        stream = output or sys.stdout
        self._output = logs.outlet_of(stream)
        self._colour = stream is not None and not stream.closed and stream.isatty()
        self._log = logs.LogFile(log_file, largest=_LOG_BYTES)
        self._selector = selectors.DefaultSelector()
        self._wake, written = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_renewal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the selector

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopping += 1
        if self.stopping >= 3:  # the user does not want to wait
            for child in self.children:
                self._kill_group(child)

    def _on_renewal(self, number: int, frame: FrameType | None) -> None:
        self._renewing = True

    def say(self, line: str, name: str = "stowage") -> None:
        """Print a line after the name, and write it to the log file. Never raises."""
        number = next((i for i, child in enumerate(self.children) if child.name == name), -1)
        if self._colour:
            tag = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{name:>9} |\x1b[0m "
        else:
            tag = f"{name:>9} | "
        self._output.write(f"{tag}{line}")
        self._log.write(f"{name:>9} | {line}")

    def start(self, child: Child) -> Process:
        """Start a child and read its output from now on."""
        if child not in self.children:
            self.children.append(child)
        read, write = os.pipe()
        # A child must not stand still, with its locks, because its output is not read: while
        # the supervisor is stopped, or a pipe is full, its lines are lost. PostgreSQL and Redis
        # take that as they come; `clusterstate.telemetry.logs` counts what it loses.
        os.set_blocking(write, False)
        with contextlib.suppress(OSError):  # what an unprivileged process may have
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            child.process = child.spawn(write)
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self._selector.register(read, selectors.EVENT_READ, child)
        child.started_at = time.monotonic()
        child.restart_at = None
        return child.process

    def forget(self) -> None:
        """Close the supervisor's own descriptors, in a process that was forked from it."""
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        self._log.close()

    def pump(self, seconds: float = 0.0) -> None:
        """Pass on the children's output; wait at most ``seconds`` for any."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                continue
            self._read(key.fd, key.data)

    def _read(self, descriptor: int, child: Child) -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            if rest := child.pieces.pop(descriptor, b""):
                self.say(rest.decode(errors="replace"), child.name)
            return
        *lines, rest = (child.pieces.get(descriptor, b"") + data).split(b"\n")
        child.pieces[descriptor] = rest
        for line in lines:
            self.say(line.decode(errors="replace"), child.name)

    def revive(self, now: float) -> None:
        """Restart each child that ended, after a pause that doubles with each failure."""
        for child in self.children:
            if child.runs() or child.process is None:
                continue
            if child.restart_at is None:
                steady = now - child.started_at > _STEADY_SECONDS
                child.failures = 1 if steady else child.failures + 1
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (child.failures - 1))
                child.restart_at = now + pause
                self._kill_group(child)  # what it left behind may hold its port
                self.say(f"{_ending(child.process)}; starts again in {pause:.1f} s", child.name)
            elif now >= child.restart_at:
                try:
                    process = self.start(child)
                except Exception as error:  # noqa: BLE001  # whatever it is, the next try may work
                    child.restart_at = None
                    self.say(f"cannot start: {error}", child.name)
                else:
                    self.say(f"started again (pid {process.pid})", child.name)

    def replace_hung(self, now: float) -> None:
        """Kill children without progress, once a second at most; ``revive`` starts them again.

        A child is killed only at the second observation: after the whole machine was suspended or
        overloaded, all deadlines have passed, and children need a moment to send heartbeats.
        """
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        running = {
            child.process.pid: child
            for child in self.children
            if child.process is not None and child.runs()
        }
        if self._families.keys() != running.keys() or now >= self._families_at:
            self._families = {leader: _family(leader) for leader in running}
            self._families_at = now + _FAMILIES_EVERY
        families = self._families
        stopped: dict[int, tuple[float, int]] = {}
        for leader, child in running.items():
            for pid in families[leader]:
                if _state_of(pid) == "T":
                    # One that is continued between two looks, again and again, is slow.
                    ran = slowness.nanoseconds(pid)
                    since, before = self._stopped.get(pid, (now, ran))
                    stopped[pid] = (since if ran == before else now), ran
                    long = now - stopped[pid][0] >= _STOPPED_SECONDS
                    if long and pid in _family(leader):  # another process may have its number now
                        del stopped[pid]
                        self._end_stopped(child, pid)
        self._stopped = stopped
        if self._state is None:
            return
        beating = heartbeats.signs(self._state)
        late = {
            (one.pid, f"{one.loop} is silent"): child
            for one in heartbeats.hung(beating, now)
            for leader, child in running.items()
            if one.pid in families[leader] and one.seconds >= child.may_be_late(now)
        }
        for leader, child in running.items():
            waited = now - child.started_at
            longest = _BEGIN_SECONDS + child.may_be_late(now)
            if child.beats and waited > longest and not beating.keys() & families[leader]:
                late[leader, f"gave no sign of life in {waited:.0f} s"] = child
        for (pid, reason), child in late.items():
            if (pid, reason) in self._late:
                child.silences = min(child.silences + 1, 6)
                self._end(child, pid, f"{reason}: killed")
        self._late = set(late)

    def _end_stopped(self, child: Child, pid: int) -> None:
        if child.resumes:
            self.say(f"was stopped (pid {pid}): continues", child.name)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)
        else:
            self._end(child, pid, "was stopped: killed")

    def _end(self, child: Child, pid: int, reason: str) -> None:
        """Kill one process of a child; if it is the main one, kill all processes of the child."""
        self.say(f"{reason} (pid {pid})", child.name)
        if child.process is not None and pid == child.process.pid:
            self._kill_group(child)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def watch(self, seconds: float = _LOOK_EVERY) -> None:
        """Pass output on, and restart children that ended or hang.

        Raises:
            Stopped: a signal asked the supervisor to stop.
        """
        due = [child.restart_at for child in self.children if child.restart_at is not None]
        wait = min([seconds, *(max(0.0, at - time.monotonic()) for at in due)])
        self.pump(wait)
        if self.stopping:
            raise Stopped
        self.replace_hung(time.monotonic())
        self.revive(time.monotonic())

    def run(self) -> None:
        """Run the children until a signal asks to stop, whatever else happens."""
        with contextlib.suppress(Stopped):
            while True:
                try:
                    self.watch()
                    if self._renewing:
                        self._renewing = False
                        self.on_renew()
                    self.on_look()
                except Stopped:
                    raise
                except Exception as error:  # noqa: BLE001  # the children depend on this loop
                    with contextlib.suppress(Exception):
                        self.say(f"the supervisor failed and goes on: {error!r}")
                    time.sleep(_FIRST_PAUSE)

    def restart(self, name: str) -> None:
        """Send the child of this name its stop signal and return; ``revive`` starts it again."""
        for child in self.children:
            if child.name == name and child.process is not None and child.runs():
                child.process.send_signal(child.stop_signal)

    def end(self, child: Child) -> None:
        """Stop one child for good; the others are still watched.

        Raises:
            Stopped: a signal asked the supervisor to stop.
        """
        self.children.remove(child)
        if child.process is None:
            return
        if child.runs():
            child.process.send_signal(child.stop_signal)
        end = time.monotonic() + child.stop_seconds
        try:
            while child.runs() and time.monotonic() < end:
                self.watch(0.05)
        finally:
            self._kill_group(child)

    def stop(self) -> None:
        """Stop all children, the last stage first, each stage together."""
        for stage in sorted({child.stage for child in self.children}, reverse=True):
            running = [child for child in self.children if child.stage == stage and child.runs()]
            for child in running:
                assert child.process is not None
                child.process.send_signal(child.stop_signal)
            end = time.monotonic() + max((child.stop_seconds for child in running), default=0.0)
            while any(child.runs() for child in running) and time.monotonic() < end:
                self.pump(0.05)
            for child in running:
                if child.runs():
                    self.say(f"did not stop in {child.stop_seconds:.0f} s: killed", child.name)
                self._kill_group(child)
        for _ in range(20):  # what they printed last
            self.pump(0.0)

    def _kill_group(self, child: Child) -> None:
        if child.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel itself may hang on a disk
            child.process.wait(_KILL_SECONDS)


def _family(leader: int) -> set[int]:
    """Return the pids of a process and of its descendants, as far as main threads started them."""
    found = {leader}
    waiting = [leader]
    while waiting:
        pid = waiting.pop()
        children = {int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()}
        waiting += children - found
        found |= children
    return found


def _state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state; T is stopped, t is being traced."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields[0].decode() if fields else ""


def _read(path: str) -> bytes:
    """Return the bytes of a file in /proc, empty if it is gone.

    The supervisor reads a few hundred each second; this is faster than Path.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _PROC_BYTES)
        finally:
            os.close(descriptor)
    return b""


def _ending(process: Process) -> str:
    code = process.returncode
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
