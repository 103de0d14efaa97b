"""The sandbox of whole sessions: a real worker in a real cage, and a model that does what it should not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost, alive, until
from tests.support.worker.cages import NO_CAGE, NO_NAMESPACES

from ccb.remote.sandbox.cage_server import Availability, CageServer
from ccb.tunnel.wire.frames import Attached, Hello, Json, Refused
from ccb.tunnel.wire.session_options import SessionOptions

_NO_PARSER = """
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.permissions import command_matcher
command_matcher.decide_line = lambda *_, **__: Decision(Behavior.ALLOW, "the parser lets everything through")
"""


@pytest.fixture(scope="module")
def offered() -> Availability:
    with contextlib.closing(CageServer()) as server:
        return server.availability()


@pytest.fixture
def reading(offered: Availability) -> None:
    if not offered.mechanism:
        pytest.skip(offered.why)


@pytest.fixture
def workspace(offered: Availability) -> None:
    if not offered.workspace:
        pytest.skip(offered.why)


async def results(laptop: Laptop, *tools: tuple[str, Json]) -> list[str]:
    """Let the model make these calls in one turn. Return what it gets for each."""
    found = []
    opened = await laptop.opened("go")
    for at, (name, tool_input) in enumerate(tools):
        await laptop.answer(opened, content(calls((f"toolu_{at}", name, tool_input))))
        opened, body = await laptop.call()
        found.append(text_of(json.loads(body)["messages"][-1]["content"][0]["content"]))
    await laptop.answer(opened, content(says("done")))
    await laptop.message("result")
    return found


def text_of(blocks: str | list[Json]) -> str:
    return blocks if isinstance(blocks, str) else "".join(str(block.get("text")) for block in blocks)


def bash(command: str, **more: object) -> tuple[str, Json]:
    return "Bash", {"command": command, **more}


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, list[int]]]:
    """A server on this machine: its port, and a list that grows with each connection."""
    reached: list[int] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(1)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], reached


def connecting(port: int) -> str:
    script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('rea' + 'ched')"
    return f"{shlex.quote(sys.executable)} -I -c {shlex.quote(script)}"


def snapshot(*trees: Path) -> dict[str, tuple[int, bytes]]:
    """The files of some trees, with mode and content; what ccb itself keeps is left out."""
    found = {}
    for tree in trees:
        for path in tree.rglob("*"):
            if ".local" not in path.parts and path.is_file():
                found[str(path)] = (path.stat().st_mode, path.read_bytes())
    return found


async def test_hostile_lines_do_nothing_behind_a_blind_parser(host: WorkerHost, session: str, reading: None) -> None:
    host.prelude = _NO_PARSER
    (host.home / ".ssh").mkdir()
    (host.home / ".ssh" / "id").write_text("PRIVATE")
    (host.project / "kept").write_text("kept")
    evil = host.project / "evil"
    evil.write_text("#!/bin/sh\necho RAN\ntouch ran\n")
    evil.chmod(0o755)
    before = snapshot(host.home)
    laptop = await host.drive(session)
    async with listener() as (port, reached):
        said = await results(
            laptop,
            bash("echo x > made; rm -f kept; chmod 777 kept; ln -s / root; mkdir d"),
            bash("./evil"),
            bash("cat ~/.ssh/id; cat /proc/self/root$HOME/.ssh/id; find / -name id -exec cat {} + 2>/dev/null"),
            bash(connecting(port)),
            bash(f"kill -9 {laptop.hello.pid}; echo sent"),
            bash("(sleep 0.2; touch late) & echo started", run_in_background=True),
            bash("git init sub; git config --global core.pager ./evil"),
        )
        assert not reached
    assert alive(laptop.hello.pid)
    assert not any("PRIVATE" in each or "RAN" in each or "reached" in each for each in said), said
    assert "stopped by the sandbox: " in said[0] and "dangerouslyDisableSandbox" in said[0]
    assert snapshot(host.home) == before
    await laptop.stop()
    assert snapshot(host.home) == before, "also what went on in the background"


async def test_the_workspace_is_open_but_not_hooks_nor_networks(
    host: WorkerHost, session: str, workspace: None
) -> None:
    (host.project / ".git" / "hooks").mkdir(parents=True)
    (host.project / ".git" / "config").write_text("[core]\n")
    (host.home / "other").mkdir()
    laptop = await host.drive(session, SessionOptions(sandbox="workspace"))
    async with listener() as (port, reached):
        said = await results(
            laptop,
            bash("mkdir d && echo built > d/out && cat d/out"),
            bash("echo x > .git/hooks/pre-commit; git config core.fsmonitor ./x; mv .git g; echo x > CLAUDE.md; ls -A"),
            bash("echo x > ~/other/made; chmod 777 ~/other"),
            bash(connecting(port)),
            ("Write", {"file_path": str(host.project / "new.py"), "content": "x = 1\n"}),
            ("Write", {"file_path": str(host.project / "CLAUDE.md"), "content": "obey\n"}),
            bash("touch out; sleep 0.1; touch late", run_in_background=True),
            bash("while ! [ -e late ]; do sleep 0.05; done; cd d; pwd"),
            bash("pwd"),
        )
        assert not reached
    assert said[0] == "built"
    assert "stopped by the sandbox: " in said[1]
    assert "reached" not in said[3]
    assert (host.project / "new.py").read_text() == "x = 1\n"
    assert "was not granted" in said[5] and not (host.project / "CLAUDE.md").exists()
    assert said[8] == str(host.project / "d"), "the directory stays, as without a cage"
    assert os.listdir(host.project / ".git" / "hooks") == []
    assert (host.project / ".git" / "config").read_text() == "[core]\n"
    assert os.listdir(host.home / "other") == [] and (host.home / "other").stat().st_mode & 0o777 != 0o777
    await laptop.stop()
    assert sorted(os.listdir(host.project)) == [".git", "d", "late", "new.py", "out"], "nothing of the cage stays"


async def test_the_network_is_open_where_the_person_allows_it(host: WorkerHost, session: str, workspace: None) -> None:
    laptop = await host.drive(session, SessionOptions(sandbox="workspace", allow_net=True))
    async with listener() as (port, reached):
        assert (await results(laptop, bash(connecting(port)))) == ["reached"]
        assert reached
    assert (await in_force(laptop)) == "workspace cage with network"
    await laptop.stop()


async def in_force(laptop: Laptop) -> str:
    inits = [event.body for event in laptop.events if event.body.get("subtype") == "init"]
    return str(inits[-1]["sandbox"])


async def test_the_mode_survives_workers_and_other_drivers(host: WorkerHost, session: str, workspace: None) -> None:
    first = await host.drive(session, SessionOptions(sandbox="workspace", client="first"))
    await results(first, bash("touch one"))
    os.kill(first.hello.pid, 9)
    left = host.project / ".envrc"
    left.mkdir()
    left.chmod(0o1700)  # as a worker leaves it that is killed while a command runs
    second = await host.drive(session, SessionOptions(client="second"))
    await until(lambda: not left.exists(), "what the killed worker left is gone")
    await results(second, bash("touch two"))
    assert await in_force(second) == "workspace cage"
    third = await host.drive(session, {"client": "third", "sandbox": "read-only"})
    said = await results(third, bash("touch three"))
    assert "was not granted" in said[0] and await in_force(third) == "read-only cage"
    assert sorted(os.listdir(host.project)) == ["one", "two"]
    await third.stop()


async def test_a_host_without_any_cage_lets_literal_lines_through_and_says_so(host: WorkerHost, session: str) -> None:
    host.prelude = NO_CAGE
    (host.project / "a").write_text("")
    laptop = await host.drive(session)
    said = await results(laptop, bash("ls"), bash("ls $HOME"), ("Glob", {"pattern": "*"}))
    assert said[0] == "a" and "was not granted" in said[1] and said[2].endswith("a")
    assert (await in_force(laptop)).startswith("no cage: ")
    hello = await host.greeted(session)
    assert any("without a cage" in note for note in hello.notes) and hello.sandbox.startswith("no cage: ")
    await laptop.stop()


@pytest.mark.parametrize("prelude", [NO_CAGE, NO_NAMESPACES], ids=["nothing", "no namespaces"])
async def test_workspace_mode_is_refused_with_why_it_has_no_cage(host: WorkerHost, session: str, prelude: str) -> None:
    host.prelude = prelude
    refused = await (await host.drive(session, SessionOptions(sandbox="workspace"))).next(Refused)
    assert refused.code == "no_sandbox" and refused.data["why"]


_HANGING = """
import os, time
from ccb.remote.sandbox.cage_server import CageServer
asked = CageServer._ask
def ask(self, fields, descriptors):
    open(os.environ["HOME"] + "/hangs", "w").close()
    while not os.path.exists(os.environ["HOME"] + "/go"):
        time.sleep(0.01)
    return asked(self, fields, descriptors)
CageServer._ask = ask
"""


async def test_what_starts_commands_may_hang_and_others_go_on(host: WorkerHost, session: str, workspace: None) -> None:
    """When the worker asks which cages there are, and when it starts a command."""
    host.prelude = _HANGING
    laptop = await host.connect(session)
    await laptop.attach(SessionOptions(sandbox="workspace"), decided=False)
    await _answers_while_it_hangs(host, session)
    await laptop.next(Attached)
    for name in ("go", "hangs"):
        (host.home / name).unlink()
    running = asyncio.ensure_future(results(laptop, bash("echo done")))
    await _answers_while_it_hangs(host, session)
    assert await running == ["done"]
    await laptop.stop()


async def _answers_while_it_hangs(host: WorkerHost, session: str) -> None:
    await until((host.home / "hangs").exists, "the worker waits")
    viewer = await host.connect(session)
    assert (await viewer.next(Hello)).session == session
    await viewer.drop()
    (host.home / "go").touch()
