"""A session of 5,000 messages is opened again over a real sshd: when its last screen is there, against a new session in
the same run, the memory of the REPL, how long a page takes, and what a screen costs on which nothing happens.

The session is made of one that a scripted model has answered, whose turn is repeated in its journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from benchmarks.ratio import bound, compare, single
from benchmarks.tui import sample
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.terminal import Terminal, terminal

TURNS = 2_500  # a prompt and an answer each
RUNS = 5
PAGES = 20
IDLE_S = 10.0
LIMIT_S, PAGE_LIMIT_S, RSS_LIMIT_MB, IDLE_LIMIT = 1.0, 0.05, 150, 0.01
LAST = "The-last-word-of-all."
READY = "Ask for a change"
PAGE_UP = "\x1b[5~"
SIZE = (120, 40)


def lengthen(journal: Path) -> str:
    """Repeat the only turn of a session with other texts. Return the id of the session."""
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    head, turn = records[:1], records[1:]
    assert [each["kind"] for each in (turn[0], turn[-1])] == ["input", "turn_end"], [each["kind"] for each in records]
    lines = [json.dumps(each) for each in head]
    known = {turn[0]["body"]["id"]} | {each["body"].get("uuid", "") for each in turn if each["kind"] == "message"}
    answer = sample("prose", 800)
    for number in range(TURNS):
        for record in turn:
            line = json.dumps({**record, "seq": len(lines) + 1})
            for identity in known - {""}:
                line = line.replace(identity, f"{identity[:-6]}{number:06d}")
            line = line.replace("msg_0001", f"msg_{number:06d}").replace("THE-PROMPT", f"prompt {number}")
            text = answer if number < TURNS - 1 else LAST
            lines.append(line.replace('"THE-ANSWER"', json.dumps(f"Answer {number}. {text}")))
    journal.write_text("\n".join(lines) + "\n")
    return str(records[0]["body"]["session"])


class Laptop:
    """Runs ccb against the user of an sshd."""

    def __init__(self, server: Sshd, user: HostUser, model: FakeModel, top: Path) -> None:
        self._home = top / "laptop"
        self._home.mkdir()
        self._argv = ["ssh", f"{user.name}@127.0.0.1:~", *server.client_options()]
        self._env = {
            "PATH": os.environ["PATH"], "HOME": str(self._home), "TERM": "xterm-256color", "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
        }  # fmt: skip

    async def headless(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ccb", *self._argv, *arguments, env=self._env, stdout=asyncio.subprocess.DEVNULL
        )
        assert await process.wait() == 0

    @asynccontextmanager
    async def repl(self, *arguments: str) -> AsyncIterator[Terminal]:
        argv = [sys.executable, "-m", "ccb", *self._argv, *arguments]
        async with terminal(argv, self._env, str(self._home), SIZE) as screen:
            yield screen


async def _opened(laptop: Laptop, sign: str, *arguments: str) -> float:
    """Return the seconds from the start of ccb until `sign` is on the screen."""
    began = time.monotonic()
    async with laptop.repl(*arguments) as screen:
        await screen.shows(sign)
        took = time.monotonic() - began
        screen.type("\x04")
        await screen.ended()
        return took


async def _answers_shown(screen: Terminal, seen: int) -> None:
    await screen.until(lambda: b"Answer" in screen.written[seen:])


async def _looked_at(laptop: Laptop, session: str) -> tuple[float, list[float], float]:
    """Return the megabytes of a REPL in which the person has turned pages, the seconds of each, and the share of a CPU
    that it takes afterwards."""
    async with laptop.repl("--resume", session) as screen:
        await screen.shows(LAST)
        await asyncio.sleep(2)
        pages = []
        for _ in range(PAGES):
            seen, began = len(screen.written), time.monotonic()
            screen.type(PAGE_UP)
            await _answers_shown(screen, seen)
            pages.append(time.monotonic() - began)
            await asyncio.sleep(0.2)
        process = psutil.Process(screen.process.pid)
        await asyncio.sleep(2)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        await asyncio.sleep(IDLE_S)
        share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        return process.memory_info().rss / 1e6, pages, share


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name, host_user(Path(name)) as user:
        async with sshd(Path(name) / "sshd") as server, FakeModel() as model:
            laptop = Laptop(server, user, model, Path(name))
            model.add({"text": "THE-ANSWER"})
            await laptop.headless("-p", "THE-PROMPT")
            (journal,) = user.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
            session = lengthen(journal)
            new, again = [], []
            for _ in range(RUNS):
                new.append(await _opened(laptop, "shows the keys"))
                again.append(await _opened(laptop, LAST, "--resume", session))
            rss, pages, share = await _looked_at(laptop, session)
    size = f"{2 * TURNS:,} messages"
    compare(f"{size} opened again, to the last screen", again, "a new session", new, 2)
    bound(f"{size} opened again, to the last screen", again, LIMIT_S)
    bound("a page up", pages, PAGE_LIMIT_S)
    single("memory of the REPL", rss, RSS_LIMIT_MB, unit="MB")
    single("its CPU when idle", share * 100, IDLE_LIMIT * 100, unit="%")
