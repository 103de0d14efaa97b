"""The rows of all hosts: each host is asked once, and reports from then on what changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import cache
from threading import Lock

from ccb.tunnel.errors import AuthFailed, CcbError, HostKeyError
from ccb.tunnel.reconnecting import Pace, waits
from ccb.tunnel.transports.login_prompts import Prompts
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..config.policy import ledger_folder
from ..config.settings import SettingsChoice
from ..connect.host_connection import HostConnection
from ..connect.session_rows import ReportRow, SessionId, SessionRow, check_number, reports, row_of
from ..connect.startup import LoadedBasics, load_dialing_startup
from ..ledger.call_ledger import CallLedger, UsageSum, read_ledger
from ..terminal.stdio import in_thread

log = logging.getLogger(__name__)

ASKS, WORKS = "requires_action", "running"
_GROUPS = {ASKS: 0, WORKS: 1}
_LOGINS = 16  # hosts that are logged in to at the same time
_COST_S = 30.0  # seconds after which the ledger may be read again
_SETTLE_S = 0.05  # seconds in which changes are collected before they are told


class GoneRow(ReportRow):
    session: SessionId


@dataclass(frozen=True)
class DashRow:
    """A session as its host has reported it `heard_at`, and what it has cost this laptop."""

    host: HostWatch
    session: SessionRow
    heard_at: float
    usd: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.host.name, self.session.session

    @property
    def title(self) -> str:
        return self.session.prompt.cell or self.session.session

    @property
    def asks(self) -> bool:
        return self.session.alive and self.session.state == ASKS

    def idle_s(self, now: float) -> float:
        return self.session.idle_s + now - self.heard_at

    @property
    def rank(self) -> tuple[int, float]:
        """What waits for the person comes first, what has waited longest before; of the others, what was used last."""
        group = _GROUPS.get(self.session.state, 2 if self.session.alive else 3)
        used = self.heard_at - self.session.idle_s
        return group, used if self.asks else -used


class HostWatch:
    """One host, over one connection that the sessions opened from here share. `problem` says why it does not answer;
    the rows are those of its last answer, at `heard_at`."""

    def __init__(
        self, name: str, arguments: Arguments, connection: HostConnection, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.connection = connection
        self.rows: dict[str, tuple[SessionRow, float]] = {}
        self.problem = ""
        self.needs_person = False
        self.heard_at = 0.0
        self.up = False
        self.told = asyncio.Event()  # the host has answered once, or it is known that it does not
        self._changed = changed
        self._again = asyncio.Event()

    def retry(self) -> None:
        """Connect now, if there is no connection."""
        self._again.set()

    async def run(self, logins: asyncio.Semaphore) -> None:
        """Watch until cancelled."""
        pace = Pace(waits)
        while True:
            try:
                async with logins:
                    await self.connection.transport(ask=False)
                pace.connected()
                await self._listen()
                self._lost("the host has ended the answer", needs_person=False)
            except CcbError as error:
                self._lost(error.what, needs_person=isinstance(error, AuthFailed | HostKeyError))
            except Exception as error:  # else the row would stay as it is, and nobody would know why
                log.exception("watching %s failed", self.name)
                self._lost(f"watching it failed: {type(error).__name__}", needs_person=False)
            self._again.clear()
            try:
                async with asyncio.timeout(None if self.needs_person else max(1.0, pace.next())):
                    await self._again.wait()
            except TimeoutError:
                pass

    def _lost(self, why: str, *, needs_person: bool) -> None:
        self.problem, self.needs_person, self.up = why, needs_person, False
        self._tell()

    def _tell(self) -> None:
        self.told.set()
        self._changed()

    async def _listen(self) -> None:
        transport = await self.connection.transport(ask=False)
        bundle = (await self.connection.loader.loaded()).bundle
        found: dict[str, tuple[SessionRow, float]] = {}
        async with aclosing(reports(transport, bundle, {"command": "watch"})) as answer:
            async for report in answer:
                self.heard_at = time.monotonic()
                if report.kind == "session":
                    row = row_of(SessionRow, report.body, transport.name)
                    found[row.session] = row, self.heard_at
                    check_number(found, transport.name)
                elif report.kind == "gone":
                    found.pop(row_of(GoneRow, report.body, transport.name).session, None)
                elif report.kind == "listed":
                    self.rows, self.problem, self.needs_person, self.up = dict(found), "", False, True
                    self._tell()


class Dash:
    """The hosts and their rows. `changes` tells of each change; `costs` are those of the laptop's own ledger."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.hosts: list[HostWatch] = []
        self.costs: Mapping[str, float] = {}
        self.sought = ""
        self.marked: tuple[str, str] | None = None
        self.said = ""  # what came of the last thing that was done
        self._asking: set[tuple[str, str]] = set()
        self._known: set[str] = set()  # the hosts that have answered before
        self._environ = environ
        self._news = asyncio.Event()
        self._costs_at = -_COST_S

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch the hosts until the context ends."""
        logins = asyncio.Semaphore(_LOGINS)
        tasks = [asyncio.create_task(each.run(logins), name=f"watch {each.name}") for each in self.hosts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def changed(self) -> None:
        self._news.set()

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield at once, and then after each change of the rows. One reader at a time."""
        while True:
            await self._read_costs()
            yield
            await self._news.wait()
            await asyncio.sleep(_SETTLE_S)
            self._news.clear()

    def rows(self) -> list[DashRow]:
        return sorted(self._each(), key=lambda row: row.rank)

    def newly_asking(self) -> bool:
        """Return whether a session asks that did not before, on a host that had answered by then."""
        asking = {row.key for row in self._each() if row.asks}
        new = any(key[0] in self._known for key in asking - self._asking)
        self._asking, self._known = asking, {each.name for each in self.hosts if each.up} | self._known
        return new

    def _each(self) -> Iterator[DashRow]:
        for host in self.hosts:
            for session, (row, heard_at) in host.rows.items():
                if row.alive or row.prompts or row.prompt.raw:
                    yield DashRow(host, row, heard_at, self.costs.get(session, 0.0))

    async def _read_costs(self) -> None:
        now = time.monotonic()
        if now - self._costs_at < _COST_S:
            return
        self._costs_at = now
        none: list[UsageSum] = []
        try:
            sums = await in_thread(lambda: read_ledger(ledger_folder(self._environ), _sums, none))
        except CcbError:  # the costs are an extra here: `ccb usage` tells what is wrong
            return
        self.costs = {each.group: each.usd for each in sums}


@asynccontextmanager
async def watching(hosts: Mapping[str, Arguments], prompts: Prompts, environ: Mapping[str, str]) -> AsyncIterator[Dash]:
    """Watch the hosts, each over a connection of its own. Nobody is asked anything."""
    dash, load = Dash(environ), _loaded_once()
    async with AsyncExitStack() as stack:
        for name, arguments in hosts.items():
            connection = await stack.enter_async_context(HostConnection(arguments, prompts, environ, shared=load))
            dash.hosts.append(HostWatch(name, arguments, connection, dash.changed))
        async with dash.watched():
            yield dash


def _sums(ledger: CallLedger) -> list[UsageSum]:
    return ledger.sums("session")


def _loaded_once() -> Callable[[Mapping[str, str], SettingsChoice], LoadedBasics]:
    """Return a loader that reads settings and bundle once for all hosts."""
    kept: list[LoadedBasics] = []
    lock = Lock()

    def load(environ: Mapping[str, str], choice: SettingsChoice) -> LoadedBasics:
        with lock:
            if not kept:
                basics = load_dialing_startup(environ, choice)
                commands = basics.bundle.commands
                bundle = replace(basics.bundle, commands=cache(commands) if commands is not None else None)
                kept.append(replace(basics, bundle=bundle))
            return kept[0]

    return load


def as_json(row: DashRow, now: float) -> dict[str, object]:
    """Return a row for scripts. `stale_s`: seconds since the host last answered, null while it does."""
    session = row.session
    return {
        "host": row.host.name,
        "session": session.session,
        "title": session.prompt.raw,
        "state": session.state,
        "last": session.last.raw,
        "cwd": session.cwd.raw,
        "age_s": round(session.age_s + now - row.heard_at, 1),
        "idle_s": round(row.idle_s(now), 1),
        "usd": round(row.usd, 6),
        "driver": session.driver.raw,
        "driver_away": session.driver_away,
        "viewers": session.viewers,
        "stale_s": None if row.host.up else round(now - row.host.heard_at, 1),
    }
