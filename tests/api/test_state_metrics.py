"""``/metrics/state`` over a connection: streamed, compressed, and for whom."""

import gzip

from prometheus_client.parser import text_string_to_metric_families

from api.streaming import state_metrics
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from tests.api.conftest import make_token
from tests.api.serve import Server, request
from tests.clock import NOW
from tests.controllers.support import make_node, make_pod, pod_manifest
from tests.metrics.state_names import LABELS
from tests.waiting import until


def chunked(body: bytes) -> bytes:
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return b"".join(parts)
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]


def scrape(server: Server, path: str, token: str, **headers: str) -> tuple[int, bytes]:
    with server.connect() as connection:
        connection.sendall(request("GET", path, token, connection="close", **headers))
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    encoded = b"transfer-encoding: chunked" in head.lower()
    return int(head.split()[1]), chunked(body) if encoded else body


def test_a_scrape_that_nobody_reads_does_not_keep_the_others_out(server, monkeypatch) -> None:
    monkeypatch.setattr(state_metrics, "LONGEST_SECONDS", 1.0)
    bootstrap.add_missing(now=NOW)
    names = [f"p{number}" for number in range(3000)]
    create_pods([pod_manifest(name) for name in names], now=NOW)
    monitor = make_token("prometheus", ["system:monitoring"])
    with server.connect(receive_buffer=4096) as idle:
        idle.sendall(request("GET", "/metrics/state", monitor))
        assert idle.recv(1)
        assert scrape(server, "/metrics/state", monitor)[0] == 429
        until(
            lambda: scrape(server, "/metrics/state?resources=nodes", monitor)[0] == 200,
            what="the other scrape to be cut off",
        )


def test_a_scrape_is_streamed_to_those_who_may_and_says_what_is_wrong(server, settings) -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    make_pod("p")
    monitor = make_token("prometheus", ["system:monitoring"])
    code, body = scrape(server, "/metrics/state", monitor)
    assert code == 200
    families = {one.name: one for one in text_string_to_metric_families(body.decode())}
    assert sorted(families) == sorted(LABELS)
    assert families["kube_pod_created"].samples[0].labels["pod"] == "p"
    code, body = scrape(server, "/metrics/state?resources=nodes", monitor, accept_encoding="gzip")
    names = {one.name for one in text_string_to_metric_families(gzip.decompress(body).decode())}
    assert names == {name for name in LABELS if name.startswith("kube_node_")}
    settings.METRICS_OPEN = True
    assert scrape(server, "/metrics/state", "")[0] == 401
    assert scrape(server, "/metrics/state", make_token("somebody", []))[0] == 403
    for query, named in (
        ("resources=things", b"resources"), ("shard=2&totalShards=2", b"shard"),
        ("totalShards=0", b"totalShards"), ("only=pods", b"only"),
    ):  # fmt: skip
        code, body = scrape(server, f"/metrics/state?{query}", monitor)
        assert (code, named in body) == (400, True), body
