"""What one client does stops no other: real sockets, the web process's own server."""

import gc
import json
import socket
import threading
import time

import psycopg
import pytest
from django.db import connection as database

from api.server import budget, protocol
from api.streaming import watch
from tests.api.builders import pod
from tests.api.conftest import make_token
from tests.api.serve import answer, request, status_of
from tests.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
def root(server):
    secret = make_token("operator", ["system:masters"])
    namespace = json.dumps({"metadata": {"name": "ns"}}).encode()
    assert server.ask("POST", "/api/v1/namespaces", secret, namespace)[0] == 201
    return secret


@pytest.fixture
def nobody(server):
    """The token of somebody who may do nothing."""
    return make_token("nobody", [])


def closed(connection: socket.socket) -> bytes:
    """Return what comes until the server hangs up."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


# Bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"- " * 500_000, b"[" * 500_000, b"? " * 500_000, b"{a: " * 300_000],
    ids=["blocks", "flows", "keys", "maps"],
)  # fmt: skip
def test_a_deep_yaml_is_refused_by_a_server_that_lives_on(server, root, body):
    for path in (PODS, "/apis/stowage.dev/v1/simulations", "/api/v1"):
        code, status = status_of(
            server.ask("POST", path, root, body, content_type="application/yaml")
        )
        assert (code, status["reason"]) == (400, "BadRequest")
        assert "nested too deeply" in status["message"]
    assert server.ask("GET", "/livez")[0] == 200


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_stranger_is_refused_before_a_body_is_read(server, token):
    """Nothing of the body is sent: an answer can only come from the headers."""
    with server.connect(5) as connection:
        connection.sendall(
            request("POST", PODS, token, content_length=str(30 << 20), expect="100-continue")
        )
        code, headers, body = answer(connection)
    assert (code, json.loads(body)["reason"]) == (401, "Unauthorized")
    assert headers["connection"] == "close"


def test_what_a_user_may_not_do_is_refused_before_a_body_is_read(server, root, nobody):
    for method, path in (("POST", PODS), ("PUT", f"{PODS}/p"), ("PATCH", f"{PODS}/p")):
        with server.connect(5) as connection:
            connection.sendall(request(method, path, nobody, content_length=str(30 << 20)))
            assert answer(connection)[0] == 403
    # And what asks by itself reads no more of it than a review needs.
    for path, code in (("/apis/stowage.dev/v1/simulations", 403), ("/api/v1", 413)):
        with server.connect(5) as connection:
            connection.sendall(request("POST", path, nobody, content_length=str(1 << 20)))
            assert answer(connection)[0] == code
    with server.connect(5) as connection:
        connection.sendall(request("POST", PODS, root, content_length=str(1 << 30)))
        assert answer(connection)[0] == 413


def test_a_refused_client_that_goes_on_sending_still_gets_its_answer(server):
    with server.connect() as connection:
        connection.sendall(request("POST", PODS, content_length=str(20 << 20)))
        for _ in range(20):
            connection.sendall(b"x" * (1 << 20))
        assert answer(connection)[0] == 401


def test_a_refusal_of_a_small_request_keeps_the_connection(server, nobody):
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(request("POST", PODS, nobody, b"{}" * 100))
            assert answer(connection)[0] == 403
            connection.sendall(request("GET", "/livez"))
            assert answer(connection)[0] == 200


def test_bodies_of_all_requests_together_are_bounded(server, root, settings):
    """Ten announce 30 MiB each and send nothing: those beyond half of the budget are put off."""
    open_ones = []
    codes = []
    for _ in range(10):
        connection = server.connect(2)
        connection.sendall(request("POST", PODS, root, content_length=str(30 << 20)))
        open_ones.append(connection)
    for connection in open_ones:
        try:
            code, headers, _ = answer(connection)
            codes.append(code)
            assert headers["retry-after"] == "1"
        except TimeoutError:
            codes.append(0)
    allowed = settings.MAX_HELD_BYTES // 2 // (30 << 20)
    assert codes == [0] * allowed + [429] * (10 - allowed)
    for connection in open_ones:
        connection.close()
    body = json.dumps(pod()).encode()
    until(lambda: server.ask("POST", PODS, root, body)[0] == 201, seconds=10)


# Deadlines and connections ------------------------------------------------------------------------


def test_headers_that_trickle_in_have_a_deadline(server, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 1.0)
    with server.connect(10) as silent, server.connect(10) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n")
        assert closed(slow).startswith(b"HTTP/1.1 408 ")
        assert closed(silent) == b""


def test_a_body_that_stops_has_a_deadline(server, root, monkeypatch):
    monkeypatch.setattr(protocol, "BODY_PAUSE_SECONDS", 1.0)
    with server.connect(10) as connection:
        connection.sendall(request("POST", PODS, root, b"{", content_length="100"))
        assert closed(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_trickles_in_has_a_deadline(server, root, monkeypatch):
    monkeypatch.setattr(protocol, "BODY_SECONDS", 1.0)
    with server.connect(10) as connection:
        connection.sendall(request("POST", PODS, root, b"{", content_length="100000"))
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.1):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert closed(connection).startswith(b"HTTP/1.1 408 ")
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nx: " + b"y" * 200_000,
        b"GET /livez HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
        b"GET /" + b"x" * 200_000,
    ],
    ids=["value", "number", "path"],
)
def test_endless_headers_are_refused(server, head):
    with server.connect(10) as connection:
        connection.sendall(head)
        assert closed(connection).startswith(b"HTTP/1.1 431 ")


def test_endless_trailers_are_not_kept(server, root):
    with server.connect(10) as connection:
        connection.sendall(
            request("POST", PODS, root, content_length="", transfer_encoding="chunked")
        )
        connection.sendall(b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 100_000 + b"\r\n")
        assert answer(connection)[0] in (400, 422)


def test_a_connection_holds_few_requests_sent_ahead(server):
    with server.connect(10) as connection:
        connection.sendall(request("GET", "/api") * 5000)
        assert closed(connection).count(b"HTTP/1.1 401") < 200
    assert server.ask("GET", "/livez")[0] == 200


def test_idle_connections_make_room_for_a_request(server, root, settings):
    settings.MAX_CONNECTIONS = 20
    idle = [server.connect() for _ in range(60)]
    assert server.ask("GET", "/livez")[0] == 200
    assert server.ask("GET", "/api/v1/nodes", root)[0] == 200
    for connection in idle:
        connection.close()


@pytest.fixture
def much(root, server):
    """Objects that make a LIST of some 12 MB."""
    for number in range(6):
        items = [
            {**pod(f"p{number}-{i}"), "metadata": {
                "name": f"p{number}-{i}", "annotations": {"a": "x" * 200_000}}}
            for i in range(10)
        ]  # fmt: skip
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": items}).encode()
        assert server.ask("POST", PODS, root, body)[0] == 201


def test_an_answer_that_is_not_read_is_given_up(server, root, much, monkeypatch):
    monkeypatch.setattr(protocol, "READ_SECONDS", 1.0)
    with server.connect(60, receive_buffer=65536) as connection:
        connection.sendall(request("GET", PODS, root))
        assert connection.recv(1)
        # What the kernel had taken comes, then the end; all of it would be twelve million bytes.
        until(lambda: _hung_up(connection), seconds=20)
        assert len(closed(connection)) < 10_000_000
    assert server.ask("GET", "/livez")[0] == 200


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other side of a connection has gone, whatever is left to read."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] != 1  # no longer ESTABLISHED


# Watches -----------------------------------------------------------------------------------------


def test_watches_of_one_user_take_half_of_the_connections_that_the_process_may_have(
    server, root, monkeypatch
):
    """Also where the system allows fewer open files than the setting has connections."""
    monkeypatch.setattr(protocol, "_descriptors", 128 + 30)  # a fifth is for handshakes
    watches = [server.connect(20) for _ in range(13)]
    try:
        for number, connection in enumerate(watches):
            connection.sendall(request("GET", f"{PODS}?watch=true", root))
            status = connection.recv(12)
            assert status == (b"HTTP/1.1 200" if number < 12 else b"HTTP/1.1 429"), number
        assert server.ask("GET", "/livez")[0] == 200
    finally:
        for connection in watches:
            connection.close()


def test_a_watch_that_is_not_read_ends_with_a_reason(server, root, much, monkeypatch):
    monkeypatch.setattr(watch, "SLOW_SECONDS", 1.0)
    with server.connect(60, receive_buffer=65536) as connection:
        connection.sendall(request("GET", f"{PODS}?watch=true", root))
        assert connection.recv(1)
        # The client reads nothing until the server has written its reason and hung up.
        until(_closing, seconds=20)
        text = closed(connection)
    lines = text.split(b"\r\n")
    assert any(b'"type":"ERROR"' in line and b"did not read" in line for line in lines)
    assert text.endswith(b"0\r\n\r\n")


def _closing() -> bool:
    """Whether a connection of the server waits for its client to read the rest."""
    return any(
        each.transport.is_closing() and each.parser is not None
        for each in gc.get_objects()
        if type(each) is protocol.Protocol and each.transport is not None
    )


# Health and fairness -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
def test_health_is_told_at_once_while_every_thread_waits(server, root, path):
    server.ask("GET", "/readyz")
    parameters = database.get_connection_params()
    with psycopg.connect(
        host=parameters["host"], dbname=parameters["dbname"], user=parameters.get("user"),
        port=parameters.get("port"),
    ) as blocker:  # fmt: skip
        blocker.execute("LOCK TABLE pod, node IN ACCESS EXCLUSIVE MODE")
        stuck = []
        for number in range(40):
            connection = server.connect(60)
            body = json.dumps(pod(f"stuck-{number}")).encode()
            sent = (
                request("POST", PODS, root, body),
                request("GET", f"{PODS}/p{number}", root),
                request("GET", "/api/v1/nodes", root),
                request("GET", f"{PODS}?watch=1", root),
            )[number % 4]
            connection.sendall(sent)
            stuck.append(connection)
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            code = server.ask("GET", path)[0]
            seconds.append(time.perf_counter() - started)
            assert code in (200, 503)
        assert sorted(seconds)[len(seconds) // 2] < 0.1, seconds
        assert max(seconds) < 1, seconds
        blocker.rollback()
    for connection in stuck:
        assert connection.recv(20).startswith(b"HTTP/1.1 ")
        connection.close()


def test_a_flood_of_strangers_is_put_off_and_bounded(server, root):
    """A thousand unknown tokens wait for one thread; only so many of them, and not for long."""
    flood = [server.connect() for _ in range(300)]
    for number, connection in enumerate(flood):
        connection.sendall(request("GET", "/api/v1/nodes", f"wrong-{number}"))
    codes = [answer(connection)[0] for connection in flood]
    assert set(codes) <= {401, 429}
    assert server.ask("GET", "/api/v1/nodes", root)[0] == 200
    for connection in flood:
        connection.close()


def test_nothing_is_held_when_all_was_answered(server, root, much):
    from api.asgi import application

    for _ in range(3):
        assert server.ask("GET", PODS, root)[0] == 200
    held: budget.Budget = application.budget
    until(lambda: held.used == 0, seconds=5)
