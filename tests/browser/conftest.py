"""A real browser without a screen: Debian's chromium and chromium-driver (`make test-deps`)."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import Select, WebDriverWait

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
# For looking at: `BROWSER_SCREENSHOTS=/tmp/shots make test ARGS=tests/browser`.
SCREENSHOTS = os.environ.get("BROWSER_SCREENSHOTS")
_MOVING = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-component-extensions-with-background-pages",
    "--disable-client-side-phishing-detection",
    "--metrics-recording-only",
    "--mute-audio",
    # Half of its CPU: another process for each page, kept or made ready for the next one, and what
    # it does for a person, as pages of its own that open below the line for addresses.
    "--disable-back-forward-cache",
    (
        "--disable-features=SpareRendererForSitePerProcess,Translate,OptimizationHints,MediaRouter,"
        "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup"
    ),
    "--window-size=1400,900",
)

T = TypeVar("T")


class Browser:
    """A browser at a live server: pages by path, things by what a person sees."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self._address = address

    def open(self, path: str) -> None:
        self.driver.get(self._address + path)

    def find(self, css: str, seconds: float = 60) -> WebElement:
        """Return the first visible element, waiting for it."""
        return self._until(
            expected_conditions.visibility_of_element_located((By.CSS_SELECTOR, css)), seconds
        )

    def fill(self, css: str, value: str) -> None:
        def fill(driver: webdriver.Chrome) -> bool:
            field = self.find(css)
            field.clear()
            field.send_keys(value)
            return True

        self._until(fill)

    def click(self, css: str) -> None:
        def click(driver: webdriver.Chrome) -> bool:
            element = self.find(css)
            # Into the middle: the bar with the buttons covers the lower end of the page.
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self._until(click)

    def choose(self, css: str, value: str) -> None:
        """Choose the option with the value."""

        def choose(driver: webdriver.Chrome) -> bool:
            Select(self.find(css)).select_by_value(value)
            return True

        self._until(choose)

    def gone(self, css: str, seconds: float = 60) -> None:
        """Wait until no such element is visible."""
        self._until(
            expected_conditions.invisibility_of_element_located((By.CSS_SELECTOR, css)), seconds
        )

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        ActionChains(self.driver).send_keys(key).perform()

    def sees(self, text: str, seconds: float = 60) -> None:
        """Wait until the page shows the text."""
        try:
            self._until(lambda driver: text in self.text(), seconds)
        except TimeoutException:
            raise AssertionError(f"{text!r} is not on the page: {self.text()}") from None

    def text(self) -> str:
        """Return what the page shows, in one step: no element to go stale while a page loads."""
        return self.driver.execute_script("return document.body ? document.body.innerText : ''")

    def _until(self, step: Callable[[webdriver.Chrome], T], seconds: float = 60) -> T:
        """Try until it works: a page may be replaced, or still move, between looking and acting."""
        return WebDriverWait(self.driver, seconds, ignored_exceptions=_MOVING).until(step)

    def log_in(self, name: str, password: str) -> None:
        self.open("/admin/")
        self.fill("#id_username", name)
        self.fill("#id_password", password)
        self.click("#login-form button[type=submit]")
        self.sees("Overview")

    def keep(self, name: str) -> None:
        """Take a picture, where the developer asked for pictures."""
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(f"{SCREENSHOTS}/{name}.png")

    def complaints(self) -> list[str]:
        """Return what the browser refused or could not run since it was last asked.

        It asks for an icon by itself; the pages name none.
        """
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        return [message for message in messages if "/favicon.ico" not in message]


NONE_HERE = "no chromium and chromedriver here: make test-deps installs them (as root)"


@contextlib.contextmanager
def driven(profile: Path, **logs: str) -> Iterator[webdriver.Chrome]:
    """A fresh browser that keeps these logs (``browser="ALL"``), ended with the block."""
    assert CHROMIUM, NONE_HERE
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", logs)
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for all tests: to start it takes more CPU than most of them.

    A test that asks for it is skipped where none is installed.
    """
    if not CHROMIUM or not DRIVER:
        pytest.skip(NONE_HERE)
    with driven(tmp_path_factory.mktemp("chromium"), browser="ALL") as driver:
        yield driver


@contextlib.contextmanager
def as_new(driver: webdriver.Chrome, address: str) -> Iterator[Browser]:
    """Give a window of its own in a browser that knows nothing of the tests before."""
    first = driver.current_window_handle
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    stored = {"origin": address, "storageTypes": "all"}
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", stored)
    driver.switch_to.new_window("window")
    driver.execute_cdp_cmd("Page.bringToFront", {})
    driver.get_log("browser")
    try:
        yield Browser(driver, address)
    finally:
        try:
            # Chromium may fail to close a window in which an answer to a form is still arriving.
            driver.get("about:blank")
            driver.close()
        finally:  # a page that crashed does not stop the tests that come
            driver.switch_to.window(first)


@pytest.fixture
def browser(live_server: object, chromium: webdriver.Chrome) -> Iterator[Browser]:
    """A browser as new at the live server."""
    with as_new(chromium, str(live_server)) as found:
        yield found
