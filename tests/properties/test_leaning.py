"""What was decided on an assumption is bound only with it.

Nodes are cordoned and deleted, and pods are deleted, after the scheduler took its snapshot and
before it binds: it asks for a seed in between. The log is then read bind by bind, in the order of
the decisions, against rules that are stated here once more, by hand.
"""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from clusterstate.actions import objects
from clusterstate.change_log import changes
from clusterstate.database import sql
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.clusterstate.support import everything_since
from tests.forms import many

pytestmark = pytest.mark.django_db(transaction=True)
NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
ZONE = "topology.kubernetes.io/zone"


def create(*builders) -> None:
    for builder in builders:
        manifest = builder.manifest
        namespace = manifest["metadata"].get("namespace", "")
        objects.create(manifest["kind"], namespace, manifest, now=NOW)


def cordon(name: str, closed: bool = True) -> None:
    objects.update("Node", "", name, lambda m: {**m, "spec": {"unschedulable": closed}}, now=NOW)


def in_zone(name: str, zone: str):
    return make_node(name).in_zone(zone).labelled(name=name)


class Live:
    """A scheduler whose cycles are turned by hand; ``between`` happens after each snapshot."""

    def __init__(self) -> None:
        self.between: Callable[[], None] = lambda: None
        self.now = NOW.timestamp()
        self.scheduler = Scheduler(default_configuration(), self._seed)
        self.scheduler.load(self.now)
        self._rng = random.Random(7)

    def _seed(self) -> int:
        self.between()
        self.between = lambda: None
        return self._rng.getrandbits(60)

    def turn(self, most: int = 1, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(most):
            self.scheduler.cycle(self.now)

    def rest(self) -> None:
        """Turn until there is nothing to do."""
        while self.scheduler.cycle(self.now):
            pass
        self.scheduler.cycle(self.now)


@pytest.fixture
def live() -> Iterator[Callable[[], Live]]:
    made: list[Live] = []

    def start() -> Live:
        made.append(Live())
        return made[-1]

    yield start
    for one in made:
        one.scheduler.binder.close()


def important(pod, value: int):
    """Give a pod a priority, by a class."""
    name = f"worth-{value}"
    pc = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    objects.create("PriorityClass", "", pc, now=NOW)
    return pod.with_("spec", "priorityClassName", value=name)


def nodes_of() -> dict[str, str]:
    return dict(sql.fetch("SELECT name, node_name FROM pod ORDER BY id"))


def near(name: str, app: str, *, of: str = ""):
    """A pod that must be in the zone of a pod with a label."""
    return make_pod(name).labelled(app=of or name).near(ZONE, app=app)


def spread(name: str, app: str, skew: int = 1):
    return make_pod(name).labelled(app=app).spread(ZONE, skew, app=app)


def test_a_pod_is_not_bound_without_the_one_that_it_must_be_with(live):
    create(in_zone("n1", "a").offers(pods="1"), in_zone("n2", "a"))
    run = live()
    create(make_pod("first").labelled(app="a").selects(name="n1"), near("second", "a"))
    run.between = lambda: cordon("n1")
    run.turn()
    assert nodes_of() == {"first": "", "second": ""}
    cordon("n1", False)
    run.rest()
    run.now += 20
    run.rest()
    assert nodes_of() == {"first": "n1", "second": "n2"}


def test_others_do_not_wait_for_what_leans(live):
    create(in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b"))
    run = live()
    create(
        make_pod("first").labelled(app="a").selects(name="n1"),
        near("second", "a"),
        make_pod("easy").selects(name="n3"),
        make_pod("friend").labelled(app="b").selects(name="n3"),
        near("beside", "b"),
    )
    run.between = lambda: cordon("n1")
    run.turn()
    nodes = nodes_of()
    assert (nodes["first"], nodes["second"]) == ("", "")
    assert (nodes["easy"], nodes["friend"], nodes["beside"]) == ("n3", "n3", "n3")
    log = [c.name for c in everything_since(0, "Pod") if c.node_name and not c.previous_node_name]
    assert log.index("friend") < log.index("beside")


def test_a_spread_is_not_bound_on_a_lowest_count_that_was_not_reached(live):
    create(in_zone("n1", "a"), in_zone("n2", "b"))
    run = live()
    create(*(spread(f"p{i}", "s") for i in range(6)))
    run.between = lambda: cordon("n1")
    run.turn()
    by_node = Counter(node for node in nodes_of().values() if node)
    assert by_node == {"n2": 1}
    cordon("n1", False)
    run.rest()
    run.now += 20
    run.rest()
    assert Counter(nodes_of().values()) == {"n1": 3, "n2": 3}


def test_what_was_decided_on_the_batch_before_comes_back_with_it(live):
    """The second batch is decided while the first one, too large to be bound at once, is bound."""
    create(in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b"))
    run = live()
    create(
        make_pod("first").labelled(app="a").selects(name="n1"),
        *(make_pod(f"easy-{i}").selects(name="n3") for i in range(40)),
    )
    run.between = lambda: cordon("n1")
    run.turn()
    create(near("second", "a"))
    run.turn()
    nodes = nodes_of()
    assert (nodes.pop("first"), nodes.pop("second")) == ("", "")
    assert set(nodes.values()) == {"n3"}


def test_who_was_refused_because_of_a_pod_that_came_back_is_tried_again(live):
    create(in_zone("n1", "a"))
    run = live()
    create(make_pod("first").labelled(app="a").asks(cpu="3"), make_pod("second").asks(cpu="3"))
    run.between = lambda: objects.delete("Pod", "default", "first", now=NOW)
    run.turn()
    run.turn(3, seconds=2)
    assert nodes_of() == {"second": "n1"}


def test_no_victim_is_deleted_for_an_assumption_that_did_not_come_true(live):
    create(in_zone("n1", "a"), in_zone("n2", "a").offers(cpu="1"))
    create(make_pod("victim").asks(cpu="1").selects(name="n2"))
    run = live()
    run.rest()
    create(
        important(make_pod("first").labelled(app="a").selects(name="n1"), 100),
        important(near("second", "a").asks(cpu="1").selects(name="n2"), 50),
    )
    run.between = lambda: cordon("n1")
    run.turn()
    assert sql.fetch("SELECT name FROM pod WHERE deletion_at IS NOT NULL") == []
    assert nodes_of()["second"] == ""
    cordon("n1", False)
    run.rest()
    assert sql.fetch("SELECT name FROM pod WHERE deletion_at IS NOT NULL") == [("victim",)]


# Random batches -------------------------------------------------------------------------------

ZONES = ("a", "b", "c")
APPS = ("u", "v", "w")


class World:
    """The rules once more, on what the log tells."""

    def __init__(self) -> None:
        self.zone: dict[str, str] = {}
        self.alive: set[str] = set()
        self.app: dict[str, str] = {}
        self.near: dict[str, str] = {}
        self.spread: dict[str, str] = {}
        self.bound: dict[str, str] = {}

    def counted(self, app: str) -> Counter[str]:
        return Counter(
            self.zone[node]
            for name, node in self.bound.items()
            if self.app[name] == app and node in self.alive
        )

    def bind(self, name: str, node: str) -> None:
        zone = self.zone[node]
        if name in self.near:
            there = self.counted(self.near[name])
            first = not there and self.near[name] == self.app[name]
            assert there[zone] or first, f"{name} is alone on {node}: {self.bound}"
        if name in self.spread:
            counts = self.counted(self.spread[name])
            lowest = min(counts[one] for one in {self.zone[n] for n in self.alive})
            assert counts[zone] + 1 - lowest <= 1, f"{name} skews {counts} on {node}"
        self.bound[name] = node


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(many(5, 40)))
def test_no_bind_breaks_a_hard_rule_in_the_order_of_decisions(live, seed):
    rng = random.Random(seed)
    world = World()
    for zone in ZONES:
        for number in range(3):
            world.zone[f"{zone}{number}"] = zone
    create(*(in_zone(name, zone) for name, zone in world.zone.items()))
    world.alive = set(world.zone)
    run = live()
    cursor = changes.watermark()
    made = bound = 0
    deletes_nodes = seed % 2 == 0  # then the log is read after each batch, not while one waits
    gone: set[str] = set()

    def some() -> list:
        nonlocal made
        builders = []
        for _ in range(rng.choice((4, 12, 40))):
            made += 1
            name, app = f"p{made}", rng.choice(APPS)
            kind = rng.random()
            world.app[name] = app
            if kind < 0.3:
                world.near[name] = rng.choice(APPS)
                builders.append(near(name, world.near[name], of=app))
            elif kind < 0.6:
                world.spread[name] = app
                builders.append(spread(name, app))
            else:
                builders.append(make_pod(name).labelled(app=app))
        return builders

    def disturb() -> None:
        for _ in range(rng.randint(0, 3)):
            name = rng.choice(sorted(world.alive - gone))
            what = rng.random()
            if what < 0.5:
                cordon(name)
            elif what < 0.7:
                cordon(name, False)
            elif what < 0.8 and deletes_nodes and not name.endswith("0"):
                objects.delete("Node", "", name, now=NOW)
                gone.add(name)
            else:
                waiting = [pod for pod, node in nodes_of().items() if not node]
                if waiting:
                    objects.delete("Pod", "default", rng.choice(waiting), now=NOW)

    def read() -> None:
        nonlocal cursor, bound
        for change in everything_since(cursor, "Pod"):
            cursor = change.revision
            if change.node_name and not change.previous_node_name:
                world.bind(change.name, change.node_name)
                bound += 1
        world.alive -= gone

    for _ in range(8):
        create(*some())
        for _ in range(rng.randint(1, 3)):
            run.between = disturb
            run.turn(seconds=rng.choice((0, 3)))
            if deletes_nodes:
                run.scheduler.binder.finish_batch(run.now)
                read()
        run.rest()
        read()
        for name in rng.sample(sorted(world.alive), 4):
            cordon(name, False)
    assert bound > 20
