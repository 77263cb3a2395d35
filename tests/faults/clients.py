"""The clients: they write and read as users do, hold the cluster full, and remember what was told.

Each has a connection and a generator of its own. What one tried to do to a pod is known to the
audit (`Meddling`), which asks why pods leave.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.faults import arithmetic, replay, rules, world
from tests.faults.history import FAILED, OK, UNKNOWN, History, Operation
from tests.faults.replay import Object, State
from tests.faults.wire import MERGE, NoAnswer, Wire

LOW, HIGH = 0.70, 0.95
_AIM_LOW, _AIM_HIGH = 0.78, 0.90
_MANY = 50
"""So many waiting pods are enough."""
_CLOSED = 3
"""So many nodes at most are tainted or cordoned at a time."""


class Meddling:
    """What clients tried to do to pods, by uid; written before it is sent."""

    def __init__(self) -> None:
        self._by_uid: dict[str, set[str]] = defaultdict(set)
        self._deleted_nodes: set[str] = set()

    def tries(self, uid: str, what: str) -> None:
        self._by_uid[uid].add(what)

    def deletes_node(self, name: str) -> None:
        self._deleted_nodes.add(name)

    def of(self, pod: Object) -> set[str]:
        """Return what was tried with a pod or with its node."""
        found = set(self._by_uid.get(replay.uid_of(pod), ()))
        if replay.labels_of(pod).get("app") == world.CANARY:
            found.add("delete")
        if replay.node_of(pod) in self._deleted_nodes:
            found.add("node")
        return found


def fullness(state: State) -> float:
    """Return the share of CPU or memory that is taken, whichever is larger, without the canary."""
    taken: arithmetic.Amounts = {}
    offered: arithmetic.Amounts = {}
    for name, node in state.nodes.items():
        if name != world.CANARY:
            arithmetic.add(offered, arithmetic.amounts(node["status"]["allocatable"]))
    for pod in state.pods.values():
        name = replay.node_of(pod)
        if name in state.nodes and name != world.CANARY and not replay.finished(pod):
            arithmetic.add(taken, arithmetic.requests(pod))
    shares = [taken.get(name, 0) / offered[name] for name in ("cpu", "memory") if name in offered]
    return max(shares, default=0.0)


class Client(threading.Thread):
    """One client; ``gate`` is closed while the cluster rests."""

    def __init__(
        self, name: str, wire: Wire, history: History, meddling: Meddling, rng: random.Random,
        *, view: Callable[[], State], full: Callable[[], float], gate: threading.Event,
        pause: float,
    ) -> None:  # fmt: skip
        super().__init__(name=name, daemon=True)
        self.resting = threading.Event()
        self._wire = wire
        self._history = history
        self._meddling = meddling
        self._rng = rng
        self._view = view
        self._full = full
        self._gate = gate
        self._pause = pause
        self._number = 0
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self._gate.is_set():
                self.resting.set()
                self._gate.wait(0.2)
                continue
            self.resting.clear()
            self._act(self._view())
            self._stopping.wait(self._pause * self._rng.uniform(0.5, 1.5))

    def stop(self) -> None:
        self._stopping.set()
        self._wire.cut()

    # One request

    def _send(
        self, verb: str, name: str, method: str, path: str, body: Any = None, *,
        content: str = "application/json", **detail: Any,
    ) -> Operation:  # fmt: skip
        one = self._history.begin(self.name, verb, name, **detail)
        try:
            status, answer = self._wire.call(method, path, body, content)
        except NoAnswer:
            self._history.end(one, UNKNOWN)
            return one
        if status == 500:
            one.detail["answer"] = str(answer)[:300]
        outcome = OK if status < 300 else FAILED if status < 500 else UNKNOWN
        metadata = answer.get("metadata", {}) if isinstance(answer, dict) else {}
        revision = metadata.get("resourceVersion")
        counts = outcome == OK and not detail.get("dry") and revision
        if method == "GET" and isinstance(answer, dict) and "items" in answer:
            one.detail["count"] = len(answer["items"])
        self._history.end(
            one, outcome, status=status, revision=int(revision) if counts else 0,
            uid=str(metadata.get("uid", "")) if outcome == OK else "",
        )  # fmt: skip
        return one

    def _new_name(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    # What a client does

    def _act(self, state: State) -> None:
        full = self._full()
        pods = [pod for pod in state.pods.values() if not replay.leaving(pod)]
        pods = [pod for pod in pods if replay.labels_of(pod).get("app") != world.CANARY]
        waiting = sum(1 for pod in pods if not replay.node_of(pod))
        create = 0 if waiting > 150 else 25 if full < _AIM_LOW else 2 if full > _AIM_HIGH else 6
        delete = 14 if full > _AIM_HIGH else 1 if full < _AIM_LOW else 4
        if waiting > _MANY:
            delete += 6
        actions: list[tuple[float, Callable[[list[Object], State], Any]]] = [
            (create, self._create), (create / 6, self._create_list), (0.5, self._dry_run),
            (delete, self._delete_pod), (2, self._mark), (1, self._tolerate), (1.5, self._taint),
            (0.4, self._cordon), (1, self._evict), (1, self._bind), (1, self._ungate),
            (0.5, self._list), (1.5, self._get), (0.3, self._scale), (0.1, self._renew_node),
        ]  # fmt: skip
        chosen = self._rng.choices(
            [action for _, action in actions], [weight for weight, _ in actions]
        )[0]
        chosen(pods, state)

    def _create(self, pods: list[Object], state: State) -> None:
        name = self._new_name()
        self._send(
            "create pod", f"{world.SPACE}/{name}", "POST", world.PODS, world.pod(name, self._rng)
        )

    def _create_list(self, pods: list[Object], state: State) -> None:
        items = [world.pod(self._new_name(), self._rng) for _ in range(self._rng.randrange(2, 12))]
        names = [f"{world.SPACE}/{item['metadata']['name']}" for item in items]
        body = {"apiVersion": "v1", "kind": "PodList", "items": items}
        self._send("create pods", names[0], "POST", world.PODS, body, names=names)

    def _dry_run(self, pods: list[Object], state: State) -> None:
        name = f"dry-{self._new_name()}"
        body = world.pod(name, self._rng)
        self._send(
            "create pod",
            f"{world.SPACE}/{name}",
            "POST",
            f"{world.PODS}?dryRun=All",
            body,
            dry=True,
        )

    def _delete_pod(self, pods: list[Object], state: State) -> None:
        mine = [pod for pod in pods if not pod["metadata"].get("ownerReferences")]
        if not mine:
            return
        waiting = [pod for pod in mine if not replay.node_of(pod)]
        # Rather those that wait, when many do: the cluster stays full.
        pod = self._rng.choice(
            waiting if len(waiting) > _MANY and self._rng.random() < 0.8 else mine
        )
        self._meddling.tries(replay.uid_of(pod), "delete")
        path = f"{world.PODS}/{pod['metadata']['name']}"
        grace = self._rng.choice((0, 0, 1, 3))
        body = {
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace,
            "preconditions": {"uid": replay.uid_of(pod)},
        }  # fmt: skip
        self._send("delete pod", replay.key_of(pod), "DELETE", path, body, uid=replay.uid_of(pod))

    def _mark(self, pods: list[Object], state: State) -> None:
        if self._rng.random() < 0.3 and state.nodes:
            name = self._rng.choice(sorted(state.nodes))
            item, path = state.nodes[name], f"/api/v1/nodes/{name}"
        elif pods:
            item = self._rng.choice(pods)
            path = f"{world.PODS}/{item['metadata']['name']}"
        else:
            return
        uid, mark = replay.uid_of(item), self._new_name()
        # A node of the same name may be another one by now.
        body = {"metadata": {"uid": uid, "labels": {world.MARK: mark}}}
        if not _CLAIMS.take(uid):
            return
        try:
            self._send("patch", replay.key_of(item), "PATCH", path, body, content=MERGE, mark=mark,
                       uid=uid)  # fmt: skip
        finally:
            _CLAIMS.give(uid)

    def _tolerate(self, pods: list[Object], state: State) -> None:
        """Add a toleration, as Kubernetes allows for a pod that exists."""
        bound = [pod for pod in pods if replay.node_of(pod)]
        if not bound:
            return
        pod = self._rng.choice(bound)
        tolerations = pod["spec"].get("tolerations") or []
        if len(tolerations) > 5 or not _CLAIMS.take(replay.uid_of(pod)):
            return
        added = {
            "key": world.WEAR, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": self._rng.choice((5, 60, 600)),
        }  # fmt: skip
        body = {
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "spec": {"tolerations": [*tolerations, added]},
        }
        path = f"{world.PODS}/{pod['metadata']['name']}"
        try:
            self._send("patch", replay.key_of(pod), "PATCH", path, body, content=MERGE)
        finally:
            _CLAIMS.give(replay.uid_of(pod))

    def _any_node(self, state: State) -> Object | None:
        names = [f"n{number}" for number in range(world.STEADY, world.NODES)]
        there = [state.nodes[name] for name in names if name in state.nodes]
        return self._rng.choice(there) if there else None

    def _taint(self, pods: list[Object], state: State) -> None:
        node = self._any_node(state)
        if node is None:
            return
        others = [
            taint
            for taint in node["spec"].get("taints") or ()
            if taint["key"] not in (world.WEAR, "soak.example/kept")
        ]
        draw, closed = self._rng.random(), self._closed(state) >= _CLOSED
        if draw < 0.4 and not closed:
            others.append({"key": world.WEAR, "value": "old", "effect": "NoExecute"})
        elif draw < 0.6 and not closed:
            others.append({"key": "soak.example/kept", "effect": "NoSchedule"})
        self._patch_node(node, {"spec": {"taints": others}})

    def _cordon(self, pods: list[Object], state: State) -> None:
        node = self._any_node(state)
        if node is not None:
            cordon = self._rng.random() < 0.5 and self._closed(state) < _CLOSED
            self._patch_node(node, {"spec": {"unschedulable": cordon or None}})

    def _closed(self, state: State) -> int:
        """Return how many nodes take nobody now."""
        names = [f"n{number}" for number in range(world.NODES)]
        found = [state.nodes[name]["spec"] for name in names if name in state.nodes]
        away = len(names) - len(found)
        return away + sum(1 for one in found if one.get("unschedulable") or one.get("taints"))

    def _patch_node(self, node: Object, body: Object) -> None:
        name = node["metadata"]["name"]
        body["metadata"] = {"resourceVersion": node["metadata"]["resourceVersion"]}
        self._send("set", name, "PATCH", f"/api/v1/nodes/{name}", body, content=MERGE)

    def _renew_node(self, pods: list[Object], state: State) -> None:
        """Delete a node with all that is on it, or bring one back."""
        missing = [n for n in range(world.NODES) if f"n{n}" not in state.nodes]
        if missing:
            number = self._rng.choice(missing)
            self._send("create node", f"n{number}", "POST", "/api/v1/nodes", world.node(number))
            return
        node = self._any_node(state)
        if node is not None:
            name = node["metadata"]["name"]
            self._meddling.deletes_node(name)
            self._send("delete node", name, "DELETE", f"/api/v1/nodes/{name}")

    def _evict(self, pods: list[Object], state: State) -> None:
        guarded = [pod for pod in pods if replay.labels_of(pod).get("app") == "guarded"]
        bound = [
            pod for pod in (guarded if self._rng.random() < 0.7 else pods) if replay.node_of(pod)
        ]
        if not bound:
            return
        pod = self._rng.choice(bound)
        name = pod["metadata"]["name"]
        self._meddling.tries(replay.uid_of(pod), "evict")
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": world.SPACE},
        }  # fmt: skip
        self._send("evict", replay.key_of(pod), "POST", f"{world.PODS}/{name}/eviction", body)

    def _bind(self, pods: list[Object], state: State) -> None:
        loose = [
            pod for pod in pods
            if pod["spec"].get("schedulerName") == "nobody" and not replay.node_of(pod)
        ]  # fmt: skip
        if not loose:
            return
        pod = self._rng.choice(loose)
        name = pod["metadata"]["name"]
        fitting = [n for n, one in state.nodes.items() if not rules.refuses(state, pod, one)]
        if not fitting:
            return
        self._meddling.tries(replay.uid_of(pod), "bind")
        node = self._rng.choice(sorted(fitting))
        body = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        self._send("bind", replay.key_of(pod), "POST", f"{world.PODS}/{name}/binding", body)

    def _ungate(self, pods: list[Object], state: State) -> None:
        gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
        if not gated:
            return
        pod = self._rng.choice(gated)
        path = f"{world.PODS}/{pod['metadata']['name']}"
        body = {"spec": {"schedulingGates": None}}
        self._send("set", replay.key_of(pod), "PATCH", path, body, content=MERGE)

    def _list(self, pods: list[Object], state: State) -> None:
        selector = self._rng.choice(("", "?labelSelector=app%3Dplain"))
        self._send("list", f"pods{selector}", "GET", world.PODS + selector)

    def _get(self, pods: list[Object], state: State) -> None:
        if pods:
            pod = self._rng.choice(pods)
            name = pod["metadata"]["name"]
            self._send("get", replay.key_of(pod), "GET", f"{world.PODS}/{name}")

    def _scale(self, pods: list[Object], state: State) -> None:
        name = self._rng.choice(sorted(world.WORKLOADS))
        usual = world.WORKLOADS[name]
        replicas = usual + self._rng.choice((-1, 0, 2))
        body = {"spec": {"replicas": replicas}}
        self._send(
            "scale", name, "PATCH", f"{world.DEPLOYMENTS}/{name}", body, content=MERGE,
            replicas=replicas,
        )  # fmt: skip


class _Claims:
    """One writer at a time for what is judged by its last write."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    def take(self, uid: str) -> bool:
        with self._lock:
            if uid in self._taken:
                return False
            self._taken.add(uid)
            return True

    def give(self, uid: str) -> None:
        with self._lock:
            self._taken.discard(uid)


_CLAIMS = _Claims()


class Agent(threading.Thread):
    """Plays the kubelets of the guarded pods: says that they are ready, and ends them."""

    def __init__(self, wire: Wire, view: Callable[[], State]) -> None:
        super().__init__(name="agent", daemon=True)
        self._wire = wire
        self._view = view
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.3):
            for pod in list(self._view().pods.values()):
                if replay.labels_of(pod).get("app") != "guarded" or not replay.node_of(pod):
                    continue
                if replay.leaving(pod) or (replay.condition(pod, "Ready") is not None):
                    continue
                path = f"/api/v1/namespaces/{world.SPACE}/pods/{pod['metadata']['name']}/status"
                ready = {"type": "Ready", "status": "True"}
                kept = [
                    one for one in pod["status"].get("conditions") or () if one["type"] != "Ready"
                ]
                body = {
                    "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
                    "status": {"phase": "Running", "conditions": [*kept, ready]},
                }
                try:
                    self._wire.call("PATCH", path, body, MERGE)
                except NoAnswer:
                    break

    def stop(self) -> None:
        self._stopping.set()
        self._wire.cut()
