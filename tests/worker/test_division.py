"""Several schedulers on one database: whatever they do at the same time, no rule is broken.

Each ``Scheduler`` works on a thread with a session of its own. Afterwards each binding in the log
is judged, in the order of revisions, by the plain rules of the fault machine (``tests.faults``),
which share no code with the product.
"""

import random
import threading
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, OtherSchedulers, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.scheduler import leases
from clusterstate.actions.scheduler.decisions import begin_epoch
from clusterstate.change_log import changes, lineage
from clusterstate.database import locks, sql
from clusterstate.objects.values.compatibility import NEWEST
from clusterstate.objects.values.pod import Pod
from clusterstate.processes import shards
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.reaching import reach
from clusterstate.telemetry import slowness
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod, from_stored_class
from scheduling.framework.configuration.documents import default_configuration
from scheduling.plugins.catalogue import build_framework
from scheduling.processes.decision_checks import check
from scheduling.worker import loop
from scheduling.worker.division import SLOTS, Division, Rules
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW
from tests.clusterstate.support import Worker, create_node, everything_since
from tests.controllers.support import pod_manifest
from tests.controllers.test_volumes import Cluster, claim, node_of, of_claim, storage_class, zones
from tests.faults.replay import Event, State
from tests.faults.rules import refuses
from tests.forms import many
from tests.rows import overcommitted_nodes
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def _bootstrapped(db: None) -> None:
    bootstrap.add_missing(now=NOW)


class Several:
    """Schedulers at work, by number; ``seen``: how often a pod was decided in vain."""

    def __init__(self, *numbers: int) -> None:
        self.ended = threading.Event()
        self.killed: dict[int, threading.Event] = {one: threading.Event() for one in numbers}
        self.schedulers: dict[int, Scheduler] = {}
        self.decided = dict.fromkeys(numbers, 0)
        self._began = threading.Barrier(len(numbers) + 1)
        self._threads = [Worker(lambda one=one: self._work(one)) for one in numbers]
        self._began.wait(60)

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        scheduler = Scheduler(default_configuration(), lambda: rng.getrandbits(60), several=True)
        self.schedulers[number] = scheduler
        assert locks.take(locks.cycle(number))
        held = number
        try:
            scheduler.load(time.time(), number)
            self._began.wait(60)
            while not self.ended.is_set() and not self.killed[number].is_set():
                count = scheduler.cycle(time.time())
                self.decided[number] += count
                if not count:
                    scheduler.binder.finish_batch(time.time())
                    time.sleep(0.005)
                if scheduler.may_move_up and locks.take(locks.cycle(shards.FIRST)):
                    moved = scheduler.move_up(time.time())
                    locks.give_back(locks.cycle(held if moved else shards.FIRST))
                    held = shards.FIRST if moved else held
            scheduler.binder.finish_batch(time.time())
            scheduler.binder.write_records(time.time())
        finally:
            locks.give_back(locks.cycle(held))
            scheduler.binder.close()

    def kill(self, number: int) -> None:
        """Let one end, and give its lock back."""
        self.killed[number].set()

    def end(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.result(60)


def settled(placeable: set[str]) -> bool:
    return not placeable & {
        row[0] for row in sql.fetch("SELECT name FROM pod WHERE node_name = ''")
    }


def term(app: str, key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread(app: str) -> dict[str, Any]:
    rule = {**term(app, ZONE), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [rule]}


def manifest(name: str, app: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "16Mi"}}
    containers = [{"name": "main", "image": "nginx:1", "resources": resources}]
    metadata = {"labels": {"app": app}} if app else {}
    return pod_manifest(name, metadata=metadata, containers=containers, **spec)


def drawn(name: str, wave: int, rng: random.Random) -> dict[str, Any]:
    """Return one pod of a mix in which rules come to mean pods that had nothing to do with any.

    Pods ``b`` of each wave are kept apart by others of the same wave, of which who decides them may
    not have heard yet.
    """
    free = f"b{wave}-{rng.randrange(3)}"
    app = f"a{rng.randrange(6)}"
    cpu = rng.choice(["100m", "300m", "700m"])
    kind = rng.randrange(8)
    if kind == 0:
        return manifest(
            name, app, cpu, **required("podAntiAffinity", term(app, "kubernetes.io/hostname"))
        )
    if kind == 1:
        return manifest(name, app, cpu, **required("podAntiAffinity", term(free, ZONE)))
    if kind == 2:
        return manifest(name, "s", cpu, **spread("s"))
    if kind == 3:
        ports = [{"containerPort": 80, "hostPort": 8000 + rng.randrange(3)}]
        found = manifest(name, "", cpu)
        found["spec"]["containers"][0]["ports"] = ports
        return found
    return manifest(name, rng.choice(["", free, f"c{rng.randrange(9)}"]), cpu)


def broken(start: int, nodes: dict[str, Any], pods: dict[str, dict[str, Any]]) -> list[str]:
    """Return the bindings that break a rule at their own revision."""
    state = State(nodes=nodes)
    found: list[str] = []
    ports: dict[str, set[int]] = {}
    for change in everything_since(start, "Pod"):
        item = msgspec.json.decode(msgspec.json.encode(pods[change.name]))
        item["metadata"]["uid"] = change.name
        if change.verb == changes.DELETED:
            state.apply(Event(change.revision, "Pod", "DELETED", item))
            continue
        if not change.node_name:
            continue
        if not change.previous_node_name:
            node = nodes[change.node_name]
            if refuses(state, item, node):
                found.append(f"{change.name} on {change.node_name} at {change.revision}")
            for one in item["spec"]["containers"][0].get("ports", ()):
                taken = ports.setdefault(change.node_name, set())
                if one["hostPort"] in taken:
                    found.append(f"port of {change.name} on {change.node_name}")
                taken.add(one["hostPort"])
        item["spec"]["nodeName"] = change.node_name
        state.apply(Event(change.revision, "Pod", "MODIFIED", item))
    return found


def cluster(count: int, cpu: str = "8") -> dict[str, Any]:
    nodes = {}
    for number in range(count):
        name = f"n{number}"
        labels = {ZONE: f"z{number % 3}", "kubernetes.io/hostname": name}
        create_node(name, labels=labels, allocatable={"cpu": cpu})
        allocatable = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        nodes[name] = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": allocatable},
        }
    return nodes


@pytest.mark.parametrize("seed", range(many(2, 12)))
def test_three_at_work_break_no_rule_at_any_revision(seed: int) -> None:
    rng = random.Random(seed)
    nodes = cluster(9, cpu="16")
    start = changes.watermark()
    pods: dict[str, dict[str, Any]] = {}
    several = Several(0, 1, 2)
    try:
        for wave in range(12):
            some = [drawn(f"p{wave}-{number}", wave, rng) for number in range(rng.randrange(2, 30))]
            pods |= {one["metadata"]["name"]: one for one in some}
            create_pods(some, now=NOW)
            time.sleep(rng.random() * 0.15)
        plain = {
            name for name, one in pods.items()
            if not one["metadata"].get("labels") and "ports" not in one["spec"]["containers"][0]
        }  # fmt: skip
        until(lambda: settled(plain), seconds=60, what="pods without rules on nodes")
        time.sleep(0.3)
    finally:
        several.end()
    assert broken(start, nodes, pods) == []
    assert overcommitted_nodes() == []
    assert all(several.decided[one] for one in (1, 2)), several.decided
    assert made_otherwise(rng, pods) == []


def made_otherwise(rng: random.Random, pods: dict[str, dict[str, Any]]) -> list[str]:
    """Return what is different of some decisions that are made again, each as its scheduler's."""
    found = []
    for name in rng.sample(sorted(pods), 25):
        for record in decisions.of_pod("default", name, limit=2):
            result, details = check(record)
            if result == "differs":
                found.append(f"{name} by {record.scheduler} at {record.number}: {details}")
    return found


def test_a_scheduler_binds_the_pods_of_each_component_by_priority() -> None:
    """Also at later revisions: what is bound first was decided first."""
    rng = random.Random(3)
    for value in range(5):
        of = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 10 * value}
        objects.create("PriorityClass", "", {**of, "metadata": {"name": f"v{value}"}}, now=NOW)
    wanted = {}
    some = []
    for number in range(60):
        app, value = f"a{number % 4}", rng.randrange(5)
        wanted[f"p{number}"] = app, value
        rule = {**spread(app)["topologySpreadConstraints"][0], "maxSkew": 9}
        some.append(
            manifest(
                f"p{number}", app, topologySpreadConstraints=[rule], priorityClassName=f"v{value}"
            )
        )
    start = changes.watermark()
    create_pods(some, now=NOW)
    cluster(6)
    several = Several(0, 1, 2)
    try:
        until(lambda: settled(set(wanted)), seconds=60, what="all pods on nodes")
    finally:
        several.end()
    bound = [
        change.name for change in everything_since(start, "Pod")
        if change.node_name and not change.previous_node_name
    ]  # fmt: skip
    assert len(bound) == 60
    for app in ("a0", "a1", "a2", "a3"):
        values = [wanted[name][1] for name in bound if wanted[name][0] == app]
        assert values == sorted(values, reverse=True)


def test_many_pods_that_want_the_same_few_nodes_fill_them_exactly() -> None:
    nodes = cluster(2, cpu="4")
    start = changes.watermark()
    classes = [manifest(f"p{number}", f"c{number % 10}", "100m") for number in range(100)]
    several = Several(0, 1, 2)
    try:
        create_pods(classes, now=NOW)
        placed = "SELECT count(*) FROM pod WHERE node_name <> ''"
        until(lambda: sql.fetch(placed) == [(80,)], seconds=60, what="full nodes")
        time.sleep(0.3)
    finally:
        several.end()
    assert sql.fetch("SELECT count(*) FROM pod WHERE node_name <> ''") == [(80,)]
    assert broken(start, nodes, {one["metadata"]["name"]: one for one in classes}) == []


@pytest.mark.parametrize("gone", [0, 1])
def test_when_one_is_gone_the_others_take_its_pods_over(gone: int) -> None:
    cluster(3)
    several = Several(0, 1, 2)
    try:
        several.kill(gone)
        some = [manifest(f"p{number}", f"c{number}") for number in range(20)]
        some += [manifest(f"s{number}", "s", **spread("s")) for number in range(6)]
        began = time.monotonic()
        create_pods(some, now=NOW)
        names = {one["metadata"]["name"] for one in some}
        until(lambda: settled(names), seconds=20, what="the pods on nodes")
        assert time.monotonic() - began < 5
    finally:
        several.end()
    assert overcommitted_nodes() == []


def test_pods_of_a_silent_scheduler_are_anothers_but_those_of_groups() -> None:
    cluster(3)
    of_group = manifest("member", "", schedulingGroup={"podGroupName": "nobody"})
    assert locks.take(locks.cycle(shards.FIRST))  # as a process that was stopped does
    several = Several(1)
    try:
        leases.renew(shards.FIRST, 5)
        create_pods([manifest("plain", ""), manifest("s0", "s", **spread("s"))], now=NOW)
        until(lambda: settled({"plain"}), seconds=20, what="the pod of the scheduler that works")
        assert not settled({"s0"})
        leases.renew(shards.FIRST, 0)
        create_pods([of_group, manifest("s1", "s", **spread("s"))], now=NOW)
        until(lambda: settled({"s0", "s1"}), seconds=20, what="the pods of the silent one")
        until(lambda: several.decided[1] >= 3, seconds=20, what="all three are counted")
        assert sql.fetch("SELECT name FROM pod WHERE node_name = ''") == [("member",)]
        assert len(several.schedulers[1].mirror.elsewhere) == 1
    finally:
        several.end()
        locks.give_back(locks.cycle(shards.FIRST))


def test_a_lease_is_as_long_for_a_process_that_has_just_begun_and_ends_with_its_work(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ACTIVE_SCHEDULERS = 2
    monkeypatch.setattr(slowness, "own", slowness.ProcessReport())
    slowness.own.begin()
    left = "SELECT extract(epoch FROM awake_until - clock_timestamp())::float8 FROM scheduler"
    with loop._Lease(shards.FIRST):
        until(lambda: sql.fetch(left), seconds=20, what="the lease")
        assert float(sql.fetch(left)[0][0]) <= leases.SECONDS * 4
    assert sql.fetch(left) == [(None,)], "whoever has no lease would be silent"
    leases.renew(shards.FIRST, 0)
    settings.ACTIVE_SCHEDULERS = 1
    with loop._Lease(shards.FIRST):
        assert sql.fetch(left) == [(None,)]


def test_a_waiting_pod_changes_hands_with_its_place_in_the_queue() -> None:
    """A rule comes to mean pods that wait; its component is the first scheduler's."""
    cluster(3)
    one = Division()
    one.at_work = frozenset((0, 1))
    owner = {f"x{n}": one.owner(1, [counter_of(f"x{n}")]) for n in range(20)}
    x = min(name for name, number in owner.items() if number == 0)
    create_pods([manifest(f"huge{n}", x, "100") for n in range(5)], now=NOW)
    several = Several(0, 1)
    try:
        first, second = several.schedulers[0].mirror, several.schedulers[1].mirror
        tried = "SELECT count(*) FROM pending_pod WHERE attempts > 0"
        until(lambda: sql.fetch(tried) == [(5,)], seconds=20, what="refusals")
        assert (len(first.queue), len(second.queue)) == (0, 5)
        create_pods([manifest("apart", "y", **required("podAntiAffinity", term(x, ZONE)))], now=NOW)
        until(
            lambda: len(first.queue) == 5 and not len(second.queue), seconds=20, what="the change"
        )
        assert set(second.elsewhere) == set(first.queue._entries)
        assert all(place.attempts for place in first.queue.places())
        create_node("large", labels={ZONE: "z9"}, allocatable={"cpu": "1000"})
        until(lambda: settled({f"huge{n}" for n in range(5)}), seconds=20, what="room")
    finally:
        several.end()


def test_a_member_that_waited_for_its_gang_is_asked_for_room_again() -> None:
    """Meanwhile another scheduler bound to its node, which the bind of the gang knows of."""
    zones()
    storage_class("fast")
    claim("data", storageClassName="fast")
    made = Cluster(several=True)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": policy}
    group["metadata"] = {"name": "g", "namespace": "default"}
    objects.create("PodGroup", "default", group, now=NOW)
    of = {"schedulingGroup": {"podGroupName": "g"}}
    on_a, on_b = ({"nodeSelector": {ZONE: zone}} for zone in "ab")
    waits = manifest("p0", "", **of, **on_a, volumes=[of_claim("data")])
    create_pods([waits, manifest("p1", "", "40", **of, **on_b)], now=NOW)
    at = made.now.timestamp()
    while made.scheduler.cycle(at):
        made.scheduler.binder.finish_batch(at)
    assert (node_of("p0"), node_of("p1")) == ("", "")
    create_pods([manifest("other", "", "40", schedulerName="another")], now=NOW)
    other = Binding(find_pod_id("default", "other") or 0, "node-b")
    snapshot = changes.watermark()
    assert bind_pods(
        [other],
        snapshot_revision=snapshot,
        now=NOW,
        binder="another",
        beside=OtherSchedulers(reach(), 5, begin_epoch(5)),
    ).bound
    made.turn()
    assert overcommitted_nodes() == []
    assert (node_of("p0"), node_of("p1")) == ("", "")
    delete_pod("default", "other", grace_seconds=0, now=NOW)
    made.turn(8, seconds=30)
    assert (node_of("p0"), node_of("p1")) == ("node-a", "node-b")


def bound_by_another(name: str, node_name: str, *counters: int) -> bool:
    """Bind a pod as another scheduler that knows all binds."""
    return bool(
        bind_pods(
            [Binding(find_pod_id("default", name) or 0, node_name, counters=counters)],
            snapshot_revision=changes.watermark(),
            now=NOW,
            binder="another",
            beside=OtherSchedulers(reach(), 5, begin_epoch(5)),
        ).bound
    )


def two_for_one_place() -> Cluster:
    """Return a scheduler whose pod ``mine`` fits on the only node unless ``other`` is there."""
    cluster(1, cpu="1")
    made = Cluster(several=True)
    create_pods([manifest("other", "", "1", schedulerName="another")], now=NOW)
    create_pods([manifest("mine", "", "1")], now=NOW)
    return made


def test_a_scheduler_that_lost_a_place_to_another_takes_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = two_for_one_place()
    at = made.now.timestamp()
    made.scheduler.mirror.refresh(at)
    assert bound_by_another("other", "n0")
    with monkeypatch.context() as patch:  # its bind comes after it has read the log
        patch.setattr(made.scheduler.mirror, "refresh", lambda now: 0)
        made.scheduler.cycle(at)
    assert made.scheduler.binder.was_overtaken
    assert made.scheduler.binder.contended_until > at


def test_in_its_turn_a_scheduler_decides_on_what_the_one_before_bound() -> None:
    made = two_for_one_place()
    made.scheduler.binder.contended_until = made.now.timestamp() + 5
    taken = threading.Event()

    def have_turn() -> None:
        assert locks.take(locks.TURN)
        taken.set()
        time.sleep(0.1)
        assert bound_by_another("other", "n0")
        locks.give_back(locks.TURN)

    another = Worker(have_turn)
    assert taken.wait(10)
    made.turn(1)
    another.result()
    assert node_of("mine") == ""
    assert not made.scheduler.binder.was_overtaken


@pytest.mark.parametrize("interferes", [False, True])
def test_a_decision_made_before_a_rule_came_is_bound_unless_the_rule_matters(
    monkeypatch: pytest.MonkeyPatch,
    interferes: bool,
) -> None:
    """The rule is stored after the scheduler read the rules and before it binds."""
    cluster(3)
    made = Cluster(several=True)
    create_pods([manifest("mine", "x")], now=NOW)
    at = made.now.timestamp()
    binder, calls = made.scheduler.binder, []
    read = binder.with_rules

    def then_a_rule_comes(bindings: Any) -> Any:
        found = read(bindings)
        if not calls:
            apart = manifest("apart", "y", **required("podAntiAffinity", term("x", ZONE)))
            create_pods([{**apart, "spec": {**apart["spec"], "schedulerName": "another"}}], now=NOW)
            if interferes:
                assert bound_by_another("apart", "n1", counter_of("x"))
        calls.append([one.counters for one in found[1]])
        return found

    monkeypatch.setattr(binder, "with_rules", then_a_rule_comes)
    made.scheduler.cycle(at)
    assert calls == [[()], [(counter_of("x"),)]]
    assert bool(node_of("mine")) is not interferes
    assert binder.was_overtaken is interferes
    made.turn(1)
    assert node_of("mine") not in ("", "n1" if interferes else "")


def test_nobody_waits_long_for_a_turn() -> None:
    made = two_for_one_place()
    made.scheduler.binder.contended_until = made.now.timestamp() + 5
    taken, ended = threading.Event(), threading.Event()

    def stop() -> None:
        assert locks.take(locks.TURN)
        taken.set()
        assert ended.wait(20)
        locks.give_back(locks.TURN)

    stopped = Worker(stop)
    try:
        assert taken.wait(10)
        began = time.monotonic()
        made.turn(1)
        assert node_of("mine") == "n0"
        assert time.monotonic() - began < 2
    finally:
        ended.set()
        stopped.result()


def test_a_clock_that_was_set_back_does_not_prolong_turns() -> None:
    made = two_for_one_place()
    at = made.now.timestamp()
    made.scheduler.mirror.refresh(at)
    made.scheduler.binder.contended_until = at + 3600
    with made.scheduler._turn(at) as most:
        assert most == made.scheduler.binder.at_once


def test_after_a_restore_rules_are_those_of_the_classes_that_are_there_now() -> None:
    """The restored classes have ids that other classes had before."""
    cluster(1)
    create_pods([manifest("p", "x", **spread("a"))], now=NOW)
    made = Cluster(several=True)
    division = made.scheduler.division
    assert division is not None
    made.turn(1)
    x = from_pod(msgspec.convert(manifest("q", "x"), Pod))
    snapshot = made.scheduler.mirror.snapshot
    assert division.counters(x, snapshot) == ()
    with transaction.atomic():
        sql.run("UPDATE scheduling_class SET spec = replace(spec, '\"a\"', '\"x\"'), digest = '0'")
        sql.fetch("SELECT nextval('reach_seq')")
        lineage.start_again()
    made.turn(1)
    assert made.scheduler.mirror.snapshot is not snapshot
    made.turn(1)
    assert division.counters(x, made.scheduler.mirror.snapshot) == (counter_of("x"),)


def counter_of(app: str) -> int:
    """Return the counter of the rule of ``spread(app)``."""
    info = from_pod(msgspec.convert(manifest("p", app, **spread(app)), Pod))
    (counter,) = Rules([info]).about(info)
    return counter


def divided(*numbers: int) -> list[Division]:
    """Return the divisions of schedulers at work that have just begun, each with its own number."""
    frameworks = {"default-scheduler": build_framework(default_configuration().profiles[0])}
    found = []
    for number in numbers:
        one = Division(number)
        one.use(frameworks)
        one.at_work = frozenset(numbers)
        one.learn(NEWEST)
        found.append(one)
    return found


def owner_of(divisions: list[Division], name: str) -> int:
    """Return the number of the only scheduler that decides a pod."""
    ((class_id, text),) = sql.fetch(
        "SELECT c.id, c.spec FROM pod p JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE p.name = %s", (name,)
    )  # fmt: skip
    info = from_stored_class(class_id, text, NEWEST)
    mine = [one.shard for one in divisions if one.is_mine(info, class_id, Snapshot())]
    assert len(mine) == 1, f"{name} is decided by {mine}"
    return mine[0]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_pods_of_unrelated_rules_are_the_work_of_several_schedulers(count: int) -> None:
    create_pods([manifest(f"s{n}", f"a{n}", **spread(f"a{n}")) for n in range(60)], now=NOW)
    create_pods([manifest(f"m{n}", f"a{n}") for n in range(60)], now=NOW)
    create_pods([manifest(f"p{n}", f"b{n}") for n in range(60)], now=NOW)
    divisions = divided(*range(count))
    for kind, own in (("s", count == 2), ("p", False)):
        owners = Counter(owner_of(divisions, f"{kind}{n}") for n in range(60))
        assert set(owners) == set(range(0 if own else 1, count)), "each has some"
        assert max(owners.values()) < 60 / len(owners) * 1.7
    for n in range(60):  # who is meant by a rule goes with those that have it
        assert owner_of(divisions, f"m{n}") == owner_of(divisions, f"s{n}")


def test_when_one_is_silent_the_pods_of_the_others_stay_theirs() -> None:
    create_pods([manifest(f"s{n}", f"a{n}", **spread(f"a{n}")) for n in range(60)], now=NOW)
    before = divided(0, 1, 2, 3)
    owners = {n: owner_of(before, f"s{n}") for n in range(60)}
    for one in before:
        one.silent, one._owners = frozenset({2}), {}
    awake = [one for one in before if one.shard != 2]
    for n, owner in owners.items():
        now = owner_of(awake, f"s{n}")
        assert now != 2 if owner == 2 else now == owner


def test_a_rule_that_connects_others_joins_them_until_its_class_is_gone() -> None:
    """Whoever has seen it, and whoever begins later, divide alike."""
    create_pods([manifest(f"s{n}", f"a{n}", **spread(f"a{n}")) for n in range(12)], now=NOW)
    divisions = divided(0, 1, 2, 3)
    apart = {owner_of(divisions, f"s{n}") for n in range(12)}
    assert len(apart) > 1
    terms = [term(f"a{n}", ZONE) for n in range(12)]
    create_pods([manifest("joins", "j", **required("podAntiAffinity", *terms))], now=NOW)
    for one in divisions:
        one.learn(NEWEST)
    for some in (divisions, divided(0, 1, 2, 3), [divisions[0], *divided(0, 1, 2, 3)[1:]]):
        assert len({owner_of(some, name) for name in ("joins", *(f"s{n}" for n in range(12)))}) == 1
    delete_pod("default", "joins", grace_seconds=0, now=NOW)
    sql.run("DELETE FROM scheduling_class WHERE spec LIKE '%%podAntiAffinity%%'")
    for one in divisions:
        one.learn(NEWEST)
    assert {owner_of(divisions, f"s{n}") for n in range(12)} == apart
    assert {owner_of(divided(0, 1, 2, 3), f"s{n}") for n in range(12)} == apart


def test_a_rule_that_means_all_pods_makes_one_component_which_is_told() -> None:
    zones()
    create_pods([manifest(f"s{n}", f"a{n}", **spread(f"a{n}")) for n in range(10)], now=NOW)
    many_ = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    rule = {"topologyKey": ZONE, "maxSkew": 9, "whenUnsatisfiable": "DoNotSchedule"}
    all_ = {"topologySpreadConstraints": [{**rule, "labelSelector": many_}]}
    made = Cluster(several=True)
    made.turn()
    division, snapshot = made.scheduler.division, made.scheduler.mirror.snapshot
    assert division is not None
    assert division.largest_share(snapshot) == 0.1
    create_pods([manifest("all", "x", **all_), manifest("plain", "")], now=NOW)
    made.turn()
    division.look(NEWEST)
    assert division.largest_share(snapshot) == 11 / 12
    assert len({owner_of(divided(0, 1, 2, 3), f"s{n}") for n in range(10)}) == 1


def test_who_has_nothing_to_do_takes_half_of_what_waits_elsewhere() -> None:
    create_pods([manifest(f"p{n}", f"b{n}") for n in range(40)], now=NOW)
    rows = sql.fetch("SELECT c.id, c.spec FROM scheduling_class c JOIN pod p ON p.class_id = c.id")
    waiting = [(class_id, from_stored_class(class_id, text, NEWEST)) for class_id, text in rows]
    first, second, third = divided(0, 1, 2)
    assert third.to_take([], Snapshot()) == []
    seconds = [one for one in waiting if second.is_mine(one[1], one[0], Snapshot())]
    taken = third.to_take(seconds, Snapshot())
    assert len(seconds) / 2 <= len(taken) < len(seconds) / 2 + 1
    assert third.to_take(seconds[:1], Snapshot()) == [], "it would only change hands"
    leases.take_slots(taken, 2)
    for one in (first, second, third):
        one.moved, one._owners = leases.moved_slots(), {}
    now = Counter(owner_of([first, second, third], f"p{n}") for n in range(40))
    assert now[2] == 40 - len(seconds) + len(taken)
    assert second.to_take(waiting, Snapshot())


def test_pods_that_wait_behind_those_of_the_first_are_taken_from_it() -> None:
    create_pods([manifest(f"s{n}", f"a{n}", **spread(f"a{n}")) for n in range(9)], now=NOW)
    create_pods([manifest("g", "", schedulingGroup={"podGroupName": "nobody"})], now=NOW)
    rows = sql.fetch("SELECT c.id, c.spec FROM scheduling_class c JOIN pod p ON p.class_id = c.id")
    first, second = divided(0, 1)
    waiting = [(class_id, from_stored_class(class_id, text, NEWEST)) for class_id, text in rows]
    firsts = [one for one in waiting if first.is_mine(one[1], one[0], Snapshot())]
    alone = [one for one in firsts if 0 in first.counters(one[1], Snapshot())]
    assert len(firsts) > 2
    assert len(alone) == 1
    (other,) = [one for one in firsts if one not in alone][:1]
    found = second.to_take([*alone, other], Snapshot())
    assert found == [first.component(first.counters(other[1], Snapshot())) % SLOTS]


def test_rules_mean_whom_their_terms_mean() -> None:
    rng = random.Random(5)

    def info(labels: dict[str, str], namespace: str, **spec: Any) -> Any:
        body = pod_manifest("p", metadata={"namespace": namespace, "labels": labels}, **spec)
        return from_pod(msgspec.convert(body, Pod))

    def expression() -> dict[str, Any]:
        key, values = f"k{rng.randrange(3)}", [f"v{rng.randrange(3)}" for _ in range(2)]
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        return {"key": key, "operator": operator} | (
            {"values": values} if operator in ("In", "NotIn") else {}
        )

    for _ in range(200):
        bearers = []
        for _ in range(rng.randrange(4)):
            selector = {"matchExpressions": [expression() for _ in range(rng.randrange(3))]}
            one = {"labelSelector": selector, "topologyKey": ZONE}
            kind = rng.choice(["podAffinity", "podAntiAffinity"])
            bearers.append(info({}, rng.choice("ab"), **required(kind, one)))
        rules = Rules(bearers)
        for _ in range(20):
            labels = {f"k{n}": f"v{rng.randrange(3)}" for n in range(3) if rng.random() < 0.6}
            pod = info(labels, rng.choice("ab"))
            meant = any(
                one.means(pod, lambda name: {})
                for bearer in bearers
                for one in (*bearer.affinity, *bearer.anti_affinity)
            )
            assert bool(rules.about(pod)) == meant
