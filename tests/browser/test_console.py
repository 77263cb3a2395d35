"""The console in a real browser: a tour by keyboard, live changes, and every page by axe.

``CONSOLE_PICTURES=docs/images make test ARGS=tests/browser/test_console.py`` makes the pictures of
docs/console.md anew, with ``TEST_CLOCK`` at the present, so that times on them are of today.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from api import clock
from clusterstate import catalogue
from clusterstate.actions import brakes, canaries, objects, scheduler_configuration
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.queries.brakes import Share
from clusterstate.queries.plans import find_plan
from scheduling.controllers import operations
from scheduling.controllers.evictions import timers
from tests.api.serve import Server
from tests.browser.conftest import CHROMIUM, DRIVER, NONE_HERE, Browser, driven
from tests.browser.looks import LOOKS, emulate, load_axe, serious
from tests.clock import NOW, moment
from tests.clusterstate.support import bind, create_node, manifest, new_pod

PASSWORD = "pass word 123"
PICTURES = os.environ.get("CONSOLE_PICTURES")
ZONE = "topology.kubernetes.io/zone"
REFUSAL = "0/60 nodes are available: 60 Insufficient cpu."
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "6f4e0f86-0000-4000-8000-000000000001",
    "controller": True,
}
PAGES = {
    "fleet": "/console/",
    "nodes": "/console/nodes/",
    "node": "/console/nodes/node-07/",
    "pods": "/console/pods/",
    "pod": "/console/pods/default/web-0/",
    "submit": "/console/pods/new",
    "submit-yaml": "/console/pods/new?by=yaml&example=spread",
    "decisions": "/console/decisions/",
    "past": f"/console/nodes/node-07/?at={moment()}",
    "who-can": "/console/policies/who-can",
    "revisions": "/console/policies/revisions",
    "waiting": "/console/waiting/",
    "why": "/console/pods/default/big-0/why",
    "drain": "/console/change?do=drain&node=node-07",
    "what-if": "/console/what-if/",
    "plans": "/console/plans/",
    "evictions": "/console/evictions/",
    "brake": "/console/evictions/brakes/zone.a/",
    "policies": "/console/policies/",
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
    "audit": "/console/audit/",
}
PICTURED = {
    "fleet", "fleet-dark", "fleet-phone", "node", "node-phone", "drain", "drain-dark", "waiting",
    "pod",
}  # fmt: skip


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


def owned(name: str, node: str) -> None:
    """Create a pod that a controller would make again, on a node."""
    assert bind(new_pod(name, cpu="700m"), node)

    def own(pod: Any) -> Any:
        return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [OWNER]}}

    objects.update("Pod", "default", name, own, now=NOW)


@pytest.fixture
def cluster(server: Server) -> None:
    catalogue.reload()
    User.objects.create_superuser("anna", password=PASSWORD)
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    pods = 0
    for number in range(60):
        parts: dict[str, Any] = {}
        if number % 17 == 3:
            parts["taints"] = [taint]
        if number % 13 == 5:
            parts["unschedulable"] = True
        labels = {ZONE: "abc"[number % 3], "disktype": "ssd" if number % 2 else "hdd"}
        create_node(f"node-{number:02}", labels=labels, **parts)
        for _ in range(0 if parts else number % 6):
            owned(f"web-{pods}", f"node-{number:02}")
            pods += 1
    for number in range(3):
        refusal = Unschedulable(
            pod_id=new_pod(f"big-{number}", cpu="64"),
            message=REFUSAL,
            rejected_by=("NodeResourcesFit",),
        )
        set_unschedulable([refusal], now=NOW)


@pytest.fixture
def console(server: Server, cluster: None, tmp_path: Path) -> Iterator[Browser]:
    """A fresh browser in front of the console, signed in."""
    if not CHROMIUM or not DRIVER:
        pytest.skip(NONE_HERE)
    with driven(tmp_path / "profile", browser="ALL") as driver:
        found = Browser(driver, f"http://127.0.0.1:{server.port}")
        found.open("/")
        found.fill("#id_username", "anna")
        found.fill("#id_password", PASSWORD)
        found.click(".sign-in button.primary")
        found.find("#live[data-state=live]")
        yield found


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
    console.find("#palette-input").send_keys("node-11")
    eventually(console, lambda: "node-11" in console.find("#palette-found").text)
    press(console, Keys.ENTER)
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
    console.sees("it is not tried while it has this gate")
    console.click("#gates button")
    console.sees("gates changed")
    console.sees("Nothing holds it back")
    assert "schedulingGates" not in manifest("Pod", "default", "fresh")["spec"]
    console.click("[data-export]")
    # The form that was refused is the only thing that the browser may report.
    assert [one for one in console.complaints() if "422" not in one] == []


def test_every_page_is_readable_in_light_dark_and_on_a_phone(console: Browser) -> None:
    trials()
    found: list[Any] = []
    for name, path in {**PAGES, "operation": operation(console)}.items():
        emulate(console)
        console.open(path)
        console.find("main")
        if name == "fleet":
            console.find("#map[data-drawn='59']")
            console.sees("Last decisions")
        if name == "compared":
            console.sees("Figures")
        if PICTURES:
            console.find("#live[data-state=live], #live[data-state=past]")
        load_axe(console)
        for look in LOOKS:
            emulate(console, look)
            keep(console, f"{name}{look}")
            found += [(name + look, *one) for one in serious(console, look)]
            width = console.driver.execute_script("return document.documentElement.scrollWidth")
            if look == "-phone" and width > 390:
                found.append((name, "wider than the screen", width))
        loaded = console.driver.execute_script(
            "return performance.getEntriesByType('resource').map(one => one.name)"
        )
        found += [one for one in loaded if not one.startswith(console._address)]
    assert found == []
    assert console.complaints() == []


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
