"""Large answers are compressed for clients that take gzip, and for nobody else."""

import gzip
import json
import threading

import pytest
from django.utils import crypto

from api.server import compression
from clusterstate.actions.cluster import bootstrap
from tests.api.conftest import make_token
from tests.api.serve import answer as read_answer
from tests.api.serve import request
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)
MAPS = "/api/v1/namespaces/default/configmaps"
LARGE = 200_000


@pytest.fixture
def token() -> str:
    bootstrap.add_missing(now=NOW)
    return make_token("operator", ["system:masters"])


@pytest.fixture
def maps(server, token):
    """A small object, a large one whose text does not repeat itself, and their list."""
    for name, data in (("small", "x"), ("large", crypto.get_random_string(LARGE))):
        body = json.dumps({"metadata": {"name": name}, "data": {"a": data}}).encode()
        assert server.ask("POST", MAPS, token, body, content_type="application/json")[0] == 201
    return MAPS


def _compressed(headers):
    return headers.get("content-encoding") == "gzip"


@pytest.mark.parametrize(
    ("accept_encoding", "takes"),
    [
        ("gzip", True), ("deflate, gzip", True), ("br,gzip , deflate", True),
        ("", False), ("identity", False), ("br", False), ("gzip;q=0", False), ("*", False),
    ],
)  # fmt: skip
def test_large_answers_come_in_gzip_to_who_takes_it(server, token, maps, accept_encoding, takes):
    for path in (maps, f"{maps}/large"):
        _, plain_headers, plain = server.ask("GET", path, token)
        assert not _compressed(plain_headers)
        code, headers, body = server.ask("GET", path, token, accept_encoding=accept_encoding)
        assert (code, _compressed(headers)) == (200, takes)
        assert int(headers["content-length"]) == len(body)
        assert headers["content-type"] == plain_headers["content-type"]
        if takes:
            assert headers["vary"] == "Accept-Encoding"
            assert len(body) < 0.8 * len(plain)
            body = gzip.decompress(body)
        assert body == plain


def test_small_answers_and_failures_come_as_they_are(server, token, maps):
    for path, code in ((f"{maps}/small", 200), (f"{maps}/none", 404), ("/version", 200)):
        found = server.ask("GET", path, token, accept_encoding="gzip")
        assert (found[0], _compressed(found[1])) == (code, False)
        json.loads(found[2])


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "application/yaml"])
def test_every_form_is_compressed(server, token, maps, accept):
    _, _, plain = server.ask("GET", f"{maps}/large", token, accept=accept)
    _, headers, body = server.ask(
        "GET", f"{maps}/large", token, accept=accept, accept_encoding="gzip"
    )
    assert _compressed(headers)
    assert gzip.decompress(body) == plain


def test_answers_to_writes_are_compressed_and_connections_go_on(server, token, maps):
    patch = json.dumps({"metadata": {"labels": {"a": "b"}}}).encode()
    merge = {"content_type": "application/merge-patch+json", "accept_encoding": "gzip"}
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(request("PATCH", f"{maps}/large", token, patch, **merge))
            code, headers, body = read_answer(connection)
            assert (code, _compressed(headers)) == (200, True)
            assert json.loads(gzip.decompress(body))["metadata"]["labels"] == {"a": "b"}


def test_the_event_loop_does_not_compress(server, token, maps, monkeypatch):
    """It answers health meanwhile, however long compressing takes."""
    begun, may_end = threading.Event(), threading.Event()

    def held_up(answer):
        begun.set()
        assert may_end.wait(20)
        return compressed(answer)

    compressed = compression.compressed
    monkeypatch.setattr(compression, "compressed", held_up)
    with server.connect() as connection:
        connection.sendall(request("GET", maps, token, accept_encoding="gzip"))
        assert begun.wait(20)
        assert server.ask("GET", "/livez")[0] == 200
        assert server.ask("GET", f"{maps}/small", token)[0] == 200
        may_end.set()
        assert _compressed(read_answer(connection)[1])


def test_a_large_answer_comes_as_it_is_where_too_much_waits(server, token, maps, monkeypatch):
    from api import asgi

    monkeypatch.setattr(asgi.application._calls._lane, "_most", 0)
    code, headers, body = server.ask("GET", maps, token, accept_encoding="gzip")
    assert (code, _compressed(headers)) == (200, False)
    assert len(json.loads(body)["items"]) >= 2
