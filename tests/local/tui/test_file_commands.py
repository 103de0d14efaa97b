"""/get, /put and /open in the REPL: a copy beside the session, how far it is, and how it is broken off."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, hello

from ccb.local.files.copying import OpenTransport, Transfers
from ccb.local.files.fetched_files import FetchedFiles, PrivateFolder
from ccb.local.session.session_client import FoundNames
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.local.tui.composer.completions import path_argument_at
from ccb.local.tui.panels import transfer_panel
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.pipe import Transport


@asynccontextmanager
async def file_commands(opened: Path, gate: asyncio.Event | None = None, viewer: str = "") -> AsyncIterator[LaptopSide]:
    """A laptop beside a session on this machine. No copy has a connection before `gate` is set."""

    async def open_transport(again: bool) -> Transport:
        if gate is not None:
            await gate.wait()
        return LocalTransport(python=sys.executable)

    @asynccontextmanager
    async def lend() -> AsyncIterator[OpenTransport]:
        yield open_transport

    async with Transfers(lend) as transfers, FetchedFiles(transfers, PrivateFolder(opened), viewer) as fetched:
        yield LaptopSide(transfers=transfers, fetched=fetched)


@asynccontextmanager
async def copying(cwd: Path, gate: asyncio.Event | None = None, viewer: str = "") -> AsyncIterator[Desk]:
    """A REPL whose session works in `cwd` of this machine."""
    session = ScriptedSession(greeting=hello(cwd=str(cwd)))
    async with file_commands(cwd / "opened", gate, viewer) as laptop, desk(session, laptop=laptop) as at:
        yield at


@pytest.mark.programs
async def test_files_are_copied_both_ways_beside_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, laptop = tmp_path / "host", tmp_path / "laptop"
    host.mkdir()
    laptop.mkdir()
    monkeypatch.chdir(laptop)
    (host / "my plot.png").write_bytes(os.urandom(100_000))
    (host / "runs/one").mkdir(parents=True)
    (host / "runs/one/log").write_text("loss 1")
    (host / "runs/link").symlink_to("/etc")
    async with copying(host) as at:
        await at.give('/get "my plot.png"', sees="Copied my plot.png (100 KB) to")
        assert (laptop / "my plot.png").read_bytes() == (host / "my plot.png").read_bytes()
        await at.give(f"/get runs {laptop}/mine", sees=("Copied runs (6 B) to", "left out: link: a link"))
        assert (laptop / "mine/one/log").read_text() == "loss 1" and not (laptop / "mine/link").exists()
        (laptop / "data.csv").write_text("1,2")
        await at.give("/put data.csv", sees="Copied data.csv (3 B) to")
        assert (host / "data.csv").read_text() == "1,2"
        await at.give("/get nothing", sees="Check the path.")
        await at.give("/put", sees="this command is /put LOCAL [REMOTE]")
        assert at.session.prompts == []


@pytest.mark.programs
async def test_a_copy_shows_how_far_it_is_and_esc_breaks_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").write_bytes(b"x")
    gate = asyncio.Event()
    async with copying(tmp_path, gate) as at:
        await at.give("/get big other", sees=("↓ big  connecting", "Esc breaks off the newest copy"))
        await at.type("still typing", has="still typing")
        at.composer.text = ""
        await at.press("escape", sees="↓ big: broken off. The same command goes on where it ended.")
        await at.loses("Esc breaks off")
        await at.give("/get big one")
        await at.give("/put big two", sees=("↓ big  connecting", "↑ big  connecting"))
        await at.give("/get stop", loses="connecting")
        assert not {"one", "two", "other"} & set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("text", "query", "local"),
    [
        ("/get ", "", False),
        ("/get src/a", "src/a", False),
        ('/get "my no', "my no", False),
        ('/get "my notes" ', "", True),
        ("/get a.png ~/x", "~/x", True),
        ("/get a.png x ", None, False),
        ("/put ", "", True),
        ("/put a b/", "b/", False),
        ("/open x", "x", False),
        ("/get", None, False),
        ("/model x", None, False),
        ("get x", None, False),
    ],
)
def test_where_a_path_of_a_command_is_typed(text: str, query: str | None, local: bool) -> None:
    found = path_argument_at(text, len(text))
    assert (found.query if found else None) == query and (found is None or found.local == local)


async def test_paths_of_both_machines_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my plots").mkdir()
    (tmp_path / "my plots/old.png").touch()
    (tmp_path / "bad\x1b]name").touch()

    async def found(query: str) -> FoundNames:
        names = [each for each in ("runs/", "runs/loss curve.png") if query in each]
        return FoundNames(tuple(names), more=False, settled=True, cut=False)

    async with copying(tmp_path) as at:
        at.session.find_names = found
        await at.type("/get runs/l", sees="runs/loss curve.png")
        await at.press("tab", has='/get "runs/loss curve.png" ', sees="my plots/", lacks="]name")
        await at.press(*"my", "tab", has='/get "runs/loss curve.png" "my plots/"', sees="old.png")
        at.composer.text = ""
        await at.type("/add-dir runs", sees="runs/loss curve.png")
        await at.press("enter", has="")  # a directory that is typed is not lengthened
        assert at.session.controls == [("add_directory", {"path": "runs"})]


@pytest.mark.programs
async def test_a_file_is_fetched_and_a_key_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer, seen = tmp_path / "viewer", tmp_path / "seen"
    viewer.write_text(f'#!/bin/sh\nbasename "$1" >> {seen}\n')
    viewer.chmod(0o755)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tool").write_bytes(b"\x7fELF\0")
    async with copying(tmp_path, viewer=str(viewer)) as at:
        fetched = at.view.api.laptop.fetched
        assert fetched is not None
        await at.give("/open run.sh", sees=("run.sh.txt · text · 10 B", "Alt+O opens it with viewer"))
        await at.type("o ")
        at.composer.text = ""
        assert not seen.exists()
        await at.press("escape", loses="Alt+O opens it")
        await at.give("/open", sees="No file waits to be opened")
        await at.give("/open run.sh", sees="Alt+O opens it")
        monkeypatch.setattr(transfer_panel, "SEEN_S", 60.0)
        await at.alone("alt+o")  # the file has only just come: the key was meant for something else
        assert fetched.offered
        monkeypatch.setattr(transfer_panel, "SEEN_S", 0.0)
        await at.alone("alt+o", sees="Opened run.sh.txt with", loses="Alt+O opens it")
        assert seen.read_text() == "run.sh.txt\n"
        await at.give("/open tool", sees="tool is a program of Linux, and ccb opens only what is looked at")
        assert at.session.prompts == []
