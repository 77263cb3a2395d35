"""How a page looks, light, dark or on a phone; what is wrong with it for axe, and by keys alone."""

import gzip
from pathlib import Path
from typing import Any

from selenium.webdriver.common.keys import Keys

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


_TABBED = """
window.tabbed = [];
addEventListener("focusin", () => {
  let one = document.activeElement;
  while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const drawn = style.outlineStyle !== "none" || one.matches(".cm-content");
  const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  if (!drawn || !inside) tabbed.push("focus is not seen at " + one.outerHTML.slice(0, 160));
  one.dataset.tabbed = "";
});
return [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.disabled
    && one.tabIndex >= 0).length;
"""
_LEFT = """
const left = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.disabled
    && one.tabIndex >= 0 && one.type !== "radio" && !("tabbed" in one.dataset))
  .map((one) => "Tab does not reach " + one.outerHTML.slice(0, 160));
return [...new Set(tabbed), ...left];
"""
_FOCUSED = "return document.activeElement.tagName"
_OPEN = "return document.querySelectorAll('dialog[open]').length"


def by_keys(browser: Browser) -> list[str]:
    """Return what is wrong with a fresh page for who has no mouse.

    Tab reaches all that can be used and shows where it is, the first stop skips the navigation, and
    Escape closes the list of keys.
    """
    count = browser.driver.execute_script(_TABBED)
    browser.press(Keys.TAB)
    first = browser.driver.switch_to.active_element.get_attribute("class")
    browser.press(Keys.TAB * (count + 20))
    found: list[str] = browser.driver.execute_script(_LEFT)
    if first != "skip":
        return [*found, f"the first stop is {first!r}"]
    browser.driver.execute_script("document.querySelector('a.skip').focus()")
    browser.press(Keys.ENTER)
    if (focused := browser.driver.execute_script(_FOCUSED)) != "MAIN":
        found.append(f"the skip link leads to {focused}")
    browser.press("?")
    opened = browser.driver.execute_script(_OPEN)
    browser.press(Keys.ESCAPE)
    if not opened or browser.driver.execute_script(_OPEN):
        found.append("the list of keys does not open by ? and close by Escape")
    return found
