"""The official SDKs as programs: each runs in an environment of its own, made by .ci/official-sdks, and drives ccb."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.programs import shell_script
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Relay
from tests.support.person.laptop import Here

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".make" / "sdks"
PYTHON = PLACE / "python" / "bin" / "python"
PACKAGES = PLACE / "npm" / "node_modules"
PROGRAMS = Path(__file__).parent / "programs"
CCB = ["env", f"PYTHONPATH={os.pathsep.join(each for each in sys.path if each)}", sys.executable, "-m", "ccb"]
"""The ccb of this tree, for programs whose Python is another one."""


def require_sdks() -> None:
    """Skip the test where the SDKs are not installed, with the reason; in CI that is a failure."""
    if (PLACE / "versions").exists():
        return
    missing = PLACE / "missing"
    why = missing.read_text().strip() if missing.exists() else "run .ci/official-sdks (make test does)"
    assert not os.environ.get("CI"), f"the official SDKs are not installed: {why}"
    pytest.skip(f"the official SDKs are not installed: {why}")


@dataclass
class Program:
    process: asyncio.subprocess.Process
    events: list[Json] = field(default_factory=list)

    async def next(self) -> Json:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, f"the program ended early: {await self._why()}"
        event: Json = json.loads(line)
        self.events.append(event)
        return event

    async def until(self, kind: str, seconds: float = 60, **what: object) -> Json:
        async with asyncio.timeout(seconds):
            while True:
                event = await self.next()
                if event["kind"] == kind and what.items() <= event.items():
                    return event

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def end(self, seconds: float = 60) -> None:
        await self.until("end", seconds)
        async with asyncio.timeout(seconds):
            assert await self.process.wait() == 0, await self._why()

    async def _why(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()[-3000:] + str(self.events[-3:])

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["kind"] == kind]

    def messages(self, name: str) -> list[Json]:
        return [event["body"] for event in self.of("message") if event["type"] == name]


def calls(*uses: tuple[str, Json]) -> Json:
    return {"blocks": [{"type": "tool_use", "name": name, "input": given} for name, given in uses]}


def asked(times: int) -> Callable[[FakeModel], bool]:
    return lambda model: len(model.requests) == times


def text_of_deltas(events: Sequence[Json]) -> str:
    deltas = [each["event"].get("delta", {}) for each in events]
    return "".join(each["text"] for each in deltas if each.get("type") == "text_delta")


def over_ssh(directory: Path, host: Host, port: int) -> Json:
    """Return the settings of a program whose sessions run in the home of the user, reached through `port`."""
    options = host.server.client_options(port)[2:]  # the port is in the address
    remote = f"ssh://{host.login}:{port}/~"
    return {"cli": program_ccb(directory, options), "env": {"CCB_REMOTE": remote}}


async def cut_everywhere(program: Program, between: Relay, model: FakeModel) -> None:
    """Cut the link in a tool, a hook, a question, a sub-agent, an answer and an interrupt of a program, to its end."""
    for where in ("tool", "hook", "question"):
        await program.until("waits", where=where)
        between.cut()
        program.go_on()
    for requests in (4, 5):  # in the sub-agent, and in an answer of the main agent
        await model.until(asked(requests))
        between.cut()
    await program.until("waits", where="stream")
    between.cut()
    program.go_on()  # it interrupts while there is no connection
    await program.end()


EVERYWHERE = {"long": "talk", "cut_in": ["tool", "hook", "question", "stream"]}


def work_to_cut(*then: Json) -> list[Json]:
    """What the model says in a session whose link is cut everywhere; `then` is after its first turn."""
    return [
        calls(("mcp__calc__add", {"a": 1, "b": 2})),
        calls(("Bash", {"command": "touch made"})),
        calls(("Task", {"description": "look at it", "prompt": "look", "subagent_type": "reviewer"})),
        {"text": "WORDS OF THE REVIEWER", "first_delay": 0.5},
        {"text": "all of it is done now", "delay": 0.1},
        *then,
        {"text": "a long answer that is broken off " * 20, "delay": 0.1},
        {**calls(("StructuredOutput", {"n": 7})), "first_delay": 0.5},
    ]


def program_ccb(directory: Path, options: Sequence[str] = ()) -> str:
    """Return the path of a program `ccb` that runs the ccb of this tree with `options` first."""
    return str(shell_script(directory / "ccb", f'exec {shlex.join([*CCB, *options])} "$@"'))


def python_sdk(here: Here, *prompts: str, **more: object) -> AbstractAsyncContextManager[Program]:
    """A program that sends these prompts; `more` are its other settings."""
    return running_program(here, str(PYTHON), "python_session.py", prompts, more)


def npm_sdk(here: Here, *prompts: str, **more: object) -> AbstractAsyncContextManager[Program]:
    return running_program(here, "node", "npm_session.mjs", prompts, {"library": str(PACKAGES), **more})


@asynccontextmanager
async def running_program(
    here: Here, interpreter: str, script: str, prompts: Sequence[str], more: Mapping[str, object]
) -> AsyncIterator[Program]:
    settings = {"cwd": str(here.project), "prompts": prompts, **more}
    if "cli" not in settings:
        settings["cli"] = program_ccb(here.project.parent)
    # PYTHONPATH is for ccb, not for the Python of the SDK: `program_ccb` sets it.
    env = {name: value for name, value in here.laptop.env.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        interpreter, str(PROGRAMS / script), json.dumps(settings), env=env, cwd=here.project, limit=16 * 1024 * 1024,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
