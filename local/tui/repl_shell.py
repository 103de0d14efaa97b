"""What a view may use of the app."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.errors import CcbError

from ..command_line.exit_codes import ExitCode
from .composer.composer import Composer
from .widgets.painting import KeyPriority

if TYPE_CHECKING:
    from ..slash_commands.session_api import NextSession
    from .appearance import Appearance
    from .attention import Attention


ONLY_WATCHES = "Nothing can be sent while this terminal only watches"
QUIT_WINDOW_S = 2.0  # seconds within which Ctrl+C has to be pressed again to quit


@dataclass
class LeaveState:
    """How the session ended. `stops`: the person gave /stop; `stopped`: that has ended it. `error`: why it was lost.
    `moves_to`: where the person takes it."""

    stops: bool = False
    stopped: bool = False
    error: CcbError | None = None
    moves_to: str = ""
    _quit_pressed_at: float = -QUIT_WINDOW_S

    @property
    def exit_code(self) -> int:
        return self.error.exit_code if self.error is not None else ExitCode.OK

    def quit_pressed(self, now: float) -> bool:
        """Note that the person pressed a quit key. Return whether it was the second time within QUIT_WINDOW_S."""
        before, self._quit_pressed_at = self._quit_pressed_at, now
        return now - before <= QUIT_WINDOW_S


class Switching:
    """Tells whoever holds the connection which session the person wants next, or that they have `left`."""

    def __init__(self) -> None:
        self.left = False
        self._next: NextSession | None = None
        self._wanted = asyncio.Event()

    def go_to(self, following: NextSession) -> None:
        self._next = following
        self._wanted.set()

    def leave(self) -> None:
        self.left = True
        self._wanted.set()

    async def wait(self) -> NextSession | None:
        """Return the next session, None once the person has left."""
        await self._wanted.wait()
        if self.left:
            return None
        self._wanted.clear()
        return self._next


class ReplShell(Protocol):
    """The parts of the application that are there before a session is."""

    theme: str
    composer: Composer
    leaving: LeaveState
    switching: Switching
    attention: Attention
    appearance: Appearance
    keys_first: KeyPriority

    async def copied(self, text: str) -> str:
        """Copy a text. Return what happened to it, in words that follow "it was"."""

    def leave(self) -> None:
        """Leave the session, which keeps running on the host."""

    def ring(self, kind: str = "") -> None:
        """Ring the bell if another window has the focus, and run the person's hooks for a notification."""

    def retry(self) -> None:
        """Connect now, or answer what a login asks."""

    def lend(self) -> AbstractAsyncContextManager[None]:
        """Lend the terminal to the questions of a command."""
