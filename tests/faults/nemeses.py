"""Those who do the harm. Each begins a fault and returns what ends it."""

import contextlib
import math
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from tests.faults.hostile import Hostile
from tests.faults.schedule import Fault
from tests.faults.starving import Starved
from tests.faults.system import System
from tests.waiting import running

End = Callable[[], None]
_PICK_BACKEND = """
SELECT pid FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name LIKE 'stowage-%'
ORDER BY (xact_start IS NULL), (state IS DISTINCT FROM 'idle in transaction'), random() LIMIT 1
"""
_IN_TRANSACTION = """
SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'stowage-%'
AND xact_start IS NOT NULL
"""


class Nemeses:
    """Does harm to one system; ``done`` counts by kind and part."""

    def __init__(self, system: System, rng: random.Random, say: Callable[[str], None]) -> None:
        self.done: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.errors: list[str] = []
        self.failed_commands: list[str] = []
        self.restored = 0
        self.restored_at = -math.inf
        """How often the past was put back."""
        self._system = system
        self._rng = rng
        self._say = say

    def begin(self, fault: Fault) -> End:
        """Begin one fault; return what ends it, which may be called once."""
        begin = {
            "kill": self._kill, "stop": self._stop, "flush": self._flush, "full": self._full,
            "silent": self._silent, "cut": self._cut, "clock": self._clock,
            "prepare": self._prepare, "rival": self._rival, "hostile": self._hostile,
            "fail over": self._fail_over, "restore": self._restore,
            "starved": self._starved,
        }[fault.kind]  # fmt: skip
        end = begin(fault)
        if end is None:
            self.skipped[fault.title] += 1
            return lambda: None
        self.done[fault.title] += 1
        return end

    def _targets(self, part: str) -> list[int]:
        if part == "backend":
            return self._backend()
        return self._system.pids(part)

    def _backend(self) -> list[int]:
        """Return a backend of the service, in the middle of a transaction if there soon is one."""
        with contextlib.suppress(psycopg.Error), self._system.database() as connection:
            for _ in range(50):
                row = connection.execute(_IN_TRANSACTION).fetchone()
                if row and row[0]:
                    break
            found = connection.execute(_PICK_BACKEND).fetchone()
            return [found[0]] if found else []
        return []

    def _kill(self, fault: Fault) -> End | None:
        pids = self._targets(fault.part)
        for name in _kept(fault.part):
            if name in self._system.kept:
                self._system.kept[name].excuse()
        killed = [pid for pid in pids if self._system.signal(pid, signal.SIGKILL)]
        end = time.monotonic() + 5
        while any(running(pid) for pid in killed) and time.monotonic() < end:
            time.sleep(0.01)
        return (lambda: None) if killed else None

    def _stop(self, fault: Fault) -> End | None:
        pids = self._targets(fault.part)
        stopped = [pid for pid in pids if self._system.signal(pid, signal.SIGSTOP)]
        if fault.part in ("supervisor", "postmaster", "all-postgres", "redis"):
            for name in _kept(fault.part):
                if name in self._system.kept:
                    self._system.kept[name].excuse(45 + fault.seconds)

        def end() -> None:
            for pid in stopped:
                self._system.signal(pid, signal.SIGCONT)

        return end if stopped else None

    def _flush(self, fault: Fault) -> End | None:
        try:
            self._system.flush_redis()
        except (OSError, Exception) as error:  # noqa: BLE001  # it may be away already
            self._say(f"Redis could not be flushed: {error}")
            return None
        return lambda: None

    def _full(self, fault: Fault) -> End | None:
        if not self._system.small_disk:
            return None
        ballast = self._system.disk / "ballast"
        piece = bytes(1 << 20)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(piece)
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while True:
                file.write(b"x")

        def end() -> None:
            ballast.unlink(missing_ok=True)

        return end

    def _silent(self, fault: Fault) -> End | None:
        server, _, part = fault.part.partition(" ")
        proxy = self._system.proxies.get(server)
        if proxy is None:
            return None
        proxy.hush(part)
        cut = self._rng.random() < 0.5

        def end() -> None:
            if cut:  # the network comes back with nothing of what was there
                proxy.cut(part)
            proxy.heal()

        return end

    def _cut(self, fault: Fault) -> End | None:
        server, _, part = fault.part.partition(" ")
        proxy = self._system.proxies.get(server)
        if proxy is None:
            return None
        proxy.cut(part)
        return lambda: None

    def _clock(self, fault: Fault) -> End | None:
        if not self._system.clock.works:
            return None
        self._system.clock.step(fault.amount)
        return lambda: self._system.clock.step(-fault.amount)

    def _prepare(self, fault: Fault) -> End:
        several = [
            self._system.run("prepare", self._system.environment()) for _ in range(fault.amount)
        ]

        def end() -> None:
            for one in several:
                try:
                    code: Any = one.wait(60)
                except Exception:  # noqa: BLE001  # it hangs
                    one.kill()
                    code = "no end within 60 s"
                if code:
                    self.failed_commands.append(f"prepare ended with {code}")

        return end

    def _rival(self, fault: Fault) -> End | None:
        """Start a second supervisor, with a state directory of its own, on the same database."""
        if not self._system.proxies:
            return None
        from tests.live import free_ports

        http, https = free_ports(2)
        state = self._system.folder / "rival" / "state"
        state.parent.mkdir(mode=0o711, exist_ok=True)
        environment = self._system.environment() | {
            "STOWAGE_STATE": str(state), "STOWAGE_HTTP_PORT": str(http),
            "STOWAGE_HTTPS_PORT": str(https),
        }  # fmt: skip
        process = self._system.run("up", environment)

        def end() -> None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(40)
            except Exception:  # noqa: BLE001  # its servers may be away as well
                process.kill()
                process.wait(10)

        return end

    def _restore(self, fault: Fault) -> End | None:
        """Save everything while the service runs, and put it back later."""
        file = self._system.folder / f"backup-{sum(self.done.values())}"
        if self._command("backup", str(file)):
            self._say("no backup: something else is broken meanwhile")
            return None

        def end() -> None:
            for _ in range(5):
                if not self._command("restore", str(file)):
                    self.restored += 1
                    self.restored_at = time.monotonic()
                    break
                time.sleep(1)
            else:
                self.failed_commands.append("restore failed five times")
            file.unlink()

        return end

    def _command(self, name: str, *arguments: str) -> int:
        """Return the exit code of one of manage.py's commands, 1 if it does not end."""
        process = self._system.run(name, self._system.environment(), *arguments)
        try:
            return process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            return 1

    def _fail_over(self, fault: Fault) -> End | None:
        if not self._system.proxies or not self._system.fail_over():
            return None
        return lambda: None

    def _starved(self, fault: Fault) -> End:
        """Leave all processes of the service together ``amount`` percent of the time."""
        for kept in self._system.kept.values():
            kept.excuse(45 + fault.seconds)
        starved = Starved(self._system.all_pids, fault.amount / 100)
        starved.__enter__()
        return starved.end

    def _hostile(self, fault: Fault) -> End:
        hostile = Hostile(self._system.http_port, self._system.token)
        hostile.begin(fault.part)

        def end() -> None:
            hostile.end()
            if fault.part == "strange":
                self.errors += hostile.errors

        return end


def _kept(part: str) -> tuple[str, ...]:
    """Return which of the kept processes a part's end concerns."""
    if part in ("postmaster", "all-postgres", "backend"):
        return ("postmaster", "supervisor")
    return (part,)
