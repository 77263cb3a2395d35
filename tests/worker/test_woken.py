"""Who is woken by what happens: whether the log is followed, or read again by who begins.

Plugin ``P`` hears of every event, so each of these waiting pods tells whether there was one for it.
A pod that waits is nominated for ``n1``; its priority is 5.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.change_log import changes
from clusterstate.objects.values.document import format_time
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions
from scheduling.engine.queue.pending import Backoff, Stage
from scheduling.framework.configuration import Profile
from scheduling.framework.configuration.documents import default_configuration, load
from scheduling.plugins.queueing_hints import registrations
from scheduling.worker import mirror as mirrors
from scheduling.worker.mirror import Mirror, one_by_one
from tests.clock import NOW
from tests.controllers.support import make_node, make_pod, set_labels

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = NOW.timestamp()
PRIORITIES = {"low": 0, "equal": 5, "nominated": 5, "high": 10}
WAITING = sorted(PRIORITIES)
OTHERS = ["equal", "high", "low"]


def nominate(node_name: str) -> None:
    objects.update(
        "Pod", "default", "nominated",
        lambda m: {**m, "status": {**m["status"], "nominatedNodeName": node_name}},
        now=NOW, subresource="status",
    )  # fmt: skip


def label() -> None:
    objects.update(
        "Pod", "default", "nominated",
        lambda m: {**m, "metadata": {**m["metadata"], "annotations": {"a": "b"}}}, now=NOW,
    )  # fmt: skip


def delete(name: str, **options: Any) -> None:
    objects.delete("Pod", "default", name, options, now=NOW)


def bind() -> None:
    pod_id = cast(int, find_pod_id("default", "nominated"))
    bind_pods([Binding(pod_id, "n2")], snapshot_revision=changes.watermark(), now=NOW)


def new_mirror() -> Mirror:
    made = Mirror({"default-scheduler": {}}, Backoff())
    made.load(SECONDS)
    return made


def refuse_in_memory(mirror: Mirror) -> None:
    for pod in mirror.queue.pop_batch(SECONDS, 10):
        mirror.queue.requeue_unschedulable(pod.pod_id, ["P"], SECONDS)


def refuse_in_rows(mirror: Mirror) -> None:
    until = changes.watermark()
    refused = [
        Unschedulable(pod_id=place.pod_id, message="no", rejected_by=("P",), refused_revision=until)
        for place in mirror.queue.places()
    ]
    set_unschedulable(refused, now=NOW)


def woken(mirror: Mirror) -> list[str]:
    ids = {name: find_pod_id("default", name) for name in WAITING}
    return [
        name
        for name in WAITING
        if ids[name] in mirror.queue
        and mirror.queue.place(cast(int, ids[name])).stage is not Stage.UNSCHEDULABLE
    ]


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (lambda: nominate(""), ["equal", "low", "nominated"]),
        (lambda: nominate("n2"), ["equal", "low", "nominated"]),
        (lambda: delete("nominated", gracePeriodSeconds=0), ["equal", "low"]),
        (label, []),
        (bind, OTHERS),
        (lambda: delete("placed", gracePeriodSeconds=0), WAITING),
        (lambda: delete("placed", gracePeriodSeconds=60), WAITING),
        (lambda: set_labels("n1", disk="ssd"), WAITING),
    ],
    ids=[
        "unnominated",
        "moved",
        "deleted",
        "annotated",
        "bound",
        "another left",
        "another begins to leave",
        "a node changed",
    ],
)
@pytest.mark.parametrize("heard", ["by rows", "in columns", "read again"])
def test_who_is_woken_by_what_happens(
    heard: str,
    happens: Callable[[], None],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap.add_missing(now=NOW)
    for name in ("n1", "n2"):
        make_node(name)
    make_pod("placed", "n1")
    for name, value in PRIORITIES.items():
        objects.create("PriorityClass", "", {"metadata": {"name": name}, "value": value}, now=NOW)
        make_pod(name, priorityClassName=name)
    nominate("n1")
    if heard == "in columns":
        monkeypatch.setattr(mirrors, "_FEW", 0)
        monkeypatch.setattr(one_by_one, "TOGETHER", 1)
    mirror = new_mirror()
    if heard != "read again":
        refuse_in_memory(mirror)
        happens()
        mirror.refresh(SECONDS)
    else:
        refuse_in_rows(mirror)
        happens()
        mirror = new_mirror()
    assert woken(mirror) == expected


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "read again"])
def test_who_is_nominated_now_wakes_nobody(followed: bool) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    for name in ("low", "nominated"):
        make_pod(name)
    mirror = new_mirror()
    (refuse_in_memory if followed else refuse_in_rows)(mirror)
    nominate("n1")
    if followed:
        mirror.refresh(SECONDS)
    else:
        mirror = new_mirror()
    assert woken(mirror) == []


def relabel(old: Any) -> Any:
    return {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}


def tolerate(old: Any) -> Any:
    return {**old, "spec": {**old["spec"], "tolerations": [{"key": "k", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("plugin", "change", "expected"),
    [
        ("TaintToleration", relabel, Stage.UNSCHEDULABLE),
        ("TaintToleration", tolerate, Stage.BACKOFF),
        ("NodeResourcesFit", relabel, Stage.UNSCHEDULABLE),
        ("NodeResourcesFit", tolerate, Stage.UNSCHEDULABLE),
        ("InterPodAffinity", relabel, Stage.BACKOFF),
        ("PodTopologySpread", relabel, Stage.BACKOFF),
        ("PodTopologySpread", tolerate, Stage.UNSCHEDULABLE),
        ("of another package", relabel, Stage.BACKOFF),
    ],
)
def test_a_change_of_a_waiting_pod_wakes_it_if_it_matters_to_who_rejected_it(
    plugin: str, change: Callable[[Any], Any], expected: Stage
) -> None:
    """Each change that made it another class was an attempt."""
    bootstrap.add_missing(now=NOW)
    make_pod("waiting")
    profile = default_configuration().profiles[0]
    mirror = Mirror({"default-scheduler": registrations(profile)}, Backoff())
    mirror.load(SECONDS)
    (pod,) = mirror.queue.pop_batch(SECONDS, 1)
    mirror.queue.requeue_unschedulable(pod.pod_id, [plugin], SECONDS)
    objects.update("Pod", "default", "waiting", change, now=NOW)
    mirror.refresh(SECONDS)
    assert mirror.queue.place(pod.pod_id).stage is expected


def wait_for(plugin: str, profile: Profile, *names: str) -> Mirror:
    """Return a mirror in whose queue pods wait that a plugin rejected."""
    mirror = Mirror({"default-scheduler": registrations(profile)}, Backoff())
    mirror.load(SECONDS)
    ids = {find_pod_id("default", name) for name in names}
    for pod in mirror.queue.pop_batch(SECONDS, 10):
        if pod.pod_id in ids:
            mirror.queue.requeue_unschedulable(pod.pod_id, [plugin], SECONDS)
    return mirror


def stages(mirror: Mirror, *names: str) -> list[str]:
    """Return which of the pods were woken."""
    return [
        name
        for name in names
        if mirror.queue.place(cast(int, find_pod_id("default", name))).stage
        is not Stage.UNSCHEDULABLE
    ]


@pytest.fixture(params=["by rows", "in columns"])
def heard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in columns":
        monkeypatch.setattr(mirrors, "_FEW", 0)
        monkeypatch.setattr(one_by_one, "TOGETHER", 1)
    return cast(str, request.param)


@pytest.mark.parametrize("assumed", [True, False])
def test_a_nominated_pod_that_is_bound_elsewhere_gives_its_room_away(
    heard: str, assumed: bool
) -> None:
    """Until then pods of no higher priority were kept off the node; others never were."""
    bootstrap.add_missing(now=NOW)
    for name in ("n1", "n2"):
        make_node(name)
    for name, value in PRIORITIES.items():
        objects.create("PriorityClass", "", {"metadata": {"name": name}, "value": value}, now=NOW)
        make_pod(name, priorityClassName=name)
    nominate("n1")
    profile = default_configuration().profiles[0]
    mirror = wait_for("NodeResourcesFit", profile, *OTHERS)
    if assumed:
        pod_id = cast(int, find_pod_id("default", "nominated"))
        row = mirror.snapshot.row_of("n2")
        assert row is not None
        mirror.snapshot.assume(pod_id, mirror.info(mirror.queue.pod(pod_id).class_id), row)
    bind()
    mirror.refresh(SECONDS)
    assert stages(mirror, *OTHERS) == ["equal", "low"]


SPREADING = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
]


@pytest.mark.parametrize(
    ("labels", "plugin", "expected"),
    [
        ({"app": "s"}, "PodTopologySpread", ["waiting"]),
        ({"app": "t"}, "PodTopologySpread", []),
        ({"app": "s"}, "NodeResourcesFit", []),
    ],
)
def test_a_counted_pod_that_begins_to_end_wakes_who_is_spread_with_it(
    heard: str, labels: dict[str, str], plugin: str, expected: list[str]
) -> None:
    """It is not counted from then on, and holds its room until it is gone."""
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    make_pod("placed", "n1")
    objects.update(
        "Pod", "default", "placed",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": labels}}, now=NOW,
    )  # fmt: skip
    make_pod("waiting", topologySpreadConstraints=SPREADING)
    mirror = wait_for(plugin, default_configuration().profiles[0], "waiting")
    delete("placed", gracePeriodSeconds=60)
    mirror.refresh(SECONDS)
    assert stages(mirror, "waiting") == expected
    delete("placed", gracePeriodSeconds=0)
    mirror.refresh(SECONDS)
    assert stages(mirror, "waiting") == (["waiting"] if labels["app"] == "s" else [])


@pytest.mark.parametrize("hard", [True, False])
def test_what_constraints_by_default_count_by_wakes_who_states_none(hard: bool) -> None:
    bootstrap.add_missing(now=NOW)
    make_pod("waiting")
    make_pod("stating", topologySpreadConstraints=SPREADING)
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    args = {"defaultingType": "List", "defaultConstraints": [constraint]}
    document = {
        **default_configuration().document,
        "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": args}]}],
    }
    mirror = wait_for("PodTopologySpread", load(document).profiles[0], "waiting", "stating")
    service = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 1}]}}
    objects.create("Service", "default", service, now=NOW)
    mirror.refresh(SECONDS)
    assert stages(mirror, "waiting", "stating") == (["waiting"] if hard else [])


def started(mirror: Mirror, name: str) -> float | None:
    record = mirror.snapshot.pod(cast(int, find_pod_id("default", name)))
    assert record is not None
    return record.start_time


def test_preemption_compares_pods_by_the_start_that_their_status_tells(heard: str) -> None:
    """Kubernetes' GetPodStartTime; a pod without one counts from its binding on."""
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    for name in ("a", "b", "c"):
        make_pod(name, "n1")
    mirror = new_mirror()
    assert {started(mirror, name) for name in ("a", "b", "c")} == {SECONDS}

    def tell(name: str, **status: Any) -> None:
        objects.update(
            "Pod", "default", name, lambda m: {**m, "status": {**m["status"], **status}},
            now=NOW + timedelta(seconds=9), subresource="status",
        )  # fmt: skip

    told = {"a": NOW - timedelta(hours=1), "b": NOW + timedelta(seconds=5)}
    for name, at in told.items():
        tell(name, startTime=format_time(at))
    mirror.refresh(SECONDS)
    # What is written of a pod later leaves its start as it is.
    for name in ("a", "b", "c"):
        tell(name, phase="Running", podIP="10.0.0.1")
    mirror.refresh(SECONDS)
    expected = {"a": told["a"].timestamp(), "b": told["b"].timestamp(), "c": SECONDS}
    for one in (mirror, new_mirror()):
        assert {name: started(one, name) for name in expected} == expected
    delete("a", gracePeriodSeconds=60)
    mirror.refresh(SECONDS)
    assert started(mirror, "a") == expected["a"]
    found = {one.pod_id: one.started_at for one in decisions.placements_at(changes.watermark())}
    replayed = {name: found[cast(int, find_pod_id("default", name))] for name in expected}
    assert {name: at and at.timestamp() for name, at in replayed.items()} == expected
