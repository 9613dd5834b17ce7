"""Controls a headless Chromium through pipes, by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Browser", "browser", "find_browser"]

_PATIENCE = 120  # seconds until a command counts as hanging
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """Return the path of an installed browser, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a browser."""

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests, self._answers = requests, answers
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; store events that arrive before it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._requests.write(json.dumps(message).encode() + b"\0")
        self._requests.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], _PATIENCE)
            assert ready, "the browser does not answer"
            read = os.read(self._answers, 1 << 16)
            assert read, "the browser ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, width: int, height: int, mobile: bool = False) -> None:
        """Open a file in a window of the given size, and wait until it is loaded."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        self.ask("Emulation.setTouchEmulationEnabled", enabled=mobile)
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self._wait("Page.loadEventFired")
        # After two frames, pictures are decoded and drawn.
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def _wait(self, event: str) -> None:
        while not any(one.get("method") == event for one in self.events):
            self.events.append(self._next())

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript and return its value."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Click with the mouse."""
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def swipe(self, x1: float, x2: float, y: float) -> None:
        """Swipe across the screen."""
        for kind, points in (
            ("touchStart", [{"x": x1, "y": y}]),
            ("touchMove", [{"x": x2, "y": y}]),
            ("touchEnd", []),
        ):
            self.ask("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write the window's content, or the whole page, as PNG."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    @property
    def complaints(self) -> list[str]:
        """Return the page's errors, warnings and requests since it was opened."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("text")))
            elif method == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                address = parameters["request"]["url"]
                if not address.startswith(("file:", "data:")):
                    found.append(address)
            elif method == "Page.javascriptDialogOpening":
                found.append("a dialog opened")
        return found


@contextlib.contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Run a browser with a temporary profile."""
    requests_read, requests_write = os.pipe()
    answers_read, answers_write = os.pipe()

    def place() -> None:
        """Move the pipes to the browser's descriptors, through high numbers to avoid clashes."""
        os.dup2(requests_read, 103)
        os.dup2(answers_write, 104)
        os.dup2(103, 3)
        os.dup2(104, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *_OPTIONS, f"--user-data-dir={profile}"],
            close_fds=False,
            preexec_fn=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(requests_read)
        os.close(answers_write)
        try:
            with os.fdopen(requests_write, "wb") as requests:
                yield Browser(requests, answers_read)
        finally:
            process.terminate()
            process.wait()
            os.close(answers_read)
