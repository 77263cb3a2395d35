"""What a plan foretells is what then happens: who leaves, when, and where each lands.

Random worlds: nodes of several sizes with taints and labels, pods of many priorities with
tolerations, spreading, anti-affinity and required labels, budgets, gates, and a preemption that is
under way. A plan is made, then applied, and then the service's own loops are driven by hand: the
timers, the deletions, the scheduler. In the place of the ReplicaSets' controller the test makes
another pod for each one that leaves. Everything must be as foretold.

The suite looks at 8 worlds, the long form at 1,000. ``PLANS=1000`` looks at so many (``make
plans``), ``PLANS_FROM=500`` begins with that one: a thousand take half an hour, and may be looked
at in pieces. Those from 1,000 on are rich: pods of equal priority, that preempt nobody, want a port
of the host or are nominated by a client; nodes that are shut; up to three changes in a plan, also
of pods by name. Those from 3,000 on have devices and claims, those from 5,000 on volumes that some
nodes reach. The suite looks at 8 of each of these, the long form at 500.
"""

import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings as stowage

from clusterstate.actions import objects, plans
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.places import find_places
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.database import sql
from clusterstate.processes import steady_clock
from clusterstate.queries.evictions.eviction_timers import next_due, unforeseen
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.scheduler.plans import PLACES
from scheduling.answers import advisor, live
from scheduling.controllers import operations
from scheduling.controllers.evictions import timers
from scheduling.controllers.held_steps import RATE_PAUSE
from scheduling.controllers.pods import deletion, podgc, resource_claims
from scheduling.controllers.volumes import follower as volumes
from scheduling.processes import landings
from scheduling.worker import binding_cycle, profiles
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW, after
from tests.controllers.support import fire
from tests.controllers.test_volumes import look_again
from tests.forms import many

pytestmark = pytest.mark.django_db(transaction=True)

WORLDS = int(os.environ.get("PLANS") or many(2, 1000))
FIRST = int(os.environ.get("PLANS_FROM", "0"))
KNOWN = (585, 678, 880, 1902)
"""Worlds that once did not come true: queues, and who is nominated, differed from the live ones."""
RICH = 1000
"""From this number on worlds are drawn of more kinds of things, and several changes are made."""
CLAIMING = 3000
"""From this number on nodes have devices, and pods claim some of their own or share a claim."""
STORING = 5000
"""From this number on there are volumes of nodes and zones; pods have them, or wait for one."""
SEEDS = [*range(FIRST, FIRST + WORLDS)]
if not os.environ.get("PLANS"):
    more = [first + n for first in (RICH, CLAIMING, STORING) for n in range(many(2, 500))]
    SEEDS = sorted({*SEEDS, *more, *KNOWN})
END = 75
ZONES = ("a", "b")
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "u",
    "controller": True,
}
_KEPT = ("name", "namespace", "labels", "ownerReferences")
_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 1,
}


class World:
    """A cluster, and the loops that look after it, with a clock that goes when it is told to."""

    def __init__(
        self,
        chance: random.Random,
        *,
        rich: bool = False,
        claiming: bool = False,
        storing: bool = False,
    ) -> None:
        self.chance = chance
        self.rich = rich
        self.claiming = claiming
        self.storing = storing
        self.claims = 0
        self.now = NOW
        self._replaced: set[str] = set()
        self._ended: set[str] = set()
        self.left: dict[str, float] = {}
        self.known: dict[str, dict[str, Any]] = {}
        self._make_nodes()
        if claiming:
            self._make_devices()
        if storing:
            self._make_volumes()
        self._make_pods()
        self._know()
        longest = chance.choice((1, 10)) if rich else 1
        configuration = {**_CONFIGURATION, "podMaxBackoffSeconds": longest}
        text, _ = scheduler_configuration.check(configuration)
        scheduler_configuration.store(document=text, by="somebody", now=self.now)
        revision, configuration = profiles.in_force()
        if storing:
            for _ in range(3):
                volumes.follow(self.now)
        self.scheduler = Scheduler(configuration, lambda: 0, revision=revision)
        self.scheduler.load(self.now.timestamp())

    def _make_nodes(self) -> None:
        chance = self.chance
        nodes = []
        for number in range(chance.randint(3, 6)):
            cpu = chance.choice(("4", "6", "8"))
            taints = []
            if chance.random() < 0.2:
                taints = [{"key": "soft", "effect": "PreferNoSchedule"}]
            labels = {"zone": chance.choice(ZONES), "kubernetes.io/hostname": f"n{number}"}
            if chance.random() < 0.7:
                labels["disk"] = "ssd"
            made = node(f"n{number}", cpu, labels, taints)
            if self.rich and chance.random() < 0.15:
                made["spec"]["unschedulable"] = True
            elif self.rich and chance.random() < 0.15:
                made["spec"]["taints"] = [*taints, {"key": "shut", "effect": "NoSchedule"}]
            nodes.append(made)
        self.nodes = [one["metadata"]["name"] for one in nodes]
        objects.create_all([("Node", "", one) for one in nodes], now=self.now)

    def _make_devices(self) -> None:
        chance = self.chance
        for name in self.nodes:
            spec = {
                "driver": "gpu.example.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{n}"} for n in range(chance.randint(1, 2))],
            }
            made = {"metadata": {"name": name}, "spec": spec}
            objects.create("ResourceSlice", "", made, now=self.now)
        objects.create("DeviceClass", "", {"metadata": {"name": "gpu"}, "spec": {}}, now=self.now)
        exactly = {"deviceClassName": "gpu"}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        for kind, body in (("ResourceClaimTemplate", {"spec": spec}), ("ResourceClaim", spec)):
            made = {"metadata": {"name": "gpu", "namespace": "default"}, "spec": body}
            objects.create(kind, "default", made, now=self.now)

    def _make_volumes(self) -> None:
        """Make volumes of a class whose claims are bound once their pods are placed."""
        of = {"provisioner": "kubernetes.io/no-provisioner"}
        made = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer", **of}
        objects.create("StorageClass", "", made, now=self.now)
        for number in range(self.chance.randint(2, 6)):
            host = ("kubernetes.io/hostname", self.chance.choice(self.nodes))
            self._volume(f"v{number}", *self.chance.choice((host, ("zone", "a"), ("zone", "b"))))

    def _volume(self, name: str, key: str, value: str, **more: Any) -> None:
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        spec = {
            "capacity": {"storage": self.chance.choice(("1Gi", "2Gi"))},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **more,
        }
        made = {"metadata": {"name": name}, "spec": spec}
        objects.create("PersistentVolume", "", made, now=self.now)

    def _claim(self, *, of_node: str) -> str:
        """Make a claim; that of a pod on a node has a volume there, or in the node's zone."""
        self.claims += 1
        name = f"c{self.claims}"
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "local",
        }
        if of_node:
            spec["volumeName"] = f"of-{name}"
        made = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        objects.create("PersistentVolumeClaim", "default", made, now=self.now)
        if of_node:
            labels = decode_object(find_object("Node", "", of_node) or "")["metadata"]["labels"]
            key = self.chance.choice(("zone", "kubernetes.io/hostname"))
            reference = {"namespace": "default", "name": name}
            self._volume(f"of-{name}", key, labels[key], claimRef=reference)
        return name

    def _make_pods(self) -> None:
        chance = self.chance
        ranks = list(range(1000))
        chance.shuffle(ranks)
        self.ranks = ranks
        classes: list[dict[str, Any]] = [
            {"metadata": {"name": f"p{rank}"}, "value": rank} for rank in ranks[:24]
        ]
        if self.rich:
            for one in classes:
                one["value"] = chance.choice((one["value"], 300, 600))
                if chance.random() < 0.2:
                    one["preemptionPolicy"] = "Never"
        objects.create_all([("PriorityClass", "", one) for one in classes], now=self.now)
        placed = [self._pod(f"old{n}", ranks[n], bound=True) for n in range(chance.randint(4, 12))]
        create_pods(placed, now=self.now)
        waiting = [
            self._pod(f"new{n}", ranks[12 + n], bound=False) for n in range(chance.randint(1, 6))
        ]
        create_pods(waiting, now=after(1))
        for one in waiting if self.rich else ():
            if chance.random() < 0.15:
                self._nominate(one["metadata"]["name"], chance.choice(self.nodes))
        if chance.random() < 0.5:
            budget = {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
            }
            objects.create("PodDisruptionBudget", "default", budget, now=self.now)

    def _nominate(self, name: str, node_name: str) -> None:
        """Say as a client on which node room is for a pod."""

        def nominated(manifest: dict[str, Any]) -> dict[str, Any]:
            status = {**manifest["status"], "nominatedNodeName": node_name}
            return {**manifest, "status": status}

        objects.update("Pod", "default", name, nominated, now=after(1), subresource="status")

    def _pod(self, name: str, rank: int, *, bound: bool) -> dict[str, Any]:
        chance = self.chance
        app = chance.choice(("x", "y"))
        spec: dict[str, Any] = {
            "priorityClassName": f"p{rank}",
            "containers": [
                {
                    "name": "a",
                    "image": "b",
                    "resources": {"requests": {"cpu": chance.choice(("500m", "1", "2", "3"))}},
                }
            ],
        }
        selector = {"matchLabels": {"app": app}}
        if chance.random() < 0.4:
            seconds = chance.choice((None, 10, 25, 60))
            toleration = {"key": "bad", "operator": "Exists", "effect": "NoExecute"}
            if seconds is not None:
                toleration["tolerationSeconds"] = seconds
            spec["tolerations"] = [toleration]
        if chance.random() < 0.3:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": selector,
                }
            ]
        if chance.random() < 0.2:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        elif chance.random() < 0.2:
            expression = {"key": "disk", "operator": "Exists"}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            required = "requiredDuringSchedulingRequiredDuringExecution"
            spec["affinity"] = {"nodeAffinity": {required: terms}}
        if self.rich and chance.random() < 0.1:
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        if self.rich and chance.random() < 0.1:
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
            near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            spec["affinity"] = {**spec.get("affinity", {}), **near}
        if bound:
            spec["nodeName"] = chance.choice(self.nodes)
        elif chance.random() < 0.1:
            spec["schedulingGates"] = [{"name": "hold"}]
        if self.claiming and not bound and chance.random() < 0.7:
            how = chance.choice(("resourceClaimTemplateName",) * 3 + ("resourceClaimName",))
            spec["resourceClaims"] = [{"name": "gpu", how: "gpu"}]
        if self.storing and chance.random() < 0.6:
            claimed = {"claimName": self._claim(of_node=spec.get("nodeName", ""))}
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claimed}]
        metadata: dict[str, Any] = {
            "name": name, "namespace": "default", "labels": {"app": app},
        }  # fmt: skip
        if chance.random() < 0.8:
            # Pods of one controller would be alike; these are not.
            metadata["ownerReferences"] = [{**OWNER, "uid": name}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    # --- time ------------------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        """Let every loop look once at what is due at this moment."""
        self.now = now
        timers.follow(now)
        if unforeseen(now, limit=1):
            landings.foresee(now)
        fire(now)
        timers.follow(now)
        deletion.finish(now)
        podgc.collect(now)
        self._replace()
        self.schedule()

    def schedule(self) -> None:
        """Decide whatever can be decided now, and let victims go at once, as without an agent."""
        for _ in range(20):
            if self.claiming:
                resource_claims.follow(self.now)
            busy = self.scheduler.cycle(self.now.timestamp())
            self.scheduler.binder.finish_batch(self.now.timestamp())
            if self.storing:
                look_again()
                busy += binding_cycle.run() + volumes.follow(self.now)
            gone = deletion.finish(self.now)
            made = self._replace()
            if not (busy or gone or made):
                return

    def next_moment(self) -> datetime:
        """Return when a loop has something to do again, or looks anyway, a few seconds on."""
        now = self.now.timestamp()
        found = [now + 5.0]
        collects = after(10 + stowage.POD_GC_QUARANTINE_SECONDS).timestamp()
        if collects > now:
            found.append(collects)
        backoff = self.scheduler.mirror.queue.next_due(now)
        if backoff is not None and backoff > now:
            found.append(backoff)
        due = next_due()
        if due is not None and due.timestamp() > now:
            found.append(due.timestamp())
        return datetime.fromtimestamp(min(found), UTC)

    def pods(self) -> Iterator[dict[str, Any]]:
        """Yield the pods, without those that hold places."""
        pods = map(decode_object, list_page("Pod").items)
        return (one for one in pods if one["metadata"]["namespace"] == "default")

    def _replace(self) -> bool:
        """Make another pod for each owned one that left: what a ReplicaSet's controller does."""
        there = {one["metadata"]["name"]: one for one in self.pods()}
        made = []
        for name, manifest in self.known.items():
            present = there.get(name)
            stays = present is not None and "deletionTimestamp" not in present["metadata"]
            if stays or name in self._replaced or name in self._ended:
                continue
            self._replaced.add(name)
            self.left[name] = (self.now - NOW).total_seconds()
            if manifest["metadata"].get("ownerReferences"):
                spec = {key: one for key, one in manifest["spec"].items() if key != "nodeName"}
                metadata = {**manifest["metadata"], "name": successor(name)}
                made.append({**manifest, "metadata": metadata, "spec": spec})
        if made:
            create_pods(made, now=self.now)
        self._know()
        return bool(made)

    def _know(self) -> None:
        """Remember every pod that there is, by name, in the order of their coming.

        A pod that ended, refused by its node for want of room, holds nothing: that it is collected
        later is not told by plans.
        """
        for one in sorted(self.pods(), key=lambda one: int(one["metadata"]["resourceVersion"])):
            if one["status"].get("phase") in ("Failed", "Succeeded"):
                self._ended.add(one["metadata"]["name"])
            meta = {key: one["metadata"][key] for key in _KEPT if key in one["metadata"]}
            spec = {key: one["spec"][key] for key in one["spec"] if key != "priority"}
            self.known.setdefault(
                one["metadata"]["name"],
                {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
            )


def successor(name: str) -> str:
    """Return what the pod is called that is made instead of this one."""
    root, _, number = name.partition("-g")
    return f"{root}-g{int(number or 0) + 1}"


def named(title: str) -> str:
    """Return the name here of a pod that the plan knows as what comes instead of another."""
    inner = "(instead of "
    _, _, name = title.partition("/")
    if not name.startswith(inner):
        return name
    return successor(named(name.removeprefix(inner).removesuffix(")")))


def node(name: str, cpu: str, labels: dict[str, str], taints: list[Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "20"}},
    }


def changes_of(world: World) -> list[dict[str, Any]]:
    """Return a random change, in a rich world up to three: of other nodes, and of pods by name."""
    if not world.rich:
        return [change(world)]
    chance = world.chance
    found = []
    for number in range(chance.choice((1, 1, 2, 3))):
        name = chance.choice(world.nodes)
        on = {"nodes": [name]}
        there = sorted(world.known.keys() - world.left.keys() - world._ended)
        named = [f"default/{one}" for one in chance.sample(there, min(len(there), 2))]
        one = chance.choice(
            (
                change(world),
                {"evict": {"pods": named, "disableEviction": chance.random() < 0.7}},
                {"uncordon": on},
                {"untaint": {**on, "taints": [{"key": "shut", "effect": "NoSchedule"}]}},
                {"resize": {**on, "amounts": {"cpu": "2"}}},
                {"label": {**on, "set": {"zone": chance.choice(ZONES), "disk": "hdd"}}},
            )
        )
        gone = [node for other in found for node in other.get("delete", {}).get("nodes", ())]
        ((what, asked),) = one.items()
        again = number > 0 and what in ("add", "pods")
        if not again and not set(gone) & set(asked.get("nodes", ())):
            found.append(one)
    return found


def change(world: World) -> dict[str, Any]:
    """Return a random change of a random node, or of the cluster."""
    chance = world.chance
    name = chance.choice(world.nodes)
    on = {"nodes": [name]}
    pods = [world._pod(f"posted{n}", world.ranks[20 + n], bound=False) for n in range(2)]
    labels = {"zone": chance.choice(ZONES), "kubernetes.io/hostname": "n9", "disk": "ssd"}
    return chance.choice(
        (
            {"taint": {**on, "taints": [{"key": "bad", "effect": "NoExecute"}]}},
            {"taint": {**on, "taints": [{"key": "shut", "effect": "NoSchedule"}]}},
            {"cordon": on},
            {"drain": {**on, "force": True}},
            {"label": {**on, "remove": ["disk"]}},
            {"label": {**on, "set": {"zone": "c"}}},
            {"delete": on},
            {"resize": {**on, "amounts": {"cpu": "16"}}},
            {"add": {"objects": [node("n9", "8", labels, [])]}},
            {"pods": {"objects": pods}},
        )
    )


@pytest.mark.drawn
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_plan_foretells_comes_true(
    seed: int, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    foretold_and_done(seed, monkeypatch, settings)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(many(3, 200)))
def test_what_a_rebalance_foretells_comes_true(
    seed: int, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Nobody who leaves for it is stuck, is held back by a budget or displaces another pod.

    And nobody leaves before the place of the one that comes instead is held.
    """
    foretold = foretold_and_done(seed, monkeypatch, settings, rebalance)
    assert not any("blockedBy" in one or "preemptedBy" in one for one in foretold["leaving"])
    assert foretold["stuck"] == []
    steps = [one for one in foretold["steps"] if one["do"] == "evict"]
    assert sorted(held_when_they_left(steps)) == sorted(one["name"] for one in steps)
    assert find_places() == []


def held_when_they_left(steps: list[dict[str, Any]]) -> list[str]:
    """Return the pods whose place was held as they left, by the change log."""
    rows = sql.fetch(
        """
        SELECT m.name FROM unnest(%s::text[], %s::text[], %s::text[]) m(name, uid, place),
        LATERAL (SELECT min(revision) AS revision FROM change
                 WHERE kind = 1 AND name = m.name AND (verb = 3 OR deletion_at IS NOT NULL)) gone,
        LATERAL (SELECT min(revision) FILTER (WHERE node_name = m.place) AS since,
                        min(revision) FILTER (WHERE verb = 3) AS until FROM change
                 WHERE kind = 1 AND namespace = %s AND split_part(name, '.', 2) = m.uid) held
        WHERE held.since < gone.revision AND gone.revision < held.until
        """,
        (*(sql.Texts([one[key] for one in steps]) for key in ("name", "uid", "place")), PLACES),
    )
    return [row[0] for row in rows]


def rebalance(world: World) -> list[dict[str, Any]]:
    """Return a rebalance that empties nodes, or makes room for a pod that waits."""
    waits = [
        f"default/{one['metadata']['name']}"
        for one in world.pods()
        if not one["spec"].get("nodeName") and not one["spec"].get("schedulingGates")
    ]
    if waits and world.chance.random() < 0.7:
        return [{"rebalance": {"roomFor": world.chance.choice(waits)}}]
    return [{"rebalance": {}}]


def foretold_and_done(
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    asked: Callable[[World], list[dict[str, Any]]] = changes_of,
) -> dict[str, Any]:
    """Return what a plan of one or of random changes foretells of a random world, and do it."""
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    world = World(
        random.Random(seed),
        rich=RICH <= seed < CLAIMING,
        claiming=CLAIMING <= seed < STORING,
        storing=seed >= STORING,
    )
    world.tick(after(5))  # the waiting pods are placed, refused, or begin to preempt
    live._live.forget()
    start = after(10)
    world.now = start
    monkeypatch.setattr(steady_clock, "now", lambda: start)
    spec = {"changes": asked(world), "seed": 0, "horizonSeconds": END - 10}
    document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": spec}
    foretold = advisor.ask("plan", document)["status"]

    stored = plans.store(document, foretold, by="somebody", now=start)
    plans.begin(stored.name, by="somebody", impersonator="", now=start)
    comes_true(world, stored.id, foretold, start, told=(seed, spec["changes"]))
    return foretold


def comes_true(
    world: World, plan_id: int, foretold: dict[str, Any], start: datetime, told: object
) -> None:
    """Let an operation that has begun be carried out, and compare what happens until the end.

    What is foretold of later than that is left alone.
    """
    limit = END - 10
    world.left.clear()
    for attempt in range(100):  # a place is held once the scheduler has decided
        while operations.carry_out(plan_id, start + attempt * RATE_PAUSE):
            pass
        if not any("place" in step for step in foretold.get("steps", ())):
            break
        world.tick(start)
    world.tick(start)
    while (moment := world.next_moment()) <= after(END):
        world.tick(moment)

    happened = {name: round(at - 10, 3) for name, at in world.left.items()}
    expected = {
        named(one["pod"]): one["afterSeconds"]
        for one in (*foretold["leaving"], *foretold["leavingAnyway"])
        if one.get("afterSeconds", limit + 1) <= limit
    }
    assert happened == expected, told
    where = {
        one["metadata"]["name"]: one["spec"].get("nodeName", "")
        for one in world.pods()
        if "deletionTimestamp" not in one["metadata"]
    }
    lands = {
        successor(named(one["pod"])): _lands(one["landing"], limit)
        for one in (*foretold["leaving"], *foretold["leavingAnyway"])
        if "landing" in one and one.get("afterSeconds", 0) <= limit
    }
    lands |= {
        named(one["pod"]): _lands(one, limit) for one in (*foretold["placed"], *foretold["waiting"])
    }
    stayed = {name: node_name for name, node_name in lands.items() if name not in expected}
    assert {name: where.get(name) for name in stayed} == stayed, told


def _lands(told: dict[str, Any], limit: float) -> str:
    """Return the node that a pod is on by then, empty if it waits."""
    return told["nodeName"] if told.get("afterSeconds", 0) <= limit else ""
