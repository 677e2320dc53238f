"""Chromium without a window, spoken to over a pipe in the DevTools protocol.

Nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# Chromium refuses its sandbox to root, and small containers have little shared memory.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0


class BrowserError(Exception):
    """The browser is not there, has gone, or does not answer; the message says which."""


def find() -> str | None:
    """The program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Browser:
    """A browser with one page. Use it as a context manager.

    Attributes:
        complaints: what the page that was opened last wrote to its console as an error, or failed
            to load.
    """

    def __init__(self) -> None:
        program = find()
        if program is None:
            raise BrowserError("no Chromium is here: apt-get install chromium")
        self._profile = tempfile.TemporaryDirectory(
            prefix="rankproof-pages-", ignore_cleanup_errors=True
        )
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        # It reads commands from descriptor 3 and answers on 4; a shell puts them there.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{answers}', program, *FLAGS,
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)  # the browser ends with the pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its answer.

        Raises:
            BrowserError: it is refused, or no answer comes.
        """
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == self._number, what=method)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(
        self,
        page: Path,
        *,
        width: int,
        height: int,
        phone: bool = False,
        dark: bool = False,
        paper: bool = False,
    ) -> None:
        """Open a file in a window of so many CSS pixels, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme]
        )
        self.complaints.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self._until(
            lambda message: message.get("method") == "Page.loadEventFired",
            what=f"loading {page.name}",
        )

    def evaluate(self, script: str) -> Any:
        """What an expression comes to in the page, as JSON."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(
                "the script failed:"
                f" {answer['exceptionDetails'].get('exception', {}).get('description')}"
            )
        return answer["result"].get("value")

    def picture(self, *, whole: bool) -> bytes:
        """A PNG of the window, or of the whole page."""
        return base64.b64decode(
            self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        )

    def pdf(self) -> bytes:
        """The page on paper, A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        return base64.b64decode(self.call("Page.printToPDF", **paper)["data"])

    def _until(self, wanted: Callable[[Mapping[str, Any]], bool], *, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            head, end, rest = self._buffer.partition(b"\0")
            if end:
                self._buffer = rest
                message: dict[str, Any] = json.loads(head)
                self._note(message)
                if wanted(message):
                    return message
                continue
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BrowserError(f"no answer to {what} within {PATIENCE:.0f} s")
            if not (piece := os.read(self._from, 1 << 20)):
                raise BrowserError(f"the browser ended before it answered {what}")
            self._buffer += piece

    def _note(self, message: Mapping[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.complaints.append(
                    str(details.get("exception", {}).get("description") or details["text"])
                )
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "assert"):
                self.complaints.append(
                    " ".join(str(one.get("value", one.get("description"))) for one in given["args"])
                )
            case "Log.entryAdded" if given["entry"]["level"] == "error":
                self.complaints.append(
                    f"{given['entry']['text']} {given['entry'].get('url', '')}".strip()
                )
