"""Open pages that lose the console: what they say meanwhile, and that they catch up.

The browser reaches the server through a proxy that cuts connections, refuses new ones or swallows
what is sent; in the server's place another one may answer that it is not there.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from clusterstate import catalogue
from clusterstate.actions import objects
from tests.api.serve import Server
from tests.browser.conftest import Browser, as_new
from tests.browser.test_console import press
from tests.clock import NOW
from tests.clusterstate.support import bind, manifest, new_pod, node
from tests.faults.proxy import Proxy

_PASSWORD = "pass word 123"
_NODE = "node-00"


class _Away(BaseHTTPRequestHandler):
    """What stands in front of a service says while the service starts anew."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Line:
    """The connection between a browser and the console."""

    def __init__(self, proxy: Proxy, server: int, away: int) -> None:
        self.proxy = proxy
        self._server = server
        self._away = away

    def answer_503(self) -> None:
        """End what is connected; who asks is told that there is no service."""
        self.proxy.aim(self._away)
        self.proxy.cut()

    def back(self) -> None:
        """Lead to the server again."""
        self.proxy.aim(self._server)
        self.proxy.cut()
        self.proxy.heal()


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    catalogue.reload()
    User.objects.create_superuser("anna", password=_PASSWORD)
    objects.create("Node", "", node(_NODE, labels={"disktype": "ssd"}), now=NOW)
    away = ThreadingHTTPServer(("127.0.0.1", 0), _Away)
    threading.Thread(target=away.serve_forever, daemon=True).start()
    proxy = Proxy(server.port)
    yield Line(proxy, server.port, away.server_port)
    proxy.close()
    away.shutdown()
    away.server_close()


@pytest.fixture
def console(chromium: webdriver.Chrome, line: Line) -> Iterator[Browser]:
    """A browser behind the line, signed in, with the list of nodes open."""
    with as_new(chromium, f"http://127.0.0.1:{line.proxy.port}") as found:
        found.open("/console/nodes/")
        found.fill("#id_username", "anna")
        found.fill("#id_password", _PASSWORD)
        found.click(".sign-in button.primary")
        found.find("#live[data-state=live]")
        found.sees("0 / 4")
        yield found


def test_what_was_asked_for_while_the_service_was_away_is_asked_for_again(
    console: Browser, line: Line
) -> None:
    """The page hears of a change and waits a moment with its question, which nobody answers."""
    heard = "return document.querySelector('main [data-live]').dataset.heard"
    assert bind(new_pod("first", cpu="500m"), _NODE)
    console.sees("0.5 / 4")
    before = console.driver.execute_script(heard)
    assert bind(new_pod("second", cpu="1"), _NODE)
    console._until(lambda driver: driver.execute_script(heard) != before)
    line.answer_503()
    console.find("#live[data-state=reconnecting]")
    line.back()
    console.sees("1.5 / 4", 20)
    console.find("#live[data-state=live]")


@pytest.mark.long
def test_a_part_that_got_no_answer_is_told_to_be_old_until_it_has_one(
    console: Browser, line: Line
) -> None:
    """The stream goes on; each question of the page fails for a while."""
    refuse(console, "*/console/nodes/*")
    assert bind(new_pod("first", cpu="500m"), _NODE)
    console.find("#live[data-state=stale]")
    console.sees("part of the page is out of date")
    assert "0 / 4" in console.text()
    refuse(console)
    console.sees("0.5 / 4", 20)
    console.find("#live[data-state=live]")


def refuse(console: Browser, *addresses: str) -> None:
    """Let the browser reach no address like these."""
    console.driver.execute_cdp_cmd("Network.enable", {})
    console.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": addresses})


@pytest.mark.long
def test_silence_is_told_and_what_happened_meanwhile_is_shown_when_it_ends(
    console: Browser, line: Line
) -> None:
    line.proxy.hush()
    assert bind(new_pod("first", cpu="500m"), _NODE)
    console.sees("no news for", 30)
    console.find("#live[data-state=stale]")
    assert "0 / 4" in console.text()
    line.proxy.heal()
    console.sees("0.5 / 4", 20)
    console.find("#live[data-state=live]")


def test_edits_are_kept_while_the_connection_is_lost_and_put_together_with_those_of_others(
    console: Browser, line: Line
) -> None:
    """A label by one person, a taint by another one meanwhile: both are there in the end."""
    console.open(f"/console/objects/Node/-/{_NODE}/")
    console.find("#live[data-state=live]")
    line.answer_503()
    text = written(console)
    assert "disktype: ssd" in text
    console.click(".editor")
    press(console, Keys.CONTROL + "a" + Keys.NULL)
    edited = text.replace("disktype: ssd", "disktype: nvme")
    console.driver.execute_cdp_cmd("Input.insertText", {"text": edited})

    def taint(stored: Any) -> Any:
        one = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        return {**stored, "spec": {**stored["spec"], "taints": [one]}}

    objects.update("Node", "", _NODE, taint, now=NOW)
    line.back()
    console.find("#live[data-state=live]")
    console.click("form[method=post] button.primary")
    console.sees("Somebody else changed this object meanwhile")
    assert "disktype: nvme" in written(console)
    assert "dedicated" in written(console)
    console.click("form[method=post] button.primary")
    console._until(lambda _: labels().get("disktype") == "nvme")
    assert [one["key"] for one in manifest("Node", "", _NODE)["spec"]["taints"]] == ["dedicated"]


def written(console: Browser) -> Any:
    """Return the text that the form would send."""
    return console.driver.execute_script("return document.getElementById('text').value")


def labels() -> Any:
    return manifest("Node", "", _NODE)["metadata"]["labels"]
