"""Assigning pods to nodes: selectors, affinities, taints and scores, as the documents state them.

Each test goes through admission and the whole default profile, on a cluster that exists in a
document only.
"""

from typing import Any

import pytest

from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.simulation.builders import document, result, results, simulate

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def landed(objects: Any, pod: PodBuilder, **spec: Any) -> str:
    """Return the node that a pod gets, empty if none."""
    name: str = result(objects, pod, **spec)["nodeName"]
    return name


def fits(objects: Any, pod: PodBuilder, **spec: Any) -> set[str]:
    """Return the nodes that a pod could go to."""
    return set(result(objects, pod, explain="full", **spec)["feasible"])


# --- Node selectors and node affinity -------------------------------------------------------------


def test_a_node_needs_every_pair_of_the_selector_and_may_have_others() -> None:
    """R73, R20: the plain nodeSelector goes on working."""
    nodes = [
        make_node("both").labelled(disk="ssd", rack="1", other="x"),
        make_node("one").labelled(disk="ssd"),
        make_node("another").labelled(disk="ssd", rack="2"),
    ]
    assert fits(nodes, make_pod().selects(disk="ssd", rack="1")) == {"both"}


def test_selector_and_affinity_must_both_hold() -> None:
    """R83, R21, R20."""
    nodes = [
        make_node("both").labelled(disk="ssd", cpu="intel"),
        make_node("selector").labelled(disk="ssd", cpu="arm"),
        make_node("affinity").labelled(disk="hdd", cpu="intel"),
    ]
    pod = make_pod().selects(disk="ssd").requires_node(("cpu", "In", ["intel"]))
    assert fits(nodes, pod) == {"both"}


def test_terms_are_ored_and_expressions_anded() -> None:
    """R84: either term will do, and within a term all of it is needed."""
    nodes = [
        make_node("first").labelled(cpu="intel", disk="ssd"),
        make_node("half").labelled(cpu="intel", disk="hdd"),
        make_node("second").labelled(cpu="amd"),
        make_node("none").labelled(cpu="arm", disk="ssd"),
    ]
    pod = make_pod().requires_node(("cpu", "In", ["intel"]), ("disk", "In", ["ssd"]))
    pod = pod.requires_node(("cpu", "In", ["amd"]))
    assert fits(nodes, pod) == {"first", "second"}


def test_node_affinity_sees_nodes_and_no_pods() -> None:
    """R7: the same pods elsewhere change nothing about which nodes match."""
    nodes = [make_node("a").labelled(app="x"), make_node("b")]
    pod = make_pod().requires_node(("app", "In", ["x"]))
    guests = [make_pod("guest").labelled(app="x").on("b")]
    assert fits(nodes, pod) == fits([*nodes, *guests], pod) == {"a"}


def test_a_preference_chooses_among_nodes_that_meet_the_hard_rules() -> None:
    """R5, R78: what violates a hard rule is not chosen for a preference of any weight."""
    nodes = [
        make_node("preferred").labelled(zone="far", disk="hdd"),
        make_node("required").labelled(zone="near", disk="ssd"),
    ]
    pod = make_pod().requires_node(("disk", "In", ["ssd"]))
    pod = pod.prefers_node(100, ("zone", "In", ["far"]))
    assert landed(nodes, pod) == "required"


@pytest.mark.parametrize("weight", [1, 100])
def test_a_preference_that_no_node_meets_blocks_nothing(weight: int) -> None:
    """R78, R5, R32: a pod may land on a node that does not match fully."""
    pod = make_pod().prefers_node(weight, ("zone", "In", ["nowhere"]))
    pod = pod.near(HOSTNAME, weight, app="nobody").spread(HOSTNAME, hard=False, app="nobody")
    assert landed([make_node("only")], pod) == "only"


def test_the_greatest_sum_of_weights_is_preferred() -> None:
    """R32, R6: two light preferences together outweigh a heavier one."""
    nodes = [make_node("heavy").labelled(a="1"), make_node("light").labelled(b="1", c="1")]
    pod = make_pod().prefers_node(50, ("a", "Exists", [])).prefers_node(30, ("b", "Exists", []))
    assert landed(nodes, pod) == "heavy"
    assert landed(nodes, pod.prefers_node(30, ("c", "Exists", []))) == "light"


def test_the_affinity_sum_is_combined_with_the_other_scores() -> None:
    """R85: a weak preference loses against an emptier node, as its profile's weights say."""
    nodes = [make_node("matching").labelled(a="1"), make_node("empty")]
    full = [make_pod("full").asks(cpu="3900m", memory="31Gi").on("matching")]
    pod = make_pod().asks(cpu="50m", memory="64Mi").prefers_node(1, ("a", "Exists", []))
    found = result([*nodes, *full], pod, explain="full")
    weighted = {name: scores["weighted"] for name, scores in found["scores"].items()}
    assert weighted["matching"]["NodeAffinity"] > weighted["empty"]["NodeAffinity"]
    assert weighted["matching"]["NodeResourcesFit"] < weighted["empty"]["NodeResourcesFit"]
    totals = {name: scores["total"] for name, scores in found["scores"].items()}
    assert totals == {name: sum(parts.values()) for name, parts in weighted.items()}
    assert found["nodeName"] == max(totals, key=lambda name: totals[name])


def test_the_profile_s_added_affinity_is_anded_with_the_pod_s_own() -> None:
    """R86: a node must satisfy both, and only pods of that scheduler are concerned."""
    nodes = [
        make_node("both").labelled(pool="batch", disk="ssd"),
        make_node("pool").labelled(pool="batch", disk="hdd"),
        make_node("disk").labelled(pool="web", disk="ssd"),
    ]
    required = {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}
    ]}  # fmt: skip
    added = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {
                "schedulerName": "batch-scheduler",
                "pluginConfig": [{"name": "NodeAffinity", "args": added}],
            },
        ],
    }
    pod = make_pod().requires_node(("disk", "In", ["ssd"]))
    batch = pod.with_("spec", "schedulerName", value="batch-scheduler")
    assert fits(nodes, batch, configuration=configuration) == {"both"}
    assert fits(nodes, pod, configuration=configuration) == {"both", "disk"}


def test_the_hostname_label_need_not_be_the_node_s_name() -> None:
    """R76."""
    node = make_node("machine-7").labelled({HOSTNAME: "web.example.com"})
    assert landed([node], make_pod().selects({HOSTNAME: "web.example.com"})) == "machine-7"
    assert landed([node], make_pod().selects({HOSTNAME: "machine-7"})) == ""


# --- Affinity between pods ------------------------------------------------------------------------


def zones() -> list[NodeBuilder]:
    return [
        make_node("a1").in_zone("a"), make_node("a2").in_zone("a"),
        make_node("b1").in_zone("b"), make_node("bare"),
    ]  # fmt: skip


def test_a_pod_goes_where_its_domain_already_runs_a_matching_pod() -> None:
    """R88, R89: every node of the domain is eligible, a node without the label is not."""
    guest = make_pod("guest").labelled(security="S1").on("a1")
    assert fits([*zones(), guest], make_pod().near(ZONE, security="S1")) == {"a1", "a2"}


def test_a_pod_stays_away_from_the_domain_of_a_matching_pod() -> None:
    """R88, R90: nodes without the label are in no domain."""
    guest = make_pod("guest").labelled(security="S2").on("a1")
    pod = make_pod().away_from(ZONE, security="S2")
    assert fits([*zones(), guest], pod) == {"b1", "bare"}


def test_a_soft_wish_to_stay_away_moves_a_pod_and_blocks_none() -> None:
    """R90 (C20): the worked example's weight of 100 is a preference."""
    guest = make_pod("guest").labelled(security="S2").on("a1")
    pod = make_pod().away_from(ZONE, 100, security="S2")
    nodes = [make_node("a1").in_zone("a"), make_node("b1").in_zone("b")]
    assert landed([*nodes, guest], pod) == "b1"
    assert landed([nodes[0], guest], pod) == "a1"


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
def test_the_selector_of_a_term_takes_the_four_operators(operator: str) -> None:
    """R91."""
    values = ["S1"] if operator in ("In", "NotIn") else []
    requirement = {"key": "security", "operator": operator, "values": values}
    term = {"topologyKey": ZONE, "labelSelector": {"matchExpressions": [requirement]}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod = make_pod().with_("spec", "affinity", value={"podAffinity": rule})
    guests = [
        make_pod("labelled").labelled(security="S1").on("a1"),
        make_pod("plain").labelled(app="x").on("b1"),
    ]
    wanted = {"a1", "a2"} if operator in ("In", "Exists") else {"b1"}
    assert fits([*zones(), *guests], pod) == wanted


def test_all_expressions_and_all_terms_must_hold() -> None:
    """R97: one pod that matches half of it is not enough."""
    guests = [
        make_pod("half").labelled(app="x").on("a1"),
        make_pod("whole").labelled(app="x", tier="db").on("b1"),
    ]
    assert fits([*zones(), *guests], make_pod().near(ZONE, app="x", tier="db")) == {"b1"}
    both = make_pod().near(ZONE, app="x").near(ZONE, tier="db")
    assert fits([*zones(), *guests], both) == {"b1"}


def test_of_several_terms_of_one_key_each_keeps_the_pod_away() -> None:
    """R97: one term that is broken is enough, whichever it is, and whoever states it."""
    guests = [
        make_pod("web").labelled(app="web").on("a1"),
        make_pod("db").labelled(tier="db").on("b1"),
    ]
    both = make_pod().away_from(ZONE, app="web").away_from(ZONE, tier="db")
    assert fits([*zones(), *guests], both) == {"bare"}
    other_way = make_pod().away_from(ZONE, tier="db").away_from(ZONE, app="web")
    assert fits([*zones(), *guests], other_way) == {"bare"}
    shy = make_pod("shy").away_from(ZONE, app="web").away_from(ZONE, tier="db").on("a1")
    for labels in ({"app": "web"}, {"tier": "db"}):
        assert fits([*zones(), shy], make_pod().labelled(**labels)) == {"b1", "bare"}


@pytest.mark.parametrize("given", ["absent", "empty", "named"])
def test_a_term_without_namespaces_means_the_pod_s_own(given: str) -> None:
    """R96."""
    guests = [
        make_pod("theirs").in_namespace("other").labelled(app="x").on("a1"),
        make_pod("ours").labelled(app="x").on("b1"),
    ]
    term: dict[str, Any] = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
    if given != "absent":
        term["namespaces"] = ["other"] if given == "named" else []
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod = make_pod().with_("spec", "affinity", value={"podAffinity": rule})
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("default", "other")
    ]
    wanted = {"a1", "a2"} if given == "named" else {"b1"}
    assert fits([*namespaces, *zones(), *guests], pod) == wanted


# --- Taints ---------------------------------------------------------------------------------------


def test_an_untolerated_taint_keeps_pods_away_and_a_tolerated_one_asks_for_nothing() -> None:
    """R113: a toleration allows, it does not require."""
    nodes = [make_node("tainted").tainted("key", "v"), make_node("free")]
    assert fits(nodes, make_pod()) == {"free"}
    assert fits(nodes, make_pod().tolerates("key", "v", "NoSchedule")) == {"tainted", "free"}


def test_a_soft_taint_is_avoided_where_there_is_a_choice() -> None:
    """R119, R120: PreferNoSchedule decides between nodes and refuses nobody."""
    soft = make_node("soft").tainted("key", "v", "PreferNoSchedule")
    assert landed([soft, make_node("free")], make_pod()) == "free"
    assert landed([soft], make_pod()) == "soft"
    full = make_pod("full").asks(cpu="4").on("free")
    assert landed([soft, make_node("free"), full], make_pod().asks(cpu="1")) == "soft"


def test_the_fewest_untolerated_soft_taints_win() -> None:
    """R120: tolerated ones are dropped first."""
    one = make_node("one").tainted("a", "v", "PreferNoSchedule")
    two = one.named("two").tainted("b", "v", "PreferNoSchedule")
    assert landed([one, two], make_pod()) == "one"
    tolerant = make_pod().tolerates("a", "v", "PreferNoSchedule")
    scores = result([one, two], tolerant, explain="full")["scores"]
    assert scores["one"]["normalized"]["TaintToleration"] == 100
    assert scores["two"]["normalized"]["TaintToleration"] == 0


def test_conditions_alone_do_not_matter_to_the_scheduler() -> None:
    """R133 (C23): it looks at taints."""
    node = make_node("pressed").with_(
        "status", "conditions", value=[{"type": "MemoryPressure", "status": "True"}]
    )
    assert landed([node], make_pod()) == "pressed"


def test_a_sandboxed_pool_is_counted_apart() -> None:
    """R58: the taint keeps others out, and the pool's own headroom is what is left."""
    sandboxed = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"}, "handler": "gvisor",
        "scheduling": {
            "nodeSelector": {"sandboxed.kubernetes.io": "true"},
            "tolerations": [{"key": "sandboxed.kubernetes.io", "operator": "Exists"}],
        },
    }  # fmt: skip
    pool = make_node("pool").labelled({"sandboxed.kubernetes.io": "true"}).offers(cpu="1")
    objects = [sandboxed, pool.tainted("sandboxed.kubernetes.io"), make_node("open")]
    untrusted = make_pod("untrusted").asks(cpu="600m").with_(
        "spec", "runtimeClassName", value="gvisor"
    )  # fmt: skip
    found = results(objects, [make_pod("trusted").asks(cpu="600m"), untrusted,
                              untrusted.named("second")])  # fmt: skip
    assert [one["nodeName"] for one in found] == ["open", "pool", ""]


# --- The cycle ------------------------------------------------------------------------------------


def test_filtering_comes_first_and_scoring_chooses_among_what_is_left() -> None:
    """R65, R69: the binding goes to the best of the feasible nodes."""
    nodes = [make_node("small").offers(cpu="1"), make_node("large"), make_node("used")]
    busy = make_pod("busy").asks(cpu="2").on("used")
    found = result([*nodes, busy], make_pod().asks(cpu="1500m", memory="1Gi"), explain="full")
    assert set(found["feasible"]) == {"large", "used"}
    assert set(found["scores"]) == {"large", "used"}
    assert found["infeasible"]["small"]["reasons"] == ["Insufficient cpu"]
    assert found["nodeName"] == "large"


def test_pods_without_a_node_are_placed_and_those_with_one_are_left_alone() -> None:
    """R64, R100: nodeName takes precedence over every other rule."""
    nodes = [make_node("a").tainted("key"), make_node("b")]
    named = make_pod("named").selects(no="where").on("a")
    found = results(nodes, [make_pod("free"), named])
    assert [(one["status"], one["nodeName"]) for one in found] == [
        ("scheduled", "b"), ("skipped", "a"),
    ]  # fmt: skip


def test_decisions_are_made_one_after_another() -> None:
    """R150: the second pod sees what the first one took."""
    node = make_node("only").offers(cpu="1")
    found = results([node], [make_pod(name).asks(cpu="600m") for name in ("first", "second")])
    assert [one["status"] for one in found] == ["scheduled", "unschedulable"]


def test_a_configuration_takes_effect_without_a_restart_of_anything() -> None:
    """R180 (live here): the next question is answered under the new weights."""
    nodes = [make_node("empty"), make_node("used")]
    busy = make_pod("busy").asks(cpu="1", memory="8Gi").on("used")
    pack = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "pluginConfig": [{
                "name": "NodeResourcesFit",
                "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [
                    {"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}},
            }],
            "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
        }],
    }  # fmt: skip
    pod = make_pod().asks(cpu="1", memory="8Gi")
    assert landed([*nodes, busy], pod) == "empty"
    assert landed([*nodes, busy], pod, configuration=pack) == "used"


def test_utilisation_is_requested_and_used_over_what_there_is() -> None:
    """R108: (2 + 1) of 4 is 75 %; 3 of 7 is 42.86 %, floored to whole points."""
    node = make_node("node").offers(cpu="4")
    shape = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
    strategy = {
        "type": "RequestedToCapacityRatio", "resources": [{"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": shape,
    }  # fmt: skip
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}],
    }  # fmt: skip
    used = make_pod("used").asks(cpu="1").on("node")
    others = [make_node("other").offers(cpu="8"), make_node("odd").offers(cpu="7")]
    objects = [node, *others, used, make_pod("also").asks(cpu="1").on("odd")]
    found = result(objects, make_pod().asks(cpu="2"), explain="full", configuration=configuration)
    scores = {name: one["raw"]["NodeResourcesFit"] for name, one in found["scores"].items()}
    assert scores == {"node": 75, "other": 25, "odd": 42}


def test_the_document_says_how_many_nodes_were_looked_at() -> None:
    """R171, R179: a percentage below 100 stops the search once enough nodes fit."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 50,
    }
    nodes = [make_node(f"node-{number:03d}") for number in range(150)]
    made = simulate(document(nodes, [make_pod()], explain="full", configuration=configuration))
    (found,) = made["status"]["results"]
    assert len(found["feasible"]) == 75


@pytest.mark.parametrize("effect", ["", "PreferNoSchedule"])
def test_a_toleration_without_effect_tolerates_a_soft_taint_too(effect: str) -> None:
    """R118: the tainted node counts as one without the taint."""
    nodes = [make_node("soft").tainted("t", effect="PreferNoSchedule"), make_node("plain")]

    def scores(pod: PodBuilder) -> dict[str, int]:
        found = result(nodes, pod, explain="full")["scores"]
        return {name: one["normalized"]["TaintToleration"] for name, one in found.items()}

    assert scores(make_pod()) == {"soft": 0, "plain": 100}
    assert scores(make_pod().tolerates("t", effect=effect)) == {"soft": 100, "plain": 100}
    assert scores(make_pod().tolerates("t", effect="NoSchedule")) == {"soft": 0, "plain": 100}


def test_what_no_departure_makes_fit_is_not_tried_by_preemption() -> None:
    """NodeResourcesFit answers UnschedulableAndUnresolvable (fit.go ``isFit``, v1.36)."""
    nodes = [make_node("small").offers(cpu="2"), make_node("full").offers(cpu="4")]
    guests = [make_pod("a").asks(cpu="2").on("small"), make_pod("b").asks(cpu="4").on("full")]
    found = result([*nodes, *guests], make_pod().asks(cpu="3"))["message"]
    assert "2 Insufficient cpu" in found
    assert "1 No preemption victims found for incoming pod" in found
    assert "1 Preemption is not helpful for scheduling" in found
