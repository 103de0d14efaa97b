"""Signals as events: of a run, where the first asks for an orderly end and the second ends at once, and of everything else."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Self

from ..command_line.exit_codes import ExitCode

_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HANGUP,
}


class Interrupts:
    """Use as a context in the main thread. Signals that were ignored when the program started stay ignored (nohup). After the
    `last` thing a program does nothing is left to interrupt: Ctrl+C is ignored from there on."""

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
            signal.pthread_sigmask(signal.SIG_BLOCK, [number])  # removing sets the default for a moment
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if self._last and number == signal.SIGINT else before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])

    def _note(self, code: ExitCode) -> None:
        for future in (self.first, self.second):
            if not future.done():
                future.set_result(code)
                return


async def ended_by_signals(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of `work`. SIGTERM and SIGHUP cancel it, as SIGINT does in any case, so that it gives back what it holds:
    the modes of the terminal, child processes, private directories. A second SIGTERM ends at once. In the main thread."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    came: list[ExitCode] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        if not came:
            came.append(_CODES[signal.Signals(number)])
            loop.call_soon_threadsafe(task.cancel)

    taken = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, before in taken.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        return await work
    except asyncio.CancelledError:
        if not came:
            raise
        with contextlib.suppress(OSError):  # the window may be closed
            sys.stderr.write(f"ccb: {'terminated' if came[0] is ExitCode.TERMINATED else 'hung up'}\n")
            sys.stderr.flush()
        return came[0]
    finally:
        for number, before in taken.items():
            signal.signal(number, before)
