"""An editor that speaks the Agent Client Protocol with `ccb acp`, line by line, with nothing of ccb's own JSON-RPC."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.acp_schema import SCHEMA, faults_of_agent
from tests.support.person.laptop import Laptop, Running

from ccb.tunnel.plain_text import CONTROLS

Json = dict[str, Any]

EVERYTHING: Json = {
    "session": {"notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}},
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "_meta": {"terminal_output": True},
}
"""The capabilities of a client that can do all that ccb makes use of, and what ccb must not use."""


class AcpError(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: Any = error.get("data")


@dataclass
class AcpClient:
    """One connection. `lines` are all lines in both directions, as ("<", …) from the agent and (">", …) to it.
    `answers` gives the result of each request of the agent by its method; one without an answer waits."""

    running: Running
    answers: dict[str, Callable[[Json], Json]] = field(default_factory=dict)
    lines: list[tuple[str, Json]] = field(default_factory=list)
    asked: list[Json] = field(default_factory=list)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[Json]] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        """Take the lines of the agent until it ends."""
        assert self.running.process.stdout is not None
        async for line in self.running.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            assert not CONTROLS.search(" ".join(texts(message))), f"this can drive a terminal: {message}"
            self.lines.append(("<", message))
            if "method" not in message:
                future = self._waiting.pop(message["id"], None)
                assert future is not None, f"an answer to nothing: {message}"
                if not future.done():
                    future.set_result(message)
            elif "id" in message:
                assert not message["method"].startswith(("fs/", "terminal/")), "these act on the wrong machine"
                self.asked.append(message)
                decide = self.answers.get(message["method"])
                if decide is not None:
                    await self.answer(message, decide(message["params"]))
            self._news.set()
        for future in self._waiting.values():
            future.cancel()

    async def send(self, message: Json) -> None:
        self.lines.append((">", {"jsonrpc": "2.0", **message}))
        await self.running.send({"jsonrpc": "2.0", **message})

    async def answer(self, asked: Json, result: Json) -> None:
        await self.send({"id": asked["id"], "result": result})

    async def notify(self, method: str, **params: object) -> None:
        await self.send({"method": method, "params": params})

    async def begin(self, method: str, **params: object) -> asyncio.Future[Json]:
        """Send a request, and return the future of its answer."""
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self.send({"id": number, "method": method, "params": params})
        return future

    async def call(self, method: str, **params: object) -> Json:
        return result_of(await asyncio.wait_for(await self.begin(method, **params), 60))

    async def initialize(self, capabilities: Json = EVERYTHING) -> Json:
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new(self, cwd: object, **more: object) -> str:
        return str((await self.call("session/new", cwd=str(cwd), **{"mcpServers": [], **more}))["sessionId"])

    async def load(self, session: str, cwd: object, method: str = "session/load") -> Json:
        return await self.call(method, sessionId=session, cwd=str(cwd), mcpServers=[])

    async def prompt(self, session: str, *blocks: str | Json) -> Json:
        return await self.call("session/prompt", sessionId=session, prompt=content(*blocks))

    async def until(self, holds: Callable[[], object], timeout: float = 60) -> None:
        """Wait until something holds for what has been read."""
        async with asyncio.timeout(timeout):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def question(self, number: int = 1) -> Json:
        """Wait for the first (second, …) request of the agent."""
        await self.until(lambda: len(self.asked) >= number)
        return self.asked[number - 1]

    def updates(self, kind: str = "", session: str = "") -> list[Json]:
        """The updates so far, of one kind, of one session."""
        told = [line["params"] for way, line in self.lines if way == "<" and line.get("method") == "session/update"]
        return [
            each["update"]
            for each in told
            if kind in ("", each["update"]["sessionUpdate"]) and session in ("", each["sessionId"])
        ]

    def text(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        return "".join(each["content"].get("text", "") for each in self.updates(kind, session))

    def tool_call(self, number: str) -> Json:
        """A tool call with all that was told about it."""
        merged: Json = {}
        for each in (*self.updates("tool_call"), *self.updates("tool_call_update")):
            merged |= each if each["toolCallId"] == number else {}
        return merged


def texts(value: object) -> Iterator[str]:
    """All texts in a message, with the names of its fields."""
    if isinstance(value, str):
        yield value
    for each in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(each)


def content(*blocks: str | Json) -> list[Json]:
    return [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]


def result_of(message: Json) -> Json:
    """Raise AcpError for an error."""
    if "error" in message:
        raise AcpError(message["error"])
    result: Json = message["result"]
    return result


def chosen(option: str) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@asynccontextmanager
async def acp(laptop: Laptop, words: Sequence[str], env: Mapping[str, str] | None = None) -> AsyncIterator[AcpClient]:
    """Run `ccb acp WORDS` as an editor does; on leaving, its stdin ends, and it must end by itself."""
    async with replace(laptop, env={**laptop.env, **(env or {})}).start(["acp", *words]) as running:
        client = AcpClient(running)
        reading = asyncio.create_task(client.read())
        try:
            yield client
            running.end_input()
            async with asyncio.timeout(30):
                await reading
                code = await running.process.wait()
            assert running.process.stderr is not None
            stderr = (await running.process.stderr.read()).decode()
            assert code == 0 and "Traceback" not in stderr, stderr
            assert not SCHEMA.exists() or faults_of_agent(client.lines) == []
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
