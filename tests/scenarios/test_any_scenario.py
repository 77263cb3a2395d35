"""Laws of every scenario: it ends, nobody leaves before coming, and what runs is what was bound."""

import random
from typing import Any

import pytest

from clusterstate.objects.values.meta import Manifest
from tests.builders import make_node, make_pod
from tests.scenarios.test_playing import run

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "u",
    "controller": True,
}
MOMENTS = ("0s", "10s", "1m", "301s", "20m")


def world(chance: random.Random) -> tuple[list[Manifest], list[str]]:
    """Return up to four nodes with pods on them, and their names with one of no node."""
    nodes = [
        make_node().named(f"n{number}").offers(cpu=chance.choice((2, 4, 8)), pods=10).manifest
        for number in range(chance.randint(0, 4))
    ]
    names = [*(node["metadata"]["name"] for node in nodes), "absent"]
    found = list(nodes)
    for number in range(chance.randint(0, 4)):
        pod = make_pod().named(f"old{number}").asks(cpu=chance.choice((1, 2)))
        if chance.random() < 0.8:
            pod = pod.on(chance.choice(names))
        if chance.random() < 0.5:
            pod = pod.with_("metadata", "ownerReferences", value=[OWNER])
        found.append(pod.manifest)
    return found, names


def step(chance: random.Random, number: int, names: list[str]) -> Manifest:
    found: Manifest = {"at": chance.choice(MOMENTS)}
    nodes = {"nodes": [chance.choice(names)]}
    taint = {"key": "k", "effect": chance.choice(("NoExecute", "NoSchedule"))}
    job = make_pod().named(f"job{number}").asks(cpu=chance.choice((1, 3))).manifest
    coming: Manifest = {
        "pod": job,
        "count": chance.randint(1, 5),
        "over": chance.choice(("0s", "5m")),
        "random": chance.random() < 0.5,
        "comesBack": chance.random() < 0.5,
    }
    if chance.random() < 0.7:
        coming["runs"] = chance.choice(("1s", "2m", "1h"))
    node = make_node().named(chance.choice(names)).offers(cpu=4, pods=5).manifest
    happenings: tuple[Manifest, ...] = (
        {"arrivals": [coming]},
        {"arrivals": [coming]},
        {"delete": [{"kind": "Pod", "name": chance.choice(("old0", f"job{number - 1}", "none"))}]},
        {"delete": [{"kind": "Node", "name": chance.choice(names)}]},
        {"create": [make_pod().named(f"made{number}").asks(cpu=1).manifest, node]},
        {"taint": [{**nodes, "taints": [taint]}]},
        {chance.choice(("fail", "recover", "cordon", "uncordon")): [nodes]},
    )
    found |= chance.choice(happenings)
    if chance.random() < 0.2:
        found |= {"times": 3, "every": "2m"}
    return found


@pytest.mark.parametrize("seed", range(25))
def test_it_ends_and_its_sums_agree(seed: int) -> None:
    chance = random.Random(seed)
    objects, names = world(chance)
    steps = [step(chance, number, names) for number in range(chance.randint(1, 8))]
    more: dict[str, Any] = {}
    if chance.random() < 0.6:
        more["until"] = chance.choice(("0s", "5m", "1h"))
    if chance.random() < 0.5:
        more["grace"] = chance.choice(("5s", "1m"))
    found = run(*steps, objects=objects, **more)
    assert found.seconds < 2 * 86400, "jobs of an hour may run one after the other"
    for fate in found.fates:
        bound = fate.came_at if fate.bound_at is None else fate.bound_at
        left = bound if fate.left_at is None else fate.left_at
        assert fate.came_at <= bound <= left, fate
    there = [fate for fate in found.fates if fate.bound_at is not None and fate.left_at is None]
    assert found.samples[-1].running == len(there)
    assert sum(found.pods_on.values()) == sum(fate.node in found.pods_on for fate in there)
    moments = [sample.at for sample in found.samples]
    assert moments == sorted(moments)
