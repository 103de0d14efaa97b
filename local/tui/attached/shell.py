"""What a session on the screen uses of the application and the laptop around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.wire.dataclass import dataclass

from ..painting.key_priority import KeyPriority
from ..sessions.switching import Switching
from ..widgets.composer import Composer
from .leaving import Leaving

if TYPE_CHECKING:
    from ...connect.project_trust import ProjectDesk
    from ...connect.session_list import HostSessions
    from ...files.transfers import Transfers
    from ...files.viewing.fetched import FetchedFiles
    from ...mcp.service import LaptopServers
    from ...providers.model_choice import ModelChoice
    from ..attention import Attention


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


class ThemeChoice(Protocol):
    """The colours of the screen."""

    environ: Mapping[str, str]

    @property
    def names(self) -> Sequence[str]:
        """What the person may choose."""

    def choose(self, name: str) -> bool:
        """Use a theme, now and in later runs. Return whether the name is known. Raise ThemeRefused."""


class ReplShell(Protocol):
    """The parts of the application that are there before a session is."""

    theme: str
    composer: Composer
    leaving: Leaving
    switching: Switching
    attention: Attention
    keys_first: KeyPriority

    @property
    def appearance(self) -> ThemeChoice:
        """The colours, which the person may choose."""

    async def copied(self, text: str) -> str:
        """Copy a text. Return what happened to it, in words that follow "it was"."""

    def leave(self) -> None:
        """Leave the session, which keeps running on the host."""

    def ring(self, kind: str = "") -> None:
        """Ring the bell if another window has the focus, and run the person's hooks for a notification."""

    def retry(self) -> None:
        """Connect now, or answer what a login asks."""
