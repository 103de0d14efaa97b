"""The permission modes, the sandbox modes, and which cage a session may use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import CageRules, acts_later_at, holds_home, read_only_rules, workspace_rules
from ..sandbox.cage_server import Availability
from ..sandbox.outliving import read_regular
from ..session_store.session_registry import worker_directories
from ..system.host import is_under
from ..system.owners import is_ours, repository_top
from .paths import protection

DEFAULT, ACCEPT_EDITS, PLAN, BYPASS = "default", "acceptEdits", "plan", "bypassPermissions"
DONT_ASK = "dontAsk"
MODES = (ACCEPT_EDITS, BYPASS, DEFAULT, DONT_ASK, PLAN)
_BY_FREEDOM = (PLAN, DONT_ASK, DEFAULT, ACCEPT_EDITS, BYPASS)


class Trust(Enum):
    """How far the reading of a line is trusted: which commands can be let through because they only read."""

    ANY = "any: a cage stands behind the judgement"
    LITERAL_COMMANDS = "commands of literal words: other commands of the line are allowed to run without a cage"
    LITERAL_LINES = "commands of lines that have only literal words: this host has no cage"


class ModeError(ValueError):
    """The mode cannot be chosen. `code` says why, as in the public protocol."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def stricter(one: str, other: str) -> str:
    """Return the mode that lets less happen without a question. An unknown one is the strictest."""
    return min(one, other, key=lambda mode: _BY_FREEDOM.index(mode) if mode in _BY_FREEDOM else -1)


def check_mode(mode: str, allow_bypass: bool, is_root: bool) -> None:
    if mode not in MODES:
        raise ModeError("invalid_mode", f"Cannot set permission mode: must be one of {', '.join(MODES)}")
    if mode == BYPASS and not allow_bypass:
        why = "because the session was not launched with --dangerously-skip-permissions"
        raise ModeError("bypass_not_launched", f"Cannot set permission mode to bypassPermissions {why}")
    if mode == BYPASS and is_root:
        why = "cannot be used with root/sudo privileges for security reasons"
        do = "(set IS_SANDBOX=1 on the host if it is a throw-away machine)"
        raise ModeError("bypass_as_root", f"--dangerously-skip-permissions {why} {do}")


_MAX_BYTES = 4096
_MAX_CONFIGURATION = 256 << 10
_NAMES_A_FILE = re.compile(r'^[ \t]*(?:path|excludesfile|attributesfile)[ \t]*=[ \t]*"?([^"#;\n]+)', re.I | re.M)


def repository_around(directory: str, home: str) -> list[str]:
    """Return what git reads outside of a session's directory: the repository that the directory is a part of, a linked
    worktree or a submodule. The repository itself must confirm it: files in the directory may be anybody's."""
    real = os.path.realpath(directory)
    top = repository_top(real)
    if not top:
        return []
    marker = os.path.join(top, ".git")
    found = [] if top == real else [marker if is_under(os.path.realpath(home), top) else top]
    if os.path.isfile(marker):
        found += _linked(marker, real)
    return found


def _named_in(paths: Iterable[str], home: str) -> list[str]:
    found = []
    for path in paths:
        for name in _NAMES_A_FILE.findall(_text(path, _MAX_CONFIGURATION)):
            name = name.strip()
            named = home + name[1:] if name.startswith("~/") else os.path.join(os.path.dirname(path), name)
            if "\0" not in named and os.path.isfile(named):
                found.append(os.path.realpath(named))
    return found


def _linked(marker: str, session: str) -> list[str]:
    """Return the repository that a `.git` file names outside of the session's directory, if it is this user's own and
    git made it for this file: nobody who can only write in the session's directory can fake that."""
    named = _text(marker, _MAX_BYTES).partition("\n")[0]
    if not named.startswith("gitdir: ") or "\0" in named:
        return []
    inner = os.path.realpath(os.path.join(os.path.dirname(marker), named[len("gitdir: ") :]))
    if is_under(inner, session) or not is_ours(inner):
        return []
    common = os.path.dirname(os.path.dirname(inner))
    if os.path.basename(os.path.dirname(inner)) == "worktrees" and os.path.basename(common) == ".git":
        leads_back_to = _text(os.path.join(inner, "gitdir"), _MAX_BYTES).partition("\n")[0]
        confirmed = os.path.realpath(leads_back_to) == os.path.realpath(marker)
        return [common] if confirmed and is_ours(common) else []
    outer = repository_top(os.path.dirname(os.path.dirname(marker)))
    modules = os.path.realpath(os.path.join(outer, ".git", "modules")) if outer else ""
    return [inner] if modules and is_under(inner, modules) and not is_under(outer, session) else []


def _text(path: str, most: int) -> str:
    try:
        return os.fsdecode(read_regular(path, most))
    except OSError:
        return ""


READ_ONLY, WORKSPACE, OFF = "read-only", "workspace", "off"
SANDBOX_MODES = (READ_ONLY, WORKSPACE, OFF)
NO_CAGE = "no cage"


class SandboxError(ValueError):
    """The host cannot make the cage: `why`, and whether that is a directory of the session."""

    def __init__(self, text: str, why: str = "", *, about_place: bool = False) -> None:
        super().__init__(text)
        self.why = why
        self.about_place = about_place


@dataclass(frozen=True)
class Cages:
    """Makes the rules of cages on this host. `probe` says what the kernel can do, and keeps its answer."""

    probe: Callable[[], Availability]
    environ: dict[str, str]
    home: str

    def read_only(self, directories: Sequence[str], readable: Sequence[str] = ()) -> CageRules | None:
        """Return the cage for commands that only read in `directories`, in their repository and in `readable`."""
        if not self.probe().mechanism:
            return None
        rules = read_only_rules(directories, self.environ, self.home)
        return replace(rules, read=(*rules.read, *self._read_by_git(directories), *readable))

    def workspace(self, directories: Sequence[str], network: bool) -> CageRules | None:
        """Return the cage for commands that may change `directories`; None if one of them is no workspace."""
        if not self.probe().workspace or self.why_no_workspace(directories):
            return None
        rules = workspace_rules(directories, self.environ, self.home, network=network)
        # a session may work in a /tmp that holds such a place, from where the next worker runs code outside of any cage
        workers = filter(os.path.isdir, map(os.path.realpath, map(os.path.dirname, worker_directories())))
        protected = tuple(real for real in workers if any(is_under(real, top) for top in rules.write))
        return replace(rules, read=(*rules.read, *self._read_by_git(directories)), protected=protected)

    def _read_by_git(self, directories: Sequence[str]) -> list[str]:
        own = [os.path.join(self.home, ".gitconfig"), os.path.join(self.home, ".config", "git", "config")]
        included = _named_in(own, self.home)
        return [*repository_around(directories[0], self.home), *included, *_named_in(included, self.home)]

    def why_no_workspace(self, directories: Sequence[str]) -> str:
        """Return why one of the directories can be changed by no command without a question, or ""."""
        if holds_home(directories, self.home):
            return "the session's directories hold a home directory, and too much in it acts outside of a cage later"
        for directory in map(os.path.realpath, directories):
            why = protection(directory, self.home) or acts_later_at(directory, self.environ, self.home)
            if why:
                return f"nothing in {directory} is changed without a question: {why}"
        return ""


@dataclass(frozen=True)
class Sandbox:
    """What the session wants. Where the host has lost the workspace cage, it goes on in the read-only cage. `program`
    is the agent of others that works in the session: it is caged as a whole, or not at all. The policy of the laptop
    wants the cage `least`, whatever is `asked` for."""

    cages: Cages
    asked: str = READ_ONLY
    allow_net: bool = False
    program: str = ""
    least: str = OFF

    @property
    def mode(self) -> str:
        return max(self.asked, self.least, key=(OFF, WORKSPACE, READ_ONLY).index)

    def check(self, directories: Sequence[str]) -> None:
        """Raise SandboxError if the mode does not exist, or if the host cannot make its cage for these directories."""
        if self.asked not in SANDBOX_MODES:
            raise SandboxError(f"the sandbox must be one of {', '.join(SANDBOX_MODES)}")
        if self.mode == WORKSPACE and not self.cages.probe().workspace:
            raise SandboxError("this host cannot make the cage of --sandbox workspace", self.cages.probe().why)
        if self.mode == WORKSPACE and (why := self.cages.why_no_workspace(directories)):
            raise SandboxError("ccb cannot make the cage of --sandbox workspace here", why, about_place=True)

    def opens_workspace(self, directories: Sequence[str]) -> bool:
        """Return whether calls that stay in the workspace need no question."""
        wanted = self.mode == WORKSPACE and self.cages.probe().workspace
        return wanted and not self.cages.why_no_workspace(directories)

    @property
    def trust_without_cage(self) -> Trust:
        """How far the reading of a line that would run without a cage is trusted."""
        if self.mode == OFF:
            return Trust.ANY
        return Trust.LITERAL_COMMANDS if self.cages.probe().mechanism else Trust.LITERAL_LINES

    def workspace_cage(self, directories: Sequence[str]) -> CageRules | None:
        return self.cages.workspace(directories, self.allow_net) if self.mode == WORKSPACE else None

    def in_force(self, directories: Sequence[str]) -> str:
        """Return in words which cage holds the commands that run without a question."""
        if self.opens_workspace(directories):
            return "workspace cage with network" if self.allow_net else "workspace cage"
        if self.mode == OFF:
            return f"{NO_CAGE}: the sandbox is off"
        if self.program:
            return f"{NO_CAGE}: {self.program} holds to its own rules"
        available = self.cages.probe()
        return "read-only cage" if available.mechanism else f"{NO_CAGE}: {available.why}"


def cage_text(cage: CageRules | None) -> str:
    if cage is None:
        return NO_CAGE
    return f"{cage.kind.value} cage with network" if cage.network else f"{cage.kind.value} cage"
