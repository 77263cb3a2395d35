"""After each kind of change just those refused pods are tried again that it may help.

The pods are refused by the default plugins in a whole cycle, so which plugins are asked of the
change is found as it is in the live scheduler. The cases follow what Kubernetes' integration tests
look at (test/integration/scheduler/queueing and filters, v1.36).
"""

from collections.abc import Callable, Sequence

import pytest

from clusterstate.objects.values.node import Node
from scheduling.engine.queue.pending import PendingPod, Stage
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.simulation.cluster import VirtualCluster
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod


class World:
    """Nodes, placed pods, and pods that were refused; ``spec.nodeName`` says which is which."""

    def __init__(self, nodes: Sequence[NodeBuilder], pods: Sequence[PodBuilder]) -> None:
        self.snapshot = Snapshot()
        self.placed_on: dict[int, str] = {}
        for one in nodes:
            self.snapshot.set_node(one.build())
        self.cluster = VirtualCluster(
            self.snapshot, default_configuration(), seeds=lambda: 0, observer=self, now=0.0
        )
        self.waiting: dict[str, int] = {}
        for number, builder in enumerate(pods, 1):
            pod = builder.build()
            if pod.spec.node_name:
                self.place(builder)
            else:
                self.waiting[pod.metadata.name] = number
                self.cluster.add(number, self.info(builder))
        while self.cluster.cycle():
            pass
        assert not self.placed_on, "all of them wait"
        self.cluster.now = 20.0  # no backoff is left

    def info(self, pod: PodBuilder) -> PodInfo:
        return self.snapshot.intern(from_pod(pod.build()))

    def place(self, pod: PodBuilder) -> None:
        """Put a pod on its node, or the new version of one that is there."""
        info, name = self.info(pod), pod.build().metadata.name
        before = self.cluster.standing(name)
        self.snapshot.remove_pod(name)
        self.snapshot.add_pod(name, info, info.pod.spec.node_name)
        self.cluster.pod_came(name, before)

    def change(self, pod: PodBuilder) -> None:
        """Give a waiting pod another version."""
        number, info = self.waiting[pod.build().metadata.name], self.info(pod)
        queue = self.cluster.queue
        new = PendingPod(number, info.index, info.pod, info.priority)
        event = self.cluster.event_of_itself(queue.pod(number), new)
        queue.update(new, self.cluster.now, event)

    def node(self, node: NodeBuilder) -> None:
        made: Node = node.build()
        self.cluster.set_node(made)

    def woken(self) -> set[str]:
        queue = self.cluster.queue
        return {
            name
            for name, number in self.waiting.items()
            if queue.place(number).stage not in (Stage.UNSCHEDULABLE, Stage.GATED)
        }

    # What the cluster tells.

    def decided(self, decisions: Sequence[Decision]) -> None: ...

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        self.placed_on |= dict(zip(pod_ids, node_names, strict=True))

    def refused(self, pod_id: int, decision: Decision) -> None: ...

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None: ...


n, m = make_node("n"), make_node("m")
p, q = make_pod("p"), make_pod("q")
LARGE = {"cpu": "6"}
SHUT = n.tainted("not-ready")
WIDE = n.labelled(zone="a", rack="1", row="x")
FULL = [p.with_("metadata", "name", value="x").on("n").asks(cpu="4")]


def having(pod: PodBuilder, key: str, where: str, *, kind: str = "podAffinity") -> PodBuilder:
    """A pod that wants pods with a label near, or away, by a topology key."""
    term = {
        "topologyKey": where,
        "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
    }
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    return pod.append("spec", "affinity", kind, rule, value=term)


def apart(pod: PodBuilder, key: str, where: str) -> PodBuilder:
    return having(pod, key, where, kind="podAntiAffinity")


def spread(pod: PodBuilder, where: str, key: str = "app", **more: object) -> PodBuilder:
    """A pod that is spread with others of a label, over at least three domains."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": where,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
        "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
        **more,
    }
    one = pod.labelled({key: ""})
    return one.append("spec", "topologySpreadConstraints", value=constraint)


def other(name: str, **labels: str) -> PodBuilder:
    """A pod that is on node n."""
    return make_pod(name).labelled(labels).on("n")


def third(pod: PodBuilder) -> PodBuilder:
    return pod.named("r")


def only_on(pod: PodBuilder, name: str) -> PodBuilder:
    """A pod that names its node, as a DaemonSet's do."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    where = ("spec", "affinity", "nodeAffinity", rule, "nodeSelectorTerms")
    return pod.append(*where, value=term)


Happening = Callable[[World], None]


def comes(*nodes: NodeBuilder) -> Happening:
    """A node comes, or is changed."""

    def happen(world: World) -> None:
        for node in nodes:
            world.node(node)

    return happen


def goes(name: str) -> Happening:
    return lambda world: world.cluster.leave(name)


def placed(pod: PodBuilder) -> Happening:
    return lambda world: world.place(pod)


def changes(pod: PodBuilder) -> Happening:
    return lambda world: world.change(pod)


def lost(name: str) -> Happening:
    def happen(world: World) -> None:
        world.cluster.remove_node(name)

    return happen


def ends(name: str) -> Happening:
    """A placed pod begins to end; it stays on its node."""

    def happen(world: World) -> None:
        record = world.snapshot.pod(name)
        assert record is not None
        world.cluster.terminate(record, preempted=False)

    return happen


CASES: dict[str, tuple[list[NodeBuilder], list[PodBuilder], Happening, set[str]]] = {
    "a tainted node grows, and one of two pods tolerates the taint": (
        [SHUT], [p.asks(cpu="6"), q.asks(cpu="6").tolerates("not-ready")],
        comes(SHUT.offers(cpu="8")), {"q"},
    ),
    "a taint is replaced by one that one of the pods tolerates": (
        [SHUT], [p.tolerates("a"), q.tolerates("b"), third(p)],
        comes(n.tainted("a")), {"p"},
    ),
    "a node comes with a taint that one of the pods tolerates": (
        [SHUT], [p.tolerates("a"), q.tolerates("b")],
        comes(m.tainted("a")), {"p"},
    ),
    "a waiting pod is given a toleration": (
        [SHUT], [p, q], changes(p.tolerates("not-ready")), {"p"},
    ),
    "a waiting pod that a taint keeps off is given a label": (
        [SHUT], [p], changes(p.labelled(a="b")), set(),
    ),
    "a node is open again": ([n.cordoned()], [p], comes(n), {"p"}),
    "an open node comes": ([n.cordoned()], [p], comes(m), {"p"}),
    "a shut node comes": ([n.cordoned()], [p], comes(m.cordoned()), set()),
    "a node gets the label that one of the pods requires": (
        [n.labelled(group="a")],
        [p.requires_node(("group", "In", ["b"])), q.requires_node(("group", "In", ["c"]))],
        comes(n.labelled(group="b")), {"p"},
    ),
    "a node comes with the label that one of the pods requires": (
        [n.labelled(group="a")],
        [p.requires_node(("group", "In", ["b"])), q.requires_node(("group", "In", ["c"]))],
        comes(m.labelled(group="b")), {"p"},
    ),
    "a node that a pod required already gets another label": (
        [n.labelled(group="a"), m.labelled(group="b")],
        [p.requires_node(("group", "In", ["a"])).asks(cpu="6")],
        comes(n.labelled(group="a", more="x")), set(),
    ),
    "a node that a pod names by its field grows": (
        [n, m],
        [p.asks(cpu="6").with_(
            "spec", "affinity", "nodeAffinity",
            value={"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]}},
        )],
        comes(n.offers(cpu="8").labelled(more="x")), {"p"},
    ),
    "a pod asks for less": ([n], [p.asks(cpu="6")], changes(p.asks(cpu="3")), {"p"}),
    "a pod asks for more": ([n], [p.asks(cpu="6")], changes(p.asks(cpu="7")), set()),
    "a pod goes that held the room": ([n], [*FULL, p.asks(cpu="2")], goes("x"), {"p"}),
    "a placed pod asks for less": (
        [n], [*FULL, p.asks(cpu="2")], placed(make_pod("x").on("n").asks(cpu="1")), {"p"},
    ),
    "a placed pod asks for less memory": (
        [n], [FULL[0].asks(memory="4Gi"), p.asks(cpu="2")],
        placed(make_pod("x").on("n").asks(cpu="4", memory="2Gi")), set(),
    ),
    "a node comes that is large enough for one of the pods": (
        [n], [p.asks(cpu="6"), q.asks(cpu="9")], comes(m.offers(cpu="8")), {"p"},
    ),
    "a node grows so that one of the pods fits": (
        [n], [p.asks(cpu="6"), q.asks(cpu="9")], comes(n.offers(cpu="8")), {"p"},
    ),
    "a node grows by what no pod asks for": (
        [n, m.offers(cpu="2").labelled(group="b")],
        [p.asks(cpu="4").requires_node(("group", "In", ["b"]))],
        comes(n.offers(memory="64Gi")), set(),
    ),
    "a node grows by what the pod asks for, though it may not go there": (
        [n, m.offers(cpu="2").labelled(group="b")],
        [p.asks(cpu="4").requires_node(("group", "In", ["b"]))],
        comes(n.offers(cpu="5")), {"p"},
    ),
    "a node may hold more pods": (
        [n.offers(pods="1")], [other("x"), p], comes(n.offers(pods="2")), {"p"},
    ),
    "an extended resource goes": (
        [n.offers_also({"example.com/gpu": "1"})],
        [p.asks(cpu="6").asks_also({"example.com/gpu": "1"})],
        comes(n.offers(memory="64Gi")), set(),
    ),
    "a node comes where pods want to be apart": (
        [n.labelled(zone="a")], [apart(other("x", anti=""), "anti", "zone"),
                                 apart(p.labelled(anti=""), "anti", "zone")],
        comes(m.labelled(zone="b")), {"p"},
    ),
    "a node comes in the domain that pods are kept off": (
        [n.labelled(zone="a", rack="1")],
        [other("x", anti=""), apart(p, "anti", "zone"), apart(q, "anti", "rack")],
        comes(m.labelled(zone="a")), {"p", "q"},
    ),
    "a placed pod loses the label that one of the pods wants to be apart from": (
        [n.labelled(rack="1")],
        [other("x", one="", two=""), apart(p, "one", "rack"), apart(q, "two", "rack")],
        placed(other("x", two="")), {"p"},
    ),
    "a placed pod goes that one of the pods wants to be apart from": (
        [n.labelled(rack="1")],
        [other("x", one=""), other("y", two=""), apart(p, "one", "rack"), apart(q, "two", "rack")],
        goes("x"), {"p"},
    ),
    "a placed pod goes that wants to be apart from one of the pods": (
        [n.labelled(rack="1")],
        [apart(other("x"), "one", "rack"), apart(other("y"), "two", "rack"),
         p.labelled(one=""), q.labelled(two="")],
        goes("x"), {"p"},
    ),
    "a placed pod gets the label that one of the pods wants to be near to": (
        [n.labelled(rack="1")],
        [other("x"), having(p, "one", "rack"), having(q, "two", "rack")],
        placed(other("x", one="")), {"p"},
    ),
    "a pod is placed that one of the pods wants to be near to": (
        [n.labelled(rack="1")], [having(p, "one", "rack"), having(q, "two", "rack")],
        placed(other("x", one="")), {"p"},
    ),
    "a node comes in the domain of one of two affinities": (
        [n.labelled(row="x")], [having(p, "one", "zone"), having(q, "two", "rack")],
        comes(m.labelled(zone="a")), {"p"},
    ),
    "a node comes to a domain, another one changes its own": (
        [n.labelled(region="1"), m.labelled(region="2", group="b")],
        [other("x", one=""),
         having(p.labelled(one=""), "one", "rack"),
         having(q.labelled(one=""), "one", "row"),
         having(third(p), "one", "region").requires_node(("group", "In", ["b"]))],
        comes(n.labelled(rack="1", region="2")), {"p", "r"},
    ),
    "a node leaves a domain and changes another one where pods want to be apart": (
        [n.labelled(rack="1", zone="a", row="x")],
        [other("x", one=""), *(
            apart(one.labelled(one=""), "one", where)
            for one, where in ((p, "rack"), (q, "zone"), (third(p), "row"))
        )],
        comes(n.labelled(zone="b", row="x", region="9")), {"p", "q"},
    ),
    "a placed pod goes that had one of two host ports": (
        [n], [other("x").host_port(8080), other("y").host_port(8081),
              p.host_port(8080), q.host_port(8081)],
        goes("x"), {"p"},
    ),
    "a node comes where no port is taken": (
        [n], [other("x").host_port(8080), p.host_port(8080)], comes(m), {"p"},
    ),
    "a pod is placed that one of the constraints counts": (
        [n.labelled(rack="1")],
        [other("x", one=""), other("y", two=""),
         spread(p, "rack", "one"), spread(q, "rack", "two")],
        placed(other("z", one="")), {"p"},
    ),
    "a placed pod is not counted any more by one of the constraints": (
        [n.labelled(rack="1")],
        [other("x", one=""), other("y", two=""),
         spread(p, "rack", "one"), spread(q, "rack", "two")],
        placed(other("x", three="")), {"p"},
    ),
    "a placed pod goes that one of the constraints counted": (
        [n.labelled(rack="1")],
        [other("x", one=""), other("y", two=""),
         spread(p, "rack", "one"), spread(q, "rack", "two")],
        goes("x"), {"p"},
    ),
    "a placed pod begins to end that one of the constraints counted": (
        [n.labelled(rack="1")],
        [other("x", one=""), other("y", two=""),
         spread(p, "rack", "one"), spread(q, "rack", "two"), third(p).asks(cpu="64")],
        ends("x"), {"p"},
    ),
    "a node goes before the pod on it that keeps others out of its domain": (
        [n.labelled(rack="1"), m.labelled(rack="1", zone="a")],
        [other("x", one=""), apart(p, "one", "rack"), apart(q, "one", "zone").asks(cpu="64")],
        lost("n"), {"p"},
    ),
    "a node comes with one of two topology keys": (
        [n.labelled(rack="1"), m.labelled(zone="a")],
        [other("x", app=""), make_pod("y").labelled(app="").on("m"),
         spread(p, "rack"), spread(q, "zone")],
        comes(make_node("o").labelled(rack="1")), {"p"},
    ),
    "a node loses a topology key, gets another one, and changes a third": (
        [n.labelled(rack="1", region="1", row="x"), m.labelled(rack="1", region="1", row="x")],
        [other("x", app=""), make_pod("y").labelled(app="").on("m"),
         *(spread(make_pod(where), where) for where in ("rack", "zone", "region", "aisle", "row"))],
        comes(m.labelled(zone="1", region="1", row="y")), {"rack", "zone", "row"},
    ),
    "a node goes that had one of two topology keys": (
        [n.labelled(rack="1"), m.labelled(zone="a")],
        [other("x", app=""), make_pod("y").labelled(app="").on("m"),
         spread(p, "rack"), spread(q, "zone")],
        lost("m"), {"q"},
    ),
    "the taints change of a node that has one of two topology keys": (
        [n.labelled(rack="1"), m.labelled(zone="a"),
         make_node("o").labelled(zone="a").tainted("not-ready")],
        [other("x", app=""), make_pod("y").labelled(app="").on("m"),
         spread(p, "rack"), spread(q, "zone").tolerates("other")],
        comes(make_node("o").labelled(zone="a").tainted("other")), {"q"},
    ),
    "one of two nodes comes that pods name which are not there": (
        [n], [only_on(p, "m"), only_on(q, "o")], comes(m), {"p"},
    ),
    "another node comes than the one that a pod names and that is not there": (
        [n], [only_on(p, "m")], comes(make_node("o")), set(),
    ),
    "gates go from one of two pods": (
        [n], [p.with_("spec", "schedulingGates", value=[{"name": "a"}]),
              q.with_("spec", "schedulingGates", value=[{"name": "a"}])],
        changes(p), {"p"},
    ),
    "one gate of two goes": (
        [n], [p.with_("spec", "schedulingGates", value=[{"name": "a"}, {"name": "b"}])],
        changes(p.with_("spec", "schedulingGates", value=[{"name": "b"}])), set(),
    ),
    "a gated pod is given a label": (
        [n], [p.with_("spec", "schedulingGates", value=[{"name": "a"}])],
        changes(p.labelled(a="b").with_("spec", "schedulingGates", value=[{"name": "a"}])), set(),
    ),
    "room comes for a gated pod": (
        [n], [*FULL, p.with_("spec", "schedulingGates", value=[{"name": "a"}])], goes("x"), set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_happens_has_those_tried_again_that_it_may_help(case: str) -> None:
    nodes, pods, happen, expected = CASES[case]
    world = World(nodes, pods)
    assert world.woken() == set(), "refused, or gated"
    happen(world)
    assert world.woken() == expected
