"""The terminal window that the interface draws on, also once it is gone.

Textual writes from a thread through a short queue. A write to a closed window raises, which ends the thread; the queue
fills, and the event loop waits for room in it for ever: no signal would end the program.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from ..command_line.exit_codes import ExitCode


class _Paper:
    """What Textual needs of a text file; what is written after the window closed is lost, and `closed` was called once."""

    def __init__(self, file: TextIO, closed: Callable[[], None]) -> None:
        self._file = file
        self._closed = closed
        self._gone = False

    def write(self, text: str) -> None:
        if not self._gone:
            try:
                self._file.write(text)
            except OSError:
                self._lost()

    def flush(self) -> None:
        if not self._gone:
            try:
                self._file.flush()
            except OSError:
                self._lost()

    def fileno(self) -> int:
        return self._file.fileno()

    def _lost(self) -> None:
        self._gone = True
        self._closed()


class Window(LinuxDriver):
    """The driver of a real terminal. A window that closes ends the app, whether or not a signal says so."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file: Any = _Paper(self._file, self._closed)

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            self._closed()

    def _sigcont_application(self, *_: object) -> None:
        """Going on after SIGSTOP, which nothing can prepare for: what a shell made of screen and terminal meanwhile is undone.
        Without leaving first there would be two readers of the keys, and a terminal left raw at the end."""
        stopped_unprepared = self._auto_restart and not self._must_signal_resume
        if stopped_unprepared:
            self.suspend_application_mode()
        super()._sigcont_application()
        if stopped_unprepared:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(partial(self._app.refresh, layout=True))

    def _closed(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._app.exit, int(ExitCode.HANGUP))
