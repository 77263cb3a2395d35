"""A workload on a whole running service, over HTTP: POST PodLists until all pods are bound."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from scheduling.bench.workloads import Manifest, Template, Workload

_LIST = 1000
_LONGEST = 600.0
Progress = Callable[[str], None]


class ServiceError(RuntimeError):
    """The service answered something else than was asked for."""


class Client:
    """One kept connection to the service."""

    def __init__(self, server: str, token: str) -> None:
        parts = urlsplit(server)
        self._headers = {"Authorization": f"Bearer {token}"}
        self.warnings: list[str] = []
        self._connection = http.client.HTTPConnection(
            parts.hostname or "127.0.0.1", parts.port or 80, timeout=120
        )

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Return the decoded answer; ``warnings`` has its Warning headers.

        Raises:
            ServiceError: it is not a success.
        """
        data = None if body is None else json.dumps(body)
        headers = {**self._headers, "Content-Type": content_type}
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        except ConnectionError:  # the server closed it while it was idle; the next one is new
            self._connection.close()
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        self.warnings = answer.headers.get_all("Warning") or []
        text = answer.read()
        if answer.status >= 300:
            raise ServiceError(f"{method} {path}: {answer.status} {text[:300].decode()}")
        return json.loads(text)

    def create(self, path: str, kind: str, items: list[Manifest]) -> None:
        """Create objects in lists of a thousand."""
        for start in range(0, len(items), _LIST):
            part = items[start : start + _LIST]
            self.call("POST", path, {"apiVersion": "v1", "kind": f"{kind}List", "items": part})

    def unbound(self, namespace: str) -> int:
        """Return how many pods of the namespace have no node."""
        path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D&limit=1"
        answer = self.call("GET", path)
        return len(answer["items"])


def run(
    workload: Workload, nodes: int, *, server: str, token: str, say: Progress
) -> dict[str, Any]:
    """Run a workload once in a namespace of its own; the service should hold no other nodes.

    Raises:
        ServiceError: the service refuses something, or does not bind all pods in ten minutes.
    """
    client = Client(server, token)
    namespace = f"bench-{int(time.time())}"
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    present = len(client.call("GET", f"/api/v1/nodes?limit={nodes + 1}")["items"])
    if present < nodes:
        say(f"{workload.name}: creating {nodes - present} nodes")
        made = [workload.node(number) for number in range(present, nodes)]
        client.create("/api/v1/nodes", "Node", made)
    init = workload.init(nodes)
    if init and workload.init_pod is not None:
        say(f"{workload.name}: {init} pods first")
        client.create(pods, "Pod", _pods(workload.init_pod, 0, init))
        _wait(client, namespace)
    count = workload.measured(nodes)
    say(f"{workload.name}: {count} pods, from the first POST to the last bind")
    manifests = _pods(workload.pod, init, count)
    began = time.perf_counter()
    client.create(pods, "Pod", manifests)
    posted = time.perf_counter() - began
    _wait(client, namespace)
    bound = time.perf_counter() - began
    client.call("DELETE", f"{pods}?gracePeriodSeconds=0")
    client.call("DELETE", f"/api/v1/namespaces/{namespace}")
    return {
        "mode": "service",
        "workload": workload.name,
        "nodes": nodes,
        "pods": count,
        "classes": workload.classes,
        "post_seconds": round(posted, 3),
        "seconds": round(bound, 3),
        "per_second": round(count / bound, 1),
    }


def _pods(template: Template, first: int, count: int) -> list[Manifest]:
    return [template(number) for number in range(first, first + count)]


def _wait(client: Client, namespace: str) -> None:
    end = time.perf_counter() + _LONGEST
    while client.unbound(namespace):
        if time.perf_counter() > end:
            raise ServiceError(f"not all pods of {namespace} were bound in {_LONGEST:.0f} s")
        time.sleep(0.01)
