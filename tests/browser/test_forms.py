"""What a person typed or chose stays: without a session or a service, and on the way back."""

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.sessions.models import Session
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from clusterstate.actions import objects
from tests.browser.conftest import Browser
from tests.browser.looks import emulate, load_axe, serious
from tests.browser.test_connection import Line
from tests.browser.test_connection import console as behind_a_line  # noqa: F401  # a fixture
from tests.browser.test_connection import line as line  # a fixture
from tests.browser.test_console import (
    cluster as cluster,  # a fixture
)
from tests.browser.test_console import (
    console as console,  # a fixture
)
from tests.browser.test_console import (
    eventually,
    press,
    sign_in,
)
from tests.clock import NOW
from tests.clusterstate.support import manifest, new_pod, node

_LABELS = "return [...document.querySelectorAll('[name={}]')].map(one => one.value)"
_LONG = ".".join(["n" * 63] * 3 + ["n" * 61])
_CUT = """
const found = [];
document.querySelectorAll("main section").forEach((section) => {
  const edge = section.getBoundingClientRect().right + 1;
  section.querySelectorAll("*").forEach((one) => {
    const roll = one.closest(".scrolls, pre, .editor, .unseen, [hidden], details:not([open]) div");
    if (!roll && one.getBoundingClientRect().right > edge) found.push(one.outerHTML.slice(0, 120));
  });
});
document.querySelectorAll(".beside .scrolls").forEach((one) => {
  if (one.scrollWidth > one.clientWidth + 1) found.push("beside: " + one.innerText.slice(0, 80));
});
const width = document.documentElement.scrollWidth;
if (width > document.documentElement.clientWidth) found.push("wider than the window: " + width);
return found;
"""
"""What reaches out of its part of the page, or is hidden beside the map."""


def values(console: Browser, name: str) -> Any:
    return console.driver.execute_script(_LABELS.format(name))


def typed_anew(console: Browser, text: str) -> None:
    console.click(".editor")
    press(console, Keys.CONTROL + "a" + Keys.NULL)
    console.driver.execute_cdp_cmd("Input.insertText", {"text": text})


def label_of(name: str) -> Any:
    return (manifest("Namespace", "", name)["metadata"].get("labels") or {}).get("team")


def with_a_label(console: Browser, value: str) -> None:
    """Open the YAML of a namespace and type a label into it."""
    console.open("/console/objects/Namespace/-/default/")
    console.find("#live[data-state=live]")
    text = console.driver.execute_script("return document.getElementById('text').value")
    assert "  labels:\n" in text
    typed_anew(console, text.replace("  labels:\n", f"  labels:\n    team: {value}\n"))


@pytest.mark.long
def test_the_way_back_from_a_search_leads_to_a_whole_page(console: Browser) -> None:
    console.open("/console/nodes/")
    console.find("#live[data-state=live]")
    for text, many in (("node-1", "10 of 60"), ("node-2", "10 of 60")):
        console.fill("#q", text)
        console.sees(many)
        eventually(console, lambda text=text: f"q={text}" in console.driver.current_url)
    console.driver.back()
    eventually(console, lambda: "q=node-1" in console.driver.current_url)
    console.find("header nav")
    console.find("#live[data-state=live]")
    assert console.find("#q").get_attribute("value") == "node-1"
    console.driver.back()
    console.sees("60 of 60 nodes")
    assert console.find("#q").get_attribute("value") == ""
    assert console.complaints() == []


@pytest.mark.long
def test_a_slow_answer_is_told_by_rows_that_fade(console: Browser) -> None:
    console.open("/console/nodes/")
    console.find("#live[data-state=live]")
    shown = "return Number(getComputedStyle(document.getElementById('rows')).opacity)"
    slow = {"offline": False, "latency": 1500, "downloadThroughput": -1, "uploadThroughput": -1}
    console.driver.execute_cdp_cmd("Network.enable", {})
    console.driver.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        console.fill("#q", "node-1")
        eventually(console, lambda: console.driver.execute_script(shown) < 0.9)
        assert "of 60 nodes" in console.text()
        console.sees("10 of 60")
    finally:
        none = {**slow, "latency": 0}
        console.driver.execute_cdp_cmd("Network.emulateNetworkConditions", none)
    eventually(console, lambda: console.driver.execute_script(shown) == 1)


def test_what_was_typed_is_there_again_on_the_way_back_from_a_preview(console: Browser) -> None:
    console.open("/console/nodes/node-01/")
    console.find("#live[data-state=live]")
    console.click("[data-add=taint]")
    press(console, "broken")
    console.driver.find_element(By.CSS_SELECTOR, "[name=label_value]").send_keys("x")
    keys = values(console, "label_key")
    console.driver.find_elements(By.CSS_SELECTOR, "[data-rows-of=label] [data-remove]")[1].click()
    console.click(".edits button.primary")
    console.sees("What will happen")
    console.driver.back()
    console.sees("What you had typed is here again")
    assert values(console, "taint_key") == ["broken"]
    assert values(console, "label_key") == keys[:1] + keys[2:]
    assert values(console, "label_value")[0].endswith("x")
    console.click(".edits p a")
    eventually(console, lambda: values(console, "taint_key") == [])
    assert values(console, "label_key") == keys
    assert console.complaints() == []


@pytest.mark.long
def test_an_edit_outlives_its_session(console: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream tells that the session has ended. Who has typed nothing is led to the sign-in."""
    monkeypatch.setattr("api.console.live.stream._RIGHTS_SECONDS", 0.5)
    with_a_label(console, "search")
    Session.objects.all().delete()
    console.sees("You are signed out")
    assert console.find("#live").get_attribute("data-state") == "signed-out"
    load_axe(console)
    assert serious(console) == []
    console.click("[data-go-on]")
    console.sees("Nobody is signed in yet")
    page = console.driver.current_window_handle
    console.driver.switch_to.new_window("tab")
    console.open("/console/sign-in")
    sign_in(console, "anna")
    console.find("#live[data-state=live]")
    console.driver.close()
    console.driver.switch_to.window(page)
    # The page has noticed by itself, or is told.
    going_on = (
        "const over = document.getElementById('signed-out');"
        "if (over.open) over.querySelector('[data-go-on]').click(); return !over.open"
    )
    eventually(console, lambda: console.driver.execute_script(going_on))
    console.find("#live[data-state=live]")
    console.click("form[method=post] button.primary")
    eventually(console, lambda: label_of("default") == "search")
    console.open("/console/nodes/?q=node-1")
    console.find("#live[data-state=live]")
    Session.objects.all().delete()
    sign_in(console, "anna")
    eventually(console, lambda: "/console/nodes/?q=node-1" in console.driver.current_url)
    assert [one for one in console.complaints() if "401" not in one] == []


def test_who_sends_a_form_without_a_session_keeps_it(console: Browser) -> None:
    with_a_label(console, "search")
    Session.objects.all().delete()
    # Also where the page has noticed by itself, and covers the button.
    send = "document.querySelector('form[method=post] button.primary').click()"
    console.driver.execute_script(send)
    console.sees("You are signed out")
    press(console, Keys.ESCAPE)
    text = console.driver.execute_script("return document.getElementById('text').value")
    assert "team: search" in text
    assert label_of("default") is None


@pytest.mark.long
def test_a_form_that_nobody_takes_stays_and_is_sent_later(
    behind_a_line: Browser,  # noqa: F811
    line: Line,
) -> None:
    console = behind_a_line
    console.open("/console/pods/new")
    console.find("#live[data-state=live]")
    console.fill("#f-name", "fresh")
    console.fill("#f-image", "nginx")
    line.answer_503()
    console.click("button[value=create]")
    console.sees("Nothing was sent")
    assert console.find("#f-name").get_attribute("value") == "fresh"
    line.back()
    # Pressed twice, as by a person who waits: it is created once, and that is what is seen.
    console.driver.execute_script(
        "const one = document.querySelector('button[value=create]'); one.click(); one.click();"
    )
    console.sees("default/fresh")
    assert "exists" not in console.text()
    assert manifest("Pod", "default", "fresh")["spec"]["containers"][0]["image"] == "nginx"


def test_nodes_are_chosen_from_several_pages_of_the_list(console: Browser) -> None:
    objects.create_all([("Node", "", node(f"more-{one:02}")) for one in range(30)], now=NOW)
    console.open("/console/nodes/")
    console.find("#live[data-state=live]")
    console.click("#node-more-00 input")
    console.click("a[rel=next]")
    console.click("#node-node-59 input")
    console.sees("2 nodes chosen")
    console.click("[data-do=cordon]")
    console.sees("Cordon 2 nodes")
    console.driver.back()
    console.sees("2 nodes chosen")
    console.click("[data-choose-none]")
    console.open("/console/nodes/")
    assert not console.driver.find_element(By.ID, "chosen").is_displayed()
    assert console.complaints() == []


@pytest.mark.long
def test_menus_close_by_escape_and_by_a_click_beside_them(console: Browser) -> None:
    console.open("/console/nodes/")
    for menu, inside in ((".menu", "[data-column]"), (".who", ".who a")):
        opened = f"return document.querySelector('{menu}').open"
        for close in ("escape", "beside"):
            console.click(f"{menu} summary")
            console.find(inside)
            press(console, Keys.TAB)
            if close == "escape":
                press(console, Keys.ESCAPE)
                focused = console.driver.switch_to.active_element
                assert focused == console.find(f"{menu} summary")
            else:
                console.click("#rows p")
            assert not console.driver.execute_script(opened)
    press(console, Keys.CONTROL, "k")
    console.find("#palette-input").send_keys("node", Keys.ESCAPE)
    assert not console.driver.execute_script("return document.getElementById('palette').open")
    assert console.complaints() == []


@pytest.mark.long
def test_times_are_told_by_the_clock_of_the_service(console: Browser) -> None:
    objects.create("Node", "", node("fresh"), now=NOW)
    hours = timedelta(hours=5).total_seconds() * 1000
    script = f"const real = Date.now; Date.now = () => real() + {hours};"
    added = console.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": script}
    )
    try:
        console.open("/console/nodes/?q=fresh")
        console.find("#live[data-state=live]")
        console.driver.execute_async_script("setTimeout(arguments[0], 1500)")
        age = console.find("#node-fresh time").text
        assert age.endswith("s"), age
        assert int(age.removesuffix("s")) < 120
        console.click(".past-of summary")
        console.driver.execute_script(
            "const slider = document.getElementById('time'); slider.value = 5;"
            "slider.dispatchEvent(new Event('change'));"
        )
        eventually(console, lambda: "at=" in console.driver.current_url)
        (at,) = parse_qs(urlsplit(console.driver.current_url).query)["at"]
        ago = (NOW - datetime.fromisoformat(at)).total_seconds()
        assert 14 * 60 < ago < 16 * 60
    finally:
        console.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


@pytest.mark.long
def test_a_command_is_copied_where_the_browser_lends_no_clipboard(console: Browser) -> None:
    console.open("/console/change?do=cordon&node=node-01")
    button = console.find("[data-copy]")
    console.driver.execute_script(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.addEventListener('copy', () => { window.taken = String(getSelection()) || "
        "document.activeElement.value; });"
    )
    button.click()
    console.sees("copied")
    assert console.driver.execute_script("return window.taken") == "kubectl cordon node-01"
    eventually(console, lambda: "Copy as kubectl" in console.text())


@pytest.mark.long
def test_the_longest_names_hide_nothing(console: Browser) -> None:
    long = {"example.com/" + "g" * 63: "8", "cpu": "4", "memory": "8Gi", "pods": "10"}
    made = node(_LONG, labels={"topology.kubernetes.io/zone": "z" * 63, "l" * 63: "v" * 63})
    made["status"] |= {"allocatable": long, "capacity": long}
    made["spec"] = {"taints": [{"key": "t" * 63, "value": "v" * 63, "effect": "NoSchedule"}]}
    objects.create("Node", "", made, now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "n" * 63}}, now=NOW)
    new_pod(_LONG, namespace="n" * 63)
    found: dict[str, Any] = {}
    pages = {
        "/console/": "#beside table",
        "/console/nodes/": "#rows table",
        f"/console/nodes/{_LONG}/": "#node section",
        f"/console/pods/{'n' * 63}/{_LONG}/": "section",
        f"/console/change?do=drain&node={_LONG}": "#confirm",
        "/console/waiting/": "table.stacks",
    }
    hidden = (
        "const seen = document.querySelector('.stacks').closest('.scrolls');"
        "return seen.scrollWidth - seen.clientWidth"
    )
    for look in ("", "-phone"):
        emulate(console, look)
        for path, last in pages.items():
            console.open(path)
            console.find(last)
            found[path[:40] + look] = console.driver.execute_script(_CUT)
    # On a phone nothing is beside the screen: why pods wait is on it.
    assert console.driver.execute_script(hidden) <= 1
    emulate(console)
    assert {path: cut for path, cut in found.items() if cut} == {}
    assert console.complaints() == []


def test_markup_in_what_others_write_is_text(console: Browser) -> None:
    taken = "document.title='taken'"
    evil = f'<img src=x onerror="{taken}"><script>{taken}</script>\u202e🦄'

    def worse(stored: Any) -> Any:
        annotations = {"note": evil}
        one = {"type": "Ready", "status": "True", "reason": "R", "message": evil}
        status = {**stored["status"], "conditions": [one]}
        metadata = {**stored["metadata"], "annotations": annotations}
        return {**stored, "metadata": metadata, "status": status}

    objects.update("Node", "", "node-01", worse, now=NOW)
    objects.update("Node", "", "node-01", worse, subresource="status", now=NOW)
    for path in ("/console/nodes/node-01/", "/console/objects/Node/-/node-01/"):
        console.open(path)
        console.find("#live[data-state=live]")
        assert "taken" not in console.driver.title
        assert not console.driver.find_elements(By.CSS_SELECTOR, "main img")
    console.open("/console/nodes/?q=" + json.dumps(evil)[1:40])
    assert not console.driver.find_elements(By.CSS_SELECTOR, "main img")
    assert [one for one in console.complaints() if "400" not in one] == []
