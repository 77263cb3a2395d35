"""Twenty open consoles beside a load on the API: how much later the API answers.

A client posts pods at a steady rate and reads each of them, whether or not the answers come in time
(open loop), on a service of its own with so many nodes. It does so in turns without and with the
consoles: pages that a person has open, which follow the stream of changes and ask for their parts
again as ``static/console/console.js`` does, as often as the stream lets them. Load and consoles run
in processes of their own. The result is the p50, p95 and p99 of each turn, and the ratio of the p95
of all turns with the consoles to that of all turns without, for which 1.1 is the goal. Before all
that a browser shows how soon a page tells of a change (`tests.perf.seen`).
"""

import gzip
import http.client
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import msgspec

from tests.perf import scratch, seen
from tests.perf.fairness import token, told
from tests.perf.scratch import Scratch
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import node, pod

_WARM_SECONDS = 5.0
_TURNS = 3
_CONNECTIONS = 8
_FLEET = ("/console/fleet/columns", "/console/fleet/beside")
PAGES = (
    _FLEET, ("/console/nodes/",), ("/console/pods/",), _FLEET, ("/console/waiting/",),
    ("/console/nodes/bench-node-00001/",), ("/console/evictions/",),
)  # fmt: skip
"""What is asked for again when something changes, for each page that is open, in turn."""


def run(
    *, nodes: int, consoles: int, rate: float, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the figures of each turn, and the ratio.

    Raises:
        ServiceError: something is refused, or nobody can sign in.
    """
    shape = {"mode": "consoles", "nodes": nodes, "consoles": consoles, "pods_per_second": rate}
    results: list[dict[str, Any]] = []
    times: dict[int, list[float]] = {0: [], consoles: []}
    with scratch.running({}, say) as service:
        client = service.client()
        client.create("/api/v1/nodes", "Node", [node(number) for number in range(nodes)])
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "user"}})
        say("a browser")
        results += seen.run(service, nodes, say)
        user = token(service, "user")
        _load(service, user, "warm", rate, _WARM_SECONDS)
        for turn in range(_TURNS):
            for open_now in (0, consoles):
                say(f"{open_now} consoles open, {seconds:.0f} s")
                with _open(service, open_now) as parts:
                    found = _load(service, user, f"t{turn}-{open_now}", rate, seconds)
                times[open_now] += found
                results.append(
                    shape | {"open": open_now, "p95_ms": _ms(found, 0.95), **told(found)}
                    | {"parts_per_second": round(parts() / seconds, 1)}
                )  # fmt: skip
    ratio = _ms(times[consoles], 0.95) / _ms(times[0], 0.95)
    return [*results, shape | {"what": "ratio", "p95": round(ratio, 2), "met": ratio <= 1.1}]


def _ms(seconds: list[float], share: float) -> float:
    return round(sorted(seconds)[int(len(seconds) * share)] * 1000, 2)


# The load -----------------------------------------------------------------------------------------


def _load(service: Scratch, user: str, prefix: str, rate: float, seconds: float) -> list[float]:
    """Post pods at a rate, read each; return the seconds that each took from when it was due."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: list[float] = pool.apply(_work, (service.url, user, prefix, rate, seconds))
    return found


def _work(url: str, user: str, prefix: str, rate: float, seconds: float) -> list[float]:
    found: list[float] = []
    begin = time.perf_counter() + 0.2
    threads = [
        threading.Thread(target=_worker, args=(url, user, prefix, at, rate, begin, seconds, found))
        for at in range(_CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _worker(
    url: str, user: str, prefix: str, at: int, rate: float, begin: float, seconds: float,
    found: list[float],
) -> None:  # fmt: skip
    client = Client(url, user)
    pods = "/api/v1/namespaces/user/pods"
    for number in range(at, int(rate * seconds), _CONNECTIONS):
        due = begin + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        name = f"{prefix}-{number}"
        manifest = pod(number, cpu="1m", memory="1Mi")
        manifest["metadata"] |= {"name": name, "namespace": "user"}
        client.call("POST", pods, manifest)
        posted = time.perf_counter()
        client.call("GET", f"{pods}/{name}")
        found += [posted - due, time.perf_counter() - posted]


# The consoles -------------------------------------------------------------------------------------


@contextmanager
def _open(service: Scratch, consoles: int) -> Iterator[Callable[[], int]]:
    """Open pages in a process of their own; yields how many parts they have asked for so far."""
    if not consoles:
        yield lambda: 0
        return
    context = multiprocessing.get_context("spawn")
    stop, ready, parts = context.Event(), context.Event(), context.Value("q", 0)
    password = (service.state / "admin-password").read_text().strip()
    process = context.Process(
        target=_consoles, args=(service.url, password, consoles, stop, ready, parts)
    )
    process.start()
    try:
        if not ready.wait(120):
            raise ServiceError("the consoles could not sign in")
        parts.value = 0
        yield lambda: int(parts.value)
    finally:
        stop.set()
        process.join(30)
        process.kill()
        process.join()


def _consoles(url: str, password: str, consoles: int, stop: Any, ready: Any, parts: Any) -> None:
    cookie = _sign_in(url, password)
    for number in range(consoles):
        args = (url, cookie, PAGES[number % len(PAGES)], stop, parts)
        threading.Thread(target=_page, args=args, daemon=True).start()
    ready.set()
    stop.wait()


def _connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)


def _sign_in(url: str, password: str) -> str:
    """Return the cookies of an administrator who signed in."""
    connection = _connect(url)
    connection.request("GET", "/console/sign-in", headers={"Accept": "text/html"})
    answer = connection.getresponse()
    answer.read()
    cookies = _cookies(answer)
    form = {
        "username": "admin", "password": password, "csrfmiddlewaretoken": cookies["stowage-csrf"],
    }  # fmt: skip
    headers = {
        "Accept": "text/html", "Cookie": _as_header(cookies), "Origin": url,
        "Content-Type": "application/x-www-form-urlencoded",
    }  # fmt: skip
    connection.request("POST", "/console/sign-in", urlencode(form), headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 302:
        raise ServiceError(f"sign-in: {answer.status}")
    return _as_header(cookies | _cookies(answer))


def _cookies(answer: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in answer.headers.get_all("Set-Cookie") or []:
        found |= {name: one.value for name, one in SimpleCookie(line).items()}
    return found


def _as_header(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


def _page(url: str, cookie: str, addresses: tuple[str, ...], stop: Any, parts: Any) -> None:
    """Follow the stream as an open page does, and ask for the page's parts when there is news."""
    due = threading.Event()
    pause = [1.0]
    asking = threading.Thread(target=_ask, args=(url, cookie, addresses, due, pause, stop, parts))
    asking.daemon = True
    asking.start()
    headers = {"Cookie": cookie, "Accept": "text/event-stream"}
    while not stop.is_set():
        connection = _connect(url)
        with suppress(OSError, HTTPException):
            connection.request("GET", "/console/stream", headers=headers)
            answer = connection.getresponse()
            while not stop.is_set() and (line := answer.readline()):
                if line.startswith((b"event: change", b"event: resync")):
                    due.set()
                elif line.startswith(b"data: "):
                    about = msgspec.json.decode(line.removeprefix(b"data: "))
                    pause[0] = about.get("pause", pause[0])
        connection.close()
        stop.wait(0.5)


def _ask(
    url: str, cookie: str, addresses: tuple[str, ...], due: threading.Event, pause: list[float],
    stop: Any, parts: Any,
) -> None:  # fmt: skip
    headers = {
        "Cookie": cookie, "Accept": "text/html", "Accept-Encoding": "gzip", "HX-Request": "true",
    }  # fmt: skip
    connection = _connect(url)
    revision = 0
    while not stop.is_set():
        if not due.wait(1.0):
            continue
        due.clear()
        for address in addresses:
            since = f"?since={revision}" if address.endswith("columns") and revision else ""
            try:
                connection.request("GET", address + since, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, HTTPException):
                connection.close()
                continue
            if since or address.endswith("columns"):
                with suppress(msgspec.DecodeError):
                    revision = msgspec.json.decode(_plain(answer, body))["revision"]
            with parts.get_lock():
                parts.value += answer.status == 200
        stop.wait(pause[0])


def _plain(answer: http.client.HTTPResponse, body: bytes) -> bytes:
    return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
