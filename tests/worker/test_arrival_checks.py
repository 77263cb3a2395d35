"""Pods that somebody else put on a node: what its agent would take, and what not (R102)."""

from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, BindRefusal, bind_pod, bind_pods
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.engine.queue.pending import Backoff
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.runtime import Framework
from scheduling.plugins import catalogue
from scheduling.worker import arrival_checks
from scheduling.worker.mirror import Mirror
from scheduling.worker.scheduler import Scheduler
from tests.controllers.support import NOW, after, make_node, pod, pod_manifest
from tests.creating import create_pod
from tests.rows import load_pending

pytestmark = pytest.mark.django_db


@pytest.fixture
def mirror() -> Mirror:
    """A worker's mirror of a cluster with one node of 64 CPUs and 110 pods."""
    make_node("n1")
    found = Mirror({}, Backoff())
    found.load(NOW.timestamp())
    return found


def frameworks(**profile: Any) -> dict[str, Framework]:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", **profile}],
    }
    (one,) = catalogue.load_configuration(document).profiles
    return {one.scheduler_name: catalogue.build_framework(one)}


FRAMEWORKS = frameworks()


def asks(cpu: str = "1", *, port: int | None = None, memory: str = "1Mi") -> list[dict[str, Any]]:
    container: dict[str, Any] = {"name": "main", "image": "nginx:1"}
    container["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return [container]


def come(name: str, cpu: str = "1", node: str = "n1", *, port: int | None = None, **spec: Any):
    create_pod(pod_manifest(name, nodeName=node, containers=asks(cpu, port=port), **spec), now=NOW)


def judged(mirror: Mirror, profiles: dict[str, Framework] = FRAMEWORKS) -> None:
    mirror.refresh(NOW.timestamp())
    if mirror.arrivals:
        arrival_checks.judge(mirror, profiles, NOW.timestamp())


def failures() -> dict[str, str]:
    """Return the reasons of the pods that failed, by name."""
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return {
        one["metadata"]["name"]: one["status"]["reason"]
        for one in found
        if one["status"]["phase"] == "Failed"
    }


def test_a_pod_that_does_not_fit_fails_in_the_kubelets_words(mirror: Mirror) -> None:
    """R102."""
    come("first", "63")
    come("second", "2")
    judged(mirror)
    found = pod("second")
    assert found is not None
    status = found["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 63000,"
        " capacity: 64000"
    )
    assert failures() == {"second": "OutOfcpu"}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("sizes", "failing"),
    [
        (("100", "1"), {0}),
        (("1", "100"), {1}),
        (("40", "40", "20"), {1}),
        (("100", "40", "100", "24", "1"), {0, 2, 4}),
        (("64", "64", "64"), {1, 2}),
        (("32", "32"), set()),
    ],
)
def test_the_oldest_that_fit_are_kept(
    mirror: Mirror, sizes: tuple[str, ...], failing: set[int], together: bool
) -> None:
    """R102: nobody fails because of one that fails too; seen at once or one by one."""
    for number, size in enumerate(sizes):
        come(f"p{number}", size)
        if not together:
            judged(mirror)
    judged(mirror)
    assert failures() == {f"p{number}": "OutOfcpu" for number in failing}
    row = mirror.snapshot.row_of("n1")
    kept = sum(int(size) for number, size in enumerate(sizes) if number not in failing)
    column = mirror.snapshot.resources.find("cpu")
    assert int(mirror.snapshot.requested[row, column]) == 1000 * kept


def test_a_host_port_of_a_pod_that_fails_is_free(mirror: Mirror) -> None:
    come("huge", "100", port=80)
    come("small", "1", port=80)
    come("later", "1", port=80)
    judged(mirror)
    assert failures() == {"huge": "OutOfcpu", "later": "NodePorts"}


def test_the_count_of_pods_is_a_resource(mirror: Mirror) -> None:
    for number in range(112):
        come(f"p{number:03}", "10m")
    judged(mirror)
    assert failures() == {"p110": "OutOfpods", "p111": "OutOfpods"}


def cordon() -> None:
    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "spec": {**(manifest.get("spec") or {}), "unschedulable": True}}

    objects.update("Node", "", "n1", change, now=NOW)


ELSEWHERE = {"nodeSelector": {"disk": "ssd"}}
TERM = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}


def during(what: str) -> dict[str, Any]:
    required = f"requiredDuringScheduling{what}DuringExecution"
    return {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [TERM]}}}}


@pytest.mark.parametrize("cordoned", [True, False])
@pytest.mark.parametrize("spec", [ELSEWHERE, during("Ignored"), during("Required")])
def test_a_selector_counts_whatever_a_scheduler_would_have_said_first(
    mirror: Mirror, spec: dict[str, Any], cordoned: bool
) -> None:
    """R24: of several verdicts, those of the node count; a cordon is none of them."""
    if cordoned:
        cordon()
    come("wrong", **spec)
    come("right")
    judged(mirror)
    assert failures() == {"wrong": "NodeAffinity"}
    found = pod("wrong")
    assert found is not None
    assert found["status"]["message"] == (
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node"
        " affinity/selector"
    )


def test_a_taken_port_counts_on_a_cordoned_node(mirror: Mirror) -> None:
    cordon()
    come("first", port=80)
    come("second", port=80)
    judged(mirror)
    assert failures() == {"second": "NodePorts"}


def test_what_a_profile_enables_or_adds_is_not_the_nodes_business(mirror: Mirror) -> None:
    """The kubelet asks its own questions: all of them, and no others."""
    none = {"filter": {"disabled": [{"name": "*"}]}, "preFilter": {"disabled": [{"name": "*"}]}}
    come("wrong", **ELSEWHERE)
    judged(mirror, frameworks(plugins=none))
    assert failures() == {"wrong": "NodeAffinity"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
    added = {"name": "NodeAffinity", "args": {"addedAffinity": required}}
    come("mine")
    judged(mirror, frameworks(pluginConfig=[added]))
    assert failures() == {"wrong": "NodeAffinity"}


def test_who_was_only_assumed_there_gives_way(mirror: Mirror) -> None:
    """The arrival is later than the snapshot of that decision, whose bind comes back."""
    create_pod(pod_manifest("decided", containers=asks("60")), now=NOW)
    mirror.refresh(NOW.timestamp())
    (waiting,) = load_pending()
    before = mirror.cursor
    row = mirror.snapshot.row_of("n1")
    assert row is not None
    mirror.snapshot.assume(waiting.id, mirror.info(waiting.class_id), row)
    come("arrived", "60")
    judged(mirror)
    assert failures() == {}
    bound = bind_pods([Binding(waiting.id, "n1")], snapshot_revision=before, now=NOW)
    assert bound.refused == {waiting.id: BindRefusal.NODE_CHANGED}


def test_who_waits_for_a_node_is_judged_when_it_comes(mirror: Mirror) -> None:
    """R101: until then the pod stays as it is."""
    come("wrong", node="n2", **ELSEWHERE)
    come("huge", "100", node="n2")
    come("right", node="n2")
    judged(mirror)
    assert failures() == {}
    make_node("n2", now=after(1))
    judged(mirror)
    assert failures() == {"wrong": "NodeAffinity", "huge": "OutOfcpu"}


def test_what_came_while_no_worker_ran_is_judged_by_the_next(mirror: Mirror) -> None:
    come("known", "64")
    judged(mirror)
    come("missed", "1")
    come("homeless", "65", node="n2")
    for _ in range(2):
        mirror = Mirror({}, Backoff())
        mirror.load(NOW.timestamp())
        judged(mirror)
        assert failures() == {"missed": "OutOfcpu"}
    make_node("n2", now=after(1))
    judged(mirror)
    assert failures() == {"missed": "OutOfcpu", "homeless": "OutOfcpu"}


@pytest.mark.parametrize("takes_over", [False, True], ids=["a restart", "a standby"])
def test_what_clients_bound_while_no_worker_ran_is_judged_by_the_next(
    mirror: Mirror, takes_over: bool
) -> None:
    """R102: a Binding says no more about room than ``spec.nodeName`` does."""
    come("known", "60")
    judged(mirror)
    for name, cpu in (("fits", "3"), ("missed", "2"), ("decided", "1")):
        create_pod(pod_manifest(name, containers=asks(cpu)), now=NOW)
    mirror.refresh(NOW.timestamp())
    (decided,) = (one for one in load_pending() if one.name == "decided")
    bind_pods([Binding(decided.id, "n1")], snapshot_revision=mirror.cursor, now=after(1))
    bind_pod("default", "fits", "n1", now=after(1))
    bind_pod("default", "missed", "n1", now=after(1))
    if takes_over:
        mirror.refresh(NOW.timestamp())
        mirror.arrivals.clear()  # the worker that should judge these pods is killed before it does
        mirror.take_over(NOW.timestamp())
    else:
        mirror = Mirror({}, Backoff())
        mirror.load(NOW.timestamp())
    judged(mirror)
    assert failures() == {"missed": "OutOfcpu"}


def test_a_client_that_binds_elsewhere_than_was_assumed_is_judged(mirror: Mirror) -> None:
    """The decision was about another node."""
    make_node("n2", now=after(1))
    come("there", "64", node="n2")
    create_pod(pod_manifest("p", containers=asks("1")), now=NOW)
    judged(mirror)
    (waiting,) = load_pending()
    row = mirror.snapshot.row_of("n1")
    assert row is not None
    mirror.snapshot.assume(waiting.id, mirror.info(waiting.class_id), row)
    bind_pod("default", "p", "n2", now=after(2))
    judged(mirror)
    assert failures() == {"p": "OutOfcpu"}


def test_who_was_accepted_once_is_not_asked_again_by_a_restart(mirror: Mirror) -> None:
    """R79: a label that goes later does not end a pod, nor does a worker that starts anew."""

    def label(disk: str | None) -> None:
        def change(manifest: dict[str, Any]) -> dict[str, Any]:
            labels = {"disk": disk} if disk else {}
            return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}

        objects.update("Node", "", "n1", change, now=NOW)

    label("ssd")
    come("p", **ELSEWHERE)
    judged(mirror)
    label(None)
    again = Mirror({}, Backoff())
    again.load(NOW.timestamp())
    judged(again)
    assert failures() == {}


def test_what_is_written_to_an_accepted_pod_later_asks_the_node_no_more(mirror: Mirror) -> None:
    """R79: the node is asked when a pod comes."""

    def label(disk: str) -> None:
        def change(manifest: dict[str, Any]) -> dict[str, Any]:
            return {**manifest, "metadata": {**manifest["metadata"], "labels": {"disk": disk}}}

        objects.update("Node", "", "n1", change, now=NOW)

    def note(manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "metadata": {**manifest["metadata"], "annotations": {"a": "b"}}}

    label("ssd")
    come("p", **ELSEWHERE)
    judged(mirror)
    label("hdd")
    objects.update("Pod", "default", "p", note, now=NOW)
    again = Mirror({}, Backoff())
    again.load(NOW.timestamp())
    judged(again)
    assert failures() == {}


@pytest.mark.django_db(transaction=True)
def test_who_is_refused_beside_a_pod_that_its_node_refused_is_not_woken_by_that_later() -> None:
    """The decision was made without that pod, whether the scheduler goes on or begins again."""
    make_node("n1")
    come("placed", "64")
    scheduler = Scheduler(default_configuration(), lambda: 0)
    scheduler.load(NOW.timestamp())
    come("too-much", "64")
    create_pod(pod_manifest("waits", containers=asks("64")), now=NOW)
    while scheduler.cycle(NOW.timestamp()):
        pass
    scheduler.binder.close()
    again = Scheduler(default_configuration(), lambda: 0)
    again.load(NOW.timestamp())
    again.binder.close()
    assert failures() == {"too-much": "OutOfcpu"}
    for one in (scheduler, again):
        (place,) = one.mirror.queue.places()
        assert (place.stage, place.rejected_by) == ("unschedulable", ("NodeResourcesFit",))
