"""Twenty open consoles beside a load on the API: how much later the API answers.

A client posts pods at a steady rate and reads each of them, whether or not the answers come in time
(open loop), on a service of its own with so many nodes. It does so in turns without and with the
consoles: pages that a person has open, which follow the stream of changes and ask for their parts
again as ``static/console/console.js`` does, as often as the stream lets them. Load and consoles run
in processes of their own. The result is the p50, p95 and p99 of each turn, how many seconds of CPU
each part of the service and the pages (``browsers``) took of 100, and the ratio of the p95 of all
turns with the consoles to that of all turns without, for which 1.1 is the goal. Before all that a
browser shows how soon a page tells of a change (`tests.perf.seen`).
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
from tests.perf.scratch import Scratch, cpu_seconds_of
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import node, pod

_WARM_SECONDS = 5.0
_TURNS = 3
_CONNECTIONS = 8
_FLEET = ("Node Pod", ("/console/fleet/columns", "/console/fleet/beside"))
_PACE = "/console/fleet/pace"
_PACE_SECONDS = 15.0
PAGES = (
    _FLEET,
    ("Node Pod", ("/console/nodes/",)),
    ("Pod", ("/console/pods/",)),
    _FLEET,
    ("Pod", ("/console/waiting/",)),
    ("Node:bench-node-00001 Pod@bench-node-00001", ("/console/nodes/bench-node-00001/",)),
    ("Pod Node", ("/console/evictions/",)),
)
"""What each open page shows, and what it asks for again when something of that changes, in turn."""


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
                with _open(service, open_now) as so_far:
                    before = service.cpu_by_part() | so_far()
                    found = _load(service, user, f"t{turn}-{open_now}", rate, seconds)
                    after = service.cpu_by_part() | so_far()
                times[open_now] += found
                results.append(
                    shape | {"open": open_now, "p95_ms": _ms(found, 0.95), **told(found)}
                    | {
                        "parts_per_second": round(after["parts"] / seconds, 1),
                        "cpu_of_100_seconds": {
                            part: round(100 * (spent - before.get(part, 0.0)) / seconds, 1)
                            for part, spent in sorted(after.items()) if part != "parts"
                        },
                    }
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
def _open(service: Scratch, consoles: int) -> Iterator[Callable[[], dict[str, float]]]:
    """Open pages in a process of their own; yields what they have done so far.

    That is how many ``parts`` they were answered, and the CPU time of these ``browsers``.
    """
    if not consoles:
        yield lambda: {"parts": 0}
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
        yield lambda: {
            "parts": int(parts.value), "browsers": cpu_seconds_of(process.pid or 0),
        }  # fmt: skip
    finally:
        stop.set()
        process.join(30)
        process.kill()
        process.join()


def _consoles(url: str, password: str, consoles: int, stop: Any, ready: Any, parts: Any) -> None:
    cookie = _sign_in(url, password)
    for number in range(consoles):
        page = _Page(url, cookie, *PAGES[number % len(PAGES)])
        threading.Thread(target=page.follow, args=(stop,), daemon=True).start()
        threading.Thread(target=page.ask, args=(stop, parts), daemon=True).start()
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


class _Page:
    """An open page: what it heard of, what its parts show, and when it looks again."""

    def __init__(self, url: str, cookie: str, live: str, addresses: tuple[str, ...]) -> None:
        self.url, self.cookie, self.live, self.addresses = url, cookie, live, addresses
        self.due = threading.Event()
        self.pause = 1.0
        self.heard = self.revision = 0
        self.tags: dict[str, str] = {}

    def follow(self, stop: Any) -> None:
        """Follow the stream as an open page does."""
        headers = {"Cookie": self.cookie, "Accept": "text/event-stream"}
        while not stop.is_set():
            connection = _connect(self.url)
            with suppress(OSError, HTTPException):
                query = urlencode({"live": self.live})
                connection.request("GET", f"/console/stream?{query}", headers=headers)
                answer = connection.getresponse()
                is_news = False
                while not stop.is_set() and (line := answer.readline()):
                    if line.startswith(b"event: "):
                        is_news = line.startswith((b"event: change", b"event: resync"))
                    elif line.startswith(b"data: "):
                        about = msgspec.json.decode(line.removeprefix(b"data: "))
                        self.pause = about.get("pause", self.pause)
                        if is_news:
                            self.heard = about["revision"]
                            self.due.set()
            connection.close()
            stop.wait(0.5)

    def ask(self, stop: Any, parts: Any) -> None:
        """Ask for the page's parts when there is news."""
        connection = _connect(self.url)
        paced_at = -_PACE_SECONDS
        while not stop.is_set():
            is_due = self.due.wait(1.0)
            self.due.clear()
            wanted = list(self.addresses) if is_due else []
            if _FLEET[1] == self.addresses and time.monotonic() >= paced_at + _PACE_SECONDS:
                paced_at = time.monotonic()
                wanted.append(_PACE)
            for address in wanted:
                try:
                    status = self._ask(connection, address)
                except (OSError, HTTPException):
                    connection.close()
                    continue
                with parts.get_lock():
                    parts.value += status in (200, 204)
            if is_due:
                stop.wait(self.pause)

    def _ask(self, connection: http.client.HTTPConnection, address: str) -> int:
        headers = {
            "Cookie": self.cookie, "Accept": "text/html", "Accept-Encoding": "gzip",
            "HX-Request": "true",
        }  # fmt: skip
        is_map = address.endswith("columns")
        if address != _PACE:
            headers |= {"Stowage-Heard": str(self.heard), "Stowage-Has": self.tags.get(address, "")}
        since = f"?since={self.revision}" if is_map and self.revision else ""
        connection.request("GET", address + since, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        mark = int(answer.headers.get("Stowage-Mark", self.heard))
        self.tags[address] = "" if is_map else answer.headers.get("Stowage-Tag", "")
        if is_map and answer.status == 200:
            self.revision = mark = msgspec.json.decode(_plain(answer, body))["revision"]
        if mark < self.heard:
            self.due.set()
        return answer.status


def _plain(answer: http.client.HTTPResponse, body: bytes) -> bytes:
    return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
