"""What the scheduler counts of its attempts."""

from collections.abc import Iterator

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.telemetry.metrics import families
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW
from tests.controllers.support import make_node, make_pod

pytestmark = pytest.mark.django_db(transaction=True)


class Run:
    """A scheduler that follows the rows, and what it counted."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(default_configuration(), lambda: 7)
        self.scheduler.load(NOW.timestamp())
        self.counted: dict[str, dict[str, list[float]]] = {}

    def turn(self, seconds: float = 0) -> None:
        now = NOW.timestamp() + seconds
        while self.scheduler.cycle(now):
            self.scheduler.binder.finish_batch(now)
        self.scheduler.binder.finish_batch(now)
        for one in families.take_all():
            series = self.counted.setdefault(one.name, {})
            before = series.get(one.labels, [0.0] * len(one.figures))
            series[one.labels] = [a + b for a, b in zip(before, one.figures, strict=True)]

    def count(self, name: str, labels: str = "") -> float:
        """A counter's number, or how many values a histogram has."""
        figures = self.counted.get(name, {}).get(labels, [0.0])
        return sum(figures[:-1]) if families.FAMILIES[name].bounds else figures[0]


@pytest.fixture
def run() -> Iterator[Run]:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    families.take_all()
    made = Run()
    yield made
    made.scheduler.binder.close()
    families.take_all()


def asks(cpu: str) -> dict[str, object]:
    resources = {"requests": {"cpu": cpu}}
    return {"containers": [{"name": "main", "image": "nginx:1", "resources": resources}]}


PLACED = 'result="scheduled",profile="default-scheduler"'
REFUSED = 'result="unschedulable",profile="default-scheduler"'


def test_placed_and_refused_pods_are_counted_once_each(run: Run) -> None:
    for number in range(40):  # on the binder's own thread
        make_pod(f"p{number}", **asks("1"))
    make_pod("large", **asks("100"))
    run.turn()
    assert run.count("scheduler_schedule_attempts_total", PLACED) == 40
    assert run.count("scheduler_schedule_attempts_total", REFUSED) == 1
    assert run.count("scheduler_scheduling_attempt_duration_seconds", PLACED) == 40
    assert run.count("scheduler_scheduling_attempt_duration_seconds", REFUSED) == 1
    assert run.count("scheduler_scheduling_algorithm_duration_seconds") == 41
    assert run.count("scheduler_pod_scheduling_sli_duration_seconds", 'attempts="1"') == 40
    assert run.count("scheduler_pod_scheduling_attempts") == 40
    assert run.count("scheduler_preemption_attempts_total") == 1
    assert run.count("scheduler_preemption_victims") == 0
    bind = 'extension_point="Bind",status="Success",profile=""'
    assert run.count("scheduler_framework_extension_point_duration_seconds", bind) == 40
    tried = 'extension_point="PostFilter",status="Unschedulable",profile="default-scheduler"'
    assert run.count("scheduler_framework_extension_point_duration_seconds", tried) == 1
    one = 'plugin="DefaultPreemption",extension_point="PostFilter",status="Unschedulable"'
    assert run.count("scheduler_plugin_execution_duration_seconds", one) == 1
    waited = 'profile="default-scheduler",priority="0"'
    assert run.count("stowage_pod_waiting_seconds", waited) == 40


def test_a_pod_that_waited_is_counted_with_its_attempts_and_its_wait(run: Run) -> None:
    make_pod("large", **asks("100"))
    run.turn()
    make_node("n2")

    def grow(manifest: dict[str, object]) -> dict[str, object]:
        amount = {"cpu": "200", "memory": "256Gi", "pods": "110"}
        return {**manifest, "status": {"allocatable": amount, "capacity": amount}}

    objects.update("Node", "", "n2", grow, subresource="status", now=NOW)
    run.turn(seconds=30)
    figures = run.counted["scheduler_pod_scheduling_sli_duration_seconds"]
    (labels,) = figures
    assert labels == 'attempts="2"'
    assert 29 < figures[labels][-1] < 90, "it came half a minute before"
    incoming = run.counted["scheduler_queue_incoming_pods_total"]
    assert incoming['queue="active",event="UnscheduledPodAdd"'] == [1.0]
    assert incoming['queue="unschedulable",event="ScheduleAttemptFailure"'] == [1.0]
    assert sum(sum(one) for label, one in incoming.items() if 'event="Node' in label) == 1


def test_victims_are_counted_for_each_pod_that_makes_them_leave(run: Run) -> None:
    objects.create(
        "PriorityClass", "",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
         "metadata": {"name": "high"}, "value": 1000},
        now=NOW,
    )  # fmt: skip
    for number in range(2):
        make_pod(f"low{number}", **asks("32"))
    run.turn()
    make_pod("high", priorityClassName="high", **asks("64"))
    run.turn()
    assert run.count("scheduler_preemption_attempts_total") >= 1
    assert run.counted["scheduler_preemption_victims"][""][-1] == 2, "two leave for it"
    assert run.count("scheduler_preemption_victims") == 1


def test_what_is_held_in_memory_is_told(run: Run) -> None:
    for number in range(3):
        make_pod(f"p{number}", **asks("1"))
    run.turn()
    run.turn()
    run.scheduler.measure()
    told = {
        labels: value for name, labels, value in families.gauges() if name.endswith("cache_size")
    }
    assert told == {'type="nodes"': 1, 'type="pods"': 3, 'type="assumed_pods"': 0}


def test_groups_are_counted_by_what_became_of_them(run: Run) -> None:
    for name, count in (("fits", 2), ("lacks", 2)):
        manifest = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
        }
        objects.create("PodGroup", "default", manifest, now=NOW)
        cpu = "1" if name == "fits" else "60"
        asks = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        for number in range(2):
            group = {"podGroupName": name}
            make_pod(f"{name}{number}", containers=asks, schedulingGroup=group)
    run.turn()
    assert run.count("stowage_podgroup_decisions_total", 'result="scheduled"') == 1
    assert run.count("stowage_podgroup_decisions_total", 'result="unschedulable"') >= 1
