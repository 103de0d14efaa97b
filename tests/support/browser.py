"""Browsers in front of `ccb serve`: a window that speaks to its socket as the page does, and Chromium without a screen,
driven over its own debugging protocol (CDP)."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, CookieJar, WSMsgType
from tests.support.person.terminal import without_sequences
from yarl import URL

from ccb.local.terminal.keymap import BURST_S

SIZE = {"width": 80, "height": 24}
_PATIENCE_S = 60.0


@dataclass
class Window:
    """One window of a browser: its socket, and what it was sent."""

    ws: ClientWebSocketResponse
    shown: bytes = b""

    @property
    def text(self) -> str:
        return without_sequences(self.shown)

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while text not in self.text:
                message = await self.ws.receive()
                assert message.type is WSMsgType.BINARY, (message, self.text[-3000:])
                self.shown += message.data

    async def types(self, text: str, sees: str = "") -> None:
        await self.ws.send_json(["stdin", text])
        await self.sees(sees)

    async def presses(self, *keys: str, sees: str = "") -> None:
        """Press keys with the pause of a person before each."""
        for key in keys:
            await asyncio.sleep(4 * BURST_S)
            await self.types(key)
        await self.sees(sees)

    async def closed(self) -> int | None:
        async with asyncio.timeout(_PATIENCE_S):
            while not self.ws.closed:
                await self.ws.receive()
        return self.ws.close_code


@dataclass(frozen=True)
class Browser:
    """A browser in front of the server at `origin`, which it reaches through `port`: that of a relay, or its own."""

    http: ClientSession
    origin: URL
    port: int
    sockets: list[ClientWebSocketResponse] = field(default_factory=list, init=False)

    @property
    def from_page(self) -> dict[str, str]:
        return {"Origin": str(self.origin), "Host": self.origin.authority}

    def url(self, path: str) -> str:
        return str(self.origin.with_port(self.port).join(URL(path)))

    async def asks_for_key(self, token: str = "") -> int:
        async with self.http.post(self.url("/key"), data=token, headers=self.from_page) as answer:
            return answer.status

    async def window(self, **headers: str) -> Window:
        ws = await self.http.ws_connect(self.url("/socket"), headers={**self.from_page, **headers})
        await ws.send_json(["resize", SIZE])
        self.sockets.append(ws)
        return Window(ws)

    async def close(self) -> None:
        for each in self.sockets:
            await each.close()
        await self.http.close()


@asynccontextmanager
async def browser(link: str, port: int | None = None) -> AsyncIterator[Browser]:
    """A browser in which a link was opened."""
    url = URL(link)
    made = Browser(ClientSession(cookie_jar=CookieJar(unsafe=True)), url.origin(), port or url.port or 0)
    try:
        assert await made.asks_for_key(url.fragment) == 204
        yield made
    finally:
        await made.close()


CHROMIUM = shutil.which("chromium")
DESKTOP, PHONE = (1200, 800), (390, 844)


_FIND_TERMINAL = """
Object.defineProperty(Object.prototype, "_terminal", { configurable: true, set(value) {
  window.terminalOfTest = value; // an add-on of xterm.js gets the terminal here
  Object.defineProperty(this, "_terminal", { value, writable: true });
} });
"""
_LINES = "[...Array({term}.rows).keys()].map(y => {term}.buffer.active.getLine(y).translateToString())"
_SCREEN = f"window.terminalOfTest ? {_LINES.format(term='terminalOfTest')} : []"


class Page:
    """One tab of Chromium. `asked` are the addresses that it loaded."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self._ws = ws
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.errors: list[str] = []

    async def read(self) -> None:
        async for message in self._ws:
            found = json.loads(message.data)
            method, params = found.get("method"), found.get("params", {})
            if (answer := self._answers.pop(found.get("id", 0), None)) is not None:
                answer.set_result(found)
            elif method == "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            elif method == "Runtime.exceptionThrown" or params.get("entry", {}).get("level") == "error":
                self.errors.append(json.dumps(params))

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._ws.send_json({"id": number, "method": method, "params": params})
        found = await answer
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def open(self, url: str, size: tuple[int, int]) -> None:
        (width, height), phone = size, size == PHONE
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.call(f"{domain}.enable")
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        await self.call("Emulation.setDeviceMetricsOverride", **screen)
        await self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=_FIND_TERMINAL)
        await self.call("Page.navigate", url=url)

    async def screen(self) -> list[str]:
        rows: list[str] = await self.evaluate(_SCREEN)
        return rows

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not any(text in row for row in await self.screen()):
                await asyncio.sleep(0.05)

    async def until(self, expression: str) -> None:
        """Wait until an expression of JavaScript holds."""
        async with asyncio.timeout(_PATIENCE_S):
            while not await self.evaluate(expression):
                await asyncio.sleep(0.05)

    async def types(self, text: str, sees: str = "") -> None:
        for character in text:
            await self.call("Input.dispatchKeyEvent", type="char", text=character)
        await self.sees(sees)

    async def tap(self, selector: str, sees: str = "") -> None:
        """Tap on a button."""
        x, y, width, height = await self._box(selector)
        await self._touch(x + width / 2, y + height / 2)
        await self.sees(sees)

    async def tap_text(self, text: str, sees: str = "") -> None:
        """Tap on a text on the screen of the terminal."""
        await self.sees(text)
        rows = await self.screen()
        row, column = next((number, line.index(text)) for number, line in enumerate(rows) if text in line)
        x, y, width, height = await self._box(".xterm-screen")
        await self._touch(x + (column + 0.5) * width / len(rows[0]), y + (row + 0.5) * height / len(rows))
        await self.sees(sees)

    async def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot"))["data"]))

    async def _box(self, selector: str) -> list[float]:
        at = f"document.querySelector('{selector}').getBoundingClientRect()"
        box: list[float] = await self.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({at})")
        return box

    async def _touch(self, x: float, y: float) -> None:
        await self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        await self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


@asynccontextmanager
async def chromium(directory: Path) -> AsyncIterator[Page]:
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0", "--disable-gpu"]
    program = [CHROMIUM, *options, f"--user-data-dir={directory}", "about:blank"]
    process = await asyncio.create_subprocess_exec(*program, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
    try:
        assert process.stderr is not None
        while b"DevTools listening on" not in (line := await process.stderr.readline()):
            assert line, "Chromium has ended"
        port = URL(line.decode().split()[-1]).port
        async with ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json") as answer:
                (tab,) = [each for each in await answer.json(content_type=None) if each["type"] == "page"]
            async with http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as ws:
                page = Page(ws)
                reading = asyncio.create_task(page.read())
                try:
                    yield page
                finally:
                    reading.cancel()
    finally:
        process.terminate()
        await process.wait()
