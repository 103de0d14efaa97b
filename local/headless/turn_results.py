"""The results of a headless run: exactly one on stdout for each turn, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from ..command_line.exit_codes import ExitCode
from ..session.client import Json
from .output import HeadlessOutput
from .results import exit_code, local_result
from .stderr_reports import RetryReports


class PendingPrompts:
    """The prompts that wait for their result. Several prompts may share a turn."""

    def __init__(self) -> None:
        self.foreign_turn = False
        """Whether a turn is running that this run did not start."""
        self._waiting: dict[str, None] = {}
        self._seen: set[str] = set()
        self._in_turn: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def sent(self, input_id: str) -> None:
        """Note that a prompt was sent. A prompt whose id was sent before starts no turn."""
        if input_id not in self._seen:
            self._seen.add(input_id)
            self._waiting[input_id] = None

    def taken(self, input_ids: Iterable[str]) -> None:
        """Note the inputs that the turn has taken, as the journal names them."""
        self._in_turn.update(input_ids)

    def result_came(self) -> bool:
        """Note that a turn has ended. Return whether this run started it."""
        if self.foreign_turn and not self._in_turn:
            self.foreign_turn = False
            return False
        self.foreign_turn = False
        answered = [input_id for input_id in self._waiting if input_id in self._in_turn] or list(self._waiting)[:1]
        for input_id in answered:
            del self._waiting[input_id]
        self._in_turn.clear()
        return True


class TurnResults:
    """Prints results, and knows their exit code. `print_all`: print results of turns that this run did not start, too.
    `print_failures`: print a result even if the host could not send one."""

    def __init__(self, output: HeadlessOutput, retries: RetryReports, *, print_all: bool, print_failures: bool) -> None:
        self._output = output
        self._retries = retries
        self._print_all = print_all
        self._print_failures = print_failures
        self._started = time.monotonic()
        self._last: Json | None = None
        self._finished = False
        self.pending = PendingPrompts()
        self.printed = asyncio.Event()
        """Set when a result was printed."""
        self.denied_unasked = False
        """Whether the worker denied something because nobody could be asked."""

    @property
    def complete(self) -> bool:
        """Whether a result has come and no prompt waits for another."""
        return self._last is not None and not self.pending

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for the last result."""
        return ExitCode.OK if self._last is None else exit_code(self._last, denied_unasked=self.denied_unasked)

    async def from_host(self, result: Json) -> None:
        """Handle a result from the host."""
        if self.pending.result_came() or self._print_all:
            await self._print(result)

    async def fail(self, session_id: str, errors: list[str], *, reason: str) -> None:
        """Print a failed result for the turn that is open, or that never began. `reason` goes into
        `terminal_reason`."""
        if self._finished or self.complete or not self._print_failures:
            return
        duration = round((time.monotonic() - self._started) * 1000)
        self.pending.result_came()
        await self._print(local_result(session_id, errors, reason=reason, duration_ms=duration))

    async def finish(self) -> None:
        """Print what comes at the end. After that nothing is printed any more."""
        if not self._finished:
            self._finished = True
            await self._output.finish()

    async def _print(self, result: Json) -> None:
        self._last = result
        self._retries.turn_ended(result)
        await self._output.result(result)
        self.printed.set()
