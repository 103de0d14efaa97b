"""Plays one session of the real `ccb` over a real sshd, through a relay that does what a plan says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.faults import scenario
from tests.faults.plan import Plan, Step
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.visited_host import visit
from tests.support.machine.clock import Clocks, jumping_clocks
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Fault, Relay, relay
from tests.support.person.laptop import Laptop, make_laptop

from ccb.remote.compiled.copy import pack

Json = dict[str, Any]

PATIENCE_S = 60
"""What ccb is given to reconnect."""

DEADLINE_S = 120.0
OFFLINE_S = 0.5
"""How long the link stays down when a prompt is sent meanwhile."""

_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32,64}")
_REPLAYED = re.compile(r"events (\d+) to (\d+) are replayed")
_FLAGS = [
    "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
    "--permission-prompt-tool", "stdio", "--reconnect-timeout", str(PATIENCE_S),
]  # fmt: skip


@dataclass
class Outcome:
    """What came of a session. `left` are processes and runtime files that should be gone, `kept` the files of ccb that
    stay on the host, with ids and hashes replaced. `first_code` is the exit code of a ccb that another one took over
    from, `recovered_s` how long each reconnect took from the moment the loss was known, `replayed` the bytes of the
    journal that were sent again (known with `debug`), `evidence` the ends of the journal and of the logs."""

    home: str = ""
    messages: list[Json] = field(default_factory=list)
    code: int = -1
    first_code: int = 0
    stderr: str = ""
    requests: int = 0
    counts: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    happened: list[str] = field(default_factory=list)
    connections: int = 0
    recovered_s: list[float] = field(default_factory=list)
    replayed: int = 0
    seconds: float = 0.0
    evidence: str = ""


async def play(plan: Plan, directory: Path, user: HostUser, sshd: Sshd, *, debug: bool = False) -> Outcome:
    """Play the scenario under `plan`."""
    async with FakeModel([scenario.model(str(user.home))]) as model, relay(sshd.port, delay_s=plan.delay_s) as between:
        laptop = make_laptop(directory, model.url)
        _prepare(user, warm=not plan.cold, copy=plan.copy)
        where = ["ssh", f"{user.name}@127.0.0.1:~", *sshd.client_options(between.port)]
        clocks = jumping_clocks(directory, user) if plan.ending == "clocks jump" else None
        if clocks is not None:
            laptop.env["PYTHONPATH"] = clocks.pythonpath + laptop.env["PYTHONPATH"]
        where += ["--debug"] if debug else []
        session = _Session(plan, laptop, user, between, where, clocks)
        between.faults += [_fault(step, user) for step in plan.steps]
        started = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_S + plan.stopped_s):
                outcome = await session.play()
        except TimeoutError:
            outcome = session.unfinished()
        outcome.evidence = _evidence(user, laptop)
        outcome.home = str(user.home)
        outcome.seconds = time.monotonic() - started
        outcome.requests = len(model.requests)
        outcome.connections = between.connections
        outcome.happened = [step.kind for step, fault in zip(plan.steps, between.faults, strict=True) if fault.happened]
        outcome.counts = _lines(user.home / "count")
        outcome.files = {name: _text(user.home / name) for name in ("edit.txt", "new.txt")}
        outcome.left = await left_by(user)
        outcome.kept = kept_by(user)
        outcome.replayed = _replayed(user, laptop)
        return outcome


def _prepare(user: HostUser, *, warm: bool, copy: str) -> None:
    owner = pwd.getpwnam(user.name)
    for name, text in scenario.FILES.items():
        (user.home / name).write_text(text)
        os.chown(user.home / name, owner.pw_uid, owner.pw_gid)
    if warm:
        visit(user.home, owner.pw_uid)
        if copy:
            (zipped,) = user.home.glob(".cache/ccb/worker/*.zip")
            path = zipped.with_name(f"{zipped.stem}.{_cache_tag()}.code")
            path.unlink(missing_ok=True)
            _put_copy(path, copy, owner)


def _put_copy(path: Path, kind: str, owner: pwd.struct_passwd) -> None:
    """Put what is no usable compiled copy in its place (`plan.COPIES`)."""
    match kind:
        case "a directory":
            path.mkdir(mode=0o700)
        case "a link":
            path.symlink_to(owner.pw_dir + "/a.txt")
        case "of another version":
            path.write_bytes(pack({"ccb/remote/main.py": b""}, "0" * 64))
        case _:
            path.write_bytes(os.urandom(100_000))
    if kind != "a link":
        path.chmod(0o000 if kind == "unreadable" else 0o700)
    os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


@functools.cache
def _cache_tag() -> str:
    """How the Python that a login finds names its compiled files."""
    program = "import sys; print(sys.implementation.cache_tag)"
    found = ["/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-I", "-S", "-c", program]
    return subprocess.run(found, check=True, capture_output=True, text=True).stdout.strip()


def _fault(step: Step, user: HostUser) -> Fault:
    if not step.kind.startswith("kill"):
        return Fault(step.kind, step.at, step.upward, step.seconds, connection=step.connection)

    async def kill() -> None:
        for process in processes_of(user):
            with contextlib.suppress(psutil.NoSuchProcess):
                if (
                    (process.name() == "sshd") == (step.kind == "kill sshd")
                    and process.name() != "ccb"
                    and _carries(process)
                ):
                    process.kill()

    return Fault("call", step.at, step.upward, act=kill, connection=step.connection)


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


async def left_by(user: HostUser) -> list[str]:
    """What is still there of a session that has ended, after some patience."""
    runtime = Path(f"/tmp/ccb-{pwd.getpwnam(user.name).pw_uid}")

    def found() -> list[str]:
        files = (
            [str(path) for path in runtime.glob("*") if path.suffix in (".sock", ".lock")] if runtime.exists() else []
        )
        return files + [f"{process.pid} {_name(process)}" for process in processes_of(user)]

    deadline = time.monotonic() + 45  # an unused worker waits for 20
    while found() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return found()


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return "(just ended)"


def kept_by(user: HostUser) -> set[str]:
    """Files of ccb in the home and in the runtime directory."""
    runtime = Path(f"/tmp/ccb-{pwd.getpwnam(user.name).pw_uid}")
    found = {f"run/{path.relative_to(runtime)}" for path in runtime.rglob("*") if path.is_file()}
    for path in user.home.rglob("*"):
        inside = path.relative_to(user.home)
        if path.is_file() and "ccb" in inside.parts:
            found.add(f"~/{inside}")
    return {_NAMES.sub("*", name) for name in found}


def _replayed(user: HostUser, laptop: Laptop) -> int:
    """Bytes of the journal's lines that were sent again after a reconnect, as the log on the laptop says."""
    logs = "".join(_text(path) for path in laptop.home.rglob("ccb-*.log"))
    journals = [_lines(path) for path in user.home.rglob("journal.jsonl")]
    return sum(
        sum(len(line) for line in journal[int(first) - 1 : int(last)])
        for first, last in _REPLAYED.findall(logs)
        for journal in journals
    )


def _evidence(user: HostUser, laptop: Laptop) -> str:
    """The last lines of what both ends wrote, each cut to a readable length."""
    found = [*user.home.rglob("journal.jsonl"), *user.home.rglob("daemon.log"), *laptop.home.rglob("ccb-*.log")]
    return "\n".join(f"{path}:\n" + "\n".join(line[:600] for line in _lines(path)[-120:]) for path in found)


@dataclass
class _Client:
    """One run of ccb in a session: the first one, or one that resumes it."""

    process: asyncio.subprocess.Process
    again: bool


class _Session:
    """The client of one session: sends the prompts, allows what is asked, interrupts the second turn."""

    def __init__(
        self, plan: Plan, laptop: Laptop, user: HostUser, between: Relay, where: list[str], clocks: Clocks | None
    ) -> None:
        self._plan = plan
        self._laptop = laptop
        self._user = user
        self._between = between
        self._where = where
        self._clocks = clocks
        self._current: _Client | None = None
        self._outcome = Outcome()
        self._prompted = 0
        self._id = ""
        self._struck = asyncio.Event()

    async def play(self) -> Outcome:
        first = asyncio.create_task(self._run([]))
        second: asyncio.Task[int] | None = None
        struck = asyncio.create_task(self._struck.wait())
        try:
            await asyncio.wait({first, struck}, return_when=asyncio.FIRST_COMPLETED)
            if self._struck.is_set() and self._plan.ending in ("kill ccb", "take over"):
                if self._plan.ending == "kill ccb":
                    assert await first == -signal.SIGKILL
                old = self._current
                assert old is not None
                second = asyncio.create_task(self._run(["--resume", self._id]))
                self._outcome.code = await second
                if old.process.stdin is not None:
                    # If it has had no connection meanwhile, it comes back to a session without a driver.
                    old.process.stdin.close()
                self._outcome.first_code = await first
            else:
                self._outcome.code = await first
        finally:
            for task in (first, struck, second):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        return self._outcome

    def unfinished(self) -> Outcome:
        """What there is of a session that did not come to an end."""
        ends = [str(message.get("subtype") or message["type"]) for message in self._outcome.messages[-8:]]
        self._outcome.stderr += f"NOT ENDED: {self._prompted} prompts, {self._results()} results, last seen {ends}\n"
        return self._outcome

    async def _run(self, again: list[str]) -> int:
        """One ccb from its start to its end; its exit code."""
        argv = [*self._where, *_FLAGS, "--allowedTools", ",".join(scenario.ALLOWED), *again]
        async with self._laptop.start(argv) as run, asyncio.TaskGroup() as tasks:
            client = self._current = _Client(run.process, bool(again))
            interrupting = tasks.create_task(self._interrupt(client))
            watching = tasks.create_task(self._watch_journal(client))
            errors = tasks.create_task(self._drain(client))
            await self._talk(client)
            code = await run.process.wait()
            await errors
            interrupting.cancel()
            watching.cancel()
            return code

    async def _drain(self, client: _Client) -> None:
        assert client.process.stderr is not None
        lost: float | None = None
        while line := await client.process.stderr.readline():
            self._outcome.stderr += line.decode()
            if b"reconnecting" in line and lost is None:
                lost = time.monotonic()
            elif b"connected again" in line and lost is not None:
                self._outcome.recovered_s.append(time.monotonic() - lost)
                lost = None

    async def _talk(self, client: _Client) -> None:
        assert client.process.stdout is not None
        if not client.again:
            await self._prompt()
        while line := await client.process.stdout.readline():
            message = json.loads(line)
            self._outcome.messages.append(message)
            if client is self._current:
                await self._react(message)

    async def _react(self, message: Json) -> None:
        kind = message["type"]
        self._id = str(message.get("session_id") or self._id)
        if kind == "control_request":
            allow = {"behavior": "allow", "updatedInput": scenario.granted(message["request"]["input"])}
            response = {"subtype": "success", "request_id": message["request_id"], "response": allow}
            await self._send({"type": "control_response", "response": response})
        elif kind == "result":
            if self._turn_is_over():  # of a session that was resumed, the result of a turn may come late
                await self._go_on()
        elif kind == "assistant" and self._prompted == self._plan.ending_turn and not self._struck.is_set():
            self._strike()

    async def _go_on(self) -> None:
        if self._prompted < len(scenario.PROMPTS):
            await self._prompt()
        else:
            assert self._current is not None and self._current.process.stdin is not None
            self._current.process.stdin.close()

    async def _prompt(self) -> None:
        text = scenario.PROMPTS[self._prompted]
        self._prompted += 1
        if self._prompted == self._plan.offline:
            self._between.freeze()
            self._between.cut()
            asyncio.get_running_loop().call_later(OFFLINE_S, self._between.thaw)
        await self._send({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None})

    async def _send(self, body: Json) -> None:
        assert self._current is not None and self._current.process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._current.process.stdin.write(json.dumps(body).encode() + b"\n")
            await self._current.process.stdin.drain()

    async def _interrupt(self, client: _Client) -> None:
        await _until((self._user.home / scenario.INTERRUPT_AT).exists)
        if self._results() < 2 and client is self._current:
            request = {"subtype": "interrupt"}
            await self._send({"type": "control_request", "request_id": f"interrupt-{client.again}", "request": request})

    def _strike(self) -> None:
        """What the plan does to the processes."""
        assert self._current is not None
        process, later = self._current.process, asyncio.get_running_loop().call_later
        match self._plan.ending:
            case "kill ccb":
                process.kill()
            case "stop ccb":
                process.send_signal(signal.SIGSTOP)
                later(self._plan.stopped_s, _go, process)
            case "kill daemon":
                for each in processes_of(self._user):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if each.name() == "ccb":
                            each.kill()
            case "clocks jump":
                assert self._clocks is not None
                self._clocks.jump(2.0)
                later(0.5, self._clocks.jump, -2.0)
        self._struck.set()

    def _results(self) -> int:
        """Turns that are over, as the journal on the host says: a client that comes back is not told what it missed."""
        journal = self._user.home / ".local/state/ccb/sessions" / self._id / "journal.jsonl"
        return _text(journal).count('"type":"result"')

    def _turn_is_over(self) -> bool:
        return self._results() >= self._prompted

    async def _watch_journal(self, client: _Client) -> None:
        """A turn may end between the death of one ccb and the attach of the next."""
        if not client.again:
            return
        prompted = self._prompted
        await _until(self._turn_is_over)
        await asyncio.sleep(1.0)  # for the result to come on stdout, if it does
        if self._prompted == prompted:
            await self._go_on()


def _go(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)


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
