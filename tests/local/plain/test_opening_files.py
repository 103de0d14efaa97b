"""/open in the session as lines: the file is named with kind and size, and a line of its own opens it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccb.local.files.copying import OpenTransport, Transfers
from ccb.local.files.fetched_files import FetchedFiles, PrivateFolder
from ccb.local.plain.files import PlainFiles
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.pipe import Transport


@pytest.mark.programs
async def test_a_file_is_announced_and_opened_by_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two!")
    viewer = tmp_path / "viewer"
    viewer.write_text("#!/bin/sh\n")
    viewer.chmod(0o755)
    printed: list[str] = []

    async def open_transport(again: bool) -> Transport:
        return LocalTransport(python=sys.executable)

    @asynccontextmanager
    async def lend() -> AsyncIterator[OpenTransport]:
        yield open_transport

    async def until_printed(text: str) -> None:
        async with asyncio.timeout(60):
            while not any(text in each for each in printed):
                await asyncio.sleep(0.01)

    async with (
        Transfers(lend) as transfers,
        FetchedFiles(transfers, PrivateFolder(tmp_path / "opened"), str(viewer)) as fetched,
    ):
        files = PlainFiles(transfers, fetched, printed.append)
        assert files.command("/open", "", str(tmp_path))
        await until_printed("no file waits to be opened: /open PATH fetches one of the host")
        assert files.command("/open", "a.txt", str(tmp_path))
        await until_printed("ccb: a.txt · text · 3 B; /open alone opens it with viewer")
        assert files.command("/open", "b.txt", str(tmp_path))
        await until_printed(", after the 1 before it")
        printed.clear()
        assert files.command("/open", "", str(tmp_path))
        await until_printed("ccb: Opened a.txt with")
        await until_printed("ccb: b.txt · text · 4 B; /open alone opens it")
        assert files.command("/open", "nothing", str(tmp_path))
        await until_printed("Check the path.")
        assert files.command("/open", "a b", str(tmp_path))
        await until_printed("this command is /open PATH")
        await files.close()
