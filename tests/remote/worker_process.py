"""The real worker behind a pipe, with the test as its laptop: `start` runs in a child as the stub would run it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import resource
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Callable, TypeVar

from tests.remote.agent_kit import Reply, content, says
from tests.support.forking.process import start_process

from ccb.tunnel.wire.frames import (
    CHUNK,
    Attach,
    Attached,
    CallData,
    CallEnd,
    CallHead,
    CallOpen,
    Credit,
    Event,
    Fenced,
    Frame,
    Hello,
    Input,
    Json,
    Ping,
    Pong,
    Refused,
    Stop,
)
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame
from ccb.tunnel.wire.session_options import SessionOptions

F = TypeVar("F")

DEADLINE_S = 60.0
_DEFAULTS = SessionOptions()
SOURCES = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
_START = """
import json, os, sys
params, bundle, bundle_path = sys.argv[1:]
if bundle_path:
    sys.path.insert(0, bundle_path)
from ccb.remote.main import start
os._exit(start(json.loads(params), bundle, 'disk'))
"""  # the stub ends with `sys.exit`. Nothing is left to do then but to take the interpreter down, which takes 13 ms


class Laptop:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.epoch = 0
        self.hello: Hello  # the hello of the worker, once it is attached
        self._decoder = FrameDecoder()
        self._seen = 0

    async def send(self, frame: Frame) -> None:
        assert self.process.stdin is not None
        for line in encode_frame(frame):
            self.process.stdin.write(line)
        await self.process.stdin.drain()

    async def read(self) -> bool:
        assert self.process.stdout is not None
        data = await asyncio.wait_for(self.process.stdout.read(65536), DEADLINE_S)
        for frame in self._decoder.feed(data):
            self.frames.append(frame)
            if isinstance(frame, Ping):
                with contextlib.suppress(ConnectionError):
                    await self.send(Pong(frame.epoch, frame.n))
        return bool(data)

    async def next(self, kind: type[F], wanted: Callable[[F], bool] = lambda frame: True) -> F:
        """The next frame of a kind that is wanted; those before it are passed over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE_S
        while True:
            while self._seen < len(self.frames):
                frame = self.frames[self._seen]
                self._seen += 1
                if isinstance(frame, kind) and wanted(frame):
                    return frame
            assert loop.time() < end, f"no {kind.__name__} within {DEADLINE_S} s; got {self.frames[-5:]}"
            if not await self.read():
                raise AssertionError(f"the connection ended before a {kind.__name__}; got {self.frames[-5:]}")

    @property
    def events(self) -> list[Event]:
        return [frame for frame in self.frames if isinstance(frame, Event)]

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    async def message(self, kind: str, subtype: str | None = None) -> Json:

        def fits(event: Event) -> bool:
            body = event.body
            return event.kind == "message" and body.get("type") == kind and subtype in (None, body.get("subtype"))

        return (await self.next(Event, fits)).body

    async def attach(
        self, options: SessionOptions | Json = _DEFAULTS, *, have: int = 0, tail: int = 0, role: str = "driver",
        decided: bool = True, after: Hello | None = None,
    ) -> Hello:  # fmt: skip
        """Wait for hello, unless it has come (`after`), and attach. If `decided`, wait for the worker's decision."""
        hello = self.hello = after if after is not None else await self.next(Hello)
        self.epoch = hello.epoch + 1 if role == "driver" else hello.epoch
        given = options.to_json() if isinstance(options, SessionOptions) else options
        await self.send(Attach(self.epoch, role, have, "nonce-" + uuid.uuid4().hex, given, tail))
        before = len(self.frames)
        while decided and not any(isinstance(frame, (Attached, Fenced, Refused)) for frame in self.frames[before:]):
            if not await self.read():
                break
        return hello

    async def say(self, text: str | list[Json], input_id: str = "", **fields: Any) -> str:
        input_id = input_id or uuid.uuid4().hex
        body = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, **fields}
        await self.send(Input(self.epoch, input_id, body))
        return input_id

    async def control(self, subtype: str, **fields: Any) -> str:
        request_id = uuid.uuid4().hex
        body = {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
        await self.send(Input(self.epoch, uuid.uuid4().hex, body))
        return request_id

    async def request(self, subtype: str, **fields: Any) -> Json:
        request_id = await self.control(subtype, **fields)
        event = await self.next(Event, lambda each: (each.body.get("response") or {}).get("request_id") == request_id)
        response: Json = event.body["response"]
        return response

    async def reply(self, request_id: str, payload: Json, input_id: str = "") -> None:
        response = {"subtype": "success", "request_id": request_id, "response": payload}
        body = {"type": "control_response", "response": response}
        await self.send(Input(self.epoch, input_id or uuid.uuid4().hex, body))

    async def call(self) -> tuple[CallOpen, bytes]:
        opened = await self.next(CallOpen)
        body = b""
        while len(body) < opened.size:
            data = await self.next(CallData, lambda frame: frame.stream == opened.stream)
            chunk = base64.b64decode(data.b64)
            body += chunk
            await self.send(Credit(self.epoch, opened.stream, len(chunk)))
        await self.next(CallEnd, lambda frame: frame.stream == opened.stream)
        return opened, body

    async def answer(
        self, opened: CallOpen, content: bytes, *, status: int = 200, offset: int = 0, end: bool = True
    ) -> None:
        await self.send(
            CallHead(self.epoch, opened.stream, status, {"content-type": "text/event-stream", "request-id": "r"})
        )
        for place in range(0, len(content), CHUNK):
            chunk = content[place : place + CHUNK]
            await self.send(CallData(self.epoch, opened.stream, offset + place, base64.b64encode(chunk).decode()))
        if end:
            await self.send(CallEnd(self.epoch, opened.stream))

    async def tell(self, reply: Reply) -> Json:
        """Answer the next model call. Return its request, with the beta features of its head."""
        opened, body = await self.call()
        await self.answer(opened, content(reply))
        return {**json.loads(body), "betas": opened.headers.get("anthropic-beta", "")}

    async def answers(self, *replies: Reply) -> Json:
        """Answer the next model calls. Return the request of the last one."""
        return [await self.tell(reply) for reply in replies][-1] if replies else {}

    async def begin(self, text: str | list[Json], *replies: Reply) -> None:
        """Prompt for a turn and answer its first model calls."""
        await self.say(text)
        await self.answers(*replies)

    async def opened(self, text: str | list[Json]) -> CallOpen:
        """Prompt for a turn. Return its first model call."""
        await self.say(text)
        return (await self.call())[0]

    async def turn(self, text: str | list[Json], *replies: Reply) -> Json:
        """Prompt for a turn and answer its model calls. Return its result."""
        await self.say(text)
        await self.answers(*replies)
        return await self.message("result")

    async def sent(self, text: str | list[Json], reply: Reply) -> Json:
        """Run a turn in which the model answers once, and return the request."""
        await self.say(text)
        request = await self.tell(reply)
        await self.message("result")
        return request

    async def rest(self) -> None:
        while await self.read():
            pass

    async def stop(self) -> None:
        await self.send(Stop(self.epoch))
        await self.rest()
        await asyncio.wait_for(self.process.wait(), DEADLINE_S)

    async def end(self) -> None:
        await self.stop()
        await until(lambda: not alive(self.pid), "the daemon has ended")

    @property
    def pid(self) -> int:
        return next(frame.pid for frame in self.frames if isinstance(frame, Hello))

    async def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        await self.rest()
        await self.process.wait()

    async def drop(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # its worker was killed, so it has ended by itself
            self.process.kill()
        await self.process.wait()


class WorkerHost:
    """A host with its own home: `connect` is a login there. `prelude` is Python that runs in a worker before it
    starts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.prelude = ""
        self.more_env: dict[str, str] = {}
        self.project = home / "project"
        self.runtime = Path(tempfile.mkdtemp(prefix="ccb-run-"))  # short: the path of a socket has a limit
        self.temporary = home / "tmp"  # used once it is there
        self.pids: set[int] = set()
        self._laptops: list[Laptop] = []
        for each in (home, self.project):
            each.mkdir(mode=0o700, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.temporary),
            **SOURCES,
            "CCB_MAX_RETRIES": "0",
            **self.more_env,
        }

    async def connect(
        self, session: str, cwd: str = "~/project", *, bundle: str = "b" * 64, bundle_path: str = "", **params: Any
    ) -> Laptop:
        """Log in to a session. With `bundle_path`, that worker bundle (its hash is `bundle`) runs, not the sources."""
        start_params = json.dumps({"session": session, "cwd": cwd, "create": True, **params})
        anew = self.prelude or bundle_path
        process = await start_process(
            "" if anew else "worker", ["-c", self.prelude + _START, start_params, bundle, bundle_path],
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=self.env, limit=1024 * 1024,
        )  # fmt: skip
        laptop = Laptop(process)
        self._laptops.append(laptop)
        return laptop

    async def drive(
        self, session: str, options: SessionOptions | Json = _DEFAULTS, *, have: int = 0, tail: int = 0,
        role: str = "driver", **params: Any,
    ) -> Laptop:  # fmt: skip
        """Log in to a session and attach to it. `params` are more start parameters."""
        laptop = await self.connect(session, **params)
        await laptop.attach(options, have=have, tail=tail, role=role)
        return laptop

    async def ended(self, session: str) -> None:
        """Leave a session with one turn and no daemon."""
        laptop = await self.drive(session, SessionOptions(client="me@laptop"))
        await laptop.turn("what is\nthis?", says("a thing"))
        await laptop.end()

    async def refused(self, session: str, cwd: str = "~/project", **params: Any) -> Refused:
        return await (await self.connect(session, cwd, **params)).next(Refused)

    async def greeted(self, session: str, cwd: str = "~/project", **params: Any) -> Hello:
        return await (await self.connect(session, cwd, **params)).next(Hello)

    async def kill_worker(self, pid: int) -> None:
        self.pids.add(pid)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not alive(pid), f"the end of worker {pid}")

    def state(self, session: str) -> Path:
        return self.home / ".local" / "state" / "ccb" / "sessions" / session

    def summary(self, session: str) -> Json:
        found: Json = json.loads((self.state(session) / "summary.json").read_text())
        return found

    def journal(self, session: str) -> list[Json]:
        return [json.loads(line) for line in (self.state(session) / "journal.jsonl").read_bytes().splitlines()]

    def runtime_files(self) -> list[str]:
        folder = self.runtime / "ccb"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    async def close(self) -> None:
        for laptop in self._laptops:
            for frame in laptop.frames:
                if isinstance(frame, Hello):
                    self.pids.add(frame.pid)
            if laptop.process.returncode is None:
                await laptop.drop()
        for pid in self.pids | self._processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.runtime)

    def _processes(self) -> set[int]:
        """The processes that run with the home of this host, such as the commands of a worker that was killed."""
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = environ.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"HOME=" + os.fsencode(self.home) in variables:
                found.add(int(environ.parent.name))
        return found - {os.getpid()}


@contextmanager
def file_limit(size: int, pid: int = 0) -> Iterator[None]:
    """A process, or what is started meanwhile, can make no longer file, as on a full disk."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@asynccontextmanager
async def worker_host(home: Path) -> AsyncIterator[WorkerHost]:
    host = WorkerHost(home)
    try:
        yield host
    finally:
        await host.close()


async def until(condition: Callable[[], bool], what: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < deadline, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
