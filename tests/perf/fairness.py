"""One user's flood beside another user: how much longer that one waits, as a figure.

First a user works alone (a POST of a pod and GETs of it, one after another); then beside a flood by
another user: so many connections that post pods and list them as fast as they are answered, and
twenty consoles, each with an open watch and a LIST every second. The result is the p50 and p99 of
both phases and their ratio. The flood's clients run in a process of their own; on a machine with
few cores they take CPU time from the service too, which the ratio then includes.
"""

import hashlib
import multiprocessing
import secrets
import threading
import time
from collections.abc import Callable, Sequence
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


def run(*, nodes: int, connections: int, seconds: float, say: Callable[[str], None]) -> list[Any]:
    """Return the quiet phase, the flooded one and their ratios.

    Raises:
        ServiceError: the user is refused something.
    """
    with scratch.running({}, say) as service:
        service.client().create("/api/v1/nodes", "Node", [node(number) for number in range(nodes)])
        user = Client(service.url, _token(service, "user"))
        flood_token = _token(service, "flood")
        for name in ("user", "flood"):
            body = {"metadata": {"name": name}}
            service.client().call("POST", "/api/v1/namespaces", body)
        _work(user, 2.0, "warm")
        say("a user alone")
        quiet = _work(user, seconds, "quiet")
        say(f"beside {connections} connections and {_CONSOLES} consoles of another user")
        stop = multiprocessing.get_context("spawn").Event()
        flood = multiprocessing.get_context("spawn").Process(
            target=_flood, args=(service.url, flood_token, connections, stop)
        )
        flood.start()
        try:
            time.sleep(2.0)
            flooded = _work(user, seconds, "flooded")
        finally:
            stop.set()
            flood.join(30)
            flood.kill()
        shape = {"mode": "fairness", "nodes": nodes, "connections": connections}
        results = [
            shape | {"what": what, **{verb: _told(found[verb]) for verb in ("GET", "POST")}}
            for what, found in (("alone", quiet), ("beside a flood", flooded))
        ]
        ratios = {
            f"{verb}_p99_ratio": round(_p99(flooded[verb]) / _p99(quiet[verb]), 2)
            for verb in ("GET", "POST")
        }
        return [*results, shape | {"what": "ratio", **ratios}]


def _token(service: Scratch, name: str) -> str:
    """Make a user with a token that may do everything, and return the token."""
    token = secrets.token_urlsafe(24)
    service.query(
        "INSERT INTO api_token (digest, identity, name, groups, created_at)"
        " VALUES (%s, %s, %s, '{system:masters}', now()) RETURNING id",
        (hashlib.sha256(token.encode()).digest(), f"bench:{name}", name),
    )
    return token


def _work(user: Client, seconds: float, prefix: str) -> dict[str, list[float]]:
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


def _told(seconds: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "requests": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "p99_ms": round(_p99(ordered) * 1000, 1),
    }
