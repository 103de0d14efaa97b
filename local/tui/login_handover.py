"""Hand the terminal to a login that asks a question, and take it back."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from textual.app import App

if TYPE_CHECKING:
    from ..login.prompts import TerminalPrompts


class _AppHasEnded(Exception):
    """The app ended while it was suspended, so it must not come back."""


class LoginHandover:
    """Gives the terminal to a login that asks a question, and takes it back.

    What the person types into the composer must not become a password: `typed_at` says when a key was last pressed
    there. A question that comes after it waits until the person agrees, for which `asks` asks. `headline` returns the
    line above the questions. `says` shows text that is not a question. `active`: a login has the terminal now.
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
        prompts.pause, prompts.heard = self.suspend, self._says
        try:
            yield
        finally:
            prompts.pause = prompts.heard = None

    @asynccontextmanager
    async def suspend(self) -> AsyncIterator[None]:
        """Suspend the interface. It draws nothing until it resumes, which it does unless the person has left."""
        while self._typed_at() > self._agreed_at:
            self._agreed.clear()
            self._waits = True
            self._asks()
            await self._agreed.wait()
        self.active = True
        try:
            with _suspended(self._app, self._headline()):
                yield
        finally:
            self.active = False


@contextmanager
def _suspended(app: App[Any], why: str) -> Iterator[None]:
    failure: BaseException | None = None
    try:
        with app.batch_update(), app.suspend():
            if why:
                sys.stderr.write(f"{why}\n")
                sys.stderr.flush()
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below, once the terminal is back
                failure = error
            if app.return_value is not None:
                raise _AppHasEnded
    except _AppHasEnded:
        pass
    if failure is not None:
        raise failure
