"""One life of a service: rounds of faults, each healed, and then a rest in which all is judged."""

import contextlib
import json
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.faults import asked, checkers, clients, replay, tables, world
from tests.faults.checkers import Audit, Violation
from tests.faults.history import OK, UNKNOWN, History
from tests.faults.nemeses import Nemeses
from tests.faults.probe import UNTRUE_SECONDS, Look, Probe
from tests.faults.replay import State
from tests.faults.schedule import Fault, Life, Round
from tests.faults.system import OWN, System
from tests.faults.watchers import PATHS, Follower, shared_by
from tests.faults.wire import NoAnswer, Wire

Say = Callable[[str], None]
START_SECONDS = 240.0
READY_SECONDS = 45.0
"""So long after the last fault the service may take until it is ready; nobody helps."""
EASY_SECONDS = 5.0
REST_SECONDS = 25.0
"""So long what follows may take to catch up with what was written."""
REDIS_SECONDS = 3.0
"""So long an easy pod may take while Redis alone is away (2 s, and the polling of the probe)."""
_RESTLESS = ("Pod", "Node", "Pod")
"""The kinds of the watches that hang up all the time and resume."""
_NEVER_ENDED_BY_CLIENTS = ("http", "https", "advisor", "console")
_TAKEN_FOR_STUCK = re.compile(r".*(?:session_ended|silent: killed|was stopped: killed).*")
_ENOUGH = 40
# In KiB and rows. Decisions and events are kept for an hour and more, in partitions.
_FLOOR = {
    "memory": 350_000.0, "rows": 2_000.0, "rows of change": 30_000.0, "rows of document": 15_000.0,
    "rows of superseded": 15_000.0, "rows of decision": 100_000.0, "rows of event": 50_000.0,
}  # fmt: skip


@dataclass
class Outcome:
    """What one life showed."""

    life: Life
    rounds: int = 0
    done: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    binds: int = 0
    evictions: int = 0
    preemptions: int = 0
    relists: int = 0
    watch_events: int = 0
    violations: list[tuple[int, Violation]] = field(default_factory=list)
    fullness: list[float] = field(default_factory=list)
    ready_after: list[float] = field(default_factory=list)
    easy_after: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def _of_several(schedulers: int) -> dict[str, str]:
    """Return the settings of a service in which some schedulers work and one stands by."""
    return {
        "STOWAGE_ACTIVE_SCHEDULERS": str(schedulers),
        "STOWAGE_SCHEDULERS": str(schedulers + 1),
    }


class Living:
    """Runs one life."""

    def __init__(
        self, life: Life, *, say: Say, folder: Path, patience: float = 1.0, rate: float = 25.0,
        small_disk: bool = True, schedulers: int = 1,
    ) -> None:  # fmt: skip
        self.outcome = Outcome(life)
        self._life = life
        self._say = say
        self._patience = patience
        self._rate = rate
        self._rng = random.Random(f"{life.seed}/living")
        self._folder = folder
        self._name = life.seed.replace("/", "-")
        self._scenes = 0
        self._history = History(folder / f"history-{self._name}.jsonl")
        self._system = System(
            life.topology,
            say=say,
            small_disk=small_disk and life.topology == OWN,
            settings=_of_several(schedulers) if schedulers > 1 else None,
        )
        self._nemeses = Nemeses(self._system, self._rng, say)
        self._meddling = clients.Meddling()
        self._decided: dict[str, int] = {}
        self._audit = Audit(
            self._meddling.of, self._decided.get,
            [(world.SPACE, {"matchLabels": world.BUDGET_LABELS}, world.LEAST_GUARDED)],
        )  # fmt: skip
        self._gate = threading.Event()
        self._full = (0.0, 0.0)
        self._why = ""
        self._judged = self._epoch = self._restored = 0
        self._known: set[tuple[str, str]] = set()

    # The frame

    def run(self) -> Outcome:
        """Live; return what was seen. The service is gone afterwards."""
        began = time.monotonic()
        system = self._system
        for lacking, reason in (
            (not system.clock.works, "clock steps: there is no C compiler"),
            (system.topology == OWN and not system.small_disk, "full disks: not permitted here"),
        ):
            if lacking:
                self.outcome.notes.append(f"left out: {reason}")
        try:
            self._start()
            self._say(f"life {self._life.seed}: {system.topology}, ready; {system.folder}")
            end = time.monotonic() + self._life.minutes * 60
            for number, faults in enumerate(self._life.rounds):
                if time.monotonic() > end or len(self.outcome.violations) >= _ENOUGH:
                    break
                self._round(number, faults)
            self._judge_growth()
        finally:
            self._end()
            self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _wire(self, *, secure: bool = False, seconds: float = 10) -> Wire:
        port = self._system.https_port if secure else self._system.http_port
        return Wire(port, self._system.token, secure=secure, seconds=seconds)

    def _start(self) -> None:
        system = self._system
        system.start()
        self._control = self._wire()
        self._probes = [self._wire(seconds=5), self._wire(secure=True, seconds=5)]
        self._prober = Probe("steady", self._probes, self._gate)
        self._easy = Probe("healed", [self._control], self._gate)  # asked, never started
        self._asking = asked.Asking(
            self._wire(seconds=asked.ANSWER_SECONDS),
            asked.Visitor(system.http_port, system.password),
        )
        if not self._until(lambda: self._prober.ready(self._control), START_SECONDS):
            log = (system.folder / "up.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the service did not become ready:\n{log}")
        self._furnish()
        self._recorders = {
            kind: Follower(f"recorder of {kind}s", kind, self._wire(seconds=90), self._history,
                           restless=None)
            for kind in PATHS
        }  # fmt: skip
        self._restless = [
            Follower(f"restless {number} ({kind})", kind, self._wire(secure=number % 2 == 0),
                     self._history, restless=random.Random(f"{self._life.seed}/{kind}/{number}"))
            for number, kind in enumerate(_RESTLESS)
        ]  # fmt: skip
        self._clients = [
            clients.Client(
                f"c{number}", self._wire(secure=number % 2 == 1), self._history, self._meddling,
                random.Random(f"{self._life.seed}/client/{number}"), view=self._view,
                full=self._fullness, gate=self._gate, pause=4 / self._rate,
            )
            for number in range(4)
        ]  # fmt: skip
        self._agent = clients.Agent(self._wire(), self._view)
        for thread in (*self._followers(), *self._clients, self._agent, self._prober):
            thread.start()
        self._replay(self._settle())  # from here on every event is judged
        self._gate.set()
        self._until(lambda: self._fullness() > clients.LOW, 120)

    def _end(self) -> None:
        self._gate.clear()
        threads: list[Any] = [
            *getattr(self, "_clients", ()), *self._followers(), getattr(self, "_agent", None),
            getattr(self, "_prober", None),
        ]  # fmt: skip
        for thread in filter(None, threads):
            thread.stop()
        self._system.stop()
        for thread in filter(None, threads):
            if thread.ident is not None:
                thread.join(15)
        outcome = self.outcome
        outcome.done, outcome.skipped = self._nemeses.done, self._nemeses.skipped
        outcome.operations = Counter(f"{o.verb}: {o.outcome}" for o in self._history.operations)
        outcome.pods, outcome.binds = len(self._audit.seen), self._audit.binds
        outcome.evictions = self._audit.evictions
        outcome.preemptions = self._audit.preemptions
        outcome.relists = sum(max(0, one.relists - 1) for one in self._followers())
        outcome.watch_events = sum(one.events for one in self._followers())
        self._history.close()

    def _followers(self) -> list[Follower]:
        return [*getattr(self, "_recorders", {}).values(), *getattr(self, "_restless", ())]

    def _furnish(self) -> None:
        documents = [("/api/v1/namespaces", world.namespace())]
        documents += [
            ("/apis/scheduling.k8s.io/v1/priorityclasses", one) for one in world.priority_classes()
        ]
        nodes = [world.node(number) for number in range(world.NODES)]
        documents += [("/api/v1/nodes", one) for one in [*nodes, world.canary_node()]]
        path = f"/apis/policy/v1/namespaces/{world.SPACE}/poddisruptionbudgets"
        documents.append((path, world.budget()))
        documents += world.claimed()
        documents += [
            (world.DEPLOYMENTS, world.deployment(name, count))
            for name, count in world.WORKLOADS.items()
        ]
        for path, document in documents:
            status, answer = self._control.call("POST", path, document)
            if status != 201:
                raise RuntimeError(f"POST {path}: {status} {answer}")

    # What everybody sees

    def _view(self) -> State:
        now = {kind: one.now() for kind, one in self._recorders.items()}
        return State(now.pop("Node"), now.pop("Pod"), others=now)

    def _fullness(self) -> float:
        at, full = self._full
        if time.monotonic() - at > 0.5:
            full = clients.fullness(self._view())
            self._full = time.monotonic(), full
        return full

    def _until(self, look: Callable[[], Any], seconds: float, every: float = 0.1) -> bool:
        end = time.monotonic() + seconds
        while not look():
            if time.monotonic() > end:
                return False
            time.sleep(every)
        return True

    def _found(self, violation: Violation) -> None:
        """Count a violation, and one that lasts only once: times in its text are left out."""
        known = _lasting_key(violation)
        if known in self._known:
            return
        self._known.add(known)
        self.outcome.violations.append((self.outcome.rounds, violation))
        self._history.note(violation=violation.column, text=violation.text)
        self._say(f"  !! {violation.column}: {violation.text}")

    # A round

    def _round(self, number: int, faults: Round) -> None:
        self.outcome.rounds = number + 1
        began = time.monotonic()
        for thread in (*self._clients, *self._followers(), self._agent, self._prober):
            if not thread.is_alive():
                raise RuntimeError(f"the fault machine itself failed: {thread.name} ended")
        looks = len(self._prober.looks)
        pids = {part: self._system.pids(part) for part in _NEVER_ENDED_BY_CLIENTS}
        logged = self._system.told(_TAKEN_FOR_STUCK)
        self._faults(faults)
        healed = time.monotonic()
        ready, easy = self._heal()
        self._judge_looks(faults, self._prober.looks[looks:], healed)
        if all(fault.kind == "hostile" for fault in faults):
            for part, before in pids.items():
                if self._system.pids(part) != before:
                    self._found(Violation(checkers.ENDED, f"{part} ended under hostile clients"))
        if all(fault.kind == "starved" for fault in faults):
            for line in self._system.told(_TAKEN_FOR_STUCK)[len(logged) :]:
                self._found(Violation(checkers.ENDED, f"who worked was taken for stuck: {line}"))
        self._gate.clear()
        rest = self._rest()
        self._sample()
        self._gate.set()
        titles = ", ".join(fault.title for fault in faults)
        self._say(
            f"  round {number + 1}: {titles}; ready {ready:.1f} s after, easy pod {easy:.2f} s;"
            f" {self._fullness():.0%} full, {len(self._audit.state.pods)} pods,"
            f" judged in {rest:.1f} s, all in {time.monotonic() - began:.0f} s"
        )

    def _faults(self, faults: Round) -> None:
        """Begin and end the faults at their times."""
        start = time.monotonic()
        due: list[tuple[float, int, Fault]] = []
        for fault in faults:
            due += [(fault.at, 0, fault), (fault.at + fault.seconds, 1, fault)]
        ends = {}
        try:
            for at, what, fault in sorted(due, key=lambda one: (one[0], one[1])):
                time.sleep(max(0.0, start + at - time.monotonic()))
                self._history.note(fault=fault.title, ends=bool(what))
                if what == 0:
                    ends[fault] = self._nemeses.begin(fault)
                elif fault in ends:
                    ends.pop(fault)()
        finally:
            for end in ends.values():
                end()
            self._system.resume_all()
        if self._nemeses.restored > self._restored:
            # What was told before is another history; the watches have to list again.
            self._restored = self._nemeses.restored
            self._epoch = self._judged = len(self._history.operations)
            self._audit.gone.clear()
        if len(faults) == 1:  # beside another fault a command may be refused
            for text in self._nemeses.failed_commands:
                self._found(Violation(checkers.ENDED, text))
        for text in self._nemeses.errors[:3]:
            self._found(Violation(checkers.ANSWERED_500, text))
        self._nemeses.failed_commands.clear()
        self._nemeses.errors.clear()

    def _heal(self) -> tuple[float, float]:
        """Wait until the service is ready and places an easy pod; return how long either took."""
        began = time.monotonic()
        limit = READY_SECONDS * self._patience
        self._until(self._is_ready, limit * 2)
        ready = time.monotonic() - began
        if ready > limit:
            told = f"not ready after {ready:.0f} s: {self._why}"
            self._found(Violation(checkers.HEAL, told))
        elif ready > EASY_SECONDS:
            self._say(f"    meanwhile: {self._why}")
        # What was killed a moment ago may be missed only now: who is told 503 comes again.
        looks: list[Look] = []
        posting = time.monotonic()

        def placed() -> bool:
            looks.append(self._easy.look(self._wire(seconds=15), 30))
            return looks[-1].seconds is not None

        done = self._until(placed, limit, 0.2)
        easy = time.monotonic() - posting
        look = max(looks, key=lambda one: one.claimed)
        if not done:
            self._found(Violation(checkers.HEAL, f"no easy pod was placed within {easy:.1f} s"))
        elif look.claimed > EASY_SECONDS * self._patience:
            told = f"ready for {look.claimed:.1f} s while an easy pod waited {easy:.1f} s"
            self._found(Violation(checkers.HEAL, told))
        self.outcome.ready_after.append(ready)
        self.outcome.easy_after.append(easy)
        for told in self._asking.silent(limit):
            self._found(Violation(checkers.HEAL, told))
        for kept in self._system.kept.values():
            for text in kept.ended_alone:
                self._found(Violation(checkers.ENDED, text))
            kept.ended_alone.clear()
        return ready, easy

    def _is_ready(self) -> bool:
        """Ask both ports; keep what the one that is not ready said last."""
        for secure in (False, True):
            try:
                status, text = self._wire(secure=secure, seconds=3).call("GET", "/readyz")
            except NoAnswer as error:
                status, text = 0, str(error)
            if status != 200:
                problems = [line for line in str(text).splitlines() if not line.startswith("[+]")]
                self._why = f"{'https' if secure else 'http'}: {'; '.join(problems)}"
                return False
        return True

    def _judge_looks(self, faults: Round, looks: list[Look], healed: float) -> None:
        only_redis = all(
            fault.part == "redis" and fault.kind in ("kill", "stop", "silent", "cut", "flush")
            for fault in faults
        )
        for look in looks:
            if look.gone:
                if look.began > self._nemeses.restored_at:  # the backup was made before the pod
                    self._found(Violation(checkers.LOST, "an acknowledged easy pod"))
                continue
            if look.claimed > UNTRUE_SECONDS * self._patience:
                told = f"ready for {look.claimed:.1f} s while an easy pod waited {look.seconds} s"
                self._found(Violation(checkers.READY, told))
            if not (only_redis and look.began < healed):
                continue
            if look.seconds is None or look.seconds > REDIS_SECONDS * self._patience:
                told = f"an easy pod took {look.seconds} s while Redis was away"
                self._found(Violation(checkers.STUCK, told))

    # At rest

    def _rest(self) -> float:
        """Let everybody pause, wait until what follows has followed, and judge."""
        began = time.monotonic()
        resting = (*self._clients, self._prober)
        for one in resting:
            one.resting.wait(20)
        revision = self._settle()
        with self._connection() as connection:
            if connection is not None:
                self._decided.update(tables.decided_on(connection))
        self._replay(revision)
        for violation in self._audit.violations:
            self._found(violation)
        self._audit.violations.clear()
        for text, state in self._audit.scenes[self._scenes :]:
            file = self._folder / f"scene-{self._name}-{self._scenes}.json"
            scene = {"violation": text, "decided on": self._decided, "revision": state.revision,
                     "nodes": state.nodes, "pods": state.pods, "sets": state.sets,
                     "others": state.others}  # fmt: skip
            file.write_text(json.dumps(scene))
            self._scenes += 1
        for follower in self._followers():
            for violation in follower.violations:
                self._found(violation)
            follower.violations.clear()
        self._judge_history()
        self._judge_rest()
        self._judge_copies()
        full = clients.fullness(self._view())
        self.outcome.fullness.append(full)
        return time.monotonic() - began

    def _replay(self, revision: int) -> None:
        drained = {kind: one.drain(revision) for kind, one in self._recorders.items()}
        events = replay.in_order(*(taken for _, taken in drained.values()))
        if any(gap for gap, _ in drained.values()):
            # A recorder had to list: what lies between cannot be judged, only where it led. Pods
            # that came and went meanwhile stand in the log.
            with self._connection() as connection:
                told = set(tables.told(connection)) if connection is not None else set()
            self._audit.names |= told
            self._audit.seen |= {
                one.uid for one in self._history.operations if one.name in told and one.uid
            }
            for event in events:
                if event.kind == "Pod":
                    self._audit.seen.add(replay.uid_of(event.item))
                    self._audit.names.add(replay.key_of(event.item))
            then = State(revision=revision)
            for kind, recorder in self._recorders.items():
                then.table(kind).update(recorder.at(revision).table(kind))
            self._audit.begin(then)
        else:
            self._audit.take(events)

    @contextlib.contextmanager
    def _connection(self) -> Iterator["psycopg.Connection[Any] | None"]:
        """Give a connection past the proxies, or None where PostgreSQL does not answer."""
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(self._system.database())
            except psycopg.Error:
                connection = None
            yield connection

    def _settle(self) -> int:
        """Return the lowest revision of lists that every watch agrees with, of each kind."""
        found: list[Violation] = []
        revisions = dict.fromkeys(PATHS, 0)
        end = time.monotonic() + REST_SECONDS * self._patience
        wire = self._wire()
        while True:
            found = []
            for kind, path in PATHS.items():
                try:
                    status, answer = wire.call("GET", path)
                except NoAnswer as error:
                    status, answer = 0, str(error)
                if status != 200:
                    found.append(
                        Violation(checkers.WATCH, f"no list of {kind}s: {status} {answer}")
                    )
                    continue
                revision = revisions[kind] = int(answer["metadata"]["resourceVersion"])
                self._history.saw(revision)
                highest = max((one.revision for one in self._history.operations), default=0)
                if revision < highest:
                    text = f"the list is at {revision}, {highest} was told"
                    found.append(Violation(checkers.WATCH, text))
                items = [{**item, **shared_by(kind)} for item in answer["items"]]
                for follower in self._followers():
                    if follower.kind != kind:
                        continue
                    table = follower.at(revision).table(kind)
                    watched = {replay.uid_of(item): item for item in table.values()}
                    found += checkers.list_violations(kind, watched, items, follower.name)
            if not found:
                return min(revisions.values())
            if time.monotonic() > end:
                for violation in found[:6]:
                    self._found(violation)
                return min(revisions.values())
            time.sleep(0.3)

    def _judge_history(self) -> None:
        operations = self._history.operations[self._judged :]
        self._judged = len(self._history.operations)
        audit = self._audit
        found = checkers.history_violations(operations, audit.seen, audit.names)
        found += checkers.revision_violations(operations)
        for violation in found:
            self._found(violation)

    def _judge_rest(self) -> None:
        """Judge what has to be so once everything has caught up, and may take a moment."""

        def look() -> list[Violation]:
            found = []
            state = self._view()
            now = time.time() + self._system.clock.offset
            found += checkers.room_violations(state)
            found += checkers.claim_violations(state)
            found += checkers.stuck_violations(state)
            found += self._asking.violations(state)
            try:
                found += checkers.replica_violations(state, self._replicas())
            except NoAnswer as error:
                found.append(Violation(checkers.REPLICAS, str(error)))
            with self._connection() as connection:
                if connection is None:
                    return [*found, Violation(checkers.QUEUE, "the database does not answer")]
                found += checkers.queue_violations(*tables.queue(connection))
                found += checkers.timer_violations(state, tables.timers(connection), now)
            return found

        for violation in self._lasting(look)[:8]:
            self._found(violation)
        objects = {replay.uid_of(one): one for one in self._view().nodes.values()}
        objects |= self._view().pods
        operations = [
            one
            for one in self._history.operations
            if one.number >= self._epoch or one.outcome == UNKNOWN
        ]
        for violation in checkers.patch_violations(operations, world.MARK, objects):
            self._found(violation)

    def _judge_copies(self) -> None:
        """Let the service compare what its database says twice: exact at any moment."""
        try:
            done = self._system.audit()
        except subprocess.TimeoutExpired:
            self._found(Violation(checkers.COPIES, "the audit does not come to an end"))
            return
        if done.returncode:
            told = done.stdout.splitlines() or done.stderr.splitlines()[-3:]
            for line in told[:6]:
                self._found(Violation(checkers.COPIES, line))

    def _lasting(self, look: Callable[[], list[Violation]]) -> list[Violation]:
        """Return the violations that do not go away. Pods that come and go cause short ones."""
        began = time.monotonic()
        since: dict[tuple[str, str], float] = {}
        while True:
            found = look()
            now = time.monotonic()
            since = {one: since.get(one, now) for one in map(_lasting_key, found)}
            oldest = min(since.values(), default=now)
            if not found or (now - began > 3 and now - oldest < 2):
                return []
            if now - began > REST_SECONDS * self._patience:
                return [one for one in found if now - since[_lasting_key(one)] > 5]
            time.sleep(0.3)

    def _replicas(self) -> dict[str, tuple[str, dict[str, str], int]]:
        _, answer = self._control.call("GET", world.DEPLOYMENTS)
        if not isinstance(answer, dict) or "items" not in answer:
            raise NoAnswer(f"no list of Deployments: {answer}")
        return {
            item["metadata"]["name"]: (
                world.SPACE, {"app": item["metadata"]["name"]}, item["spec"]["replicas"],
            )
            for item in answer["items"]
        }  # fmt: skip

    # Bounds

    def _sample(self) -> None:
        if unknown := self._system.unknown_processes():
            raise RuntimeError(f"no fault harms {', '.join(sorted(unknown))}: list it in the parts")
        series = self.outcome.series
        for part, size in self._system.memory().items():
            series.setdefault(f"memory of {part} (KiB)", []).append(size)
        with self._connection() as connection:
            if connection is not None:
                for table, rows in tables.sizes(connection).items():
                    series.setdefault(table, []).append(rows)

    def _judge_growth(self) -> None:
        for violation in checkers.growth_violations(self.outcome.series, floor=_FLOOR):
            self._found(violation)
        audit = self._audit
        everything = self._history.operations[
            self._epoch : self._judged
        ]  # what came later no rest has seen
        for violation in checkers.history_violations(everything, audit.seen, audit.names):
            if violation not in [one for _, one in self.outcome.violations]:
                self._found(violation)
        # Of the whole life: a backup that was put back in its last round begins another history.
        if not any(one.outcome == OK for one in self._history.operations):
            self._found(Violation(checkers.ENDED, "no operation was ever acknowledged"))


def _lasting_key(violation: Violation) -> tuple[str, str]:
    """Return what a violation says but for how many seconds it is about."""
    return violation.column, re.sub(r"[-+]?\d+(\.\d+)? s\b", "", violation.text)
