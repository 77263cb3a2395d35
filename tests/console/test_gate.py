"""The gate between the API's servers and the console's process, over a real unix socket."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from django.conf import settings

from api.console import proxy
from tests.waiting import until

Message = MutableMapping[str, Any]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what arrived; ``/console/stream`` in parts until the client has gone."""
    if scope["type"] != "http":
        return
    begin = {"type": "http.response.start", "status": 200, "headers": [(b"x-from", b"echo")]}
    if scope["path"] == "/console/stream":
        await send(begin)
        for number in range(3):
            body = b"part %d\n" % number
            await send({"type": "http.response.body", "body": body, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        GONE.append(scope["path"])
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    said = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "client": scope["client"][0],
        "scheme": scope["scheme"],
        "headers": [name.decode() for name, _ in scope["headers"]],
        "body": len(body),
    }
    await send(begin)
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


GONE: list[str] = []


@pytest.fixture
def process(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """A server behind the gate on a socket of its own."""
    path = tmp_path / "console.sock"
    config = uvicorn.Config(
        proxy.BehindGate(echo), uds=str(path), lifespan="off", log_level="error", ws="none"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, what="the server to listen")
        settings.CONSOLE_AT = f"unix:{path}"
        yield path
    finally:
        server.should_exit = True
        thread.join(20)


Headers = Sequence[tuple[bytes, bytes]]


def asked(
    method: str = "GET", path: str = "/console/x", body: bytes = b"", headers: Headers = ()
) -> list[Message]:
    """Return what the gate sends to the browser for a request."""
    return asyncio.run(_ask(method, path, body, stop_after=None, headers=headers))


async def _ask(
    method: str, path: str, body: bytes, stop_after: int | None, headers: Headers = ()
) -> list[Message]:
    sent: list[Message] = []
    gone = asyncio.Event()
    parts = [body[at : at + 1000] for at in range(0, len(body), 1000)] or [b""]

    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        text = b"".join(one.get("body", b"") for one in sent)
        if stop_after is not None and text.count(b"\n") >= stop_after:
            gone.set()

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"a=b", "scheme": "https", "client": ("10.1.2.3", 4711),
        "headers": [
            (b"host", b"stowage"), (b"cookie", b"k=v"), (b"connection", b"keep-alive"),
            (b"x-stowage-address", b"6.6.6.6"), (b"x-stowage-gate", b"guessed"),
            *headers,
        ],
    }  # fmt: skip
    await proxy.forward(scope, receive, send)
    return sent


def answer(sent: list[Message]) -> tuple[int, dict[bytes, bytes], bytes]:
    body = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


def test_a_request_goes_on_with_who_sent_it(process: Path) -> None:
    status, headers, body = answer(asked())
    said = json.loads(body)
    assert (status, headers[b"x-from"]) == (200, b"echo")
    assert (said["path"], said["query"]) == ("/console/x", "a=b")
    assert (said["client"], said["scheme"]) == ("10.1.2.3", "https")
    assert "cookie" in said["headers"]
    assert not [name for name in said["headers"] if name.startswith("x-stowage")]


def test_a_body_of_any_size_goes_on(process: Path) -> None:
    for size in (0, 1, 250_000):
        said = json.loads(answer(asked("POST", body=b"x" * size))[2])
        assert (said["method"], said["body"]) == ("POST", size)


def test_a_stream_is_passed_on_as_it_comes_and_ends_with_its_browser(process: Path) -> None:
    GONE.clear()
    sent = asyncio.run(_ask("GET", "/console/stream", b"", stop_after=3))
    assert answer(sent)[2].startswith(b"part 0\npart 1\npart 2\n")
    until(lambda: GONE == ["/console/stream"], what="the stream to end")


def test_the_process_takes_requests_from_the_gate_alone(process: Path) -> None:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(process))
        writer.write(b"GET /console/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        found = await reader.read()
        writer.close()
        return found

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 403")


def test_without_the_process_a_page_says_so(tmp_path: Path, settings: Any) -> None:
    settings.CONSOLE_AT = f"unix:{tmp_path / 'nobody.sock'}"
    status, headers, body = answer(asked())
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert b"The console is not ready yet" in body
    assert b"away.js" in body, "it opens by itself"


def test_only_the_consoles_paths_are_handed_over(settings: Any) -> None:
    settings.CONSOLE_AT = "unix:/x"
    paths = ("/console", "/console/", "/console/nodes/", "/consoles", "/api/v1/pods", "/admin/")
    found = [path for path in paths if proxy.leads_to_console({"path": path})]
    assert found == ["/console", "/console/", "/console/nodes/"]
    settings.CONSOLE_AT = ""
    assert not proxy.leads_to_console({"path": "/console/"})


@pytest.fixture
def stopped(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that takes connections and says nothing, as one that was stopped does."""
    path = tmp_path / "stopped.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        settings.CONSOLE_AT = f"unix:{path}"
        monkeypatch.setattr(proxy, "FIRST_SECONDS", 0.2)
        yield


@pytest.mark.parametrize(
    ("method", "size", "word"),
    [
        ("GET", 0, b"Try again"),  # by hand: a question that takes too long is not repeated
        ("POST", 100, b"may or may not have been made"),
        ("POST", 8 << 20, b"may or may not have been made"),  # more than the socket holds
    ],
)
def test_a_process_that_says_nothing_is_waited_for_so_long_and_no_longer(
    stopped: None, method: str, size: int, word: bytes
) -> None:
    status, _, body = answer(asked(method, body=b"x" * size))
    assert status == 503
    assert b"The console did not answer" in body
    assert word in body
    assert b"away.js" not in body


def test_a_part_of_a_page_has_as_long_as_an_advisors_longest_question(
    stopped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proxy.PART_SECONDS > 60
    monkeypatch.setattr(proxy, "FIRST_SECONDS", 60)
    monkeypatch.setattr(proxy, "PART_SECONDS", 0.2)
    status, _, body = answer(asked(headers=[(b"hx-request", b"true")]))
    assert status == 503
    assert b"The console did not answer" in body


def test_the_consoles_process_yields_where_cpus_are_short() -> None:
    """Open pages ask again whenever something changes, most of all while the API is busy."""
    code = "import os, api.asgi; print(os.nice(0))"
    niceness = [
        int(
            subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | {"STOWAGE_PROCESS": process}, capture_output=True, text=True,
                check=True, cwd=settings.BASE_DIR,
            ).stdout
        )
        for process in ("http", "console")
    ]  # fmt: skip
    assert niceness[1] == min(niceness[0] + proxy.CONSOLE_NICENESS, 19)
