"""The sandbox mode of a session, and the cages that its commands run in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.rules import CageRules, acts_later_at, holds_home, read_only_rules, workspace_rules
from ..sandbox.server import Availability, Mechanism
from ..sessions.registry import worker_directories
from ..system.host import is_under
from .modes import Trust
from .paths import protection
from .repositories import files_of_own_configuration, repository_around

READ_ONLY, WORKSPACE, OFF = "read-only", "workspace", "off"
SANDBOX_MODES = (READ_ONLY, WORKSPACE, OFF)

NO_CAGE = "no cage"


class SandboxError(ValueError):
    """The sandbox mode does not exist, or this host cannot make its cage. `why` is the reason that the host gives, and
    `about_place` whether it is one of the session's directories."""

    def __init__(self, text: str, why: str = "", *, about_place: bool = False) -> None:
        super().__init__(text)
        self.why = why
        self.about_place = about_place


@dataclass(frozen=True)
class Cages:
    """Makes the rules of cages on this host. `probe` says what the kernel can do; it is called at first use and keeps
    its answer. `environ` and `home` say where the tool chains of the login are."""

    probe: Callable[[], Availability]
    environ: dict[str, str]
    home: str

    def read_only(self, directories: Sequence[str], readable: Sequence[str] = ()) -> CageRules | None:
        """Return the cage for commands that only read in `directories`, in the repository around the first of them and
        below `readable`; None if this host has none."""
        if self.probe().mechanism is Mechanism.NONE:
            return None
        rules = read_only_rules(directories, self.environ, self.home)
        git = (*repository_around(directories[0], self.home), *files_of_own_configuration(self.home))
        return replace(rules, read=(*rules.read, *git, *readable))

    def workspace(self, directories: Sequence[str], network: bool) -> CageRules | None:
        """Return the cage for commands that may change `directories`, and read what git reads there; None if this host
        has none, or if one of them is no workspace."""
        if not self.probe().workspace or self.why_no_workspace(directories):
            return None
        rules = workspace_rules(directories, self.environ, self.home, network=network)
        git = (*repository_around(directories[0], self.home), *files_of_own_configuration(self.home))
        return replace(
            rules, read=(*rules.read, *git), protected=tuple(filter(os.path.isdir, _own_places(rules.write)))
        )

    def why_no_workspace(self, directories: Sequence[str]) -> str:
        """Return why one of the directories can be changed by no command without a question, "" if all can."""
        if holds_home(directories, self.home):
            return "the session's directories hold a home directory, and too much in it acts outside of a cage later"
        for directory in map(os.path.realpath, directories):
            why = protection(directory, self.home) or acts_later_at(directory, self.environ, self.home)
            if why:
                return f"nothing in {directory} is changed without a question: {why}"
        return ""


def _own_places(above: Sequence[str]) -> Iterator[str]:
    """Yield where ccb keeps its worker, below these directories: the next worker runs code from there, outside of any
    cage. A session may work in a /tmp or a cache that holds such a place."""
    for place in map(os.path.dirname, worker_directories()):
        real = os.path.realpath(place)
        if any(is_under(real, top) for top in above):
            yield real


@dataclass(frozen=True)
class Sandbox:
    """What the session wants (`mode`, `allow_net`), and the cages of its host. A session whose host has lost the
    workspace cage goes on in the read-only cage."""

    cages: Cages
    mode: str = READ_ONLY
    allow_net: bool = False

    def check(self, directories: Sequence[str]) -> None:
        """Raise SandboxError if the mode does not exist, or if the host cannot make its cage for these directories."""
        if self.mode not in SANDBOX_MODES:
            raise SandboxError(f"the sandbox must be one of {', '.join(SANDBOX_MODES)}")
        if self.mode == WORKSPACE and not self.cages.probe().workspace:
            raise SandboxError("this host cannot make the cage of --sandbox workspace", self.cages.probe().why)
        if self.mode == WORKSPACE and (why := self.cages.why_no_workspace(directories)):
            raise SandboxError("ccb cannot make the cage of --sandbox workspace here", why, about_place=True)

    def opens_workspace(self, directories: Sequence[str]) -> bool:
        """Return whether calls that stay in the workspace cage or write in the session's directories need no
        question."""
        wanted = self.mode == WORKSPACE and self.cages.probe().workspace
        return wanted and not self.cages.why_no_workspace(directories)

    def read_only_cage(self, directories: Sequence[str], readable: Sequence[str] = ()) -> CageRules | None:
        """Return the cage of a command that is let through as read-only; None if it would run without one."""
        return None if self.mode == OFF else self.cages.read_only(directories, readable)

    def edits_cage(self, directories: Sequence[str]) -> CageRules | None:
        """Return the cage of a command that only makes edits which are accepted; None if it would run without one."""
        return None if self.mode == OFF else self.cages.workspace(directories, network=False)

    @property
    def trust_without_cage(self) -> Trust:
        """How far the reading of a line that would run without a cage is trusted."""
        if self.mode == OFF:
            return Trust.ANY
        none = self.cages.probe().mechanism is Mechanism.NONE
        return Trust.LITERAL_LINES if none else Trust.LITERAL_COMMANDS

    def workspace_cage(self, directories: Sequence[str]) -> CageRules | None:
        """Return the cage of a command that runs without a question in workspace mode; None in other modes."""
        return self.cages.workspace(directories, self.allow_net) if self.mode == WORKSPACE else None

    def in_force(self, directories: Sequence[str]) -> str:
        """Return in words which cage holds the commands that run without a question in the session's directories."""
        if self.opens_workspace(directories):
            return "workspace cage with network" if self.allow_net else "workspace cage"
        if self.mode == OFF:
            return f"{NO_CAGE}: the sandbox is off"
        available = self.cages.probe()
        return f"{NO_CAGE}: {available.why}" if available.mechanism is Mechanism.NONE else "read-only cage"


def cage_text(cage: CageRules | None) -> str:
    """Return in words the cage in which one call runs."""
    if cage is None:
        return NO_CAGE
    return f"{cage.kind.value} cage with network" if cage.network else f"{cage.kind.value} cage"
