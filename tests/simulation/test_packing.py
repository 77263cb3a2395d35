"""Where pods go when all are looked at together: proved by the reference rules, never fewer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest, ObjectMeta
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import DisruptionMode, PodGroup, PodGroupSpec
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.packing import process, search
from scheduling.packing.problem import PackingAnswer, Problem
from scheduling.simulation import Base
from scheduling.simulation.moves import Move, in_waves, may_move
from scheduling.simulation.packing import read_packing, run_packing
from tests import harness
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.forms import many
from tests.packing import worlds
from tests.packing.worlds import Amounts
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.scheduler import default_rules, filter_node, pre_filter
from tests.simulation.builders import manifest_of, owned
from tests.simulation.test_command import NOWHERE, ROOT
from tests.strategies import HOSTNAME, ZONE, by_chance


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search here: by the measure of work alone, so that a busy machine changes no answer."""

    def ask(
        problem: Problem, *, work: float, seconds: float, seed: int, go_on: Any
    ) -> PackingAnswer:
        return search.pack(problem, work=min(work, 0.5), seconds=100.0, seed=seed)

    monkeypatch.setattr(process, "ask", ask)


def document(objects: Any = (), pods: Any = (), **spec: Any) -> Manifest:
    return {
        "apiVersion": "stowage.dev/v1",
        "kind": "Packing",
        "spec": {
            "base": "empty",
            "objects": [manifest_of(one) for one in objects],
            "pods": [manifest_of(one) for one in pods],
            **spec,
        },
    }


def packed(objects: Any = (), pods: Any = (), **spec: Any) -> Manifest:
    status: Manifest = run_packing(read_packing(document(objects, pods, **spec)), Base())["status"]
    return status


def node(number: int, **amounts: str) -> NodeBuilder:
    return make_node(f"n{number}").labelled({HOSTNAME: f"n{number}"}).offers(**amounts)


def test_what_one_by_one_leaves_out_is_placed_together() -> None:
    # The scheduler spreads the small pods, and then no node has room for the large one.
    pods = [make_pod(f"small-{n}").asks(cpu="2") for n in range(2)]
    found = packed([node(0, cpu="4"), node(1, cpu="4")], [*pods, make_pod("large").asks(cpu="4")])
    assert (found["placed"], found["of"], found["schedulerAlone"]) == (3, 3, 2)
    assert found["bound"]["verdict"] == "ProvedBest"
    assert found["bound"]["atMost"] == 3
    by_node: dict[str, list[str]] = {}
    for one in found["pods"]:
        by_node.setdefault(one["nodeName"], []).append(one["pod"])
    assert sorted(by_node.values()) == [
        ["default/large"], ["default/small-0", "default/small-1"],
    ]  # fmt: skip


def test_a_pod_that_fits_nowhere_is_proved_impossible() -> None:
    found = packed([node(0, cpu="4")], [make_pod("huge").asks(cpu="5")])
    assert found["bound"]["verdict"] == "ProvedImpossible"
    (left,) = found["left"]
    assert left["impossible"]
    assert "Insufficient cpu" in left["message"]


def test_nodes_are_emptied_where_pods_may_move_and_only_then() -> None:
    nodes = [node(n, cpu="4") for n in range(4)]
    pods = [owned(make_pod(f"p{n}").asks(cpu="1").on(f"n{n}")) for n in range(4)]
    agents = [owned(make_pod(f"a{n}").on(f"n{n}"), "DaemonSet") for n in range(4)]
    assert "moves" not in packed([*nodes, *pods])
    found = packed([*nodes, *pods, *agents], move="ToEmptyNodes")
    assert len(found["emptied"]) == 3
    assert len(found["moves"]) == 3
    assert len({one["to"] for one in found["moves"]}) == 1


def of_group(pod: PodBuilder, name: str) -> PodBuilder:
    return pod.with_("spec", "schedulingGroup", value={"podGroupName": name})


def test_a_pod_of_a_group_is_not_placed_without_the_others() -> None:
    pods = [of_group(make_pod("member").asks(cpu="1"), "g"), make_pod("free").asks(cpu="1")]
    found = packed([node(0, cpu="4")], pods)
    (skipped,) = found["skipped"]
    assert skipped["pod"] == "default/member"
    assert "cannot place as a whole" in skipped["message"]
    assert (found["placed"], found["of"]) == (1, 1)


def test_pods_that_leave_with_their_group_stay() -> None:
    snapshot = harness.build_snapshot({"nodes": [node(0, cpu="4").manifest]})
    for name, mode in (("whole", DisruptionMode(all={})), ("single", None)):
        spec = PodGroupSpec(disruption_mode=mode)
        snapshot.groups.set(
            PodGroup(metadata=ObjectMeta(namespace="default", name=name), spec=spec)
        )
        harness.place(snapshot, of_group(owned(make_pod(f"of-{name}").on("n0")), name).build())
    movers = may_move(snapshot, {"default-scheduler": harness.kubernetes_framework()})
    groups = [one.info.pod.spec.scheduling_group for one in movers]
    assert [one.pod_group_name for one in groups if one is not None] == ["single"]


def test_pods_move_so_that_a_large_one_fits_and_no_more_of_them_than_needed() -> None:
    nodes = [node(n, cpu="4") for n in range(3)]
    pods = [owned(make_pod(f"p{n}").asks(cpu="1").on(f"n{n}")) for n in range(3)]
    found = packed([*nodes, *pods], [make_pod("large").asks(cpu="4")], move="ToFit")
    assert (found["placed"], found["schedulerAlone"]) == (1, 0)
    (move,) = found["moves"]
    assert move["wave"] == 1
    assert move["from"] == found["pods"][0]["nodeName"]
    nobody = packed([*nodes, *pods], [make_pod("small").asks(cpu="1")], move="ToFit")
    assert "moves" not in nobody


def test_moves_comein_waves_whose_places_are_free_before_anybody_leaves() -> None:
    # n2 is free for a at once, n0 for b when a has left, n1 for d when b has, n3 for c when d has.
    nodes = [node(0, cpu="4"), node(1, cpu="4"), node(2, cpu="4"), node(3, cpu="2")]
    frameworks = {"default-scheduler": harness.kubernetes_framework()}
    snapshot = harness.build_snapshot({"nodes": [one.manifest for one in nodes]})
    for name, cpu, on in (("a", "4", "n0"), ("b", "3", "n1"), ("c", "1", "n1"), ("d", "2", "n3")):
        info = snapshot.intern(from_pod(make_pod(name).asks(cpu=cpu).build()))
        snapshot.add_pod(f"default/{name}", info, on)
    asked = (("a", "n0", "n2"), ("b", "n1", "n0"), ("c", "n1", "n3"), ("d", "n3", "n1"))
    moves = [Move(f"default/{name}", origin, target) for name, origin, target in asked]
    found = in_waves(snapshot, moves, frameworks, lambda: None)
    waves = {str(one.key).partition("/")[2]: one.wave for one in found}
    assert waves == {"a": 1, "b": 2, "d": 3, "c": 4}
    full = harness.build_snapshot({"nodes": [one.manifest for one in nodes[:2]]})
    info = full.intern(from_pod(make_pod().asks(cpu="4").build()))
    swap = [Move("default/a", "n0", "n1"), Move("default/b", "n1", "n0")]
    for one in swap:
        full.add_pod(one.key, info, one.origin)
    assert [one.wave for one in in_waves(full, swap, frameworks, lambda: None)] == [0, 0]


def test_pods_without_controller_or_whose_budget_is_used_up_stay() -> None:
    nodes = [node(n, cpu="4") for n in range(2)]
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }  # fmt: skip
    pods = [
        make_pod("alone").asks(cpu="1").on("n0"),
        owned(make_pod("kept").labelled(app="kept").asks(cpu="1").on("n1")),
    ]
    found = packed([*nodes, *pods, budget], move="ToEmptyNodes")
    assert "moves" not in found
    assert "emptied" not in found


def one_at_a_time(nodes: list[Amounts], pods: list[tuple[Amounts, int]]) -> int:
    """Return how many nodes are left by Karpenter's rule: one is removed if all its pods fit.

    The node with the fewest pods first, again and again; each pod goes to the first node that has
    room, and none moves to make room for another (karpenter.sh, Disruption, single-node
    consolidation).
    """
    free = {n: list(amounts) for n, amounts in enumerate(nodes)}
    on: dict[int, list[Amounts]] = {n: [] for n in free}
    for amounts, n in pods:
        on[n].append(amounts)
        free[n] = [a - b for a, b in zip(free[n], amounts, strict=True)]
    is_done = False
    while not is_done:
        is_done = True
        for gone in sorted(on, key=lambda n: len(on[n])):
            left = {n: list(free[n]) for n in on if n != gone}
            moves = []
            for amounts in on[gone]:
                fits = (
                    n for n in left if all(a <= b for a, b in zip(amounts, left[n], strict=True))
                )
                if (n := next(fits, None)) is None:
                    break
                left[n] = [b - a for a, b in zip(amounts, left[n], strict=True)]
                moves.append((n, amounts))
            else:
                for n, amounts in moves:
                    on[n].append(amounts)
                del on[gone]
                free, is_done = left, False
                break
    return len(on)


@pytest.mark.drawn
def test_emptying_nodes_together_leaves_no_more_of_them_than_one_at_a_time() -> None:
    ours = theirs = 0
    for seed in range(many(2, 4)):
        rng = np.random.default_rng(seed)
        nodes: list[Amounts] = [(16_000, 64 * 1024, 0)] * 24
        pods: list[tuple[Amounts, int]] = []
        for n in range(24):
            cpu, memory = 0, 0
            while True:
                a, b = int(rng.integers(30, 80)) * 100, int(rng.integers(12, 32)) * 1024
                if cpu + a > 11_000 or memory + b > 44 * 1024:
                    break
                pods.append(((a, b, 0), n))
                cpu, memory = cpu + a, memory + b
        listed, _ = worlds.manifests(nodes, [])
        made = [
            owned(make_pod(f"p{at}").asks(cpu=f"{a[0]}m", memory=f"{a[1]}Mi").on(f"node-{n}"))
            for at, (a, n) in enumerate(pods)
        ]
        found = packed([*listed, *made], move="ToEmptyNodes", seconds=4)
        ours += 24 - len(found.get("emptied", ()))
        theirs += one_at_a_time(nodes, pods)
    assert ours <= theirs


def test_pods_on_a_node_that_would_not_take_them_any_more_stay_there() -> None:
    nodes = [node(n, cpu="4") for n in range(2)]
    nodes.append(make_node("shut").offers(cpu="4").tainted("new"))
    pods = [owned(make_pod(f"p-{n}").asks(cpu="1").on(n)) for n in ("n0", "n1", "shut")]
    found = packed([*nodes, *pods], move="ToEmptyNodes")
    (move,) = found["moves"]
    assert found["emptied"] == [move["from"]]
    assert {move["from"], move["to"]} == {"n0", "n1"}


def test_wrong_fields_are_all_named() -> None:
    asked = document(move="some", seconds=0, mode="sequential")
    asked["spec"]["pods"] = 7
    with pytest.raises(Invalid) as refused:
        read_packing(asked)
    fields = {error.field for error in refused.value.errors}
    assert {"spec.move", "spec.seconds", "spec.mode", "spec.pods"} <= fields


@st.composite
def cluster(draw: st.DrawFn) -> tuple[list[Manifest], list[Manifest]]:
    """Worlds with rules that hold or not whatever the order in which pods came."""
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        one = node(number, cpu=str(draw(st.integers(1, 8))), memory="8Gi", pods="6")
        one = one.labelled({ZONE: draw(st.sampled_from("ab"))})
        if draw(st.booleans()):
            one = one.labelled(disk="ssd")
        if draw(st.integers(0, 3)) == 0:
            one = one.tainted("only")
        nodes.append(one.manifest)
    pods = []
    for number in range(draw(st.integers(1, 10))):
        app = draw(st.sampled_from(["web", "db", "job"]))
        pod = make_pod(f"p{number}").labelled(app=app).asks(cpu=str(draw(st.integers(1, 4))))
        rule = draw(st.integers(0, 7))
        if rule == 0:
            pod = pod.selects(disk="ssd")
        elif rule == 1:
            pod = pod.tolerates("only")
        elif rule == 2:
            pod = pod.host_port(80)
        elif rule == 3:
            pod = pod.away_from(HOSTNAME, app=app)
        elif rule == 4:
            pod = pod.away_from(HOSTNAME, app="db")
        elif rule == 5:
            pod = pod.away_from(ZONE, app="job")
        pod = pod.priority(draw(st.sampled_from([0, 0, 0, 10])))
        if draw(st.integers(0, 3)) == 0:
            pod = owned(pod.on(f"n{draw(st.integers(0, len(nodes) - 1))}"))
        pods.append(pod.manifest)
    return nodes, pods


def reference_accepts(nodes: list[Manifest], pods: list[Manifest], places: dict[str, str]) -> str:
    """Return which pod the reference rules do not let be where it is, empty if all are right."""
    on: dict[str, list[Pod]] = {}
    for manifest in pods:
        name = manifest["metadata"]["name"]
        if (place := places.get(name)) is not None:
            pod = {**manifest, "spec": {**manifest["spec"], "nodeName": place}}
            on.setdefault(place, []).append(msgspec.convert(pod, Pod))
    placed = [
        PlacedNode(msgspec.convert(one, Node), tuple(on.get(one["metadata"]["name"], ())))
        for one in nodes
    ]
    for here in placed:
        for pod in here.pods:
            others = tuple(one.without_pod(pod) for one in placed)
            free = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name="")
            )
            rules = default_rules()
            run = pre_filter(rules, free, Cluster(nodes=others))
            if not filter_node(rules, run, free, here.without_pod(pod)).success:
                return pod.metadata.name
    return ""


def twin(pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "name": f"{pod['metadata']['name']}-twin"}}


def reference_fits(nodes: list[Manifest], pods: list[Manifest], places: dict[str, str]) -> str:
    """Return the node whose pods ask for more CPU than it has, empty if there is none."""
    asked: dict[str, int] = {}
    for pod in pods:
        if (place := places.get(pod["metadata"]["name"])) is not None:
            cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            asked[place] = asked.get(place, 0) + int(cpu)
    for one in nodes:
        name = one["metadata"]["name"]
        if asked.get(name, 0) > int(one["status"]["allocatable"]["cpu"]):
            return name
    return ""


@by_chance
@given(cluster(), st.sampled_from(["Never", "ToFit", "ToEmptyNodes"]))
def test_every_placement_keeps_the_rules_and_none_is_worse_than_the_schedulers(
    world: tuple[list[Manifest], list[Manifest]], move: str
) -> None:
    nodes, pods = world
    running = {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }
    if reference_accepts(nodes, pods, running):
        return  # what runs breaks rules already: nothing can be said of it
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    objects = [*nodes, *(pod for pod in pods if pod["spec"].get("nodeName"))]
    found = packed(objects, waiting, move=move, admission=False)
    places = {one["pod"].partition("/")[2]: one["nodeName"] for one in found["pods"]}
    moved = {one["pod"].partition("/")[2]: one for one in found.get("moves", ())}
    assert all(running[name] == one["from"] != one["to"] for name, one in moved.items())
    target = {**running, **{name: one["to"] for name, one in moved.items()}, **places}
    assert len(target) == len(running) + len(places)
    assert reference_accepts(nodes, pods, target) == ""
    for name in found.get("emptied", ()):
        assert name not in target.values()
    # Each wave's pods have their new places while they still run on the old ones.
    now = dict(running)
    for wave in sorted({one["wave"] for one in moved.values()} - {0}):
        going = {name: one["to"] for name, one in moved.items() if one["wave"] == wave}
        both = [*pods, *(twin(pod) for pod in pods if pod["metadata"]["name"] in going)]
        places_now = {**now, **{f"{name}-twin": to for name, to in going.items()}}
        assert reference_fits(nodes, both, places_now) == ""
        now |= going
    assert len(places) + len(found["left"]) == len(waiting) == found["of"]
    if len({pod["spec"].get("priority", 0) for pod in waiting}) <= 1:
        assert found["placed"] >= found["schedulerAlone"]
        if "atMost" in found["bound"]:
            assert found["placed"] <= found["bound"]["atMost"]


def test_a_cluster_of_a_hundred_nodes_is_packed_to_99_in_100_pods() -> None:
    nodes, pods = worlds.manifests(*worlds.exact(100, 10, 21, mixed=True, devices=True))
    found = packed(nodes, pods)
    assert found["placed"] >= 0.99 * found["of"]
    assert found["schedulerAlone"] < found["placed"]
    assert found["bound"]["atMost"] == found["of"]


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "pack", *arguments],
        cwd=ROOT, env={**os.environ, **NOWHERE}, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip


def test_the_command_packs_what_kubectl_prints(tmp_path: Path) -> None:
    pods = [make_pod(f"small-{n}").asks(cpu="2") for n in range(2)]
    pods.append(make_pod("large").asks(cpu="4"))
    objects = [node(0, cpu="4").manifest, node(1, cpu="4").manifest]
    file = tmp_path / "cluster.json"
    listed = {"apiVersion": "v1", "kind": "List", "items": [*objects, *(p.manifest for p in pods)]}
    file.write_text(json.dumps(listed))
    shown = command(str(file))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("3 of 3 pods fit (2 one by one): proved best.")
    answered = yaml.safe_load(command(str(file), "-o", "yaml").stdout)
    assert answered["status"]["placed"] == 3


def test_nodes_are_emptied_where_that_saves_more_than_the_moves_cost() -> None:
    nodes = [node(n, cpu="4").labelled(size=size) for n, size in enumerate(("s", "s", "l"))]
    pods = [owned(make_pod(f"p{n}").asks(cpu="1").on(f"n{n}")) for n in range(3)]
    prices = [{"selector": "size=l", "price": 5}, {"selector": "size=s", "price": 1}]
    found = packed([*nodes, *pods], move="ToEmptyNodes", prices=prices, movePrice=2)
    assert found["emptied"] == ["n2"]  # the others save 1 for a move of 2
    assert (found["saves"], found["movesCost"]) == (5, 2)
    found = packed([*nodes, *pods], move="ToEmptyNodes", prices=prices, movePrice=0.5)
    assert len(found["emptied"]) == 2
    assert "n2" in found["emptied"]
    assert (found["saves"], found["movesCost"]) == (6, 1)
    found = packed([*nodes, *pods], move="ToEmptyNodes", prices=prices, movePrice=9)
    assert "emptied" not in found
    wrong = document(prices=[{"selector": "a b", "price": -1}, 3], movePrice="x")
    with pytest.raises(Invalid) as refused:
        read_packing(wrong)
    fields = {error.field for error in refused.value.errors}
    assert fields == {"spec.prices[0]", "spec.prices[1]", "spec.movePrice"}


def test_a_catalogue_that_is_none_or_beside_other_wishes_is_refused(tmp_path: Path) -> None:
    world, none, one = (tmp_path / f"{name}.yaml" for name in ("world", "none", "one"))
    world.write_text(yaml.safe_dump(make_node("n").offers(cpu="4").manifest))
    none.write_text("")
    one.write_text("spec: {catalogue: [{name: s, price: 1, node: {}}]}")
    for catalogue, more, text in (
        (tmp_path / "gone.yaml", (), "gone.yaml"),
        (none, (), "must be one NodeAdvice document"),
        (one, ("--move=ToFit",), "may not set move"),
        (one, ("--seconds=3",), "may not set move"),
    ):
        with pytest.raises(CommandError, match=text):
            call_command("pack", str(world), f"--catalogue={catalogue}", *more)


def test_a_pod_that_numbers_leave_out_and_that_finds_room_later_is_within_the_bound() -> None:
    """The scheduler leaves no room for one of the pods "away"; numbers know nothing of them."""
    nodes = [
        make_node(name).labelled({ZONE: zone, HOSTNAME: name, "disk": disk}).offers(cpu=cpu)
        for name, zone, disk, cpu in (("n0", "a", "", 4), ("n1", "a", "ssd", 8), ("n2", "b", "", 4))
    ]
    on_ssd = ("spec", "nodeSelector")
    pods = [
        make_pod("p0").labelled(app="db").asks(cpu="1").with_(*on_ssd, value={"disk": "ssd"}),
        make_pod("p1").labelled(app="job").asks(cpu="3").with_(*on_ssd, value={"disk": "ssd"}),
        make_pod("p2").asks(cpu="2").away_from(HOSTNAME, app="db"),
        make_pod("away-0").asks(cpu="2").away_from(ZONE, app="job"),
        make_pod("p4").asks(cpu="4").with_(*on_ssd, value={"disk": "ssd"}),
        make_pod("p5").labelled(app="job").asks(cpu="3"),
        make_pod("away-1").asks(cpu="2").away_from(ZONE, app="job"),
        make_pod("p7").labelled(app="db").asks(cpu="1").away_from(HOSTNAME, app="db"),
    ]
    found = packed(nodes, pods)
    assert found["placed"] > found["schedulerAlone"]
    assert found["placed"] <= found["bound"]["atMost"]
