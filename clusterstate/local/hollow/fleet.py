"""Agents without machines: they register nodes, and run the pods that are bound to them.

::

    register   POST node, POST lease, PATCH status (Ready)
    heartbeat  PATCH lease, each node in its turn of the period; a node that a client set to not
               ready becomes Ready again, with its capacity as allocatable
    watch      pod on a node of the fleet -> the status of `pods.report`, at its time;
               terminating -> DELETE with grace 0, when it has stopped
    script     ``lose 200@30``: after 30 seconds, 200 nodes stop heartbeats and reports
"""

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from clusterstate.local.hollow import addresses, commands, devices, pods
from clusterstate.local.hollow.addresses import PodNetwork
from clusterstate.local.hollow.connection import Answer, Connection
from clusterstate.local.hollow.devices import Driver
from clusterstate.local.hollow.directories import Directories
from clusterstate.local.hollow.resizes import Room
from clusterstate.objects.rules import resizing
from clusterstate.objects.rules.declared_features import POD_LEVEL_RESIZE
from clusterstate.objects.values.quantity import Quantity

logger = structlog.get_logger(__name__)

MERGE = "application/merge-patch+json"
_CONFLICT, _NOT_FOUND = 409, 404
_AGAIN = (0, _CONFLICT, 429)
_STRICT = "?fieldValidation=Strict"
"""Makes the API refuse a slice with unknown fields, since slices come from a file."""


class Script(msgspec.Struct, frozen=True):
    """At ``second`` after the fleet is up, ``count`` nodes are lost or come back."""

    second: float
    count: int
    lose: bool


def parse_script(text: str, *, lose: bool) -> Script:
    """Return ``COUNT@SECOND`` as a step.

    Raises:
        ValueError: the text is not of that form.
    """
    count, sign, second = text.partition("@")
    if not sign:
        raise ValueError(f"{text!r} is not of the form COUNT@SECOND, such as 20@60")
    return Script(float(second), int(count), lose)


class Fleet:
    """Nodes and their simulated agents."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        count: int,
        prefix: str,
        allocatable: dict[str, str],
        zones: int,
        period: float,
        connections: int,
        stop_seconds: float,
        seed: int,
        say: Callable[[str], None],
        leaving: dict[str, float] | None = None,
        events: bool = False,
        job_seconds: float | None = None,
        drivers: Sequence[Driver] = (),
    ) -> None:
        """Create the agents; ``run`` starts them.

        ``job_seconds``: after these seconds Jobs' pods end if their command would run for ever.
        ``drivers``: drivers whose devices the nodes have; each node publishes its slices.
        ``events``: write an Event for each pod that starts, as kubelets do. ``leaving``: optional
        dict that receives, for each of the fleet's pods, uid -> time at which a watch first showed
        it terminating (seconds since the epoch). It is never trimmed.
        """
        self._connect = connect
        self.names = [f"{prefix}{number:05}" for number in range(count)]
        self._mine = set(self.names)
        self._allocatable = allocatable
        self._zones = zones
        self._period = period
        self._pool: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(connections):
            self._pool.put_nowait(connect())
        # Heartbeats do not wait behind a thousand pods.
        self._beat_pool: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(connections):
            self._beat_pool.put_nowait(connect())
        self._stop_seconds = stop_seconds
        self._random = random.Random(seed)  # noqa: S311  # which nodes are lost, not a secret
        self._say = say
        self.lost: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        most = int(allocatable.get("pods", "110"))
        self._networks = {name: PodNetwork(number, most) for number, name in enumerate(self.names)}
        self._hosts = {name: addresses.of_node(number) for number, name in enumerate(self.names)}
        self._wakes: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        """The loop's time at which a pod next changes by itself, by uid."""
        self._uids: dict[str, str] = {}
        """The uids of the fleet's existing nodes, by name, for owner references."""
        self._offered: dict[str, dict[str, Any]] = {}
        """The allocatable resources of the fleet's nodes, as last seen."""
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._work: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._busy: set[tuple[str, str]] = set()
        self.registered = self.beats = self.started = self.finished = self.failures = 0
        self._leaving = leaving
        self._events = events
        self._job_seconds = job_seconds
        self._drivers = drivers
        self._directories = {name: Directories() for name in self.names}
        self._began_to_stop: dict[str, float] = {}
        """When an existing pod was first seen terminating, by the loop's time."""

    # --- requests --------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        patch: bool = False,
        pool: asyncio.Queue[Connection] | None = None,
    ) -> Answer:
        pool = pool or self._pool
        connection = await pool.get()
        try:
            content_type = MERGE if patch else "application/json"
            answer = await connection.request(method, path, body, content_type)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
            answer = Answer(0, None)
        finally:
            pool.put_nowait(connection)
        if answer.status >= 500 or answer.status in (0, 401, 403, 429):
            self.failures += 1
        return answer

    # --- nodes -----------------------------------------------------------------------------------

    async def register(self) -> None:
        """Create every missing node, and report all as ready."""
        queue = deque(enumerate(self.names))

        async def work() -> None:
            while queue:
                number, name = queue.popleft()
                await self._register(number, name)
                self.registered += 1

        await asyncio.gather(*(work() for _ in range(self._pool.qsize())))

    async def _register(self, number: int, name: str) -> None:
        zone = f"zone-{number % self._zones}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "hollow",
            "topology.kubernetes.io/zone": zone,
        }
        status = {"capacity": self._allocatable, "allocatable": self._allocatable}
        cidr = self._networks[name].cidr
        node = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
            "status": status,
        }
        answer = await self._ask("POST", "/api/v1/nodes", node)
        if answer.status not in (201, _CONFLICT):
            raise RuntimeError(f"node {name}: {answer.status} {answer.body}")
        if answer.status == _CONFLICT:
            answer = await self._ask("GET", f"/api/v1/nodes/{name}")
        if answer.status in (200, 201):
            self._uids[name] = answer.body["metadata"]["uid"]
        await self._take_lease(name)
        await self._publish(number, name)
        await self._report(name)

    async def _publish(self, number: int, name: str) -> None:
        """Create or update the ResourceSlices of a node's drivers.

        Like a driver's helper, it makes the node their owner, so they are deleted with it.
        """
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uids.get(name, "")}
        for driver in self._drivers:
            for one in devices.slices_of(driver, name) if driver.is_on(number) else ():
                meta = one["metadata"]
                if not driver.all_nodes:
                    meta["ownerReferences"] = [owner]
                answer = await self._ask("POST", f"{devices.API}{_STRICT}", one)
                if answer.status == _CONFLICT:
                    path = f"{devices.API}/{meta['name']}"
                    published = await self._ask("GET", path)
                    if published.status == 200:
                        answer = await self._ask(
                            "PUT", f"{path}{_STRICT}", _next_version(one, published.body)
                        )
                if answer.status not in (200, 201):
                    raise RuntimeError(f"slice {meta['name']}: {answer.status} {answer.body}")

    async def _take_lease(self, name: str) -> None:
        """Create the lease of a node, which owns it as with a kubelet's."""
        if name not in self._uids:
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uids[name]}
        lease = {
            "metadata": {
                "name": name, "namespace": "kube-node-lease", "ownerReferences": [owner],
            },
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": _micro(),
            },
        }  # fmt: skip
        await self._ask("POST", _LEASES, lease, pool=self._beat_pool)

    async def _report(self, name: str) -> None:
        now = _now()
        conditions = [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": "KubeletReady" if kind == "Ready" else "KubeletHasSufficient",
                "message": "hollow",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ]
        status = {
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self._hosts[name]},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                **_NODE_INFO, "machineID": name, "systemUUID": name, "bootID": f"hollow-{name}",
            },
            "declaredFeatures": _DECLARED,
        }  # fmt: skip
        await self._ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, patch=True)

    async def _heartbeats(self) -> None:
        """Renew each lease once a period, spread evenly over the period."""
        loop = asyncio.get_running_loop()
        slots = max(1, int(self._period * 20))
        turn = 0
        while True:
            began = loop.time()
            names = [name for name in self.names[turn::slots] if name not in self.lost]
            await asyncio.gather(*(self._beat(name) for name in names))
            turn = (turn + 1) % slots
            await asyncio.sleep(max(0.0, self._period / slots - (loop.time() - began)))

    async def _beat(self, name: str) -> None:
        body = {"spec": {"renewTime": _micro()}}
        path = f"{_LEASES}/{name}"
        answer = await self._ask("PATCH", path, body, patch=True, pool=self._beat_pool)
        self.beats += answer.status == 200
        if answer.status == _NOT_FOUND:
            await self._take_lease(name)

    async def _follow_nodes(self) -> None:
        """Report a node as ready again after a client set it to not ready, as a kubelet does."""
        connection = self._connect()
        while True:
            answer = await self._ask("GET", "/api/v1/nodes", pool=self._beat_pool)
            if answer.status != 200:
                await asyncio.sleep(1)
                continue
            self._uids.clear()
            for node in answer.body.get("items", ()):
                await self._look_at(node)
            revision = answer.body["metadata"]["resourceVersion"]
            path = f"/api/v1/nodes?watch=true&resourceVersion={revision}"
            with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError):
                async for event in connection.watch(path):
                    if event["type"] == "ERROR":
                        break
                    if event["type"] == "DELETED":
                        self._let_node_go(event["object"]["metadata"]["name"])
                        continue
                    await self._look_at(event["object"])
            await asyncio.sleep(0.2)

    def _let_node_go(self, name: str) -> None:
        """Note that a node was deleted, so that its lease is not created again."""
        self._uids.pop(name, None)

    async def _look_at(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        if name in self._mine:
            self._uids[name] = node["metadata"]["uid"]
        if name not in self._mine or name in self.lost:
            return
        status = node.get("status", {})
        capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
        self._offered[name] = allocatable
        if capacity and capacity != allocatable:
            gone = dict.fromkeys(allocatable.keys() - capacity.keys())
            body = {"status": {"allocatable": {**capacity, **gone}}}
            await self._ask("PATCH", f"/api/v1/nodes/{name}/status", body, patch=True)
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        if conditions.get("Ready") != "True":
            await self._beat(name)
            await self._report(name)

    # --- pods ------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """List pods, then watch; list again when the watch's revision has expired."""
        connection = self._connect()
        while True:
            answer = await self._ask("GET", "/api/v1/pods")
            if answer.status != 200:
                await asyncio.sleep(1)
                continue
            revision = answer.body["metadata"]["resourceVersion"]
            present = {pod["metadata"]["uid"] for pod in answer.body.get("items", ())}
            for pod in [*self._pods.values()]:
                if pod["metadata"]["uid"] not in present:
                    self._forget(pod)
            self._pods.clear()
            for pod in answer.body.get("items", ()):
                self._see(pod)
            with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError):
                while revision:
                    path = f"/api/v1/pods?watch=true&resourceVersion={revision}"
                    path += "&allowWatchBookmarks=true"
                    async for event in connection.watch(path):
                        pod = event["object"]
                        if event["type"] == "ERROR":
                            revision = ""
                            break
                        revision = pod["metadata"]["resourceVersion"]
                        if event["type"] == "DELETED":
                            if self._pods.pop(_key(pod), None) is not None:
                                self._forget(pod)
                        elif event["type"] != "BOOKMARK":
                            self._see(pod)
            await asyncio.sleep(0.2)

    def _see(self, pod: dict[str, Any]) -> None:
        node, uid = pod.get("spec", {}).get("nodeName"), pod["metadata"]["uid"]
        if node not in self._mine:
            return
        runs = self._directories[node].runs_of(pod)
        pod[commands.NODE] = commands.Surroundings(runs, self._job_seconds)
        previous = self._pods.get(_key(pod))
        if previous is not None and previous["metadata"]["uid"] != uid:
            self._forget(previous)
        self._pods[_key(pod)] = pod
        status = pod.get("status") or {}
        if status.get("phase") in pods.FINISHED:
            self._networks[node].give_back(uid)
        elif status.get("podIP") not in (None, self._hosts[node]):
            self._networks[node].note(uid, status["podIP"])
        if pod["metadata"].get("deletionTimestamp"):
            if self._leaving is not None:
                self._leaving.setdefault(uid, time.time())
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            began = self._began_to_stop.setdefault(uid, self._time())
            self._wake_at(pod, began + min(pods.stop_seconds(pod, self._stop_seconds), grace))
        elif node not in self.lost:
            report = self._report_of(pod)
            if report.status is not None:
                self._wake_at(pod, self._time())
            elif report.again is not None:
                self._wake_at(pod, self._time() + report.again)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    def _forget(self, pod: dict[str, Any]) -> None:
        """Remove a pod that is gone, and free its address."""
        uid = pod["metadata"]["uid"]
        self._networks[pod["spec"]["nodeName"]].give_back(uid)
        self._began_to_stop.pop(uid, None)
        self._directories[pod["spec"]["nodeName"]].forget(uid)
        if (wake := self._wakes.pop(uid, None)) is not None:
            wake[1].cancel()

    def _wake_at(self, pod: dict[str, Any], at: float) -> None:
        """Schedule work on a pod for a time of the event loop, unless an earlier time is set."""
        uid, key = pod["metadata"]["uid"], _key(pod)
        if (scheduled := self._wakes.get(uid)) is not None:
            if scheduled[0] <= at:
                return
            scheduled[1].cancel()
        if at <= self._time():
            self._wakes.pop(uid, None)
            self._queue(key)
            return
        handle = asyncio.get_running_loop().call_at(at, self._wake, uid, key)
        self._wakes[uid] = (at, handle)

    def _wake(self, uid: str, key: tuple[str, str]) -> None:
        self._wakes.pop(uid, None)
        self._queue(key)

    def _queue(self, key: tuple[str, str]) -> None:
        if key not in self._busy:
            self._busy.add(key)
            self._work.put_nowait(key)

    def _report_of(self, pod: dict[str, Any]) -> pods.Report:
        node = pod["spec"]["nodeName"]
        host = self._hosts[node]
        address = host
        if not pod["spec"].get("hostNetwork"):
            address = self._networks[node].take(pod["metadata"]["uid"])
        now = _moment()
        try:
            runs = self._directories[node].begin(pod, now)
            pod[commands.NODE] = commands.Surroundings(runs, self._job_seconds)
            return pods.report(pod, address, host, now, lambda: self._room(pod))
        except Exception:
            # Of this pod nothing is reported until it changes; the other nodes go on.
            logger.exception("hollow_pod_not_understood", pod=_key(pod), node=node)
            return pods.Report()

    def _room(self, pod: dict[str, Any]) -> Room:
        """Return what is allocatable on the pod's node, and allocated to its other pods."""
        node, uid, others = pod["spec"]["nodeName"], pod["metadata"]["uid"], Counter[str]()
        for one in self._pods.values():
            if one["spec"].get("nodeName") != node or one["metadata"]["uid"] == uid:
                continue
            if (one.get("status") or {}).get("phase") not in pods.FINISHED:
                others.update(resizing.amounts(resizing.allocated(one)))
        allocatable = self._offered.get(node, self._allocatable)
        offered = {
            "cpu": Quantity.parse(allocatable.get("cpu", "0")).milli_value(),
            "memory": Quantity.parse(allocatable.get("memory", "0")).value(),
        }
        return Room(offered, others)

    def _has_stopped(self, pod: dict[str, Any]) -> bool:
        return pod["metadata"]["uid"] not in self._wakes

    async def _attend(self) -> None:
        """Report the status of queued pods, or finish their deletion; several such tasks run."""
        while True:
            key = await self._work.get()
            pod = self._pods.get(key)
            try:
                if pod is not None and pod["spec"]["nodeName"] not in self.lost:
                    await self._act(pod)
            except Exception:
                logger.exception("hollow_pod_not_attended", pod=key)
            finally:
                self._busy.discard(key)
            newer = self._pods.get(key)
            if newer is not None and newer is not pod:
                self._see(newer)  # what came while this one was attended to

    async def _act(self, pod: dict[str, Any]) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            if self._has_stopped(pod):
                await self._finish(pod)
            return
        report = self._report_of(pod)
        status = report.status
        if status is None:
            if report.again is not None:  # what it waits for may come without news of the pod
                self._wake_at(pod, self._time() + report.again)
            return
        starts = pod["status"].get("phase") == "Pending" and status.get("phase") == "Running"
        # Of the pod as it was seen: it may have been refused meanwhile, and has failed.
        preconditions = {one: pod["metadata"][one] for one in ("uid", "resourceVersion")}
        body = {"metadata": preconditions, "status": status}
        answer = await self._ask("PATCH", f"{_path(pod)}/status", body, patch=True)
        if answer.status == 200:
            self._directories[pod["spec"]["nodeName"]].note(pod, status, _moment())
            self.started += starts
            if starts and self._events:
                await self._tell_started(pod)
        elif answer.status in _AGAIN or answer.status >= 500:
            self._wake_at(pod, self._time() + 1)

    async def _tell_started(self, pod: dict[str, Any]) -> None:
        """Write the Event that a pod's first container was started."""
        event = pods.started_event(pod, _now())
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
        await self._ask("POST", path, event)

    async def _finish(self, pod: dict[str, Any]) -> None:
        """Delete a pod that has stopped; if it has finalizers, report first how it ended."""
        if pod["metadata"].get("finalizers"):
            if pod["status"].get("phase") not in pods.FINISHED:
                status = pods.ended_status(pod, 143, _moment())
                body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
                await self._ask("PATCH", f"{_path(pod)}/status", body, patch=True)
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                return  # what keeps it is no agent's
        elif (last := pods.stopped_status(pod, _moment())) is not None:
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": last}
            await self._ask("PATCH", f"{_path(pod)}/status", body, patch=True)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        answer = await self._ask("DELETE", _path(pod), options)
        if answer.status in (200, 202):
            self.finished += 1
        if answer.status in (200, 202, _NOT_FOUND, _CONFLICT):
            self._forget(pod)
            if self._pods.get(_key(pod)) is pod:
                del self._pods[_key(pod)]
        else:
            self._wake_at(pod, self._time() + 1)

    # --- script ----------------------------------------------------------------------------------

    async def _play(self, script: list[Script]) -> None:
        began = asyncio.get_running_loop().time()
        for step in sorted(script, key=lambda one: one.second):
            await asyncio.sleep(max(0.0, began + step.second - asyncio.get_running_loop().time()))
            if step.lose:
                self.lose(step.count)
            else:
                await self._come_back(sorted(self.lost)[: step.count])

    def lose(self, count: int) -> list[str]:
        """Make this many agents silent; return their nodes. Any thread may call it."""
        there = [name for name in self.names if name not in self.lost]
        chosen = self._random.sample(there, min(count, len(there)))
        self.lost.update(chosen)
        self._say(f"lost {len(chosen)} nodes")
        return chosen

    def regain(self, names: Sequence[str]) -> None:
        """Start the agents of lost nodes again. Any thread may call it while the fleet runs."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._come_back(names), self._loop)

    async def _come_back(self, names: Sequence[str]) -> None:
        self.lost.difference_update(names)
        self._say(f"{len(names)} nodes are back")
        for name in names:
            await self._beat(name)
            await self._report(name)
        for pod in list(self._pods.values()):
            self._see(pod)

    async def _progress(self, every: float) -> None:
        beats = 0
        while True:
            await asyncio.sleep(every)
            rate = (self.beats - beats) / every
            beats = self.beats
            self._say(
                f"{len(self.names) - len(self.lost)} nodes up, {len(self.lost)} lost;"
                f" {len(self._pods)} pods on them, {self.started} started, {self.finished} ended;"
                f" {rate:.0f} heartbeats/s; {self.failures} failed requests"
            )

    async def run(self, script: list[Script], *, seconds: float | None, every: float) -> None:
        """Register, then run the agents for ``seconds`` (``None``: until cancelled)."""
        loop = self._loop = asyncio.get_running_loop()
        began = loop.time()
        registering = asyncio.create_task(self.register())
        while not registering.done():
            await asyncio.wait({registering}, timeout=2)
            self._say(f"registered {self.registered} of {len(self.names)} nodes")
        await registering
        self._say(f"all {len(self.names)} nodes are up after {loop.time() - began:.1f} s")
        tasks = [self._play(script), self._heartbeats(), self._follow(), self._follow_nodes()]
        tasks += [self._progress(every)]
        tasks += [self._attend() for _ in range(4 * self._pool.qsize())]
        running = [asyncio.create_task(task) for task in tasks]
        playing = running[0]
        try:
            done, _ = await asyncio.wait(
                set(running) - {playing}, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


_NODE_INFO = {
    "kubeletVersion": "v1.36.0",
    "kubeProxyVersion": "",
    "containerRuntimeVersion": "hollow://1",
    "kernelVersion": "hollow",
    "osImage": "hollow",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
"""Some programs skip or refuse nodes whose agent does not report its version."""
_DECLARED = [POD_LEVEL_RESIZE]
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def _next_version(new_slice: dict[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    """Return a slice that replaces a published one, in the same generation of its pool."""
    pool = {**new_slice["spec"]["pool"], "generation": published["spec"]["pool"]["generation"]}
    meta = {**new_slice["metadata"], "resourceVersion": published["metadata"]["resourceVersion"]}
    return {**new_slice, "metadata": meta, "spec": {**new_slice["spec"], "pool": pool}}


def _key(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _path(pod: dict[str, Any]) -> str:
    namespace, name = _key(pod)
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _moment() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # an agent's own clock


def _now() -> str:
    return pods.text_of(_moment())


def _micro() -> str:
    return _moment().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
