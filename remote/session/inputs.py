"""The inputs of a session: each is applied once, however often it is sent, and prompts wait here for their turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Callable

from ccb.tunnel.wire.messages import PublicLine, UserLine

from ..agent.deps import Prompt

Json = dict[str, Any]

MAX_WAITING = 1000
"""Maximum number of waiting prompts."""

_MAX_SEEN = 20_000  # number of remembered ids; the clients of older inputs have received their `applied` long ago


class TooManyInputs(Exception):
    """The queue of prompts is full, and nothing was applied."""


class Inputs:
    """The ids of the inputs that were applied, and the queue of prompts in order. `any_prompt` says whether the session
    ever had a prompt."""

    def __init__(self) -> None:
        self.any_prompt = False
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._queue: deque[tuple[Prompt, str]] = deque()  # prompt, uuid of its message
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def knows(self, input_id: str) -> bool:
        """Return whether the input with this id was applied."""
        return input_id in self._seen

    def knows_message(self, line: PublicLine) -> bool:
        """Return whether this user message was applied before, under any input id."""
        return isinstance(line, UserLine) and f"uuid:{line.uuid}" in self._seen

    def remember(self, input_id: str, line: PublicLine) -> None:
        """Remember that this input is in the journal."""
        self._seen[input_id] = None
        if isinstance(line, UserLine) and line.uuid:
            self._seen[f"uuid:{line.uuid}"] = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def check_room(self) -> None:
        """Raise TooManyInputs when no more prompts may wait."""
        if len(self._queue) >= MAX_WAITING:
            raise TooManyInputs(f"{MAX_WAITING} prompts are waiting already")

    def put(self, input_id: str, line: UserLine) -> None:
        """Queue the prompt in a user message."""
        self.any_prompt = True
        self._queue.append((Prompt.from_input(input_id, line), line.uuid))
        self._arrived.set()

    def wake(self) -> None:
        """Make `wait` return."""
        self._arrived.set()

    async def wait(self) -> None:
        """Return when there may be a new prompt."""
        self._arrived.clear()
        await self._arrived.wait()

    def pop(self) -> Prompt:
        """Take the next prompt out of the queue."""
        return self._queue.popleft()[0]

    def take_all(self, waits: Callable[[Sequence[Json]], bool] = lambda blocks: False) -> list[Prompt]:
        """Take the prompts out of the queue, up to the first one whose blocks a turn of its own `waits` for."""
        prompts = []
        while self._queue and not waits(self._queue[0][0].blocks):
            prompts.append(self._queue.popleft()[0])
        return prompts

    @property
    def waiting_uuids(self) -> list[str]:
        """The uuids of the messages whose prompts wait."""
        return [identity for _, identity in self._queue if identity]
