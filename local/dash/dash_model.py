"""The rows of all hosts: each host is asked once, and reports from then on what changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

from ccb.tunnel.errors import AuthFailed, CcbError, HostKeyError
from ccb.tunnel.reconnecting import Pace, waits
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..config.policy import ledger_folder
from ..connect.host_connection import HostConnection
from ..connect.session_rows import SessionRow, check_number, reports, row_of, with_prompts
from ..ledger.call_ledger import CallLedger, read_ledger
from ..terminal.stdio import in_thread

log = logging.getLogger(__name__)

ASKS, WORKS = "requires_action", "running"
_GROUPS = {ASKS: 0, WORKS: 1}
_HEAD_START_S = 0.5  # of the first host, so that its rows come soon
_LOGINS, _NEXT_S = 16, 0.1  # hosts that are logged in to at once, and seconds after which the next ones follow
_COST_S = 30.0  # seconds after which the ledger may be read again
NO_SESSION = SessionRow.model_construct(session="")
_SETTLE_S = 0.05  # seconds in which changes are collected before they are told


@dataclass(frozen=True)
class DashRow:
    """A session as its host has reported it `heard_at`, NO_SESSION for a host without one."""

    host: HostWatch
    session: SessionRow
    heard_at: float

    @property
    def key(self) -> tuple[str, str]:
        return self.host.name, self.session.session

    @property
    def is_host(self) -> bool:
        return self.session is NO_SESSION

    @property
    def asks(self) -> bool:
        return self.session.may_run and self.session.state == ASKS

    def idle_s(self, now: float) -> float:
        return self.session.idle_s + now - self.heard_at

    @property
    def rank(self) -> tuple[int, float]:
        """What waits for the person comes first, what has waited longest before; of the others, what was used last."""
        group = _GROUPS.get(self.session.state, 2 if self.session.may_run else 3)
        used = self.heard_at - self.session.idle_s
        return group, used if self.asks else -used


class HostWatch:
    """One host, over one connection that the sessions opened from here share. `problem` says why it does not answer;
    the rows are those of its last answer, at `heard_at`. `again` lets it connect now, if there is no connection."""

    def __init__(self, name: str, connection: HostConnection, changed: Callable[[], None]) -> None:
        self.name = name
        self.connection = connection
        self.rows: Mapping[str, DashRow] = {}
        self.problem = ""
        self.needs_person = False
        self.heard_at = 0.0
        self._changed = changed
        self.again = asyncio.Event()

    @property
    def up(self) -> bool:
        return bool(self.heard_at) and not self.problem

    async def run(self) -> None:
        """Watch until cancelled."""
        pace = Pace(waits)
        while True:
            try:
                transport = await self.connection.transport(ask=False)
                pace.connected()
                await self._listen(transport)
                self.problem = "the host has ended the answer"
            except CcbError as error:
                self.problem, self.needs_person = error.what, isinstance(error, AuthFailed | HostKeyError)
            except Exception as error:  # else the row would stay as it is, and nobody would know why
                log.exception("watching %s failed", self.name)
                self.problem, self.needs_person = f"watching it failed: {type(error).__name__}", False
            self._changed()
            self.again.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.needs_person else max(1.0, pace.next())):
                    await self.again.wait()

    async def _listen(self, transport: Transport) -> None:
        """Take the reports of the host until it ends them. Raises CcbError."""
        bundle = (await self.connection.loader.loaded()).bundle
        found: dict[str, DashRow] = {}
        async with aclosing(reports(transport, bundle, {"command": "watch"})) as answer:
            async for report in answer:
                now = time.monotonic()
                if report.kind == "listed":
                    self.rows, self.problem, self.needs_person, self.heard_at = dict(found), "", False, now
                    self._changed()
                elif report.kind in ("session", "gone"):
                    row = row_of(SessionRow, report.body, transport.name)
                    found[row.session] = DashRow(self, row, now)
                    check_number(found, transport.name)
                    if report.kind == "gone":
                        del found[row.session]


class Dash:
    """The hosts and their rows. `changes` tells of each change, which sets `news`; `costs` of sessions are those of the
    laptop's own ledger."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.hosts: list[HostWatch] = []
        self.costs: Mapping[str, float] = {}
        self.sought = ""
        self.marked: tuple[str, str] | None = None
        self.said = ""  # what came of the last thing that was done
        self._asking: set[tuple[str, str]] = set()
        self._known: set[str] = set()  # the hosts that have answered before
        self._environ = environ
        self.news = asyncio.Event()
        self._costs_at = -_COST_S

    async def watch(self, host: HostWatch, number: int) -> None:
        """Watch a host until cancelled. Logins take CPU on both ends, so that of the first host has a head start."""
        if number:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEAD_START_S):
                    await self.news.wait()
            await asyncio.sleep((1 + number // _LOGINS) * _NEXT_S)
        await host.run()

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield at once, and then after each change of the rows. One reader at a time."""
        while True:
            await self._read_costs()
            yield
            await self.news.wait()
            await asyncio.sleep(_SETTLE_S)
            self.news.clear()

    def rows(self) -> list[DashRow]:
        heard = [row for host in self.hosts for row in host.rows.values()]
        shown = [each for each in heard if each.session.may_run or with_prompts([each.session])]
        return sorted(shown, key=lambda row: row.rank)

    def newly_asking(self) -> bool:
        """Return whether a session asks that did not before, on a host that had answered by then."""
        asking = {row.key for row in self.rows() if row.asks}
        new = any(key[0] in self._known for key in asking - self._asking)
        self._asking, self._known = asking, {each.name for each in self.hosts if each.up} | self._known
        return new

    async def _read_costs(self) -> None:
        now = time.monotonic()
        if now - self._costs_at < _COST_S:
            return
        self._costs_at = now

        def read(ledger: CallLedger) -> Mapping[str, float]:
            return {each.group: each.usd for each in ledger.sums("session")}

        with suppress(CcbError):  # the costs are an extra here: `ccb usage` tells what is wrong
            self.costs = await in_thread(lambda: read_ledger(ledger_folder(self._environ), read, self.costs))


@asynccontextmanager
async def watching(hosts: Mapping[str, HostConnection], environ: Mapping[str, str]) -> AsyncIterator[Dash]:
    """Watch the hosts, each over its connection, until the context ends. Nobody is asked anything."""
    dash = Dash(environ)
    async with AsyncExitStack() as stack:
        for number, (name, connection) in enumerate(hosts.items()):
            host = HostWatch(name, await stack.enter_async_context(connection), dash.news.set)
            dash.hosts.append(host)
            watch = asyncio.create_task(dash.watch(host, number), name=f"watch {name}")
            stack.push_async_callback(cancelled, watch)
        yield dash


def as_json(row: DashRow, usd: float, now: float) -> dict[str, object]:
    """Return a row for scripts, as `ccb ps --json` has it. `stale_s`: seconds since the host last answered, null while
    it does."""
    host, age_s = row.host, round(row.session.age_s + now - row.heard_at, 1)
    times = {"age_s": age_s, "idle_s": round(row.idle_s(now), 1), "usd": round(usd, 6)}
    stale_s = None if host.up else round(now - host.heard_at, 1)
    return {**row.session.model_dump(), **times, "host": host.name, "stale_s": stale_s}
