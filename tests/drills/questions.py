"""Twelve questions that operators ask, answered in the console by clicks and with kubectl, counted.

On a service of its own with hollow nodes. Each is asked twice, of things that are alike, so that
the second answer does not find what the first one changed. A page with an error, or one that does
not show the answer in time, is a ``ServiceError``: no question ends at an error page.
"""

import json
import time
from typing import Any, Final

import msgspec
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE, Browser
from tests.drills.drills import Result, Say, fleet
from tests.drills.hands import Mouse
from tests.drills.tour import Commands, Walk, browsing, result
from tests.perf.scratch import Scratch, running, until
from tests.perf.service import ServiceError

_CORE: Final = "/api/v1"
_OWN: Final = "/apis/stowage.dev/v1"
_MERGE: Final = "application/merge-patch+json"
_SHARES: Final = "awk '/^Name:/{n=$2} /^  cpu  /{print $3,n}' | tr -d '(%)' | awk '$1>80'"
_LINE: Final = """
const editor = document.querySelector(".editor");
return editor && [...editor.shadowRoot.querySelectorAll(".cm-line")]
  .find((line) => line.textContent.trim().startsWith(arguments[0]));
"""
"""Finds a line in the editor, which stands in a shadow tree."""
_CHANGE_OF: Final = """
const rows = [...document.querySelectorAll("#history tbody tr")];
return 1 + rows.findIndex((row) => row.textContent.includes(arguments[0]));
"""
"""Finds the newest change of a field in an object's history, as an eye does; counted from 1."""
_ZONE: Final = "topology.kubernetes.io/zone"
_ENVIRONMENT: Final = {"STOWAGE_SCHEDULERS": "1", "STOWAGE_LOG_LEVEL": "WARNING"}


class Subject(msgspec.Struct, frozen=True):
    """What one asker asks about; the other asker has things of the same shape."""

    name: str
    """Of the namespace, the quota and the prefix of ReplicaSets."""
    full: str
    """A node filled by ``NAME-packed``, to be drained."""
    tainted: str
    """A node with pods, to get a NoExecute taint."""
    evicted: str
    """A pod that a NoExecute taint has evicted."""
    waiting: str
    """A pod that waits for a node with the label ``disk=NAME``."""
    placed: str
    """A pod with a node, whose scores are compared."""


def questions(*, nodes: int, pods: int, say: Say) -> Result:
    """Answer the twelve questions in a browser and with kubectl; return what each took."""
    if not CHROMIUM or not DRIVER:
        raise ServiceError(NONE_HERE)
    with running(_ENVIRONMENT, say) as scratch, fleet(scratch, nodes, say):
        cluster = _Cluster(scratch, nodes)
        cluster.fill(pods)
        mine, other = (cluster.prepare(at, name) for at, name in enumerate(("shop", "bank")))
        with browsing(scratch) as browser:
            console = _Console(scratch, browser, say).run(mine)
        kubectl = _Kubectl(scratch, say).run(other)
    return {"nodes": nodes, "pods": pods, "console": console, "kubectl": kubectl}


class _Cluster:
    def __init__(self, scratch: Scratch, nodes: int) -> None:
        self._scratch, self._client, self._nodes = scratch, scratch.client(), nodes

    def fill(self, pods: int) -> None:
        self._client.call("POST", f"{_CORE}/namespaces", {"metadata": {"name": "fill"}})
        for number in range(4):
            self._replicas("fill", f"fill-{number}", pods // 4, "100m")
        self._running("fill-%", pods // 4 * 4)

    def prepare(self, at: int, name: str) -> Subject:
        """Make what an asker asks about, and have a pod evicted."""
        full, tainted, emptied = (f"hollow-{3 * at + part:05}" for part in range(3))
        self._client.call("POST", f"{_CORE}/namespaces", {"metadata": {"name": name}})
        self._replicas(name, f"{name}-packed", 3, "9", full)
        self._replicas(name, f"{name}-web", 3, "100m", tainted)
        self._replicas(name, f"{name}-gone", 1, "100m", emptied)
        self._running(f"{name}-%", 7)
        hard = {"pods": "20", "requests.cpu": "200"}
        quota = {"metadata": {"name": name}, "spec": {"hard": hard}}
        self._client.call("POST", f"{_CORE}/namespaces/{name}/resourcequotas", quota)
        evicted, placed = self._first(f"{name}-gone-%"), self._first(f"{name}-web-%")
        taint = {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}
        self._client.call("PATCH", f"{_CORE}/nodes/{emptied}", taint, content_type=_MERGE)
        until(
            lambda: not self._scratch.query("SELECT 1 FROM pod WHERE name = %s", (evicted,)),
            seconds=120, what=f"the eviction of {evicted}",
        )  # fmt: skip
        label = {"metadata": {"labels": {"disk": name}}, "spec": {"unschedulable": True}}
        self._client.call("PATCH", f"{_CORE}/nodes/{emptied}", label, content_type=_MERGE)
        self._replicas(name, f"{name}-stuck", 1, "100m", selector={"disk": name})
        until(
            lambda: self._scratch.query(
                "SELECT 1 FROM pod WHERE name LIKE %s AND node_name = ''", (f"{name}-stuck-%",)
            ),
            seconds=60, what="a pod that waits",
        )  # fmt: skip
        return Subject(name, full, tainted, evicted, self._first(f"{name}-stuck-%"), placed)

    def _first(self, pattern: str) -> str:
        found = self._scratch.query("SELECT name FROM pod WHERE name LIKE %s LIMIT 1", (pattern,))
        return str(found[0][0])

    def _running(self, pattern: str, count: int) -> None:
        where = "SELECT count(*) FROM pod WHERE name LIKE %s AND phase = 'Running'"
        until(
            lambda: self._scratch.query(where, (pattern,))[0][0] >= count,
            seconds=600, what=f"{count} running pods", every=1,
        )  # fmt: skip

    def _replicas(
        self, namespace: str, name: str, count: int, cpu: str, node: str = "",
        selector: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        labels = {"app": name}
        resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
        spec: Result = {
            "containers": [{"name": "main", "image": "nginx:1", "resources": resources}],
            "terminationGracePeriodSeconds": 1,
        }
        if selector:
            spec["nodeSelector"] = selector
        if node:
            match = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
            term = {"weight": 100, "preference": {"matchExpressions": [match]}}
            preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"nodeAffinity": preferred}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {
            "metadata": {"name": name},
            "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
        }
        self._client.call("POST", f"/apis/apps/v1/namespaces/{namespace}/replicasets", body)


class _Console(Walk):
    """The answers by mouse; the clock stops when the page shows them."""

    def __init__(self, scratch: Scratch, browser: Browser, say: Say) -> None:
        self._mouse = Mouse(browser)
        super().__init__(scratch, browser, self._mouse, say)
        self._client = scratch.client()
        self._minute = time.strftime("%H:%M", time.gmtime())

    def run(self, one: Subject) -> Result:
        """Ask every question."""
        do, sees, name = self._mouse, self._browser.sees, one.name
        self._sign_in()
        with self._task("which nodes are full"):
            do.go("n")
            do.write("#q", "cpu>80%")
            sees(one.full)
        with self._task("why does a pod wait, and what helps"):
            do.go("w")
            do.row(f"tr:has(a[href*='{one.waiting}']) a[href*='/why']")
            sees("disk")
            self._browser.find("a[href*='/change?']")
        with self._task("drain a node safely"):
            do.go("n")
            do.write("#q", one.full)
            do.row(f"#node-{one.full} th a")
            do.follow("a.button[href*='do=drain']")
            sees("Cordon and evict")
            do.confirm()
            sees("All is done")
        with self._task("who evicted a pod, and why"):
            self._search(one.evicted)
            sees("broken")
        with self._task("what changed at that minute"):
            do.go("a")
            do.follow("a[href*='/console/changes/']")
            do.write("[name=time]", self._minute)
            do.enter()
            sees("changed Node")
        with self._task("what if I taint a zone"):
            do.go("i")
            self._choose("select[name=do]", "taint")
            do.write("[name=q]", f"{_ZONE}=zone-1")
            do.write("[name=key]", "upgrade")
            self._choose("select[name=effect]", "NoExecute")
            do.follow(".add button")
            sees("Pods that leave")
        with self._task("compare two configurations"):
            do.go("o")
            do.follow("a[href*='/policies/comparisons']")
            do.follow("input[value=default]")
            do.follow("input[value=packing]")
            do.follow("#asks button")
            self._browser.find("#found table")
        with self._task("give a group read access to one namespace"):
            do.go("o")
            self._replace("[name=subject]", f"Group:{name}")
            self._replace("[name=role]", "view")
            do.write("form:has([name=subject]) [name=namespace]", name)
            do.follow("form:has([name=subject]) button")
            do.follow("main form[method=post] button.primary")
            sees("History")
        with self._task("add a NoExecute taint"):
            do.go("n")
            do.write("#q", one.tainted)
            do.row(f"#node-{one.tainted} th a")
            do.follow("[data-add=taint]")
            do.write("[data-rows-of=taint] [name=taint_key]", "upgrade")
            self._choose("[data-rows-of=taint] [name=taint_effect]", "NoExecute")
            do.follow("form.edits:has([data-add=taint]) button.primary")
            self._browser.find("#confirm")
            do.confirm()
            sees("All is done")
        with self._task("resize a quota"):
            do.go("o")
            do.row(f"tr a[href*='/ResourceQuota/{name}/']")
            self._retype("pods: ", "40")
            do.follow("main form[method=post] button.primary")
            self._browser.find("#history td")
            sees("spec.hard")
        with self._task("roll an object back"):
            row = self._browser.driver.execute_script(_CHANGE_OF, "spec.hard")
            do.follow(f"#history tbody tr:nth-child({row}) a[href*='/changes/']")
            do.follow("main a.button[href*='version=']")
            do.follow("main form[method=post] button.primary")
            path = f"{_CORE}/namespaces/{name}/resourcequotas/{name}"
            until(
                lambda: self._client.call("GET", path)["spec"]["hard"]["pods"] == "20",
                seconds=30, what="the quota as it was",
            )  # fmt: skip
        with self._task("compare two scores"):
            self._search(one.placed)
            do.row("tr a[href*='/decisions/']")
            do.follow("form:has(select[name=b]) button")
            self._browser.find("#compared td")
        return result(self._rows)

    def _search(self, name: str) -> None:
        """Find a pod by the search of every page."""
        self._mouse.follow("#open-palette")
        self._mouse._type(name)
        self._browser.sees(f"/{name}")
        self._mouse.follow("#palette-found [role=option]")

    def _choose(self, css: str, value: str) -> None:
        Select(self._browser.find(css)).select_by_visible_text(value)
        self._mouse.effort.clicks += 2

    def _replace(self, css: str, text: str) -> None:
        self._mouse._click(css)
        ActionChains(self._browser.driver).key_down(Keys.CONTROL).send_keys("a").key_up(
            Keys.CONTROL
        ).perform()
        self._mouse.effort.keys += 1
        self._mouse._type(text)

    def _retype(self, key: str, value: str) -> None:
        """Write another value into the line of the editor that has a key."""
        line: Any = self._browser._until(
            lambda driver: driver.execute_script(_LINE, key), seconds=30
        )
        line.click()
        self._mouse.effort.clicks += 1
        old = line.text.partition(": ")[2]
        self._mouse._press(Keys.END, *[Keys.BACKSPACE] * len(old))
        self._mouse._type(f"'{value}'")


class _Kubectl(Commands):
    """The same questions with kubectl; by the service's paths where it has no command."""

    def run(self, one: Subject) -> Result:
        """Ask every question."""
        name, now = one.name, time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime())
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        changes = {"effect": "NoExecute", "key": "upgrade"}
        zone = {"taint": {"selector": f"{_ZONE}=zone-1", "taints": [changes]}}
        plan = {"spec": {"changes": [zone]}}
        compare = {"spec": {"hours": 1, "policies": [{"name": "default"}, {"name": "packing"}]}}
        self._do("which nodes are full", f"kubectl describe nodes | {_SHARES}")
        self._do(
            "why does a pod wait, and what helps",
            f"kubectl get pods -n {name} --field-selector=status.phase=Pending",
            f"kubectl describe pod -n {name} {one.waiting}",
            f"kubectl get nodes -l disk={name} -o yaml",
        )
        self._do(
            "drain a node safely",
            f"kubectl drain {one.full} --ignore-daemonsets --dry-run=server",
            f"kubectl drain {one.full} --ignore-daemonsets",
        )
        self._do(
            "who evicted a pod, and why",
            f"kubectl get events -n {name} --field-selector=involvedObject.name={one.evicted}",
            f"kubectl get --raw '{_OWN}/changes?kind=Pod&namespace={name}&name={one.evicted}'",
        )
        self._do(
            "what changed at that minute",
            f"kubectl get --raw '{_OWN}/audit?since={now}&limit=50'",
        )
        self._do(
            "what if I taint a zone",
            f"kubectl create --raw {_OWN}/plans -f - <<'END'\n{json.dumps(plan)}\nEND",
        )
        self._do(
            "compare two configurations",
            f"kubectl create --raw {_OWN}/comparisons -f - <<'END'\n{json.dumps(compare)}\nEND",
        )
        self._do(
            "give a group read access to one namespace",
            f"kubectl create rolebinding {name} -n {name} --clusterrole=view --group={name}",
        )
        self._do("add a NoExecute taint", f"kubectl taint nodes {one.tainted} upgrade:NoExecute")
        patch = '{"spec":{"hard":{"pods":"40"}}}'
        self._do("resize a quota", f"kubectl patch quota {name} -n {name} -p '{patch}'")
        back = patch.replace("40", "20")
        self._do(
            "roll an object back",
            f"kubectl get --raw '{_CORE}/namespaces/{name}/resourcequotas/{name}?at={before}'",
            f"kubectl patch quota {name} -n {name} -p '{back}'",
        )
        path = f"{_CORE}/namespaces/{name}/pods/{one.placed}/decisions?explain=full&format=table"
        self._do("compare two scores", f"kubectl get --raw '{path}'")
        return result(self._rows)
