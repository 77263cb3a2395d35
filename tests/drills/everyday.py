"""An everyday cluster: every kind of workload on hollow nodes, a node lost and regained meanwhile.

Two DaemonSets, a Deployment with a Service, rolled out and undone, a StatefulSet, a Job and a
quota, all at once on one service; then what each of them says of itself is compared with the pods
that there are. A broken promise is a ``ServiceError``.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.drills.drills import NAMESPACE, Result, Say, fleet
from tests.perf.scratch import Scratch, running, until
from tests.perf.service import ServiceError

_CORE = f"/api/v1/namespaces/{NAMESPACE}"
_APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
_MERGE = "application/merge-patch+json"
_LONGEST = 600.0
_STATEFUL = 5


def everyday(
    *, nodes: int, replicas: int, completions: int, lost: int, grace: float, say: Say
) -> Result:
    """Let every kind of workload do its work on so many nodes, and lose some of these.

    ``grace`` is after how many seconds of silence a node is missed.
    """
    environment = {
        "STOWAGE_NODE_MONITOR_GRACE": str(grace),
        "STOWAGE_NODE_MONITOR_PERIOD": "1",
        "STOWAGE_LOG_LEVEL": "WARNING",
    }
    with (
        running(environment, say) as scratch,
        fleet(scratch, nodes, say, period=min(10, grace / 4)) as agents,
    ):
        days = _Days(scratch, nodes, replicas, completions, say)
        days.prepare()
        days.daemons()
        days.serve()
        days.roll("two")
        chosen = agents.lose(lost)
        say(f"lost {', '.join(chosen[:3])} ... while the rollout goes on")
        days.stateful_set_and_job()
        days.rolled_out("two")
        days.missed(set(chosen))
        agents.regain(chosen)
        days.regained()
        days.job_completes()
        days.undo()
        days.quota_holds()
        return days.audit(lost)


class _Days:
    """What is done with one service, and how long each step took."""

    def __init__(
        self, scratch: Scratch, nodes: int, replicas: int, completions: int, say: Say
    ) -> None:
        self._scratch, self._client, self._say = scratch, scratch.client(), say
        self._nodes, self._replicas, self._completions = nodes, replicas, completions
        self._seconds: dict[str, float] = {}
        self._cpu = scratch.cpu_seconds()

    def _step(self, name: str, look: Callable[[], Any]) -> Any:
        """Wait for something, and keep how long it took."""
        began = time.monotonic()
        found = until(look, seconds=_LONGEST, what=name, every=0.5)
        self._seconds[name] = round(time.monotonic() - began, 1)
        self._say(f"{name}: {self._seconds[name]} s")
        return found

    def _get(self, path: str) -> Result:
        found: Result = self._client.call("GET", path)
        return found

    def _status(self, path: str) -> Result:
        """Return a status that was made of the current spec, else an empty one."""
        found = self._get(path)
        status: Result = found.get("status") or {}
        seen = status.get("observedGeneration")
        return {} if seen not in (None, found["metadata"].get("generation")) else status

    # What there is -------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the namespace and its quota."""
        self._client.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        hard = {"count/pods": str(2 * self._nodes + 3 * self._replicas + 2 * self._completions)}
        hard |= {"pods": hard["count/pods"], "requests.cpu": str(self._nodes * 8), "services": "1"}
        self._client.call(
            "POST", f"{_CORE}/resourcequotas", {"metadata": {"name": "all"}, "spec": {"hard": hard}}
        )

    def daemons(self) -> None:
        """Make a DaemonSet for all nodes and one for those of a zone."""
        zone = {"nodeSelector": {"topology.kubernetes.io/zone": "zone-0"}}
        for name, spec in (("everywhere", {}), ("one-zone", zone)):
            self._client.call("POST", f"{_APPS}/daemonsets", _daemon_set(name, spec))
        wanted = {"everywhere": self._nodes, "one-zone": (self._nodes + 2) // 3}

        def ready() -> bool:
            return all(
                (status := self._status(f"{_APPS}/daemonsets/{name}")).get("numberReady")
                == status.get("desiredNumberScheduled")
                == count
                for name, count in wanted.items()
            )

        self._step("daemons run on every node where they belong", ready)
        told = [one["status"]["nodeInfo"] for one in self._get("/api/v1/nodes")["items"]]
        _require(all(one["kubeletVersion"] for one in told), "agents tell their version")

    def serve(self) -> None:
        """Make a Deployment and its Service, and wait for all endpoints."""
        service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
        self._client.call(
            "POST", f"{_CORE}/services", {"metadata": {"name": "web"}, "spec": service}
        )
        self._client.call("POST", f"{_APPS}/deployments", _deployment(self._replicas))
        self._step("the Deployment is available", lambda: self._is_rolled_out("one"))
        self._step("all its pods are endpoints", lambda: self._ready_ends() == self._replicas)

    def roll(self, version: str) -> None:
        """Begin to roll a new template out."""
        template = {"metadata": {"labels": {"app": "web", "version": version}}}
        body = {"spec": {"template": template}}
        self._client.call("PATCH", f"{_APPS}/deployments/web", body, content_type=_MERGE)

    def stateful_set_and_job(self) -> None:
        """Make a StatefulSet and a Job, and wait for the StatefulSet."""
        self._client.call("POST", f"{_APPS}/statefulsets", _stateful_set())
        self._client.call("POST", _JOBS, _job(self._completions))
        self._step(
            "the StatefulSet is ready, one after the other",
            lambda: self._status(f"{_APPS}/statefulsets/db").get("readyReplicas") == _STATEFUL,
        )

    def rolled_out(self, version: str) -> None:
        """Wait until a rollout has ended."""
        self._step(f"version {version} is rolled out", lambda: self._is_rolled_out(version))

    def missed(self, lost: set[str]) -> None:
        """Wait until the lost nodes are missed and nothing that can move is there any more."""

        def moved() -> bool:
            there = [pod for pod in self._live(self._pods()) if pod["spec"].get("nodeName") in lost]
            return all(_app(pod) in ("everywhere", "one-zone") for pod in there)

        self._step("pods of lost nodes are elsewhere", moved)
        live = self._live(self._pods())
        left = Counter(_app(pod) for pod in live if pod["spec"].get("nodeName") in lost)
        _require(left["everywhere"] == len(lost), "daemons stay on nodes that are lost")

    def regained(self) -> None:
        """Wait until all nodes are ready, and everything is whole."""

        def whole() -> bool:
            everywhere = self._status(f"{_APPS}/daemonsets/everywhere")
            return (
                everywhere.get("numberReady") == self._nodes
                and everywhere.get("numberUnavailable", 0) == 0
                and self._ready_ends() == self._replicas
            )

        self._step("regained nodes are whole", whole)

    def job_completes(self) -> None:
        """Wait for the Job, some of whose pods were on lost nodes."""
        self._step("the Job is complete", self._is_complete)

    def undo(self) -> None:
        """Go back to the template of the first revision, as `kubectl rollout undo` does."""
        before = self._replica_sets()
        first = min(before, key=lambda one: _revision(one))
        template = first["spec"]["template"]
        template["metadata"]["labels"].pop("pod-template-hash")
        body = [{"op": "replace", "path": "/spec/template", "value": template}]
        self._client.call(
            "PATCH", f"{_APPS}/deployments/web", body, content_type="application/json-patch+json"
        )
        self._step("the rollout is undone", lambda: self._is_rolled_out("one"))
        uid = first["metadata"]["uid"]

        def again() -> Result:
            after = {one["metadata"]["uid"]: one for one in self._replica_sets()}
            _require(len(after) == len(before), "undoing takes the old ReplicaSet, and makes none")
            found: Result = after[uid]
            return found

        self._step(
            "the first ReplicaSet has all the pods",
            lambda: again()["status"].get("readyReplicas") == self._replicas,
        )
        _require(_revision(again()) == 3, "it is revision 3 now")

    def quota_holds(self) -> None:
        """Ask for a second Service and for more pods than the quota has."""
        service = {"metadata": {"name": "more"}, "spec": {"ports": [{"port": 80}]}}
        try:
            self._client.call("POST", f"{_CORE}/services", service)
        except ServiceError as error:
            _require("exceeded quota: all, requested: services=1" in str(error), "its own words")
        else:
            raise ServiceError("broken: a quota holds")

    def audit(self, lost: int) -> Result:
        """Compare what statuses and the quota say with the pods that there are."""
        expected = {
            "everywhere": self._nodes, "one-zone": (self._nodes + 2) // 3, "web": self._replicas,
            "db": _STATEFUL,
        }  # fmt: skip

        def whole() -> bool:
            pods = self._pods()
            return Counter(map(_app, self._live(pods))) == expected and not any(map(_leaves, pods))

        self._step("every owner has its pods, and nobody leaves", whole)
        pods = self._pods()
        live = self._live(pods)
        places = {pod["spec"].get("nodeName") for pod in live if _app(pod) == "everywhere"}
        _require(len(places) == self._nodes, "a daemon on each node")
        addresses = [one for pod in live if (one := pod["status"].get("podIP"))]
        _require(len(set(addresses)) == len(addresses), "no two pods share an address")

        def agrees() -> bool:
            used = self._get(f"{_CORE}/resourcequotas/all")["status"]["used"]
            pods = self._pods()
            counted = {"count/pods": len(pods), "pods": len(self._live(pods)), "services": 1}
            return all(used[name] == str(count) for name, count in counted.items())

        self._step("the quota shows what there is", agrees)
        aside = self._scratch.query("SELECT follower, kind, name, error FROM set_aside")
        _require(not aside, f"nothing is set aside: {aside}")
        refused = self._get(f"{_CORE}/events?fieldSelector=reason%3DFailedCreate")["items"]
        return {
            "drill": "everyday",
            "nodes": self._nodes,
            "lost_nodes": lost,
            "pods": expected,
            "completed": len(pods) - len(live),
            "slices": len(self._slices()),
            "refused_creations": len(refused),
            "seconds": self._seconds,
            "service_cpu_seconds": round(self._scratch.cpu_seconds() - self._cpu, 1),
        }

    # Looking -------------------------------------------------------------------------------------

    def _is_rolled_out(self, version: str) -> bool:
        status = self._status(f"{_APPS}/deployments/web")
        counts = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
        if any(status.get(name) != self._replicas for name in counts):
            return False
        labels = self._get(f"{_APPS}/deployments/web")["spec"]["template"]["metadata"]["labels"]
        return bool(labels["version"] == version)

    def _is_complete(self) -> bool:
        status = self._get(f"{_JOBS}/batch").get("status") or {}
        done = any(one["type"] == "Complete" for one in status.get("conditions") or ())
        return done and status.get("succeeded") == self._completions

    def _slices(self) -> list[Result]:
        found: list[Result] = self._get(f"{_SLICES}?labelSelector=kubernetes.io/service-name=web")[
            "items"
        ]
        return found

    def _ready_ends(self) -> int:
        ends = [end for one in self._slices() for end in one.get("endpoints") or ()]
        names = {end["targetRef"]["name"] for end in ends if end["conditions"]["ready"]}
        _require(len(ends) == len({end["targetRef"]["uid"] for end in ends}), "each pod once")
        return len(names)

    def _replica_sets(self) -> list[Result]:
        found: list[Result] = self._get(f"{_APPS}/replicasets?labelSelector=app=web")["items"]
        return found

    def _live(self, pods: Sequence[Result]) -> list[Result]:
        """Return those of the pods that neither ended nor leave."""
        return [
            pod
            for pod in pods
            if not _leaves(pod) and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    def _pods(self) -> list[Result]:
        found: list[Result] = self._get(f"{_CORE}/pods")["items"]
        return found


def _template(app: str, *, labels: Mapping[str, str] = {}, **spec: Any) -> Result:
    requests = {"cpu": "50m", "memory": "32Mi"}
    main = {"name": "main", "image": "nginx:1", "resources": {"requests": requests}}
    main |= spec.pop("container", {})
    return {
        "metadata": {"labels": {"app": app, **labels}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 5, **spec},
    }


def _leaving_soon() -> Result:
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
            for key in keys
        ]
    }


def _owner(kind: str, name: str, template: Result, **spec: Any) -> Result:
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": selector, "template": template, **spec},
    }


def _daemon_set(name: str, spec: Mapping[str, Any]) -> Result:
    return _owner("DaemonSet", name, _template(name, **spec))


def _deployment(replicas: int) -> Result:
    template = _template("web", labels={"version": "one"}, **_leaving_soon())
    return _owner("Deployment", "web", template, replicas=replicas)


def _stateful_set() -> Result:
    return _owner(
        "StatefulSet", "db", _template("db", **_leaving_soon()), replicas=_STATEFUL,
        serviceName="db",
    )  # fmt: skip


def _job(completions: int) -> Result:
    container = {"command": ["sh", "-c", "sleep 2; exit 0"]}
    template = _template("batch", container=container, restartPolicy="Never", **_leaving_soon())
    spec = {
        "template": template, "completions": completions, "parallelism": max(1, completions // 4),
        "backoffLimit": completions,
    }  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch"}, "spec": spec}


def _app(pod: Result) -> str:
    return str(pod["metadata"]["labels"]["app"])


def _leaves(pod: Result) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _revision(one: Result) -> int:
    return int(one["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def _require(holds: bool, promise: str) -> None:  # reads as an assertion
    if not holds:
        raise ServiceError(f"broken: {promise}")
