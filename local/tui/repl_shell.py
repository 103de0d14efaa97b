"""What a view may use of the app."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.exit_codes import ExitCode, code_of
from .composer.composer import Composer
from .session_switching import Switching
from .widgets.painting import KeyPriority

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions
    from ..connect.project_trust import ProjectDesk
    from ..files.copying import Transfers
    from ..files.fetched_files import FetchedFiles
    from ..mcp.mcp_service import LaptopServers
    from ..providers.known_models import ModelChoice
    from .appearance import Appearance
    from .attention import Attention


QUIT_WINDOW_S = 2.0
"""Seconds within which Ctrl+C has to be pressed again to quit."""


class SessionFate(Enum):
    """Whether the session goes on or how it ended, as far as this terminal knows."""

    OPEN = "open"
    STOPPING = "stopping"  # the person gave /stop
    STOPPED = "stopped"
    ENDED = "ended"  # it ended on the host, without a /stop from here
    LOST = "lost"


class LeaveState:
    """Keeps the fate of the session, and whether the person is about to quit."""

    def __init__(self) -> None:
        self.fate = SessionFate.OPEN
        self.error: CcbError | None = None  # why the session was lost
        self._quit_pressed_at = -QUIT_WINDOW_S

    @property
    def stopped(self) -> bool:
        """Whether the person has ended the session on the host."""
        return self.fate is SessionFate.STOPPED

    @property
    def exit_code(self) -> int:
        """The exit code to return if the person leaves now."""
        return code_of(self.error) if self.error is not None else ExitCode.OK

    def stop_requested(self) -> None:
        """Note that the person ends the session on the host."""
        self.fate = SessionFate.STOPPING

    def session_ended(self, error: CcbError | None) -> SessionFate:
        """Note that no more events will come; `error` is set if the session was lost. Return the session's fate."""
        if error is not None:
            self.fate, self.error = SessionFate.LOST, error
        else:
            self.fate = SessionFate.STOPPED if self.fate is SessionFate.STOPPING else SessionFate.ENDED
        return self.fate

    def quit_pressed(self, now: float) -> bool:
        """Note that the person pressed a quit key, at `now` in monotonic seconds. Return whether it was the second time
        within QUIT_WINDOW_S."""
        before, self._quit_pressed_at = self._quit_pressed_at, now
        return now - before <= QUIT_WINDOW_S


@dataclass(frozen=True)
class LaptopSide:
    """`projects` asks about the project on the screen, `mcp` are the MCP servers of this laptop, `sessions` are the
    sessions of the host, `transfers` copies files, `models` are those that the session may use, `fetched` are files to
    look at."""

    projects: ProjectDesk
    mcp: LaptopServers | None
    sessions: HostSessions
    transfers: Transfers | None = None
    models: ModelChoice | None = None
    fetched: FetchedFiles | None = None


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
