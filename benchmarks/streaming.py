"""An answer of 64 KB at 1,000 tokens a second, against `Static.update` once in a tenth of a second with the same text.

For prose, a list, a table and code: CPU time (at most 0.6 of the peer's), how long the loop is busy at a time
(16 ms on the median, 50 ms at the 99th percentile, of the longest turns of each tenth of a second), and how soon a key
that is typed meanwhile is on the screen (50 ms at the 99th percentile). Each side is a process on a pseudo terminal.
Wall time contains what else the machine does, which the peer shows; CPU time does not. Of a key, the time is left out
in which the program waited for a CPU.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.loop_turns import watched_turns
from benchmarks.ratio import single, versus
from benchmarks.tui import Ours, sample, stream
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from ccb.tunnel.heavy_imports import collect_rarely, collection_paused

SIZE = 65_536
TOKENS_PER_S = 1_000
KINDS = ("prose", "list", "table", "fence")
CPU_LIMIT = 0.6
PEER = "Static.update"
MEDIAN_MS, P99_MS, TYPED_P99_MS = 16, 50, 50
KEY_S = 0.25
FIRST_KEY = 0x0430
"""Cyrillic letters are typed: they are in none of the texts."""


class _Plain(App[None]):
    def compose(self) -> ComposeResult:
        yield VerticalScroll(Static(markup=False))
        yield Input()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()
        self.query_one(Input).focus()


class StaticText:
    """One Static widget with all of the text, drawn anew once in a tenth of a second."""

    def __init__(self) -> None:
        self.app = _Plain()
        self._text = ""

    async def answer(self, text: str, tokens_per_s: float) -> None:
        drawing = asyncio.create_task(self._draw())
        await stream(text, self._write, tokens_per_s=tokens_per_s)
        await asyncio.sleep(0.2)
        drawing.cancel()

    async def _write(self, delta: str) -> None:
        self._text += delta

    async def _draw(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.app.query_one(Static).update(self._text)


async def _child(job: dict[str, Any], answer: Path) -> None:
    collect_rarely()  # like `ccb`, which also keeps what it has imported out of later collections
    with collection_paused():
        side = Ours() if job["side"] == "ours" else StaticText()

    async def work() -> None:
        await side.app.animator.wait_until_complete()
        await asyncio.sleep(0.5)
        began = time.process_time()
        _begun(answer).touch()
        with watched_turns() as turns:
            await side.answer(sample(job["kind"], SIZE), TOKENS_PER_S)
        answer.write_text(json.dumps({"cpu_s": time.process_time() - began, **turns.figures()}))
        side.app.exit()

    side.app.call_later(lambda: side.app.run_worker(work()))
    await side.app.run_async()


class _Typist:
    """Types a letter on a terminal, deletes it when it is on the screen, and notes how long that took: `seconds`, and
    `own` without what the program waited for a CPU that others had."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self._descriptor = descriptor
        self._waits = Path(f"/proc/{pid}/schedstat")  # of the main thread
        self._expected = b""
        self._seen = threading.Event()
        self.seconds: list[float] = []
        self.own: list[float] = []

    def type(self, letter: str) -> None:
        self._seen.clear()
        self._expected = letter.encode()
        began, waited = time.monotonic(), self._waited_s()
        os.write(self._descriptor, self._expected)
        if self._seen.wait(5):
            took = time.monotonic() - began
            self.seconds.append(took)
            self.own.append(max(0.0, took - (self._waited_s() - waited)))
            os.write(self._descriptor, b"\x7f")

    def _waited_s(self) -> float:
        try:
            return int(self._waits.read_text().split()[1]) / 1e9
        except OSError:  # it has ended
            return 0.0

    def read(self) -> None:
        written = b""
        try:
            while more := os.read(self._descriptor, 65536):
                written = written[-8:] + more
                if self._expected and self._expected in written:
                    self._expected = b""
                    self._seen.set()
        except OSError:  # the other end is closed
            return


def measure(side: str, kind: str) -> dict[str, Any]:
    """Stream one text in a process of its own, while letters are typed."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"
        ours, theirs = pty.openpty()
        size = {"COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            "streaming",
            json.dumps({"side": side, "kind": kind}),
            str(answer),
        ]
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **size})
        os.close(theirs)
        typist = _Typist(ours, child.pid)
        reader = threading.Thread(target=typist.read)
        reader.start()
        chance, number = random.Random(1), 0
        while child.poll() is None:
            time.sleep(chance.uniform(KEY_S / 2, KEY_S * 3 / 2))
            if _begun(answer).exists() and not answer.exists():
                typist.type(chr(FIRST_KEY + number % 32))
                number += 1
        reader.join()
        os.close(ours)
        keys = {"typed_ms": [each * 1000 for each in typist.seconds], "own_ms": [each * 1000 for each in typist.own]}
        return {**json.loads(answer.read_text()), **keys}


def _begun(answer: Path) -> Path:
    """Return the file that says that the text streams."""
    return answer.with_name("begun")


def _percentiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(len(ordered) * 0.99)]


async def main() -> None:
    if len(sys.argv) == 3:
        await _child(json.loads(sys.argv[1]), Path(sys.argv[2]))
        return
    typed: dict[str, list[float]] = {"ours": [], "peer": []}
    own: dict[str, list[float]] = {"ours": [], "peer": []}
    for kind in KINDS:
        found = {side: measure(side, kind) for side in ("peer", "ours")}
        ours, peer = found["ours"], found["peer"]
        versus(f"CPU of a streaming {kind}", ours["cpu_s"], PEER, peer["cpu_s"], CPU_LIMIT, unit="s")
        for name, limit in (("median", MEDIAN_MS), ("p99", P99_MS)):
            single(f"{kind}: CPU of a turn of the loop, {name}", ours[f"cpu_{name}_ms"], limit, unit="ms")
            versus(
                f"{kind}: the same in wall time",
                ours[f"wall_{name}_ms"],
                PEER,
                peer[f"wall_{name}_ms"],
                None,
                unit="ms",
            )
        for side in typed:
            typed[side] += found[side]["typed_ms"]
            own[side] += found[side]["own_ms"]
    for at, name in enumerate(("median", "p99")):
        seen = {side: _percentiles(values)[at] for side, values in typed.items()}
        versus(f"a key typed beside it, {name}", seen["ours"], PEER, seen["peer"], None, unit="ms")
    single("a key, without waiting for a CPU, p99", _percentiles(own["ours"])[1], TYPED_P99_MS, unit="ms")
