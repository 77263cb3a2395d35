"""Answers on the wire: how they are cut into packets."""

import socket
import struct
import threading
from contextlib import contextmanager, suppress

import pytest

from api import serving
from api.server import compression, protocol
from tests.api.builders import NODES, PODS, node, pod
from tests.api.serve import answer, request
from tests.waiting import until

DATA_SEGMENTS_IN = 152
"""Where Linux' ``struct tcp_info`` has the number of segments with data that came."""


def packets(connection: socket.socket) -> int:
    """Return how many packets with data have come."""
    found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("I", found, DATA_SEGMENTS_IN)[0])


@pytest.mark.parametrize("path", [f"{PODS}/one", f"{PODS}/none", PODS, "/livez"])
def test_a_small_answer_comes_in_one_piece(server, api, path):
    """A second packet would wake the client twice, and cost the server a tenth of its time."""
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("one")).ok(201)
    with server.connect() as connection:
        for number in range(1, 9):
            connection.sendall(request("GET", path, api.token))
            answer(connection)
            assert packets(connection) == number


def test_pipelined_requests_are_answered_in_their_order(server, api):
    names = [f"p{i}" for i in range(4)]
    for name in names:
        api.post(PODS, pod(name)).ok(201)
    with server.connect() as connection:
        connection.sendall(b"".join(request("GET", f"{PODS}/{n}", api.token) for n in names))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < len(names):
            part = connection.recv(1 << 20)
            assert part
            received += part
    found = [received.index(f'"name":"{name}"'.encode()) for name in names]
    assert found == sorted(found)


def test_who_goes_away_is_missed_also_behind_requests_sent_ahead(server, api, caplog):
    """uvicorn tells the last request that came, which is not the one that is being answered."""
    from api import asgi

    api.post(PODS, pod("one")).ok(201)
    before = asgi.application._open.copy()
    with server.connect() as connection:
        ahead = request("GET", f"{PODS}/one", api.token)
        connection.sendall(request("GET", f"{PODS}?watch=true", api.token) + ahead * 3)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
        until(lambda: asgi.application._open != before, what="the watch to be open")
    until(lambda: asgi.application._open == before, what="the watch to end")
    assert not [one for one in caplog.records if one.exc_info]


def test_an_answer_to_who_was_hung_up_on_is_dropped(server, api, monkeypatch, caplog):
    api.post(PODS, pod("one")).ok(201)
    with _held_up(monkeypatch) as (begun, may_end), server.connect() as connection:
        connection.sendall(request("GET", PODS, api.token, accept_encoding="gzip"))
        assert begun.wait(20)
        connection.sendall(request("GET", f"{PODS}/one", api.token) * (protocol.PIPELINED + 4))
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        may_end.set()
        until(lambda: not _bytes_held(), what="the answer to be given")
    assert not [one for one in caplog.records if one.exc_info]
    assert server.ask("GET", "/livez")[0] == 200


def test_a_refusal_is_not_taken_for_the_answer_to_the_request_before(server, api, monkeypatch):
    """Its client would believe that nothing was done."""
    api.post(PODS, pod("one")).ok(201)
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.2)
    with _held_up(monkeypatch) as (begun, may_end), server.connect() as connection:
        connection.sendall(request("GET", PODS, api.token, accept_encoding="gzip"))
        assert begun.wait(20)
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert connection.recv(65536) == b""
        may_end.set()
    with server.connect() as connection:
        connection.sendall(request("GET", "/livez") + b"GET /livez HTTP/1.1\r\n")
        assert answer(connection)[0] == 200
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_what_was_refused_for_what_came_behind_it_is_not_done(server, api):
    api.post(PODS, pod("one")).ok(201)
    deletion = request("DELETE", f"{PODS}/one?gracePeriodSeconds=0", api.token)
    with server.connect() as connection:
        connection.sendall(deletion + b"\0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert connection.recv(65536) == b""
    assert server.ask("DELETE", f"{PODS}/none", api.token)[0] == 404  # the lane has done the rest
    api.get(f"{PODS}/one").ok()


@contextmanager
def _held_up(monkeypatch):
    """Hold up every answer that is to be compressed; yields that one came, and lets them go."""
    begun, may_end = threading.Event(), threading.Event()
    compressed = compression.compressed

    def held_up(found):
        begun.set()
        assert may_end.wait(20)
        return compressed(found)

    monkeypatch.setattr(compression, "LEAST_BYTES", 100)
    monkeypatch.setattr(compression, "compressed", held_up)
    try:
        yield begun, may_end
    finally:
        may_end.set()


def _bytes_held():
    """Return how many answers hold bytes of the process."""
    from api import asgi

    return asgi.application.budget.used


def test_a_connection_that_sends_no_further_request_is_closed(server, api, monkeypatch):
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(request("GET", "/livez", api.token))
            assert answer(connection)[0] == 200
        monkeypatch.setattr(protocol, "IDLE_SECONDS", 0.2)
        assert connection.recv(1) == b""


def test_a_body_behind_its_answer_does_not_keep_a_connection(server, monkeypatch):
    """It would be kept for ever, and count as one that is being answered."""
    monkeypatch.setattr(protocol, "IDLE_SECONDS", 0.2)
    with server.connect(seconds=10) as connection:
        connection.sendall(request("POST", "/livez", content_length="1"))
        assert answer(connection)[0] == 200
        connection.sendall(b"x")
        assert connection.recv(1) == b""


@pytest.mark.parametrize("name", ["x\x01", "x\r\ny: z"])
def test_a_value_that_no_header_may_hold_is_not_sent(server, api, monkeypatch, name):
    """The server checks what it writes at once as uvicorn checks what it is told to write."""
    monkeypatch.setattr(serving, "PLAIN_TEXT", [(b"x-name", name.encode())])
    with server.connect() as connection:
        connection.sendall(request("GET", "/livez", api.token))
        assert connection.recv(65536) == b""


def test_an_answer_to_head_has_no_body(server, api):
    with server.connect() as connection:
        connection.sendall(request("HEAD", "/livez", api.token, connection="close"))
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n\r\n")


def test_what_is_written_before_a_connection_closes_arrives(server, api):
    with server.connect() as connection:
        connection.sendall(request("GET", "/livez", api.token, connection="close"))
        code, headers, body = answer(connection)
        assert (code, headers["connection"], body) == (200, "close", b"ok")
        assert connection.recv(1) == b""
