"""Plays one session of the real `ccb` over a real sshd, through a relay that does what a plan says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.faults import scenario
from tests.faults.plan import Plan
from tests.support.fake_model import FakeModel
from tests.support.laptop import Laptop, make_laptop
from tests.support.relay import Fault, Relay, relay
from tests.support.sshd import HostUser, Sshd

Json = dict[str, Any]

PATIENCE_S = 60
"""What ccb is given to reconnect."""

DEADLINE_S = 120.0
_FLAGS = [
    "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--permission-prompt-tool", "stdio",
    "--reconnect-timeout", str(PATIENCE_S),
]  # fmt: skip


@dataclass
class Outcome:
    """What came of a session. `left` are processes and runtime files that should be gone, `slowest_s` the longest time without
    a connection that ccb got over."""

    home: str = ""
    messages: list[Json] = field(default_factory=list)
    code: int = -1
    stderr: str = ""
    requests: int = 0
    counts: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    connections: int = 0
    seconds: float = 0.0


async def play(plan: Plan, directory: Path, user: HostUser, sshd: Sshd) -> Outcome:
    """Play the scenario under `plan`."""
    async with FakeModel([scenario.model(str(user.home))]) as model, relay(sshd.port, delay_s=plan.delay_s) as between:
        laptop = make_laptop(directory, model.url)
        _prepare(user, warm=not plan.cold)
        session = _Session(
            plan, laptop, user, between, ["ssh", f"{user.name}@127.0.0.1:~", *sshd.client_options(between.port)]
        )
        between.faults += [
            _fault(step.kind, step.at, upward=step.upward, seconds=step.seconds, user=user) for step in plan.steps
        ]
        started = time.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            outcome = await session.play()
        outcome.home = str(user.home)
        outcome.seconds = time.monotonic() - started
        outcome.requests = len(model.requests)
        outcome.connections = between.connections
        outcome.counts = _lines(user.home / "count")
        outcome.files = {name: _text(user.home / name) for name in ("edit.txt", "new.txt")}
        outcome.left = await _left(user)
        return outcome


def _prepare(user: HostUser, *, warm: bool) -> None:
    owner = pwd.getpwnam(user.name)
    for name, text in scenario.FILES.items():
        (user.home / name).write_text(text)
        os.chown(user.home / name, owner.pw_uid, owner.pw_gid)
    if warm:
        from ccb.deploy import bundle

        loaded = bundle.load()
        cache = user.home / ".cache" / "ccb" / "worker"
        for step in (user.home / ".cache", cache.parent, cache):
            step.mkdir(mode=0o700)
            os.chown(step, owner.pw_uid, owner.pw_gid)
        path = cache / f"{loaded.sha256}.zip"
        path.write_bytes(loaded.data)
        path.chmod(0o600)
        os.chown(path, owner.pw_uid, owner.pw_gid)


def _fault(kind: str, at: int, *, upward: bool, seconds: float, user: HostUser) -> Fault:
    if not kind.startswith("kill"):
        return Fault(kind, at, upward, seconds)

    async def kill() -> None:
        for process in processes_of(user):
            with contextlib.suppress(psutil.NoSuchProcess):
                if (
                    (process.name() == "sshd") == (kind == "kill sshd")
                    and process.name() != "ccb"
                    and _carries(process)
                ):
                    process.kill()

    return Fault("call", at, upward, act=kill)


def _carries(process: psutil.Process) -> bool:
    """The login's own processes: sshd, and the shell or bridge that it runs. Tools are the daemon's."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return process.name() == "sshd" or (parent is not None and parent.name() == "sshd")
    return False


def processes_of(user: HostUser) -> list[psutil.Process]:
    """Live processes of a throwaway user."""
    uid = pwd.getpwnam(user.name).pw_uid
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


async def _left(user: HostUser) -> list[str]:
    """What is still there of a session that has ended, after some patience."""
    runtime = Path(f"/tmp/ccb-{pwd.getpwnam(user.name).pw_uid}")

    def found() -> list[str]:
        files = (
            [str(path) for path in runtime.glob("*") if path.suffix in (".sock", ".lock")] if runtime.exists() else []
        )
        return files + [f"{p.pid} {p.name()}" for p in processes_of(user)]

    deadline = time.monotonic() + 25
    while found() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return found()


class _Session:
    """The client of one session: sends the prompts, allows what is asked, interrupts the second turn."""

    def __init__(self, plan: Plan, laptop: Laptop, user: HostUser, between: Relay, where: list[str]) -> None:
        self._plan = plan
        self._laptop = laptop
        self._user = user
        self._between = between
        self._where = where
        self._process: asyncio.subprocess.Process | None = None
        self._outcome = Outcome()
        self._prompted = 0
        self._id = ""
        self._killed = False

    async def play(self) -> Outcome:
        again: list[str] = []
        while True:
            async with self._laptop.start(
                [*self._where, *_FLAGS, "--allowedTools", ",".join(scenario.ALLOWED), *again]
            ) as run:
                self._process = run.process
                interrupting = asyncio.create_task(self._interrupt())
                watching = asyncio.create_task(self._watch_journal()) if again else None
                errors = asyncio.create_task(self._drain(run.process))
                try:
                    await self._talk(again=bool(again))
                    code = await run.process.wait()
                    await errors
                finally:
                    for task in (interrupting, watching, errors):
                        if task is not None:
                            task.cancel()
                            await asyncio.gather(task, return_exceptions=True)
            if code == -signal.SIGKILL and self._killed and not again:
                again = ["--resume", self._id]
                continue
            self._outcome.code = code
            return self._outcome

    async def _drain(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self._outcome.stderr += line.decode()

    async def _talk(self, *, again: bool) -> None:
        assert self._process is not None and self._process.stdout is not None
        if not again:
            await self._prompt()
        elif self._turn_is_over():
            await self._go_on()
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            self._outcome.messages.append(message)
            await self._react(message)

    async def _react(self, message: Json) -> None:
        kind = message["type"]
        self._id = str(message.get("session_id") or self._id)
        if kind == "control_request":
            allow = {"behavior": "allow", "updatedInput": message["request"]["input"]}
            response = {"subtype": "success", "request_id": message["request_id"], "response": allow}
            await self._send({"type": "control_response", "response": response})
        elif kind == "result":
            await self._go_on()
        elif kind == "assistant" and self._prompted == self._plan.ending_turn and not self._killed:
            await self._kill()

    async def _go_on(self) -> None:
        if self._prompted < len(scenario.PROMPTS):
            await self._prompt()
        else:
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.close()

    async def _prompt(self) -> None:
        text = scenario.PROMPTS[self._prompted]
        self._prompted += 1
        await self._send({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None})

    async def _send(self, body: Json) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.write(json.dumps(body).encode() + b"\n")
            await self._process.stdin.drain()

    async def _interrupt(self) -> None:
        await _until((self._user.home / scenario.INTERRUPT_AT).exists)
        if self._results() < 2:
            request = {"subtype": "interrupt"}
            await self._send({"type": "control_request", "request_id": f"interrupt-{self._killed}", "request": request})

    async def _kill(self) -> None:
        self._killed = True
        if self._plan.ending == "kill ccb":
            assert self._process is not None
            self._process.kill()
        elif self._plan.ending == "kill daemon":
            for process in processes_of(self._user):
                if process.name() == "ccb":
                    process.kill()

    def _results(self) -> int:
        """Turns that are over, as the journal on the host says: a client that comes back is not told what it missed."""
        journal = self._user.home / ".local/state/ccb/sessions" / self._id / "journal.jsonl"
        return _text(journal).count('"type":"result"')

    def _turn_is_over(self) -> bool:
        return self._results() >= self._prompted

    async def _watch_journal(self) -> None:
        """A turn may end between the death of one ccb and the attach of the next."""
        prompted = self._prompted
        if self._turn_is_over():
            return
        await _until(self._turn_is_over)
        await asyncio.sleep(1.0)  # for the result to come on stdout, if it does
        if self._prompted == prompted:
            await self._go_on()


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()
