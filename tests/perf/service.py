"""A workload on a whole running service, over HTTP: POST PodLists until all pods are decided."""

import hashlib
import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from clusterstate.objects.registry.kinds import KINDS
from tests.perf.workloads import Manifest, Template, Workload

_LIST = 1000
_DEVICES = "resource.k8s.io/v1"
_LONGEST = 600.0
_MADE_FOR = "bench/made-for"
"""Label of the nodes that a benchmark made: which shape of nodes they have."""
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

    def unbound(self, namespace: str, *, limit: int = 1) -> list[Manifest]:
        """Return up to ``limit`` pods of the namespace that have no node."""
        path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D&limit={limit}"
        items: list[Manifest] = self.call("GET", path)["items"]
        return items


def run(
    workload: Workload, nodes: int, *, server: str, token: str, say: Progress
) -> dict[str, Any]:
    """Run a workload once in a namespace of its own.

    Raises:
        ServiceError: the service has nodes of somebody else, refuses something, or does not decide
            all pods in ten minutes.
    """
    client = Client(server, token)
    nodes = workload.node_count or nodes
    _provide_nodes(client, workload, nodes, say)
    namespace = f"bench-{int(time.time())}"
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    if workload.service is not None:
        services = [workload.service(number) for number in range(workload.services)]
        for manifest in services:
            manifest["metadata"].pop("namespace", None)
        client.create(f"/api/v1/namespaces/{namespace}/services", "Service", services)
    _provide_devices(client, workload, nodes, namespace)
    init = workload.init(nodes)
    if init and workload.init_pod is not None:
        say(f"{workload.name}: {init} pods first")
        client.create(pods, "Pod", _pods(workload.init_pod, 0, init))
        _wait(client, namespace)
    count = workload.measured(nodes)
    say(f"{workload.name}: {count} pods, from the first POST to the last decision")
    manifests = _pods(workload.template(nodes), init, count)
    began = time.perf_counter()
    client.create(pods, "Pod", manifests)
    posted = time.perf_counter() - began
    unbound = _wait(client, namespace, all_fit=not (workload.refused or workload.overfull))
    decided = time.perf_counter() - began
    client.call("DELETE", f"{pods}?gracePeriodSeconds=0")
    client.call("DELETE", f"/api/v1/namespaces/{namespace}")
    return {
        "mode": "service",
        "workload": workload.name,
        "nodes": nodes,
        "pods": count,
        "placed": count - unbound,
        "classes": workload.classes,
        "post_seconds": round(posted, 3),
        "seconds": round(decided, 3),
        "per_second": round(count / decided, 1),
    }


def _provide_nodes(client: Client, workload: Workload, nodes: int, say: Progress) -> None:
    """Let the service hold exactly the nodes of the workload.

    A node that another run of a benchmark left is used again if it is as this workload wants it,
    and deleted if it is not.

    Raises:
        ServiceError: a node is there that no benchmark made. Pods could land on it, or the
            benchmark's pods might wait for ever.
    """
    present: dict[str, str] = {}
    token = ""
    while True:
        answer = client.call("GET", f"/api/v1/nodes?limit=5000&continue={token}")
        for item in answer["items"]:
            labels = item["metadata"].get("labels", {})
            present[item["metadata"]["name"]] = labels.get(_MADE_FOR, "")
        if not (token := answer["metadata"].get("continue", "")):
            break
    foreign = sorted(name for name, made_for in present.items() if not made_for)
    if foreign:
        raise ServiceError(
            f"it holds {len(foreign)} nodes that no benchmark made, such as {foreign[0]}: measure a"
            " service without nodes (make up with another STOWAGE_STATE), or delete those first"
        )
    shape = _shape(workload)
    wanted = {}
    for number in range(nodes):
        manifest = workload.node(number)
        manifest["metadata"]["labels"][_MADE_FOR] = shape
        wanted[manifest["metadata"]["name"]] = manifest
    leave = [name for name, made_for in present.items() if made_for != shape or name not in wanted]
    if leave:
        say(f"{workload.name}: deleting {len(leave)} nodes of an earlier run")
        for name in leave:
            client.call("DELETE", f"/api/v1/nodes/{name}")
            del present[name]
    made = [manifest for name, manifest in wanted.items() if name not in present]
    if made:
        say(f"{workload.name}: creating {len(made)} nodes")
        client.create("/api/v1/nodes", "Node", made)


def _provide_devices(client: Client, workload: Workload, nodes: int, namespace: str) -> None:
    """Let the service hold exactly the devices of the workload, and the template of its claims."""
    if workload.template_of_claims is None:
        return
    by_kind: dict[str, list[Manifest]] = {"DeviceClass": [], "ResourceSlice": []}
    for manifest in workload.objects(nodes):
        by_kind[manifest["kind"]].append({"apiVersion": _DEVICES, **manifest})
    for kind, manifests in by_kind.items():
        path = f"/apis/{_DEVICES}/{KINDS[kind].plural}"
        client.call("DELETE", path)
        client.create(path, kind, manifests)
    template = {"apiVersion": _DEVICES, **workload.template_of_claims}
    template["metadata"] = {"name": template["metadata"]["name"]}
    client.call("POST", f"/apis/{_DEVICES}/namespaces/{namespace}/resourceclaimtemplates", template)


def _shape(workload: Workload) -> str:
    """Return a label value that is the same for workloads with equal nodes."""
    text = json.dumps([workload.node(number) for number in range(2)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pods(template: Template, first: int, count: int) -> list[Manifest]:
    return [template(number) for number in range(first, first + count)]


def _wait(client: Client, namespace: str, *, all_fit: bool = True) -> int:
    """Wait until all pods of the namespace are bound; return how many are not.

    Without ``all_fit`` a pod that was tried and refused counts as decided, too.
    """
    end = time.perf_counter() + _LONGEST
    while True:
        waiting = client.unbound(namespace, limit=1 if all_fit else 100_000)
        if not waiting or (not all_fit and all(map(_was_refused, waiting))):
            return len(waiting)
        if time.perf_counter() > end:
            raise ServiceError(f"not all pods of {namespace} were decided in {_LONGEST:.0f} s")
        time.sleep(0.01 if all_fit else 0.2)


def _was_refused(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
