"""The driver of the terminal under the interface, which survives a closed window.

Textual writes from a thread through a short queue. A write to a closed window would end the thread, and the event loop
would wait for ever for room in the queue.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

from textual import events
from textual.app import App
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from ..command_line.exit_codes import ExitCode
from ..terminal.input_machine import BACKGROUND_ASKED, ESCAPE_S, InputMachine, TerminalAnswer, colour_of
from .key_decoding import KeyDecoder
from .widgets.painting import KeyPriority

_INPUT_S = 0.1
_INPUT_BYTES = 4096
_ANSWERS_S = 3.0
"""Seconds after a question in which Esc alone may be the first character of an answer, and is kept back a little."""


class _ClosableFile:
    """The part of a text file that Textual needs. A closed window calls `on_close`; later writes are lost."""

    def __init__(self, file: TextIO, on_close: Callable[[], None]) -> None:
        self._file = file
        self._on_close = on_close
        self._is_closed = False

    def write(self, text: str) -> None:
        self._try(lambda: self._file.write(text))

    def flush(self) -> None:
        self._try(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _try(self, action: Callable[[], object]) -> None:
        if self._is_closed:
            return
        try:
            action()
        except OSError:
            self._is_closed = True
            self._on_close()


class TerminalDriver(LinuxDriver):
    """The driver of a real terminal. A window that closes ends the app, even if no signal says so."""

    class BackgroundReport(Message):
        """The terminal has said what its background is."""

        def __init__(self, colour: Color) -> None:
            super().__init__()
            self.colour = colour

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._asked_at = -_ANSWERS_S
        self.keys_first = KeyPriority()
        self._file: Any = _ClosableFile(self._file, self._window_closed)

    def ask_background(self) -> None:
        if self.input_tty:
            self._asked_at = time.monotonic()
            self.write(BACKGROUND_ASKED)

    def run_input_thread(self) -> None:
        try:
            self._read_input()
        except OSError:
            self._window_closed()
        except Exception as error:  # noqa: BLE001 - Textual's own handler would end ccb without a word
            self._soon(partial(self._app._handle_exception, error))

    def _read_input(self) -> None:
        machine, decoder = InputMachine(_escape_seconds()), KeyDecoder()
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                wait = _INPUT_S if machine.deadline is None else machine.deadline - time.monotonic()
                if not selector.select(min(max(wait, 0), _INPUT_S)):
                    tokens = machine.tick(time.monotonic())
                elif data := os.read(self.fileno, _INPUT_BYTES):
                    machine.expects = time.monotonic() - self._asked_at < _ANSWERS_S
                    tokens = machine.feed(data, time.monotonic())
                else:
                    self.exit_event.wait(_INPUT_S)  # the window is closed, which SIGHUP tells
                    continue
                for token in tokens:
                    if isinstance(token, TerminalAnswer):
                        if (colour := colour_of(token.text)) is not None:
                            self.process_message(self.BackgroundReport(Color(*colour)))
                        continue
                    for event in decoder.messages(token):
                        if isinstance(event, events.Key | events.Paste):
                            self.keys_first.came()
                        self.process_message(event)

    # The signal handlers only wake the event loop. They may run while a write holds a lock that they need themselves.

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(self.suspend_process)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._continued)

    def _soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(action)

    def suspend_process(self) -> bool:
        """Stop the process group as Ctrl+Z does, until it goes on. Return False if no shell could continue it."""
        if os.getsid(0) == os.getpgrp():
            return False
        shown = self._auto_restart
        if shown:
            self.suspend_application_mode()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        signal.signal(signal.SIGCONT, self._sigcont_application)
        if shown:
            self._take_terminal()
        return True

    def _continued(self) -> None:
        """Continue after SIGSTOP. Without leaving application mode first there would be two readers of the keys."""
        if self._auto_restart:
            self.suspend_application_mode()
            self._take_terminal()

    def _take_terminal(self) -> None:
        while True:
            try:
                termios.tcsetattr(self.fileno, termios.TCSANOW, termios.tcgetattr(self.fileno))
            except termios.error as error:
                if error.args[0] == errno.EINTR:
                    continue
            break
        self.resume_application_mode()
        self._app.refresh(layout=True)

    def _window_closed(self) -> None:
        self._soon(partial(self._app.exit, int(ExitCode.HANGUP)))


def _escape_seconds() -> float:
    """Return after how long Esc is the key: ESCDELAY says it in milliseconds, as for other programs."""
    try:
        return min(max(int(os.environ["ESCDELAY"]) / 1000, 0.001), 1.0)
    except (KeyError, ValueError):
        return ESCAPE_S
