"""Plans: who leaves, by which rule, where each lands; asked in this process."""

import pytest

from clusterstate.actions import brakes, objects
from clusterstate.objects.values.errors import Invalid
from clusterstate.queries.evictions.brakes import Share
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.answers import advisor, plans
from scheduling.controllers import held_places
from scheduling.controllers.workloads import follower as workloads
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW, after
from tests.controllers.support import (
    bind,
    make_node,
    make_owner,
    make_pod,
    pod_manifest,
    set_labels,
    taint,
    tolerates,
)

pytestmark = pytest.mark.django_db

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "u",
    "controller": True,
}


def ask(*changes, **spec):
    spec["changes"] = list(changes)
    document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": spec}
    return advisor.ask("plan", document)["status"]


def owned(name, node="", *, app="web", now=NOW, **spec):
    """A pod that a ReplicaSet would make again."""
    metadata = {"labels": {"app": app}, "ownerReferences": [OWNER]}
    return make_pod(name, node, now=now, metadata=metadata, **spec)


def leaving(status):
    return {
        one["pod"].removeprefix("default/"): (
            one["cause"],
            one.get("afterSeconds"),
            one.get("landing", {}).get("nodeName"),
        )
        for one in status["leaving"]
    }


def renew(name):
    """Give a node an agent, which lets pods have their grace period."""
    spec = {"holderIdentity": name}
    lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
    objects.create("Lease", "kube-node-lease", lease, now=NOW)


def asking(cpu):
    return {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": cpu}}}]}


def test_a_taint_sends_away_those_who_do_not_bear_it_when_their_time_is_over():
    make_node("n1")
    make_node("n2")
    owned("at-once", "n1")
    owned("later", "n1", tolerations=[tolerates(seconds=60)])
    owned("never", "n1", tolerations=[tolerates()])
    make_pod("alone", "n1")
    status = ask({"taint": {"nodes": ["n1"], "taints": [taint()]}})
    found = leaving(status)
    cause, seconds, node = found.pop("later")
    assert (cause, node) == ("Taint", "n2")
    assert 59 <= seconds <= 60, "from the whole second at which the taint is added"
    assert found == {"at-once": ("Taint", 0.0, "n2"), "alone": ("Taint", 0.0, None)}
    (rule,) = {one["rule"] for one in status["leaving"] if one["pod"] == "default/later"}
    assert rule == "taint key:NoExecute of node n1, tolerated for 60 s"
    assert status["summary"]["leaving"] == 3
    assert status["room"]["before"]["open"] == status["room"]["after"]["open"] == 2
    assert int(status["revision"]) > 0


def test_a_group_that_leaves_together_is_foretold_to_do_so_with_its_first():
    for name in ("n1", "n2", "n3"):
        make_node(name)
    for name, mode in (("g", "all"), ("h", "single")):
        group = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {mode: {}}},
        }
        objects.create("PodGroup", "default", group, now=NOW)
        for node in ("n1", "n2", "n3"):
            owned(f"{name}-{node}", node, schedulingGroup={"podGroupName": name})
    status = ask({"drain": {"nodes": ["n2"]}})
    found = {name: cause for name, (cause, *_) in leaving(status).items()}
    assert found == {"g-n2": "Drain", "h-n2": "Drain", "g-n1": "PodGroup", "g-n3": "PodGroup"}
    rules = {one["rule"] for one in status["leaving"] if one["cause"] == "PodGroup"}
    assert rules == {"of group g, with pod default/g-n2: drain of node n2"}


def test_a_pod_that_fits_nowhere_else_is_stuck():
    make_node("n1")
    make_node("n2")
    owned("large", "n1", **asking("60"))
    make_pod("taken", "n2", **asking("60"))
    status = ask({"drain": {"nodes": ["n1"]}})
    (told,) = status["leaving"]
    assert told["landing"]["nodeName"] == ""
    assert "Insufficient cpu" in told["landing"]["message"]
    assert [one["pod"] for one in status["stuck"]] == ["default/large"]


def test_a_drain_leaves_what_kubectl_leaves_and_closes_the_node():
    make_node("n1")
    make_node("n2")
    make_node("lost", taints=[taint("node.kubernetes.io/unreachable", effect="NoSchedule")])
    owned("web", "n1")
    make_pod("alone", "n1")
    daemon = [{**OWNER, "kind": "DaemonSet"}]
    make_pod("daemon", "n1", metadata={"ownerReferences": daemon})
    local = {"volumes": [{"name": "v", "emptyDir": {}}]}
    owned("scratch", "n1", **local)
    status = ask({"drain": {"nodes": ["n1"]}})
    assert leaving(status) == {"web": ("Drain", 0.0, "n2")}
    assert {one["pod"].rpartition("/")[2] for one in status["staying"]} == {
        "alone",
        "daemon",
        "scratch",
    }
    forced = ask({"drain": {"nodes": ["n1"], "force": True, "deleteEmptyDirData": True}})
    assert set(leaving(forced)) == {"web", "alone", "scratch"}
    assert [step["do"] for step in status["steps"]] == ["edit", "evict"]
    assert status["undo"] == [{"uncordon": {"nodes": ["n1"]}}]
    assert status["room"]["after"]["open"] == 1, "neither the cordoned nor the lost node"


def test_labels_that_pods_require_during_execution():
    make_node("n1", labels={"disk": "ssd"})
    make_node("n2", labels={"disk": "ssd"})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": terms}}
    owned("needs", "n1", affinity=affinity)
    owned("does-not", "n1")
    status = ask({"label": {"nodes": ["n1"], "remove": ["disk"]}})
    assert leaving(status) == {"needs": ("NodeLabels", 0.0, "n2")}
    assert status["undo"] == [{"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}}]
    assert ask({"label": {"nodes": ["n1"], "set": {"other": "x"}}})["leaving"] == []


def test_a_deleted_node_loses_its_pods_after_the_quarantine(settings):
    make_node("n1")
    make_node("n2")
    owned("web", "n1")
    status = ask({"delete": {"nodes": ["n1"]}})
    assert leaving(status) == {"web": ("NodeDeleted", settings.POD_GC_QUARANTINE_SECONDS, "n2")}
    assert status["room"]["after"]["nodes"] == 1


def test_waiting_pods_land_on_a_node_that_is_added_or_opened():
    make_node("n1")
    waiting = make_pod("waits", nodeSelector={"kubernetes.io/hostname": "n2"})
    assert waiting
    before = ask({"uncordon": {"nodes": ["n1"]}})
    assert [one["pod"] for one in before["waiting"]] == ["default/waits"]
    node = {
        "metadata": {"name": "n2", "labels": {"kubernetes.io/hostname": "n2"}},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    status = ask({"add": {"objects": [node]}})
    (placed,) = status["placed"]
    assert (placed["pod"], placed["nodeName"], placed["ties"]) == ("default/waits", "n2", 1)
    assert status["room"]["after"]["nodes"] == 2
    assert status["undo"] == [{"delete": {"nodes": ["n2"]}}]


def test_a_smaller_node_keeps_its_pods_and_takes_no_more():
    make_node("n1")
    owned("web", "n1", **asking("8"))
    pod = {"metadata": {"name": "new"}, "spec": asking("8")}
    resized = {"resize": {"nodes": ["n1"], "amounts": {"cpu": "9"}}}
    grown = ask(resized, {"pods": {"objects": [pod]}})
    assert grown["leaving"] == []
    assert "Insufficient cpu" in grown["waiting"][0]["message"]
    assert ask({"pods": {"objects": [pod]}})["placed"][0]["nodeName"] == "n1"


def test_new_pods_make_room_and_whoever_leaves_is_named():
    make_node("n1")
    renew("n1")
    owned("small", "n1", **asking("60"), terminationGracePeriodSeconds=5)
    vip = {
        "metadata": {"name": "vip", "namespace": "kube-system"},
        "spec": {**asking("60"), "priorityClassName": "system-node-critical"},
    }
    status = ask({"pods": {"objects": [vip]}})
    (told,) = status["leaving"]
    assert (told["cause"], told["preemptedBy"]) == ("Preempted", "kube-system/vip")
    assert told["goneAfterSeconds"] == 5.0
    (placed,) = status["placed"]
    assert (placed["nodeName"], placed["afterSeconds"]) == ("n1", 5.0)
    assert [one["pod"] for one in status["stuck"]] == ["default/small"]


def test_what_happens_anyway_is_not_blamed_on_the_change():
    """A cordon of an empty node does not cause the preemption that pods cause on another one."""
    for name in ("n1", "n2"):
        make_node(name)
        set_labels(name, which=name)
        renew(name)
    objects.create("PriorityClass", "", {"metadata": {"name": "urgent"}, "value": 9}, now=NOW)
    owned("small", "n1", **asking("60"), terminationGracePeriodSeconds=5)
    urgent = {**asking("60"), "priorityClassName": "urgent"}
    make_pod("vip", **urgent, nodeSelector={"which": "n1"})
    make_pod("fits", **asking("60"), nodeSelector={"which": "n2"})
    make_pod("large", **asking("900"))
    make_node("n3")
    status = ask({"cordon": {"nodes": ["n3"]}})
    assert status["leaving"] == status["stuck"] == []
    assert [one["preemptedBy"] for one in status["leavingAnyway"]] == ["default/vip"]
    assert {one["pod"]: one["anyway"] for one in status["placed"]} == {
        "default/vip": "n1", "default/fits": "n2",
    }  # fmt: skip
    assert [one.get("anyway") for one in status["waiting"]] == [None]
    counts = {name: status["summary"][name] for name in ("leaving", "preempted", "placedAnyway")}
    assert counts == {"leaving": 0, "preempted": 0, "placedAnyway": 2}
    status = ask({"cordon": {"nodes": ["n2"]}})
    assert {one["pod"]: one.get("anyway") for one in status["waiting"]} == {
        "default/fits": "n2", "default/large": None,
    }  # fmt: skip
    assert status["summary"]["losingPlace"] == 1


def test_a_budget_holds_pods_back():
    make_node("n1")
    make_node("n2")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)
    numbers = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    status = {**numbers, "observedGeneration": 1}
    objects.update(
        "PodDisruptionBudget",
        "default",
        "web",
        lambda one: {**one, "status": status},
        now=NOW,
        subresource="status",
    )
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in ("a", "b"):
        owned(name, "n1")
        objects.update(
            "Pod", "default", name,
            lambda one: {**one, "status": {**one["status"], **running}},
            now=after(1), subresource="status",
        )  # fmt: skip
    status = ask({"drain": {"nodes": ["n1"]}})
    assert leaving(status) == {"a": ("Drain", 0.0, "n2"), "b": ("Drain", None, None)}
    assert status["budgets"] == [
        {"name": "PodDisruptionBudget default/web", "holds": ["default/b"]}
    ]
    assert status["summary"]["held"] == 1


def test_a_brake_that_will_hold_evictions_is_told_unless_it_is_approved(settings):
    settings.BRAKE_OWNER_PERCENT = 50
    settings.BRAKE_LEAST = 3
    make_node("n1")
    make_node("n2")
    for number in range(6):
        owned(f"pod-{number}", "n1" if number < 4 else "n2")
    (brake,) = ask({"drain": {"nodes": ["n1"]}})["brakes"]
    assert brake == {
        "name": "owner.default.ReplicaSet.web",
        "leaving": 4,
        "total": 6,
        "limitPercent": 50.0,
    }
    assert "brakes" not in ask({"drain": {"nodes": ["n2"]}})
    assert "brakes" not in ask({"delete": {"nodes": ["n1"]}})
    name = "default.ReplicaSet.web"
    brakes.settle([(Share("owner", name, 4, 6), 50.0)], now=NOW)
    brakes.approve(f"owner.{name}", by="somebody", now=NOW)
    assert "brakes" not in ask({"drain": {"nodes": ["n1"]}})


def test_pods_leave_in_turn_where_zones_have_a_rate(settings):
    settings.ZONE_EVICTION_RATE = 2
    make_node("n1", labels={"topology.kubernetes.io/zone": "a"})
    make_node("n2", labels={"topology.kubernetes.io/zone": "b"})
    make_node("n3")
    for number in range(8):
        owned(f"pod-{number}", f"n{1 + number % 2}")
    told = ask({"drain": {"nodes": ["n1", "n2"]}})["leaving"]
    assert sorted(one["afterSeconds"] for one in told) == [0, 0, 0, 0, 0.5, 0.5, 1, 1]


def test_another_configuration_is_tried_on_who_waits():
    make_node("n1")
    make_pod("other", schedulerName="other")
    profile = {"schedulerName": "other"}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}, profile],
    }
    status = ask({"configuration": document})
    assert [step["do"] for step in status["steps"]] == ["configuration"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ([], "spec.changes"),
        ([{}], "spec.changes[0]"),
        ([{"cordon": {"nodes": ["a"]}, "drain": {"nodes": ["a"]}}], "spec.changes[0]"),
        ([{"cordon": {}}], "spec.changes[0].cordon.nodes"),
        ([{"cordon": {"nodes": ["a"], "x": 1}}], "spec.changes[0].cordon.x"),
        ([{"cordon": {"nodes": ["nobody"]}}], "spec.changes[0].cordon.nodes"),
        ([{"taint": {"nodes": ["n1"]}}], "spec.changes[0].taint.taints"),
        ([{"taint": {"nodes": ["n1"], "taints": [{"key": "a", "effect": "b"}]}}],
         "spec.changes[0].taint.taints[0].effect"),
        ([{"resize": {"nodes": ["n1"], "amounts": {"cpu": "much"}}}],
         "spec.changes[0].resize.amounts[cpu]"),
        ([{"resize": {"nodes": ["n1"], "amounts": {"cpu": "1e12"}}}],
         "spec.changes[0].resize.amounts[cpu]"),
        ([{"resize": {"nodes": ["n1"], "amounts": {"no name": "1"}}}],
         "spec.changes[0].resize.amounts[no name]"),
        ([{"cordon": {"nodes": ["n1", "n1"]}}], "spec.changes[0].cordon.nodes[1]"),
        ([{"scale": {"replicas": 1}}], "spec.changes[0].scale.name"),
        ([{"scale": {"name": "web"}}], "spec.changes[0].scale.replicas"),
        ([{"scale": {"kind": "Job", "name": "web", "replicas": 1}}], "spec.changes[0].scale.kind"),
        ([{"scale": {"name": "web", "replicas": -2}}], "spec.changes[0].scale.replicas"),
        ([{"scale": {"name": "nobody", "replicas": 1}}], "spec.changes[0].scale.name"),
        ([{"import": {"objects": [{"kind": "Secret", "metadata": {"name": "a"}}]}}],
         "spec.changes[0].import.objects[0].kind"),
        ([{"import": {"objects": [{"kind": "List", "items": [{"kind": "Node"}]}]}}],
         "spec.changes[0].import.objects[0].items[0].metadata.name"),
        ([{"import": {"objects": [{"kind": "Node", "metadata": {"name": "n1"}}]}}],
         "spec.changes[0].import.objects[0].metadata.name"),
        ([{"add": {"objects": [{"metadata": {"name": "n1"}}]}}],
         "spec.changes[0].add.objects[0].metadata.name"),
        ([{"drain": {"nodes": ["n1"]}}, {"delete": {"nodes": ["n1"]}}],
         "spec.changes[0].drain.nodes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes, field):
    make_node("n1")
    with pytest.raises(Invalid) as found:
        ask(*changes)
    assert field in {error.field for error in found.value.errors}


def test_a_name_and_unknown_fields_of_a_plan_are_refused_and_an_empty_selector_is_told():
    make_node("n1")
    spec = {"changes": [{"cordon": {"nodes": ["n1"]}}]}
    for wrong in ({"metadata": {"name": "mine"}, "spec": spec}, {"spec": spec, "extra": 1}):
        with pytest.raises(Invalid, match=r"metadata\.name|extra"):
            advisor.ask("plan", wrong)
    status = ask({"cordon": {"selector": "zone=nowhere"}})
    assert status["warnings"] == ["spec.changes[0].cordon.selector: matches no node"]


def test_a_pod_that_was_refused_is_told_with_who_refused_it_though_nothing_helps():
    """The scheduler that works let it wait; the plan's change is of no use to it."""
    make_node("n1")
    make_pod("large", **asking("100"))
    scheduler = Scheduler(default_configuration(), lambda: 0)
    scheduler.load(NOW.timestamp())
    while scheduler.cycle(after(1).timestamp()):
        pass
    scheduler.binder.close()
    (told,) = ask({"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}})["waiting"]
    assert told["rejectedBy"] == ["NodeResourcesFit"]
    (told,) = ask({"resize": {"nodes": ["n1"], "amounts": {"cpu": "128"}}})["placed"]
    assert (told["pod"], told["nodeName"]) == ("default/large", "n1")


def test_a_nominated_pod_that_waits_and_is_deleted_gives_its_room_to_who_was_refused_for_it():
    make_node("n1")
    make_pod("nominated", schedulingGates=[{"name": "a.b/c"}], **asking("60"))
    objects.update(
        "Pod", "default", "nominated",
        lambda m: {**m, "status": {**m["status"], "nominatedNodeName": "n1"}},
        now=NOW, subresource="status",
    )  # fmt: skip
    make_pod("low", **asking("10"))
    scheduler = Scheduler(default_configuration(), lambda: 0)
    scheduler.load(NOW.timestamp())
    while scheduler.cycle(after(1).timestamp()):
        pass
    scheduler.binder.close()
    _, low = ask({"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}})["waiting"]
    assert (low["pod"], low["rejectedBy"]) == ("default/low", ["NodeResourcesFit"])
    (told,) = ask({"evict": {"pods": ["default/nominated"], "disableEviction": True}})["placed"]
    assert (told["pod"], told["nodeName"]) == ("default/low", "n1")


def test_a_pod_that_waits_and_is_deleted_comes_again_if_its_controller_makes_another():
    make_node("n1")
    owned("waits", **asking("100"))
    make_pod("alone", **asking("100"))
    owned("ended", "n1")
    objects.update(
        "Pod", "default", "ended",
        lambda m: {**m, "status": {**m["status"], "phase": "Failed"}},
        now=NOW, subresource="status",
    )  # fmt: skip
    names = ["default/ended", "default/waits", "default/alone"]
    status = ask(
        {"evict": {"pods": names, "disableEviction": True}},
        {"resize": {"nodes": ["n1"], "amounts": {"cpu": "128"}}},
    )
    assert leaving(status) == {
        "waits": ("PodDeleted", 0.0, "n1"),
        "alone": ("PodDeleted", 0.0, None),
        "ended": ("PodDeleted", 0.0, None),
    }
    assert {one["pod"]: one["replaced"] for one in status["leaving"]} == {
        "default/waits": "atOnce", "default/alone": "never", "default/ended": "never",
    }  # fmt: skip
    assert status["waiting"] == status["placed"] == []


@pytest.mark.parametrize("agent", [False, True])
def test_a_pod_of_the_plan_that_leaves_holds_its_room_for_its_grace_and_comes_again(agent):
    """It bears the taint of the node that it lands on for five seconds."""
    make_node("n1")
    if agent:
        renew("n1")
    taints = [{"key": "bad", "effect": "NoExecute"}]
    bears = tolerates("bad", seconds=5)
    metadata = {"labels": {"app": "web"}, "ownerReferences": [OWNER]}
    spec = {"tolerations": [bears], "terminationGracePeriodSeconds": 7, **asking("40")}
    posted = pod_manifest("posted", metadata=metadata, **spec)
    status = ask(
        {"taint": {"nodes": ["n1"], "taints": taints}}, {"pods": {"objects": [posted]}},
        horizonSeconds=15,
    )  # fmt: skip
    found = [one for one in status["leavingAnyway"] if one["pod"] == "default/posted"]
    assert [(one["replaced"], one["afterSeconds"]) for one in found] == [("atOnce", 5.0)]
    assert found[0]["goneAfterSeconds"] == (12.0 if agent else 5.0)


def test_the_same_plan_foretells_the_same():
    make_node("n1")
    for number in range(2, 6):
        make_node(f"n{number}")
    for number in range(8):
        owned(f"pod-{number}", "n1")

    def foretold():
        told = ask({"drain": {"nodes": ["n1"]}}, seed=7)["leaving"]
        return [{key: one[key] for key in one if key != "at"} for one in told]  # the clock goes on

    first = foretold()
    assert foretold() == first
    assert all(one["landing"]["nodeName"] != "n1" for one in first)


def test_pods_are_evicted_and_deleted_by_name():
    make_node("n1")
    owned("web", "n1")
    make_pod("waits")
    status = ask({"evict": {"pods": ["default/web", "default/waits"], "gracePeriodSeconds": 3}})
    assert leaving(status) == {
        "web": ("Eviction", 0.0, "n1"),
        "waits": ("Eviction", 0.0, None),
    }
    assert status["waiting"] == status["placed"] == []
    assert [(one["do"], one["gracePeriodSeconds"]) for one in status["steps"]] == [("evict", 3)] * 2
    status = ask({"evict": {"pods": ["default/web"], "disableEviction": True}})
    assert leaving(status) == {"web": ("PodDeleted", 0.0, "n1")}
    assert [one["do"] for one in status["steps"]] == ["remove"]
    for wrong in ([], ["web"], ["a/b/c"], ["default/nobody"]):
        with pytest.raises(Invalid, match=r"evict\.pods"):
            ask({"evict": {"pods": wrong}})


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_a_workload_is_scaled_as_its_controller_does_it(kind):
    """Up by pods that land, down by those that the controller then deletes itself."""
    make_node("n1")
    make_node("n2")
    make_owner(kind, "web", 2, podManagementPolicy="Parallel")
    _settle(after(1))
    for name in _pods():
        pod_id = find_pod_id("default", name)
        assert pod_id is not None
        bind(pod_id, "n1" if name == min(_pods()) else "n2", now=after(2))
    change = {"kind": kind, "name": "web", "replicas": 4}
    status = ask({"scale": change})
    assert status["summary"]["placed"] == 2
    assert all(one["nodeName"] for one in status["placed"])
    assert [one["do"] for one in status["steps"]] == ["scale"]
    if kind == "StatefulSet":
        assert [one["pod"] for one in status["placed"]] == ["default/web-2", "default/web-3"]
    status = ask({"scale": {**change, "replicas": 1}})
    foretold = leaving(status)
    assert {one[0] for one in foretold.values()} == {"ScaledDown"}
    before = _pods()
    objects.update(
        kind, "default", "web", lambda one: {**one, "spec": {**one["spec"], "replicas": 1}},
        now=after(3),
    )  # fmt: skip
    _settle(after(4))
    assert before - _pods() == set(foretold)
    assert len(foretold) == 1


def _settle(now):
    for _ in range(4):
        workloads.follow(now)


def _pods():
    found = (decode_object(one)["metadata"] for one in list_page("Pod", "default").items)
    return {one["name"] for one in found if "deletionTimestamp" not in one}


def test_objects_of_many_kinds_are_imported_in_an_order_that_works():
    node = make_manifest("n1")
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}
    space = {"kind": "Namespace", "metadata": {"name": "new"}}
    pod = {"kind": "Pod", **pod_manifest("web", priorityClassName="urgent")}
    pod["metadata"]["namespace"] = "new"
    objects_ = [pod, {"kind": "List", "items": [node, urgent]}, space]
    status = ask({"import": {"objects": objects_}})
    (placed,) = status["placed"]
    assert (placed["pod"], placed["nodeName"]) == ("new/web", "n1")
    assert [(one["do"], one["kind"]) for one in status["steps"]] == [
        ("create", "Namespace"), ("create", "PriorityClass"), ("create", "Node"), ("create", "Pod"),
    ]  # fmt: skip
    assert status["undo"] == [{"delete": {"nodes": ["n1"]}}]


def make_manifest(name):
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def rebalanced(**more):
    return ask({"rebalance": more})


def test_a_rebalance_drains_the_nodes_whose_pods_all_find_room_elsewhere():
    for number in range(4):
        make_node(f"n{number}")
        owned(f"on-{number}", f"n{number}", **asking("20"))
    status = rebalanced()
    (change,) = status["changes"]
    emptied = change["drain"]["nodes"]
    assert len(emptied) == 2, "three pods of 20 CPU fit a node of 64"
    assert status["stuck"] == []
    assert {one["nodeName"] for one in status["leaving"]} == set(emptied)
    assert not {one["landing"]["nodeName"] for one in status["leaving"]} & set(emptied)
    assert {one["do"] for one in status["steps"]} == {"edit", "evict"}
    assert len(rebalanced(mostNodes=1)["changes"][0]["drain"]["nodes"]) == 1


def test_a_rebalance_empties_chosen_nodes_alone_and_none_whose_pods_cannot_move():
    make_node("n0")
    for number in (1, 2, 3):
        make_node(f"n{number}")
        set_labels(f"n{number}", pool="spot")
        owned(f"on-{number}", f"n{number}", app=f"app-{number}", **asking("10"))
    make_pod("alone", "n1", **asking("1"))
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "app-2"}}, "maxUnavailable": 0},
    }
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)
    status = rebalanced(selector="pool=spot")
    assert status["changes"] == [{"drain": {"nodes": ["n3"]}}]
    nothing = rebalanced(selector="pool=none")
    assert nothing["changes"] == nothing["steps"] == []
    assert "no pod can be moved" in nothing["warnings"][0]


@pytest.mark.parametrize("is_owned", [True, False])
def test_a_group_that_leaves_as_a_whole_moves_with_a_place_for_each_pod_or_not_at_all(is_owned):
    """The pod on n0 leaves with the others; nobody makes it again if it has no owner."""
    for number in range(4):
        make_node(f"n{number}")
        set_labels(f"n{number}", pool="spot" if number else "kept")
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }
    objects.create("PodGroup", "default", group, now=NOW)
    member = {"schedulingGroup": {"podGroupName": "g"}}
    (owned if is_owned else make_pod)("elsewhere", "n0", **member, **asking("10"))
    for number in (1, 2):
        owned(f"on-{number}", f"n{number}", **member, **asking("10"))
    owned("free", "n3", **asking("30"))
    status = rebalanced(selector="pool=spot")
    moved = {one["name"]: one["place"] for one in status["steps"] if one["do"] == "evict"}
    if is_owned:
        assert status["changes"] == [{"drain": {"nodes": ["n3", "n1"]}}]
        assert set(moved) == {"elsewhere", "on-1", "on-2", "free"}
        assert set(moved.values()) <= {"n0", "n2"}
        assert leaving(status)["elsewhere"][0] == "PodGroup"
    else:
        assert status["changes"] == [{"drain": {"nodes": ["n3"]}}]
        assert set(moved) == {"free"}


def test_a_group_of_which_one_pod_has_no_place_stays_as_a_whole():
    for number in range(3):
        make_node(f"n{number}")
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }
    objects.create("PodGroup", "default", group, now=NOW)
    member = {"schedulingGroup": {"podGroupName": "g"}}
    owned("small", "n0", **member, **asking("1"))
    owned("large", "n1", **member, **asking("60"))
    owned("other", "n0", **asking("1"))
    make_pod("full", "n2", **asking("30"))
    status = ask({"drain": {"nodes": ["n0"]}}, holdPlaces=True)
    assert set(leaving(status)) == {"other"}
    (why,) = [one for one in status["staying"] if one["pod"] == "default/small"]
    assert "of group g" in why["message"]


@pytest.mark.parametrize("how", ["places", "podsPerHour"])
def test_a_group_that_cannot_leave_at_once_stays_as_a_whole(how, monkeypatch):
    for number in range(2):
        make_node(f"n{number}")
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }
    objects.create("PodGroup", "default", group, now=NOW)
    for number in range(3):
        member = {"schedulingGroup": {"podGroupName": "g"}}
        owned(f"on-{number}", "n0", **member, **asking("1"))
    change = {"drain": {"nodes": ["n0"]}}
    assert len(leaving(ask(change, holdPlaces=True, podsPerHour=3))) == 3
    if how == "places":
        monkeypatch.setattr(held_places, "MOST", 2)
        status = ask(change, holdPlaces=True)
    else:
        status = ask(change, holdPlaces=True, podsPerHour=2)
    assert leaving(status) == {}
    assert "more than 2 pods" in status["staying"][0]["message"]


def zoned(count=3):
    for number in range(count):
        make_node(f"n{number}")
        set_labels(f"n{number}", zone="abc"[number])


def spread_over_zones(app):
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "nodeAffinityPolicy": "Ignore",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    }  # fmt: skip


def around(kind, app, key):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_a_pod_with_rules_about_others_moves_only_if_its_place_takes_it_in_any_order():
    """Zone b may be empty when the pod of zone a comes, which then has two: it stays."""
    zoned()
    for number, zone in enumerate("aabbcc"):
        here = {"nodeSelector": {"zone": zone}, **spread_over_zones("one")}
        owned(f"{zone}-{number}", f"n{number // 2}", app="one", **here)
    for number, zone in enumerate("ab"):
        make_node(f"m{number}")
        set_labels(f"m{number}", zone=zone)
    closed = {"cordon": {"nodes": ["n0", "n1"]}}
    status = ask(closed, {"evict": {"pods": [f"default/{name}" for name in ("a-0", "b-2", "b-3")]}},
                 holdPlaces=True)  # fmt: skip
    places = {one["name"]: one["place"] for one in status["steps"] if one["do"] == "evict"}
    assert places == {"b-2": "m1", "b-3": "m1"}
    (why,) = status["staying"]
    assert why["pod"] == "default/a-0"
    assert "rules about other pods" in why["message"]
    status = ask(closed, {"evict": {"pods": ["default/a-0"]}}, holdPlaces=True)
    (step,) = [one for one in status["steps"] if one["do"] == "evict"]
    assert (step["place"], step["alone"]) == ("m0", True)


def test_a_pod_that_must_be_near_others_that_leave_stays():
    zoned()
    owned("base", "n0", app="base")
    owned("near", "n0", app="near", **around("podAffinity", "base", "zone"))
    make_node("m0")
    set_labels("m0", zone="a")
    status = ask({"drain": {"nodes": ["n0"]}}, holdPlaces=True)
    places = {one["name"]: one.get("place") for one in status["steps"] if one["do"] == "evict"}
    assert "near" not in places
    owned("fixed", "m0", app="base")
    status = ask({"evict": {"pods": ["default/near"]}}, {"cordon": {"nodes": ["n0"]}},
                 holdPlaces=True)  # fmt: skip
    (step,) = [one for one in status["steps"] if one["do"] == "evict"]
    assert (step["name"], step["place"]) == ("near", "m0")


def test_pods_that_exclude_each_other_do_not_swap_places():
    for number in range(3):
        make_node(f"n{number}")
    for number in range(2):
        owned(f"p{number}", f"n{number}", app="x",
              **around("podAntiAffinity", "x", "kubernetes.io/hostname"))  # fmt: skip
    for number in range(3):
        set_labels(f"n{number}", **{"kubernetes.io/hostname": f"n{number}"})
    evicted = {"evict": {"pods": ["default/p0", "default/p1"]}}
    status = ask(evicted, holdPlaces=True)
    places = [one["place"] for one in status["steps"] if one["do"] == "evict"]
    assert places == ["n2"], "the other's node takes nobody while it may still be there"


def test_a_plan_says_to_which_nodes_pods_move_and_holds_these_places():
    for number in range(4):
        make_node(f"n{number}")
    owned("a", "n0", **asking("1"))
    owned("b", "n0", **asking("1"))
    make_pod("full", "n3", **asking("64"))
    moved = {"pods": ["default/a", "default/b"], "places": {"default/a": "n2", "default/b": "n3"}}
    status = ask({"evict": moved}, holdPlaces=True)
    (step,) = status["steps"]
    assert (step["name"], step["place"]) == ("a", "n2")
    (why,) = status["staying"]
    assert "node n3 does not take it" in why["message"]
    with pytest.raises(Invalid) as refused:
        ask({"evict": {"pods": ["default/a"], "places": {"default/c": "n1"}}})
    assert {one.field for one in refused.value.errors} == {
        "spec.changes[0].evict.places", "spec.holdPlaces",
    }  # fmt: skip


def test_zones_are_balanced_by_moves_to_the_nodes_that_the_plan_tells():
    zoned()
    for number in range(6):
        owned(f"p{number}", "n0", **asking("4"))
    owned("free", "n1", **asking("4"))
    status = rebalanced(objective="ToBalanceZones", topologyKey="zone")
    ((what, moved),) = status["changes"][0].items()
    assert what == "evict"
    assert len(moved["places"]) == len(moved["pods"]) == 3
    places = {one["place"] for one in status["steps"]}
    assert places == set(moved["places"].values()) == {"n1", "n2"}
    assert status["stuck"] == []
    assert len(rebalanced(objective="ToBalanceZones", topologyKey="zone",
                          mostPods=1)["changes"][0]["evict"]["pods"]) == 1  # fmt: skip
    dear = [{"selector": "app=web", "price": 100}]
    kept = rebalanced(objective="ToBalanceZones", topologyKey="zone", movePrices=dear)
    assert kept["changes"] == []


def test_soft_rules_are_mended_and_pods_that_cannot_move_stay():
    zoned()
    term = {"weight": 1, "preference": {"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["c"]}]}}  # fmt: skip
    soft = {"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [term]}}}  # fmt: skip
    owned("bad", "n0", **soft, **asking("1"))
    owned("good", "n2", **soft, **asking("1"))
    make_pod("alone", "n0", **soft, **asking("1"))
    status = rebalanced(objective="ToMendSoftRules")
    assert status["changes"] == [
        {"evict": {"pods": ["default/bad"], "places": {"default/bad": "n2"}}}
    ]
    assert rebalanced(objective="ToMendSoftRules", selector="zone=b")["changes"] == []
    with pytest.raises(Invalid) as refused:
        rebalanced(objective="ToSleep", movePrice=-1, lostWorkPrice="x")
    assert {one.field.rpartition(".")[2] for one in refused.value.errors} == {
        "objective", "movePrice", "lostWorkPrice",
    }  # fmt: skip


def test_a_whole_rack_is_freed_for_a_group_by_the_cheapest_moves():
    for number in range(6):
        make_node(f"n{number}")
        set_labels(f"n{number}", rack=f"r{number // 2}")
    for number in range(4):
        owned(f"p{number}", f"n{number}", app=f"app{number // 2}", **asking("20"))
    for number in (4, 5):
        make_pod(f"fixed-{number}", f"n{number}", **asking("10"))
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        },
    }
    objects.create("PodGroup", "default", group, now=NOW)
    member = {"schedulingGroup": {"podGroupName": "g"}}
    for number in range(2):
        make_pod(f"m{number}", **member, **asking("60"))
    dear = [{"selector": "app=app0", "price": 9}]
    status = rebalanced(roomForGroup="default/g", movePrices=dear)
    assert set(leaving(status)) == {"p2", "p3"}
    placed = {one["pod"]: one["nodeName"] for one in status["placed"]}
    assert placed == {"default/m0": "n2", "default/m1": "n3"} or placed == {
        "default/m0": "n3", "default/m1": "n2",
    }  # fmt: skip
    dear = [{"selector": "app=app1", "price": 9}]
    assert set(leaving(rebalanced(roomForGroup="default/g", movePrices=dear))) == {"p0", "p1"}
    with pytest.raises(Invalid, match="no PodGroup with waiting pods"):
        rebalanced(roomForGroup="default/h")


def moves_for(name):
    found = advisor.ask("why", {"namespace": "default", "name": name})["status"]["remedies"]
    return [one for one in found if one["target"] == "Plan"]


def test_the_fewest_pods_move_so_that_one_that_waits_finds_room():
    for number in range(3):
        make_node(f"n{number}")
    owned("a", "n0", **asking("20"))
    owned("b", "n0", **asking("20"))
    owned("c", "n1", **asking("30"))
    make_pod("d", "n2", **asking("30"))
    make_pod("large", **asking("60"))
    make_pod("never", **asking("63"))
    status = rebalanced(roomFor="default/large")
    assert status["changes"] == [{"evict": {"pods": ["default/c"]}}]
    (group,) = advisor.ask("waiting-groups", {"remedies": True})["items"]
    (told,) = moves_for("large")
    assert told in group["status"]["remedies"]
    assert told["text"] == "move a pod of n1 to other nodes, where there is room for it"
    assert (told["moves"], told["frees"], "patch" in told) == (1, 1, False)
    assert told["plan"]["spec"]["changes"] == [{"rebalance": {"roomFor": "default/large"}}]
    (moved,) = status["leaving"]
    assert moved["landing"]["nodeName"] == "n2"
    assert {one["pod"]: one["nodeName"] for one in status["placed"]} == {"default/large": "n1"}
    make_pod("blocks", "n1", **asking("4"))
    assert rebalanced(roomFor="default/never")["changes"] == []
    assert moves_for("never") == []
    with pytest.raises(Invalid, match="there is no pending pod of this name"):
        rebalanced(roomFor="default/a")
    with pytest.raises(Invalid, match="must be a namespace and a name"):
        rebalanced(roomFor="a")


def test_a_rebalance_is_the_only_change_of_its_plan():
    with pytest.raises(Invalid) as refused:
        ask({"rebalance": {"mostNodes": 0}}, {"cordon": {"nodes": ["n1"]}})
    assert {one.field for one in refused.value.errors} == {
        "spec.changes", "spec.changes[0].rebalance.mostNodes",
    }  # fmt: skip


def test_a_plan_that_holds_places_is_predicted_a_bounded_number_of_times(monkeypatch):
    """Each time one pod more would take the room of the evicted one, as that node is emptiest."""

    def gib(number):
        resources = {"requests": {"cpu": str(number), "memory": f"{number}Gi"}}
        return {"containers": [{"name": "a", "image": "b", "resources": resources}]}

    for name, size in (("n1", 200), ("n2", 800), ("n3", 8), ("n4", 8)):
        amounts = {"cpu": str(size), "memory": f"{size}Gi", "pods": "110"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        node = {"metadata": metadata, "status": {"allocatable": amounts}}
        objects.create("Node", "", node, now=NOW)
    there = {"nodeSelector": {"kubernetes.io/hostname": "n4"}, "terminationGracePeriodSeconds": 0}
    owned("large", "n3", **there, **gib(8))
    make_pod("filler", "n2", **gib(640))
    for number in range(20):
        owned(f"pod-{number}", "n1", **gib(5))
    predictions = []
    answer = plans._Planning.answer

    def counted(planning):
        predictions.append(planning)
        return answer(planning)

    monkeypatch.setattr(plans._Planning, "answer", counted)
    evicted = {"evict": {"pods": ["default/large"]}}
    status = ask(evicted, {"drain": {"nodes": ["n1"]}}, holdPlaces=True)
    assert len(predictions) == 5
    assert predictions[-1].without_place == {}
    assert len(status["staying"]) + len(status["leaving"]) == 21
    assert "large" not in leaving(status), "so its room is taken by nobody"
    assert len(status["leaving"]) == 13
