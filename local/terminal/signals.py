"""Signals as events: in a headless run the first asks for an orderly end, the second ends the run at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

from ..command_line.exit_codes import ExitCode
from .console import say

T = TypeVar("T")

_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED, signal.SIGHUP: ExitCode.HANGUP}


class Interrupts:
    """The first two signals of a run as futures, but ignored ones (nohup). `last`: Ctrl+C is ignored afterwards."""

    def __init__(self, *, last: bool = False) -> None:
        self._last = last
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[ExitCode] = self._loop.create_future()
        self.second: asyncio.Future[ExitCode] = self._loop.create_future()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number, code in _CODES.items():
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._note, code)
                self._before[number] = before
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.pthread_sigmask(signal.SIG_BLOCK, [number])  # removing the handler sets the default for a moment
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if self._last and number == signal.SIGINT else before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])

    def _note(self, code: ExitCode) -> None:
        for future in (self.first, self.second):
            if not future.done():
                future.set_result(code)
                return


async def ended_by_signals(work: Coroutine[Any, Any, T]) -> T | ExitCode:
    """Return the exit code of `work`, which SIGTERM and SIGHUP cancel. For the main thread."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    received: list[ExitCode] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        if not received:
            received.append(_CODES[signal.Signals(number)])
            loop.call_soon_threadsafe(task.cancel)

    before_all = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, before in before_all.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        with contextlib.suppress(OSError):  # the window may be closed
            say(f"ccb: {'terminated' if received[0] is ExitCode.TERMINATED else 'hung up'}")
        return received[0]
    finally:
        for number, before in before_all.items():
            signal.signal(number, before)
