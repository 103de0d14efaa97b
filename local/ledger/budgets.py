"""The budgets of a session, by what providers report. Calls under way reserve in rows; who finds a dead ccb settles."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import astuple, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from ccb.tunnel.errors import CcbError, ConfigError, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.costs import ANSWERED, BilledRequest, MostCost, most_cost
from ccb.tunnel.proxy.metering import Accounts, CallReport, Reservation
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ALIASES, ModelTable

from ..command_line.arguments import FleetOptions
from ..command_line.transport_choice import shown_host
from .call_ledger import CallLedger, CallPlace, Spent, dollars, of_place, open_ledger

if TYPE_CHECKING:
    from ..config.settings import Settings

log = logging.getLogger(__name__)
Amount = TypeVar("Amount", int, float)
P = ParamSpec("P")
T = TypeVar("T")

BUDGET_KIND = "laptop_budget"  # the error type of a call that is refused because a budget is used up
_LOCAL_TIME = Path("/etc/localtime")
_TELLS_AT = 0.8  # of a budget
_SOFT_USD = 5.0  # of this run, told to a person who has set no budget in dollars
_WAITS_S, _LOOKS_EVERY_S = 60.0, 0.2  # how long a call waits for those under way, and how often it looks
_MAX_UNWRITTEN = 10_000


@dataclass(frozen=True)
class Budgets:
    """What may be spent, None for no limit: by this run, by its session, since midnight by this machine and on one
    host, and by the fleet of the session, in all and on one host. `strict`: no call may pass one, as far as its length
    and longest answer tell. `fleet` is the name of the fleet in the ledger."""

    run_usd: float | None = None
    session_usd: float | None = None
    day_usd: float | None = None
    host_usd: float | None = None
    fleet_usd: float | None = None
    fleet_host_usd: float | None = None
    session_tokens: int | None = None
    day_tokens: int | None = None
    host_tokens: int | None = None
    strict: bool = False
    fleet: str = ""

    @property
    def in_dollars(self) -> bool:
        return any(each is not None for each in astuple(self)[:6])

    @property
    def shared(self) -> bool:
        return any(each is not None for each in astuple(self)[1:-2])

    def __bool__(self) -> bool:
        return self.shared or self.run_usd is not None


def midnight() -> float:
    """Return when the day began. TZ does not count: with it, each hour could begin a new day."""
    from zoneinfo import ZoneInfo  # only a budget of a day needs it

    zone: tzinfo = UTC
    with suppress(OSError, ValueError), _LOCAL_TIME.open("rb") as file:
        zone = ZoneInfo.from_file(file)
    return datetime.now(zone).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def budgets(run_usd: float | None, settings: Settings, host: str, fleet: FleetOptions) -> Budgets:
    """Return what a run on `host` may spend: `run_usd` is the value of --max-budget-usd. Of the settings and the policy
    of this machine the smaller one counts. `fleet` is that of the session."""
    own, owners = settings.budgets, settings.policy.budgets
    there, owners_there = own.of_host(host), owners.of_host(host)
    return Budgets(
        run_usd,
        _least(own.sessionUsd, owners.sessionUsd),
        _least(own.dayUsd, owners.dayUsd),
        _least(there.dayUsd, owners_there.dayUsd),
        fleet.total_usd,
        fleet.host_usd,
        _least(own.sessionTokens, owners.sessionTokens),
        _least(own.dayTokens, owners.dayTokens),
        _least(there.dayTokens, owners_there.dayTokens),
        own.strict or owners.strict,
        fleet.account,
    )


def _least(one: Amount | None, other: Amount | None) -> Amount | None:
    return min((each for each in (one, other) if each is not None), default=None)


class _Limit(NamedTuple):
    name: str
    spent: float
    held: float
    most: float
    limit: float
    dollars: bool = True

    def text(self, value: float) -> str:
        return dollars(value) if self.dollars else f"{value:,.0f} tokens"


class _Verdict(NamedTuple):
    """The decision about a call: it goes out with its reservation `row`, `said` is why it is refused, or `waits` why it
    must wait for calls under way. `told` are warnings by name: the person gets each once."""

    row: int = 0
    said: str = ""
    waits: str = ""
    told: Sequence[tuple[str, str]] = ()

    @property
    def goes_out(self) -> bool:
        return not (self.said or self.waits)


class SessionAccounts(Accounts, AbstractAsyncContextManager["SessionAccounts"]):
    """Rows are written by a thread with the ledger: `shared`, or one of its own. `place` is what the calls are made
    for. Each call that has ended is told to `told`. Use as a context manager."""

    def __init__(
        self,
        state: Path,
        budgets: Budgets,
        models: ModelTable | None = None,
        warn: Callable[[str], None] = log.warning,
        shared: LedgerThread | None = None,
        told: Callable[[CallReport], None] = lambda _: None,
    ) -> None:
        self._models = models or ModelTable()
        self.place = CallPlace()
        self._warn = warn
        self._tell_call = told
        self._budgets = budgets
        self._thread = shared or LedgerThread(state)
        self._own = self._thread if shared is None else None
        self._broken = ""
        self._here = 0.0  # dollars
        self._unwritten: list[tuple[CallReport | None, int]] = []  # each with the row that was reserved for it
        self._reserved = 0.0  # dollars, for calls of this run
        self._unpriced = ""
        self._told: set[str] = set()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wrap_future(self._thread.submit(self._write))
        if self._own is not None:
            await self._own.aclose()

    def check_model(self, name: str | None) -> None:
        """Raise UsageError if a budget in dollars cannot hold, because nobody knows what the model costs."""
        model = ALIASES.get(name or "default", name or "")
        if self._budgets.in_dollars and not self._models.facts(model).priced:
            raise UsageError(
                f"the price of {model} is not known, so a budget in dollars cannot hold",
                do="Choose a model whose price ccb knows, or leave the budget out.",
            )

    async def reserve(self, request: BilledRequest) -> Reservation:
        """See Accounts. A call that might cross a budget together with those under way, in any ccb, waits for them."""
        if not self._budgets:
            return Reservation()
        most, loop = most_cost(self._models, request), asyncio.get_running_loop()
        until = loop.time() + _WAITS_S
        while True:
            verdict = self._verdict_here(most)
            if verdict.goes_out:
                self._reserved += most.usd
                with ExitStack() as held:
                    held.callback(self._let_go, most.usd)
                    verdict = await self._verdict_of_all(most)
                    if verdict.goes_out:
                        held.pop_all()
            for once, text in verdict.told:
                self._tell(once, text)
            if verdict.goes_out:
                return Reservation(most.usd, verdict.row)
            if verdict.said:
                raise Refusal(403, verdict.said, kind=BUDGET_KIND, headers={"x-should-retry": "false"})
            if loop.time() >= until:
                said = f"the calls under way may use up the budget of {verdict.waits}: this one waits for them"
                raise Refusal(529, said, kind="laptop_rate_limit", headers={"retry-after": "1"})
            await asyncio.sleep(_LOOKS_EVERY_S)

    def _let_go(self, usd: float) -> None:
        self._reserved = max(0.0, self._reserved - usd)

    def ended(self, report: CallReport, reserved: Reservation) -> None:
        """See Accounts. Of a complete answer that does not tell what it has used, what was reserved for it counts."""
        self._let_go(reserved.usd)
        if report.untold:
            report = replace(report, cost_usd=max(report.cost_usd, reserved.usd))
        self._tell_call(report)
        answered = report.path == ANSWERED
        if self._broken:
            self._tell("broken", f"Model calls are not in the ledger any more: {self._broken}")
        if answered:
            self._here += report.cost_usd
            if self._here >= _SOFT_USD and not self._budgets.in_dollars:
                said = f"This session has cost {dollars(self._here)} since you connected, and nothing limits it."
                self._tell("soft", f"{said} `budgets` in the settings and --max-budget-usd do; ccb usage shows more.")
            if (report.tokens.input or report.tokens.output) and not report.priced:
                self._unpriced = one_line(report.model)
        if answered or reserved.row:
            self._note(report if answered else None, reserved.row)

    def _note(self, report: CallReport | None, row: int) -> None:
        if len(self._unwritten) >= _MAX_UNWRITTEN:  # nothing can be written for long, and the person knows it
            return
        self._unwritten.append((report, row))
        try:
            self._thread.submit(self._write).add_done_callback(_log_failure)
        except RuntimeError:  # the interpreter ends
            log.warning("a model call is not in the ledger: the program ends")

    def _verdict_here(self, most: MostCost) -> _Verdict:
        if self._unpriced and self._budgets.in_dollars:
            return _Verdict(said=f"the price of {self._unpriced} is not known, so the budget in dollars cannot hold")
        if self._budgets.run_usd is None:
            return _Verdict()
        limit = _Limit("this run", self._here, self._reserved, most.usd, self._budgets.run_usd)
        return _judged([limit], strict=self._budgets.strict)

    async def _verdict_of_all(self, most: MostCost) -> _Verdict:
        """Decide by what all ccb have spent and reserved, and reserve. A cancelled call leaves nothing reserved."""
        if not self._budgets.shared:
            return _Verdict()
        deciding = self._thread.submit(self._reserve_or_not, most)
        try:
            return await asyncio.wrap_future(deciding)
        except asyncio.CancelledError:
            deciding.add_done_callback(self._give_back)
            raise

    def _give_back(self, deciding: Future[_Verdict]) -> None:
        if not deciding.cancelled() and deciding.result().row:
            self._note(None, deciding.result().row)

    def _reserve_or_not(self, most: MostCost) -> _Verdict:
        try:
            self._write()
            if self._broken:
                raise ConfigError(self._broken)
            books = self._thread.reservations()
            with books.ledger.transaction():
                verdict = _judged(list(self._limits(books, most)), strict=self._budgets.strict)
                if verdict.goes_out:
                    verdict = verdict._replace(row=books.add(self.place, most.usd, most.tokens))
                return verdict
        except (CcbError, sqlite3.Error, OSError) as error:
            self._broken = one_line(error.what if isinstance(error, CcbError) else str(error))
            return _Verdict(said=f"the ledger of the laptop cannot be read, so no budget can hold: {self._broken}")

    def _limits(self, books: Reservations, most: MostCost) -> Iterator[_Limit]:
        budgets, here = self._budgets, self.place
        today = midnight()
        on_host, fleet = shown_host(here.host), budgets.fleet
        for name, usd, tokens, since, of in (
            ("the session", budgets.session_usd, budgets.session_tokens, 0.0, {"session": here.session}),
            ("the day", budgets.day_usd, budgets.day_tokens, today, {}),
            (f"{on_host} for the day", budgets.host_usd, budgets.host_tokens, today, {"host": here.host}),
            ("the fleet", budgets.fleet_usd, None, 0.0, {"fleet": fleet}),
            (f"the fleet on {on_host}", budgets.fleet_host_usd, None, 0.0, {"fleet": fleet, "host": here.host}),
        ):
            if usd is None and tokens is None:
                continue
            spent, held = books.ledger.spent(since, **of), books.open(since, **of)
            if usd is not None:
                yield _Limit(name, spent.usd, held.usd, most.usd, usd)
            if tokens is not None:
                yield _Limit(name, spent.tokens, held.tokens, most.tokens, tokens, dollars=False)

    def _write(self) -> None:
        try:
            while self._unwritten:
                books, (report, row) = self._thread.reservations(), self._unwritten[0]
                with books.ledger.transaction():  # no other ccb sees a call without the settlement of its reservation
                    if report is not None:
                        books.ledger.add(self.place, report)
                    if row:
                        books.settle(row)
                del self._unwritten[0]
            self._broken = ""
        except (CcbError, sqlite3.Error, OSError) as error:
            if not self._broken:
                log.warning("model calls are not in the ledger: %s", error)
            self._broken = one_line(str(error))

    def _tell(self, once: str, text: str) -> None:
        if once not in self._told:
            self._told.add(once)
            self._warn(text)


def _judged(limits: Sequence[_Limit], *, strict: bool) -> _Verdict:
    """Decide about a call under these limits. Near one it waits; alone it may pass it, unless they are strict."""
    told: list[tuple[str, str]] = []
    for each in limits:
        if each.spent >= each.limit:
            said = f"the budget of {each.name} is used up: {each.text(each.spent)} of {each.text(each.limit)}"
            return _Verdict(said=said, told=((f"{each.name} over", f"No more model calls: {said}."),))
        if each.spent >= _TELLS_AT * each.limit:
            text = f"{each.text(each.spent)} of the budget of {each.name} ({each.text(each.limit)}) are spent."
            told.append((each.name, text))
    for each in limits:
        if strict and each.spent + each.most > each.limit:
            left = each.text(each.limit - each.spent)
            said = f"{left} of the budget of {each.name} are left, and this call may take {each.text(each.most)}"
            return _Verdict(said=said, told=((f"{each.name} over", f"No such model call: {said}."),))
        if each.held and each.spent + each.held + each.most > each.limit:
            text = f"A model call waits: those under way may use up the budget of {each.name}."
            return _Verdict(waits=each.name, told=(*told, (f"{each.name} waits", text)))
    return _Verdict(told=told)


def _log_failure(done: Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("the ledger failed on a call", exc_info=error)


class LedgerThread:
    """A thread that has the ledger open. The sessions of one process may share it: each for itself would need files and
    a thread, and wait for all others with every call. Close it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._books: Reservations | None = None

    def submit(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Raises RuntimeError when the interpreter ends."""
        return self._worker.submit(work, *arguments, **named)

    def reservations(self) -> Reservations:
        """For work in the thread. Raises ConfigError."""
        self._books = self._books or Reservations(open_ledger(self._state), self._state / "ledger.owners")
        return self._books

    async def aclose(self) -> None:
        await asyncio.wrap_future(self.submit(self._close))
        self._worker.shutdown()

    def _close(self) -> None:
        if self._books is not None:
            self._books.close()


_OLDEST_S = 24 * 3600.0  # seconds after which a reservation counts no more, whoever made it: no call lasts that long

# CROSS JOIN and + keep SQLite from looking through all reservations of the day.
_OPEN = "FROM open_reservations CROSS JOIN reservations USING (id) WHERE +at > :oldest"


class Reservations:
    """The reservations in an open ledger. Every method may raise sqlite3.Error and OSError. Use transactions."""

    def __init__(self, ledger: CallLedger, directory: Path) -> None:
        self.ledger = ledger
        self._directory = directory
        self._owner = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._lock: int | None = None

    def add(self, place: CallPlace, usd: float, tokens: int) -> int:
        if self._lock is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._directory / self._owner, flags, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._lock = lock
        insert = "INSERT INTO reservations (at, owner, session, host, usd, tokens) VALUES (?, ?, ?, ?, ?, ?)"
        self.ledger.run(insert, (time.time(), self._owner, place.session, place.host, usd, tokens))
        ((row,),) = self.ledger.run("SELECT last_insert_rowid()", ())
        return int(row)

    def settle(self, row: int) -> None:
        self.ledger.run("INSERT OR IGNORE INTO settlements VALUES (?, ?)", (row, time.time()))

    def open(self, since: float, **of: str) -> Spent:
        """Return what is set aside for the calls that began at `since` or later, as `CallLedger.spent` does."""
        values = {"now": time.time(), "oldest": time.time() - _OLDEST_S}
        for (owner,) in self._of_open("SELECT DISTINCT owner", values):
            if owner != self._owner and not self._lives(owner):
                gone = {**values, "owner": owner}
                self._of_open("INSERT INTO settlements SELECT id, :now", gone, "AND owner = :owner")
        wanted, where = {**values, **of, "since": since}, f"AND +at >= :since{of_place(of)}"
        ((usd, tokens),) = self._of_open("SELECT TOTAL(usd), SUM(tokens)", wanted, where)
        return Spent(float(usd), int(tokens or 0))

    def _of_open(self, what: str, values: Mapping[str, object], where: str = "") -> Sequence[tuple[Any, ...]]:
        return self.ledger.run(f"{what} {_OPEN} {where}", values)

    def close(self) -> None:
        if self._lock is not None:
            (self._directory / self._owner).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None
        self.ledger.close()

    def _lives(self, owner: str) -> bool:
        path = self._directory / owner
        try:
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        with suppress(FileNotFoundError):
            path.unlink()
        return False
