"""How a person goes through the console: by mouse and typing, or by keys alone, counted.

Both hands know the same steps, so that one tour serves both. Nothing is done by a script but
looking: what is pressed and clicked goes through the browser as from a person.
"""

import json
from typing import Any, Protocol

import msgspec
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.perf.service import ServiceError

_MOST_TABS = 120
_FULL = """
const map = document.getElementById("map"), ratio = devicePixelRatio || 1;
const { data, width } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
for (let at = 0; at < data.length; at += 4) {
  if (data[at] !== 0xc2 || data[at + 1] !== 0x41 || data[at + 2] !== 0x0c) continue;
  const x = (at / 4) % width, y = Math.floor(at / 4 / width), box = map.getBoundingClientRect();
  return [Math.round(box.left + x / ratio) + 2, Math.round(box.top + y / ratio) + 2];
}
return null;
"""
"""Finds the first square in the colour of full nodes, as an eye does; a place in the window."""
_FOCUSED = "return document.activeElement && document.activeElement.matches(arguments[0])"


class Effort(msgspec.Struct):
    """What somebody did: clicks, keys that are no text, and characters of text."""

    clicks: int = 0
    keys: int = 0
    characters: int = 0


class Hands(Protocol):
    """What both ways have in common."""

    effort: Effort

    def go(self, key: str) -> None:
        """Open a page of the navigation, by its key after ``g``."""

    def follow(self, css: str) -> None:
        """Press a link or a button."""

    def row(self, css: str) -> None:
        """Follow a link in a row of a table; the first row that has it."""

    def write(self, css: str, text: str) -> None:
        """Type into a field."""

    def enter(self) -> None:
        """Send the form of the field."""

    def drain_a_full_node(self) -> None:
        """Find a full node on the map, and ask for the preview of its drain."""

    def confirm(self) -> None:
        """Press the button that does what the page shows."""

    def into_the_past(self, moment: str) -> None:
        """Show this page as it was."""


class _Both:
    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.effort = Effort()

    def _press(self, *keys: str) -> None:
        self.effort.keys += len(keys)
        chain = ActionChains(self.browser.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def _type(self, text: str) -> None:
        self.effort.characters += len(text)
        ActionChains(self.browser.driver).send_keys(text).perform()

    def enter(self) -> None:
        self._press(Keys.ENTER)

    def _drawn(self) -> None:
        self.browser.find("#map[data-drawn]")


class Mouse(_Both):
    """Clicks what is seen; types only where there is a field."""

    def _click(self, css: str) -> None:
        self.browser.click(css)
        self.effort.clicks += 1

    def go(self, key: str) -> None:
        self._click(f"nav a[data-key={key}]")

    def follow(self, css: str) -> None:
        self._click(css)

    def row(self, css: str) -> None:
        self._click(css)

    def write(self, css: str, text: str) -> None:
        self._click(css)
        self._type(text)

    def drain_a_full_node(self) -> None:
        self._drawn()
        spot: Any = self.browser._until(lambda driver: driver.execute_script(_FULL))
        chain = ActionChains(self.browser.driver)
        chain.w3c_actions.pointer_action.move_to_location(*spot)
        chain.perform()
        self.browser.find("#tip")
        chain = ActionChains(self.browser.driver)
        chain.w3c_actions.pointer_action.move_to_location(*spot).click()
        chain.perform()
        self.effort.clicks += 1
        self.browser.sees("Requested of allocatable")
        self._click("main .bar-of a.button[href*='do=drain']")

    def confirm(self) -> None:
        self._click("#confirm")

    def into_the_past(self, moment: str) -> None:
        self._click(".past-of summary")
        self.write("#time-at", moment)
        self.enter()


class Keyboard(_Both):
    """Uses no mouse: the keys of the console, and Tab from the content's beginning."""

    def go(self, key: str) -> None:
        self._press("g", key)

    def _has_focus(self, css: str) -> bool:
        return bool(self.browser.driver.execute_script(_FOCUSED, css))

    def _tab_to(self, css: str) -> None:
        for _ in range(_MOST_TABS):
            if self._has_focus(css):
                return
            self._press(Keys.TAB)
        raise ServiceError(f"{css} is not reached by Tab")

    def _into_content(self) -> None:
        """Use the link that skips the navigation, as the first thing on a page."""
        self._tab_to("a.skip")
        self._press(Keys.ENTER)

    def follow(self, css: str) -> None:
        self.browser.find(css)
        if not self._has_focus(css):
            self._into_content()
            self._tab_to(css)
        self._press(Keys.ENTER)

    def row(self, css: str) -> None:
        self.browser.find(css)
        if self._has_focus("input, textarea"):
            self._press(Keys.ESCAPE)
        for _ in range(_MOST_TABS):
            self._press("j")
            if self.browser.driver.execute_script(
                "return document.querySelector(arguments[0])?.closest('tr').matches('.at')", css
            ):
                break
        self._tab_to(css)
        self._press(Keys.ENTER)

    def write(self, css: str, text: str) -> None:
        self.browser.find(css)
        if self.browser.driver.execute_script(
            "return !!document.querySelector(arguments[0]).closest('[data-slash]')", css
        ):
            self._press("/")
        else:
            self._tab_to(css)
        self._type(text)

    def drain_a_full_node(self) -> None:
        self._drawn()
        self.write("#map-form input[type=search]", "is:full")
        self.enter()
        self.browser._until(lambda _: self._has_focus("#map"))
        self.browser.sees("Enter opens")
        self._press("d")

    def confirm(self) -> None:
        self.browser.find("#confirm")
        self._press("a")
        self.browser._until(lambda _: self._has_focus("#confirm"))
        self._press(Keys.ENTER)

    def into_the_past(self, moment: str) -> None:
        self.follow(".past-of summary")
        self.write("#time-at", moment)
        self.enter()


def asked_elsewhere(browser: Browser) -> list[str]:
    """Return the addresses off the host that pages asked for; needs the log ``performance``."""
    found, ours = [], browser._address
    for entry in browser.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked, page = message["params"]["request"]["url"], message["params"]["documentURL"]
            if page.startswith(ours) and not asked.startswith((ours, "data:", "blob:")):
                found.append(asked)
    return found
