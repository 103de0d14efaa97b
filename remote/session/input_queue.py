"""The inputs of a session: each is applied once, however often it is sent. Prompts and notices wait here for a turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import LATER, MAIN_AGENT, PRIORITY, QueuedRecord
from ccb.tunnel.wire.messages import PublicMessage, UserMessage

from ..agent.turn_state import Prompt

Json = dict[str, Any]

MAX_WAITING = 1000
_MAX_SEEN = 20_000  # number of remembered ids; the clients of older inputs have received their `applied` long ago
_NOW, _NEXT, _LATER = range(3)
_PRIORITIES = {"now": _NOW, "next": _NEXT, LATER: _LATER}


class TooManyInputs(Exception):
    pass


@dataclass(frozen=True)
class Waiting:
    """An item of the queue. `wakes`: it starts a turn."""

    prompt: Prompt
    uuid: str
    priority: int
    wakes: bool = True
    agent_id: str = MAIN_AGENT

    @property
    def is_notice(self) -> bool:
        return self.prompt.origin is not None

    @property
    def stands_alone(self) -> bool:
        """Whether it needs a turn of its own: it may be a command, or the model is not called for it."""
        prompt = self.prompt
        text = str(prompt.blocks[0].get("text")) if prompt.blocks else ""
        return prompt.silent or (not (self.is_notice or prompt.verbatim) and text.startswith("/"))


class InputQueue:
    """The ids of applied inputs, and the queue of prompts and notices. Notices come after prompts."""

    def __init__(self) -> None:
        self.any_prompt = False
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._queue: list[Waiting] = []  # by priority
        self._arrived = asyncio.Event()
        self._echoes: dict[str, Json] = {}  # messages that are shown again when a turn takes them, by input id

    def __len__(self) -> int:
        return sum(1 for each in self._queue if each.wakes and each.agent_id == MAIN_AGENT)

    @property
    def any_waiting(self) -> bool:
        return any(not each.is_notice for each in self._queue)

    def knows(self, input_id: str) -> bool:
        return input_id in self._seen

    def knows_message(self, line: PublicMessage) -> bool:
        return isinstance(line, UserMessage) and f"uuid:{line.uuid}" in self._seen

    def remember(self, input_id: str, line: PublicMessage) -> None:
        self._seen[input_id] = None
        if isinstance(line, UserMessage) and line.uuid:
            self._seen[f"uuid:{line.uuid}"] = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def check_room(self) -> None:
        if len(self._queue) >= MAX_WAITING:
            raise TooManyInputs(f"{MAX_WAITING} prompts are waiting already")

    def put(self, input_id: str, line: UserMessage, *, echo: bool) -> bool:
        self.any_prompt = True
        if echo:
            self._echoes[input_id] = line.body
        priority = _PRIORITIES.get(str(line.body.get(PRIORITY)), _NEXT)
        self._add(Waiting(Prompt.from_input(input_id, line), line.uuid, priority))
        return priority == _NOW

    def echo_of(self, input_id: str) -> Json | None:
        return self._echoes.pop(input_id, None)

    def notify(self, notice: QueuedRecord, agent_id: str = MAIN_AGENT) -> None:
        self._add(Waiting(Prompt(notice.content, notice.id, notice.origin), "", _LATER, notice.wakes, agent_id))

    def _add(self, item: Waiting) -> None:
        place = next((at for at, each in enumerate(self._queue) if each.priority > item.priority), len(self._queue))
        self._queue.insert(place, item)
        self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    def next_turn(self, *, notices: bool) -> list[Prompt]:
        """Take what the next turn begins with: the first prompt after the notices before it (none go with a command),
        or notices alone if one wakes and `notices` allows it."""
        ours = [each for each in self._queue if each.agent_id == MAIN_AGENT]
        told = [each for each in ours if each.is_notice]
        prompt = next((each for each in ours if not each.is_notice), None)
        if prompt is not None:
            return self._taken([prompt] if prompt.stands_alone else [*told, prompt])
        return self._taken(told if notices and any(each.wakes for each in told) else [])

    def take_all(
        self, agent_id: str = MAIN_AGENT, alone: Callable[[Sequence[Json]], bool] = lambda blocks: False
    ) -> list[Prompt]:
        """Take what joins an agent's running turn: neither prompts for later, nor a command and what comes after it."""
        ours = [
            each for each in self._queue if each.agent_id == agent_id and (each.is_notice or each.priority < _LATER)
        ]
        taken: list[Waiting] = []
        stops = False
        for each in ours:
            stops = stops or (each.stands_alone and (each.prompt.shell or alone(each.prompt.blocks)))
            if each.is_notice or not stops:
                taken.append(each)
        return self._taken(taken)

    def waiting_id(self, uuid: str) -> str:
        found = (each.prompt.input_id for each in self._queue if uuid and uuid in (each.uuid, each.prompt.input_id))
        return next(found, "")

    def take_back(self, input_id: str) -> None:
        self._queue = [each for each in self._queue if each.prompt.input_id != input_id]

    def move(self, input_id: str, before: str, *, steers: bool = False) -> None:
        """Put a waiting prompt in front of that of `before`, or last. `steers`: it joins the running turn."""
        item = next(each for each in self._queue if each.prompt.input_id == input_id)
        self._queue.remove(item)
        if steers and item.priority == _LATER:
            item = replace(item, priority=_NEXT)
        places = [at for at, each in enumerate(self._queue) if before and each.prompt.input_id == before]
        if places and self._queue[places[0]].priority == item.priority:
            self._queue.insert(places[0], item)
        else:
            self._add(item)

    def _taken(self, items: list[Waiting]) -> list[Prompt]:
        taken = {id(each) for each in items}
        self._queue = [each for each in self._queue if id(each) not in taken]
        return [each.prompt for each in items]

    @property
    def waiting_uuids(self) -> list[str]:
        return [each.uuid for each in self._queue if each.uuid]
