"""Traces of a pod, from the request that creates it until it is bound."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from clusterstate.actions.cluster import bootstrap
from clusterstate.objects.rules import own_annotations
from clusterstate.telemetry import tracing
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.api.conftest import make_token
from tests.api.serve import Server
from tests.clock import NOW
from tests.controllers.support import make_node, pod_manifest

pytestmark = pytest.mark.django_db(transaction=True)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class Collector:
    """An OTLP collector on loopback, and the spans that it got."""

    def __init__(self) -> None:
        self.spans: dict[str, list] = {}
        self.services: set[str] = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for attribute in resource.resource.attributes:
                        if attribute.key == "service.name":
                            collector.services.add(attribute.value.string_value)
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            collector.spans.setdefault(span.name, []).append(span)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch, settings) -> Iterator[Collector]:
    found = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    settings.TRACES = True
    tracing.start()
    try:
        yield found
    finally:
        tracing.stop()
        found.close()


def post(server: Server, name: str, **headers: str) -> dict:
    body = json.dumps(pod_manifest(name)).encode()
    token = make_token("somebody", ["system:masters"])
    code, _, text = server.ask(
        "POST", "/api/v1/namespaces/default/pods", token, body,
        content_type="application/json", **headers,
    )  # fmt: skip
    assert code == 201, text
    return json.loads(text)


def schedule() -> None:
    """Run the scheduler at a moment after the pod came, however slow the machine is."""
    now = NOW.timestamp() + 3600
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(now)
    while scheduler.cycle(now):
        scheduler.binder.finish_batch(now)
    scheduler.binder.finish_batch(now)
    scheduler.binder.write_records(now)
    scheduler.binder.close()


def test_a_pod_is_one_trace_from_its_request_until_it_is_bound(
    server: Server, collector: Collector
) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    pod = post(server, "p", traceparent=f"00-{TRACE}-{CALLER}-01")
    carried = pod["metadata"]["annotations"][own_annotations.TRACE]
    schedule()
    tracing._here.provider.force_flush()
    spans = {name: found[0] for name, found in collector.spans.items()}
    assert set(spans) == {"POST pods", "create", "queue", "scheduling cycle", "bind"}
    request = spans.pop("POST pods")
    assert request.parent_span_id.hex() == CALLER
    assert carried == f"00-{TRACE}-{request.span_id.hex()}-01"
    for span in (request, *spans.values()):
        assert span.trace_id.hex() == TRACE
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert {span.parent_span_id for span in spans.values()} == {request.span_id}
    assert spans["queue"].end_time_unix_nano == spans["scheduling cycle"].start_time_unix_nano
    assert spans["scheduling cycle"].end_time_unix_nano == spans["bind"].start_time_unix_nano
    told = {one.key: one.value.string_value for one in spans["bind"].attributes}
    assert told == {
        "k8s.namespace.name": "default", "k8s.pod.name": "p", "k8s.node.name": "n1",
    }  # fmt: skip
    assert collector.services == {"stowage"}


def test_a_trace_that_is_not_sampled_leaves_no_sign(server: Server, collector: Collector) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    pod = post(server, "p", traceparent=f"00-{TRACE}-{CALLER}-00")
    schedule()
    tracing._here.provider.force_flush()
    assert "annotations" not in pod["metadata"]
    assert collector.spans == {}


def test_without_the_setting_nothing_is_traced(server: Server) -> None:
    bootstrap.add_missing(now=NOW)
    pod = post(server, "p", traceparent=f"00-{TRACE}-{CALLER}-01")
    assert "annotations" not in pod["metadata"]
    assert not tracing.is_on()


def test_without_the_setting_nothing_is_imported() -> None:
    code = (
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'clusterstate.settings';"
        " import django; django.setup();"
        " from clusterstate.telemetry import tracing; tracing.start();"
        " sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
