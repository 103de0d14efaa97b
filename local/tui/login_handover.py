"""Hand the terminal to a login that asks a question, and take it back."""

from __future__ import annotations

import asyncio
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from textual.app import App

from ..terminal.console import guarded_streams, say

if TYPE_CHECKING:
    from ..terminal.terminal_prompts import TerminalPrompts


_STDIN = 0


class _AppHasEnded(Exception):
    """The app ended while it was suspended, so it must not come back."""


class LoginHandover:
    """Gives the terminal to a login that asks a question, and takes it back.

    What the person types into the composer must not become a password: `typed_at` says when a key was last pressed
    there. A question that comes after it waits until the person agrees, for which `asks` asks. Nor must a password go
    to the composer: the interface stays away until the first login is over, which `come_back` says. `headline` returns
    the line above the questions. `says` shows text that is not a question. `active`: a login has the terminal now.
    """

    def __init__(
        self,
        app: App[Any],
        *,
        headline: Callable[[], str],
        typed_at: Callable[[], float],
        asks: Callable[[], None],
        says: Callable[[str], None],
    ) -> None:
        self._app = app
        self._headline = headline
        self._typed_at = typed_at
        self._asks = asks
        self._says = says
        self._agreed_at = time.monotonic()
        self._agreed = asyncio.Event()
        self._waits = False
        self._first_login = True
        self._suspended = ExitStack()
        self.active = False

    def agree(self) -> bool:
        """The person wants to answer what a login asks. Return whether a question has waited for that."""
        self._agreed_at = time.monotonic()
        waited, self._waits = self._waits, False
        self._agreed.set()
        return waited

    @contextmanager
    def serving(self, prompts: TerminalPrompts) -> Iterator[None]:
        """Ask the questions of `prompts` on the plain terminal, as long as the interface is there."""
        prompts.pause, prompts.heard = self.suspend, self._heard
        try:
            yield
        finally:
            prompts.pause = prompts.heard = None

    def _heard(self, text: str) -> bool:
        """Show text of a login. Return False if the plain terminal does not show it."""
        if not self.active:
            self._says(text)
        return self.active

    @asynccontextmanager
    async def suspend(self) -> AsyncIterator[None]:
        """Suspend the interface. It draws nothing until it resumes, which it does unless the person has left."""
        while self._typed_at() > self._agreed_at and not self.active:
            self._agreed.clear()
            self._waits = True
            self._asks()
            await self._agreed.wait()
        if not self.active:
            self._suspended.enter_context(_suspended(self._app, self._headline()))
            self.active = True
        try:
            yield
        finally:
            if not self._first_login:
                self._resume()

    def come_back(self) -> None:
        """The first login is over: resume. From now on the interface resumes after each question."""
        self._first_login = False
        self._resume()

    def _resume(self) -> None:
        try:
            self._suspended.close()
        finally:
            self.active = False


@contextmanager
def _suspended(app: App[Any], why: str) -> Iterator[None]:
    try:
        with app.batch_update(), app.suspend(), guarded_streams():
            say(why)
            yield
            if app.return_value is not None:
                raise _AppHasEnded
            with suppress(OSError, termios.error):  # what is typed without a question is for nobody
                termios.tcflush(_STDIN, termios.TCIFLUSH)
    except _AppHasEnded:
        pass
