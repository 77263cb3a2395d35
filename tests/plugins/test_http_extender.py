"""Extenders by kube-scheduler's protocol, against a real HTTP server."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from scheduling.engine.reference.cycle import PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import PluginUse
from scheduling.framework.configuration.extenders import ExtenderArgs
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.plugins.catalogue import build_framework, build_plugins, load_configuration
from scheduling.plugins.http_extender import FAILURES, REST, HTTPExtender
from tests.builders import make_node, make_pod
from tests.plugins.extender_service import Service, serving
from tests.simulation.builders import result, results

NODES = [make_node().named(name) for name in ("a", "b", "c")]


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as made:
        yield made


def configuration(service: Service, **fields: Any) -> Manifest:
    extender = {
        "urlPrefix": service.url,
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        **fields,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [extender],
    }


def placed(service: Service, pod: Any = None, **fields: Any) -> Manifest:
    asked = make_pod() if pod is None else pod
    return result(NODES, asked, configuration=configuration(service, **fields), explain="full")


def test_filter_takes_nodes_away_and_says_why(service: Service) -> None:
    service.answer = lambda verb, body: {
        "NodeNames": ["b"],
        "FailedNodes": {"a": "no licence"},
        "FailedAndUnresolvableNodes": {"c": "wrong floor"},
    }
    found = placed(service)
    assert found["feasible"] == ["b"]
    assert found["infeasible"]["a"]["reasons"] == ["no licence"]
    assert found["infeasible"]["c"]["code"] == "UnschedulableAndUnresolvable"
    (call,) = service.calls
    assert call[0] == "filter"
    assert call[1]["NodeNames"] == ["a", "b", "c"]
    assert call[1]["Nodes"] is None
    assert call[1]["Pod"]["metadata"]["namespace"] == "default"


def test_without_a_cache_of_nodes_it_gets_them_whole(service: Service) -> None:
    def answer(verb: str, body: Any) -> Any:
        items = body["Nodes"]["items"]
        return {"nodes": {"items": [one for one in items if one["metadata"]["name"] != "a"]}}

    service.answer = answer
    assert placed(service, nodeCacheCapable=False)["feasible"] == ["b", "c"]
    assert service.calls[0][1]["Nodes"]["items"][0]["status"]["allocatable"]["cpu"] == "4"


def test_it_is_asked_after_the_other_filters(service: Service) -> None:
    pod = make_pod().with_("spec", "nodeSelector", value={"disk": "ssd"})
    nodes = [NODES[0], NODES[1].labelled(disk="ssd")]
    result(nodes, pod, configuration=configuration(service))
    assert service.calls[0][1]["NodeNames"] == ["b"]


def test_prioritize_scores_by_its_weight(service: Service) -> None:
    service.answer = lambda verb, body: [{"Host": "c", "Score": 10}, {"Host": "b", "Score": 4}]
    found = placed(service, filterVerb="", prioritizeVerb="prioritize", weight=50)
    assert found["nodeName"] == "c"
    name = f"Extender {service.url}"
    weighted = {node: found["scores"][node]["weighted"][name] for node in ("a", "b", "c")}
    assert weighted == {"a": 0, "b": 2000, "c": 5000}


def test_only_pods_with_managed_resources_concern_it(service: Service) -> None:
    """A resource that only the extender counts is no concern of NodeResourcesFit."""
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    assert placed(service, managedResources=managed)["status"] == "scheduled"
    assert service.calls == []
    licensed = make_pod().asks_also({"example.com/licence": "1"})
    limited = licensed.with_("spec", "containers", value=[
        {**licensed.manifest["spec"]["containers"][0],
         "resources": {"limits": {"example.com/licence": "1"}}}
    ])  # fmt: skip
    assert placed(service, limited, managedResources=managed)["status"] == "scheduled"
    assert [verb for verb, _ in service.calls] == ["filter"]


@pytest.mark.parametrize(
    "answer",
    [
        5,
        {"NodeNames": "a"},
        {"NodeNames": ["a", "elsewhere"]},
        {"NodeNames": [{}]},
        {"NodeNames": [], "FailedNodes": "a"},
        {"Nodes": 5},
        {"Nodes": {"items": "a"}},
        {"Nodes": {"items": ["a"]}},
        {"Nodes": {"items": [{"metadata": "a"}]}},
        {"Error": "the licence server is down"},
    ],
)
def test_an_answer_that_is_none_fails_the_attempt(service: Service, answer: Any) -> None:
    service.answer = lambda verb, body: answer
    found = placed(service)
    assert found["status"] == "error"
    assert "ExtenderFailed" in found["message"]


@pytest.mark.parametrize("answer", [{}, {"NodeNames": None}, {"NodeNames": [], "Nodes": None}])
def test_an_answer_without_nodes_lets_none_through(service: Service, answer: Any) -> None:
    """As Go's decoder reads it; without a reason, preemption is not worth a try."""
    service.answer = lambda verb, body: answer
    found = placed(service)
    assert found["status"] == "unschedulable"
    assert {one["code"] for one in found["infeasible"].values()} == {"UnschedulableAndUnresolvable"}


def test_a_node_that_is_let_through_is_not_rejected_by_a_reason(service: Service) -> None:
    service.answer = lambda verb, body: {
        "NodeNames": ["a"],
        "FailedNodes": {"a": "well", "b": "no"},
    }
    found = placed(service)
    assert found["feasible"] == ["a"]
    assert found["infeasible"]["b"]["code"] == "Unschedulable"


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b"", b'{"NodeNames": ['])
def test_an_answer_that_is_no_json_is_a_failure_like_any(service: Service, text: bytes) -> None:
    service.raw = text
    assert placed(service, ignorable=True)["feasible"] == ["a", "b", "c"]


def test_a_service_that_drips_is_left_at_the_deadline(service: Service) -> None:
    """Each byte would begin a time-out of its own; the call as a whole has one."""
    service.drip = 0.02
    began = time.monotonic()
    found = placed(service, httpTimeout="300ms")
    assert found["status"] == "error"
    assert "timed out" in found["message"]
    assert 0.3 <= time.monotonic() - began < 5


def test_connections_are_used_again(service: Service) -> None:
    pods = [make_pod(f"web-{n}") for n in range(4)]
    made = results(NODES, pods, configuration=configuration(service))
    assert [one["status"] for one in made] == ["scheduled"] * 4
    assert len(service.calls) == 4
    assert service.connections < 4


def test_one_that_may_be_ignored_rejects_nobody_when_it_fails(service: Service) -> None:
    service.status = 500
    assert placed(service, ignorable=True)["feasible"] == ["a", "b", "c"]


@pytest.mark.parametrize("score", [11, -1, "much", None])
def test_a_wrong_score_counts_for_nothing(service: Service, score: object) -> None:
    service.answer = lambda verb, body: [{"Host": "c", "Score": score}]
    found = placed(service, filterVerb="", prioritizeVerb="prioritize", weight=50)
    assert found["status"] == "scheduled"


def test_after_failures_it_is_left_alone_for_a_while(service: Service) -> None:
    """The breaker opens, nothing is called, and one call tries again when the rest is over."""
    loaded = load_configuration(configuration(service, ignorable=True))
    (args,) = (one for name, one in loaded.profiles[0].args.items() if name.startswith("Extender"))
    now = [0.0]
    plugin = HTTPExtender(args, lambda: now[0])  # type: ignore[arg-type]
    snapshot = Snapshot()
    for node in NODES:
        snapshot.set_node(node.build())
    info = snapshot.intern(from_pod(make_pod().build()))

    def ask() -> int:
        before = len(service.calls)
        plugin.filter(CycleState(), info, snapshot, snapshot.rows())
        return len(service.calls) - before

    service.status = 500
    assert [ask() for _ in range(FAILURES + 2)] == [1] * FAILURES + [0, 0]
    now[0] = REST
    service.status = 200
    assert [ask(), ask()] == [1, 1]


def test_a_service_that_cannot_be_reached_fails_quickly(service: Service) -> None:
    found = placed(service, urlPrefix="http://127.0.0.1:1", httpTimeout="200ms")
    assert found["status"] == "error"
    assert "127.0.0.1:1" in found["message"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"urlPrefix": ""}, "extenders[0].urlPrefix"),
        ({"urlPrefix": "file:///etc/passwd"}, "extenders[0].urlPrefix"),
        ({"urlPrefix": "http://[::1"}, "extenders[0].urlPrefix"),
        ({"urlPrefix": "http://h:99999"}, "extenders[0].urlPrefix"),
        ({"urlPrefix": "http://:pw@h"}, "extenders[0].urlPrefix"),
        ({"filterVerb": ""}, "extenders[0].filterVerb"),
        ({"batchVerb": "judge"}, "extenders[0].filterVerb"),
        ({"preemptVerb": "a b"}, "extenders[0].preemptVerb"),
        (
            {"managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]},
            "extenders[0].managedResources[1].name",
        ),
        ({"httpTimeout": "soon"}, "extenders[0].httpTimeout"),
        ({"httpTimeout": "-1s"}, "extenders[0].httpTimeout"),
        ({"httpTimeout": 5}, "extenders[0].httpTimeout"),
        ({"enableHTTPS": True}, "extenders[0].enableHTTPS"),
        ({"prioritizeVerb": "p", "weight": 0}, "extenders[0].weight"),
        ({"managedResources": [{"name": "cpu"}]}, "extenders[0].managedResources[0].name"),
        ({"tlsConfig": {"certData": "x"}}, "extenders[0].tlsConfig.certData"),
        ({"colour": "red"}, "extenders[0].colour"),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(
    service: Service, fields: Manifest, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        load_configuration(configuration(service, **fields))
    assert [error.field for error in refused.value.errors] == [field]


def test_every_profile_has_it(service: Service) -> None:
    document = {**configuration(service), "profiles": [{"schedulerName": n} for n in ("x", "y")]}
    for profile in load_configuration(document).profiles:
        assert f"Extender {service.url}" in build_plugins(profile)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("100ms", 0.1), ("1h0m0s", 60), ("1.5h", 60), ("1m0s", 60), ("30s", 30), ("1s500ms", 1.5),
     ("0", 5), ("0s", 5), (".5s", 0.5), ("250us", 0.00025)],
)  # fmt: skip
def test_durations_are_read_as_go_reads_them(service: Service, given: str, seconds: float) -> None:
    """A call takes a minute at most, and the usual time where none is given."""
    loaded = load_configuration(configuration(service, httpTimeout=given))
    (args,) = (a for a in loaded.profiles[0].args.values() if isinstance(a, ExtenderArgs))
    assert args.seconds == pytest.approx(seconds)
    assert any("acts as 60s" in one for one in loaded.warnings) == ("h" in given)


def test_two_extenders_may_have_one_address_and_no_resource_in_common() -> None:
    one = {"urlPrefix": "http://h/x", "filterVerb": "f", "managedResources": [{"name": "a.b/c"}]}
    other = {"urlPrefix": "http://h/x", "prioritizeVerb": "p", "weight": 2}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    profile = load_configuration({**document, "extenders": [one, other]}).profiles[0]
    assert [use.name for use in profile.points["filter"]][-1] == "Extender http://h/x"
    assert profile.points["score"][-1] == PluginUse("Extender http://h/x (2)", 2)
    both = {**other, "managedResources": [{"name": "d.e/f"}, {"name": "a.b/c"}]}
    with pytest.raises(Invalid) as refused:
        load_configuration({**document, "extenders": [one, both]})
    (error,) = refused.value.errors
    assert (error.field, error.detail) == (
        "extenders[1].managedResources[1].name",
        "duplicate extender managed resource name",
    )


def test_one_extender_binds(service: Service) -> None:
    document = configuration(service, bindVerb="bind")
    document["extenders"].append({"urlPrefix": "http://other.example", "bindVerb": "bind"})
    with pytest.raises(Invalid) as refused:
        load_configuration(document)
    (error,) = refused.value.errors
    assert (error.field, error.detail) == ("extenders", "found 2 extenders implementing bind")


def test_those_that_may_be_ignored_come_last(service: Service) -> None:
    document = configuration(service, ignorable=True)
    document["extenders"].append({"urlPrefix": "http://other.example", "filterVerb": "filter"})
    (profile,) = load_configuration(document).profiles
    asked = [name for name in profile.names("filter") if name.startswith("Extender")]
    assert asked == ["Extender http://other.example", f"Extender {service.url}"]


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        ({}, False),
        ({"requests": {"cpu": "1"}}, False),
        ({"limits": {"example.com/licence": "0"}}, True),
        ({"limits": {"example.com/licence": "1"}}, True),
    ],
)
def test_a_pod_concerns_it_that_names_a_managed_resource(
    service: Service, resources: Manifest, asked: bool
) -> None:
    """extender.go ``IsInterested``: any amount, of requests and limits."""
    container = {"name": "main", "image": "nginx", "resources": resources}
    pod = make_pod().with_("spec", "containers", value=[container])
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    placed(service, pod, managedResources=managed)
    assert bool(service.calls) is asked


# --- preemption ----------------------------------------------------------------------------------


def crowded() -> list[Any]:
    """Return two full nodes, the first of which is the cheaper one to clear."""
    nodes = [make_node().named(name).offers(cpu="4") for name in ("a", "b")]
    low = [make_pod(f"low-{name}").asks(cpu="4").on(name).priority(5) for name in ("a", "b")]
    low[1] = low[1].priority(7)
    return [*nodes, *low]


def preempting(service: Service, **fields: Any) -> Manifest:
    asked = make_pod("high").asks(cpu="4").priority(100)
    document = configuration(service, **{"filterVerb": "", "preemptVerb": "preempt", **fields})
    return result(crowded(), asked, configuration=document, explain="full", admission=False)


def test_an_extender_takes_candidates_of_preemption_away(service: Service) -> None:
    def answer(verb: str, body: Any) -> Any:
        return {"NodeNameToMetaVictims": {"b": body["NodeNameToMetaVictims"]["b"]}}

    service.answer = answer
    found = preempting(service)
    assert found["preemption"]["nominatedNode"] == "b"
    (call,) = service.calls
    assert call[0] == "preempt"
    assert call[1]["NodeNameToVictims"] is None
    assert {name: len(v["Pods"]) for name, v in call[1]["NodeNameToMetaVictims"].items()} == {
        "a": 1,
        "b": 1,
    }


def test_without_a_cache_it_gets_the_victims_whole(service: Service) -> None:
    def answer(verb: str, body: Any) -> Any:
        victims = body["NodeNameToVictims"]["a"]
        uids = [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]]
        return {"NodeNameToMetaVictims": {"a": {"Pods": uids, "NumPDBViolations": 3}}}

    service.answer = answer
    found = preempting(service, nodeCacheCapable=False)
    assert found["preemption"]["nominatedNode"] == "a"
    sent = service.calls[0][1]["NodeNameToVictims"]["b"]["Pods"][0]
    assert sent["metadata"]["name"] == "low-b"


def test_where_it_leaves_no_candidate_nobody_is_preempted(service: Service) -> None:
    service.answer = lambda verb, body: {"NodeNameToMetaVictims": {}}
    found = preempting(service)
    assert found["status"] == "unschedulable"
    assert found["message"].endswith("preemption: no candidate node for preemption")


@pytest.mark.parametrize(
    "victims",
    [
        {"elsewhere": {"Pods": [{"UID": "x"}]}},
        {"a": {"Pods": [{"UID": "nobody"}]}},
        {"a": {"Pods": []}},
        {"a": None},
        {"a": {"Pods": 5}},
        {"a": {"Pods": [5]}},
        5,
    ],
)
def test_victims_that_are_none_are_told_of_or_ignored(service: Service, victims: Any) -> None:
    """The pod is refused either way: ``callExtenders``, preemption.go, v1.36."""
    service.answer = lambda verb, body: {"NodeNameToMetaVictims": victims}
    found = preempting(service)
    assert found["status"] == "unschedulable"
    assert "2 Insufficient cpu" in found["message"]
    assert "ExtenderFailed" in found["message"]
    ignored = preempting(service, ignorable=True)
    assert ignored["status"] == "unschedulable"
    assert "ExtenderFailed" not in ignored["message"]


def test_a_filter_outside_is_not_asked_in_the_dry_run(service: Service) -> None:
    """schedule_one.go: extenders judge what the plugins leave; preemption asks plugins alone."""

    def answer(verb: str, body: Any) -> Any:
        if verb == "filter":
            return {"NodeNames": body["NodeNames"]}
        return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}

    service.answer = answer
    assert preempting(service, filterVerb="filter")["preemption"]["nominatedNode"] == "a"
    assert [verb for verb, _ in service.calls] == ["preempt"]


# --- binding -------------------------------------------------------------------------------------


def binder(service: Service, **fields: Any) -> HTTPExtender:
    loaded = load_configuration(configuration(service, filterVerb="", bindVerb="bind", **fields))
    name = f"Extender {service.url}"
    assert loaded.profiles[0].names("bind") == (name, "DefaultBinder")
    assert name not in loaded.profiles[0].names("filter")
    plugin = build_plugins(loaded.profiles[0])[name]
    assert isinstance(plugin, HTTPExtender)
    return plugin


def bound(plugin: HTTPExtender, pod: Any = None) -> Status:
    snapshot = Snapshot()
    state = CycleState()
    state.pod_name, state.pod_uid = "default/web", "4711"
    info = snapshot.intern(from_pod((make_pod() if pod is None else pod).build()))
    return plugin.bind(state, info, "b")


def test_it_binds(service: Service) -> None:
    service.answer = lambda verb, body: {"Error": ""}
    assert bound(binder(service)).ok
    expected = {"PodName": "web", "PodNamespace": "default", "PodUID": "4711", "Node": "b"}
    assert service.calls == [("bind", expected)]


def test_a_pod_that_does_not_concern_it_is_left_to_the_next_binder(service: Service) -> None:
    managed = [{"name": "example.com/licence"}]
    assert bound(binder(service, managedResources=managed)).code is Code.SKIP
    assert service.calls == []


def test_a_binding_that_fails_is_an_error_or_left_to_the_next_binder(service: Service) -> None:
    service.answer = lambda verb, body: {"Error": "the pod is in quarantine"}
    status = bound(binder(service))
    assert (status.code, "in quarantine" in status.message) == (Code.ERROR, True)
    assert bound(binder(service, ignorable=True)).code is Code.SKIP


# --- many pods in one call -----------------------------------------------------------------------


def judging(verb: str, body: Any) -> Any:
    """Answer a batched call: pods labelled with a node may go there and nowhere else."""
    items = []
    for item in body["Items"]:
        wanted = item["Pod"]["metadata"]["labels"].get("to")
        items.append(
            {"NodeNames": [wanted]} if wanted else {"Scores": [{"Host": "c", "Score": 10}]}
        )
    return {"Items": items}


def engine(service: Service, count: int, **fields: Any) -> tuple[Snapshot, Framework, list[Any]]:
    document = configuration(
        service, **{"filterVerb": "", "batchVerb": "judge", "weight": 50, **fields}
    )
    framework = build_framework(load_configuration(document).profiles[0])
    snapshot = Snapshot()
    for node in NODES:
        snapshot.set_node(node.build())
    labels = ["", "a", "b"]
    pods = []
    for number in range(count):
        pod = make_pod(f"p{number}")
        wanted = labels[number % 3]
        made = pod.labelled(to=wanted) if wanted else pod
        pods.append(PodToPlace(number, snapshot.intern(from_pod(made.build()))))
    return snapshot, framework, pods


def test_one_call_judges_many_pods_and_all_nodes(service: Service) -> None:
    service.answer = judging
    snapshot, framework, pods = engine(service, 30)
    decisions = schedule_batch(snapshot, framework, pods)
    assert [one.node_name for one in decisions] == ["c", "a", "b"] * 10
    (call,) = service.calls
    assert call[0] == "judge"
    assert call[1]["apiVersion"] == "extender.stowage.dev/v1"
    assert call[1]["NodeNames"] == ["a", "b", "c"]
    assert [item["Count"] for item in call[1]["Items"]] == [10, 10, 10]


def test_a_batch_decides_as_single_calls_do(service: Service) -> None:
    def one(verb: str, body: Any) -> Any:
        wanted = body["Pod"]["metadata"]["labels"].get("to")
        if verb == "filter":
            return {"NodeNames": [wanted] if wanted else body["NodeNames"]}
        return [] if wanted else [{"Host": "c", "Score": 10}]

    service.answer = judging
    snapshot, framework, pods = engine(service, 12)
    together = [d.node_name for d in schedule_batch(snapshot, framework, pods)]
    service.answer = one
    single = {"batchVerb": "", "filterVerb": "filter", "prioritizeVerb": "score"}
    snapshot, framework, pods = engine(service, 12, **single)
    assert [d.node_name for d in schedule_batch(snapshot, framework, pods)] == together


def test_an_item_that_fails_fails_its_pods_alone(service: Service) -> None:
    def answer(verb: str, body: Any) -> Any:
        items = judging(verb, body)["Items"]
        items[1] = {"Error": "no opinion"}
        return {"Items": items}

    service.answer = answer
    snapshot, framework, pods = engine(service, 3)
    decisions = list(schedule_batch(snapshot, framework, pods))
    assert [one.outcome for one in decisions] == ["scheduled", "error", "scheduled"]
    assert "no opinion" in decisions[1].message


@pytest.mark.parametrize("answer", [{}, {"Items": []}, {"Items": [1, 2, 3]}, {"Items": [{}] * 4}])
def test_a_batch_without_an_answer_is_one_failed_call(service: Service, answer: Any) -> None:
    service.answer = lambda verb, body: answer
    snapshot, framework, pods = engine(service, 3)
    assert {one.outcome for one in schedule_batch(snapshot, framework, pods)} == {"error"}
    assert len(service.calls) == 1


def test_when_a_node_changes_a_batched_answer_does_not_hold(service: Service) -> None:
    service.answer = judging
    snapshot, framework, pods = engine(service, 3)
    framework.prepare([pod.info for pod in pods], snapshot)
    snapshot.set_node(make_node().named("d").build())
    schedule_pod(snapshot, framework, pods[0])
    assert [call[1]["NodeNames"] for call in service.calls] == [
        ["a", "b", "c"],
        ["a", "b", "c", "d"],
    ]
