"""A laptop for end-to-end tests: runs the real `ccb` as a process in its own home, apart from the developer's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.forking.process import start_process
from tests.support.hosts.visited_host import visit
from tests.support.machine.processes import left_with_home, with_home
from tests.support.model.fake_model import API_KEY, FakeModel

if TYPE_CHECKING:
    from tests.support.person.terminal import Terminal

Json = dict[str, Any]

STREAM = ["--output-format", "stream-json", "--verbose"]
STREAMS = [*STREAM, "--input-format", "stream-json"]
STDIO = [*STREAMS, "--permission-prompt-tool", "stdio"]


def user_message(text: str, **more: object) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, **more}


def line(text: str, identity: str) -> bytes:
    """A prompt with an id, as a line of stdin."""
    return json.dumps(user_message(text, uuid=identity)).encode() + b"\n"


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int
    stdout: str
    stderr: str

    def refuses(self, code: int, *says: str) -> bool:
        """Whether it is one message without a traceback: what happened, and after an arrow what to do."""
        assert self.code == code and all(text in self.stderr for text in says), self.stderr
        assert "Traceback" not in self.stderr and self.stderr.count("  -> ") == 1, self.stderr
        return True

    @property
    def messages(self) -> list[Json]:
        """stdout as NDJSON."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def results(self) -> list[Json]:
        return [message for message in self.messages if message["type"] == "result"]

    @property
    def texts(self) -> list[str]:
        """What the agent said, and the results."""
        said = [
            block["text"]
            for message in self.messages
            if message["type"] == "assistant"
            for block in message["message"]["content"]
            if block["type"] == "text"
        ]
        return said + [result["result"] for result in self.results if "result" in result]


@dataclass
class Running:
    """A run under way. `lines` are the messages read so far by `until`."""

    process: asyncio.subprocess.Process
    lines: list[Json] = field(default_factory=list)

    async def until(self, kind: str, subtype: str | None = None, timeout: float = 60) -> Json:
        """Read messages up to the next one of a kind."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"stdout ended before {kind}: {self.lines}"
                self.lines.append(json.loads(line))
                if self.lines[-1]["type"] == kind and subtype in (None, self.lines[-1].get("subtype")):
                    return self.lines[-1]

    async def send(self, *bodies: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(body).encode() + b"\n" for body in bodies))
        await self.process.stdin.drain()

    async def reply(self, asked: Json, answer: Json) -> None:
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        await self.send({"type": "control_response", "response": response})

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def finish(self) -> Done:
        """End the input, and wait for the end of the run."""
        self.end_input()
        return await self.done()

    async def done(self, timeout: float = 60) -> Done:
        """Wait for the end; stdout is what was read before and the rest."""
        async with asyncio.timeout(timeout):
            out, err = await self.process.communicate()
        before = "".join(json.dumps(line) + "\n" for line in self.lines)
        assert self.process.returncode is not None
        assert API_KEY.encode() not in out + err, "ccb has printed its credential"
        return Done(self.process.returncode, before + out.decode(), err.decode())


@dataclass(frozen=True)
class Laptop:
    """`env` is all that its commands see."""

    home: Path
    env: dict[str, str]

    async def run(self, argv: Sequence[str], *, stdin: bytes | None = None, **env: str) -> Done:
        """Run `ccb ARGV` to its end; without `stdin`, its standard input is /dev/null."""
        async with self.start(argv, piped=stdin is not None, **env) as running:
            if stdin is not None:
                assert running.process.stdin is not None
                running.process.stdin.write(stdin)
                running.end_input()
            return await running.done()

    def settings(self, **values: object) -> None:
        path = self.home / ".config/ccb/settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    @asynccontextmanager
    async def on_terminal(self, *words: str, size: tuple[int, int] = (100, 30), **env: str) -> AsyncIterator[Terminal]:
        """Run `ccb WORDS` on a terminal; killed on leaving when it has not ended."""
        from tests.support.person.terminal import terminal  # which loads the REPL

        argv = [sys.executable, "-m", "ccb", *words]
        async with terminal(argv, {**self.env, **env}, str(self.home), size) as running:
            yield running

    @asynccontextmanager
    async def start(self, argv: Sequence[str], *, piped: bool = True, **env: str) -> AsyncIterator[Running]:
        """Run `ccb ARGV`; killed on leaving when it has not ended."""
        process = await start_process(
            "ccb", ["-m", "ccb", *argv],
            stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**self.env, **env}, cwd=self.home, limit=64 * 1024 * 1024,
        )  # fmt: skip
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@dataclass(frozen=True)
class Here:
    """A project on the laptop itself, and the scripted model."""

    laptop: Laptop
    model: FakeModel
    project: Path

    async def run(self, *words: str, stdin: bytes | None = None, **env: str) -> Done:
        return await self.laptop.run([str(self.project), *words], stdin=stdin, **env)

    def start(self, *words: str, piped: bool = True, **env: str) -> AbstractAsyncContextManager[Running]:
        return self.laptop.start([str(self.project), *words], piped=piped, **env)

    def on_terminal(self, *words: str) -> AbstractAsyncContextManager[Terminal]:
        return self.laptop.on_terminal(str(self.project), *words)


def make_laptop(directory: Path, model_url: str) -> Laptop:
    """A laptop whose home is in `directory` and whose model is at `model_url`. It has run local sessions before."""
    home = directory / "laptop"
    runtime = directory / "run"
    home.mkdir()
    runtime.mkdir(mode=0o700)
    visit(home)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(runtime),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": model_url,
        "SSL_CERT_FILE": os.devnull,  # the model is on loopback; loading the system's CAs would take 20 ms of each run
    }
    return Laptop(home, env)


@contextmanager
def tidy_laptop(directory: Path, model_url: str) -> Iterator[Laptop]:
    """A laptop on which nothing may run any more a while after the test."""
    laptop = make_laptop(directory, model_url)
    yield laptop
    left = left_with_home(laptop.home)
    for process in with_home(laptop.home):
        process.kill()
    assert left == [], "a process is left behind"
