"""Nodes that come, change and go under classes that were compiled before: what follows, and how."""

import random
from collections.abc import Iterator

import pytest

from clusterstate.objects.values.node import Node
from scheduling.engine.fast import fast_lane
from scheduling.engine.fast.compiling import CompiledClass
from scheduling.engine.fast.fast_lane import FastLane
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.types import PodInfo
from tests.builders import NodeBuilder, make_node, make_pod
from tests.engine import lanes
from tests.engine.test_programs import Sides, behind_service, pod_of, service
from tests.engine.test_runs import assert_counts_are_true
from tests.forms import many
from tests.strategies import HOSTNAME, ZONE


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


def node(number: int, zone: int | None = None) -> NodeBuilder:
    labels = {HOSTNAME: f"n{number}", ZONE: f"z{number % 3 if zone is None else zone}"}
    return make_node(f"n{number}").labelled(labels).offers(cpu="4", pods="20")


def sides_of(count: int, *, services: int = 6, seed: int = 5) -> Sides:
    snapshots = [Snapshot(capacity=256), Snapshot(capacity=256)]
    for snapshot in snapshots:
        for number in range(count):
            snapshot.set_node(node(number).build())
        for number in range(services):
            snapshot.set_service(service(number))
    return Sides(snapshots, seed)


def set_node(sides: Sides, changed: Node) -> None:
    for snapshot in sides.snapshots:
        snapshot.set_node(changed)


def lane_of(sides: Sides) -> FastLane:
    decider = sides.deciders[1]
    assert decider is not None
    return decider._lane


def compiled_of(sides: Sides) -> dict[int, object]:
    """Return what the classes came to, by class."""
    key = lane_of(sides)._memo_key
    infos: list[PodInfo] = sides.snapshots[1].classes
    return {info.index: info.memo[key] for info in infos if key in info.memo}


def any_change(dice: random.Random, number: int) -> NodeBuilder:
    """Return a node as it comes, or as it changes."""
    changed = node(number)
    match dice.randrange(9):
        case 0:
            return node(number, zone=dice.randrange(5))
        case 1:
            key, value = dice.choice(list(changed.manifest["metadata"]["labels"].items()))
            return changed.with_("metadata", "labels", value={key: value})
        case 2:
            return changed.labelled({HOSTNAME: f"n{dice.randrange(number + 1)}"})
        case 3:
            return changed.cordoned()
        case 4 | 5:
            effect = dice.choice(["PreferNoSchedule", "NoSchedule", "NoExecute"])
            return changed.tainted(dice.choice(["spot", "old"]), effect=effect)
        case 6:
            name = dice.choice(["registry.k8s.io/pause:1", "other:2"])
            image = {"names": [name], "sizeBytes": dice.choice([30, 700]) * 2**20}
            return changed.append("status", "images", value=image)
        case _:
            return changed


@pytest.mark.parametrize("nodes", [2, 20, 63, 64, 65, 130])
@pytest.mark.parametrize("seed", range(many(2, 40)))
def test_decisions_are_those_of_the_reference_path_while_nodes_come_change_and_go(
    nodes: int, seed: int
) -> None:
    dice = random.Random(seed * 1000 + nodes)
    sides = sides_of(nodes, services=4, seed=seed)
    pods = [pod_of(number, dice) for number in range(10)]
    pods += [behind_service(number) for number in range(4)]
    pods.append(
        make_pod("p").asks(cpu="20m").labelled(app="held")
        .with_("spec", "containers", value=[{"name": "c", "image": "registry.k8s.io/pause:1"}])
        .build()
    )  # fmt: skip
    placed: list[str] = []
    for step in range(10):
        wanted = [dice.choice(pods) for _ in range(dice.choice([3, 12]))]
        decided = sides.place(wanted, [f"default/{step}-{at}" for at in range(len(wanted))])
        placed += [str(decision.key) for decision in decided if decision.scheduled]
        for _ in range(dice.randrange(3)):
            if placed:
                key = placed.pop(dice.randrange(len(placed)))
                for snapshot in sides.snapshots:
                    snapshot.remove_pod(key)
        for _ in range(dice.choice([0, 1, 1, 1, 5])):
            number = dice.randrange(nodes + 10)
            if dice.random() < 0.3:
                for snapshot in sides.snapshots:
                    snapshot.remove_node(f"n{number}")
            else:
                set_node(sides, any_change(dice, number).build())
    assert_counts_are_true(sides.snapshots[1])


def placed_before(sides: Sides) -> None:
    """Have pods of all kinds placed that need no line of their own."""
    base = make_pod("p").asks(cpu="20m")
    kinds = [
        *[behind_service(number) for number in range(6)],
        base.labelled(app="plain").build(),
        base.labelled(app="red").away_from(HOSTNAME, app="red").build(),
        base.labelled(app="blue").spread(ZONE, 2, app="blue").build(),
        base.labelled(app="near").near(ZONE, app="near").build(),
    ]
    sides.place(kinds * 3, [f"default/{sides.draw}-{at}" for at in range(3 * len(kinds))])
    assert sides.by_loop == sides.draw


@pytest.mark.parametrize("what", ["joins", "leaves", "is cordoned", "moves", "is repaired"])
def test_what_classes_came_to_goes_on_when_a_node(what: str) -> None:
    sides = sides_of(70)
    placed_before(sides)
    known, generation = compiled_of(sides), lane_of(sides)._generation
    for number in range(5):
        match what:
            case "joins":
                set_node(sides, node(70 + number).build())
            case "leaves":
                for snapshot in sides.snapshots:
                    snapshot.remove_node(f"n{number}")
            case "is cordoned":
                set_node(sides, node(number).cordoned().build())
            case "moves":
                set_node(sides, node(number, zone=(number + 1) % 3).build())
            case "is repaired":
                set_node(sides, node(number).tainted("bad", effect="NoExecute").build())
        placed_before(sides)
        if what == "is repaired":
            set_node(sides, node(number).build())
            placed_before(sides)
    assert lane_of(sides)._generation == generation
    now = compiled_of(sides)
    assert len(now) == 10
    assert all(now[index] is compiled for index, compiled in known.items())


def test_a_node_like_no_other_makes_the_classes_anew_that_can_go_there() -> None:
    """Its softly tainted kind is a group more for those; the others go on as they were."""
    sides = sides_of(70)
    base = make_pod("p").asks(cpu="20m")
    everywhere = base.labelled(app="a").build()
    elsewhere = base.labelled(app="b").selects({ZONE: "z1"}).build()
    sides.place([everywhere, elsewhere] * 4, [f"default/{at}" for at in range(8)])
    known = compiled_of(sides)
    set_node(sides, node(3).tainted("soft", effect="PreferNoSchedule").build())  # in zone z0
    sides.place([everywhere, elsewhere] * 4, [f"default/more-{at}" for at in range(8)])
    now = compiled_of(sides)
    assert [now[index] is compiled for index, compiled in sorted(known.items())] == [False, True]
    assert sides.by_loop == 16


@pytest.mark.parametrize(
    "changed",
    [
        node(3, zone=7),
        node(3).labelled({HOSTNAME: "n4"}),
        node(3).with_("metadata", "labels", value={ZONE: "z0"}),
    ],
    ids=["a zone more", "a host's name twice", "no host's name"],
)
def test_what_terms_suppose_of_labels_is_looked_at_again(changed: NodeBuilder) -> None:
    sides = sides_of(70)
    placed_before(sides)
    before = {
        index for index, one in compiled_of(sides).items()
        if isinstance(one, CompiledClass) and one.program is not None
    }  # fmt: skip
    known = compiled_of(sides)
    set_node(sides, changed.build())
    placed_before(sides)
    now = compiled_of(sides)
    assert any(now[index] is not known[index] for index in before)


def test_a_zone_too_few_counts_from_zero() -> None:
    """The last node of one of three zones leaves: ``minDomains`` is no longer met."""
    sides = sides_of(7)
    pod = make_pod("p").asks(cpu="20m").labelled(app="a").spread(ZONE, 1, app="a")
    constraint = {**pod.manifest["spec"]["topologySpreadConstraints"][0], "minDomains": 3}
    pod = pod.with_("spec", "topologySpreadConstraints", value=[constraint])
    sides.place([pod.build()] * 6, [f"default/{at}" for at in range(6)])
    for number in (2, 5):
        for snapshot in sides.snapshots:
            snapshot.remove_node(f"n{number}")
    decided = sides.place([pod.build()] * 2, ["default/7", "default/8"])
    assert not any(decision.scheduled for decision in decided)


def test_a_zone_that_is_there_again_counts_as_the_lowest() -> None:
    """Its only node left and came back: no pod is there, and the others have too many by then."""
    sides = sides_of(6)
    full = node(9, zone=7).offers(pods="0").build()
    spread = make_pod("p").asks(cpu="20m").labelled(app="a").spread(ZONE, 1, app="a").build()
    set_node(sides, full)
    sides.place([spread] * 3, [f"default/{at}" for at in range(3)])
    for snapshot in sides.snapshots:
        snapshot.remove_node("n9")
    sides.place([spread] * 12, [f"default/more-{at}" for at in range(12)])
    decided = sides.by_loop
    assert decided >= 12
    set_node(sides, full)
    (last,) = sides.place([spread], ["default/last"])
    assert not last.scheduled
    for snapshot in sides.snapshots:
        snapshot.remove_node("n9")
    (last,) = sides.place([spread], ["default/then"])
    assert last.scheduled
    assert sides.by_loop == decided + 1


def test_a_label_that_comes_to_pods_on_a_node_lets_their_preferences_count() -> None:
    """Until then no preference is about a pod in any domain, and the plugin skips its score."""
    sides = sides_of(6)
    nowhere = make_node("n9").offers(cpu="4", pods="20")
    set_node(sides, nowhere.build())
    wish = make_pod("p").asks(cpu="20m").labelled(app="a").near("rack", 5, app="b")
    other = make_pod("q").asks(cpu="20m").labelled(app="b").build()
    sides.place([wish.build()] * 3, [f"default/{at}" for at in range(3)])
    for snapshot in sides.snapshots:
        info = snapshot.intern(from_pod(other))
        snapshot.add_pod("default/b", info, "n9")
    sides.place([wish.build()] * 3, [f"default/more-{at}" for at in range(3)])
    set_node(sides, nowhere.labelled({"rack": "r1"}).build())
    decided = sides.place([wish.build()] * 3, [f"default/then-{at}" for at in range(3)])
    assert [decision.node_name for decision in decided] == ["n9"] * 3
