"""The driver of the terminal under the interface, which survives a closed window.

Textual writes from a thread through a short queue. A write to a closed window raises an error, which ends the thread.
The queue then fills, and the event loop waits for ever for room in it, so that no signal could end the program.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

from textual import events
from textual._parser import ParseError, Read1
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from ..command_line.exit_codes import ExitCode
from ..terminal.asking.answers import AnswerFilter, AnswerKind, TerminalAnswer
from ..terminal.asking.background import QUESTION, is_light
from ..terminal.asking.graphics import CELL_ASKED
from .painting.key_priority import KeyPriority

_INPUT_S = 0.1
_ESCAPE_S = 0.025
"""Seconds after which Esc is the key and not the beginning of another one, whose characters come together. Textual's
tenth of a second could be felt. ESCDELAY, in milliseconds, is another time, as in other programs."""

_INPUT_BYTES = 4096
_ANSWERS_S = 3.0
"""Seconds after a question in which Esc alone may be the first character of an answer, and is kept back a little."""


class _SoonRead(Read1):
    """Waits _ESCAPE_S for a character where Textual waits ESCDELAY."""

    def __new__(cls, timeout: float | None = None) -> _SoonRead:
        return super().__new__(cls, timeout if timeout is None or "ESCDELAY" in os.environ else _ESCAPE_S)


class _InputParser(XTermParser):
    read1 = _SoonRead


class _ClosableFile:
    """The part of a text file that Textual needs. A closed window calls `on_close`; later writes are lost."""

    def __init__(self, file: TextIO, on_close: Callable[[], None]) -> None:
        self._file = file
        self._on_close = on_close
        self._is_closed = False

    def write(self, text: str) -> None:
        if not self._is_closed:
            try:
                self._file.write(text)
            except OSError:
                self._close()

    def flush(self) -> None:
        if not self._is_closed:
            try:
                self._file.flush()
            except OSError:
                self._close()

    def fileno(self) -> int:
        return self._file.fileno()

    def _close(self) -> None:
        self._is_closed = True
        self._on_close()


class TerminalDriver(LinuxDriver):
    """The driver of a real terminal. A window that closes ends the app, even if no signal says so."""

    class BackgroundReport(Message):
        """The terminal has said whether its background is light."""

        def __init__(self, *, light: bool) -> None:
            super().__init__()
            self.light = light

    class Answered(Message):
        """The terminal has answered another question."""

        def __init__(self, answer: TerminalAnswer) -> None:
            super().__init__()
            self.answer = answer

    class Resumed(Message):
        """The screen is ours again, after another program had it."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._answers = AnswerFilter()
        self._asked_at = -_ANSWERS_S
        self.keys_first = KeyPriority()
        self.translate: Callable[[str], str] | None = None
        """Makes of the cells of images what the terminal shows."""
        self.last_words: Callable[[], str] | None = None
        """Returns what the terminal gets before the screen is another program's."""
        self._is_shown = False
        self._file: Any = _ClosableFile(self._file, self._window_closed)

    def ask_background(self) -> None:
        """Ask the terminal for its background. `BackgroundReport` follows if it answers."""
        self.ask(QUESTION)

    def ask_cell(self) -> None:
        """Ask the terminal for the size of a character."""
        self.ask(CELL_ASKED)

    def ask(self, questions: str) -> None:
        """Ask the terminal. `BackgroundReport` and `Answered` follow if it answers."""
        if self.input_tty:
            self._asked_at = time.monotonic()
            self.write(questions)

    def write(self, data: str) -> None:
        super().write(self.translate(data) if self.translate is not None else data)

    def write_if_shown(self, data: str) -> None:
        """Write what only makes sense on the screen of the interface. It is lost while another program has it."""
        if self._is_shown:
            self.write(data)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call] # of Textual
        self._is_shown = True

    def resume_application_mode(self) -> None:
        super().resume_application_mode()
        self._soon(partial(self._app.post_message, self.Resumed()))

    def stop_application_mode(self) -> None:
        if self._is_shown and self.last_words is not None:
            self.write(self.last_words())
        self._is_shown = False
        super().stop_application_mode()

    def run_input_thread(self) -> None:
        try:
            self._read_input()
        except OSError:
            self._window_closed()

    def _read_input(self) -> None:
        """Turn what the terminal sends into messages. Textual's own loop would take answers to `ask_background` for
        keys."""
        parser = _InputParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.fileno, selectors.EVENT_READ)
                while not self.exit_event.is_set():
                    if selector.select(_INPUT_S if parser._timeout_time is None else _ESCAPE_S):
                        data = os.read(self.fileno, _INPUT_BYTES)
                        if not data:
                            self.exit_event.wait(_INPUT_S)  # the window is closed, which SIGHUP tells
                            continue
                        self._answers.expects = time.monotonic() - self._asked_at < _ANSWERS_S
                        typed, answers = self._answers.feed(decode(data))
                        for answer in answers:
                            self._take(answer)
                    else:
                        typed = self._answers.nothing_came()
                    for event in (*(parser.feed(typed) if typed else ()), *parser.tick()):
                        if isinstance(event, events.Key | events.Paste):
                            self.keys_first.came()
                        self.process_message(event)
        finally:
            with suppress(EOFError, ParseError):
                for _ in parser.feed(""):
                    pass

    def _take(self, answer: TerminalAnswer) -> None:
        """Tell the application what the terminal has answered."""
        if answer.kind is not AnswerKind.BACKGROUND:
            self.process_message(self.Answered(answer))
        elif (light := is_light(answer.text)) is not None:
            self.process_message(self.BackgroundReport(light=light))

    # The signal handlers only wake the event loop. They may run while a write holds a lock that they need themselves.

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(self.suspend_process)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._continued)

    def _soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(action)

    def suspend_process(self) -> bool:
        """Stop the process group as Ctrl+Z stops any program, and return when it goes on in the foreground. The
        terminal is the shell's meanwhile. Return False if there is no shell that could continue it."""
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
        """Continue after SIGSTOP, which a program cannot prepare for: undo the changes of the shell to screen and
        terminal. Without leaving application mode first there would be two readers of the keys, and a raw terminal at
        the end."""
        if self._auto_restart:
            self.suspend_application_mode()
            self._take_terminal()

    def _take_terminal(self) -> None:
        """Draw the interface anew. In the background this waits, stopped, until the shell gives the terminal back."""
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
