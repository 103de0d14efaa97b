"""The REPL's transcript against Textual's own MarkdownStream, in the same run, each in a process with a pseudo
terminal.

CPU seconds for one long answer sent as fast as it is taken, CPU share at 200 and 1,000 tokens a second, what 5,000
messages cost, and what a screen costs on which nothing happens or only a spinner turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.ratio import single, versus
from tests.support.repl.attached_repl import repl_on
from tests.support.repl.scripted_session import MODEL, ScriptedSession
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Markdown

from ccb.local.slash_commands.session_api import ReplInfo
from ccb.local.tui.widgets.transcript import Transcript
from ccb.tunnel.wire.frames import Json

Write = Callable[[str], Awaitable[None]]

DELTA = 24  # characters, about six tokens
TOKEN = 4  # characters
LIMIT_S = 5.0
PEER = "MarkdownStream"
MARKDOWN = "100 Markdown widgets"
PACED_S = 8.0
STILL_S = 10.0
ITEM = "- item {n}: the **quick** brown fox jumps over `lazy_dogs({n})` and goes on its way\n"
PARAGRAPH = "The *{n}*th paragraph says what `module_{n}` does, why it does it, and what it will **never** do.\n\n"
FENCED = "    value_{n} = compute({n}, mode='fast')  # line {n}\n"
ROW = "| {n} | name {n} | `value_{n}` | a remark on {n} |\n"


def sample(kind: str, size: int) -> str:
    """Return `size` characters of one kind of Markdown."""
    item = {"list": ITEM, "prose": PARAGRAPH, "fence": FENCED, "table": ROW}[kind]
    head = {"fence": "```python\n", "table": "| n | name | value | remark |\n|---|---|---|---|\n"}.get(kind, "")
    return head + "".join(item.format(n=n) for n in range(size // len(item) + 1))[:size]


async def stream(text: str, write: Write, *, tokens_per_s: float = 0) -> None:
    """Write `text` in deltas, at a pace or as fast as the event loop turns."""
    began = time.monotonic()
    for start in range(0, len(text), DELTA):
        due = began + start / TOKEN / tokens_per_s if tokens_per_s else 0
        await asyncio.sleep(max(0, due - time.monotonic()))
        await write(text[start : start + DELTA])


def cpu_s() -> float:
    """Return the CPU seconds of this process so far."""
    return time.process_time()


class Ours:
    """The REPL on a scripted session."""

    def __init__(self) -> None:
        self.session = ScriptedSession()
        self.app = repl_on(self.session, ReplInfo("devbox", "/srv/shop", MODEL, "default", "0"))

    def sent_bytes(self) -> int:
        """Return how many bytes this process has written, nearly all of them to its terminal."""
        return int(re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]

    async def answer(self, text: str, tokens_per_s: float = 0) -> None:
        self.session.begin()
        self.session.open_block("text")
        await stream(text, self._write, tokens_per_s=tokens_per_s)
        self.session.text(text)
        self.session.finish()
        await self._shown(1)

    async def _write(self, delta: str) -> None:
        self.session.delta(delta)

    async def messages(self, count: int) -> None:
        self.session.begin()
        for number in range(count):
            self.session.text(sample("prose", 800), message_id=f"m{number}")
        self.session.finish()
        await self._shown(count)

    async def still(self, *, spinner: bool) -> None:
        """Let nothing happen for a while, or nothing but a tool that runs and prints no more."""
        if spinner:
            self.session.begin()
            self.session.text(sample("prose", 800))
            self.session.run(self.session.call("Bash", command="make"), "compiling\n" * 200, 3)
            await self._shown_tool()
        await asyncio.sleep(1)

    async def _shown_tool(self) -> None:
        while len(self.scrollable.blocks) < 2:
            await asyncio.sleep(0.01)

    async def _shown(self, count: int) -> None:
        while len(self.scrollable.blocks) < count or self.app.view.reducer.running:
            await asyncio.sleep(0.01)

    @property
    def scrollable(self) -> Transcript:
        return self.app.query_one(Transcript)


class _Peer(App[None]):
    def compose(self) -> ComposeResult:
        yield VerticalScroll()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()


class Peer:
    """Textual's Markdown widgets in a scrolling container."""

    def __init__(self) -> None:
        self.app = _Peer()

    async def answer(self, text: str, tokens_per_s: float = 0) -> None:
        widget = Markdown()
        await self.scrollable.mount(widget)
        made = Markdown.get_stream(widget)
        await stream(text, made.write, tokens_per_s=tokens_per_s)
        await made.stop()

    async def messages(self, count: int) -> None:
        await self.scrollable.mount_all([Markdown(sample("prose", 800)) for _ in range(count)])

    @property
    def scrollable(self) -> VerticalScroll:
        return self.app.query_one(VerticalScroll)


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0.1)


async def _measure(side: Ours | Peer, job: Json) -> Json:
    await _settle()
    if job["what"] in ("idle", "spinner") and isinstance(side, Ours):
        await side.still(spinner=job["what"] == "spinner")
        began, wall = cpu_s(), time.monotonic()
        sent = side.sent_bytes()
        await asyncio.sleep(STILL_S)
        took = time.monotonic() - wall
        return {"share": (cpu_s() - began) / took, "bytes_per_s": (side.sent_bytes() - sent) / took}
    began, wall = cpu_s(), time.monotonic()
    if job["what"] == "answer":
        await side.answer(sample(job["kind"], job["size"]), job.get("tokens_per_s", 0))
        await _settle()
        return {"cpu_s": cpu_s() - began, "wall_s": time.monotonic() - wall}
    await side.messages(job["count"])
    await _settle()
    found = {"mount_s": cpu_s() - began}
    began = cpu_s()
    for _ in range(20):
        side.scrollable.scroll_page_up(animate=False)
        await asyncio.sleep(0.02)
    found["scroll_ms"] = (cpu_s() - began) / 20 * 1000
    found["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


async def _child(job: Json, answer: Path) -> None:
    side = Ours() if job["side"] == "ours" else Peer()

    async def work() -> None:
        found = await _measure(side, job)
        answer.write_text(json.dumps(found))
        side.app.exit()

    def start() -> None:
        side.app.run_worker(work())

    side.app.call_later(start)
    await side.app.run_async()


def run(**job: Any) -> Json:
    """Make one measurement in a process of its own, on a 120x40 terminal."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"
        ours, theirs = pty.openpty()
        size = {"COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "benchmarks", "tui", json.dumps(job), str(answer)]
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **size})
        os.close(theirs)
        reader = threading.Thread(target=_drain, args=(ours,))
        reader.start()
        child.wait(timeout=300)
        reader.join()
        os.close(ours)
        found: Json = json.loads(answer.read_text())
        return found


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:  # the other end is closed
        return


async def main() -> None:
    if len(sys.argv) == 3:
        await _child(json.loads(sys.argv[1]), Path(sys.argv[2]))
        return
    for kind in ("list", "prose", "fence", "table"):
        small, peer = (run(side=side, what="answer", kind=kind, size=16_384)["cpu_s"] for side in ("ours", "peer"))
        versus(f"CPU of 16 KB of a {kind}", small, PEER, peer, None, unit="s")
        large = run(side="ours", what="answer", kind=kind, size=65_536)["cpu_s"]
        single(f"CPU of 64 KB of a {kind}", large, LIMIT_S, unit="s")
    for rate in (200, 1000):
        job = {"what": "answer", "kind": "prose", "size": int(rate * TOKEN * PACED_S), "tokens_per_s": rate}
        ours, theirs = (
            found["cpu_s"] / found["wall_s"] for found in (run(side=side, **job) for side in ("ours", "peer"))
        )
        versus(f"CPU at {rate} tokens/s", ours * 100, PEER, theirs * 100, None, unit="%")
    for what in ("idle", "spinner"):
        found = run(side="ours", what=what)
        single(f"CPU, {what}", found["share"] * 100, unit="%")
        single(f"to the terminal, {what}", found["bytes_per_s"] / 1000, unit="KB/s")
    many = run(side="ours", what="messages", count=5000)
    few = run(side="peer", what="messages", count=100)
    versus("5,000 messages: CPU of one", many["mount_s"] / 5, MARKDOWN, few["mount_s"] * 10, None, unit="ms")
    versus("5,000 messages: a page up", many["scroll_ms"], MARKDOWN, few["scroll_ms"], None, unit="ms")
    versus("5,000 messages: memory", many["rss_mb"], MARKDOWN, few["rss_mb"], None, unit="MB")
