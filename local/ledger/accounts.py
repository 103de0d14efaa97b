"""The accounts of one session: every model call goes into the ledger, and none starts over a budget.

A budget counts what the provider has reported, never what the worker says. While calls are under way, each reserves
what it may cost at most; near the end of a budget they therefore run one after the other.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ccb.tunnel.errors import CcbError, ConfigError, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.proxy.guards.costs import ANSWERED
from ccb.tunnel.proxy.guards.refusal import Refusal
from ccb.tunnel.proxy.metering import CallReport
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.models import ALIASES, facts

from .dollars import dollars
from .entries import CallPlace, Spent

if TYPE_CHECKING:
    from ..config.settings import Settings
    from .store import CallLedger

log = logging.getLogger(__name__)

BUDGET_KIND = "laptop_budget"
"""The error type of a call that is refused because a budget is used up."""

_TELLS_AT = 0.8  # of a budget
_SOFT_USD = 5.0  # of this run, told to a person who has set no budget in dollars
_BYTES_PER_TOKEN = 3
_MOST_OUTPUT = 64_000
_NO_RETRY = {"x-should-retry": "false"}


@dataclass(frozen=True)
class Budgets:
    """What may be spent, None for no limit: by this run, by its session, and since midnight by all sessions of this
    machine and by those of one host. Dollars, or tokens of all kinds."""

    run_usd: float | None = None
    session_usd: float | None = None
    day_usd: float | None = None
    day_tokens: int | None = None
    session_tokens: int | None = None
    host_usd: float | None = None
    host_tokens: int | None = None

    @property
    def in_dollars(self) -> bool:
        """Whether a budget is in dollars, which needs the prices of models."""
        return any(each is not None for each in (self.run_usd, self.session_usd, self.day_usd, self.host_usd))

    def __bool__(self) -> bool:
        in_tokens = any(each is not None for each in (self.day_tokens, self.session_tokens, self.host_tokens))
        return self.in_dollars or in_tokens


def budgets(run_usd: float | None, settings: Settings, host: str) -> Budgets:
    """Return what a run on `host` may spend: `run_usd` is the value of --max-budget-usd."""
    own = settings.budgets
    there = own.of_host(host)
    return Budgets(run_usd, own.sessionUsd, own.dayUsd, own.dayTokens, own.sessionTokens, there.dayUsd, there.dayTokens)


@dataclass(frozen=True)
class _Limit:
    name: str
    spent: float
    limit: float
    dollars: bool = True

    def text(self, value: float) -> str:
        return dollars(value) if self.dollars else f"{value:,.0f} tokens"


class SessionAccounts:
    """See `metering.Accounts`. Rows are written by a thread of its own, so that no answer waits for the disk. `state`
    is the directory for state. Use as a context manager: leaving it writes what is left.

    `warn` tells the person; `place` is what the calls are made for.
    """

    def __init__(self, state: Path, budgets: Budgets) -> None:
        self.place = CallPlace()
        self.warn: Callable[[str], None] = lambda text: None
        self._state = state
        self._budgets = budgets
        self._ledger: CallLedger | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._broken = ""
        self._here = 0.0  # dollars
        self._unwritten: list[CallReport] = []
        self._reserved = 0.0
        self._unpriced = ""
        self._told: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self._close)
        self._writer.shutdown()

    def check_model(self, name: str | None) -> None:
        """Raise UsageError if a budget in dollars cannot hold, because nobody knows what the model costs."""
        model = ALIASES.get(name or "default", name or "")
        if self._budgets.in_dollars and not facts(model).input_price:
            raise UsageError(
                f"the price of {one_line(model)} is not known, so a budget in dollars cannot hold",
                do="Choose a model whose price ccb knows, or leave the budget out.",
            )

    def check(self, size: int | None) -> float:
        """See Accounts."""
        if not self._budgets:
            return 0.0
        if self._broken:
            raise _refusal(f"the ledger of the laptop cannot be used, so no budget can hold: {self._broken}")
        if self._unpriced and self._budgets.in_dollars:
            raise _refusal(f"the price of {self._unpriced} is not known, so the budget in dollars cannot hold")
        reserve = _most(size)
        for each in self._limits():
            if each.spent >= each.limit:
                said = f"the budget of {each.name} is used up: {each.text(each.spent)} of {each.text(each.limit)}"
                self._tell(each.name + " over", f"No more model calls: {said}.")
                raise _refusal(said)
            if each.dollars and self._reserved and each.spent + self._reserved + reserve > each.limit:
                raise Refusal(
                    529,
                    f"the calls under way may use up the budget of {each.name}: this one waits for them",
                    kind="laptop_rate_limit",
                    headers={"retry-after": "1"},
                )
            if each.spent >= _TELLS_AT * each.limit:
                spent, limit = each.text(each.spent), each.text(each.limit)
                self._tell(each.name, f"{spent} of the budget of {each.name} ({limit}) are spent.")
        self._reserved += reserve
        return reserve

    def ended(self, report: CallReport, reserved: float) -> None:
        """See Accounts."""
        self._reserved = max(0.0, self._reserved - reserved)
        if report.path != ANSWERED:
            return
        self._here += report.cost_usd
        if self._here >= _SOFT_USD and not self._budgets.in_dollars:
            said = f"This session has cost {dollars(self._here)} since you connected, and nothing limits it."
            self._tell("soft", f"{said} `budgets` in the settings and --max-budget-usd do; ccb usage shows more.")
        if report.output_tokens and not facts(report.model).input_price:
            self._unpriced = one_line(report.model)
        self._unwritten.append(report)
        try:
            self._writer.submit(self._write)
        except RuntimeError:  # the interpreter ends
            log.warning("a model call is not in the ledger: the program ends")

    def _limits(self) -> Iterator[_Limit]:
        budgets = self._budgets
        if budgets.run_usd is not None:
            yield _Limit("this run", self._here, budgets.run_usd)
        here, midnight = self.place, _midnight()
        for name, usd, tokens, since, session, host in (
            ("the session", budgets.session_usd, budgets.session_tokens, 0.0, here.session, None),
            ("the day", budgets.day_usd, budgets.day_tokens, midnight, None, None),
            (f"{one_line(here.host)} for the day", budgets.host_usd, budgets.host_tokens, midnight, None, here.host),
        ):
            if usd is None and tokens is None:
                continue
            spent = self._spent(since, session, host)
            if usd is not None:
                yield _Limit(name, spent.usd, usd)
            if tokens is not None:
                yield _Limit(name, spent.tokens, tokens, dollars=False)

    def _spent(self, since: float, session: str | None, host: str | None) -> Spent:
        """Return what is in the ledger, once the rows of this session are. Raise Refusal if it cannot be read."""
        try:
            return self._writer.submit(self._written_and_spent, since, session, host).result()
        except CcbError as error:
            self._broken = error.what
            raise _refusal(f"the ledger of the laptop cannot be read, so no budget can hold: {error.what}") from error

    def _written_and_spent(self, since: float, session: str | None, host: str | None) -> Spent:
        self._write()
        if self._ledger is None:
            raise ConfigError(self._broken)
        return self._ledger.spent(since=since, session=session, host=host)

    def _write(self) -> None:
        """Append the calls that have ended. Runs in the thread of the writer."""
        import sqlite3

        from .store import open_ledger

        try:
            self._ledger = self._ledger or open_ledger(self._state)
            while self._unwritten:
                self._ledger.add(self.place, self._unwritten[0])
                del self._unwritten[0]
        except (CcbError, sqlite3.Error) as error:
            if not self._broken:
                log.warning("model calls are not in the ledger: %s", error)
            self._broken = one_line(str(error))

    def _close(self) -> None:
        if self._unwritten:
            self._write()
        if self._ledger is not None:
            self._ledger.close()

    def _tell(self, once: str, text: str) -> None:
        if once not in self._told:
            self._told.add(once)
            self.warn(text)


def _most(size: int | None) -> float:
    """Return what a call with a body of this size may cost at most, at the highest price that is known, in dollars."""
    dear = facts("claude-opus-4-1")
    return ((size or 0) / _BYTES_PER_TOKEN * 1.25 * dear.input_price + _MOST_OUTPUT * dear.output_price) / 1_000_000


def _midnight() -> float:
    return datetime.datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def _refusal(said: str) -> Refusal:
    return Refusal(403, said, kind=BUDGET_KIND, headers=_NO_RETRY)
