"""Hosts in memory that answer `watch` with what a test reports, for the dash: no process, no network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.support.worker.compiled import worker_bundle

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import Settings
from ccb.local.connect.host_connection import HostConnection
from ccb.local.connect.startup import LoadedBasics
from ccb.local.dash.dash_model import Dash, watching
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.frames import Frame, Report
from ccb.tunnel.wire.ndjson import encode_frame

_MARKER = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_BASICS = LoadedBasics(Settings(), worker_bundle(""))


class _Pipe:
    def __init__(self, first: bytes) -> None:
        self.arrives: asyncio.Queue[bytes] = asyncio.Queue()
        self.arrives.put_nowait(first)

    async def read(self, n: int = 65536) -> bytes:
        data = await self.arrives.get()
        if not data:
            raise ConnectionLost("the connection to the host was cut")
        return data

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...

    async def exit_status(self) -> int | None:
        return None

    def stderr_tail(self) -> str:
        return ""


class ReportingHost(Transport):
    """`rows` are its sessions by their ID, which `tell` changes. `refuses` is what a login raises; one that `hangs`
    never ends."""

    def __init__(self, name: str, *rows: Mapping[str, Any]) -> None:
        self.name = name
        self.rows = {str(row["session"]): dict(row) for row in rows}
        self.refuses: Exception | None = None
        self.hangs = False
        self.logins = 0
        self._pipes: list[_Pipe] = []
        self._alive = False

    @property
    def alive(self) -> bool:
        return self._alive

    def logged_in_again(self) -> ReportingHost:
        if self.refuses is not None:
            raise self.refuses
        self.logins += 1
        self._alive = True
        return self

    async def execute(self, command: str) -> _Pipe:
        found = _MARKER.search(command)
        assert found is not None
        pipe = _Pipe(b"\n" + found[0].encode() + b' {"have": true}\n')
        self._pipes.append(pipe)
        pipe.arrives.put_nowait(_lines(*(Report("session", row) for row in self.rows.values()), _LISTED))
        return pipe

    def tell(self, session: str, **changed: Any) -> None:
        """Report a session that is new, or has changed."""
        row = self.rows.setdefault(session, {"session": session})
        row.update(changed)
        self._say(Report("session", row))

    def remove(self, session: str) -> None:
        del self.rows[session]
        self._say(Report("gone", {"session": session}))

    def cut(self) -> None:
        """End all connections."""
        self._alive = False
        for pipe in self._pipes:
            pipe.arrives.put_nowait(b"")
        self._pipes.clear()

    def _say(self, report: Report) -> None:
        for pipe in self._pipes:
            pipe.arrives.put_nowait(_lines(report, _LISTED))

    def abort(self) -> None:
        self._alive = False

    async def close(self) -> None:
        self._alive = False


_LISTED = Report("listed", {})


def _lines(*frames: Frame) -> bytes:
    return b"".join(b"".join(encode_frame(each, 1)) for each in frames)


class _Connection(HostConnection):
    def __init__(self, host: ReportingHost) -> None:
        arguments = parse_arguments(["ssh", f"{host.name}:~"])
        super().__init__(arguments, NobodyToAsk(), {}, lambda environ, choice: _BASICS)
        self._host = host

    async def _log_in(self, prompts: Prompts) -> Transport:
        self.loader.start()
        if self._host.hangs:
            await asyncio.Event().wait()
        return self._host.logged_in_again()


def dash_of(hosts: Sequence[ReportingHost], environ: Mapping[str, str]) -> AbstractAsyncContextManager[Dash]:
    """A dash that watches the hosts."""
    return watching({host.name: _Connection(host) for host in hosts}, environ)
