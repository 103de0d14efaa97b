"""Sessions that move: between the laptop and a host, with and without files, and over links that break."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses

pytestmark = pytest.mark.visited

JSON = ["--output-format", "json"]


async def begin(host: Host, project: Path) -> str:
    """A session on the laptop that has read and changed a file."""
    host.model.add(
        {**uses("Write", file_path=str(project / "new.txt"), content="new"), "when": {"user_contains": "begin"}, "times": 1},
        {"text": "done", "times": 0},
    )
    done = await host.laptop.run([str(project), "-p", "begin", "--permission-mode", "acceptEdits", *JSON])
    assert done.code == 0, done.stderr
    assert (project / "new.txt").read_text() == "new"
    return str(json.loads(done.stdout)["session_id"])


def move(host: Host, session: str, path: str, *words: str, port: int | None = None) -> list[str]:
    target = f"{host.login}:{path}"
    return ["move", "--local", session, target, *words, *host.server.client_options(port)]


async def test_a_session_begun_here_goes_on_there_and_comes_back(host: Host, project: Path) -> None:
    session = await begin(host, project)
    before = journal(host.laptop.home, session)
    there = host.put("app")
    done = await host.laptop.run(move(host, session, "app", "--no-files"))
    assert done.code == 0, done.stderr
    assert f"moved {session[:8]} to {host.login}:{there}" in done.stdout, done.stdout
    assert journal(host.home, session).startswith(before), "the history stays byte for byte"
    done = await host.run("--resume", session, "-p", "go on", *JSON)
    assert done.code == 0, done.stderr
    said = json.dumps(host.model.requests[-1].body)
    assert f"what was said about paths below {project} holds below {there}" in said
    assert said.count("has moved to another machine") == 1
    done = await host.laptop.run([str(project), "--resume", session, "-p", "go on", *JSON])
    assert done.refuses(2, "has moved to", str(host.login)), done.stderr


def journal(home: Path, session: str) -> bytes:
    return (home / ".local/state/ccb/sessions" / session / "journal.jsonl").read_bytes()
