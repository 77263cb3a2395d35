"""Moves in random worlds, with kills in between: what was told of each is held against the log.

A world has 12 to 40 nodes, ReplicaSets and StatefulSets of all kinds of pods, budgets for half of
them, and pods that nobody makes again. In every second world the nodes have agents. Again and again
a plan empties nodes, balances zones, mends soft rules, drains nodes or evicts pods by name, holding
their places; at times two plans at once ask for the same pods. The service's own loops carry it out
on a real database, in any order, with a clock that the drill moves, and so do the controllers; the
drill says that pods run, and plays the agents. Loops are killed before or after a statement of
theirs: their process forgets all that it knew, or the database ends their session. ``Moves.audit``
then reads the change log:

* no pod left before the place of its replacement was held, and no pod held two places;
* every replacement is on the node that the plan told of, and where its place was;
* no eviction of a plan left fewer healthy pods than the budget asks for. A pod is healthy once it
  runs; on a node without an agent, once it is bound (``disruption.is_assumed``). Nothing is said of
  a workload that has too few since the beginning, as long as no eviction makes them fewer.
"""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
from django.db import connection

from clusterstate.actions import objects, plans
from clusterstate.actions.pods.delete import Deletion, delete_pods_each
from clusterstate.actions.pods.places import find_places
from clusterstate.actions.pods.rewrite import rewrite_pods
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values import causes
from clusterstate.processes import memory
from clusterstate.queries.pods.terminating import NODE_LEASES
from clusterstate.queries.scheduler.plans import PAUSED, PLACES, RUNNING, StoredPlan, find_plan
from scheduling.answers import advisor
from scheduling.controllers import held_places, manager, operations
from scheduling.controllers.pods import deletion
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW

Object = dict[str, Any]
_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 1,
}
_TURNS = 400
_UNCLAIMED = timedelta(minutes=11)
ZONES = ("a", "b", "c")


class Killed(BaseException):
    """The process is gone, in the middle of what it did."""


class Move(msgspec.Struct, frozen=True):
    """A step with a place: its plan, the pod and its workload, and the node that it was told.

    ``first``: the revision at which its plan was made.
    """

    plan_id: int
    cause: str
    owner: str
    place: str
    pod_id: int
    uid: str
    first: int


class Moves:
    """A world and its loops; ``told`` counts what happened in it."""

    def __init__(self, seed: int, *, kills: float) -> None:
        self.seed, self.kills = seed, kills
        self.has_agents = seed % 2 == 1
        self.chance = random.Random(seed)
        self.now = NOW
        self.told: Counter[str] = Counter()
        self.least: dict[str, int] = {}
        """How many pods of a workload its budget wants to be healthy."""
        self.moves: list[Move] = []
        self._make()
        text, _ = scheduler_configuration.check(_CONFIGURATION)
        scheduler_configuration.store(document=text, by="somebody", now=self.now)
        self._begin_scheduler()
        self.settle(kills=0)

    # --- the world -------------------------------------------------------------------------------

    def _make(self) -> None:
        chance = self.chance
        self.nodes = [f"n{number:02}" for number in range(chance.randint(12, 40))]
        nodes = [self._node(name) for name in self.nodes]
        objects.create_all([("Node", "", one) for one in nodes], now=self.now)
        if self.has_agents:
            leases = [{"metadata": {"name": name, "namespace": NODE_LEASES}} for name in self.nodes]
            objects.create_all([("Lease", NODE_LEASES, one) for one in leases], now=self.now)
        room = sum(int(one["status"]["allocatable"]["cpu"]) for one in nodes) * 1000
        self.room = room * chance.uniform(0.4, 0.65)
        number = 0
        while self.room > 0:
            self._workload(f"w{number}")
            number += 1

    def _node(self, name: str) -> Object:
        chance = self.chance
        labels = {"zone": chance.choice(ZONES), "kubernetes.io/hostname": name}
        if chance.random() < 0.6:
            labels["disk"] = "ssd"
        soft = [{"key": "soft", "effect": "PreferNoSchedule"}] if chance.random() < 0.1 else []
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": soft},
            "status": {
                "allocatable": {
                    "cpu": chance.choice(("8", "16", "24")), "memory": "64Gi", "pods": "60",
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }  # fmt: skip

    def _workload(self, name: str) -> None:
        chance = self.chance
        kind = chance.choice(("ReplicaSet",) * 4 + ("StatefulSet",))
        rule = chance.random()
        alone = 0.15 <= rule < 0.26 or 0.4 <= rule < 0.5  # one on a node, at most
        replicas = chance.randint(2, len(self.nodes) // 3 if alone else 14)
        cpu = chance.choice((250, 500, 1000, 2000, 3000))
        self.room -= replicas * cpu
        labels = {"app": name}
        requests = {"cpu": f"{cpu}m", "memory": chance.choice(("64Mi", "1Gi", "3Gi"))}
        main: Object = {"name": "a", "image": "b", "resources": {"requests": requests}}
        spec: Object = {"containers": [main]}
        selector = {"matchLabels": labels}
        if rule < 0.15:
            required = chance.random() < 0.5
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": chance.choice((1, 2)), "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule" if required else "ScheduleAnyway",
                    "labelSelector": selector,
                }
            ]  # fmt: skip
        elif rule < 0.3:
            key, which = "kubernetes.io/hostname", "podAntiAffinity"
            if rule >= 0.26:
                key, which = "zone", "podAffinity"
            term = {"topologyKey": key, "labelSelector": selector}
            spec["affinity"] = {which: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif rule < 0.4:
            spec["nodeSelector"] = {"disk": "ssd"}
        elif rule < 0.5:
            main["ports"] = [{"containerPort": 80, "hostPort": chance.choice((80, 81))}]
        if chance.random() < 0.1:
            spec["tolerations"] = [{"key": "soft", "operator": "Exists"}]
        body: Object = {
            "replicas": replicas, "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        }  # fmt: skip
        if kind == "StatefulSet":
            body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        metadata = {"name": name, "namespace": "default"}
        objects.create(kind, "default", {"metadata": metadata, "spec": body}, now=self.now)
        if chance.random() < 0.5:
            away = chance.randint(1, max(1, replicas // 2))
            self.least[name] = replicas - away
            budget = {"maxUnavailable": away} if chance.random() < 0.5 else {}
            budget = budget or {"minAvailable": replicas - away}
            objects.create(
                "PodDisruptionBudget", "default",
                {"metadata": metadata, "spec": {"selector": selector, **budget}}, now=self.now,
            )  # fmt: skip

    # --- the loops -------------------------------------------------------------------------------

    def _begin_scheduler(self) -> None:
        revision, configuration = profiles.in_force()
        self.scheduler = Scheduler(configuration, lambda: 0, revision=revision)
        self.scheduler.load(self.now.timestamp())

    def _schedule(self) -> None:
        moment = self.now.timestamp()
        while self.scheduler.cycle(moment):
            self.scheduler.binder.finish_batch(moment)
        self.scheduler.binder.finish_batch(moment)

    def _operate(self) -> None:
        operations.run(lambda: self.now, stopping=lambda: False)

    def _control(self) -> None:
        for name in manager.with_work(self.now):
            manager.run_pass(name, self.now)

    def _end_deletions(self) -> None:
        deletion.finish(self.now)

    def _run_pods(self) -> None:
        """Say that bound pods run and are ready; agents also end what was evicted."""
        if self.has_agents:
            ended = [
                Deletion(namespace=space, name=name, grace_seconds=0)
                for space, name in sql.fetch(
                    "SELECT namespace, name FROM pod WHERE deletion_at IS NOT NULL"
                )
            ]
            delete_pods_each(ended, now=self.now)
        rows = sql.fetch(
            "SELECT id, namespace, name FROM pod"
            " WHERE node_name <> '' AND phase = 'Pending' AND deletion_at IS NULL"
        )

        def runs(pod: Object) -> Object:
            kept = [one for one in pod["status"].get("conditions", ()) if one["type"] != "Ready"]
            ready = {"type": "Ready", "status": "True"}
            return {
                **pod,
                "status": {**pod["status"], "phase": "Running", "conditions": [*kept, ready]},
            }

        rewrite_pods([(id_, space, name, runs) for id_, space, name in rows], now=self.now)

    def turn(self, *, kills: float) -> None:
        """Let each loop look once, in any order; some are killed."""
        self.now += timedelta(seconds=1)
        loops = [
            self._operate, self._schedule, self._control, self._end_deletions, self._run_pods,
        ]  # fmt: skip
        self.chance.shuffle(loops)
        for loop in loops:
            if self.chance.random() < kills:
                self._kill(loop)
            else:
                loop()

    def _kill(self, loop: Callable[[], None]) -> None:
        """Let a loop look, and kill its process, or its session, at one of its statements."""
        how = self.chance.choice(("process", "session"))
        number = int(self.chance.expovariate(1 / 12)) + 1
        try:
            before, late = self.chance.random() < 0.5, self.chance.uniform(0, 0.1)
            with _killing(number, how, before=before, late=late):
                loop()
        except Killed:
            self.told["processes killed"] += 1
            memory.forget()
            self._begin_scheduler()
        except Exception as error:
            if not sql.is_away(error):
                raise
            self.told["sessions ended"] += 1
        if how == "session":  # also where the pass took the error: each begins with a session
            connection.close()
        if loop == self._schedule:
            self._begin_scheduler()

    def settle(self, *, kills: float, plan_ids: tuple[StoredPlan, ...] = ()) -> None:
        """Let the loops work until nothing is left to do, and no operation runs."""
        for _ in range(_TURNS):
            self.turn(kills=kills)
            states = [find_plan(one.name).state for one in plan_ids]
            if RUNNING not in states and self._is_at_rest():
                return
        waits = [find_plan(one.name) for one in plan_ids]
        raise AssertionError(
            f"seed {self.seed}: no end: {[(one.message, one.progress) for one in waits]}"
        )

    def _is_at_rest(self) -> bool:
        if changes.settled().lacking:
            return False  # a session that is ending keeps followers from seeing what changed
        row = sql.fetch_one(
            "SELECT count(*) FROM pod WHERE (node_name = '' AND unschedulable IS NULL)"
            " OR (node_name <> '' AND phase = 'Pending') OR deletion_at IS NOT NULL"
            " OR namespace = %s",
            (PLACES,),
        )
        return row is not None and row[0] == 0 and not manager.with_work(self.now)

    # --- plans -----------------------------------------------------------------------------------

    def act(self) -> None:
        """Ask for one plan or two at a time, carry them out, and open the nodes again."""
        first = changes.watermark()
        asked = [self._change() for _ in range(self.chance.choice((1, 1, 1, 2)))]
        stored = [plan for one in asked if (plan := self._plan(one, first)) is not None]
        for plan in stored:
            plans.begin(plan.name, by="somebody", impersonator="", now=self.now)
        self._carry_out(tuple(stored))
        for name in self.nodes:
            objects.update("Node", "", name, _opened, now=self.now)

    def _carry_out(self, stored: tuple[StoredPlan, ...]) -> None:
        for _ in range(_TURNS):
            self.turn(kills=self.kills)
            found = [find_plan(one.name) for one in stored]
            for plan in found:
                if plan.state == PAUSED:  # two plans wanted the same room
                    assert len(stored) > 1, (self.seed, plan.message)
                    taken = "there is no room for the replacement" in plan.message
                    assert taken or "moves pods too" in plan.message, (
                        self.seed,
                        plan.message,
                    )
                    self.told[
                        f"operations {'whose place was taken' if taken else 'beside another'}"
                    ] += 1
                    plans.cancel(plan.name, now=self.now)
            if not any(plan.state in (RUNNING, PAUSED) for plan in found):
                break
        else:
            raise AssertionError((self.seed, [(one.message, one.progress) for one in found]))
        self.told["operations"] += len(stored)
        held_places.sweep(self.now)  # of those that were cancelled
        self.settle(kills=self.kills)

    def _change(self) -> Object:
        chance, what = self.chance, self.chance.random()
        if what < 0.08:
            return {"rebalance": {"mostNodes": chance.randint(1, 4)}}
        if what < 0.25:
            objective = chance.choice(("ToBalanceZones", "ToMendSoftRules"))
            key = {"topologyKey": "zone"} if objective == "ToBalanceZones" else {}
            return {"rebalance": {"objective": objective, "mostPods": 40, **key}}
        if what < 0.6:
            nodes = chance.sample(self.nodes, chance.randint(1, max(1, len(self.nodes) // 6)))
            return {"drain": {"nodes": nodes}}
        pods = [
            f"default/{row[0]}"
            for row in sql.fetch("SELECT name FROM pod WHERE namespace = 'default' ORDER BY name")
        ]
        return {"evict": {"pods": chance.sample(pods, min(len(pods), chance.randint(1, 60)))}}

    def _plan(self, change: Object, first: int) -> StoredPlan | None:
        spec = {"changes": [change], "seed": 0, "holdPlaces": True, "horizonSeconds": 600}
        document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": spec}
        status = advisor.ask("plan", document)["status"]
        for one in status["staying"]:
            why = one["message"].rpartition(": ")[2]
            self.told[
                "stay: " + ("a budget" if "Budget" in why else re.sub("n[0-9]+", "N", why))
            ] += 1
        if not status["steps"]:
            return None
        stored = plans.store(document, status, by="somebody", now=self.now)
        ids = {
            f"{space}/{name}": id_
            for id_, space, name in sql.fetch("SELECT id, namespace, name FROM pod")
        }
        what = next(iter(change))
        self.told[f"plans: {change[what].get('objective', what)}"] += 1
        for step in status["steps"]:
            if step["do"] == "evict":
                title = f"{step['namespace']}/{step['name']}"
                assert step.get("place"), (self.seed, title, "would leave without a place")
                self.told["steps that move alone"] += "alone" in step
                owner = step["name"].rpartition("-")[0]
                cause = str(causes.uid_of(causes.PLAN, stored.id))
                found = cause, owner, step["place"], ids[title], step["uid"], first
                self.moves.append(Move(stored.id, *found))
        return stored

    # --- what became of it -----------------------------------------------------------------------

    def audit(self) -> int:
        """Hold the log against what was told; return how many pods were moved."""
        rows = sql.fetch(
            _GONE,
            (
                sql.Texts([one.cause for one in self.moves]),
                sql.Int8s([one.pod_id for one in self.moves]),
                sql.Texts([one.place for one in self.moves]),
                sql.Texts([one.uid for one in self.moves]),
            ),
        )
        told, landed = Counter[tuple[int, str, str]](), Counter[tuple[int, str, str]]()
        for one, (gone, is_held) in zip(self.moves, rows, strict=True):
            if gone is None:
                continue  # it left for another plan, or its operation ended
            assert is_held, (self.seed, one, gone, "left before its place was held")
            told[one.first, one.owner, one.place] += 1
        moved = told.total()
        owners = {(first, owner) for first, owner, _ in told}
        firsts = sorted({first for first, _ in owners})
        for first, until in zip(firsts, [*firsts[1:], 2**62], strict=True):
            for owner, node in sql.fetch(_LANDED, (first, until)):
                if (first, owner) in owners:
                    landed[first, owner, node] += 1
        strayed = landed - told, told - landed
        assert strayed == ({}, {}), (self.seed, *strayed)
        beside = sql.fetch(_STRAYED, (PLACES,))
        assert beside == [], (self.seed, "landed beside their places")
        assert not sql.fetch(_TWICE, (PLACES,)), (self.seed, "held two places")
        evictions = sql.fetch(
            _EVICTIONS, (self.has_agents, sql.Texts(sorted({one.cause for one in self.moves})))
        )
        for owner, revision, healthy in evictions:
            least = self.least.get(owner)
            assert least is None or healthy >= least, (self.seed, owner, revision, healthy, least)
            self.told["evictions that used up a budget"] += healthy == least
        self.now += _UNCLAIMED
        held_places.sweep(self.now)
        assert find_places() == [], self.seed
        self.told["moves"] += moved
        return moved


_GONE = f"""
SELECT gone.revision, EXISTS (
    SELECT FROM change held
    WHERE held.kind = 1 AND held.namespace = '{PLACES}' AND held.revision < gone.revision
      AND split_part(held.name, '.', 2) = m.uid AND held.node_name = m.place AND held.verb <> 3
      AND NOT EXISTS (SELECT FROM change ended WHERE ended.object_id = held.object_id
                      AND ended.kind = 1 AND ended.verb = 3 AND ended.revision < gone.revision))
FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[])
  WITH ORDINALITY m(cause, id, place, uid, number),
LATERAL (SELECT min(revision) AS revision FROM change
         WHERE kind = 1 AND object_id = m.id AND cause::text = m.cause
           AND (verb = 3 OR deletion_at IS NOT NULL)) gone
ORDER BY m.number
"""
_LANDED = """
SELECT regexp_replace(name, '-[^-]+$', ''),
       (SELECT node_name FROM change b WHERE b.kind = 1 AND b.object_id = c.object_id
        AND b.node_name <> '' ORDER BY revision LIMIT 1)
FROM change c WHERE kind = 1 AND verb = 1 AND namespace = 'default'
  AND revision > %s::bigint AND revision <= %s::bigint
"""
_STRAYED = """
SELECT regexp_replace(c.name, '-[^-]+$', ''), c.nominated_node_name, b.node_name FROM change c
JOIN change b ON b.kind = 1 AND b.object_id = c.object_id AND b.node_name <> ''
WHERE c.kind = 1 AND c.namespace <> %s AND c.nominated_node_name <> b.node_name
"""
_TWICE = """
WITH held AS (
    SELECT split_part(name, '.', 2) AS uid, object_id, min(revision) AS since,
           coalesce(min(revision) FILTER (WHERE verb = 3), 2::bigint ^ 62) AS until
    FROM change WHERE kind = 1 AND namespace = %s GROUP BY 1, 2)
SELECT a.uid FROM held a JOIN held b ON a.uid = b.uid AND a.object_id < b.object_id
WHERE a.since < b.until AND b.since < a.until
"""
_EVICTIONS = """
WITH states AS (
    SELECT revision, object_id, cause, regexp_replace(name, '-[^-]+$', '') AS owner,
           (CASE WHEN %s::boolean THEN phase = 'Running' ELSE node_name <> '' END
            AND deletion_at IS NULL AND verb <> 3)::int AS healthy
    FROM change WHERE kind = 1 AND namespace = 'default'),
steps AS (
    SELECT *, healthy - lag(healthy, 1, 0) OVER (PARTITION BY object_id ORDER BY revision) AS step
    FROM states),
counts AS (
    SELECT *, sum(step) OVER (PARTITION BY owner ORDER BY revision)::bigint AS count FROM steps)
SELECT owner, revision, count FROM counts WHERE step < 0 AND cause::text = ANY(%s::text[])
ORDER BY revision
"""


def _opened(node: Object) -> Object:
    return {**node, "spec": {k: v for k, v in node["spec"].items() if k != "unschedulable"}}


@contextmanager
def _killing(number: int, how: str, *, before: bool, late: float) -> Iterator[None]:
    """End the process or the session at an exchange with the database.

    ``before``: what the exchange asks for is not done, else it is done and nobody is told.
    ``late``: for so many seconds the session of a process that was killed is still there.
    """
    inner: Any = sql.raw()
    wait, left = inner.wait, number

    def waited(exchange: Generator[Any, Any, Any], *arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return wait(exchange, *arguments, **keywords)
        if how == "session":
            _end_session(inner.info.backend_pid)
            return wait(exchange, *arguments, **keywords)
        if not before:
            wait(exchange, *arguments, **keywords)
        # The database notices it a little later; until then the rows stay locked.
        threading.Timer(late, inner.close).start()
        connection.connection = None
        raise Killed

    inner.wait = waited
    try:
        yield
    finally:
        if "wait" in vars(inner):
            del inner.wait


def _end_session(pid: int) -> None:
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    given = {name: parameters[name] for name in names if name in parameters}
    with psycopg.connect(**given, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
