"""All slash commands of the laptop: help, completion and the reserved names come from here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import RequestFailed

from . import about_session, agent_commands, extension_commands, other_sessions, port_commands, this_laptop
from .registry import Choices, LaptopCommand, OnScreen, Reply, ReplyRow, Rows, everywhere
from .session_api import Place, SessionApi

_FRESH_S = 10.0


@everywhere(
    "help [WORD]",
    "show this help, or what of it has a word",
    choices=lambda _: {each.name: each.does for each in COMMANDS},
    takes_text=True,
)
async def show_help(api: SessionApi, sought: str) -> Reply:
    if api.place is Place.SCREEN:
        return OnScreen()
    rows = [ReplyRow(each.usage, each.does) for each in COMMANDS if api.place in each.places]
    with suppress(CcbError, RequestFailed, ValueError):  # the other commands are known without the worker
        listed = await api.worker_commands()
        rows += worker_rows([(f"/{each.name} {each.argumentHint}".rstrip(), each.description) for each in listed])
    words = sought.lower().split()
    fitting = [row for row in rows if all(word in row.line.lower() for word in words)]
    return Rows(fitting, none="Nothing fits.", title="Help")


def worker_rows(commands: list[tuple[str, str]]) -> list[ReplyRow]:
    """Return the rows of /help for commands of the worker, without those that the laptop carries out."""
    return [
        ReplyRow(one_line(usage), one_line(does), section="Commands of the project, skills, prompts")
        for usage, does in commands
        if one_line(usage)[1:].partition(" ")[0] not in OWN_NAMES
    ]


_MODULES = (agent_commands, about_session, port_commands, extension_commands, other_sessions, this_laptop)
COMMANDS: tuple[LaptopCommand, ...] = (
    show_help,
    *(each for module in _MODULES for each in vars(module).values() if isinstance(each, LaptopCommand)),
)
_BY_NAME: Mapping[str, LaptopCommand] = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}
OWN_NAMES = frozenset((*_BY_NAME, "?"))  # commands of the worker with these names are reached in headless runs only


def find_command(name: str) -> LaptopCommand | None:
    return _BY_NAME.get(name)


class ArgumentChoices:
    """Knows what may follow a command. Nothing of that is ever an error."""

    def __init__(self, api: SessionApi) -> None:
        self._api = api
        self._asked_at: dict[str, float] = {}
        self._answers: dict[str, Choices] = {}

    def now(self, each: LaptopCommand) -> Choices:
        if each.asked is not None:
            return self._answers.get(each.name, {})
        return each.choices if isinstance(each.choices, Mapping) else each.choices(self._api)

    async def ask(self, name: str) -> bool:
        found, now = find_command(name), time.monotonic()
        if found is None or found.asked is None or now - self._asked_at.get(found.name, -_FRESH_S) < _FRESH_S:
            return False
        self._asked_at[found.name] = now
        try:
            answer = await found.asked(self._api)
        except (CcbError, RequestFailed, ValueError):
            return False
        changed = answer != self._answers.get(found.name)
        self._answers[found.name] = answer
        return changed
