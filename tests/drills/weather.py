"""Every page of console and admin in good weather and in bad: seen, looked at by axe, pictured.

On a service of its own with hollow nodes: all is well; then thousands of pods wait for five causes,
the advisors are busy, the scheduler stands still, nearly all nodes are lost, the database is away.
Pages are found by their links, so that a new one is among them. A serious finding of axe, a page of
the past that failed, or an error where the weather excuses none is a ``ServiceError``.
"""

import base64
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from django.urls import resolve
from django.urls.exceptions import Resolver404
from selenium.common.exceptions import JavascriptException, TimeoutException
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE, Browser
from tests.browser.looks import LOOKS, emulate, load_axe, serious
from tests.console import served
from tests.drills.drills import Result, Say, fleet
from tests.drills.tour import browsing
from tests.perf.scratch import Scratch, running, until
from tests.perf.service import ServiceError

_CORE: Final = "/api/v1"
_OWN: Final = "/apis/stowage.dev/v1"
_MERGE: Final = "application/merge-patch+json"
_ENVIRONMENT: Final = {
    "STOWAGE_SCHEDULERS": "1",
    "STOWAGE_LOG_LEVEL": "WARNING",
    "STOWAGE_NODE_MONITOR_GRACE": "20",
    "STOWAGE_NODE_MONITOR_PERIOD": "1",
    "STOWAGE_NODE_EVICTION_RATE": "1000",
    "STOWAGE_BRAKE_NAMESPACE": "40",
    "STOWAGE_BRAKE_LEAST": "3",
}
_ASKED: Final = "return [...document.querySelectorAll('a[href]')].map((one) => one.href)"
_POLL_SECONDS: Final = 0.1
_QUIET: Final = """
return !document.querySelector(".htmx-request, [data-asking]") && document.readyState === "complete"
"""
_SIZE: Final = """
scrollTo(0, 0);
return [innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)];
"""
_FAILED: Final = "return !!document.querySelector('section.failure')"
_SLOW_SECONDS: Final = 5
_WEATHERS: Final = ("good", "waiting", "busy", "stopped", "lost", "away")
_NOT_REACHED: Final = frozenset({"sign-in", "sign-in-code", "here"})
"""Pages without a link on the pages of a person who is signed in."""
_ADMIN: Final = {
    "admin": "/admin/",
    "admin-nodes": "/admin/clusterstate/node/",
    "admin-pods": "/admin/clusterstate/pod/",
    "admin-audit": "/admin/clusterstate/auditline/",
}
_TAINT: Final = {"key": "reserved", "value": "batch", "effect": "NoSchedule"}
_PACKING: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
            ]
        }
    ],
}
_ZONE: Final = "topology.kubernetes.io/zone"
_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "rack",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "spread"}},
}
_CAUSES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "large": ("64", {}),
    "ssd": ("100m", {"nodeSelector": {"disktype": "ssd"}}),
    "gpu": ("100m", {"nodeSelector": {"accelerator": "gpu"}}),
    "batch": ("30", {"nodeSelector": {"pool": "batch"}}),
    "spread": ("100m", {"topologySpreadConstraints": [_SPREAD]}),
}
"""Five kinds of pods that fit on no node, by CPU and spec. Nodes of ``pool=batch`` have a taint."""


def weather(
    *,
    nodes: int,
    pods: int,
    waiting: int,
    into: str = "",
    only: Sequence[str] = (),
    pages: Sequence[str] = (),
    say: Say,
) -> Result:
    """Look at every page in every weather, or in those of ``only``; return the pages.

    ``pages``: the names of the only ones, in that order.

    ``waiting`` pods wait in bad weather. ``into``: a folder for pictures of all pages.
    """
    if not CHROMIUM or not DRIVER:
        raise ServiceError(NONE_HERE)
    folder = Path(into) if into else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with (
        running(_ENVIRONMENT, say) as scratch,
        fleet(scratch, nodes, say, period=5) as agents,
        browsing(scratch, complaints=False) as browser,
    ):
        cluster = _Cluster(scratch, nodes)
        cluster.fill(pods)
        look = _Look(scratch, browser, folder, say)
        look.strangers()
        look.sign_in()
        look.find_pages(cluster.pages(), pages)

        wanted = set(only or _WEATHERS)
        if "good" in wanted:
            look.every("good")
        cluster.crowd(waiting)
        if "waiting" in wanted:
            look.every("waiting")
        if "busy" in wanted:
            with cluster.busy_advisors():
                look.every("busy")
        if "stopped" in wanted:
            with frozen(scratch, "up", "scheduler"):
                look.troubled("scheduler")
                look.every("stopped")
        if "lost" in wanted:
            agents.lose(nodes - max(1, nodes // 100))
            cluster.wait_for_losses(nodes)
            look.every("lost")
        if "away" in wanted:
            look.away()
    if look.found:
        raise ServiceError(f"{len(look.found)} findings: {look.found[:3]}")
    return {"nodes": nodes, "pods": pods, "waiting": waiting, "pages": sorted(look.pages)}


@contextmanager
def frozen(scratch: Scratch, *parts: str) -> Iterator[None]:
    """Within the block, processes of these parts stand still.

    ``up`` among them: it would end a part that hangs, and start it again.
    """
    stopped = [pid for part, pid in scratch.processes() if part in parts]
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class _Cluster:
    def __init__(self, scratch: Scratch, nodes: int) -> None:
        self._scratch, self._client, self._nodes = scratch, scratch.client(), nodes

    def fill(self, pods: int) -> None:
        """Create what the pages of good weather show."""
        for name in ("shop", "crowd", "bank"):
            self._client.call("POST", f"{_CORE}/namespaces", {"metadata": {"name": name}})
        for number in range(max(1, self._nodes // 20)):
            spec = {"metadata": {"labels": {"pool": "batch"}}, "spec": {"taints": [_TAINT]}}
            self._change(f"hollow-{number:05}", spec)
        self._client.call("PUT", f"{_OWN}/schedulerconfiguration", _PACKING)
        hard = {"hard": {"pods": "5000"}}
        quota = {"metadata": {"name": "shop"}, "spec": hard}
        self._client.call("POST", f"{_CORE}/namespaces/shop/resourcequotas", quota)
        labels = {"app": "web"}
        deployment = {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": _set("web", pods, "200m", {})["spec"],
        }
        self._client.call("POST", "/apis/apps/v1/namespaces/shop/deployments", deployment)
        budget = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": labels}},
        }
        path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
        self._client.call("POST", path, budget)
        devices = {
            "metadata": {"name": "gpus"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "hollow-00001",
                "pool": {"name": "hollow-00001", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
            },
        }
        self._client.call("POST", "/apis/resource.k8s.io/v1/resourceslices", devices)
        gang = {
            "metadata": {"name": "trainer"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        }
        path = "/apis/scheduling.k8s.io/v1beta1/namespaces/shop/podgroups"
        self._client.call("POST", path, gang)
        worker = _pod("trainer-0", "1")
        worker["spec"]["schedulingGroup"] = {"podGroupName": "trainer"}
        self._client.call("POST", f"{_CORE}/namespaces/shop/pods", worker)
        canary = {"metadata": {"name": "packing"}, "spec": {"configuration": _PACKING}}
        self._client.call("POST", f"{_OWN}/canaries", canary)
        until(
            lambda: self._placed("shop") >= pods,
            seconds=300,
            what=f"{pods} pods with a node",
            every=1,
        )
        large = _set("huge", 3, *_CAUSES["large"])
        self._client.call("POST", "/apis/apps/v1/namespaces/crowd/replicasets", large)

    def pages(self) -> dict[str, str]:
        """Return pages that no link of a quiet cluster leads to; makes a plan."""
        plan = {"spec": {"changes": [{"drain": {"nodes": [f"hollow-{self._nodes - 1:05}"]}}]}}
        made = self._client.call("POST", f"{_OWN}/plans", plan)["metadata"]["name"]
        emptied = f"hollow-{self._nodes - 3:05}"
        of_bank = _set("ledger", 12, "100m", {"nodeSelector": {"kubernetes.io/hostname": emptied}})
        self._client.call("POST", "/apis/apps/v1/namespaces/bank/replicasets", of_bank)
        until(lambda: self._placed("bank") >= 12, seconds=120, what="pods of the bank")
        self._change(emptied, {"spec": {"taints": [{"key": "recalled", "effect": "NoExecute"}]}})

        def brakes() -> Any:
            return self._client.call("GET", f"{_OWN}/brakes")["items"]

        (brake, *_) = until(brakes, seconds=120, what="a brake")
        namespace, name = self._scratch.query(
            "SELECT p.namespace, p.name FROM pending_pod q JOIN pod p ON p.id = q.pod_id LIMIT 1"
        )[0]
        return {
            "plan": f"/console/plans/{made}/",
            "brake": f"/console/evictions/brakes/{brake['metadata']['name']}/",
            "why": f"/console/pods/{namespace}/{name}/why",
            "change": f"/console/change?do=drain&node=hollow-{self._nodes - 2:05}",
            "what-if": "/console/what-if/",
            "pod-group": "/console/groups/shop/trainer/",
            "create": "/console/new?kind=ResourceQuota",
            "node-advice": "/console/nodes/advice",
            "comparisons": "/console/policies/comparisons?hours=1&policy=packing&policy=least",
        }

    def crowd(self, waiting: int) -> None:
        """Let pods wait for five reasons, in many classes, and wait until all were tried."""
        pods = [
            _pod(f"{cause}-{number}", cpu, more, {"app": cause, "set": f"{cause}-{number // 50}"})
            for cause, (cpu, more) in _CAUSES.items()
            for number in range(waiting // len(_CAUSES))
        ]
        self._client.create(f"{_CORE}/namespaces/crowd/pods", "Pod", pods)
        tried = "SELECT count(*) FROM pending_pod WHERE message <> ''"
        until(
            lambda: self._scratch.query(tried)[0][0] >= 0.95 * len(pods),
            seconds=600, what=f"{len(pods)} pods that were tried", every=1,
        )  # fmt: skip

    @contextmanager
    def busy_advisors(self) -> Iterator[None]:
        """Ask more than the advisors can answer until the block ends."""
        ends = threading.Event()
        world = [_pod(f"imagined-{number}", f"{100 + number}m") for number in range(1000)]
        questions = [
            ("POST", f"{_OWN}/simulations", {"spec": {"base": "live", "pods": world}}),
            ("GET", f"{_OWN}/waitinggroups?remedies=true", None),
            ("GET", f"{_OWN}/waitinggroups", None),
        ]

        def ask(number: int) -> None:
            client = self._scratch.client()
            while not ends.is_set():
                try:
                    client.call(*questions[number % len(questions)])
                except (ServiceError, OSError, HTTPException):
                    client = self._scratch.client()
                    ends.wait(1)  # what is refused costs the processor of the pages, too

        threads = [threading.Thread(target=ask, args=(at,), daemon=True) for at in range(6)]
        for one in threads:
            one.start()
        try:
            ends.wait(10)
            yield
        finally:
            ends.set()
            for one in threads:
                one.join(60)

    def wait_for_losses(self, nodes: int) -> None:
        lost = (
            "SELECT count(DISTINCT node_id) FROM taint"
            " WHERE key = 'node.kubernetes.io/unreachable' AND effect = 'NoSchedule'"
        )
        until(
            lambda: self._scratch.query(lost)[0][0] >= nodes // 2,
            seconds=300, what="lost nodes", every=1,
        )  # fmt: skip

    def _placed(self, namespace: str) -> int:
        where = "SELECT count(*) FROM pod WHERE namespace = %s AND node_name <> ''"
        return int(self._scratch.query(where, (namespace,))[0][0])

    def _change(self, node: str, patch: Result) -> None:
        self._client.call("PATCH", f"{_CORE}/nodes/{node}", patch, content_type=_MERGE)


def _pod(
    name: str,
    cpu: str,
    more: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Result:
    requests = {"cpu": cpu, "memory": "64Mi"}
    main = {"name": "main", "image": "nginx:1", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "labels": {**(labels or {})}},
        "spec": {"containers": [main], **(more or {})},
    }


def _set(name: str, count: int, cpu: str, more: Mapping[str, Any]) -> Result:
    labels = {"app": name}
    spec = {**_pod(name, cpu, more)["spec"], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
    }


class _Look:
    """A service, and a browser that goes through its pages."""

    def __init__(self, scratch: Scratch, browser: Browser, into: Path | None, say: Say) -> None:
        self._scratch, self._browser, self._into, self._say = scratch, browser, into, say
        self.pages: dict[str, str] = {}
        """Paths by the names of their URLs."""
        self.found: list[str] = []
        self._only: Sequence[str] = ()

    def sign_in(self) -> None:
        password = (self._scratch.state / "admin-password").read_text().strip()
        self._browser.open("/console/")
        self._browser.fill("#id_username", "admin")
        self._browser.fill("#id_password", password)
        self._browser.click(".sign-in button.primary")
        self._browser.find("#live[data-state=live]")

    def strangers(self) -> None:
        """Look at the page that who is not signed in sees."""
        self.pages = {"sign-in": "/console/sign-in"}
        self.every("stranger", admin=False)

    def find_pages(self, more: Mapping[str, str], only: Sequence[str] = ()) -> None:
        """Follow links from the first page until no page of another name is found.

        ``only``: look at these pages alone from now on, and seek no others.
        """
        self._only = only
        self.pages = dict(more)
        left = ["/console/", *more.values()]
        seen: set[str] = set()
        while left and not (only and set(only) <= {*self.pages, *_ADMIN}):
            path = left.pop(0)
            name = _name_of(path)
            if path in seen or not name or (name in self.pages and self.pages[name] != path):
                continue
            seen.add(path)
            self.pages.setdefault(name, path)
            self._open(path)
            for address in self._browser.driver.execute_script(_ASKED):
                parts = urlsplit(urljoin(self._scratch.url + path, address))
                if self._scratch.url.endswith(parts.netloc) and "/csv" not in parts.path:
                    left.append(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        lacking = served.looked_at() - _NOT_REACHED - set(self.pages)
        if lacking and not only:
            raise ServiceError(f"no link leads to {sorted(lacking)}")

    def _open(self, path: str) -> None:
        self._browser.open(path)
        self._browser.find("main, #content")
        try:
            quiet = WebDriverWait(self._browser.driver, 60, _POLL_SECONDS)
            quiet.until(lambda driver: driver.execute_script(_QUIET))
        except TimeoutException:
            self._find(f"{path} still asks after 60 s")

    def _find(self, what: str) -> None:
        """Note what is wrong with a page, and go on: the other pages are looked at as well."""
        self.found.append(what)
        self._say(what)

    def every(self, weather: str, *, admin: bool = True) -> None:
        """Open every page in each look; axe looks at each."""
        self._say(f"weather: {weather}")
        every = {**self.pages, **(_ADMIN if admin else {})}
        for name, path in self._limited(every):
            emulate(self._browser)
            began = time.monotonic()
            self._open(path)
            seconds = time.monotonic() - began
            if seconds > _SLOW_SECONDS:
                self._say(f"{weather}: {name} took {seconds:.0f} s")
            if weather == "good" and self._browser.driver.execute_script(_FAILED):
                self._find(f"{path} shows an error: {self._browser.text()[:400]}")
            self._see(f"{weather}-{name}")

    def _limited(self, every: Mapping[str, str]) -> list[tuple[str, str]]:
        return [(name, every[name]) for name in self._only or every if name in every]

    def _see(self, name: str) -> None:
        load_axe(self._browser)
        for look in LOOKS:
            emulate(self._browser, look)
            try:
                wrong = serious(self._browser, look)
            except JavascriptException:  # the page has opened the preview that it waited for
                load_axe(self._browser)
                wrong = serious(self._browser, look)
            except TimeoutException:
                wrong = ["axe had no answer in time"]
            if wrong:
                self._find(f"axe: {name}{look}: {wrong}")
            if self._into is not None:
                self._picture(self._into / f"{name}{look}.png")
        emulate(self._browser)

    def _picture(self, file: Path) -> None:
        """Write a picture of the page from its head to its end, or to 2,600 px."""
        width, height = self._browser.driver.execute_script(_SIZE)
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 2600), "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip}
        found = self._browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        file.write_bytes(base64.b64decode(found["data"]))

    def troubled(self, part: str) -> None:
        """Wait until an open page tells of a part that does not work."""
        self._browser.open("/console/")
        self._browser.find(f"#troubles [data-part={part}]", 120)

    def away(self) -> None:
        """Let the database stand still under an open page, then end it, and look at all pages.

        A page waits for a database that stands still as long as it may, and one that is gone
        refuses at once.
        """
        self._browser.open("/console/nodes/")
        self._browser.find("#live[data-state=live]")
        with frozen(self._scratch, "up"):  # it would start the database again
            with frozen(self._scratch, "postgres"):
                self._browser.find("#live:not([data-state=live])", 120)
                self._see("away-open-page")
            file = self._scratch.state / "postgres" / "postmaster.pid"
            os.kill(int(file.read_text().split()[0]), signal.SIGINT)
            until(lambda: not file.exists(), seconds=60, what="the end of the database")
            self.every("away")


def _name_of(path: str) -> str:
    try:
        found = resolve(urlsplit(path).path)
    except Resolver404:
        return ""
    if "console" not in found.namespaces or found.url_name in served.OF_PROGRAMS | served.ACTS:
        return ""
    return found.url_name or ""
