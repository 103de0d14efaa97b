"""/open in the session as lines: the file is named with kind and size, and a line of its own opens it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.local.plain.test_line_repl import plain

from ccb.local.files.copying import OpenTransport, Transfers
from ccb.local.files.fetched_files import FetchedFiles, PrivateFolder
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.pipe import Transport


@pytest.mark.programs
async def test_a_file_is_announced_and_opened_by_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two!")
    viewer = tmp_path / "viewer"
    viewer.write_text("#!/bin/sh\n")
    viewer.chmod(0o755)

    async def open_transport(again: bool) -> Transport:
        return LocalTransport(python=sys.executable)

    @asynccontextmanager
    async def lend() -> AsyncIterator[OpenTransport]:
        yield open_transport

    async with (
        Transfers(lend) as transfers,
        FetchedFiles(transfers, PrivateFolder(tmp_path / "opened"), str(viewer)) as fetched,
        plain(monkeypatch, laptop=LaptopSide(transfers=transfers, fetched=fetched), cwd=str(tmp_path)) as at,
    ):
        at.types("/open", "/open a.txt")
        await at.reads("no file waits to be opened: /open PATH fetches one of the host")
        await at.reads("ccb: a.txt · text · 3 B; /open alone opens it with viewer")
        at.types("/open b.txt")
        await at.reads(", after the 1 before it")
        at.printed.clear()
        at.types("/open")
        await at.reads("ccb: Opened a.txt with", "ccb: b.txt · text · 4 B; /open alone opens it")
        at.types("/open nothing", "/open a b")
        await at.reads("Check the path.", "this command is /open PATH")
