"""Questions beside the live path: how soon the first is answered, and whom ten askers hold up.

A service of its own with nodes and pods on them. Measured are

* the first question after so many changes, asked the moment the last of them was acknowledged,
  and the same question once more;
* the p99 of one user's requests, alone, while ten people ask, and while ten programs do: where a
  pod would go, and what a drain would do. A person asks a second after the last answer came, about
  as fast as somebody who types; a program asks at once, and takes what the machine gives. The
  askers run in a process of their own.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from tests.perf import fairness, scratch
from tests.perf.scratch import Scratch
from tests.perf.service import Client, ServiceError
from tests.perf.workloads import Manifest, node, pod

_ASKERS = 10
_PAUSES = {"people": 1.0, "programs": 0.0}
"""For how many seconds each kind of asker waits between an answer and the next question."""
_PODS_PER_NODE = 10
_LIST = 1000
_SIMULATIONS = "/apis/stowage.dev/v1/simulations"
_PLANS = "/apis/stowage.dev/v1/plans?dryRun=All"
_VERBS = ("GET", "POST")


def run(
    *, nodes: int, changes: int, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the figures.

    Raises:
        ServiceError: something is refused.
    """
    with scratch.running({}, say) as service:
        client = service.client()
        client.create("/api/v1/nodes", "Node", [node(number) for number in range(nodes)])
        for name in ("user", "churn"):
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        _create(client, "churn", "there", nodes * _PODS_PER_NODE)
        _wait(client, "churn")
        _ask(client)
        say(f"{changes} changes")
        began = time.monotonic()
        made = 0
        while made < changes:  # of each pod: created, bound, deleted
            count = min(_LIST, (changes - made) // 3 + 1)
            _create(client, "churn", f"c{made}", count)
            _wait(client, "churn")
            selector = f"/api/v1/namespaces/churn/pods?labelSelector=round%3Dc{made}"
            client.call("DELETE", selector, {"gracePeriodSeconds": 0})
            made += 3 * count
        took = time.monotonic() - began
        first, again = _ask(client), _ask(client)
        shape = {"mode": "advisor", "nodes": nodes, "pods": nodes * _PODS_PER_NODE}
        results = [
            shape
            | {
                "what": f"a question after {made} changes",
                "changes_a_second": round(made / took),
                "first_ms": round(first * 1000, 1),
                "again_ms": round(again * 1000, 1),
            }
        ]
        user = Client(service.url, fairness.token(service, "user"))
        fairness.work(user, 2.0, "warm")
        say("a user alone")
        alone = fairness.work(user, seconds, "quiet")
        results.append(shape | {"what": "a user alone"} | _told(alone))
        for kind, pause in _PAUSES.items():
            what = f"beside {_ASKERS} {kind} who ask"
            say(what)
            with _asked(service, pause) as answers:
                beside = fairness.work(user, seconds, kind)
                rate = {"answers_a_second": round(answers.value / seconds, 1)}
            results.append(shape | {"what": what} | _told(beside) | rate)
        return results


def _told(found: Mapping[str, list[float]]) -> dict[str, Any]:
    return {verb: fairness.told(found[verb]) for verb in _VERBS}


def _create(client: Client, namespace: str, name: str, count: int) -> None:
    made: list[Manifest] = []
    for number in range(count):
        manifest = pod(number, cpu="10m")
        manifest["metadata"] |= {"name": f"{name}-{number}", "namespace": namespace}
        manifest["metadata"].setdefault("labels", {})["round"] = name
        made.append(manifest)
    client.create(f"/api/v1/namespaces/{namespace}/pods", "Pod", made)


def _wait(client: Client, namespace: str) -> None:
    scratch.until(lambda: not client.unbound(namespace), seconds=300, what="all pods to be bound")


def _ask(client: Client) -> float:
    """Ask where a pod would go; return how long that took in seconds."""
    document = {"spec": {"base": "live", "explain": "none", "pods": [pod(0, cpu="10m")]}}
    began = time.perf_counter()
    client.call("POST", _SIMULATIONS, document)
    return time.perf_counter() - began


@contextmanager
def _asked(service: Scratch, pause: float) -> Iterator[Any]:
    """Have ten others ask for as long as the block runs; yields the count of their answers."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Value("q", 0)
    token = fairness.token(service, "asker")
    askers = context.Process(target=_askers, args=(service.url, token, pause, stop, answers))
    askers.start()
    try:
        time.sleep(2.0)
        with answers.get_lock():
            answers.value = 0
        yield answers
    finally:
        stop.set()
        askers.join(30)
        askers.kill()
        askers.join()


def _askers(url: str, token: str, pause: float, stop: Any, answers: Any) -> None:
    threads = [
        threading.Thread(
            target=_asker, args=(url, token, number, pause, stop, answers), daemon=True
        )
        for number in range(_ASKERS)
    ]
    for thread in threads:
        thread.start()
    stop.wait()


def _asker(url: str, token: str, number: int, pause: float, stop: Any, answers: Any) -> None:
    client = Client(url, token)
    stop.wait(pause * number / _ASKERS)  # people do not ask all at the same moment
    drain = {
        "spec": {"changes": [{"drain": {"nodes": [f"bench-node-{number:05d}"], "force": True}}]}
    }
    count = 0
    while not stop.wait(pause):
        count += 1
        try:
            if count % 2:
                _ask(client)
            else:
                client.call("POST", _PLANS, drain)
            with answers.get_lock():
                answers.value += 1
        except (ServiceError, OSError, HTTPException):  # 429: refused, which is fair
            client = Client(url, token)
