"""The checkers of the advisor and of the console find what is wrong, and only that."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.faults import asked, checkers
from tests.faults.replay import Object, State
from tests.faults.wire import Wire

PASSWORD = "right"
Advisor = Callable[[str], tuple[int, int]]


def node(name: str) -> Object:
    offer = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": offer}}


def pod(cpu: str, *, on: str = "", nominated: str = "") -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Mi"}}
    return {
        "metadata": {"name": "p", "namespace": "soak", "uid": f"uid-{on}{nominated}"},
        "spec": {"containers": [{"resources": resources}], **({"nodeName": on} if on else {})},
        "status": {"nominatedNodeName": nominated} if nominated else {},
    }


@contextmanager
def service(advisor: Advisor, shown: list[str], console: int = 200) -> Iterator[int]:
    """Serve an advisor's answers, and a console with a sign-in; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == asked.SIGN_IN:
                form = '<input type="hidden" name="csrfmiddlewaretoken" value="t">'
                self.answer(200, form, cookie="c=1; Path=/")
            elif "session=s" not in (self.headers["Cookie"] or "") and console == 200:
                self.answer(302, "", cookie="x=y")
            else:
                links = "".join(f'<a href="/console/nodes/{one}/">{one}</a>' for one in shown)
                self.answer(console, links + '<a href="/console/nodes/csv">CSV</a>')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path == asked.SIGN_IN:
                signed = f"password={PASSWORD}" in body and "csrfmiddlewaretoken=t" in body
                self.answer(302, "", cookie="session=s; HttpOnly" if signed else "x=y")
                return
            (name,) = re.findall(r'"kubernetes.io/hostname": "([^"]+)"', body)
            status, fits = advisor(name)
            said = {"status": {"fits": fits}} if status == 201 else {"message": "no advisor"}
            self.answer(status, json.dumps(said))

        def answer(self, status: int, text: str, cookie: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if cookie:
                self.send_header("Set-Cookie", cookie)
            self.end_headers()
            self.wfile.write(text.encode())

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


# Three pods of 30m on 1 CPU with 900m taken; what is nominated takes 60m more.
STATE = State({"n1": node("n1")}, {"a": pod("900m", on="n1"), "b": pod("60m", nominated="n1")})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((201, 3), []),
        ((201, 1), []),
        ((201, 4), [checkers.ADVICE]),
        ((201, 0), [checkers.ADVICE]),
        ((503, 0), [checkers.ADVICE]),
    ],
)
def test_what_the_advisor_says_is_compared_with_arithmetic(
    said: tuple[int, int], expected: list[str]
) -> None:
    with service(lambda _: said, []) as port:
        wire = Wire(port, lambda: "", seconds=10)
        found = asked.advice_violations(STATE, wire, ["n1", "gone"])
        wire.close()
    assert [one.column for one in found] == expected


@pytest.mark.parametrize(
    ("shown", "status", "password", "expected"),
    [
        (["n1"], 200, PASSWORD, []),
        (["n1", "n2"], 200, PASSWORD, [checkers.CONSOLE]),
        ([], 200, PASSWORD, [checkers.CONSOLE]),
        (["n1"], 503, PASSWORD, [checkers.CONSOLE]),
        (["n1"], 200, "wrong", [checkers.CONSOLE]),
    ],
)
def test_a_page_that_is_wrong_or_not_there_is_found(
    shown: list[str], status: int, password: str, expected: list[str]
) -> None:
    with service(lambda _: (201, 1), shown, status) as port:
        visitor = asked.Visitor(port, lambda: password)
        found = asked.console_violations(STATE, visitor)
        again = asked.console_violations(STATE, visitor)
    assert [one.column for one in found] == expected
    assert [one.column for one in again] == expected


def test_who_is_silent_is_named() -> None:
    with service(lambda _: (503, 0), ["n1"]) as port:
        wire = Wire(port, lambda: "", seconds=10)
        asking = asked.Asking(wire, asked.Visitor(port, lambda: PASSWORD))
        (told,) = asking.silent(0.5)
        wire.close()
    assert told.startswith("the advisor")
    assert asking.silent(0.1)[1].startswith("the console")
