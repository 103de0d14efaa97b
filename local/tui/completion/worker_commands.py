"""The slash commands that the worker carries out, asked for when they are needed."""

from __future__ import annotations

import asyncio
import time

from pydantic import BaseModel, TypeAdapter, ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.kinds.commands import LIST_COMMANDS
from ccb.tunnel.wire.requests import Request, RequestFailed

from ...session.client import SessionClient
from .candidates import Candidate

_FRESH_S = 2.0
_MAX_COMMANDS = 1000
_MAX_TEXT = 200  # characters


class _Listed(BaseModel):
    name: str
    description: str = ""
    argumentHint: str = ""


_LIST = TypeAdapter(list[_Listed])


def from_worker(commands: object) -> list[Candidate]:
    """Read the list of a worker; [] for one that is malformed."""
    try:
        listed = _LIST.validate_python(commands)[:_MAX_COMMANDS]
    except ValidationError:
        return []
    return [
        Candidate(_shown(each.name), _shown(each.argumentHint), _shown(each.description), on_host=True)
        for each in listed
    ]


class WorkerCommands:
    """`known` is the last list of the worker; an older worker has none."""

    def __init__(self, client: SessionClient) -> None:
        self.known: list[Candidate] = []
        self._client = client
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def ask(self) -> bool:
        """Bring the list up to date, unless it is fresh. Return whether it changed. Who asks while an answer is on its
        way waits for that one."""
        async with self._asking:
            if time.monotonic() - self._asked_at < _FRESH_S or not self._client.driving:
                return False
            self._asked_at = time.monotonic()
            try:
                answer = await self._client.request(Request(LIST_COMMANDS, None))
            except (CcbError, RequestFailed):
                return False
            before, self.known = self.known, from_worker(answer.get("commands"))
            return self.known != before

    async def knows(self, name: str) -> bool:
        """Return whether the worker has a command of this name."""
        if not any(each.name == name for each in self.known):
            await self.ask()
        return any(each.name == name for each in self.known)


def _shown(text: str) -> str:
    return one_line(text)[:_MAX_TEXT]
