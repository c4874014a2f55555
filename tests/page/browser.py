"""A real Chromium, driven over HTTP by its own driver (the WebDriver protocol; `goog/cdp` is Chromium's own).

with Browser(tmp_path) as browser:
    browser.open("http://127.0.0.1:4771/")
    assert browser.run("return document.title") == "Offramp"
"""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.e2e.harness import eventually
from tests.servers.tools import give_up

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
#: seconds that anything may take on a busy machine
_TIMEOUT = 60.0


class Browser:
    """One window. Emulated properties may change at any time; they apply from the next `open` on."""

    def __init__(self, folder: Path) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            give_up("Chromium is not installed; tests/page/install does it (apt-get install chromium chromium-driver)")
        self._folder = folder
        self._chromium = chromium
        self._log = folder / "chromedriver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([driver, "--port=0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._session = ""

    def __enter__(self) -> Self:
        try:
            port = eventually(self._port, "chromedriver listens", _TIMEOUT)
            self._root = f"http://127.0.0.1:{port}"
            options = {
                "binary": self._chromium,
                "args": [*_FLAGS, f"--user-data-dir={self._folder / 'profile'}"],
            }
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{answer['sessionId']}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._session:
            self._call("DELETE", self._session)
        self._process.terminate()
        self._process.wait(_TIMEOUT)

    # Emulation

    def emulate(self, *, dark: bool = False, width: int = 1280, height: int = 900, scale: float = 1.0) -> None:
        self._devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def allow_scripts(self, allowed: bool) -> None:
        self._devtools("Emulation.setScriptExecutionDisabled", value=not allowed)

    # Pages

    def open(self, url: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Runs the body of a function in the page and returns its result, even where the page may not run scripts."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """The visible text of an element; empty if there is none."""
        found: str = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return found

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Waits until the condition holds."""
        eventually(condition, what, _TIMEOUT)

    def console(self) -> list[str]:
        """The messages of the console since the last call."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        answer = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _devtools(self, command: str, **arguments: object) -> Any:
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": arguments})

    def _port(self) -> int:
        if self._process.poll() is not None:
            raise AssertionError(f"chromedriver ended:\n{self._log.read_text()}")
        _, found, rest = self._log.read_text().partition("started successfully on port ")
        return int(rest.split(".")[0]) if found and "." in rest else 0

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None
