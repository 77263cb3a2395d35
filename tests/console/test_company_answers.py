"""A provider of identities whose answers have no end holds up nobody for long."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from api.console.people import company


class Endless(BaseHTTPRequestHandler):
    """Answers for ever: quickly at one address, a byte now and then at the others."""

    stopped = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        piece, pause = (b" " * 65536, 0.0) if self.path == "/long" else (b" ", 0.05)
        try:
            while not self.stopped.wait(pause):
                self.wfile.write(piece)
        except OSError:
            pass  # who asked had enough

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def endless() -> Iterator[str]:
    Endless.stopped.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Endless.stopped.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("path", ["/long", "/slow"])
def test_an_answer_without_an_end_is_given_up(
    endless: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(company, "_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(company.Away, match="its answer cannot be read"):
        company._ask(f"{endless}{path}")
    assert time.monotonic() - began < 30
