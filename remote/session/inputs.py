"""Inputs of a session: each is applied once, whatever is sent again, and prompts wait here for their turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Any

from ..agent.deps import Prompt

Json = dict[str, Any]

MOST_WAITING = 1000
"""Prompts that may wait; one more is refused."""

_MOST_SEEN = 20_000  # ids remembered; older ones belong to clients that have long had their `applied`


class TooManyInputs(Exception):
    """The queue of prompts is full; nothing was applied."""


class Inputs:
    """The ids of what was applied, and the queue of prompts in order."""

    def __init__(self) -> None:
        self.any_prompt = False
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._queue: deque[tuple[Prompt, str]] = deque()  # prompt, uuid of its message
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def knows(self, input_id: str) -> bool:
        """Whether the input of this id was applied."""
        return input_id in self._seen

    def knows_message(self, body: Json) -> bool:
        """Whether a message with the uuid of `body` was applied, under whatever id."""
        return f"uuid:{message_uuid(body)}" in self._seen

    def remember(self, input_id: str, body: object) -> None:
        """This input is in the journal."""
        self._seen[input_id] = None
        identity = message_uuid(body)
        if identity:
            self._seen[f"uuid:{identity}"] = None
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def check_room(self) -> None:
        """Raises TooManyInputs."""
        if len(self._queue) >= MOST_WAITING:
            raise TooManyInputs(f"{MOST_WAITING} prompts are waiting already")

    def put(self, input_id: str, body: Json) -> None:
        """Queue the prompt in a public user message."""
        self.any_prompt = True
        self._queue.append((Prompt.from_input(input_id, body), message_uuid(body)))
        self._arrived.set()

    def wake(self) -> None:
        """Let who waits look again."""
        self._arrived.set()

    async def wait(self) -> None:
        """Returns when there may be something new."""
        self._arrived.clear()
        await self._arrived.wait()

    def pop(self) -> Prompt:
        """The next prompt."""
        return self._queue.popleft()[0]

    def take_all(self) -> list[Prompt]:
        """Every prompt that waits; the queue is empty afterwards."""
        prompts = [prompt for prompt, _ in self._queue]
        self._queue.clear()
        return prompts

    @property
    def waiting_uuids(self) -> list[str]:
        """Message uuids of the prompts that wait."""
        return [identity for _, identity in self._queue if identity]


def message_uuid(body: object) -> str:
    """The uuid a client gave its message, "" for none."""
    identity = body.get("uuid") if isinstance(body, dict) else None
    return identity if isinstance(identity, str) else ""
