"""A real browser, driven over the WebDriver protocol (W3C): a dozen calls of JSON over HTTP need no library."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support.broker.process import held_port
from tests.support.polling import eventually_blocking

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Space": " "}
installed = bool(CHROMIUM and CHROMEDRIVER)


class BrowserFailed(Exception):
    """What the driver answered."""


class Browser:
    """Headless Chromium. Every call blocks: from a test with an event loop, use ``asyncio.to_thread``."""

    def __init__(self, profile: Path, *arguments: str, width: int = 1_280, height: int = 900) -> None:
        """``arguments``: more flags of Chromium."""
        self._arguments = arguments
        self._holding = ExitStack()
        self._profile = profile
        self._size = (width, height)
        self._session = ""

    def __enter__(self) -> Self:
        assert CHROMEDRIVER
        self._port = self._holding.enter_context(held_port())
        command = [CHROMEDRIVER, f"--port={self._port}"]
        self._driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually_blocking(self._is_up, "chromedriver answers", 30)
        options = {
            "binary": CHROMIUM,
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                f"--user-data-dir={self._profile}",
                f"--window-size={self._size[0]},{self._size[1]}",
                *self._arguments,
            ],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._session:
                self._call("DELETE", f"/session/{self._session}")
        finally:
            self._driver.terminate()
            self._driver.wait(20)
            self._holding.close()

    def open(self, url: str) -> None:
        """Load ``url``, anew also where only its fragment differs."""
        self._on("POST", "/url", {"url": "about:blank"})
        self._on("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What ``script`` returns; it sees ``arguments``."""
        return self._on("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """As ``run``, for what ``script`` gives to its last argument, a function."""
        return self._on("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "main") -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def wait_for(self, text: str, selector: str = "main", timeout_s: float = 20.0) -> str:
        """The text of ``selector`` as soon as ``text`` is in it."""

        def what() -> str:
            seen = {one: self.text(one)[:2_000] for one in (selector, "body")}
            return f"{text!r} in {selector}: {seen}, hidden: {self.run('return document.hidden')}"

        said = "(document.querySelector(arguments[0])?.innerText ?? '')"
        self.until(f"return {said}.includes(arguments[1])", selector, text, what=what, timeout_s=timeout_s)
        return self.text(selector)

    def until(self, script: str, *arguments: Any, what: Any, timeout_s: float = 20.0) -> Any:
        """The first true value of ``script``. ``what()`` says what was there instead."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.run(script, *arguments)):
            assert time.monotonic() < deadline, what() if callable(what) else what
        return value

    def click(self, selector: str) -> None:
        """The first element that ``selector`` finds, as a reader would: it must be there and be seen."""
        element = self._on("POST", "/element", {"using": "css selector", "value": selector})
        (reference,) = element.values()
        self._on("POST", f"/element/{reference}/click", {})

    def press(self, *keys: str) -> None:
        """Press and release these keys one after the other, wherever the focus is. See ``KEYS`` for those without a
        letter."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._on("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def size(self, width: int, height: int) -> None:
        """The viewport, narrower than a window may be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._on("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """What the console was told since the last call: errors and warnings, refusals of the policy included."""
        return [entry["message"] for entry in self._on("POST", "/se/log", {"type": "browser"})]

    def _on(self, method: str, path: str, body: Any) -> Any:
        return self._call(method, f"/session/{self._session}{path}", body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise BrowserFailed(error.read().decode(errors="replace")[:1_000]) from None

    def _is_up(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except OSError:
            return False
