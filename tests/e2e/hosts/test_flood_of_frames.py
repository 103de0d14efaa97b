"""A hostile worker that sends frames without end: how much of them a REPL and a headless run keep."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import pty
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.support.hosts.embedded_sshd import asyncssh_server
from tests.support.hosts.sshd import Sshd
from tests.support.machine.processes import peak_mb
from tests.support.network.link_peer import HELLO
from tests.support.person.laptop import make_laptop

from ccb.tunnel.wire.frames import Attach, Attached, Event, Fenced, Ping, Progress, Snapshot
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("CCB_FLOOD_S", "6"))
LIMIT_MB = 150

Body = dict[str, Any]
WIDE = "\U0001f600"  # four bytes for each character of its text


def said(number: int, *content: Body, **more: Any) -> Body:
    """An event: a message of the model."""
    message = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {"event": "message", "type": "assistant", "message": {**message, "usage": {}}, **more}


def input_of(number: int, more: str = "") -> Body:
    request = {"type": "control_request", "request_id": f"{number}", "request": {"subtype": "x"}}
    return {"event": "input", "id": f"{number}{more}", "body": request}


def text(number: int, part: str = "word ") -> Body:
    return said(number, {"type": "text", "text": part * (200_000 // len(part))})


def call(number: int, name: str = "Bash", **given: object) -> Body:
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}


def streamed(number: int, **event: Any) -> Body:
    if number == 0:
        event = {"type": "message_start", "message": {"id": "m", "usage": {}}}
    return {"type": "stream_event", "event": event}


def live(number: int, **block: Any) -> Body:
    return streamed(number, type="content_block_start", index=number, content_block=block)


def delta(number: int) -> Body:
    if number == 1:
        return live(1, type="text", text="")
    return streamed(number, type="content_block_delta", index=1, delta={"type": "text_delta", "text": "a b\n\n" * 800})


def task(number: int) -> Body:
    names = {"task_id": f"t{number}", "tool_use_id": f"u{number}", "task_type": "local_bash"}
    started = {"type": "system", "subtype": "task_started", "description": "d" * 100_000, "is_backgrounded": True}
    return {"event": "message", **started, **names}


def agent(number: int) -> Body:
    """300 calls of sub-agents, then what one of them does."""
    if number < 300:
        return said(number, call(number, "Agent", description="x", prompt="y"))
    return said(number, call(number, command="x" * 50_000), parent_tool_use_id="t299")


def question(number: int) -> Body:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "x" * 200_000}, "tool_use_id": "t"}
    return {"event": "message", "type": "control_request", "request_id": f"r{number}", "request": request}


def settled(number: int) -> Body:
    """A question, and its answer by another client."""
    if number % 2 == 0:
        return question(number)
    answer = {"subtype": "success", "request_id": f"r{number - 1}", "response": {"behavior": "allow"}}
    return {"event": "input", "id": f"answer:{number}", "body": {"type": "control_response", "response": answer}}


def warning(number: int) -> Body:
    content = f"{number}" + "x" * 1_000
    return {"event": "message", "type": "system", "subtype": "informational", "level": "warning", "content": content}


def snapshot(number: int) -> Body:
    prompts = [{"input": f"{number}-{each}", "text": "hello", "taken": each % 2} for each in range(200)]
    tasks = [{"task_id": f"t{number}-{each}", "description": "d"} for each in range(100)]
    return {"snapshot": True, "prompts": prompts, "asks": [], "tasks": tasks}


def taken(number: int) -> Body:
    items = [{"input_id": f"{number}-{each}", "content": []} for each in range(1_000)]
    return {"event": "prompt", "context": [], "items": items}


FLOODS: dict[str, Callable[[int], Body | str]] = {
    "long ids of inputs": lambda number: input_of(number, "x" * 200_000),
    "unfinished frames": lambda number: json.dumps(
        {"t": "part", "id": 1, "i": number, "n": 10**6, "d": WIDE + "x" * 200_000}, ensure_ascii=False
    ),
    "tasks": task,
    "lists in calls": lambda number: said(number, call(number, a=[[]] * 60_000)),
    "calls": lambda number: said(number, call(number, command="x" * 50_000)),
    "agents": agent,
    "texts": text,
    "one message": lambda number: text(0),
    "wide texts": lambda number: said(number, {"type": "text", "text": WIDE + "x" * 200_000}),
    "inputs": input_of,
    "taken prompts": taken,
    "taken back": lambda number: {"event": "unqueued", "id": f"{number}" + "x" * 2_000},
    "deltas": delta,
    "blocks": lambda number: live(number, type="text", text=""),
    "calls that begin": lambda number: live(number, type="tool_use", id=f"t{number}", name="Bash", input={}),
    "questions": question,
    "settled questions": settled,
    "warnings": warning,
    "snapshots": snapshot,
    "fences": lambda number: {"fenced": True},
    "pings": lambda number: {"ping": True},
    "garbage": lambda number: "x" * 65_536,
}
QUICK = (("long ids of inputs", "REPL"),)


def frames(flood: str, epoch: int) -> Iterator[bytes]:
    seq = 0
    for number in count():
        body = FLOODS[flood](number)
        if isinstance(body, str):
            yield body.encode() + b"\n" * (flood != "garbage")
            continue
        seq += "event" in body or "snapshot" in body
        frame: Any = Progress(seq, epoch, "", body)
        if "event" in body:
            frame = Event(seq, epoch, body.pop("event"), body)
        elif "snapshot" in body:
            frame = Snapshot(epoch, seq, body)
        elif "fenced" in body:
            frame = Fenced(epoch + number, f"another{number}")
        elif "ping" in body:
            frame = Ping(epoch, number)
        yield b"".join(encode_frame(frame, number))


async def worker(flood: str, process: asyncssh.SSHServerProcess[bytes], began: asyncio.Event) -> None:
    """Be a worker up to the attach, then send the flood."""
    marker = re.search(r"\b[0-9a-f]{32}\b", process.command or "")
    if marker is None:
        return
    facts = json.dumps({"py": "3.11", "exe": "/usr/bin/python3", "notes": []})
    process.stdout.write(f"\n{marker[0]} {facts}\n".encode() + encode_frame(replace(HELLO, state="running"))[0])
    decoder, epoch = FrameDecoder(), 0
    while not epoch and (data := await process.stdin.read(65_536)):
        epoch = max((frame.epoch for frame in decoder.feed(data) if isinstance(frame, Attach)), default=0)
    process.stdout.write(encode_frame(Attached(epoch, "driver", 0))[0])
    began.set()
    for data in frames(flood, epoch):
        process.stdout.write(data)
        await process.stdout.drain()
        await asyncio.sleep(0)


def flooding_host(directory: Path, flood: str, began: asyncio.Event) -> AbstractAsyncContextManager[Sshd]:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        reading = asyncio.create_task(worker(flood, process, began))
        await process.channel.wait_closed()
        reading.cancel()

    return asyncssh_server(directory, serve)


@asynccontextmanager
async def ccb(laptop_home: Path, env: dict[str, str], argv: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """ccb on a terminal that somebody reads, in a process that holds nothing of this one."""
    ours, its = pty.openpty()
    asyncio.get_running_loop().add_reader(ours, lambda: os.read(ours, 65_536))
    line = [sys.executable, "-m", "ccb", *argv]
    process = await asyncio.create_subprocess_exec(
        "setsid", "--ctty", "--wait", *line, stdin=its, stdout=its, stderr=its, env=env, cwd=laptop_home
    )
    os.close(its)
    try:
        yield process
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flood", "way"),
    [
        pytest.param(*row, marks=() if row in QUICK else pytest.mark.thorough)
        for row in itertools.product(FLOODS, ["REPL", "headless"])
    ],
)
async def test_a_flood_of_frames_stays_on_the_host(tmp_path: Path, flood: str, way: str) -> None:
    began, peak = asyncio.Event(), 0.0
    laptop = make_laptop(tmp_path, "http://127.0.0.1:9")
    async with flooding_host(tmp_path, flood, began) as server:
        argv = ["ssh", "somebody@127.0.0.1:~", *server.client_options()]
        argv += ["-p", "hi", "--output-format", "stream-json", "--verbose"] if way == "headless" else []
        async with ccb(laptop.home, {**laptop.env, "TERM": "xterm-256color"}, argv) as process:
            async with asyncio.timeout(60):
                await began.wait()
            end = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < end and process.returncode is None:
                peak = max(peak, peak_mb(process.pid))
                await asyncio.sleep(0.1)
    log.info("%s, %s: %d MB", way, flood, peak)
    assert 0 < peak < LIMIT_MB
