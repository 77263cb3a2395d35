"""One user's flood beside another user: how much longer that one waits, as a figure.

A user posts a pod and reads it, one request after another. A flood is another user: so many
connections that post pods and list them as fast as they are answered, and twenty consoles, each
with an open watch and a LIST every second. The user works in three phases:

* alone;
* beside that flood of *another service* on the same machine, which shares nothing with the user's
  but the processors and the disk: how much longer the user waits then is the machine's part;
* beside the flood of the same service.

The result is the p50 and p99 of each phase, and the ratio of the third one to the others. The
ratio to the first includes the machine's part, which is large where clients, database and service
share few processors; the ratio to the second is what the service itself adds to it, or takes away
by holding the flood back. The flood's clients run in a process of their own.
"""

import hashlib
import multiprocessing
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from tests.perf import scratch
from tests.perf.scratch import Scratch
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import node, pod

_CONSOLES = 20
_LIST = 500
_PAUSE = 0.01
_GETS = 4
"""GETs of the user for each of its POSTs."""
_RISE_SECONDS = 2.0
_VERBS = ("GET", "POST")
ALONE, ELSEWHERE, FLOODED = "alone", "beside a flood elsewhere", "beside a flood"


def run(*, nodes: int, connections: int, seconds: float, say: Callable[[str], None]) -> list[Any]:
    """Return the three phases and the ratios of the last one to the others.

    Raises:
        ServiceError: the user is refused something.
    """
    with scratch.running({}, say) as service, scratch.running({}, say) as other:
        for one in (service, other):
            one.client().create("/api/v1/nodes", "Node", [node(n) for n in range(nodes)])
            for name in ("user", "flood"):
                body = {"metadata": {"name": name}}
                one.client().call("POST", "/api/v1/namespaces", body)
        user = Client(service.url, token(service, "user"))
        work(user, 2.0, "warm")
        say("a user alone")
        found = {ALONE: work(user, seconds, "quiet")}
        say(f"beside {connections} connections and {_CONSOLES} consoles at another service")
        with _flooded(other, connections):
            found[ELSEWHERE] = work(user, seconds, "elsewhere")
        say(f"beside {connections} connections and {_CONSOLES} consoles of another user")
        with _flooded(service, connections):
            found[FLOODED] = work(user, seconds, "flooded")
    shape = {"mode": "fairness", "nodes": nodes, "connections": connections}
    results = [
        shape | {"what": what, **{verb: told(times[verb]) for verb in _VERBS}}
        for what, times in found.items()
    ]
    ratios = {
        f"{verb}_p99_to_{what.replace(' ', '_')}": round(
            _p99(found[FLOODED][verb]) / _p99(found[what][verb]), 2
        )
        for verb in _VERBS
        for what in (ALONE, ELSEWHERE)
    }
    return [*results, shape | {"what": "ratio", **ratios}]


@contextmanager
def _flooded(service: Scratch, connections: int) -> Iterator[None]:
    """Flood a service for as long as the block runs; begins when the flood has risen."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    flood = context.Process(
        target=_flood, args=(service.url, token(service, "flood"), connections, stop)
    )
    flood.start()
    try:
        time.sleep(_RISE_SECONDS)
        yield
    finally:
        stop.set()
        flood.join(30)
        flood.kill()
        flood.join()
        time.sleep(_RISE_SECONDS)


def token(service: Scratch, name: str) -> str:
    """Make a user with a token that may do everything, and return the token."""
    token = secrets.token_urlsafe(24)
    service.query(
        "INSERT INTO api_token (digest, identity, name, groups, created_at)"
        " VALUES (%s, %s, %s, '{system:masters}', now()) RETURNING id",
        (hashlib.sha256(token.encode()).digest(), f"bench:{name}", name),
    )
    return token


def work(user: Client, seconds: float, prefix: str) -> dict[str, list[float]]:
    """Post and read pods for so long; return how long each request took, by verb."""
    found: dict[str, list[float]] = {"POST": [], "GET": []}
    end = time.monotonic() + seconds
    number = 0
    pods = "/api/v1/namespaces/user/pods"
    while time.monotonic() < end:
        name = f"{prefix}-{number}"
        number += 1
        manifest = pod(number, cpu="1m")
        manifest["metadata"] |= {"name": name, "namespace": "user"}
        asked = [("POST", pods, manifest)] + [("GET", f"{pods}/{name}", None)] * _GETS
        for verb, path, body in asked:
            began = time.perf_counter()
            user.call(verb, path, body)
            found[verb].append(time.perf_counter() - began)
            time.sleep(_PAUSE)
    return found


def _flood(url: str, token: str, connections: int, stop: Any) -> None:
    """Be the other user, in a process of its own, until told to stop."""
    threads = [
        threading.Thread(target=_hammer, args=(url, token, number, stop), daemon=True)
        for number in range(connections)
    ]
    threads += [
        threading.Thread(target=_console, args=(url, token, stop), daemon=True)
        for _ in range(_CONSOLES)
    ]
    for thread in threads:
        thread.start()
    stop.wait()


def _hammer(url: str, token: str, number: int, stop: Any) -> None:
    client = Client(url, token)
    pods = "/api/v1/namespaces/flood/pods"
    count = 0
    while not stop.is_set():
        count += 1
        manifest = pod(count, cpu="1m")
        manifest["metadata"] |= {"name": f"f-{number}-{count}", "namespace": "flood"}
        try:
            client.call("POST", pods, manifest)
            if count % 10 == 0:
                client.call("GET", f"{pods}?limit={_LIST}")
        except (ServiceError, OSError, HTTPException):  # 429: the flood is refused, which is fair
            client = Client(url, token)


def _console(url: str, token: str, stop: Any) -> None:
    client = Client(url, token)
    watch = threading.Thread(target=_watch, args=(url, token, stop), daemon=True)
    watch.start()
    while not stop.is_set():
        try:
            client.call("GET", f"/api/v1/pods?limit={_LIST}")
        except (ServiceError, OSError, HTTPException):
            client = Client(url, token)
        stop.wait(1.0)


def _watch(url: str, token: str, stop: Any) -> None:
    import http.client

    address = url.removeprefix("http://")
    while not stop.is_set():
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", "/api/v1/pods?watch=true&timeoutSeconds=60", headers=headers)
            answer = connection.getresponse()
            while not stop.is_set() and answer.read(1 << 16):
                pass
        except (OSError, HTTPException):
            stop.wait(0.5)
        finally:
            connection.close()


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def told(seconds: Sequence[float]) -> dict[str, Any]:
    """Return how many there were, and p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {
        "requests": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "p99_ms": round(_p99(ordered) * 1000, 1),
    }
