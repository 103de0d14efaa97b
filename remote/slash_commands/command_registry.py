"""The slash commands of the worker: registered ones, then those of providers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Sequence
from itertools import chain
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

_CALL = re.compile(r"/([\w:.@?-]+)(?:\s+(.*))?\s*\Z", re.DOTALL)
MAX_COMMANDS = 1000


@dataclass(frozen=True)
class CommandCall:
    """One use of a command. `attached` are the blocks of the prompt besides its text. `shell` runs a command line under
    the permissions of Bash and the given rules, `delegate` a sub-agent under them; both raise CommandRefused. `read`
    returns the content of a file as Read would, None if it cannot be read."""

    name: str
    arguments: str = ""
    attached: Sequence[Json] = ()
    shell: Callable[[Sequence[str], str], Awaitable[str]] | None = None
    read: Callable[[str], Awaitable[str | None]] | None = None
    delegate: Callable[[Sequence[str], Json], Awaitable[str]] | None = None


class CommandRefused(Exception):
    """The command is not carried out; the text says why, for the person."""


@dataclass(frozen=True)
class Expanded:
    """The model gets `blocks` after the prompt. `allowed` rules and `model` (None: the session's) hold in the turn."""

    blocks: Sequence[Json]
    allowed: Sequence[str] = ()
    model: str | None = None


@dataclass(frozen=True)
class SlashCommand:
    """One command of a `source`: `builtin`, `user`, `project`, `skill`, `mcp`. What `run` returns as text is for the
    person, and the model learns nothing of it. `local`: the command never reaches the model."""

    name: str
    description: str
    run: Callable[[CommandCall], Awaitable[str | Expanded]]
    hint: str = ""
    source: str = "builtin"
    local: bool = False

    def public(self) -> Json:
        described = f"{self.description} ({self.source})" if self.source not in ("builtin", "") else self.description
        return {
            "name": self.name,
            "description": described,
            "argumentHint": self.hint,
            "builtin": self.source == "builtin",
        }


class CommandRegistry:
    """The commands of one session."""

    def __init__(self) -> None:
        self._registered: dict[str, SlashCommand] = {}
        self._providers: list[Callable[[], Iterable[SlashCommand]]] = []
        self._reserved: dict[str, SlashCommand] = {}

    def register(self, command: SlashCommand) -> None:
        """Add a built-in command. Raise ValueError if its name is taken."""
        if command.name in self._registered:
            raise ValueError(f"/{command.name} is registered already")
        self._registered[command.name] = command

    def reserve(self, command: SlashCommand) -> None:
        """Carry out `command` where no other has its name. It is in no list."""
        self._reserved[command.name] = command

    def provide(self, provider: Callable[[], Iterable[SlashCommand]]) -> None:
        """Ask `provider` for more commands whenever they are looked at."""
        self._providers.append(provider)

    @property
    def commands(self) -> Sequence[SlashCommand]:
        return sorted(self._all().values(), key=lambda each: each.name)

    def find(self, blocks: Sequence[Json]) -> tuple[SlashCommand, CommandCall] | None:
        """Return the command that a prompt calls, and the call; None for prompts such as `/etc/hosts is wrong`."""
        if not blocks or blocks[0].get("type") != "text":
            return None
        found = _CALL.match(str(blocks[0].get("text")).strip())
        command = self._all().get(found[1], self._reserved.get(found[1])) if found else None
        if found is None or command is None:
            return None
        return command, CommandCall(command.name, (found[2] or "").strip(), blocks[1:])

    def calls(self, blocks: Sequence[Json]) -> bool:
        """Return whether a prompt calls a command, which then needs a turn of its own."""
        return self.find(blocks) is not None

    def _all(self) -> dict[str, SlashCommand]:
        known = dict(self._registered)
        for command in chain.from_iterable(provider() for provider in self._providers):
            if len(known) < MAX_COMMANDS:
                known.setdefault(command.name, command)
        return known
