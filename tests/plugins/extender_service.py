"""An extender to ask: a real HTTP server on loopback whose answers a test gives."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Callable[[str, Any], Any]


class Service:
    """An extender: ``answer`` gets the verb and the body; what it returns is the answer.

    ``drip``: seconds between two bytes of an answer, which then never ends.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answer: Answers = lambda verb, body: {"NodeNames": body["NodeNames"]}
        self.status = 200
        self.drip = 0.0
        self.raw: bytes | None = None
        self.connections = 0
        self.stopped = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                service.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                verb = self.path.rpartition("/")[2]
                service.calls.append((verb, body))
                text = service.raw
                if text is None:
                    text = json.dumps(service.answer(verb, body)).encode()
                self.send_response(service.status)
                if service.drip:
                    self.send_header("Content-Length", str(10**9))
                    self.end_headers()
                    self._drip()
                    return
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def _drip(self) -> None:
                self.close_connection = True
                try:
                    while not service.stopped.wait(service.drip):
                        self.wfile.write(b" ")
                except OSError:
                    pass  # the scheduler had enough

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/extender"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving() -> Iterator[Service]:
    """Serve until the block ends."""
    made = Service()
    try:
        yield made
    finally:
        made.stop()
