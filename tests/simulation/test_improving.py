"""Moves towards an objective: zones alike, soft rules kept, each paid for by what it saves."""

from typing import Any

import pytest

from clusterstate.objects.values.errors import Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.status import Code, Status
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import Base, improving
from scheduling.simulation.packing import read_packing, run_packing
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.simulation.builders import manifest_of, owned
from tests.strategies import HOSTNAME, ZONE

MEND, BALANCE = "ToMendSoftRules", "ToBalanceZones"


def node(name: str, zone: str, cpu: str = "8") -> NodeBuilder:
    labels = {HOSTNAME: name, ZONE: zone}
    return make_node(name).labelled(labels).offers(cpu=cpu, memory="64Gi")


def pod(name: str, on: str, cpu: str = "1") -> PodBuilder:
    return owned(make_pod(name).asks(cpu=cpu).on(on))


def moved(move: str, *objects: Any, **spec: Any) -> Manifest:
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Packing",
        "spec": {
            "base": "empty", "objects": [manifest_of(one) for one in objects], "move": move,
            "seconds": 40, **spec,
        },
    }  # fmt: skip
    status: Manifest = run_packing(read_packing(document), Base())["status"]
    return status


def told(found: Manifest) -> dict[str, tuple[str, str]]:
    return {one["pod"].rpartition("/")[2]: (one["from"], one["to"]) for one in found["moves"]}


THREE = [node("a1", "a"), node("b1", "b"), node("c1", "c")]


@pytest.mark.parametrize(
    "rule", ["spread", "node", "anti", "near", "taint"],
)  # fmt: skip
def test_an_unmet_soft_rule_is_mended_by_one_move_and_a_kept_one_by_none(rule: str) -> None:
    extra: list[Any] = []
    nodes = list(THREE)
    bad, good = pod("bad", "a1").labelled(app="x"), pod("good", "b1").labelled(app="x")
    if rule == "spread":
        extra = [pod("more", "a1").labelled(app="x")]
        extra, bad, good = [
            [one.spread(ZONE, 1, hard=False, app="x") for one in part]
            for part in (extra, [bad], [good])
        ]
    else:
        if rule == "node":
            bad, good = (one.prefers_node(50, (ZONE, "In", ["b"])) for one in (bad, good))
        elif rule == "anti":
            extra = [pod("other", "a1").labelled(app="y")]
            bad, good = (one.away_from(HOSTNAME, 100, app="y") for one in (bad, good))
        elif rule == "near":
            extra = [pod("other", "b1").labelled(app="y")]
            bad, good = (one.near(HOSTNAME, 100, app="y") for one in (bad, good))
        else:
            nodes[0] = nodes[0].tainted("old", effect="PreferNoSchedule")
        bad, good = [bad], [good]
    found = moved(MEND, *nodes, *extra, *bad, *good)
    if rule == "spread":  # two in a, one in b, none in c: one of those in a goes to c
        assert (found["before"], found["after"]) == (2, 0)
        assert list(told(found).values()) == [("a1", "c1")]
    else:
        assert (found["before"], found["after"]) == (1, 0)
        assert set(told(found)) == {"bad"}
    assert moved(MEND, *nodes, *good)["moves"] == []


@pytest.mark.parametrize("move", [MEND, BALANCE])
def test_whoever_asks_can_end_the_search_also_while_what_there_is_is_counted(move: str) -> None:
    snapshot = Snapshot()
    for one in THREE:
        snapshot.set_node(one.build())
    asked = [0]

    def go_on() -> None:
        asked[0] += 1

    profiles = default_configuration().profiles
    frameworks = {one.scheduler_name: build_framework(one) for one in profiles}
    for number in range(100):
        one = pod(f"p{number}", "a1", cpu="10m").build()
        snapshot.add_pod(number, snapshot.intern(from_pod(one)), "a1")
    improving.improve(snapshot, frameworks, move, go_on=go_on)
    assert asked[0] >= (100 if move == MEND else 1)


def test_nothing_moves_where_no_node_would_keep_the_rule_or_the_move_costs_more() -> None:
    bad = pod("bad", "a1").prefers_node(50, (ZONE, "In", ["z"]))
    found = moved(MEND, *THREE, bad)
    assert (found["before"], found["after"], found["moves"]) == (1, 1, [])
    able = pod("able", "a1").labelled(app="db").prefers_node(50, (ZONE, "In", ["b"]))
    prices = {"prices": [], "movePrices": [{"selector": "app=db", "price": 1001}]}
    assert moved(MEND, *THREE, able, **prices)["moves"] == []
    prices["movePrices"][0]["price"] = 999
    found = moved(MEND, *THREE, able, **prices)
    assert (len(found["moves"]), found["movesCost"]) == (1, 999)


def test_zones_become_equally_full_by_as_few_moves_as_that_takes() -> None:
    pods = [pod(f"p{number}", "a1") for number in range(7)]
    found = moved(BALANCE, *THREE, *pods, pod("q", "b1"))
    assert found["before"] == pytest.approx(87.5)
    assert found["after"] == pytest.approx(12.5)
    assert len(found["moves"]) == 4
    assert {one["from"] for one in found["moves"]} == {"a1"}
    again = moved(
        BALANCE, *THREE,
        *(pod(f"p{number}", f"{zone}1") for number, zone in enumerate("aaabbbccc")),
    )  # fmt: skip
    assert again["moves"] == []


def test_pods_without_a_node_are_not_placed_and_a_warning_says_so() -> None:
    found = moved(BALANCE, *THREE, pod("p", "a1"), pods=[manifest_of(make_pod("new"))])
    assert found["warnings"] == ["pods without a node, which ToBalanceZones does not place: 1"]
    assert "warnings" not in moved(BALANCE, *THREE, pod("p", "a1"))


def test_a_plugin_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*of: Any) -> None:
        raise PluginFailed(Status(Code.ERROR, ("it is broken",), "P"))

    monkeypatch.setattr(improving, "_filtered", fails)
    with pytest.raises(StatusError, match="it is broken"):
        moved(MEND, *THREE, pod("p", "a1").prefers_node(50, (ZONE, "In", ["b"])))


def test_racks_are_balanced_by_the_label_that_is_asked_for() -> None:
    racks = [node(f"n{number}", "a").labelled(rack=f"r{number}") for number in range(2)]
    found = moved(BALANCE, *racks, *(pod(f"p{number}", "n0") for number in range(4)),
                  topologyKey="rack")  # fmt: skip
    assert (found["before"], found["after"], len(found["moves"])) == (50, 0, 2)
    with pytest.raises(Invalid, match="topologyKey"):
        moved(BALANCE, *racks, topologyKey=3)


def group(name: str, **annotations: str) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}},
        },
    }  # fmt: skip


def test_a_group_moves_whole_or_not_at_all_and_its_lost_work_is_paid_once() -> None:
    def member(number: int, on: str) -> PodBuilder:
        made = pod(f"m{number}", on).prefers_node(50, (ZONE, "In", ["b"]))
        return made.with_("spec", "schedulingGroup", value={"podGroupName": "g"})

    lost = group("g", **{"stowage.dev/lost-work": "7200"})
    members = [member(0, "a1"), member(1, "c1")]
    prices = {"prices": [], "lostWorkPrice": 100}
    found = moved(MEND, *THREE, lost, *members, **prices)
    assert told(found) == {"m0": ("a1", "b1"), "m1": ("c1", "b1")}
    assert (found["before"], found["after"], found["movesCost"]) == (2, 0, 200)
    prices["lostWorkPrice"] = 1001  # twice as much for two hours, and two rules are mended
    assert moved(MEND, *THREE, lost, *members, **prices)["moves"] == []
    small = [THREE[0], node("b1", "b", cpu="1"), THREE[2]]
    found = moved(MEND, *small, lost, *members)
    assert len(found["moves"]) in (0, 2)
