"""Both schedulers decide alike on worlds that are shuffled together from recorded objects.

The recorded cases hold the odd objects that Kubernetes' authors thought of: these meet here in
combinations that nobody recorded. Skipped where only the chosen vectors are there.
"""

import copy
import json
import random
from functools import cache
from typing import Any

import msgspec
import pytest

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.node import Node
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, assume_or_nominate, schedule_pod
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot.requirements import from_pod
from tests import harness
from tests.conformance import area_preemption, area_schedule
from tests.conformance.cluster_cases import differences, read_pod
from tests.conformance.runner import files, folders
from tests.strategies import EXAMPLES

AREAS = (
    "schedule",
    "preemption",
    "interpodaffinity",
    "podtopologyspread",
    "nodeaffinity",
    "tainttoleration",
    "noderesources",
    "imagelocality",
    "nodeports",
)
Manifest = dict[str, Any]


@cache
def recorded() -> dict[str, list[Any]]:
    """Return the objects of the recorded cases by kind."""
    found: dict[str, list[Any]] = {
        kind: [] for kind in ("pods", "nodes", "pdbs", "services", "replicaSets", "namespaces")
    }
    for area in AREAS:
        for path in files(folders()).get(area, []):
            lines = path.read_text().splitlines()
            for line in lines[:: 3 if len(lines) > 200 else 1]:
                case = json.loads(line)
                for kind in ("pods", "nodes", "pdbs", "services", "replicaSets"):
                    found[kind] += case.get(kind) or []
                if "pod" in case:
                    found["pods"].append(case["pod"])
                if case.get("namespaces"):
                    found["namespaces"].append(case["namespaces"])
    return found


class Shuffle:
    """Worlds from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def sometimes(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, kind: str) -> Any:
        return copy.deepcopy(self.random.choice(recorded()[kind]))

    def node(self, number: int) -> Manifest:
        node = self.pick("nodes")
        meta = node["metadata"]
        meta["name"] = f"{meta.get('name', 'node')}-{number}"
        if self.sometimes(0.6):
            amounts = {
                "cpu": self.random.choice(("1", "2", "4")),
                "memory": self.random.choice(("1Gi", "4Gi")),
                "pods": self.random.choice(("1", "2", "5", "110")),
            }
            node.setdefault("status", {})["allocatable"] = amounts
        if self.sometimes(0.5):
            zone = self.random.choice(("z1", "z2"))
            meta.setdefault("labels", {}).update(zone=zone, hostname=meta["name"])
        return node

    def pod(self, name: str, priorities: tuple[int, ...]) -> Manifest:
        pod = self.pick("pods")
        pod["metadata"] |= {"name": name, "uid": name}
        pod["spec"]["priority"] = self.random.choice(priorities)
        pod["spec"].pop("nodeName", None)
        pod.pop("status", None)
        if self.sometimes(0.2):
            constraints = self.pick("pods")["spec"].get("topologySpreadConstraints", [])
            pod["spec"]["topologySpreadConstraints"] = constraints
        return pod

    def placed(self, number: int, nodes: list[Manifest]) -> Manifest:
        pod = self.pod(f"existing-{number}", (-5, 0, 0, 100, 1000))
        pod["spec"]["nodeName"] = self.random.choice(nodes)["metadata"]["name"]
        if self.sometimes(0.15):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.sometimes(0.3):
            second = self.random.randint(0, 3)
            pod["status"] = {"startTime": f"2026-01-01T00:00:0{second}Z"}
        return pod

    def budget(self, number: int) -> Manifest:
        budget = self.pick("pdbs")
        budget["metadata"]["name"] = f"budget-{number}"
        budget["status"] = {"disruptionsAllowed": self.random.randint(0, 2)}
        return budget

    def world(self) -> Manifest:
        nodes = [self.node(n) for n in range(self.random.randint(1, 7))]
        world: Manifest = {
            "nodes": nodes,
            "pods": [self.placed(n, nodes) for n in range(self.random.randint(0, 9))],
            "pdbs": [self.budget(n) for n in range(self.random.randint(0, 2))],
            "pod": self.pod("incoming", (0, 10, 1000)),
            "ev": "full",
            "compatibility": self.random.choice([*Compatibility]).text,
        }
        for kind in ("services", "replicaSets"):
            world[kind] = [self.pick(kind)] if self.sometimes(0.4) else []
        world["namespaces"] = self.pick("namespaces") if self.sometimes(0.7) else []
        return world


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(5))
def test_both_schedulers_decide_alike(seed: int) -> None:
    if not all(recorded().values()):
        pytest.skip("a clone alone has no recorded Services")
    shuffle = Shuffle(seed)
    for _ in range(EXAMPLES):
        case = shuffle.world()
        plain = area_schedule.run_reference(copy.deepcopy(case))
        decided = harness.run_schedule_case(copy.deepcopy(case))
        del plain["preFilterMsg"], decided["preFilterMsg"]
        assert differences(plain, decided) == [], case
        if plain["feasible"] or len(plain["rejected"]) < len(case["nodes"]):
            continue
        plain = area_preemption.run_reference(copy.deepcopy(case))
        decided = harness.run_preemption_case(copy.deepcopy(case))
        one = set(decided.pop("chosenAnyOf"))
        several = set(plain.pop("chosenAnyOf"))
        assert one <= several, case
        assert bool(one) is bool(several), case
        plain["potentialNodes"].sort()
        decided["potentialNodes"].sort()
        assert differences(plain, decided) == [], case


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(5))
def test_the_cache_decides_as_the_plain_path(seed: int) -> None:
    """Pods of a few classes come one after the other while pods and nodes come and go."""
    if not all(recorded().values()):
        pytest.skip("a clone alone has no recorded Services")
    shuffle = Shuffle(seed)
    chance = shuffle.random
    nodes = [shuffle.node(n) for n in range(chance.randint(3, 30))]
    pods = [shuffle.placed(n, nodes) for n in range(chance.randint(0, 20))]
    snapshot = harness.build_snapshot({**shuffle.world(), "nodes": nodes, "pods": pods})
    framework = harness.kubernetes_framework()
    decider = Decider(snapshot, framework)
    templates = [read_pod({"pod": shuffle.pod(f"t-{n}", (0, 10))}) for n in range(4)]
    infos = [snapshot.intern(from_pod(template)) for template in templates]
    keys = [record.key for record in snapshot.pods()]
    for number in range(4 * EXAMPLES):
        what = chance.random()
        if what < 0.75:
            pod = PodToPlace(f"default/new-{number}", chance.choice(infos))
            options = Options(seed=seed, preempt=shuffle.sometimes(0.5))
            plain = schedule_pod(snapshot, framework, pod, options, draw=number)
            if plain.outcome != "error":
                cached = decider.decide(pod, options, draw=number)
                assert cached is None or facts_of(cached) == facts_of(plain)
            assume_or_nominate(snapshot, pod, plain)
            if plain.scheduled:
                keys.append(pod.key)
        elif what < 0.85 and keys:
            snapshot.remove_pod(keys.pop(chance.randrange(len(keys))))
        elif what < 0.95:
            node = shuffle.node(chance.randrange(len(nodes) + 1))
            snapshot.set_node(msgspec.convert(node, Node))
        elif snapshot.node_count:
            snapshot.remove_node(chance.choice(list(snapshot.node_names())))


def facts_of(decision: Decision) -> Manifest:
    """Everything that a decision says, in values that compare."""
    fields = msgspec.structs.asdict(decision)
    fields.pop("best_scores", None)
    judged, made = fields.pop("judged", None), fields.pop("nomination")
    if judged is not None:
        rows = judged.rows.tolist()
        fields["judged"] = {row: judged.status(at) for at, row in enumerate(rows)}
    if made is not None:
        victims = [(c.node_name, [v.key for v in c.victims]) for c in made.candidates]
        fields["nomination"] = (made.node_name, victims, made.pdb_violations)
    return {**fields, "best": decision.best}
