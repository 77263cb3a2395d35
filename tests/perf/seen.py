"""How soon an open page of the console shows a change, and how long the map takes to draw itself.

A real browser has the fleet's page open, of a service with so many nodes. A node is cordoned and
uncordoned by the API, and the browser's clock, which is this host's, tells when the map was drawn
the next time.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.browser.conftest import CHROMIUM, DRIVER, FLAGS, Browser
from tests.perf.scratch import Scratch, until
from tests.perf.workloads import node

DRAWN_MS, SEEN_MS = 16, 300
_TIMES: Final = 10
_PAUSE: Final = 2.0
"""Longer than a page waits between two looks at the same part."""
_BEGIN: Final = """
const map = document.getElementById("map");
window.seen = 0;
new MutationObserver(() => { window.seen = Date.now(); }).observe(
  map, {attributes: true, attributeFilter: ["data-milliseconds"]});
"""


def run(service: Scratch, nodes: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return both figures; nothing where there is no browser."""
    if not CHROMIUM or not DRIVER:
        say("no chromium and chromedriver here: what a browser takes is not measured")
        return []
    with _browser(service) as browser:
        browser.open("/console/sign-in?next=/console/")
        browser.fill("input[name=username]", "admin")
        browser.fill("input[name=password]", (service.state / "admin-password").read_text().strip())
        browser.click("main form button")
        browser.find(f"#map[data-drawn='{nodes}']")
        browser.driver.execute_script(_BEGIN)
        drawn, seen = _watched(browser, service)
    shape = {"mode": "consoles", "nodes": nodes}
    return [
        shape | {"what": "map drawn", **_told(drawn), "met": statistics.median(drawn) < DRAWN_MS},
        shape | {"what": "change seen", **_told(seen), "met": statistics.median(seen) < SEEN_MS},
    ]


def _watched(browser: Browser, service: Scratch) -> tuple[list[float], list[float]]:
    client = service.client()
    path = f"/api/v1/nodes/{node(1)['metadata']['name']}"
    drawn, seen = [], []
    for number in range(_TIMES):
        time.sleep(_PAUSE)
        browser.driver.execute_script("window.seen = 0")
        body = {"spec": {"unschedulable": number % 2 == 0}}
        client.call("PATCH", path, body, content_type="application/merge-patch+json")
        changed = time.time() * 1000
        at = until(
            lambda: browser.driver.execute_script("return window.seen"),
            seconds=30, what="the map", every=0.05,
        )  # fmt: skip
        seen.append(at - changed)
        took = browser.driver.execute_script(
            "return Number(document.getElementById('map').dataset.milliseconds)"
        )
        drawn.append(float(took))
    return drawn, seen


def _told(times: list[float]) -> dict[str, float]:
    return {"median_ms": round(statistics.median(times), 1), "worst_ms": round(max(times), 1)}


@contextmanager
def _browser(service: Scratch) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory(prefix="stowage-browser-") as folder:
        for flag in (*FLAGS, f"--user-data-dir={Path(folder) / 'profile'}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
        try:
            yield Browser(driver, service.url)
        finally:
            driver.quit()
