"""The client of one session: sends the prompts, allows what is asked, and does to the processes what the plan says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.play.host import kill_worker
from tests.faults.play.outcome import Outcome, Progress, progress
from tests.faults.play.plan import Plan
from tests.faults.work.pieces import Piece
from tests.faults.work.work import SUMMARY, WORKS, WorkModel, permission
from tests.support.hosts.reached_host import Host
from tests.support.machine.clock import Clocks
from tests.support.model.model_script import Json
from tests.support.network.relay import Relay
from tests.support.person.laptop import STDIO, user_message

PATIENCE_S = 60  # what ccb is given to reconnect

OFFLINE_S = 0.5  # how long the link stays down when a prompt is sent meanwhile

_LATE_S = 1.0  # how long a client that came back waits for results that the first one may have got

_FLAGS = ["-p", *STDIO, "--reconnect-timeout", str(PATIENCE_S)]


@dataclass(frozen=True)
class Around:
    host: Host
    between: Relay
    model: WorkModel
    clocks: Clocks | None


@dataclass
class _Client:
    """One run of ccb, the first or one that resumes. `heard` is set by every result, `working` is what it does."""

    process: asyncio.subprocess.Process
    again: bool
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    working: asyncio.Task[None] | None = None


class Session:
    def __init__(self, plan: Plan, around: Around, *flags: str) -> None:
        self._plan = plan
        self._around = around
        self._pieces = WORKS[plan.work].pieces
        words = (*flags, *_FLAGS, *WORKS[plan.work].flags)
        self._where = around.host.ssh(*words, port=around.between.port)
        self._current: _Client | None = None
        self._outcome = Outcome()
        self._prompted = 0
        self._id = ""
        self._struck = asyncio.Event()

    async def play(self) -> Outcome:
        first = asyncio.create_task(self._run([]))
        second: asyncio.Task[int] | None = None
        struck = asyncio.create_task(self._struck.wait())
        watching = asyncio.create_task(self._strike_at_moment())
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
            for task in (first, struck, watching, second):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        seen = self._progress()
        self._outcome.twice, self._outcome.untaken, self._outcome.told = seen.twice, seen.untaken, seen.told
        return self._outcome

    def unfinished(self) -> Outcome:
        ends = [str(message.get("subtype") or message["type"]) for message in self._outcome.messages[-8:]]
        self._outcome.stderr += f"NOT ENDED: {self._prompted} prompts, {self._progress()}, last seen {ends}\n"
        return self._outcome

    async def _run(self, again: list[str]) -> int:
        async with self._around.host.laptop.start([*self._where, *again]) as run, asyncio.TaskGroup() as tasks:
            if self._current is not None and self._current.working is not None:
                self._current.working.cancel()
            client = self._current = _Client(run.process, bool(again))
            client.working = tasks.create_task(self._work(client))
            errors = tasks.create_task(self._drain(client))
            await self._listen(client)
            code = await run.process.wait()
            await errors
            client.working.cancel()
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

    async def _listen(self, client: _Client) -> None:
        assert client.process.stdout is not None
        while line := await client.process.stdout.readline():
            message = json.loads(line)
            self._outcome.messages.append(message)
            if message["type"] == "result":
                client.heard.set()
            if client is self._current:
                await self._react(message)

    async def _react(self, message: Json) -> None:
        kind = message["type"]
        self._id = str(message.get("session_id") or self._id)
        if kind == "control_request":
            said = permission(message["request"]["input"])
            response = {"subtype": "success", "request_id": message["request_id"], "response": said}
            await self._send({"type": "control_response", "response": response})
        elif kind == "assistant" and self._prompted == self._plan.ending_turn and not self._plan.moment:
            self._strike()

    async def _work(self, client: _Client) -> None:
        """Prompt for one piece after the other; a client that came back goes on with the one under way."""
        if not client.again:
            await self._prompt()
        while True:
            piece = self._pieces[self._prompted - 1]
            await self._be_there(piece, client)
            await self._over(client)
            if piece.ends:
                (self._around.host.home / piece.ends).touch()
                await self._over(client, lambda seen: seen.ended >= seen.begun)
            if self._prompted == len(self._pieces):
                break
            await self._prompt()
        assert client.process.stdin is not None
        client.process.stdin.close()

    async def _be_there(self, piece: Piece, client: _Client) -> None:
        at = self._around.host.home / (piece.interrupt_at or piece.says_at)
        if at == self._around.host.home:
            return
        over = asyncio.create_task(self._over(client))
        try:
            await _until(lambda: over.done() or at.exists())
            if over.done():
                return
            if piece.interrupt_at:
                request = {"type": "control_request", "request_id": f"interrupt-{client.again}"}
                await self._send({**request, "request": {"subtype": "interrupt"}})
                return
            if not self._has_heard(piece.says):
                await self._say(piece.says)
            await _until(lambda: self._has_heard(piece.says))
            (self._around.host.home / piece.says_then).touch()
        finally:
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)

    def _has_heard(self, words: str) -> bool:
        return any(words in said for said in self._progress().inputs)

    async def _over(self, client: _Client, also: Callable[[Progress], bool] = lambda _: True) -> None:
        """Wait until nothing runs and nothing is due on the host, and the client has been told."""
        prompt = self._pieces[self._prompted - 1].prompt
        while True:
            seen = self._progress()
            if seen.idle and any(prompt in said for said in seen.inputs) and also(seen):
                break
            await self._news(client)
        deadline = time.monotonic() + _LATE_S
        while self._results() < seen.results and not (client.again and time.monotonic() > deadline):
            await self._news(client)

    async def _news(self, client: _Client) -> None:
        client.heard.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.heard.wait(), 0.2)

    def _results(self) -> int:
        return sum(message["type"] == "result" for message in self._outcome.messages)

    async def _prompt(self) -> None:
        text = self._pieces[self._prompted].prompt
        self._prompted += 1
        if self._prompted == self._plan.offline:
            self._around.between.freeze()
            self._around.between.cut()
            asyncio.get_running_loop().call_later(OFFLINE_S, self._around.between.thaw)
        await self._say(text)

    async def _say(self, text: str) -> None:
        identity = str(uuid.uuid5(uuid.NAMESPACE_OID, text))  # two clients may say it
        await self._send(user_message(text, uuid=identity))

    async def _send(self, body: Json) -> None:
        assert self._current is not None and self._current.process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._current.process.stdin.write(json.dumps(body).encode() + b"\n")
            await self._current.process.stdin.drain()

    async def _strike_at_moment(self) -> None:
        moment = self._plan.moment
        files = [home / moment for home in (self._around.host.home, self._around.host.laptop.home)]
        if moment:
            asked = self._around.model
            await _until(lambda: asked.asked_for_summary if moment == SUMMARY else any(each.exists() for each in files))
            self._strike()

    def _strike(self) -> None:
        if self._struck.is_set() or not self._plan.ending:
            return
        assert self._current is not None
        process, later, clocks = self._current.process, asyncio.get_running_loop().call_later, self._around.clocks
        match self._plan.ending:
            case "kill ccb":
                process.kill()
            case "stop ccb":
                process.send_signal(signal.SIGSTOP)
                later(self._plan.stopped_s, _go, process)
            case "kill daemon":
                kill_worker(self._around.host.user)
            case "cut link":
                self._around.between.cut()
            case "clocks jump":
                assert clocks is not None
                clocks.jump(2.0)
                later(0.5, clocks.jump, -2.0)
        self._struck.set()

    def _progress(self) -> Progress:
        journals = self._around.host.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
        return progress(next(journals, Path("no journal yet")))


def _go(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)
