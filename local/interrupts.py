"""Signals of a headless run as events; the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import asyncio
import signal
from typing import Self

from .exit_codes import ExitCode

_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HANGUP,
}


class Interrupts:
    """Use as a context in the main thread. Signals that were ignored when the program started stay ignored (nohup)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[ExitCode] = self._loop.create_future()
        self.second: asyncio.Future[ExitCode] = self._loop.create_future()
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> Self:
        for number, code in _CODES.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._note, code)
                self._taken.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._taken:
            self._loop.remove_signal_handler(number)

    def _note(self, code: ExitCode) -> None:
        for future in (self.first, self.second):
            if not future.done():
                future.set_result(code)
                return
