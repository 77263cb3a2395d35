"""The worked examples of the design documents, decided by the plain rules.

That the engine decides alike is a property test (tests/properties).
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from clusterstate.objects.rules.matching import EmptyTerm
from clusterstate.objects.values.pod import Pod
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.reference.cluster import Cluster, build_cluster
from tests.reference.node_resources_fit import requested_to_capacity_ratio
from tests.reference.rule import normalize_by_highest
from tests.reference.scheduler import default_rules, schedule

BIN_PACKING = ((0, 0), (100, 10))
HOSTNAME = "kubernetes.io/hostname"


def world(nodes: Sequence[NodeBuilder], pods: Sequence[PodBuilder] = ()) -> Cluster:
    return build_cluster([n.build() for n in nodes], [p.build() for p in pods])


def place_in_turn(nodes: Sequence[NodeBuilder], pods: Sequence[PodBuilder]) -> dict[str, str]:
    """Schedule the pods in turn, each to the first of its best nodes; those that fail try again."""
    cluster = world(nodes)
    found: dict[str, str] = {}
    waiting = list(pods)
    for _ in pods:
        for builder in list(waiting):
            pod: Pod = builder.build()
            best = schedule(pod, cluster).best
            if not best:
                continue
            waiting.remove(builder)
            name = found[pod.metadata.name] = min(best)
            placed = builder.on(name).build()
            cluster = replace(
                cluster,
                nodes=tuple(n.with_pod(placed) if n.name == name else n for n in cluster.nodes),
            )
    return found


@pytest.mark.parametrize(
    ("uses", "of_ten", "of_hundred"),
    [
        pytest.param([(3, 4, 5), (512, 1024, 1), (3, 8, 3)], 5, 60, id="R109"),
        pytest.param([(4, 8, 5), (768, 1024, 1), (8, 8, 3)], 7, 69, id="R110"),
    ],
)
def test_bin_packing_gives_the_numbers_of_the_design(
    uses: list[tuple[int, int, int]], of_ten: int, of_hundred: int
) -> None:
    assert requested_to_capacity_ratio(uses, BIN_PACKING, top=10) == of_ten
    assert requested_to_capacity_ratio(uses, BIN_PACKING) == of_hundred


def test_a_resource_that_scores_nothing_stays_out_of_the_weights() -> None:
    """C13: one full resource counts alone beside one that nobody uses."""
    assert requested_to_capacity_ratio([(4, 4, 1), (0, 4, 9)], BIN_PACKING) == 100


def test_normalising_zeros_divides_by_nothing() -> None:
    """C19."""
    assert normalize_by_highest({"a": 0, "b": 0}, reverse=False) == {"a": 0, "b": 0}
    assert normalize_by_highest({"a": 0, "b": 0}, reverse=True) == {"a": 100, "b": 100}


@pytest.mark.parametrize(("switch", "fits"), [("all", True), ("none", False)])
def test_an_empty_node_selector_term_matches_as_the_switch_says(
    switch: EmptyTerm, fits: bool
) -> None:
    """R9, C1."""
    pod = make_pod().requires_node()
    decision = schedule(pod.build(), world([make_node()]), default_rules(empty_term=switch))
    assert bool(decision.feasible) is fits


def test_the_zone_is_required_and_the_other_key_only_preferred() -> None:
    """R81."""
    zone = "kubernetes.io/e2e-az-name"
    other = ("another-node-label-key", "In", ["another-node-label-value"])
    pod = make_pod().requires_node((zone, "In", ["e2e-az1", "e2e-az2"])).prefers_node(1, other)
    nodes = [
        make_node("elsewhere").labelled({zone: "e2e-az3", other[0]: other[2][0]}),
        make_node("plain").labelled({zone: "e2e-az1"}),
        make_node("preferred").labelled({zone: "e2e-az2", other[0]: other[2][0]}),
    ]
    decision = schedule(pod.build(), world(nodes))
    assert set(decision.feasible) == {"plain", "preferred"}
    assert decision.best == ("preferred",)


def test_newer_kernel_without_gpu_and_with_fuse() -> None:
    """R29: three operators in one selector."""
    pod = make_pod().requires_node(
        ("kernel", "Gt", ["3"]), ("gpu", "DoesNotExist", []), ("fuse", "Exists", [])
    )
    nodes = [
        make_node("right").labelled(kernel="4", fuse=""),
        make_node("old").labelled(kernel="3", fuse=""),
        make_node("unversioned").labelled(kernel="four", fuse=""),
        make_node("gpu").labelled(kernel="4", fuse="", gpu="yes"),
        make_node("no-fuse").labelled(kernel="4"),
    ]
    assert schedule(pod.build(), world(nodes)).feasible == ("right",)


def test_three_caches_and_three_web_servers_share_three_nodes() -> None:
    """R99: one of each per node, in whatever order they come."""
    nodes = [make_node(f"node-{n}") for n in range(3)]
    caches = [
        make_pod(f"cache-{n}").labelled(app="store").away_from(HOSTNAME, app="store")
        for n in range(3)
    ]
    webs = [
        make_pod(f"web-{n}")
        .labelled(app="web-store")
        .away_from(HOSTNAME, app="web-store")
        .near(HOSTNAME, app="store")
        for n in range(3)
    ]
    for order in itertools.islice(itertools.permutations([*caches, *webs]), 0, None, 45):
        found = place_in_turn(nodes, order)
        names = ["node-0", "node-1", "node-2"]
        assert sorted(found[f"cache-{n}"] for n in range(3)) == names
        assert sorted(found[f"web-{n}"] for n in range(3)) == names


def test_the_first_pod_of_a_group_that_wants_itself_may_start() -> None:
    """C25."""
    pod = make_pod().labelled(app="a").near(HOSTNAME, app="a")
    assert schedule(pod.build(), world([make_node()])).feasible
    stranger = make_pod().labelled(app="b").near(HOSTNAME, app="a")
    assert not schedule(stranger.build(), world([make_node()])).feasible


def test_a_placed_pod_keeps_away_whom_it_does_not_want() -> None:
    """C26: anti-affinity holds in both directions."""
    hermit = make_pod("hermit").away_from(HOSTNAME, app="b").on("node-1")
    visitor = make_pod("visitor").labelled(app="b").build()
    decision = schedule(visitor, world([make_node("node-1"), make_node("node-2")], [hermit]))
    assert decision.feasible == ("node-2",)
    assert decision.rejected["node-1"].reasons == (
        "node(s) didn't satisfy existing pods anti-affinity rules",
    )


def test_reasons_are_counted_and_sorted_as_text() -> None:
    """C9."""
    nodes = [make_node(f"full-{n}").offers(cpu="1") for n in range(10)]
    nodes += [make_node(f"tainted-{n}").tainted("gpu") for n in range(2)]
    assert schedule(make_pod().asks(cpu="2").build(), world(nodes)).message == (
        "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    )
