"""Groups of pods, over the database: decided, bound and told of as one."""

from typing import Any

import msgspec
import pytest
from django.db import OperationalError

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.kinds import pod_groups
from clusterstate.actions.pods.bind import Binding, BindRefusal, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.actions.writing.stored import DeletedObject
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.document import format_time
from clusterstate.queries.objects import kind_of
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker import binder, profiles
from scheduling.worker.scheduler import Scheduler
from tests import roundtrips
from tests.clock import after
from tests.controllers.support import NOW, make_node, pod_manifest, schedule
from tests.waiting import until

pytestmark = pytest.mark.django_db
SECONDS = NOW.timestamp()
CONDITION = "PodGroupInitiallyScheduled"


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    for name in ("n1", "n2"):
        make_node(name)


def make_group(name: str = "g", count: int = 2, **spec: Any) -> None:
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }  # fmt: skip
    objects.create("PodGroup", "default", manifest, now=NOW)


def member(name: str, cpu: str = "1", of: str = "g", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    containers = [{"name": "main", "image": "i", "resources": resources}]
    return pod_manifest(name, containers=containers, schedulingGroup={"podGroupName": of}, **spec)


def stored(kind: str) -> dict[str, Any]:
    found = [msgspec.json.decode(one) for one in list_page(kind).items]
    return {one["metadata"]["name"]: one for one in found}


def nodes_of() -> dict[str, str]:
    return {name: pod["spec"].get("nodeName", "") for name, pod in stored("Pod").items()}


def condition(name: str = "g") -> dict[str, Any]:
    conditions = (stored("PodGroup")[name].get("status") or {}).get("conditions") or [{}]
    return conditions[0]


def decide_all(scheduler: Scheduler, at: float) -> None:
    while scheduler.cycle(at):
        pass


def queued() -> dict[str, str]:
    rows = sql.fetch("SELECT p.name, q.stage FROM pending_pod q JOIN pod p ON p.id = q.pod_id")
    return dict(rows)


def test_a_gang_is_bound_at_one_revision_and_its_condition_says_so():
    make_group(count=3)
    create_pods([member(f"p{n}") for n in range(3)], now=NOW)
    schedule(NOW)
    assert all(nodes_of().values())
    told = condition()
    assert (told["type"], told["status"], told["reason"]) == (CONDITION, "True", "Scheduled")


def test_groups_that_have_pods_are_told_to_leave_by_one_statement():
    for name in "abc":
        make_group(name)

    def delete(names: str) -> int:
        deletions = [Deletion(namespace="default", name=name) for name in names]
        with roundtrips.counted() as counted:
            found = objects.delete_each(kind_of("PodGroup"), deletions, now=NOW)
        revisions = [one.revision for one in found if isinstance(one, DeletedObject)]
        assert revisions == sorted({*revisions})
        return counted.number

    assert delete("a") == delete("bc")
    (moment,) = {one["metadata"]["deletionTimestamp"] for one in stored("PodGroup").values()}
    rows = sql.fetch("SELECT DISTINCT deletion_at FROM generic_object WHERE name = ANY('{a,b,c}')")
    assert [format_time(at) for (at,) in rows] == [moment]


def test_a_gang_waits_until_enough_of_its_pods_are_there():
    make_group(count=3)
    create_pods([member(f"p{n}") for n in range(2)], now=NOW)
    schedule(NOW)
    assert set(nodes_of().values()) == {""}
    assert set(queued().values()) == {"gated"}
    create_pods([member("p2")], now=NOW)
    schedule(NOW)
    assert all(nodes_of().values())


def test_pods_wait_for_their_group_and_are_tried_when_it_comes():
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    create_pods([member(f"p{n}") for n in range(2)], now=NOW)
    decide_all(scheduler, SECONDS)
    assert set(nodes_of().values()) == {""}
    make_group()
    while scheduler.cycle(SECONDS):
        scheduler.binder.finish_batch(SECONDS)
    assert all(nodes_of().values())


def test_a_gang_that_does_not_fit_holds_nothing_and_says_what_it_lacks():
    make_group(count=3)
    create_pods([member(f"p{n}", cpu="50") for n in range(3)], now=NOW)
    create_pods([pod_manifest("plain")], now=NOW)
    schedule(NOW)
    found = nodes_of()
    assert found.pop("plain")
    assert set(found.values()) == {""}
    told = condition()
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"].startswith("2 of 3 needed pods of group g have a place")
    for name in found:
        (scheduled,) = stored("Pod")[name]["status"]["conditions"]
        assert scheduled["reason"] == "Unschedulable"


def test_a_gang_that_waits_is_placed_as_a_whole_when_a_node_comes():
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    make_group(count=3)
    create_pods([member(f"p{n}", cpu="50") for n in range(3)], now=NOW)
    while scheduler.cycle(SECONDS):
        scheduler.binder.finish_batch(SECONDS)
    assert set(nodes_of().values()) == {""}
    make_node("n3")
    later = after(seconds=30).timestamp()
    while scheduler.cycle(later):
        scheduler.binder.finish_batch(later)
    assert sorted(nodes_of().values()) == ["n1", "n2", "n3"]
    assert condition()["status"] == "True"


def test_a_gang_of_which_a_pod_is_gone_is_not_bound_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the decision and the bind a pod is deleted: the others come back with it."""
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    make_group(count=3)
    create_pods([member(f"p{n}") for n in range(3)], now=NOW)
    submit = scheduler.binder.submit

    def late(*args: Any, **more: Any) -> int:
        delete_pod("default", "p1", uid=stored("Pod")["p1"]["metadata"]["uid"], now=NOW)
        return submit(*args, **more)

    monkeypatch.setattr(scheduler.binder, "submit", late)
    scheduler.cycle(SECONDS)
    scheduler.binder.finish_batch(SECONDS)
    monkeypatch.undo()
    assert not any(nodes_of().values())
    while scheduler.cycle(SECONDS):
        scheduler.binder.finish_batch(SECONDS)
    assert not any(nodes_of().values())
    create_pods([member("p3")], now=NOW)
    while scheduler.cycle(SECONDS):
        scheduler.binder.finish_batch(SECONDS)
    assert all(nodes_of().values())


def test_one_statement_binds_a_gang_or_none_of_it():
    create_pods([member(f"p{n}") for n in range(3)], now=NOW)
    ids = [find_pod_id("default", f"p{n}") for n in range(3)]
    gang = [Binding(one or 0, node, None, group=4, gang=4, leans=True)
            for one, node in zip(ids, ("n1", "n2", "missing"), strict=True)]  # fmt: skip
    found = bind_pods(gang, snapshot_revision=changes.watermark(), now=NOW)
    assert found.bound == []
    assert found.refused == {ids[2]: BindRefusal.NO_NODE}
    assert sorted(found.held) == sorted(ids[:2])
    assert not any(nodes_of().values())


def test_a_condition_that_cannot_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch):
    def away(_: object) -> None:
        raise OperationalError("the database is away")

    make_group(count=2)
    create_pods([member("a"), member("b")], now=NOW)
    with monkeypatch.context() as patch:
        patch.setattr(pod_groups, "set_conditions", away)
        scheduler = Scheduler(default_configuration(), lambda: 7)
        scheduler.load(SECONDS)
        with pytest.raises(OperationalError):
            decide_all(scheduler, SECONDS)
    assert condition() == {}
    decide_all(scheduler, SECONDS + 2)
    assert condition()["status"] == "True"


def test_late_members_join_and_the_condition_stays():
    make_group(count=2)
    create_pods([member(f"p{n}") for n in range(2)], now=NOW)
    schedule(NOW)
    create_pods([member("late"), member("huge", cpu="999")], now=NOW)
    schedule(NOW)
    found = nodes_of()
    assert found["late"]
    assert not found["huge"]
    assert condition()["status"] == "True"


def test_a_gang_displaces_as_many_as_it_needs_at_once():
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 100}  # fmt: skip
    objects.create("PriorityClass", "", priority, now=NOW)
    resources = {"requests": {"cpu": "60"}}
    big = [{"name": "main", "image": "i", "resources": resources}]
    create_pods([pod_manifest(f"low{n}", containers=big) for n in range(2)], now=NOW)
    schedule(NOW)
    assert all(nodes_of().values())
    make_group(count=3, priorityClassName="high")
    create_pods([member(f"p{n}", cpu="40", priorityClassName="high") for n in range(3)], now=NOW)
    schedule(NOW)
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in stored("Pod").values())
    make_group("h", count=2, priorityClassName="high")
    members = [member(f"q{n}", cpu="40", of="h", priorityClassName="high") for n in range(2)]
    create_pods(members, now=NOW)
    schedule(NOW)
    ending = {
        name for name, pod in stored("Pod").items() if pod["metadata"].get("deletionTimestamp")
    }
    assert ending == {"low0", "low1"} or not {"low0", "low1"} & set(stored("Pod"))


@pytest.mark.parametrize("then", ["ready", "too old", "too old, after a restart"])
def test_a_gang_displaces_nobody_while_a_node_starts_but_not_for_ever(then: str):
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "high"}, "value": 100}  # fmt: skip
    objects.create("PriorityClass", "", high, now=NOW)
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "60"}}}]
    create_pods([pod_manifest(f"low{n}", containers=containers) for n in range(2)], now=NOW)
    schedule(NOW)
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    make_node("n3", taints=[not_ready])
    make_group(count=2, priorityClassName="high")
    create_pods([member(f"p{n}", cpu="30", priorityClassName="high") for n in range(2)], now=NOW)
    args = {"name": "GangScheduling", "args": {"startingNodeSeconds": 90}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [args]}],
    }  # fmt: skip
    text, _ = scheduler_configuration.check(document)
    scheduler_configuration.store(document=text, by="somebody", now=NOW)
    revision, configuration = profiles.in_force()
    scheduler = Scheduler(configuration, lambda: 7, revision=revision)
    scheduler.load(SECONDS)
    decide_all(scheduler, SECONDS)

    def leaving() -> set[str]:
        pods = stored("Pod").items()
        left = {name for name, pod in pods if not pod["metadata"].get("deletionTimestamp")}
        return {"low0", "low1"} - left

    assert leaving() == set()
    assert "not before 20" in condition()["message"]
    assert (
        "starting nodes are ready: n3" in stored("Pod")["p0"]["status"]["conditions"][0]["message"]
    )
    assert scheduler.groups.next_due() == SECONDS + 90

    if then == "ready":
        objects.update(
            "Node", "", "n3", lambda old: {**old, "spec": {**old["spec"], "taints": []}},
            now=after(20),
        )  # fmt: skip
        decide_all(scheduler, SECONDS + 30)
        assert {nodes_of()[f"p{n}"] for n in range(2)} == {"n3"}
        assert leaving() == set()
        decide_all(scheduler, SECONDS + 91)
        assert leaving() == set()
        return
    if then == "too old, after a restart":
        scheduler = Scheduler(configuration, lambda: 7, revision=revision)
        scheduler.load(SECONDS + 88)
    decide_all(scheduler, SECONDS + 89)
    assert leaving() == set()
    decide_all(scheduler, SECONDS + 91)
    assert leaving() != set()
    assert scheduler.groups.next_due() is None


@pytest.mark.django_db(transaction=True)
def test_many_victims_leave_in_parts_and_groups_among_them_leave_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(binder, "_VICTIMS_AT_ONCE", 2)
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 100}  # fmt: skip
    objects.create("PriorityClass", "", priority, now=NOW)
    make_group("low", count=4, disruptionMode={"all": {}})
    small = member("any", cpu="8")["spec"]["containers"]
    # The pods of the group lie among the others, so that they are in different parts.
    pods = [
        member(f"of{n}", "8", "low") if n % 2 else pod_manifest(f"low{n}", containers=small)
        for n in range(8)
    ]
    create_pods(pods, now=NOW)
    schedule(NOW)
    assert all(nodes_of().values())
    before = changes.watermark()
    make_group("high", count=2, priorityClassName="high")
    create_pods(
        [member(f"high{n}", "60", "high", priorityClassName="high") for n in range(2)], now=NOW
    )
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    decide_all(scheduler, SECONDS)
    scheduler.binder.write_records(SECONDS)
    scheduler.binder.close()
    found = stored("Pod")
    going = {name for name, pod in found.items() if "deletionTimestamp" in pod["metadata"]}
    assert going == {name for name in found if not name.startswith("high")}
    assert len(going) == 8
    causes = sql.fetch(
        "SELECT DISTINCT cause::text FROM change WHERE revision > %s AND deletion_at IS NOT NULL",
        (before,),
    )
    preemptors = {found[f"high{n}"]["metadata"]["uid"] for n in range(2)}
    assert len(causes) == 1
    assert causes[0][0] in preemptors
    told = [one for one in stored("Event").values() if one["reason"] == "PreemptionByScheduler"]
    assert [one["involvedObject"]["name"] for one in told] == ["low"]


def test_a_pod_displaces_somebody_else_where_a_group_is_spared():
    """The pods of the group are worth least, and all of it would leave with one of them."""
    for name, value in (("high", 100), ("mid", 50), ("low", 5)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value}  # fmt: skip
        objects.create("PriorityClass", "", priority, now=NOW)
    make_group(count=1, priorityClassName="high", disruptionMode={"all": {}})
    create_pods([member("v1", cpu="60")], now=NOW)
    schedule(NOW)
    big = member("any", cpu="60")["spec"]["containers"]
    create_pods([pod_manifest("v2", containers=big, priorityClassName="low")], now=NOW)
    schedule(NOW)
    found = nodes_of()
    assert found["v1"] != found["v2"]
    assert "" not in found.values()
    create_pods([pod_manifest("mid", containers=big, priorityClassName="mid")], now=NOW)
    schedule(NOW)
    ending = {
        name for name, pod in stored("Pod").items() if pod["metadata"].get("deletionTimestamp")
    }
    assert ending == {"v2"} or set(stored("Pod")) == {"v1", "mid"}


def test_a_group_that_is_gone_wakes_a_pod_that_it_kept_from_preempting():
    """A client took the finalizer away, so that the group went before its pods."""
    for name, value in (("high", 100), ("mid", 50)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value}  # fmt: skip
        objects.create("PriorityClass", "", priority, now=NOW)
    make_group(count=2, priorityClassName="high", disruptionMode={"all": {}})
    create_pods([member(f"v{n}", cpu="60") for n in range(2)], now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)

    def run() -> set[str]:
        while scheduler.cycle(SECONDS):
            scheduler.binder.finish_batch(SECONDS)
        pods = stored("Pod").items()
        return {name for name, pod in pods if pod["metadata"].get("deletionTimestamp")}

    assert run() == set()
    big = member("any", cpu="60")["spec"]["containers"]
    create_pods([pod_manifest("mid", containers=big, priorityClassName="mid")], now=NOW)
    assert run() == set()
    snapshot = scheduler.mirror.snapshot
    before = snapshot.budget_version
    make_group("empty", priorityClassName="high", disruptionMode={"all": {}})
    for name, ending in (("empty", 0), ("g", 1)):
        assert snapshot.budget_version == before
        objects.delete("PodGroup", "default", name, now=NOW)
        objects.update(
            "PodGroup", "default", name,
            lambda one: {**one, "metadata": {**one["metadata"], "finalizers": []}}, now=NOW,
        )  # fmt: skip
        assert len(run()) == ending
    scheduler.binder.close()


def test_victims_leave_also_if_the_scheduler_ended_after_it_wrote_the_nominations():
    """Pods that were nominated are tried again at once by the next one, gangs as a whole."""
    for name, value in (("low", 1), ("high", 9)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value}  # fmt: skip
        objects.create("PriorityClass", "", priority, now=NOW)
    make_group("low", count=2, priorityClassName="low")
    make_group("high", count=2, priorityClassName="high")
    members = {
        name: [member(f"{name}{n}", "60", name, priorityClassName=name) for n in range(2)]
        for name in ("low", "high")
    }
    create_pods(members["low"], now=NOW)
    schedule(NOW)
    create_pods(members["high"], now=NOW)
    items = []
    for number in range(2):
        pod_id = find_pod_id("default", f"high{number}")
        assert pod_id is not None
        refusal = Unschedulable(
            pod_id=pod_id, message="no room", rejected_by=("GangScheduling",),
            refused_revision=changes.watermark(), nominated_node_name=f"n{number + 1}",
        )  # fmt: skip
        items.append(refusal)
    set_unschedulable(items, now=NOW)
    schedule(NOW)
    going = {name for name, pod in stored("Pod").items() if "deletionTimestamp" in pod["metadata"]}
    assert going == {"low0", "low1"}


def run_until(scheduler: Scheduler, look: Any, now: float = SECONDS) -> None:
    """Run cycles until something holds, while a search works beside them."""

    def done() -> bool:
        while scheduler.cycle(now):
            scheduler.binder.finish_batch(now)
        return bool(look())

    until(done, seconds=120)
    scheduler.groups.close()


def test_a_gang_that_the_order_of_its_pods_misses_is_found_by_a_search():
    """The two small pods went to both nodes, and the large one found no room on either.

    The scheduler that asked for the search is gone before the answer; the next one asks again. The
    second node is there only after it asked, so that its first answer would be wrong.
    """
    pytest.importorskip("ortools")

    def cordon(value: bool) -> None:
        objects.update(
            "Node", "", "n2", lambda one: {**one, "spec": {"unschedulable": value}}, now=NOW
        )

    cordon(value=True)
    make_group(count=3)
    create_pods([member("p0", "20"), member("p1", "20"), member("p2", "60")], now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 7)
    for _ in range(2):
        scheduler.groups.close()
        scheduler = Scheduler(default_configuration(), lambda: 7)
        scheduler.load(SECONDS)
        decide_all(scheduler, SECONDS)
        assert scheduler.groups.is_searching
        assert set(queued().values()) == {"unschedulable"}
    cordon(value=False)
    run_until(scheduler, lambda: all(nodes_of().values()), SECONDS + 10)
    found = nodes_of()
    assert found["p0"] == found["p1"] != found["p2"]
    assert condition()["status"] == "True"


def test_a_gang_for_which_there_is_no_placement_is_told_so():
    pytest.importorskip("ortools")
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(SECONDS)
    make_group(count=3)
    create_pods([member("p0", "60"), member("p1", "60"), member("p2", "20")], now=NOW)
    run_until(scheduler, lambda: "proof" in condition().get("message", ""))
    assert not any(nodes_of().values())
    assert condition()["message"].endswith("no placement exists (proof)")
