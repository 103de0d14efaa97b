"""A real ssh-agent of the person."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until


@asynccontextmanager
async def ssh_agent(directory: Path, *keys: Path, askpass: str = "exit 1") -> AsyncIterator[Path]:
    """An agent that holds `keys`; its socket. `askpass` is the script that it runs to have a signature confirmed."""
    path, script = directory / "agent.sock", shell_script(directory / "askpass", askpass)
    env = {**os.environ, "SSH_ASKPASS": str(script), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL, env=env)
    try:
        await until(lambda: _answers(path))  # its socket is there a moment before it listens
        for key in keys:
            ssh_add(path, str(key))
        yield path
    finally:
        agent.terminate()
        agent.wait()


def ssh_add(agent: Path, *words: str) -> None:
    subprocess.run(["ssh-add", "-q", *words], env={**os.environ, "SSH_AUTH_SOCK": str(agent)}, check=True)


def _answers(agent: Path) -> bool:
    there = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    return subprocess.run(["ssh-add", "-l"], env=there, capture_output=True, check=False).returncode != 2
