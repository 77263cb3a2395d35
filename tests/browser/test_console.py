"""The console in a real browser: a tour by keyboard, live changes, and every page by axe.

``CONSOLE_PICTURES=docs/images make test ARGS=tests/browser/test_console.py`` makes the pictures of
docs/console.md anew, with ``TEST_CLOCK`` at the present, so that times on them are of today.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from api import clock
from clusterstate import catalogue
from clusterstate.actions import brakes, objects
from clusterstate.actions.people import codes
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import canaries, decisions, scheduler_configuration
from clusterstate.change_log import changes
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.evictions.brakes import Share
from clusterstate.queries.past import trail
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.decisions import of_pod
from clusterstate.queries.scheduler.plans import find_plan
from scheduling.controllers import operations
from scheduling.controllers.evictions import timers
from scheduling.engine.reference.record import Body, PackedRejection
from tests.api.serve import Server
from tests.browser.conftest import Browser, as_new
from tests.browser.looks import LOOKS, by_keys, emulate, load_axe, serious
from tests.clock import NOW, moment
from tests.clusterstate.support import bind, manifest, new_pod, node, pod
from tests.console import served
from tests.forms import few

PASSWORD = "pass word 123"
PICTURES = os.environ.get("CONSOLE_PICTURES")
POD_TEXT = """\
apiVersion: v1
kind: Pod
metadata:
  name: typed
spec:
  containers:
  - name: main
    image: nginx
"""
ZONE = "topology.kubernetes.io/zone"
REFUSAL = "0/60 nodes are available: 60 Insufficient cpu."
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "6f4e0f86-0000-4000-8000-000000000001",
    "controller": True,
}
BAD = {"key": "bad", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1200}
PAGES = {
    "fleet": "/console/",
    "nodes": "/console/nodes/",
    "node": "/console/nodes/node-07/",
    "pods": "/console/pods/",
    "pod": "/console/pods/default/web-9/",
    "submit": "/console/pods/new",
    "submit-yaml": "/console/pods/new?by=yaml&example=spread",
    "decisions": "/console/decisions/",
    "past": f"/console/nodes/node-07/?at={moment()}",
    "who-can": "/console/policies/who-can",
    "revisions": "/console/policies/revisions",
    "devices": "/console/devices/",
    "waiting": "/console/waiting/",
    "pod-group": "/console/groups/default/gang/",
    "why": "/console/pods/default/big-0/why",
    "drain": "/console/change?do=drain&node=node-11",
    "what-if": "/console/what-if/",
    "plans": "/console/plans/",
    "evictions": "/console/evictions/",
    "brake": "/console/evictions/brakes/zone.a/",
    "policies": "/console/policies/",
    "node-advice": "/console/nodes/advice",
    "plugins": "/console/policies/plugins?old=0",
    "comparisons": "/console/policies/comparisons",
    "compared": "/console/policies/comparisons?hours=1&policy=packing&policy=least",
    "canaries": "/console/policies/canaries/",
    "canary": "/console/policies/canaries/packing/?report=1",
    "account": "/console/account",
    "waiting-then": f"/console/waiting/?at={moment()}",
    "scale": "/console/objects/Deployment/default/shop/",
    "objects": "/console/objects/Namespace/",
    "object": "/console/objects/Namespace/-/default/",
    "difference": "/console/objects/Node/-/node-07/changes/{change}",
    "decision": "/console/pods/default/web-0/decisions/{decision}",
    "audit": "/console/audit/",
    "changes": "/console/changes/",
    "create": "/console/new?kind=ResourceQuota&hard=pods%3D5",
    "none": "/console/nodes/none-such/",
    "wrong": "/console/nodes/?q=cpu%3Ewhat",
}
"""All pages (``served.looked_at``); names in braces are made as the test begins."""
SIGN_IN, CODE = "/console/sign-in", "/console/sign-in/code"
SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
WAITED_FOR = {
    "fleet": "#beside table",
    "compared": "#found table",
    "canary": "#found table",
    "why": "#every-node tbody[data-drawn]",
}
"""What a page shows last, where it asks for a part of itself."""
REFUSED = {"none": "404", "wrong": "400"}
"""Pages that are answered with an error, which the browser notes."""
PICTURED = {
    "fleet", "fleet-dark", "fleet-phone", "node", "node-phone", "drain", "drain-dark", "waiting",
    "pod",
}  # fmt: skip

MAIN = {"fleet", "node", "pod", "drain", "waiting", "what-if", "operation"}
"""Pages that axe looks at in the suite; those of the pictures are among them."""


PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                "score": {"disabled": [{"name": "NodeAffinity"}]},
                "multiPoint": {
                    "disabled": [{"name": "ImageLocality"}],
                    "enabled": [{"name": "TaintToleration", "weight": 7}],
                },
            },
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": {"type": "MostAllocated"}},
                }
            ],
        }
    ],
}


def trials() -> None:
    """Store a configuration, put one on trial, and make a Deployment."""
    text, _ = scheduler_configuration.check(PACKING)
    scheduler_configuration.store(document=text, by="anna", now=NOW)
    canaries.create(
        name="packing", document=text, guard_seconds=600, most_failures=3, slow_seconds=1,
        by="anna", now=NOW,
    )  # fmt: skip
    template = {
        "metadata": {"labels": {"app": "shop"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "shop"}}, "template": template}
    shop = {"metadata": {"name": "shop"}, "spec": spec}
    objects.create("Deployment", "default", shop, now=NOW)


def owned(names: list[str], places: list[str]) -> None:
    """Create pods that a controller would make again and that run, each on its node."""
    manifests = [pod(name, cpu="800m", tolerations=[BAD]) for name in names]
    for one in manifests:
        one["metadata"]["ownerReferences"] = [OWNER]
    create_pods(manifests, now=NOW)
    ids = [find_pod_id("default", name) or 0 for name in names]
    placed = [Binding(*one) for one in zip(ids, places, strict=True)]
    assert not bind_pods(placed, snapshot_revision=changes.watermark(), now=NOW).refused

    def run(pod: Any) -> Any:
        return {**pod, "status": {**pod["status"], "phase": "Running"}}

    for name in names:
        objects.update("Pod", "default", name, run, subresource="status", now=NOW)


@pytest.fixture
def cluster(server: Server) -> None:
    catalogue.reload()
    User.objects.create_superuser("anna", password=PASSWORD)
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    nodes: list[Any] = []
    places: list[str] = []
    for number in range(60):
        parts: dict[str, Any] = {}
        if number % 17 == 3:
            parts["taints"] = [taint]
        if number % 13 == 5:
            parts["unschedulable"] = True
        labels = {ZONE: "abc"[number % 3], "disktype": "ssd" if number % 2 else "hdd"}
        made = node(f"node-{number:02}", labels=labels, **parts)
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        made["status"] |= {"conditions": conditions}
        nodes.append(("Node", "", made))
        places += [f"node-{number:02}"] * (0 if parts else number % 6)
    devices = {
        "metadata": {"name": "gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-07",
            "pool": {"name": "node-07", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        },
    }
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"metadata": {"name": "gang"}, "spec": gang}
    objects.create_all(
        [*nodes, ("ResourceSlice", "", devices), ("PodGroup", "default", group)], now=NOW
    )
    new_pod("gang-0", schedulingGroup={"podGroupName": "gang"})
    owned([f"web-{number}" for number in range(len(places))], places)
    for number in range(3):
        refusal = Unschedulable(
            pod_id=new_pod(f"big-{number}", cpu="64"),
            message=REFUSAL,
            rejected_by=("NodeResourcesFit",),
        )
        set_unschedulable([refusal], now=NOW)


@pytest.fixture
def console(chromium: webdriver.Chrome, server: Server, cluster: None) -> Iterator[Browser]:
    """A browser as new in front of the console, signed in."""
    with as_new(chromium, f"http://127.0.0.1:{server.port}") as found:
        found.open("/")
        sign_in(found, "anna")
        found.find("#live[data-state=live]")
        yield found


def sign_in(console: Browser, name: str) -> None:
    console.fill("#id_username", name)
    console.fill("#id_password", PASSWORD)
    console.click(".sign-in button.primary")


def press(console: Browser, *keys: str) -> None:
    console.driver.switch_to.active_element.send_keys(*keys)


def eventually(console: Browser, holds: Callable[[], object]) -> None:
    console._until(lambda _: holds(), 60)


def test_a_node_is_found_drained_and_seen_to_empty_by_keyboard_alone(console: Browser) -> None:
    console.find("#map[data-drawn='60']")
    script = "return document.getElementById('map').focus()"
    console.driver.execute_script(script)
    press(console, Keys.END, Keys.ARROW_LEFT)
    console.sees("Enter opens")
    assert float(console.find("#map").get_attribute("data-milliseconds") or 99) < 16

    press(console, Keys.CONTROL, "k")
    # Typed and opened at once: what is found for it counts, not what was listed before.
    console.find("#palette-input").send_keys("node-11", Keys.ENTER)
    console.sees("Labels and taints")
    assert console.driver.current_url.endswith("/console/nodes/node-11/")

    console.driver.find_element(By.TAG_NAME, "body").send_keys("d")
    console.sees("Cordon and evict 5 pods")
    assert "unschedulable" not in manifest("Node", "", "node-11")["spec"]
    console.find("#confirm").send_keys(Keys.ENTER)
    console.sees("0 of 6 steps done")
    plan = find_plan(console.driver.current_url.split("/")[-2])
    while operations.carry_out(plan.id, NOW):
        pass
    console.sees("All is done")
    assert manifest("Node", "", "node-11")["spec"]["unschedulable"] is True

    console.driver.find_element(By.TAG_NAME, "body").send_keys("gn")
    console.find("#q").send_keys("is:cordoned")
    console.sees("node-11")
    eventually(console, lambda: "node-07" not in console.text())
    assert "q=is%3Acordoned" in console.driver.current_url
    console.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    console.find("#q").send_keys(Keys.ESCAPE)
    console.driver.find_element(By.TAG_NAME, "body").send_keys("gw")
    console.sees("Insufficient cpu")
    console.sees("what helps")
    assert console.complaints() == []


def test_a_change_is_seen_without_asking_for_it(console: Browser) -> None:
    console.open("/console/nodes/?q=node-00")
    console.find("#live[data-state=live]")
    console.sees("0 / 4")
    console.click("td.tick input")
    console.sees("1 node chosen")
    assert bind(new_pod("fresh", cpu="1500m"), "node-00")
    console.sees("1.5 / 4")
    chosen = console.driver.find_element(By.CSS_SELECTOR, "td.tick input")
    assert chosen.is_selected()
    objects.delete("Node", "", "node-00", now=NOW)
    console.sees("No node matches")
    assert console.complaints() == []


@pytest.mark.long
def test_a_page_that_the_browser_kept_is_live_when_it_comes_back(console: Browser) -> None:
    console.open("/console/nodes/?q=node-00")
    console.find("#live[data-state=live]")
    leave = "dispatchEvent(new PageTransitionEvent(arguments[0], {persisted: true}))"
    console.driver.execute_script(leave, "pagehide")
    console.find("#live[data-state=connecting]")
    assert bind(new_pod("fresh", cpu="1500m"), "node-00")
    console.driver.execute_script(leave, "pageshow")
    console.sees("1.5 / 4")
    console.find("#live[data-state=live]")
    assert bind(new_pod("more", cpu="500m"), "node-00")
    console.sees("2 / 4")
    assert console.complaints() == []


@pytest.mark.long
def test_the_map_asks_for_no_style_while_it_draws_nodes(console: Browser) -> None:
    """No node offers local storage: what has no value takes a colour of the style, too."""
    console.find("#map[data-drawn='60']")
    console.driver.execute_script(
        "const ask = window.getComputedStyle; let asked = 0;"
        "window.getComputedStyle = (...all) => { asked += 1; return ask(...all); };"
        "const drawing = CanvasRenderingContext2D.prototype, begin = drawing.clearRect;"
        "drawing.clearRect = function (...all) { asked = 0; return begin.apply(this, all); };"
        "new MutationObserver(() => { window.told = asked; }).observe("
        "document.getElementById('map'), {attributeFilter: ['data-milliseconds', 'data-by']})"
    )
    console.find("#map-form [name=by]").send_keys("ephemeral")
    console.find("#map[data-by='ephemeral-storage']", 20)
    eventually(console, lambda: console.driver.execute_script("return window.told !== undefined"))
    assert console.driver.execute_script("return window.told") == 0
    assert console.complaints() == []


@pytest.mark.long
def test_what_was_folded_out_stays_so_when_its_part_is_read_again(console: Browser) -> None:
    console.open("/console/pods/default/web-0/")
    console.find("#live[data-state=live]")
    console.click("#yaml summary")
    console.sees("kind: Pod")

    def label(pod: Any) -> Any:
        return {**pod, "metadata": {**pod["metadata"], "labels": {"team": "search"}}}

    objects.update("Pod", "default", "web-0", label, now=NOW)
    console.sees("team: search")
    assert console.complaints() == []


def test_the_past_is_seen_and_left_again(console: Browser) -> None:
    objects.delete("Node", "", "node-00", now=clock.now())
    console.open("/console/nodes/?q=node-00")
    console.sees("No node matches")
    console.click(".past-of summary")
    console.fill("#time-at", moment())
    console.click("#time-form button")
    console.sees("This is the past")
    console.sees("node-00")
    assert not console.driver.find_elements(By.CSS_SELECTOR, "td.tick input, [data-change]")
    console.click("table.list th a")
    console.sees("how it was")
    assert f"at={moment().replace(':', '%3A')}" in console.driver.current_url
    console.driver.find_element(By.TAG_NAME, "body").send_keys("gf")
    console.find("#map[data-drawn='60']")
    console.click("#back-to-now")
    console.find("#map[data-drawn='59']")
    assert console.complaints() == []


def test_a_pod_is_submitted_held_by_a_gate_and_let_go(console: Browser) -> None:
    console.driver.find_element(By.TAG_NAME, "body").send_keys("gp")
    console.click("form .button[href$='/pods/new']")
    console.fill("#f-name", "No Name")
    console.fill("#f-gate", "example.com/ok")
    console.click("button[value=create]")
    console.sees("Nothing was created")
    assert console.find("#f-gate").get_attribute("value") == "example.com/ok"
    console.fill("#f-name", "fresh")
    console.click("button[value=create]")
    console.sees("the scheduler ignores this pod until the gate is removed")
    console.click("#gates button")
    console.sees("gates changed")
    console.sees("No scheduling gate and no Permit plugin holds this pod back")
    assert "schedulingGates" not in manifest("Pod", "default", "fresh")["spec"]
    console.click("[data-export]")
    # The form that was refused is the only thing that the browser may report.
    assert [one for one in console.complaints() if "422" not in one] == []


def test_yaml_is_edited_in_an_editor_that_marks_what_is_wrong(console: Browser) -> None:
    def lines() -> list[str]:
        """Return the numbers of the lines that are marked, once the page is there again."""
        return console.driver.execute_script(
            "const root = document.querySelector('.editor').shadowRoot;"
            "return [...root.querySelectorAll('.cm-lint-marker')].map(one => root.elementFromPoint("
            " root.querySelector('.cm-lineNumbers').getBoundingClientRect().x + 5,"
            " one.getBoundingClientRect().y + 5)?.textContent)"
        )

    def type_anew(text: str) -> None:
        console.click(".editor")
        press(console, Keys.CONTROL + "a" + Keys.NULL)
        console.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    console.open("/console/pods/new?by=yaml")
    console.find(".editor")
    type_anew(POD_TEXT.replace("image: nginx", "image: ''"))
    console.click("button[value=create]")
    console.sees("Nothing was created")
    assert console.find("#problems li").get_attribute("data-field") == "spec.containers[0].image"
    eventually(console, lambda: lines() == ["8"])
    type_anew(POD_TEXT.replace("- name", "{ name"))
    console.click("button[value=check]")
    console.sees("not valid YAML")
    eventually(console, lambda: lines() == ["7"])
    load_axe(console)
    assert serious(console) == []
    type_anew(POD_TEXT)
    press(console, Keys.TAB, Keys.TAB, Keys.ENTER)  # Tab leaves the editor, as any field
    console.sees("default/typed")
    assert manifest("Pod", "default", "typed")["spec"]["containers"][0]["image"] == "nginx"
    assert [one for one in console.complaints() if "422" not in one and "400" not in one] == []


def test_every_node_is_scrolled_sorted_searched_and_compared(console: Browser) -> None:
    console.open("/console/pods/default/web-0/why?world=now")
    console.find("#every-node tbody[data-drawn='60']")

    def places() -> list[str]:
        """Return the nodes that are in the page, from the top."""
        found = console.driver.execute_script(
            "return [...document.querySelectorAll('#every-node tr[data-place] th')]"
            ".map(one => one.innerText)"
        )
        assert isinstance(found, list)
        return found

    assert len(places()) < 60, "what is not on the screen is not in the page"
    assert places()[0] != "node-59"
    for _ in range(60):
        press(console, "j")
    (last,) = places()[-1:]
    assert console.driver.switch_to.active_element.text == last
    console.click("#every-node th:nth-child(2) button")
    eventually(console, lambda: places()[0] == "node-00")
    console.click("#every-node th:nth-child(2) button")
    eventually(console, lambda: places()[0] == "node-59")
    console.fill("#by-name input", "node-1")
    console.find("#every-node tbody[data-drawn='10']")
    eventually(console, lambda: places() == [f"node-{one}" for one in range(19, 9, -1)])
    console.fill("#by-name input", "node-")
    console.find("#every-node tbody[data-drawn='60']")
    assert len(places()) > 30, "the room that is there is used again"
    rows = console.driver.execute_script("return document.getElementById('every-node').every_row()")
    assert [row[0] for row in rows] == ["node", *(f"node-{one:02}" for one in range(59, -1, -1))]
    console.click("[aria-label='Pin node-49']")
    console.sees("pin another one")
    console.click("[aria-label='Pin node-48']")
    console.sees("ahead by")
    heads = console.find("#pinned thead").text
    assert "node-49" in heads
    assert "node-48" in heads
    shown = console.find("#pinned tbody").text
    assert "raw " in shown
    assert "NodeResourcesFit" in shown
    assert console.complaints() == []


@pytest.mark.parametrize("every", few([False, True]), ids=["main", "every"])
def test_every_page_is_readable_in_light_dark_and_on_a_phone(console: Browser, every: bool) -> None:
    trials()
    names = {"change": changed(), "decision": decided()}
    found: list[Any] = []
    for name, path in {**PAGES, "operation": operation(console)}.items():
        if not every and name not in MAIN:
            continue
        emulate(console)
        console.open(path.format_map(names))
        console.find("main")
        if name == "fleet":
            console.find("#map[data-drawn='59']")
        if name in WAITED_FOR:
            console.find(WAITED_FOR[name])
        if PICTURES:
            console.find("#live[data-state=live], #live[data-state=past]")
        found += in_every_look(console, name)
        emulate(console)
        found += [(name, one) for one in by_keys(console)]
        loaded = console.driver.execute_script(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        found += [one for one in loaded if not one.startswith(console._address)]
        refused = REFUSED.get(name, "no complaint")
        found += [(name, one) for one in console.complaints() if refused not in one]
    assert found == []


def test_strangers_and_who_may_nothing_see_readable_pages(console: Browser) -> None:
    cora = User.objects.create_user("cora", password=PASSWORD)
    now = clock.now()
    assert codes.begin(cora, SECRET, codes.code_of(SECRET, codes.step_of(now)), now=now)
    User.objects.create_user("nils", password=PASSWORD)
    console.driver.delete_all_cookies()
    found = looked_over(console, "sign-in", SIGN_IN)
    sign_in(console, "cora")
    console.sees("Code from your authenticator app")
    found += looked_over(console, "sign-in-code", CODE)
    console.open(f"{SIGN_IN}?next=/console/nodes/")
    sign_in(console, "nils")
    console.sees("Ask an administrator")
    found += looked_over(console, "forbidden", "/console/nodes/")
    assert found == []
    assert [one for one in console.complaints() if "403" not in one] == []


@pytest.mark.long
def test_the_first_page_of_an_empty_cluster_is_readable(console: Browser) -> None:
    for number in range(60):
        objects.delete("Node", "", f"node-{number:02}", now=NOW)
    assert looked_over(console, "first-run", "/console/") == []
    console.click("#examples")
    console.sees("Timeline")
    console.open("/console/")
    console.find("#map[data-drawn='4']")
    assert console.complaints() == []


def test_every_page_is_looked_at() -> None:
    names = {"change": "1", "decision": "1"}
    seen = {served.name_of(path.format_map(names)) for path in (*PAGES.values(), SIGN_IN, CODE)}
    # A plan's page is looked at as the operation that ``operation`` begins.
    assert seen | {"plan"} == served.looked_at()


def looked_over(console: Browser, name: str, path: str) -> list[Any]:
    """Open a page; return what is wrong with it in any look."""
    emulate(console)
    console.open(path)
    console.find("main")
    return in_every_look(console, name)


def in_every_look(console: Browser, name: str) -> list[Any]:
    """Return what axe finds on the page in every look, and where a phone's screen is too narrow."""
    load_axe(console)
    found: list[Any] = []
    for look in LOOKS:
        emulate(console, look)
        keep(console, f"{name}{look}")
        found += [(name + look, *one) for one in serious(console, look)]
        width = console.driver.execute_script("return document.documentElement.scrollWidth")
        if look == "-phone" and width > 390:
            found.append((name, "wider than the screen", width))
    return found


def changed() -> str:
    """Change a node; return the change's revision."""

    def label(node: Any) -> Any:
        labels = {**node["metadata"]["labels"], "rack": "r7"}
        return {**node, "metadata": {**node["metadata"], "labels": labels}}

    objects.update("Node", "", "node-07", label, now=NOW)
    return str(trail.trail_of(KINDS["Node"], "", "node-07", limit=1).steps[0].revision)


def decided() -> str:
    """Record the decision about a pod; return its number."""
    names = tuple(f"node-{number:02}" for number in range(1, 6))
    body = Body(
        plugins=("NodeResourcesFit", "TaintToleration"),
        names=names,
        columns=((91, 80, 77, 60, 31), 300),
        rejections=(PackedRejection("TaintToleration", 3, ("untolerated taint",), 4),),
    )
    pod_id = find_pod_id("default", "web-0")
    assert pod_id is not None
    made = decisions.NewDecision(
        pod_id=pod_id, at=NOW, class_id=1, snapshot_revision=1, profile="default-scheduler",
        profile_revision=0, seed=1, draw=0, start=0, outcome="scheduled", node_name="node-01",
        total=391, margin=11, ties=1, node_count=60, evaluated=60, feasible=56, message="",
        body=msgspec.msgpack.encode(body),
    )  # fmt: skip
    decisions.record_many([made], decisions.Turn(0, 1, 1))
    (record,) = of_pod("default", "web-0", limit=1)
    return str(record.id)


def operation(console: Browser) -> str:
    """Fill the basket of What if, carry a part of it out, and set a brake; return the plan's page.

    One of its steps fails, since node-59 has gone meanwhile.
    """
    console.open("/console/what-if/")
    for name in ("node-01", "node-59"):
        console.fill("form.add [name=q]", name)
        console.click("form.add button")
        console.sees(f"Drain {name}")
    console.click("#share")
    console.click("#confirm")
    console.sees("steps done")
    path = console.driver.current_url.removeprefix(console._address)
    objects.delete("Node", "", "node-59", now=NOW)
    assert operations.carry_out(find_plan(path.split("/")[3]).id, NOW)
    console.sees("failed")
    taint = {"key": "bad", "effect": "NoExecute"}
    objects.update(
        "Node", "", "node-09", lambda node: {**node, "spec": {"taints": [taint]}}, now=NOW
    )
    assert timers.follow(NOW)
    brakes.settle([(Share("zone", "a", 3, 5), 40.0)], now=NOW)
    return path


def keep(console: Browser, name: str) -> None:
    """Take a picture for the documentation, where that is asked for."""
    if PICTURES and name in PICTURED:
        console.driver.execute_script("scrollTo(0, 0)")
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        console.driver.save_screenshot(f"{PICTURES}/console-{name}.png")
