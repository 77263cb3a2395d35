"""Extenders by kube-scheduler's protocol, against a real HTTP server."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clusterstate.objects.errors import Invalid
from clusterstate.objects.meta import Manifest
from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import CycleState
from scheduling.plugins.catalogue import build_plugins, load_configuration
from scheduling.plugins.http_extender import FAILURES, REST, HTTPExtender
from tests.builders import make_node, make_pod
from tests.simulation.builders import result

NODES = [make_node().named(name) for name in ("a", "b", "c")]
Answers = Callable[[str, Any], Any]


class Service:
    """An extender: ``answer`` gets the verb and the body; what it returns is the answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answer: Answers = lambda verb, body: {"NodeNames": body["NodeNames"]}
        self.status = 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                verb = self.path.rpartition("/")[2]
                service.calls.append((verb, body))
                text = json.dumps(service.answer(verb, body)).encode()
                self.send_response(service.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/extender"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    try:
        yield made
    finally:
        made.stop()


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
    "answer", [5, {}, {"NodeNames": "a"}, {"Error": "the licence server is down"}]
)
def test_an_answer_that_is_none_fails_the_attempt(service: Service, answer: Any) -> None:
    service.answer = lambda verb, body: answer
    found = placed(service)
    assert found["status"] == "error"
    assert "Extender" in found["message"]


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
        ({"bindVerb": "bind"}, "extenders[0].bindVerb"),
        ({"preemptVerb": "preempt"}, "extenders[0].preemptVerb"),
        ({"httpTimeout": "soon"}, "extenders[0].httpTimeout"),
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
