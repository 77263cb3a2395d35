"""How a page looks: light, dark or on a phone, and what axe finds wrong with it."""

import gzip
from pathlib import Path
from typing import Any

from tests.browser.conftest import Browser

LOOKS = ("", "-dark", "-phone")
_AXE = Path(__file__).parent / "vendor/axe-4.14.1.min.js.gz"
_ONLY = {
    "": {},
    "-dark": {"runOnly": ["color-contrast"]},
    "-phone": {"rules": {"color-contrast": {"enabled": False}}},
}
"""What axe looks at: in the dark only colours differ from the light; on a phone all else may."""
_RUN = """
const done = arguments[arguments.length - 1];
axe.run({resultTypes: ['violations'], ...arguments[0]}).then(found => done(found.violations
  .filter(one => one.impact === 'serious' || one.impact === 'critical')
  .map(one => [one.id, one.nodes.map(node =>
    [node.html.slice(0, 160), node.failureSummary.split('\\n')[1].trim()])])));
"""

_DRAWN = """
const done = arguments[arguments.length - 1];
requestAnimationFrame(() => requestAnimationFrame(() =>
  Promise.allSettled(document.getAnimations()
    .filter(one => Number.isFinite(one.effect.getComputedTiming().endTime))
    .map(one => one.finished)).then(() => done())));
"""
"""Until the page has its new colours and sizes: transitions show others for a moment."""


def emulate(browser: Browser, look: str = "") -> None:
    """Let the browser be in the dark, or a phone, and wait until the page is drawn so."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if look == "-dark" else "light"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    phone = look == "-phone"
    width, height = (390, 844) if phone else (1440, 900)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.driver.execute_async_script(_DRAWN)


def load_axe(browser: Browser) -> None:
    """Put axe into the page, past its policy."""
    axe = gzip.decompress(_AXE.read_bytes()).decode()
    browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})


def serious(browser: Browser, look: str = "") -> list[Any]:
    """Return the serious findings of a page that has axe: the rule, and what is wrong where.

    ``look``: how the page looks, where it was seen in the light before.
    """
    found: list[Any] = browser.driver.execute_async_script(_RUN, _ONLY[look])
    return found
