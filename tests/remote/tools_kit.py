"""The tools of a session on real files in a temporary directory, called as an agent calls them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable

from ccb.remote.tools.input_schema import issues
from ccb.remote.tools.tool_contract import Tool, ToolContext, ToolRefused, ToolResult
from ccb.remote.tools.toolset import close_context, default_tools, make_context

Json = dict[str, Any]


@dataclass
class Toolbox:
    """The tools by name, and their context. Call one with `await toolbox("Read", file_path=…)`."""

    context: ToolContext
    root: Path
    outputs: Path
    tools: dict[str, Tool] = field(default_factory=dict)
    updates: list[Json] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)  # what cancelled calls had printed

    def refusal(self, name: str, **tool_input: Any) -> str | None:
        """Return why the call is refused before anybody is asked, or None."""
        found = issues(tool_input, self.tools[name].input_schema)
        return found[0] if found else self.tools[name].validate(tool_input, self.context)

    async def unasked(self, name: str, **tool_input: Any) -> str:
        """Return why nobody is asked about a call, because it would fail; "" if somebody is."""
        why = self.refusal(name, **tool_input)
        try:
            await self.tools[name].preview(tool_input, self.context)
        except ToolRefused as refused:
            return why or str(refused)
        return why or ""

    async def __call__(self, name: str, **tool_input: Any) -> ToolResult:
        assert self.refusal(name, **tool_input) is None
        return await self.run(name, **tool_input)

    async def run(self, name: str, **tool_input: Any) -> ToolResult:
        call = replace(
            self.context.call, tool_use_id="toolu_1", progress=self.updates.append, stopped=self.printed.append
        )
        context = self.context.for_call(call)
        return await self.tools[name].call(tool_input, context)

    async def text(self, name: str, **tool_input: Any) -> str:
        result = await self(name, **tool_input)
        assert isinstance(result.content, str)
        assert not result.is_error, result.content
        return result.content

    async def error(self, name: str, **tool_input: Any) -> str:
        """Run a call that must fail, without validation, and return what the model sees."""
        result = await self.run(name, **tool_input)
        assert isinstance(result.content, str)
        assert result.is_error, result.content
        return result.content

    async def seen(self, name: str, content: str | bytes) -> Path:
        path = self.write(name, content)
        await self("Read", file_path=str(path))
        return path

    def write(self, name: str, content: str | bytes = "", age: float = 0) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if age:
            then = time.time() - age
            os.utime(path, (then, then))
        return path


@asynccontextmanager
async def opened_context(root: Path, outputs: Path) -> AsyncIterator[ToolContext]:
    """Lend what a session in `root` lends to its tools. At the end, all its processes are stopped."""
    context = make_context(str(root), str(outputs))
    try:
        yield context
    finally:
        await close_context(context)


@asynccontextmanager
async def open_toolbox(directory: Path) -> AsyncIterator[Toolbox]:
    """Open a session in `directory`/project."""
    root, outputs = directory / "project", directory / "outputs"
    root.mkdir()
    async with opened_context(root, outputs) as context:
        yield Toolbox(context, root, outputs, {tool.name: tool for tool in default_tools()})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plant(root: Path, *names: str) -> None:
    """Make what a tree needs: `name/` is a directory, `name -> target` a link, and `name: text` a file of one line."""
    for line in names:
        link, to, target = line.partition(" -> ")
        name, _, text = line.partition(": ")
        path = root / (link if to else name)
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if to:
            path.symlink_to(target)
        elif not name.endswith("/"):
            path.write_text(f"{text}\n" if text else "")


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"
