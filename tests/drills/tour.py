"""A tour of the console in a real browser, beside the same tasks with kubectl, both counted.

On a service of its own with hollow nodes, three times, each time with a full node, a group of pods
that wait for a tainted node, and a namespace whose pods a brake holds back: by mouse, by keys
alone, by kubectl. What does not come about in time, a request off the host, or a complaint of the
browser is a ``ServiceError``.
"""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from selenium.common.exceptions import TimeoutException

from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE, Browser, driven
from tests.browser.looks import emulate
from tests.drills.drills import NAMESPACE, Result, Say, fleet
from tests.drills.hands import Effort, Hands, Keyboard, Mouse, asked_elsewhere
from tests.perf.scratch import Scratch, running, until
from tests.perf.service import Client, ServiceError

_ENVIRONMENT: Final = {
    "STOWAGE_BRAKE_NAMESPACE": "40",
    "STOWAGE_BRAKE_LEAST": "10",
    "STOWAGE_SCHEDULERS": "1",
    "STOWAGE_LOG_LEVEL": "WARNING",
}
_CORE: Final = "/api/v1"
_OWN: Final = "/apis/stowage.dev/v1"
_AS_PREFERRED: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "percentageOfNodesToScore": 100,
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": 20}]}},
        }
    ],
}
"""Pods go where they prefer, however full that is, and whether or not others like them are there.

Of many nodes a part is scored by default, and the one that pods prefer might be left out.
"""
_LONGEST: Final = 900.0
_MERGE: Final = "application/merge-patch+json"
_HELD_PODS: Final = 12
_WAITING_PODS: Final = 3
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SHARES: Final = "awk '/^Name:/{n=$2} /^  cpu  /{print $3,n}' | sort -t'(' -k2n"


class Setting(msgspec.Struct, frozen=True):
    """What one tour finds: names that no other tour uses."""

    name: str
    full: str
    """The node that is full, by pods of the ReplicaSet ``packed-NAME``."""
    closed: str
    """The node with the label ``disk=NAME``, for which ``wants-NAME`` waits; it has a taint."""
    emptied: str
    """The node that has all pods of the namespace ``NAME``, before it is tainted NoExecute."""


def tour(
    *, nodes: int, pods: int, minutes: float, keys: bool = True, kubectl: bool = True, say: Say
) -> Result:
    """Go through the console by mouse, by keys, and through the same tasks with kubectl.

    ``minutes`` is how far back the tours travel; they begin when their full nodes are so old. For
    0 they begin as soon as the cluster stands, and travel to the moment before their own drain.
    """
    if not CHROMIUM or not DRIVER:
        raise ServiceError(NONE_HERE)
    with running(_ENVIRONMENT, say) as scratch, _ready(scratch), fleet(scratch, nodes, say):
        cluster = _Cluster(scratch, nodes, pods, say)
        settings = [cluster.prepare(number, name) for number, name in enumerate(_NAMES)]
        born = time.monotonic()  # from now on there is what the tours look back at
        cluster.fill()
        found: Result = {"nodes": nodes, "pods": pods}
        for setting, hands in zip(settings, (Mouse, Keyboard, None), strict=True):
            if (hands is Keyboard and not keys) or (hands is None and not kubectl):
                continue
            cluster.trouble(setting)
            if minutes:
                _wait(minutes * 60 - (time.monotonic() - born), say)
            if hands is None:
                found["kubectl"] = _Commands(scratch, setting, minutes, say).run()
            else:
                with browsing(scratch) as browser:
                    walk = _Tour(scratch, setting, browser, hands(browser), minutes, say)
                    found[hands.__name__.lower()] = walk.run()
        return found


@contextmanager
def _ready(scratch: Scratch) -> Iterator[None]:
    """Store the scheduler's configuration: it is in force before there are nodes."""
    scratch.client().call("PUT", f"{_OWN}/schedulerconfiguration", _AS_PREFERRED)
    yield


_NAMES: Final = ("shop", "bank", "mill")


def _wait(seconds: float, say: Say) -> None:
    if seconds > 0:
        say(f"waiting {seconds:.0f} s, so that there is a past to travel to")
        end = time.monotonic() + seconds
        until(lambda: time.monotonic() >= end, seconds=seconds + 60, what="the past", every=1)


# The cluster -----------------------------------------------------------------------------------


class _Cluster:
    def __init__(self, scratch: Scratch, nodes: int, pods: int, say: Say) -> None:
        self._scratch, self._client, self._say = scratch, scratch.client(), say
        self._nodes, self._pods = nodes, pods
        self._client.call("POST", f"{_CORE}/namespaces", {"metadata": {"name": NAMESPACE}})

    def prepare(self, number: int, name: str) -> Setting:
        """Make what a tour finds, but for the trouble: before the cluster is filled."""
        full, closed, emptied = (f"hollow-{3 * number + part:05}" for part in range(3))
        self._client.call("POST", f"{_CORE}/namespaces", {"metadata": {"name": name}})
        self._change(closed, {"metadata": {"labels": {"disk": name}}})
        taint = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}
        self._change(closed, {"spec": {"taints": [taint]}})
        self._replicas(NAMESPACE, f"packed-{name}", 4, "7900m", _preferred(full))
        self._replicas(name, "web", _HELD_PODS, "200m", _preferred(emptied))
        self._placed(NAMESPACE, f"packed-{name}", full, 4)
        self._placed(name, "web", emptied, _HELD_PODS)
        return Setting(name, full, closed, emptied)

    def fill(self) -> None:
        """Create the other pods, and wait until they run."""
        for number in range(10):
            self._replicas(NAMESPACE, f"fill-{number}", self._pods // 10, "100m", {})
        where = "SELECT count(*) FROM pod WHERE node_name <> ''"
        wanted = self._pods // 10 * 10
        until(
            lambda: self._scratch.query(where)[0][0] >= wanted,
            seconds=_LONGEST, what=f"{wanted} pods with a node", every=1,
        )  # fmt: skip

    def trouble(self, setting: Setting) -> None:
        """Let pods wait, and taint a node so that a brake is set."""
        selector = {"nodeSelector": {"disk": setting.name}}
        self._replicas(NAMESPACE, f"wants-{setting.name}", _WAITING_PODS, "100m", selector)
        taint = {"key": "recalled", "effect": "NoExecute"}
        self._change(setting.emptied, {"spec": {"taints": [taint]}})

        def held() -> bool:
            found = self._client.call("GET", f"{_OWN}/brakes")["items"]
            return any(one["metadata"]["name"] == f"namespace.{setting.name}" for one in found)

        until(held, seconds=60, what=f"a brake of {setting.name}")

    def _change(self, node: str, patch: Result) -> None:
        self._client.call("PATCH", f"{_CORE}/nodes/{node}", patch, content_type=_MERGE)

    def _replicas(
        self, namespace: str, name: str, count: int, cpu: str, more: Mapping[str, Any]
    ) -> None:
        labels = {"app": name}
        requests = {"cpu": cpu, "memory": "64Mi"}
        main = {"name": "main", "image": "nginx:1", "resources": {"requests": requests}}
        spec = {"containers": [main], "terminationGracePeriodSeconds": 1, **more}
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        self._client.call("POST", f"/apis/apps/v1/namespaces/{namespace}/replicasets", body)

    def _placed(self, namespace: str, name: str, node: str, count: int) -> None:
        where = (
            "SELECT count(*) FROM pod WHERE namespace = %s AND name LIKE %s AND node_name = %s"
            " AND phase = 'Running'"
        )
        until(
            lambda: self._scratch.query(where, (namespace, f"{name}-%", node))[0][0] >= count,
            seconds=120, what=f"{count} pods of {name} on {node}",
        )  # fmt: skip


def _preferred(node: str) -> Result:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
        }
    }  # fmt: skip


# What is counted -------------------------------------------------------------------------------


class Counted(msgspec.Struct):
    """A task, what it took, and how long until the answer was there."""

    task: str
    seconds: float
    clicks: int = 0
    keys: int = 0
    characters: int = 0
    commands: int = 0


def result(rows: list[Counted]) -> Result:
    """Return the tasks, and their sum as the last one."""
    whole = Counted("all", round(sum(one.seconds for one in rows), 1))
    for name in ("clicks", "keys", "characters", "commands"):
        setattr(whole, name, sum(getattr(one, name) for one in rows))
    return {"tasks": [msgspec.to_builtins(one) for one in [*rows, whole]]}


# By mouse and keyboard -------------------------------------------------------------------------


@contextmanager
def browsing(scratch: Scratch, *, complaints: bool = True) -> Iterator[Browser]:
    """A browser at the service; requests to other hosts are errors, and so are its complaints.

    ``complaints``: not where pages fail on purpose, which the browser notes.
    """
    folder = Path(tempfile.mkdtemp(prefix="stowage-tour-"))
    try:
        with driven(folder, browser="ALL", performance="ALL") as driver:
            browser = Browser(driver, scratch.url)
            emulate(browser)
            yield browser
            if complaints and (told := browser.complaints()):
                raise ServiceError(f"the browser complains: {told[:3]}")
            if elsewhere := asked_elsewhere(browser):
                raise ServiceError(f"asked of another host: {elsewhere[:3]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Walk:
    """Somebody at a browser whose tasks are counted."""

    def __init__(self, scratch: Scratch, browser: Browser, hands: Hands, say: Say) -> None:
        self._browser, self._hands, self._say = browser, hands, say
        self._password = (scratch.state / "admin-password").read_text().strip()
        self._rows: list[Counted] = []

    @contextmanager
    def _task(self, name: str) -> Iterator[None]:
        self._hands.effort = effort = Effort()
        began = time.monotonic()
        try:
            yield
        except TimeoutException:
            page = self._browser.text()[:3000]
            raise ServiceError(f"{name}: not in time. The page says: {page}") from None
        seconds = round(time.monotonic() - began, 1)
        counts = (effort.clicks, effort.keys, effort.characters)
        self._rows.append(Counted(name, seconds, *counts))
        self._say(f"{name}: {seconds} s, {effort}")

    def _sign_in(self) -> None:
        self._browser.open("/")
        self._browser.find("#id_username")
        with self._task("sign in"):
            self._hands.write("#id_username", "admin")
            self._hands.write("#id_password", self._password)
            self._hands.enter()
            self._browser.find("#live[data-state=live]")


class _Tour(Walk):
    def __init__(
        self, scratch: Scratch, setting: Setting, browser: Browser, hands: Hands, minutes: float,
        say: Say,
    ) -> None:  # fmt: skip
        super().__init__(scratch, browser, hands, say)
        self._setting = setting
        self._past = f"{minutes:.0f}m" if minutes else time.strftime(_TIME, time.gmtime())

    def run(self) -> Result:
        """Do every task of the tour."""
        hands, sees, name = self._hands, self._browser.sees, self._setting.name
        self._sign_in()
        with self._task("find a full node on the map, and preview its drain"):
            hands.drain_a_full_node()
            sees("Cordon and evict")
        full = self._title().split()[-1]
        with self._task("drain it, and watch its pods land"):
            hands.confirm()
            sees("All is done")
        with self._task("see where one landed"):
            hands.follow("td a.ok")
            sees("Requested of allocatable")
        with self._task("open the waiting group"):
            hands.go("w")
            sees(f"wants-{name}")
        with self._task("take the remedy that removes the taint, by its preview"):
            # The first one gives the label to some node, which may be one that is nearly full.
            hands.row(f"tr:has(a[href*='wants-{name}']) a[href*='/change?'][href*='had_taint_key']")
            sees("Pods that find a place")
            hands.confirm()
            sees("All is done")
        with self._task("watch the pods bind"):
            hands.follow(f"th a[href*='wants-{name}']")
            self._browser.find("#pod dd a[href*='/console/nodes/hollow-']")
        with self._task("read the decision"):
            hands.row("tr a[href*='/decisions/']")
            sees("Run this decision again")
        with self._task("ask what if there were one more"):
            hands.follow("h1 a, .bar-of a[href*='/console/pods/']")
            hands.follow("form[action$='/what-if/add'] button")
            sees("Pods that find a place")
        with self._task("approve the brake"):
            hands.go("e")
            hands.row(f"tr a[href*='namespace.{name}']")
            hands.confirm()
            sees("approved by admin")
        with self._task("see the drained node as it was"):
            hands.go("n")
            hands.write("#q", full)
            self._browser.find(f"#node-{full}")
            hands.row(f"#node-{full} th a")
            sees("Requested of allocatable")
            hands.into_the_past(self._past)
            sees("This is the past")
            sees(f"{NAMESPACE}/packed-")
        with self._task("find all that in the audit"):
            hands.follow("#back-to-now")
            sees("a change is previewed before it is made")
            hands.go("a")
            # Hollow nodes report all the time: the newest lines are of the agents.
            hands.write("[name=user]", "admin")
            hands.enter()
            sees("brakes/approve")
            sees("plans/apply")
        return result(self._rows)

    def _title(self) -> str:
        return str(self._browser.find("h1").text)


# By kubectl ------------------------------------------------------------------------------------


class Commands:
    """Somebody at a shell with kubectl whose tasks are counted."""

    def __init__(self, scratch: Scratch, say: Say) -> None:
        if not shutil.which("kubectl"):
            raise ServiceError("no kubectl on the PATH")
        self._state, self._say = scratch.state, say
        self._client: Client = scratch.client()
        self._rows: list[Counted] = []

    def _do(self, task: str, *commands: str) -> None:
        began = time.monotonic()
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command],
                capture_output=True, text=True, timeout=600, check=False,
                env={"PATH": _PATH, "KUBECONFIG": str(self._state / "kubeconfig"), "HOME": "/tmp"},
            )  # fmt: skip
            if done.returncode:
                raise ServiceError(f"{command}: {(done.stderr or done.stdout)[:300]}")
        seconds = round(time.monotonic() - began, 1)
        counts = {"characters": sum(map(len, commands)), "commands": len(commands)}
        self._rows.append(Counted(task, seconds, **counts))
        self._say(f"{task}: {seconds} s, {counts}")


class _Commands(Commands):
    """The tour by kubectl: its own commands first, the service's paths where it has none."""

    def __init__(self, scratch: Scratch, setting: Setting, minutes: float, say: Say) -> None:
        super().__init__(scratch, say)
        self._setting = setting
        self._past = f"{minutes:.0f}m" if minutes else time.strftime(_TIME, time.gmtime())

    def run(self) -> Result:
        """Run every task's commands, as a shell would."""
        one, space = self._setting, NAMESPACE
        pod = f"wants-{one.name}"
        own = _OWN
        self._do(
            "find a full node on the map, and preview its drain",
            f"kubectl describe nodes | {_SHARES}",
            f"kubectl drain {one.full} --ignore-daemonsets --dry-run=server",
        )
        self._do(
            "drain it, and watch its pods land", f"kubectl drain {one.full} --ignore-daemonsets"
        )
        self._do(
            "see where one landed", f"kubectl get pods -n {space} -l app=packed-{one.name} -o wide"
        )
        self._do(
            "open the waiting group",
            "kubectl get pods -A --field-selector=status.phase=Pending",
            f"kubectl describe pods -n {space} -l app={pod}",
            f"kubectl describe nodes -l disk={one.name}",
        )
        self._do(
            "take the remedy that removes the taint, by its preview",
            f"kubectl taint nodes {one.closed} maintenance-",
        )
        self._do(
            "watch the pods bind",
            f"kubectl wait -n {space} --for=condition=PodScheduled pods -l app={pod}",
        )
        name = self._first(pod)
        decisions = f"/api/v1/namespaces/{space}/pods/{name}/decisions?explain=full"
        self._do("read the decision", f"kubectl get --raw '{decisions}&format=table'")
        more = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "more", "namespace": space},
            "spec": {
                "nodeSelector": {"disk": one.name},
                "containers": [
                    {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}
                ],
            },
        }  # fmt: skip
        plan = {"spec": {"changes": [{"pods": {"objects": [more]}}]}}
        self._do(
            "ask what if there were one more",
            f"kubectl create --raw {own}/plans -f - <<'END'\n{json.dumps(plan)}\nEND",
        )
        self._do(
            "approve the brake",
            f"kubectl get --raw {own}/brakes",
            f"echo '{{}}' | kubectl create --raw {own}/brakes/namespace.{one.name}/approve -f -",
        )
        on_it = f"fieldSelector=spec.nodeName={one.full}"
        self._do(
            "see the drained node as it was",
            f"kubectl get --raw '/api/v1/nodes/{one.full}?at={self._past}'",
            f"kubectl get --raw '/api/v1/pods?at={self._past}&{on_it}'",
        )
        self._do("find all that in the audit", f"kubectl get --raw '{own}/audit?user=admin'")
        return result(self._rows)

    def _first(self, owner: str) -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{owner}&limit=1"
        return str(self._client.call("GET", path)["items"][0]["metadata"]["name"])


_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
